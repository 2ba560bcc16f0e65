"""Each collective split into waiting and transfer, and how late each rank comes. Pure.

Records are sorted as in `Records` and on one clock. Sends and receives are left out: they have
two ends, not a group that meets.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from alerts.window.clocks import operation_index
from alerts.window.columns import Codes, Flags, Floats, Ints, Lateness, Operations, Records
from alerts.window.grouped import KEYS_MAX
from collector.contract.collective import Operation, bus_bytes
from collector.contract.records import ABSENT

Values = TypeVar("Values", Ints, Codes)

PAIRWISE = frozenset({Operation.SEND, Operation.RECV, Operation.SEND_RECV})
TABLE_SHARE_MAX = 4
"""Of a column's rows: values that lie in a range of so many times that are numbered by a table."""


def joinable(records: Records) -> Flags:
    if not len(records):
        return np.zeros(0, dtype=bool)
    group = np.array([name not in PAIRWISE for name in records.operations], dtype=bool)
    rows: Flags = records.timed() & group[records.operation]
    return rows


def distinct(*columns: Ints | Codes) -> tuple[Ints, Ints]:
    """A row of each different combination of values, and for each row the number of its own.

    Combinations are in the order of their values, and the row is the first. Packed into one number
    column by column: to compare rows of a matrix takes ten times as long.
    """
    packed, values = spread(columns[0])
    for column in columns[1:]:
        code, more = spread(column)
        if values * more > TABLE_SHARE_MAX * len(code):
            packed, values = numbered(packed)
        packed, values = packed * more + code, values * more
    packed, count = numbered(packed)
    first = np.zeros(count, dtype=np.int64)
    first[packed[::-1]] = np.arange(len(packed) - 1, -1, -1)
    return first, packed


def spread(column: Ints | Codes) -> tuple[Ints, int]:
    """Codes from 0 that are ordered as the values, some of them unused; and how many there are."""
    if not len(column):
        return np.zeros(0, dtype=np.int64), 0
    low = int(column.min())
    span = int(column.max()) - low + 1
    if span > TABLE_SHARE_MAX * len(column):
        return numbered(column)
    return column.astype(np.int64) - low, span


def numbered(column: Ints | Codes) -> tuple[Ints, int]:
    """For each row the number of its value, in the order of the values; and how many there are.

    By a table where the values are close together, as codes are: a sort takes five times as long.
    """
    if not len(column):
        return np.zeros(0, dtype=np.int64), 0
    low = int(column.min())
    span = int(column.max()) - low + 1
    if span > TABLE_SHARE_MAX * len(column):
        values, code = np.unique(column, return_inverse=True)
        return code.reshape(-1).astype(np.int64), len(values)
    place = column.astype(np.int64) - low
    is_there = np.zeros(span, dtype=bool)
    is_there[place] = True
    table = np.cumsum(is_there) - 1
    return table[place], int(table[-1]) + 1


def members_in(records: Records) -> tuple[list[tuple[str, int]], Ints]:
    """The communicators' ranks that the records are of, and for each row the place of its own."""
    first, which = distinct(records.communicator, records.rank)
    names = records.communicators
    return [(names[records.communicator[row]], int(records.rank[row])) for row in first], which


def starts_of(index: Ints) -> Ints:
    return np.flatnonzero(np.diff(index, prepend=-1)).astype(np.int64)


def split(records: Records) -> Operations:
    """One row for each operation of which any rank was timed."""
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    starts = starts_of(index)
    last_entry = reduced(np.maximum, rows.entry_ns, starts)
    last_exit = reduced(np.maximum, rows.exit_ns, starts)
    inside = rows.exit_ns - rows.entry_ns
    size, ranks = (
        reduced(np.maximum, rows.size_bytes, starts),
        reduced(np.maximum, rows.ranks, starts),
    )
    operation = rows.operation[starts]
    return Operations(
        communicators=records.communicators,
        operations=records.operations,
        communicator=rows.communicator[starts],
        operation=operation,
        sequence=rows.sequence[starts],
        size_bytes=size,
        ranks=ranks,
        ranks_seen=np.diff(np.append(starts, len(rows))).astype(np.int32),
        first_entry_ns=reduced(np.minimum, rows.entry_ns, starts),
        last_entry_ns=last_entry,
        first_exit_ns=reduced(np.minimum, rows.exit_ns, starts),
        last_exit_ns=last_exit,
        last_in=rank_where(rows.entry_ns == last_entry[index], index, rows.rank),
        least_inside=rank_where(
            inside == reduced(np.minimum, inside, starts)[index], index, rows.rank
        ),
        last_out=rank_where(rows.exit_ns == last_exit[index], index, rows.rank),
        bus_bytes=all_bus_bytes(records.operations, operation, size, ranks),
    )


