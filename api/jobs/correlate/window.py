"""One job in one stretch of time: its records on one clock, its operations, its steps."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import ClockFit, Floats, Ints, Operations, Records, Step
from alerts.window.common_clock import correct
from alerts.window.slices import (
    PIECES,
    align_slices,
    align_whole,
    choose_slices,
    records_in_slices,
    shrunk,
)
from alerts.window.split import distinct, medians, members_in, split
from alerts.window.steps import (
    Bounds,
    Late,
    Work,
    infer_bounds,
    infer_steps,
    measure_steps,
    to_late,
    to_work,
    usual_step_ns,
    with_messages,
)
from api.data.store.store import Store
from api.jobs.correlate.join import split_in_store
from api.jobs.correlate.read import (
    SOURCES_TIMED,
    Question,
    count_in_pieces,
    count_records,
    query_records,
    query_slices,
    read_members,
)
from collector.contract.units import NS

MEMBERS_MAX = 128
"""Ranks of a large job whose work is shown: medians over ranks, which more of them do not change,
and each rank takes a millisecond."""
STEP_MEMBERS_MAX = 32
"""Ranks from which a round of verdicts derives a job's steps, five seconds after the last one."""
RHYTHM_MEMBERS_MAX = 4
"""Ranks by which the length of a step is known before slices are chosen: all keep one rhythm, and
some of them may be silent."""
RHYTHM_NS_MAX = 180 * NS
"""The newest time in which it is looked for: a window of verdicts. An hour's steps are as long."""
IN_SLICES_SHARE = 0.5
"""Of the records that may be held, for those of slices: they stand for all of a long time, and half
of them give the same result in half the time. All where a slice would not have enough steps."""


class JobCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """A job's collectives in a stretch of time; times are on one clock."""

    source: str
    kept_one_in: int
    """Of how many operations one is in ``records``; 1 unless there were too many."""
    slices: Sequence[tuple[int, int]] = ()
    """The times in which ``records`` are complete; empty: everywhere."""
    records: Records
    members: Records
    """Records of all operations, or of all within slices; of some ranks if there were too many."""
    clocks: list[ClockFit]
    operations: Operations


JobRanks = Mapping[tuple[str, int], int]
"""The job's rank of each communicator's rank."""


def look(
    store: Store, job_rank: JobRanks, from_ns: int, to_ns: int, *, records_max: int
) -> JobCollectives:
    """The window of the job that these ranks are; about ``records_max`` records are held."""
    communicators = sorted({communicator for communicator, _ in job_rank})
    source, count = best_source(store, communicators, from_ns, to_ns)
    question = Question(communicators, from_ns, to_ns, [source])
    return look_whole(store, job_rank, question, count, records_max)


