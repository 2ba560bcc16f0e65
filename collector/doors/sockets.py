"""Unix datagrams of local programs and ethtool's ioctl, for `collector.doors.host` alone."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import stat
import struct
import threading
from typing import NamedTuple


class NicDriver(NamedTuple):
    """What `ethtool -i` reports about an interface; empty where the driver does not report it."""

    driver: str
    version: str = ""
    firmware: str = ""
    bus: str = ""


# Unix datagrams --------------------------------------------------------------------------------


class Datagram(NamedTuple):
    """A message, and the process that sent it according to the kernel (0 if unknown)."""

    data: bytes
    pid: int


class DatagramSocket:
    """A Unix datagram socket that every process on this machine may send to; it never blocks."""

    MESSAGE_BYTES_MAX = 64 << 10
    """A longer message is cut, and its last line is then incomplete."""
    CREDENTIALS = struct.Struct("3i")
    """struct ucred: process, user and group, filled in by the kernel and not by the sender."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._inode = 0

    def receive(self, count_max: int) -> list[Datagram]:
        """What has arrived, up to so many messages; OSError when the socket cannot be made."""
        if self._socket is None or not self._is_there():
            self.close()
            self._socket = self._bind()
        messages: list[Datagram] = []
        room = socket.CMSG_SPACE(self.CREDENTIALS.size)
        while len(messages) < count_max:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(self.MESSAGE_BYTES_MAX, room)
            except BlockingIOError:
                break
            messages.append(Datagram(data, self._sender(ancillary)))
        return messages

    def close(self) -> None:
        """Remove the socket; later sends fail with ECONNREFUSED or ENOENT."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            if self._is_there():
                os.unlink(self._path)  # noqa: PTH108 - a text, no Path

    def _bind(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._take_over(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            made.bind(self._path)
            os.chmod(self._path, 0o666)  # noqa: PTH101, S103 - jobs of all users send to it
            self._inode = os.lstat(self._path).st_ino
        except OSError:
            made.close()
            raise
        return made

    def _take_over(self, probe: socket.socket) -> None:
        """Remove the socket of an agent that was killed; one that is alive keeps it."""
        try:
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                raise FileExistsError(errno.EEXIST, "Something else has that name")
            probe.connect(self._path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(self._path)  # noqa: PTH108 - a text, no Path
            return
        raise OSError(errno.EADDRINUSE, "Another process listens there")

    def _is_there(self) -> bool:
        """Whether the name still leads to this socket: cleaners of /run remove names."""
        try:
            return os.lstat(self._path).st_ino == self._inode
        except OSError:
            return False

    def _sender(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, _, _ = self.CREDENTIALS.unpack_from(data)
                return int(pid)
        return 0


# ethtool: texts of captures, and the ioctl -----------------------------------------------------


def parse_ethtool_stats(text: str) -> dict[str, int]:
    r"""The statistics in a text of ``ethtool -S``; lines that hold no number are passed over.

    >>> parse_ethtool_stats("NIC statistics:\n     rx_prio3_pause: 17\n")
    {'rx_prio3_pause': 17}
    """
    stats: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.rpartition(":")
        number = number.strip()
        if name and number.isascii() and number.isdigit() and len(number) <= len(str(1 << 64)):
            stats[name.strip()] = int(number)
    return stats


def parse_ethtool_driver(text: str) -> NicDriver:
    pairs = (line.partition(":") for line in text.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    return NicDriver(
        driver=values.get("driver", ""),
        version=values.get("version", ""),
        firmware=values.get("firmware-version", ""),
        bus=values.get("bus-info", ""),
    )


class EthtoolSocket:
    """SIOCETHTOOL without a subprocess (linux/ethtool.h; needs no privilege).

    Names are read once and again whenever the number of statistics changes: mlx5 adds and
    removes some with its channels and with the priorities that have flow control.
    """

    SIOCETHTOOL = 0x8946
    GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
    SET_STATS = 1
    STATS_MAX = 16_384
    """A driver with 256 channels of 40 statistics has 10,000; more is a broken answer."""
    NAME_BYTES = 32
    INTERFACE_BYTES = 16

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._names: dict[str, list[str]] = {}
        # The kernel writes as many entries as the driver has at that moment, whatever was asked
        # for. A buffer for the most there can be is what keeps it from writing over our memory.
        self._buffer = array.array("B", bytes(12 + self.NAME_BYTES * self.STATS_MAX))
        self._lock = threading.Lock()

    def stats(self, interface: str) -> dict[str, int]:
        """Statistics of an interface; OSError when it or its driver has none."""
        count = self._count(interface)
        names = self._names.get(interface)
        if names is None or len(names) != count:
            names = self._names[interface] = self._read_names(interface, count)
        answer = self._call(interface, struct.pack("=II", self.GSTATS, count), 8 * count)
        if struct.unpack_from("=I", answer, 4)[0] != count:
            raise OSError(errno.EAGAIN, "the number of statistics changes right now")
        return dict(zip(names, struct.unpack_from(f"={count}Q", answer, 8), strict=True))

    def driver(self, interface: str) -> NicDriver:
        """The driver of an interface: struct ethtool_drvinfo, five texts of 32 bytes."""
        answer = self._call(interface, struct.pack("=I", self.GDRVINFO), 192)
        driver, version, firmware, bus = (
            _text(answer[at : at + self.NAME_BYTES]) for at in (4, 36, 68, 100)
        )
        return NicDriver(driver, version, firmware, bus)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _count(self, interface: str) -> int:
        request = struct.pack("=IIQ", self.GSSET_INFO, 0, 1 << self.SET_STATS)
        answer = self._call(interface, request, 4)
        mask, count = struct.unpack_from("=QI", answer, 8)
        if not mask or not count:
            raise OSError(errno.EOPNOTSUPP, "the driver offers no statistics")
        if count > self.STATS_MAX:
            raise OSError(errno.EIO, f"the driver claims {count} statistics")
        return int(count)

    def _read_names(self, interface: str, count: int) -> list[str]:
        request = struct.pack("=III", self.GSTRINGS, self.SET_STATS, count)
        answer = self._call(interface, request, self.NAME_BYTES * count)
        starts = range(12, 12 + self.NAME_BYTES * count, self.NAME_BYTES)
        return [_text(answer[at : at + self.NAME_BYTES]) for at in starts]

    def _call(self, interface: str, request: bytes, room: int) -> bytes:
        """The kernel's answer, written over ``request`` and ``room`` bytes after it."""
        encoded = interface.encode()
        if len(encoded) >= self.INTERFACE_BYTES:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        with self._lock:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            view = memoryview(self._buffer)
            view[: len(request)] = request
            address, _ = self._buffer.buffer_info()
            ifreq = struct.pack("16sP16x", encoded, address)
            fcntl.ioctl(self._socket, self.SIOCETHTOOL, ifreq)
            return view[: len(request) + room].tobytes()


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")
