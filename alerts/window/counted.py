"""Numbers that each rank counted from the beginning of its own file, made comparable. Pure.

A profiler's trace need not number collectives, so they are counted, and the first one in a trace is
number 0. Profilers of two ranks do not start between the same two collectives: then all numbers of
one rank are off by some, and its operations are joined with those of another step. Ranks leave a
collective together, so the right numbers are those at which exits differ always by the same time,
whatever the clocks say.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.clock_steps import FAR_NS
from alerts.window.columns import Ints, Records
from alerts.window.messages import is_pairwise
from alerts.window.split import distinct

SHIFT_MAX = 16
"""Profilers of one job start within so many operations of a communicator."""
OVERLAP_MIN = 4
"""Operations that two ranks must share to be compared."""
SPREAD_SHARE = 0.1
"""Of the time between two operations, by which exits may vary where numbers are right."""
SEEN_NS = 50_000
"""Exits are seen to about this."""


class Fitting(msgspec.Struct, frozen=True):
    """How exits of two ranks differ with numbers moved by ``shift``."""

    shift: int
    middle_ns: float
    spread_ns: float


def with_common_numbers(records: Records) -> Records:
    """The records with operations of one number where ranks left together."""
    rows = np.flatnonzero(records.timed() & ~is_pairwise(records))
    if not len(rows):
        return records
    _, group = distinct(records.communicator[rows], records.operation[rows])
    order = np.lexsort((records.sequence[rows], records.rank[rows], group))
    rows, group = rows[order], group[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(group) != 0) | (np.diff(records.rank[rows]) != 0)
    parts = np.split(rows, np.flatnonzero(is_new)[1:])
    members: dict[int, list[Ints]] = {}
    for code, part in zip(group[is_new].tolist(), parts, strict=True):
        members.setdefault(code, []).append(part)
    sequence = records.sequence.copy()
    for own in members.values():
        renumber(records, own, sequence)
    if (sequence == records.sequence).all():
        return records
    moved: Records = msgspec.structs.replace(records, sequence=sequence)
    sort = np.lexsort((moved.rank, moved.sequence, moved.operation, moved.communicator))
    found: Records = moved.select(sort)
    return found


def renumber(records: Records, members: list[Ints], sequence: Ints) -> None:
    """Move the numbers of each rank to those of the one with most operations; none below 0."""
    first = max(members, key=len)
    shifts = [shift_of(records, rows, first) if rows is not first else 0 for rows in members]
    if not any(shifts):
        return
    for rows, shift in zip(members, shifts, strict=True):
        sequence[rows] += shift
    lowest = min(int(sequence[rows[0]]) for rows in members)
    for rows in members:
        sequence[rows] -= min(0, lowest)


def shift_of(records: Records, rows: Ints, others: Ints) -> int:
    """By how much numbers must be moved to be those of the others; 0 where nothing tells.

    Where steps are so even that several fit, clocks that are nearly right are likelier than clocks
    that are off by a step.
    """
    gap = float(np.median(np.diff(records.exit_ns[others]))) if len(others) > 1 else 0.0
    usual = fitting(records, rows, others, 0)
    if usual is None or gap <= 0.0:
        return 0
    if usual.spread_ns <= SPREAD_SHARE * gap and abs(usual.middle_ns) <= gap / 2:
        return 0
    found = [
        one
        for shift in range(-SHIFT_MAX, SHIFT_MAX + 1)
        if (one := fitting(records, rows, others, shift)) is not None
    ]
    least = min(one.spread_ns for one in found)
    found = [one for one in found if one.spread_ns <= 2 * least + SEEN_NS]
    if any(one.shift == 0 for one in found) and abs(usual.middle_ns) > FAR_NS:
        return 0
    return min(found, key=lambda one: (abs(one.middle_ns), abs(one.shift))).shift


def fitting(records: Records, rows: Ints, others: Ints, shift: int) -> Fitting | None:
    """None: too few operations would be shared."""
    number, theirs = records.sequence[rows] + shift, records.sequence[others]
    place = np.minimum(np.searchsorted(theirs, number), len(theirs) - 1)
    shared = theirs[place] == number
    if int(shared.sum()) < OVERLAP_MIN:
        return None
    apart = (records.exit_ns[rows[shared]] - records.exit_ns[others[place[shared]]]).astype(float)
    middle = float(np.median(apart))
    return Fitting(shift, middle, float(np.median(np.abs(apart - middle))))
