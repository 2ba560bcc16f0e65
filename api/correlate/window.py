"""One job in one stretch of time: its records on one clock, its operations, its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from alerts.clocks import align, correct
from alerts.columns import ClockFit, Floats, Ints, Operations, Records, Step
from alerts.split import joinable, medians, split
from api.correlate.join import split_in_store
from api.correlate.read import (
    SOURCES_TIMED,
    Question,
    count_records,
    query_records,
    read_members,
)
from api.correlate.steps import infer_steps, to_work
from api.store.store import Store


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job's collectives in a stretch of time; times are on one clock."""

    source: str
    """Whose records: the best source that has any."""
    kept_one_in: int
    """Of how many operations one is in ``records``; 1 unless there were too many."""
    records: Records
    """Records of all ranks."""
    members: Records
    """Records of all operations, of some ranks if there were too many."""
    clocks: list[ClockFit]
    operations: Operations
    """All operations, whatever was kept of their records."""


JobRanks = Mapping[tuple[str, int], int]
"""The job's rank of each communicator's rank."""


def look(store: Store, job_rank: JobRanks, from_ns: int, to_ns: int, *, records_max: int) -> Window:
    """The window of the job that these ranks are; about ``records_max`` records are held."""
    communicators = sorted({communicator for communicator, _ in job_rank})
    source, count = best_source(store, communicators, from_ns, to_ns)
    question = Question(communicators, from_ns, to_ns, [source])
    keep = power_of_two(-(-count // records_max))
    raw = query_records(store, question, keep_one_in=keep)
    clocks = align(raw)
    records = correct(raw, clocks)
    if keep == 1:
        members, operations = records, split(records)
    else:
        chosen = some_members(job_rank, records_max / count)
        members = correct(read_members(store, question, chosen), clocks)
        operations = split_in_store(store, question, clocks)
    return Window(
        source=source,
        kept_one_in=keep,
        records=records,
        members=members,
        clocks=clocks,
        operations=operations,
    )


def best_source(
    store: Store, communicators: Sequence[str] | None, from_ns: int, to_ns: int
) -> tuple[str, int]:
    """The best source that has records in this time, and how many."""
    for source in SOURCES_TIMED:
        count = count_records(store, Question(communicators, from_ns, to_ns, [source]))
        if count:
            return source, count
    return SOURCES_TIMED[0], 0


def some_members(job_rank: JobRanks, share: float) -> list[tuple[str, int]]:
    """Members of so large a share of the job's ranks, evenly spread; of one rank at least."""
    ranks = sorted(set(job_rank.values()))
    count = max(1, int(len(ranks) * share))
    chosen = {ranks[place * len(ranks) // count] for place in range(count)}
    return [key for key, rank in job_rank.items() if rank in chosen]


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below; agents thin by powers of two as well.

    >>> [power_of_two(n) for n in (0, 1, 3, 4)]
    [1, 1, 4, 4]
    """
    return 1 << max(0, number - 1).bit_length()


def steps_of(window: Window, job_rank: JobRanks) -> list[Step]:
    """The job's steps in the window, by the ranks whose records are all there."""
    return infer_steps(window.members, job_rank, window.operations)


class LateMap(msgspec.Struct, frozen=True, kw_only=True):
    """How late each rank was in each bucket of time: rows are ranks, columns buckets.

    Nanoseconds after the median rank, as the median of the bucket's operations; NaN where the
    rank was not seen.
    """

    ranks: Ints
    late_ns: Floats


def late_map(window: Window, job_rank: JobRanks, edges_ns: Ints) -> LateMap:
    """The ranks' lateness over time; ``edges_ns`` are the buckets' ends, one more than buckets."""
    rows: Records = window.records.select(joinable(window.records))
    work = to_work(rows, job_rank)
    buckets = len(edges_ns) - 1
    ranks = np.unique(work.rank).astype(np.int64)
    late = np.full((len(ranks), buckets), np.nan)
    if len(work):
        bucket = np.searchsorted(edges_ns, work.exit_ns, side="right") - 1
        inside = (bucket >= 0) & (bucket < buckets)
        cell = np.searchsorted(ranks, work.rank[inside]) * buckets + bucket[inside]
        cells, dense = np.unique(cell, return_inverse=True)
        late.reshape(-1)[cells] = medians(work.late_ns[inside], dense.astype(np.int64))
    return LateMap(ranks=ranks, late_ns=late)
