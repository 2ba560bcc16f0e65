"""The kernel's side of RDMA's netlink, for our own client and for the real `rdma`.

Numbers are written here a second time, from rdma/rdma_netlink.h and drivers/infiniband/core/nldev.c
of Linux 6.1, on purpose. It answers over a Unix socket of packets; `netlink_shim.c` leads `rdma` to
it.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.doubles.ethtool_kernel import (
    NLM_F_ACK,
    NLMSG_ERROR,
    FakeKernel,
    attributes,
    message,
    put,
)

NLMSG_DONE = 3
NLM_F_DUMP = 0x300
CLIENT = 5 << 10
GET, PORT_GET, SYS_GET, RES_GET, QP_GET, MR_GET, STAT_GET = 1, 5, 6, 9, 10, 13, 17
ENTRIES_AT_ONCE = 2
"""Of a list, in one message; the kernel fills 32 KiB."""


def u8(kind: int, number: int) -> bytes:
    return put(kind, struct.pack("=B", number))


def u32(kind: int, number: int) -> bytes:
    return put(kind, struct.pack("=I", number))


def u64(kind: int, number: int) -> bytes:
    return put(kind, struct.pack("=Q", number))


def text(kind: int, words: str) -> bytes:
    return put(kind, words.encode() + b"\0")


class Made(NamedTuple):
    """Who made a resource: a process, a part of the kernel, or someone who has no number here."""

    pid: int = 0
    kernel: str = ""

    def said(self) -> bytes:
        if self.kernel:
            return text(29, self.kernel)
        return u32(28, self.pid) if self.pid else b""


class Pair(NamedTuple):
    """A queue pair; type and state by the kernel's numbers: 2 is RC, 3 is ready to send."""

    number: int
    made: Made
    kind: int = 2
    state: int = 3
    remote: int = 77

    def said(self) -> bytes:
        remote = u32(22, self.remote) + u32(23, 1) if self.kind == 2 else b""
        migration = u8(25, 0) if self.kind == 2 else b""
        body = u32(3, 1) + u32(21, self.number) + (b"" if self.made.kernel else u32(63, 9))
        body += self.made.said() + remote + u32(24, 5) + migration
        return put(20, body + u8(26, self.kind) + u8(27, self.state))


class Region(NamedTuple):
    """A memory region."""

    made: Made
    size: int

    def said(self) -> bytes:
        return put(41, u64(45, self.size) + u32(65, 12) + self.made.said())


class Bound(NamedTuple):
    """Statistics that some queue pairs are bound to; with ``made`` by the automatic mode `pid`."""

    number: int
    pairs: Sequence[int]
    values: Mapping[str, int]
    made: Made = Made()

    def said(self) -> bytes:
        mode = u32(74, 1) + (self.made.said() if self.made.pid else u8(26, 2))
        pairs = put(19, b"".join(put(20, u32(21, pair)) for pair in self.pairs))
        counts = b"".join(put(81, text(82, name) + u64(83, n)) for name, n in self.values.items())
        return put(78, u32(3, 1) + u32(79, self.number) + mode + pairs + put(80, counts))


class Gear(NamedTuple):
    """An RDMA device with one port."""

    name: str
    pairs: Sequence[Pair] = ()
    regions: Sequence[Region] = ()
    bound: Sequence[Bound] = ()
    refuses: int = 0
    """An error's number: lists of its resources end with it."""

    def counts(self) -> dict[str, int]:
        own = {"pd": 3, "cq": 4, "qp": len(self.pairs), "cm_id": 0}
        return own | {"mr": len(self.regions), "ctx": 2, "srq": 0}