def reduced(function: np.ufunc, values: Values, starts: Ints) -> Values:
    """The function over each group of rows; ``starts`` are the groups' first rows."""
    answer: Values = function.reduceat(values, starts) if len(starts) else values[:0]
    return answer


def rank_where(chosen: Flags, index: Ints, rank: Codes) -> Codes:
    """For each operation the lowest rank of its chosen rows; each has at least one."""
    rows = np.flatnonzero(chosen)
    return rank[rows[starts_of(index[rows])]]


def all_bus_bytes(names: list[str], operation: Codes, size: Ints, ranks: Codes) -> Floats:
    """What crosses each rank's link in each operation; 0 where the size is not known."""
    first, which = distinct(operation, size, ranks)
    values = [
        bus_bytes(Operation(names[operation[row]]), int(size[row]), int(ranks[row]))
        if size[row] != ABSENT
        else 0.0
        for row in first
    ]
    return np.array(values, dtype=np.float64)[which]


def lateness(records: Records) -> Lateness:
    """How late each rank comes, by communicator and operation, where two or more were seen."""
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    if len(rows):
        several = np.bincount(index) > 1
        rows = rows.select(several[index])
        index = operation_index(rows)
    starts = starts_of(index)
    if not len(starts):
        return to_lateness(rows, np.zeros(0, dtype=np.int64), [])
    late = rows.entry_ns - medians(rows.entry_ns, index)[index]
    inside = rows.exit_ns - rows.entry_ns
    is_last = rows.entry_ns == reduced(np.maximum, rows.entry_ns, starts)[index]
    is_least = inside == reduced(np.minimum, inside, starts)[index]
    first, group = distinct(rows.communicator, rows.operation, rows.rank)
    order = np.argsort(group, kind="stable")
    most = reduced(np.maximum, late[order], starts_of(group[order]))
    columns = [
        np.bincount(group),
        np.bincount(group, is_last).astype(np.int64),
        np.bincount(group, is_least).astype(np.int64),
        medians(late, group),
        most,
        medians(inside, group),
    ]
    return to_lateness(rows, first, columns)


def to_lateness(rows: Records, first: Ints, columns: list[Ints]) -> Lateness:
    """The table; ``first`` is a row of each group, ``columns`` its numbers."""
    columns = columns or [np.zeros(0, dtype=np.int64)] * 6
    count, last_in, least_inside, median_late, most_late, median_inside = columns
    return Lateness(
        communicators=rows.communicators,
        operations=rows.operations,
        hosts=rows.hosts,
        communicator=rows.communicator[first],
        operation=rows.operation[first],
        rank=rows.rank[first],
        host=rows.host[first],
        pid=rows.pid[first],
        count=count,
        last_in=last_in,
        least_inside=least_inside,
        median_late_ns=median_late,
        most_late_ns=most_late,
        median_inside_ns=median_inside,
    )


def medians(values: Ints, group: Ints) -> Ints:
    """The median of each group's values, the lower one of two; groups are 0, 1, 2…, none empty."""
    if not len(values):
        return values
    counts = np.bincount(group)
    ends = np.cumsum(counts)
    middle = ends - counts + (counts - 1) // 2
    low = int(values.min())
    span = int(values.max()) - low + 1
    if values.dtype.kind == "i" and span * len(counts) < KEYS_MAX:
        # Group and value as one number: to sort numbers takes a tenth of the time of sorting rows.
        key = group.astype(np.int64) * span
        key += values - low
        key.sort()
        found: Ints = key[middle] - np.arange(len(counts)) * span + low
        return found
    chosen: Ints = values[np.lexsort((values, group))][middle]
    return chosen
