"""A job in a short stretch of time, reduced to what heat maps and timelines show of it.

Half an hour of a job of 256 ranks are five million records, and all but the last seconds of them
are the same at each look. So they are looked at piece by piece, and of a piece
only the steps that end in it, the ranks' lateness and some medians are kept: a thousandth. A piece
is read with some time before and after, so that steps and operations which reach beyond its edges
are whole, and it has its own fit of the hosts' clocks. What it has depends on the store alone,
never on other pieces: a piece that was kept is the same as one that is made anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.window.clocks import align
from alerts.window.columns import Clock, ClockFit, Floats, Ints, Records, Step
from alerts.window.common_clock import correct
from alerts.window.slices import CLOCK_ROWS_MAX, some_operations
from alerts.window.split import split
from alerts.window.steps import Bounds, infer_bounds, measure_steps, to_work
from api.jobs.correlate.heat import Quantity, find_pulse, late_in, spent_in, steps_of_one_kept
from api.jobs.correlate.near import AFTER_NS, BEFORE_NS, PIECE_RECORDS_MAX, Near
from api.jobs.correlate.read import SOURCES_TIMED, count_records, read_members
from api.jobs.correlate.window import (
    JobCollectives,
    JobWork,
    late_map,
    look_whole,
    some_members,
)
from collector.contract.units import NS

MEMBERS_MAX = 32
"""Ranks whose operations tell where steps begin and end: the middle one of 32 is that of 128 within
a share of the time by which ranks differ."""
CLOCK_ROWS_MIN, CLOCK_ROWS_HOST = 4_096, 128
"""Records that clocks of a piece are fitted to, at least, and for each host: an offset is then
known to a tenth of the scatter of exits."""

SPENT = tuple(each for each in Quantity if each is not Quantity.LATE)
OBJECT_BYTES = 300
"""About what a struct with some numbers takes, and an array beside its numbers."""

Singles = npt.NDArray[np.float32]


WIDER_NS = ((64 * NS, 16 * NS), (512 * NS, 128 * NS))
"""What is read around it of some ranks where steps are longer than that, before and after."""

Span = tuple[int, int]
"""From and until before, unix nanoseconds."""


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """Equal stretches of a timeline in a piece: medians over operations, and of each rank."""

    operations: Ints
    skew_ns: Floats
    """NaN where there is no operation, as in all that follow."""
    transfer_ns: Floats
    ranks: Ints
    late_ns: Floats
    """[ranks, stretches]"""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to show. ``number``: of the latest insert when it was read."""

    number: int
    source: str
    records: int
    kept_one_in: int
    steps_in_one: int
    """Steps that follow each other among which one has an operation that was looked at."""
    has_rhythm: bool
    read: Span
    """The time that has a say in what is here."""
    clocks: Sequence[Clock]
    steps: Sequence[Step]
    """Those that end in the piece."""
    start_ns: Ints
    """Of the heat map's columns, as medians over ranks."""
    end_ns: Ints
    ranks: Ints
    values: dict[Quantity, Singles]
    """[ranks, steps] in nanoseconds."""
    has_spent: bool
    """Whether there are other values than `late`, if there are steps."""
    spent_ranks: Ints
    """Ranks of all quantities but `late`."""
    buckets: dict[int, Buckets]
    """By the length of their stretches, of which the piece has a whole number."""

    @property
    def size(self) -> int:
        """In bytes, about."""
        arrays: list[npt.NDArray[Any]] = [
            self.start_ns,
            self.end_ns,
            self.ranks,
            self.spent_ranks,
            *self.values.values(),
        ]
        for some in self.buckets.values():
            arrays += [some.operations, some.skew_ns, some.transfer_ns, some.ranks, some.late_ns]
        objects = OBJECT_BYTES * (len(self.clocks) + len(self.steps) + len(arrays))
        return objects + sum(each.nbytes for each in arrays)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made of a piece: a heat map of more than lateness, stretches of timelines."""

    spent: bool = False
    stretches_ns: frozenset[int] = frozenset()

    def is_in(self, piece: Piece) -> bool:
        return (piece.has_spent or not self.spent) and self.stretches_ns <= piece.buckets.keys()

    def beside(self, piece: Piece) -> Wanted:
        """This and all that the piece has."""
        return Wanted(
            spent=self.spent or piece.has_spent,
            stretches_ns=self.stretches_ns | piece.buckets.keys(),
        )


def make_piece(near: Near, span: Span, wanted: Wanted, number: int) -> Piece:
    """The job in this time."""
    read = (span[0] - BEFORE_NS, span[1] + AFTER_NS)
    work = JobWork(look_near(near, *read), near.job_rank, members_max=MEMBERS_MAX)
    bounds, doubted = work.bounds, in_doubt(work.bounds, span)
    for before_ns, after_ns in WIDER_NS if work.window.kept_one_in == 1 else ():
        if not len(work.window.records) or not (doubted[0] or doubted[1]):
            break
        # Where nothing was recorded there is nothing to be cut off.
        wide = (span[0] - before_ns, span[1] + after_ns)
        beyond = ((wide[0], read[0] - 1), (read[1] + 1, wide[1]))
        is_more = [
            doubt and near.has(work.window.source, *side)
            for doubt, side in zip(doubted, beyond, strict=True)
        ]
        read = (wide[0] if doubted[0] else read[0], wide[1] if doubted[1] else read[1])
        if any(is_more):
            read, bounds = wide, bounds_of_some(near, work, wide)
            doubted = in_doubt(bounds, span)
    if bounds is not None and bounds is not work.bounds:
        work = reaching_back(near, work, bounds, span)
    return reduce_work(work, bounds, span, read, wanted, number)


def in_doubt(bounds: Bounds | None, span: Span) -> tuple[bool, bool]:
    """Whether a step that ends in this time may have begun, or may end, beyond what was read."""
    pulse = find_pulse(bounds)
    if bounds is None or pulse is None:
        return True, True
    last_ns = int(np.median(bounds.end_ns[bounds.number == bounds.number.max()]))
    return bool(pulse.start_ns[0] > span[0]), max(last_ns, int(pulse.end_ns[-1])) < span[1]


def bounds_of_some(near: Near, work: JobWork, wide: Span) -> Bounds | None:
    """Where steps begin and end on some ranks, in more time than is read of all."""
    question = near.question(work.window.source, *wide)
    chosen = some_members(work.job_rank, MEMBERS_MAX / len(set(work.job_rank.values())))
    raw = read_members(near.store, question, chosen, rows_max=PIECE_RECORDS_MAX)
    if len(raw) >= PIECE_RECORDS_MAX:
        return None
    return infer_bounds(to_work(correct(raw, work.window.clocks), work.job_rank))


def reaching_back(near: Near, work: JobWork, bounds: Bounds, span: Span) -> JobWork:
    """The work of all ranks from the beginning of the first step on that ends in this time."""
    pulse = find_pulse(bounds)
    if pulse is None:
        return work
    own = (pulse.end_ns >= span[0]) & (pulse.end_ns < span[1])
    first_ns = int(pulse.start_ns[own].min(initial=span[0]))
    if first_ns >= span[0] - BEFORE_NS // 2:
        return work
    read = (first_ns - BEFORE_NS // 2, span[1] + AFTER_NS)
    window = look_near(near, *read)
    return JobWork(window, work.job_rank, members_max=MEMBERS_MAX)


def look_near(near: Near, from_ns: int, to_ns: int) -> JobCollectives:
    """All records where they are few enough. They are not counted first: that takes as long."""
    for source in SOURCES_TIMED:
        raw = near.read(source, from_ns, to_ns)
        if len(raw) >= PIECE_RECORDS_MAX:
            question = near.question(source, from_ns, to_ns)
            count = count_records(near.store, question)
            return look_whole(near.store, near.job_rank, question, count, PIECE_RECORDS_MAX)
        if len(raw):
            break
    clocks = fit_clocks(raw)
    records = correct(raw, clocks)
    return JobCollectives(
        source=source if len(raw) else SOURCES_TIMED[0],
        kept_one_in=1,
        records=records,
        members=records,
        clocks=clocks,
        operations=split(records),
    )


def fit_clocks(raw: Records) -> list[ClockFit]:
    rows = max(CLOCK_ROWS_MIN, CLOCK_ROWS_HOST * len(raw.hosts))
    return align(some_operations(raw, min(CLOCK_ROWS_MAX, rows)))


def reduce_work(
    work: JobWork, bounds: Bounds | None, span: Span, read: Span, wanted: Wanted, number: int
) -> Piece:
    window, pulse = work.window, find_pulse(bounds)
    none = np.zeros(0, dtype=np.int64)
    ranks, spent_ranks, start_ns, end_ns = none, none, none, none
    values: dict[Quantity, Singles] = {}
    steps: list[Step] = []
    together = 1
    if pulse is not None and bounds is not None:
        own = (pulse.end_ns >= span[0]) & (pulse.end_ns < span[1])
        start_ns, end_ns = pulse.start_ns[own], pulse.end_ns[own]
        ranks, late = late_in(pulse, work.of_all)
        values[Quantity.LATE] = late[:, own].astype(np.float32)
        if wanted.spent:
            spent_ranks, spent = spent_in(pulse, work.of_members, SPENT)
            values |= {each: found[:, own].astype(np.float32) for each, found in spent.items()}
        chosen: Bounds = bounds.select(np.isin(bounds.number, pulse.number[own]))
        steps = measure_steps(work.of_some, chosen)
        together = steps_of_one_kept(window, len(pulse.number))
    return Piece(
        number=number,
        source=window.source,
        records=len(window.records),
        kept_one_in=window.kept_one_in,
        steps_in_one=together,
        has_rhythm=pulse is not None,
        read=read,
        clocks=window.clocks[-1].clocks,
        steps=steps,
        start_ns=start_ns,
        end_ns=end_ns,
        ranks=ranks,
        values=values,
        has_spent=wanted.spent,
        spent_ranks=spent_ranks,
        buckets={
            length_ns: make_buckets(work, np.arange(span[0], span[1] + 1, length_ns))
            for length_ns in wanted.stretches_ns
        },
    )


def make_buckets(work: JobWork, edges: Ints) -> Buckets:
    late = late_map(work.of_all, edges)
    operations = work.window.operations
    order = np.argsort(operations.last_exit_ns, kind="stable")
    cuts = np.searchsorted(operations.last_exit_ns[order], edges)
    found = [
        [median(values[order[first:last]]) for first, last in itertools.pairwise(cuts.tolist())]
        for values in (operations.skew_ns, operations.transfer_ns)
    ]
    return Buckets(
        operations=np.diff(cuts),
        skew_ns=np.array(found[0]),
        transfer_ns=np.array(found[1]),
        ranks=late.ranks,
        late_ns=late.late_ns,
    )


def median(values: Ints) -> float:
    """NaN of nothing."""
    return float(np.median(values)) if len(values) else np.nan