class RdmaKernel(FakeKernel):
    """Answers for some devices; `asked` of the base stays empty."""

    def __init__(self, path: Path, gear: Sequence[Gear]) -> None:
        super().__init__(path, None)
        self.gear = gear
        self.questions: list[tuple[int, int | None]] = []

    def answers(self, data: bytes) -> list[bytes]:
        size, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
        asked = attributes(data[16:size])
        index = struct.unpack("=I", asked[1])[0] if 1 in asked else None
        command = kind & 0x3FF
        self.questions.append((command, index))
        try:
            bodies = self.bodies(command, index, 75 in asked)
        except OSError as error:
            code = struct.pack("=i", -(error.errno or 0))
            end = NLMSG_DONE if flags & NLM_F_DUMP == NLM_F_DUMP else NLMSG_ERROR
            return [message(end, sequence, code + data[:16])]
        found = [message(kind, sequence, body) for body in bodies]
        done = struct.pack("=i", 0)
        if flags & NLM_F_DUMP == NLM_F_DUMP:
            return [*found, message(NLMSG_DONE, sequence, done)]
        if flags & NLM_F_ACK:
            found.append(message(NLMSG_ERROR, sequence, done + data[:16]))
        return found

    def bodies(self, command: int, index: int | None, by_resource: bool) -> list[bytes]:  # noqa: FBT001
        if command == SYS_GET:
            return [u8(66, 1)]
        wanted = range(len(self.gear)) if index is None else [index]
        if command == GET:
            return [device_said(place, self.gear[place]) for place in wanted]
        if command == RES_GET:
            return [self.summary(place) for place in wanted]
        if index is None or index >= len(self.gear) or (command == STAT_GET and not by_resource):
            raise OSError(errno.EINVAL, "no such device")
        gear = self.gear[index]
        if gear.refuses and command in {QP_GET, MR_GET, STAT_GET}:
            raise OSError(gear.refuses, "as it was told")
        if command == PORT_GET:
            return [handle(index, gear) + u32(3, 1) + u8(12, 4) + u8(13, 5)]
        table, said = {
            QP_GET: (19, [each.said() for each in gear.pairs]),
            MR_GET: (40, [each.said() for each in gear.regions]),
            STAT_GET: (77, [each.said() for each in gear.bound]),
        }[command]
        parts = [said[at : at + ENTRIES_AT_ONCE] for at in range(0, len(said), ENTRIES_AT_ONCE)]
        return [handle(index, gear) + put(table, b"".join(part)) for part in parts]

    def summary(self, index: int) -> bytes:
        gear = self.gear[index]
        counts = gear.counts().items()
        return handle(index, gear) + put(
            15, b"".join(put(16, text(17, name) + u64(18, count)) for name, count in counts)
        )


def handle(index: int, gear: Gear) -> bytes:
    return u32(1, index) + text(2, gear.name)


def device_said(index: int, gear: Gear) -> bytes:
    guids = u64(6, 0x506B4B0300C0DE00 + index) + u64(7, 0x506B4B0300C0DE00)
    said = handle(index, gear) + u32(3, 1) + u64(4, 0) + text(5, "22.36.1010") + guids
    return said + u8(14, 1) + text(67, "ib")


def capture(root: Path, gear: Sequence[Gear]) -> None:
    """The answers as a captured tree has them."""
    kernel = RdmaKernel.__new__(RdmaKernel)
    kernel.gear = gear
    files = {
        "devices": kernel.bodies(GET, None, False),
        "summary": kernel.bodies(RES_GET, None, False),
    }
    for index, each in enumerate(gear):
        if each.refuses:
            continue
        files[f"queue_pairs.{index}"] = kernel.bodies(QP_GET, index, False)
        files[f"memory_regions.{index}"] = kernel.bodies(MR_GET, index, False)
        files[f"counters.{index}"] = kernel.bodies(STAT_GET, index, True)
    (root / "rdma").mkdir(parents=True, exist_ok=True)
    for name, bodies in files.items():
        lines = "".join(f"{body.hex()}\n" for body in bodies)
        (root / "rdma" / name).write_text(lines, encoding="utf-8")