def look_whole(
    store: Store, job_rank: JobRanks, question: Question, count: int, records_max: int
) -> JobCollectives:
    """``count``: how many records the question has."""
    keep = power_of_two(-(-count // records_max))
    raw = query_records(store, question, keep_one_in=keep)
    clocks = align_whole(raw)
    records = correct(raw, clocks)
    if keep == 1:
        members, operations = records, split(records)
    else:
        chosen = some_members(job_rank, records_max / count)
        members = correct(read_members(store, question, chosen), clocks)
        operations = split_in_store(store, question, clocks)
    return JobCollectives(
        source=question.parameters["sources"][0],
        kept_one_in=keep,
        records=records,
        members=members,
        clocks=clocks,
        operations=operations,
    )


def look_in_slices(
    store: Store, job_rank: JobRanks, from_ns: int, to_ns: int, *, records_max: int
) -> JobCollectives:
    """Of too many records those of some whole slices of time (`alerts.window.slices`)."""
    communicators = sorted({communicator for communicator, _ in job_rank})
    chosen = some_members(job_rank, STEP_MEMBERS_MAX / max(1, len(set(job_rank.values()))))
    asked = [Question(communicators, from_ns, to_ns, [source]) for source in SOURCES_TIMED]
    for question in asked:
        counts, edges = count_in_pieces(store, question, PIECES)
        if counts.any():
            break
    else:
        question = asked[0]
    if (count := int(counts.sum())) <= records_max:
        whole = look_whole(store, job_rank, question, count, records_max)
        return msgspec.structs.replace(whole, members=records_of(whole.records, chosen))
    step_ns = step_in_store(store, job_rank, question, newest_time(counts, edges))
    slices = slices_of(counts, edges, step_ns, records_max)
    raw = query_slices(store, question, slices)
    clocks = align_slices(raw, slices)
    records = correct(raw, clocks)
    return JobCollectives(
        source=question.parameters["sources"][0],
        kept_one_in=1,
        slices=shrunk(slices, clocks) or [(to_ns, to_ns)],
        records=records,
        members=records_of(records, chosen),
        clocks=clocks,
        operations=split_in_store(store, question, clocks),
    )


def slices_of(
    counts: Ints, edges_ns: Ints, step_ns: int, records_max: int
) -> list[tuple[int, int]]:
    """The slices of a job's time; ``step_ns``: how long its steps are, 0 where it is not known."""
    least = int(IN_SLICES_SHARE * records_max)
    wanted = records_in_slices(counts, edges_ns, step_ns, least, records_max)
    return choose_slices(counts, edges_ns, wanted, step_ns)


def step_in_store(
    store: Store, job_rank: JobRanks, question: Question, newest: tuple[int, int]
) -> int:
    """How long a step of the job takes, by the newest records of a few ranks; 0: not known."""
    chosen = rhythm_members(job_rank)
    if not chosen:
        return 0
    return usual_step_ns(read_members(store, question.narrowed(*newest), chosen), job_rank)


def newest_time(counts: Ints, edges_ns: Ints) -> tuple[int, int]:
    """The time in which a job's rhythm is looked for; ``counts``: records in each piece."""
    present = np.flatnonzero(counts)
    last = int(edges_ns[present[-1] + 1]) if len(present) else int(edges_ns[-1])
    return last - RHYTHM_NS_MAX, last


def rhythm_members(job_rank: JobRanks) -> list[tuple[str, int]]:
    return some_members(job_rank, RHYTHM_MEMBERS_MAX / max(1, len(set(job_rank.values()))))


def best_source(
    store: Store, communicators: Sequence[str] | None, from_ns: int, to_ns: int
) -> tuple[str, int]:
    for source in SOURCES_TIMED:
        count = count_records(store, Question(communicators, from_ns, to_ns, [source]))
        if count:
            return source, count
    return SOURCES_TIMED[0], 0


def some_members(job_rank: JobRanks, share: float) -> list[tuple[str, int]]:
    """Members of this share of the job's ranks, evenly spread; of one at least, if any."""
    ranks = sorted(set(job_rank.values()))
    count = min(len(ranks), max(1, int(len(ranks) * share)))
    chosen = {ranks[place * len(ranks) // count] for place in range(count)}
    return [key for key, rank in job_rank.items() if rank in chosen]


def records_of(records: Records, members: Sequence[tuple[str, int]]) -> Records:
    wanted = set(members)
    found, which = members_in(records)
    is_wanted = np.array([one in wanted for one in found], dtype=bool)
    chosen: Records = records.select(is_wanted[which]) if len(records) else records
    return chosen


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below; agents thin by powers of two as well.

    >>> [power_of_two(n) for n in (0, 1, 3, 4)]
    [1, 1, 4, 4]
    """
    return 1 << max(0, number - 1).bit_length()


def steps_of(window: JobCollectives, job_rank: JobRanks) -> list[Step]:
    """The job's steps in the window, or in its slices, by the ranks whose records are all there."""
    return infer_steps(window.members, job_rank, window.operations)


class JobWork:
    """A job's collectives in a stretch of time as its ranks' work. For any thread.

    Heat map and timeline show the same work: what they need is computed when the first one asks,
    and once.
    """

    def __init__(
        self, window: JobCollectives, job_rank: JobRanks, members_max: int = MEMBERS_MAX
    ) -> None:
        self.window = window
        self.job_rank = job_rank
        self._members_max = members_max
        self._of_all: Late | None = None
        self._of_some: Work | None = None
        self._of_members: Work | None = None
        self._bounds: list[Bounds | None] = []
        """One, when it is known."""
        self._guard = threading.RLock()

    @property
    def of_all(self) -> Late:
        with self._guard:
            if self._of_all is None:
                self._of_all = to_late(self.window.records, self.job_rank)
            return self._of_all

    @property
    def of_some(self) -> Work:
        """The work of about ``members_max`` ranks: medians over ranks need no more."""
        with self._guard:
            if self._of_some is None:
                records, window = self.window.members, self.window
                share = self._members_max / max(1, len(set(self.job_rank.values())))
                if window.kept_one_in == 1 and share < 1:
                    records = records_of(records, some_members(self.job_rank, share))
                self._of_some = to_work(records, self.job_rank, window.operations)
            return self._of_some

    @property
    def of_members(self) -> Work:
        """The work of all ranks of which every operation was read."""
        with self._guard:
            if self._of_members is None:
                window = self.window
                self._of_members = to_work(window.members, self.job_rank, window.operations)
            return self._of_members

    @property
    def bounds(self) -> Bounds | None:
        """Where the steps of these ranks begin and end; None: nothing repeats."""
        with self._guard:
            if not self._bounds:
                self._bounds = [infer_bounds(self.of_some)]
            return self._bounds[0]

    @property
    def steps(self) -> list[Step]:
        bounds = self.bounds
        if bounds is None:
            return []
        whole = with_messages(self.of_some, self.window.members, self.job_rank)
        return measure_steps(whole, bounds)


class LateMap(msgspec.Struct, frozen=True, kw_only=True):
    """[ranks, buckets] ns after the median rank, medians over operations; NaN: not seen."""

    ranks: Ints
    late_ns: Floats


def late_map(work: Work | Late, edges_ns: Ints) -> LateMap:
    """The ranks' lateness over time; ``edges_ns`` are the buckets' ends, one more than buckets."""
    buckets = len(edges_ns) - 1
    first, row = distinct(work.rank)
    late = np.full((len(first), buckets), np.nan)
    bucket = np.searchsorted(edges_ns, work.exit_ns, side="right") - 1
    inside = (bucket >= 0) & (bucket < buckets)
    cell = row[inside] * buckets + bucket[inside]
    cells, dense = distinct(cell)
    late.reshape(-1)[cell[cells]] = medians(work.late_ns[inside], dense)
    return LateMap(ranks=work.rank[first].astype(np.int64), late_ns=late)
