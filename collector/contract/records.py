"""How records of collectives travel in a batch: a table of what repeats, and columns beside it.

A rank does the same few operations again and again: what is always the same (communicator,
operation, rank, host…) stands once in a table, and an operation is a row of that table and seven
numbers, packed little-endian: sequence, time, entry, exit, enqueue and duration (nanoseconds) and
the size in bytes. A number that no source saw is ABSENT.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from collector.contract.collective import Collective, Operation, State, Timing
from collector.contract.errors import WireError, WireTooLarge

COLLECTIVES_MAX = 200_000
"""Rows of one batch: 13 MB unpacked, a host of eight ranks at a thousand operations a second each
for 25 s."""
CONTEXTS_MAX = 20_000
"""Rows of the table. A host of eight ranks with a hundred communicators each has a few thousand."""
NAME_CHARS_MAX = 255
"""A communicator's, host's or job's name; it becomes part of a key."""

ABSENT = -(1 << 63)
"""In a column: no source saw the number."""
NUMBER_MAX = (1 << 63) - 1
THIN_MAX = 20
"""The highest power of two by which a flooded agent thins operations: one in a million."""

NUMBERS = ("sequence", "time_ns", "entry_ns", "exit_ns", "enqueue_ns", "duration_ns", "size_bytes")
"""The columns of int64, in the order of `Collectives`' fields."""


class Context(msgspec.Struct, frozen=True, array_like=True):
    """What is the same in many of a rank's operations; fields as in `Collective`."""

    communicator: str
    operation: Operation
    rank: int
    ranks: int
    source: str
    timing: Timing
    state: State
    algorithm: str
    protocol: str
    peer: int | None
    host: str
    pid: int
    job: str


class Collectives(msgspec.Struct, frozen=True, kw_only=True):
    """Records of collectives, packed."""

    contexts: list[Context]
    context: bytes
    """The row of ``contexts`` of each operation, uint32."""
    sequence: bytes
    time_ns: bytes
    entry_ns: bytes
    exit_ns: bytes
    enqueue_ns: bytes
    duration_ns: bytes
    size_bytes: bytes

    def __len__(self) -> int:
        return len(self.context) // 4


def pack_collectives(records: Iterable[Collective]) -> Collectives:
    rows: dict[Context, int] = {}
    context = array("I")
    numbers = [array("q") for _ in NUMBERS]
    for record in records:
        context.append(rows.setdefault(context_of(record), len(rows)))
        for column, value in zip(numbers, numbers_of(record), strict=True):
            column.append(ABSENT if value is None else value)
    if sys.byteorder == "big":
        for column in (context, *numbers):
            column.byteswap()
    packed = {name: column.tobytes() for name, column in zip(NUMBERS, numbers, strict=True)}
    return Collectives(contexts=list(rows), context=context.tobytes(), **packed)


def context_of(record: Collective) -> Context:
    return Context(
        record.communicator,
        record.operation,
        record.rank,
        record.ranks,
        record.source,
        record.timing,
        record.state,
        record.algorithm,
        record.protocol,
        record.peer,
        record.host,
        record.pid,
        record.job,
    )


def numbers_of(record: Collective) -> Sequence[int | None]:
    """The part of a record that changes, in the order of NUMBERS."""
    return (
        record.sequence,
        record.time_ns,
        record.entry_ns,
        record.exit_ns,
        record.enqueue_ns,
        record.duration_ns,
        record.size_bytes,
    )


def check_collectives(packed: Collectives) -> None:
    """Raise WireError unless the columns are equally long and within their bounds.

    That every row of `context` is one of the table is checked where the columns are unpacked.
    """
    count, rest = divmod(len(packed.context), 4)
    if count > COLLECTIVES_MAX:
        raise WireTooLarge(f"{count} collectives; COLLECTIVES_MAX is {COLLECTIVES_MAX}")
    if len(packed.contexts) > CONTEXTS_MAX:
        msg = f"{len(packed.contexts)} rows of collectives' table; CONTEXTS_MAX is {CONTEXTS_MAX}"
        raise WireTooLarge(msg)
    wrong = [name for name in NUMBERS if len(getattr(packed, name)) != count * 8]
    if rest or wrong:
        names = ", ".join(wrong or ["context"])
        raise WireError(f"columns of collectives disagree: {names} do not hold {count} rows")
