"""The kernel's side of ethtool's generic netlink, for programs that ask about a made-up module.

It answers over a Unix socket of packets: the real `ethtool` (through `netlink_shim.c`) and our own
client. Numbers are written here a second time, from linux/ethtool_netlink.h, on purpose.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.doubles.transceivers import Plugged

FAMILY_NUMBER = 0x21
NLMSG_ERROR, GENL_ID_CTRL = 2, 0x10
CTRL_CMD_NEWFAMILY = 1
NLM_F_ACK = 4
FEC_GET, EEPROM_GET = 29, 31
FEC_REPLY, EEPROM_REPLY = 30, 32
"""Kernel's numbers of answers: ETHTOOL_MSG_FEC_GET_REPLY, …MODULE_EEPROM_GET_REPLY."""


def put(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + bytes(-size % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    found, place = {}, 0
    while place + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, place)
        found[kind & 0x3FFF] = data[place + 4 : place + size]
        place += size + 3 & ~3
    return found


def fec_answer(bins: list[tuple[int, int, int]]) -> bytes:
    """The attributes of an answer about error correction: RS, three counts, a histogram."""
    statistics = put(2, struct.pack("=Q", 812_345)) + put(3, struct.pack("=Q", 2))
    statistics += put(4, struct.pack("=5Q", 990_001, 10, 20, 30, 40))
    for low, high, blocks in bins:
        inside = put(1, struct.pack("=I", low)) + put(2, struct.pack("=I", high))
        count = struct.pack("=I" if blocks < 1 << 32 else "=Q", blocks)
        statistics += put(5 | 0x8000, inside + put(3, count))
    modes = put(1, b"") + put(2, struct.pack("=I", 75))
    return (
        put(2 | 0x8000, modes)
        + put(3, b"\0")
        + put(4, struct.pack("=I", 50))
        + put(5 | 0x8000, statistics)
    )


class FakeKernel:
    """Answers every client that connects, in a thread; `asked` remembers pieces of memory."""

    def __init__(self, path: Path, plugged: Plugged | None, fec: bytes = b"") -> None:
        self.path = path
        self.plugged = plugged
        self.fec = fec
        self.asked: list[tuple[int, int, int, int, int]] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(str(path))
        self._server.listen()
        self._clients: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for client in self._clients:
            client.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        while True:
            try:
                data = client.recv(1 << 16)
                if not data:
                    return
                for answer in self.answers(data):
                    client.send(answer)
            except OSError:
                return

    def answers(self, data: bytes) -> list[bytes]:
        size, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
        command = data[16]
        asked = attributes(data[20:size])
        reply, code = None, errno.EOPNOTSUPP
        if kind == GENL_ID_CTRL:
            reply = self._family()
        elif command == EEPROM_GET:
            reply, code = self._eeprom(asked), errno.EINVAL
        elif command == FEC_GET and self.fec:
            reply = struct.pack("=BBH", FEC_REPLY, 1, 0) + self.fec
        found = []
        if reply is not None:
            found.append(message(kind, sequence, reply))
        if reply is None or flags & NLM_F_ACK:
            code = 0 if reply is not None else -code
            found.append(message(NLMSG_ERROR, sequence, struct.pack("=i", code) + data[:16]))
        return found

    def _family(self) -> bytes:
        operations = b"".join(
            put(place, put(1, struct.pack("=I", command)) + put(2, struct.pack("=I", 0x0E)))
            for place, command in enumerate((FEC_GET, EEPROM_GET), 1)
        )
        return (
            struct.pack("=BBH", CTRL_CMD_NEWFAMILY, 2, 0)
            + put(2, b"ethtool\0")
            + put(1, struct.pack("=H", FAMILY_NUMBER))
            + put(3, struct.pack("=I", 1))
            + put(6 | 0x8000, operations)
            + put(7 | 0x8000, put(1, put(2, struct.pack("=I", 9)) + put(1, b"monitor\0")))
        )

    def _eeprom(self, asked: dict[int, bytes]) -> bytes | None:
        offset, length = (struct.unpack("=I", asked[one])[0] for one in (2, 3))
        page, bank, address = (asked[one][0] if one in asked else 0 for one in (4, 5, 6))
        self.asked.append((address, bank, page, offset, length))
        if self.plugged is None:
            return None
        data = self.plugged.piece(address, bank, page, offset, length)
        if data is None:
            return None
        return struct.pack("=BBH", EEPROM_REPLY, 1, 0) + put(7, data)


def message(kind: int, sequence: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body
