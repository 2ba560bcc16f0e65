"""The only door to the machine: files, links, ioctls and clocks, below one root.

Every source is given a `Host` and touches nothing else, so every source runs on a captured tree
(``Host(Path("capture"))``) exactly as it runs on the machine itself. A refusal is a `HostError`
that carries the `UnreadReason` a `Missing` needs. Sources interpret the bytes.

One host may be used by several threads at once.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from collector.contract.errors import HostError, SettingsError
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.clocks import (
    HardwareClock,
    KernelClock,
    parse_hardware_clock,
    parse_kernel_clock,
    read_hardware_clock,
    read_kernel_clock,
)
from collector.doors.commands import Output, recorded_as, run_command
from collector.doors.ethtool_netlink import EthtoolNetlink, Fec, parse_recorded_fec, recorded_piece
from collector.doors.fetch import OPEN, Access, Fetcher
from collector.doors.kernel_log import KernelLog, KernelNews, replay
from collector.doors.netlink import LinkNews, LinkSocket
from collector.doors.nvml import LiveNvml, Nvml, ReplayedNvml
from collector.doors.probes import LiveProber, Prober, ReplayedProber
from collector.doors.probes import Plan as ProbePlan
from collector.doors.ras import ask_status
from collector.doors.rdma_netlink import Question, RdmaNetlink
from collector.doors.rdma_netlink import parse_recorded as parse_recorded_rdma
from collector.doors.sockets import (
    Datagram,
    DatagramSocket,
    EthtoolSocket,
    NicDriver,
    parse_ethtool_driver,
    parse_ethtool_stats,
)
from collector.doors.udp import Packet, UdpSocket, parse_recorded, split_address
from collector.doors.virtual_functions import VirtualFunction, ask_functions, parse_functions
from collector.doors.virtual_functions import parse_recorded as parse_recorded_functions
from collector.parsing.transceiver import Page
from collector.switches.gnmi.model import Connection as GnmiConnection
from collector.switches.gnmi.model import Target as GnmiTarget
from collector.switches.snmp.model import Session, Target

if TYPE_CHECKING:
    from collector.bursts.plan import Plan
    from collector.bursts.process import FastSampler
    from collector.switches.snmp.replay import Recording

RECORDING_BYTES_MAX = 64 << 20
"""Recorded output of a switch or a program, in a captured tree. The largest known recording of a
switch has 4 MB."""
COUNTER_BYTES = 128
"""What one re-read returns at most. The longest counter has 21 bytes, a `rate` about 40."""
FILE_BYTES_MAX = 1 << 20
"""A whole file. sysfs gives at most a page; a text of `ethtool -S` has about 40 kB."""

KEPT_FILES_MAX = 4096
"""Files held open for re-reading: sixteen ports of 250 counters. Others are opened each time."""
RESERVED_FILES = 256
"""File descriptors left to the rest of the agent (spool, sockets, other sources)."""
REOPEN_SECONDS = 60
"""Held files are reopened this often. sysfs returns ENODEV when a device has gone, but a file of a
captured tree that was replaced by a rename returns no error; and files that no source reads any
more must be closed."""
REFUSED_RETRY_SECONDS = 300
"""How long a refusal (EINVAL, EOPNOTSUPP) is believed. Restricted functions make the kernel log an
error at every attempt (prometheus/node_exporter#3434): a read at each scrape floods its log."""

NVIDIA_DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
"""One of these is there where NVIDIA's driver is (the last one under Windows). Checked first, so
that a host without GPUs never loads the library."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_NOT_SUPPORTED = frozenset(
    {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EPROTONOSUPPORT}
)
# Nothing below a root should be a pipe; if something is, opening it must not hang the agent.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def reason_for(code: int) -> UnreadReason:
    """Why a reading is missing, from the error number of the call that failed."""
    if code in _ABSENT:
        return UnreadReason.ABSENT
    return UnreadReason.NOT_SUPPORTED if code in _NOT_SUPPORTED else UnreadReason.UNREADABLE


def host_error(path: str, error: OSError) -> HostError:
    code = error.errno or 0
    return HostError(reason_for(code), path, error.strerror or str(error))


def named_error(path: str, error: OSError | ValueError) -> HostError:
    """The refusal of a call whose path comes from settings or logs; a NUL in it is a ValueError."""
    if isinstance(error, OSError):
        return host_error(path, error)
    return HostError(UnreadReason.ABSENT, repr(path), str(error))


def read_whole(handle: int, bytes_max: int) -> bytes:
    """Up to so many bytes; files of `/proc` come in pieces of a page or so."""
    pieces: list[bytes] = []
    left = bytes_max
    while left and (piece := os.read(handle, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


class FileFacts(NamedTuple):
    """What the file system reports about a name, without following a link in its last part."""

    identity: tuple[int, int]
    """Device and inode: what stays the same when a file is renamed."""
    size: int
    changed_ns: int
    """When its content last changed, by the file system's clock (unix nanoseconds)."""
    is_file: bool
    """A regular file: neither a directory, nor a link, nor a pipe."""


def file_facts(status: os.stat_result) -> FileFacts:
    return FileFacts(
        identity=(status.st_dev, status.st_ino),
        size=status.st_size,
        changed_ns=status.st_mtime_ns,
        is_file=stat.S_ISREG(status.st_mode),
    )


class Host:
    """The machine below ``root``; paths are relative to it (``sys/class/net``)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self._is_live = root == Path("/")
        self._prefix = str(root).rstrip("/") + "/"
        self._kept: dict[str, int] = {}
        self._kept_max: int | None = None
        # Descriptors wait one period before they are closed: another thread may have looked one up
        # and not used it yet, and a number closed too early is soon the number of another file.
        self._retired: list[int] = []
        self._reopen_ns = 0
        self._refused: dict[str, tuple[int, HostError]] = {}
        self._lock = threading.Lock()
        self._ethtool = EthtoolSocket() if self._is_live else None
        self._ethtool_netlink = EthtoolNetlink() if self._is_live else None
        self._datagrams: dict[str, DatagramSocket] = {}
        self._udp: dict[str, UdpSocket] = {}
        self._link_socket = LinkSocket() if self._is_live else None
        self._kernel_log: KernelLog | None = None
        self._kernel_records = 0
        """Of a captured tree: how many were replayed."""
        self._fetcher = Fetcher() if self._is_live else None
        self._nvml: LiveNvml | None = None
        self._replayed: ReplayedNvml | None = None
        self._recordings: dict[str, Recording] = {}
        """By switch: as many as the settings of one agent name."""

    # Clocks and names ------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The machine's host name; on a captured tree without one, this machine's."""
        try:
            return self.read("proc/sys/kernel/hostname").decode("utf-8", "replace").strip()
        except HostError:
            return socket.gethostname()

    def boot_id(self) -> str:
        """Changes whenever the machine boots: counters of another boot are not comparable."""
        return self.read("proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()

    def now_ns(self) -> int:
        """Wall clock, unix nanoseconds: for the time of a sample."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def kernel_clock(self) -> KernelClock:
        """How the system's clock is kept; on a captured tree the file `clock/adjtimex`."""
        path = "clock/adjtimex"
        try:
            if self._is_live:
                return read_kernel_clock()
            return parse_kernel_clock(self.read(path))
        except OSError as error:
            raise host_error("adjtimex", error) from error
        except ValueError as error:
            raise HostError(UnreadReason.UNPARSEABLE, path, str(error)) from error

    def hardware_clock(self, name: str) -> HardwareClock:
        """A NIC's clock (`ptp0`) against the system's; on a captured tree `clock/<name>`."""
        try:
            if self._is_live:
                return read_hardware_clock(f"/dev/{name}")
            return parse_hardware_clock(self.read(f"clock/{name}"))
        except OSError as error:
            raise host_error(f"dev/{name}", error) from error
        except ValueError as error:
            raise HostError(UnreadReason.UNPARSEABLE, f"clock/{name}", str(error)) from error

    # Files -----------------------------------------------------------------------------------

    def read(self, path: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """The whole file, for what is read rarely; its beginning, if it is longer than allowed."""
        self._raise_if_refused(path)
        try:
            handle = os.open(self._prefix + path, _OPEN_FLAGS)
            try:
                return read_whole(handle, bytes_max)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._refuse(path, error) from error

    def reread(self, path: str) -> bytes:
        """The first COUNTER_BYTES of a small file that is read at every scrape."""
        (answer,) = self.reread_all((path,))
        if isinstance(answer, HostError):
            raise answer
        return answer

    def reread_all(self, paths: Sequence[str]) -> Sequence[bytes | HostError]:
        """`reread` of many files: a text or a refusal for each, in order.

        The files stay open: `pread` at offset 0 makes sysfs compute the number again and costs a
        quarter of open, read and close.
        """
        answers: list[bytes | HostError] = []
        if time.monotonic_ns() >= self._reopen_ns:
            self._renew()
        kept, pread = self._kept, os.pread
        for path in paths:
            try:
                answers.append(pread(kept[path], COUNTER_BYTES, 0))
            except KeyError:
                answers.append(self._open_and_keep(path))
            except OSError as error:
                answers.append(self._let_go(path, error))
        return answers

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; without those that no label can hold (not UTF-8)."""
        try:
            names = os.listdir(self._prefix + path)  # noqa: PTH208 - a third of the time
        except OSError as error:
            raise host_error(path, error) from error
        return sorted(name for name in names if name.isprintable())

    def link_target(self, path: str) -> str:
        """Where a symbolic link points, as written; absent when it is not a link."""
        try:
            return os.readlink(self._prefix + path)  # noqa: PTH115 - the text, no Path
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise HostError(UnreadReason.ABSENT, path, "Not a symbolic link") from error
            raise host_error(path, error) from error

    def exists(self, path: str) -> bool:
        """Whether the name is there; a link counts even when a capture does not hold its target."""
        return os.path.lexists(self._prefix + path)

    def stat(self, path: str) -> FileFacts:
        """Identity, size and time of a name; a link is described, not followed."""
        try:
            return file_facts(os.lstat(self._prefix + path))
        except (OSError, ValueError) as error:
            raise named_error(path, error) from error

    def read_at(
        self, path: str, offset: int, length: int, identity: tuple[int, int] | None = None
    ) -> bytes:
        """Up to ``length`` bytes from ``offset`` on, of a regular file; empty at its end.

        With an ``identity`` it is absent when another file has that name by now. Links are not
        followed: log folders are often writable by every user, and the agent may read more of the
        machine than the user who placed the link.
        """
        try:
            handle = os.open(self._prefix + path, _OPEN_FLAGS | os.O_NOFOLLOW)
            try:
                facts = file_facts(os.fstat(handle))
                if not facts.is_file:
                    raise HostError(UnreadReason.NOT_SUPPORTED, path, "Not a regular file")
                if identity is not None and facts.identity != identity:
                    raise HostError(UnreadReason.ABSENT, path, "Replaced by another file")
                return os.pread(handle, length, offset)
            finally:
                os.close(handle)
        except (OSError, ValueError) as error:
            raise named_error(path, error) from error

    def close(self) -> None:
        with self._lock:
            for handle in (*self._kept.values(), *self._retired):
                os.close(handle)
            self._kept, self._retired = {}, []
        for asker in (self._ethtool, self._ethtool_netlink):
            if asker:
                asker.close()
        if self._link_socket:
            self._link_socket.close()
        for door in self._datagrams.values():
            door.close()
        for listener in self._udp.values():
            listener.close()
        if self._kernel_log:
            self._kernel_log.close()
        if self._fetcher:
            self._fetcher.close()
        if self._nvml:
            self._nvml.close()

    # Messages of programs on this machine ------------------------------------------------------

    def receive(self, path: str, count_max: int) -> Sequence[Datagram]:
        """Datagrams that have come to the Unix socket at ``path`` and wait, up to so many.

        The first call makes the socket in its folder, and is refused as absent where there is no
        such folder. A captured tree has no sockets.
        """
        if not self._is_live:
            raise HostError(UnreadReason.ABSENT, path, "A captured tree has no sockets")
        try:
            with self._lock:
                door = self._datagrams.get(path)
                if door is None:
                    door = self._datagrams[path] = DatagramSocket(self._prefix + path)
            return door.receive(count_max)
        except OSError as error:
            raise host_error(path, error) from error

    def receive_udp(self, address: str, count_max: int) -> tuple[Sequence[Packet], int]:
        """Messages that have come to a UDP address of ours, and how many the kernel has dropped.

        The first call makes the socket. On a captured tree they are the recording
        `udp/<address, quoted>`, at each call.
        """
        if not self._is_live:
            return parse_recorded(self.read(f"udp/{quote(address, safe='')}")), 0
        with self._lock:
            try:
                door = self._udp.get(address) or UdpSocket(*split_address(address))
                self._udp[address] = door
                return door.receive(count_max), door.dropped
            except (OSError, ValueError) as error:
                raise named_error(address, error) from error

    # Ethernet statistics ---------------------------------------------------------------------

    def ethtool_stats(self, interface: str) -> dict[str, int]:
        """Every driver statistic of an interface by its native name.

        On a captured tree the text of ``ethtool -S`` is read from `ethtool/<interface>/statistics`;
        a capture without that file is of an interface that offers no statistics.
        """
        if self._ethtool is None:
            return parse_ethtool_stats(self._read_capture(interface, "statistics"))
        path = f"ethtool/{interface}/statistics"
        self._raise_if_refused(path)
        try:
            return self._ethtool.stats(interface)
        except OSError as error:
            raise self._refuse(path, error) from error

    def ethtool_driver(self, interface: str) -> NicDriver:
        """The driver behind an interface; from `ethtool/<interface>/driver` on a captured tree."""
        if self._ethtool is None:
            return parse_ethtool_driver(self._read_capture(interface, "driver"))
        path = f"ethtool/{interface}/driver"
        self._raise_if_refused(path)
        try:
            return self._ethtool.driver(interface)
        except OSError as error:
            raise self._refuse(path, error) from error

    def module_piece(self, interface: str, page: Page) -> bytes:
        """A piece of the memory of the module in an interface; it may come short.

        On a captured tree `ethtool/<interface>/module` holds pieces, one a line: address, bank,
        page and offset in hexadecimal, a colon, and bytes in hexadecimal.
        """
        path = f"ethtool/{interface}/module/{page.address:x}.{page.bank}.{page.page:x}"
        try:
            if self._ethtool_netlink is None:
                return recorded_piece(self._read_capture(interface, "module"), page)
            self._raise_if_refused(path)
            return self._ethtool_netlink.module_piece(interface, page)
        except OSError as error:
            raise self._refuse(path, error) from error

    def fec(self, interface: str) -> Fec:
        """Error correction of an interface.

        On a captured tree `ethtool/<interface>/fec` holds the attributes of the kernel's answer in
        hexadecimal.
        """
        path = f"ethtool/{interface}/fec"
        try:
            if self._ethtool_netlink is None:
                return parse_recorded_fec(self._read_capture(interface, "fec"))
            self._raise_if_refused(path)
            return self._ethtool_netlink.fec(interface)
        except OSError as error:
            raise self._refuse(path, error) from error

    def _read_capture(self, interface: str, what: str) -> str:
        path = f"ethtool/{interface}/{what}"
        try:
            return self.read(path).decode("utf-8", "replace")
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                detail = "the capture has none: Operation not supported"
                raise HostError(UnreadReason.NOT_SUPPORTED, path, detail) from error
            raise

    # RDMA resources and virtual functions ------------------------------------------------------

    def rdma(self, question: Question, device: int | None = None) -> Sequence[bytes]:
        """Messages of the kernel's answer about RDMA devices, or about one by its index.

        On a captured tree the file `rdma/<question>`, with `.<index>` for one device.
        """
        path = f"rdma/{question}" + ("" if device is None else f".{device}")
        try:
            if not self._is_live:
                text = self.read(path, RECORDING_BYTES_MAX)
                return parse_recorded_rdma(text.decode("utf-8", "replace"))
            self._raise_if_refused(path)
            return RdmaNetlink().ask(question, device)
        except OSError as error:
            raise self._refuse(path, error) from error

    def virtual_functions(self, interface: str) -> Sequence[VirtualFunction]:
        """Those of an interface; on a captured tree `functions/<interface>`."""
        path = f"functions/{interface}"
        try:
            if not self._is_live:
                text = self.read(path).decode("utf-8", "replace")
                return parse_functions(parse_recorded_functions(text))
            self._raise_if_refused(path)
            return parse_functions(ask_functions(interface))
        except OSError as error:
            raise self._refuse(path, error) from error

    # Links -----------------------------------------------------------------------------------

    def link_news(self) -> LinkNews:
        """Interfaces' messages since the last call, at first all. One thread; absent on a tree."""
        if self._link_socket is None:
            raise HostError(UnreadReason.ABSENT, "rtnetlink", "a captured tree has no kernel")
        try:
            return self._link_socket.look()
        except OSError as error:
            raise host_error("rtnetlink", error) from error

    def kernel_news(self, records_max: int) -> KernelNews:
        """Records of the kernel's log since the last call, at first all. One thread.

        On a captured tree `dev/kmsg` is a file of such records.
        """
        path = "dev/kmsg"
        if not self._is_live:
            text, changed_ns = self.read(path, RECORDING_BYTES_MAX), self.stat(path).changed_ns
            news = replay(text, changed_ns, self._kernel_records, records_max)
            self._kernel_records += len(news.records)
            return news
        try:
            if self._kernel_log is None:
                self._kernel_log = KernelLog(self._prefix + path)
            records, now_ns = self._kernel_log.read(records_max), time.time_ns()
            return KernelNews(records, now_ns, now_ns - time.monotonic_ns())
        except OSError as error:
            raise host_error(path, error) from error

    # GPUs, and other programs' pages ----------------------------------------------------------

    def nvml(self) -> Nvml:
        """NVIDIA's library; absent without a driver. On a captured tree `nvml/answers.json`."""
        if not self._is_live:
            return self._replay_nvml("nvml/answers.json")
        with self._lock:
            if self._nvml is None or self._nvml.is_dead:
                if not any(self.exists(path) for path in NVIDIA_DRIVER):
                    raise HostError(UnreadReason.ABSENT, "nvml", "there is no NVIDIA driver")
                self._nvml = LiveNvml()
            return self._nvml

    def _replay_nvml(self, path: str) -> ReplayedNvml:
        """The recording as it is now; it remembers which of its events were reported."""
        text = self.read(path)
        with self._lock:
            if self._replayed is None:
                self._replayed = ReplayedNvml(text, path)
            else:
                self._replayed.load(text)
            return self._replayed

    def fetch(self, url: str, seconds: float, access: Access = OPEN) -> bytes:
        """The body of a GET in this time; on a captured tree the file `http/<the URL, quoted>`."""
        if self._fetcher is None:
            return self.read(f"http/{quote(url, safe='')}")
        return self._fetcher.fetch(url, seconds, access)

    def ras_status(self, address: str, seconds: float) -> bytes:
        """What NCCL's RAS answers there; on a captured tree the file `ras/<address, quoted>`."""
        if not self._is_live:
            return self.read(f"ras/{quote(address, safe='')}", RECORDING_BYTES_MAX)
        return ask_status(address, seconds)

    def prober(self, plan: ProbePlan) -> Prober:
        """Probes to agents; on a captured tree `probes/answers.json`. The caller closes it."""
        path = "probes/answers.json"
        try:
            if not self._is_live:
                return ReplayedProber(self.read(path), path)
            return LiveProber(plan)
        except OSError as error:
            raise host_error(f"UDP port {plan.port}", error) from error
        except ValueError as error:
            raise HostError(UnreadReason.UNPARSEABLE, path, str(error)) from error

    # Programs, and switches ------------------------------------------------------------------

    def run(
        self, words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> Output:
        """A program's output in this time, or absent; on a captured tree `recorded_as(words)`."""
        if not self._is_live:
            return Output(self.read(recorded_as(words), RECORDING_BYTES_MAX))
        return run_command(words, seconds, environment)

    def snmp(self, target: Target) -> Session:
        """A switch to ask; on a captured tree the recording `snmp/<name>.snmprec` as it is now.

        The caller closes it. While a recording stays unchanged, it is the same object.
        """
        if not self._is_live:
            from collector.switches.snmp.replay import Recording  # noqa: PLC0415 - see below

            path = f"snmp/{quote(target.name, safe='')}.snmprec"
            text = self.read(path, RECORDING_BYTES_MAX)
            known = self._recordings.get(target.name)
            if known is None or known.text != text:
                known = self._recordings[target.name] = Recording(text)
            return known
        try:
            # Imported here: only an agent that walks switches has pysnmp, and pays its memory.
            from collector.switches.snmp.client import open_session  # noqa: PLC0415
        except ModuleNotFoundError as error:
            detail = f"{error.name} is not installed: pip install 'fabricscope[poller]'"
            raise HostError(UnreadReason.ABSENT, "snmp", detail) from error
        return open_session(target)

    def gnmi(self, target: GnmiTarget) -> GnmiConnection:
        """A switch to listen to; on a captured tree `gnmi/<name>.json`. The caller closes it."""
        if not self._is_live:
            from collector.switches.gnmi.replay import Recording as Stream  # noqa: PLC0415 - as above

            return Stream(self.read(f"gnmi/{quote(target.name, safe='')}.json"))
        from collector.switches.gnmi.client import LiveConnection  # noqa: PLC0415

        return LiveConnection(target)

    # Fast samples ----------------------------------------------------------------------------

    def sampler(self, plan: Plan) -> FastSampler:
        """The fast sampler; on a captured tree it is `bursts/samples`. The caller closes it."""
        # Imported here: only hosts with a fabric have one.
        from collector.bursts.process import LiveSampler, ReplayedSampler  # noqa: PLC0415

        if not self._is_live:
            return ReplayedSampler(self.read("bursts/samples").decode("utf-8", "replace"), plan)
        counters = [each._replace(path=self._prefix + each.path) for each in plan.counters]
        return LiveSampler(plan._replace(counters=tuple(counters)))

    # Held files and remembered refusals ------------------------------------------------------

    def _open_and_keep(self, path: str) -> bytes | HostError:
        try:
            self._raise_if_refused(path)
            handle = os.open(self._prefix + path, _OPEN_FLAGS)
        except HostError as refusal:
            return refusal
        except OSError as error:
            return self._refuse(path, error)
        try:
            data = os.pread(handle, COUNTER_BYTES, 0)
        except OSError as error:
            os.close(handle)
            return self._refuse(path, error)
        with self._lock:
            if len(self._kept) < self._room() and path not in self._kept:
                self._kept[path] = handle
                return data
        os.close(handle)
        return data

    def _let_go(self, path: str, error: OSError) -> bytes | HostError:
        """Stop holding a file that failed; after ENODEV its device may be back under that name."""
        with self._lock:
            handle = self._kept.pop(path, None)
            if handle is not None:
                self._retired.append(handle)
        if error.errno == errno.ENODEV:
            return self._open_and_keep(path)
        return self._refuse(path, error)

    def _renew(self) -> None:
        """Once a period: retire every held file, close those that were retired a period ago."""
        with self._lock:
            now_ns = time.monotonic_ns()
            if now_ns < self._reopen_ns:
                return  # another thread was faster
            for handle in self._retired:
                os.close(handle)
            self._retired = list(self._kept.values())
            self._kept = {}
            self._reopen_ns = now_ns + REOPEN_SECONDS * NS

    def _room(self) -> int:
        """How many files may be held; the soft limit is raised as far as it is needed and allowed.

        systemd starts services with a soft limit of 1024, for the sake of those that use select(2).
        """
        if self._kept_max is None:
            wanted = KEPT_FILES_MAX + RESERVED_FILES
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != resource.RLIM_INFINITY and soft < wanted:
                soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            allowed = wanted if soft == resource.RLIM_INFINITY else soft
            self._kept_max = max(0, min(KEPT_FILES_MAX, allowed - RESERVED_FILES))
        return self._kept_max

    def _refuse(self, path: str, error: OSError) -> HostError:
        """The error to raise; a "not supported" is remembered and not asked for again soon."""
        refusal = host_error(path, error)
        if refusal.reason is UnreadReason.NOT_SUPPORTED:
            retry_ns = time.monotonic_ns() + REFUSED_RETRY_SECONDS * NS
            self._refused[path] = retry_ns, refusal
        return refusal

    def _raise_if_refused(self, path: str) -> None:
        if path not in self._refused:
            return
        retry_ns, refusal = self._refused[path]
        if time.monotonic_ns() < retry_ns:
            raise HostError(refusal.reason, path, refusal.detail)
        self._refused.pop(path, None)


def check_root(root: Path) -> None:
    """Raise SettingsError unless something can be read below this folder."""
    if not root.is_dir():
        raise SettingsError(f"--root {root}: there is no such folder")
    if not any((root / name).is_dir() for name in ("sys", "proc")):
        raise SettingsError(f"--root {root}: neither sys nor proc in it; it is no captured tree")
