"""`/proc/PID/mountstats`: what the kernel's NFS client did for each mount.

Written by `nfs_show_stats` and `rpc_clnt_show_stats` (fs/nfs/super.c, net/sunrpc/stats.c of Linux
6.1). A line of the second part is one operation of the protocol: operations, transmissions,
time-outs, bytes sent, bytes received, then milliseconds in the queue, until the answer, and in
all; from 5.3 on also errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from collector.contract.errors import ParseError
from collector.contract.storage import storage_name

MILLISECONDS = 1000.0
OPERATIONS_MAX = 128
"""Lines of operations of one mount: NFS 4.2 has 66."""
NAME_CHARS_MAX = 256
"""Of a device or path; a longer one is not read: it would be a label."""

_HEAD = re.compile(r"(\S+) mounted on (\S+) with fstype (nfs4?)(?: statvers=([\d.]+))?\s*\Z")
_OCTAL = re.compile(r"\\([0-7]{3})")
_NUMBERS_MIN = 8
_BYTES = "bytes:"
_BYTES_MIN = 6


class Work(msgspec.Struct, frozen=True):
    """What one kind of operation took, summed since the mount."""

    operations: int = 0
    response_seconds: float = 0.0
    """From a request's last transmission to its answer: network and server."""
    queue_seconds: float = 0.0
    """Until it was sent: the client's own slots."""

    def plus(self, other: Work) -> Work:
        return Work(
            self.operations + other.operations,
            self.response_seconds + other.response_seconds,
            self.queue_seconds + other.queue_seconds,
        )


class NfsMount(msgspec.Struct, frozen=True, kw_only=True):
    """One NFS mount. Bytes are None where its block has no such line."""

    storage: str
    mount: str
    filesystem: str
    read: Work
    write: Work
    other: Work
    retransmissions: int
    timeouts: int
    read_bytes: int | None
    """From the server."""
    written_bytes: int | None


def parse_mountstats(text: str) -> Iterator[NfsMount | ParseError]:
    """The NFS mounts, in order; a ParseError in place of each that cannot be understood.

    A superblock that is mounted at several places has a block for each, with equal numbers: the
    first stands for all.
    """
    seen = set[tuple[str, str]]()
    for block in text.split("device ")[1:]:
        head, _, rest = block.partition("\n")
        if " with fstype nfs" not in head or " with fstype nfsd" in head:
            continue
        key = (head.split(" ", 1)[0], rest)
        if key in seen:
            continue
        seen.add(key)
        try:
            yield parse_mount(head, rest.split("\n"))
        except (ParseError, ValueError) as error:
            yield ParseError(repr(head[:80]), str(error))


def parse_mount(head: str, lines: Sequence[str]) -> NfsMount:
    found = _HEAD.match(head)
    if not found:
        msg = "not 'DEVICE mounted on PATH with fstype nfs'"
        raise ParseError("", msg)
    device, mount = unescape(found[1]), unescape(found[2])
    if max(len(device), len(mount)) > NAME_CHARS_MAX:
        msg = f"its names have more than {NAME_CHARS_MAX} characters"
        raise ParseError("", msg)
    server, mark, export = device.partition(":/")
    if not mark or not server:
        msg = f"{device!r} is not SERVER:/EXPORT"
        raise ParseError("", msg)
    works: dict[str, Work] = {}
    resent = timeouts = 0
    for name, numbers in operations_of(lines):
        count, sent, late = numbers[:3]
        resent += max(0, sent - count)
        timeouts += late
        kind = {"READ": "read", "WRITE": "write"}.get(name, "other")
        own = Work(count, numbers[6] / MILLISECONDS, numbers[5] / MILLISECONDS)
        works[kind] = works.get(kind, Work()).plus(own)
    if not works:
        msg = "no line of an operation"
        raise ParseError("", msg)
    moved = bytes_of(lines)
    return NfsMount(
        storage=storage_name(server, "/" + export),
        mount=mount,
        filesystem=found[3],
        read=works.get("read", Work()),
        write=works.get("write", Work()),
        other=works.get("other", Work()),
        retransmissions=resent,
        timeouts=timeouts,
        read_bytes=moved[4] if moved else None,
        written_bytes=moved[5] if moved else None,
    )


def operations_of(lines: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Name and numbers of each operation, from the heading on."""
    start = next((at for at, line in enumerate(lines) if "per-op statistics" in line), len(lines))
    for line in lines[start + 1 : start + 1 + OPERATIONS_MAX]:
        name, mark, rest = line.strip().partition(":")
        if not mark:
            continue
        numbers = [int(word) for word in rest.split()]
        if len(numbers) < _NUMBERS_MIN or min(numbers) < 0:
            msg = f"operation {name[:20]!r} has {len(numbers)} numbers, and not {_NUMBERS_MIN}"
            raise ParseError("", msg)
        yield name, numbers


def bytes_of(lines: Sequence[str]) -> list[int] | None:
    """By programs read and written (cached, direct), from and to the server, in pages."""
    for line in lines:
        if line.strip().startswith(_BYTES):
            numbers = [int(word) for word in line.strip()[len(_BYTES) :].split()]
            return numbers if len(numbers) >= _BYTES_MIN else None
    return None


def unescape(text: str) -> str:
    r"""A path as the kernel's mangle_path writes it.

    >>> unescape("/mnt/my\\040data")
    '/mnt/my data'
    """
    return _OCTAL.sub(lambda found: chr(int(found[1], 8) & 0xFF), text)
