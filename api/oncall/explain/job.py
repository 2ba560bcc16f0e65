"""A job's collectives as data: operations, ranks' gaps, exits around rings, clocks, steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.signals.gaps import OwnTime, own_time
from alerts.window.clocks import operation_index
from alerts.window.columns import Flags, Floats, Ints, Operations, Records
from alerts.window.model import JobWindow, Rank
from alerts.window.split import distinct, joinable, medians, members_in, reduced, starts_of
from api.base.limits import (
    EXPLAIN_CELLS_MAX,
    EXPLAIN_CLOCKS_MAX,
    EXPLAIN_LADDER_PLACES_MAX,
    EXPLAIN_OPERATIONS_MAX,
    EXPLAIN_PENDING_MAX,
    EXPLAIN_RANKS_MAX,
    EXPLAIN_RECORDS_MAX,
    EXPLAIN_STEPS_MAX,
)
from api.oncall.explain.answer import (
    ClockExplained,
    JobExplained,
    KindExplained,
    Ladder,
    LadderPlace,
    LeftOut,
    Number,
    OwnTimes,
    PendingExplained,
    RankExplained,
    RankTimes,
    RecordColumns,
    StepColumns,
    Times,
)
from collector.contract.records import ABSENT

NARROWER = "name a communicator=, or a shorter time"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a job was asked for."""

    communicator: str | None = None
    rank: int | None = None
    since_ns: int | None = None
    has_records: bool = False


def explain_job(job: JobWindow, chosen: Chosen) -> tuple[JobExplained, list[LeftOut]]:
    left: list[LeftOut] = []
    table = RankTable.of(job, chosen)
    outside = own_time(job)
    answer = JobExplained(
        job=job.job,
        size=job.size,
        source=job.source,
        is_estimate=job.is_estimate,
        kept_one_in=job.kept_one_in,
        since_ns=chosen.since_ns,
        kinds=explain_kinds(job, chosen, left),
        ranks=explain_ranks(job, table, left),
        own_times=explain_own_times(job, outside, chosen, left),
        ladders=explain_ladders(job, table, chosen, left),
        clocks=explain_clocks(job, left),
        steps=explain_steps(job, left),
        pending=explain_pending(job, chosen, left),
        records=explain_records(table, outside, left) if chosen.has_records else None,
    )
    return answer, left


def leave_out(left: list[LeftOut], what: str, count: int, rule: str, hint: str = NARROWER) -> None:
    """Record what is left out, unless ``count`` is 0."""
    if count > 0:
        left.append(LeftOut(what=what, count=count, rule=rule, hint=hint))


def known(value: int) -> int | None:
    return None if value == ABSENT else value


def median_of(values: Ints | Floats) -> int | None:
    """The lower one of two medians; None of nothing. Easy to check by hand."""
    if not len(values):
        return None
    return int(np.sort(values)[(len(values) - 1) // 2])


# Operations --------------------------------------------------------------------------------------


def explain_kinds(job: JobWindow, chosen: Chosen, left: list[LeftOut]) -> list[KindExplained]:
    """Operations by kind; past EXPLAIN_OPERATIONS_MAX only every nth of each is listed."""
    joined: Operations = job.operations
    if not len(joined):
        return []
    if chosen.communicator is not None:
        names = np.array([name == chosen.communicator for name in joined.communicators])
        joined = joined.select(names[joined.communicator])
        if not len(joined):
            return []
    nth = -(-len(joined) // EXPLAIN_OPERATIONS_MAX)
    first, which = distinct(joined.communicator, joined.operation, joined.size_bytes)
    order = np.lexsort((joined.sequence, joined.last_exit_ns, which))
    groups = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
    shown = [explain_kind(job, joined.select(rows), chosen.since_ns, nth) for rows in groups]
    assert len(shown) == len(first), "each kind is one group"
    listed = sum(len(kind.sequence) for kind in shown)
    leave_out(left, f"operations of {job.job}", len(joined) - listed, "EXPLAIN_OPERATIONS_MAX")
    return shown


def explain_kind(job: JobWindow, own: Operations, since_ns: int | None, nth: int) -> KindExplained:
    """One kind; medians are over all of its operations, also those that are not listed."""
    name, operation = own.communicators[own.communicator[0]], own.operations[own.operation[0]]
    size = int(own.size_bytes[0])
    past = job.past.get((name, operation, size))
    is_during = since(own.last_exit_ns, since_ns)
    listed: Operations = own.select(slice(None, None, nth))
    return KindExplained(
        communicator=name,
        operation=operation,
        size_bytes=known(size),
        ranks=int(own.ranks.max()),
        before=times_of(own.select(~is_during)),
        during=times_of(own.select(is_during)),
        past_transfer_ns=None if past is None else past.transfer_ns,
        past_skew_ns=None if past is None else past.skew_ns,
        baseline_bytes_per_second=job.baselines.get((name, operation, size)),
        bus_bytes=float(own.bus_bytes[0]),
        sequence=listed.sequence.tolist(),
        end_ns=listed.last_exit_ns.tolist(),
        skew_ns=listed.skew_ns.tolist(),
        transfer_ns=listed.transfer_ns.tolist(),
        last_in=listed.last_in.tolist(),
        least_inside=listed.least_inside.tolist(),
        ranks_seen=listed.ranks_seen.tolist(),
    )


def since(ends: Ints, since_ns: int | None) -> Flags:
    """Which of these ended since; all where no trouble has begun."""
    if since_ns is None:
        return np.ones(len(ends), dtype=bool)
    later: Flags = ends >= since_ns
    return later


def times_of(own: Operations) -> Times:
    return Times(
        operations=len(own), skew_ns=median_of(own.skew_ns), transfer_ns=median_of(own.transfer_ns)
    )


# Ranks -------------------------------------------------------------------------------------------


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """Timed records with what is known of each: its rank, its gap, how late it was."""

    records: Records
    job_rank: Ints
    """-1 where it is not known."""
    gap_ns: Ints
    """ABSENT for a rank's first record."""
    joined: Flags
    """Whether it can be joined over ranks: no send or receive."""
    operation: Ints
    """The number of its operation among the joined; -1 elsewhere."""
    late_ns: Ints
    is_last_in: Flags
    is_least_inside: Flags
    is_during: Flags
    """By the end of the whole operation, as operations are divided."""

    def __len__(self) -> int:
        return len(self.records)

    def select(self, rows: Flags | Ints) -> RankTable:
        columns = {
            name: getattr(self, name)[rows] for name in self.__struct_fields__ if name != "records"
        }
        return RankTable(records=self.records.select(rows), **columns)

    @classmethod
    def of(cls, job: JobWindow, chosen: Chosen) -> RankTable:
        """Computed over all records, so that gaps are right; then filtered."""
        records: Records = job.records.select(job.records.timed())
        members, which = members_in(records)
        numbers = [job_rank_of(job, name, rank) for name, rank in members]
        job_rank = np.array(numbers, dtype=np.int64)[which] if members else which
        joined = joinable(records)
        whole = cls(
            records=records,
            job_rank=job_rank,
            gap_ns=gaps_of(records, job_rank),
            joined=joined,
            **operation_columns(records, joined, chosen.since_ns),
        )
        return whole.select(wanted(whole, chosen))


def job_rank_of(job: JobWindow, communicator: str, rank: int) -> int:
    """The job's rank of a communicator's; -1 where it is not known."""
    found = job.communicators.get(communicator)
    return -1 if found is None else found.job_rank.get(rank, -1)


def wanted(table: RankTable, chosen: Chosen) -> Flags:
    rows: Flags = np.ones(len(table), dtype=bool)
    if chosen.communicator is not None and len(table):
        names = np.array([name == chosen.communicator for name in table.records.communicators])
        rows &= names[table.records.communicator]
    if chosen.rank is not None:
        rows &= table.job_rank == chosen.rank
    return rows


def gaps_of(records: Records, job_rank: Ints) -> Ints:
    """Entry minus the latest exit of the same process before it, of any communicator.

    On the host's own clock: both times have the same offset. Never below 0: operations of one rank
    may overlap.
    """
    gap = np.full(len(records), ABSENT, dtype=np.int64)
    if not len(records):
        return gap
    _, process = distinct(job_rank, records.host, records.pid)
    order = np.lexsort((records.exit_ns, records.entry_ns, process))
    begin = int(records.entry_ns.min())
    span = int(records.exit_ns.max()) - begin + 1
    if span * (int(process.max()) + 1) >= np.iinfo(np.int64).max:
        return gap  # a clock is years off: its gaps are meaningless
    # Each process on a stretch of its own, so that one running maximum serves all.
    exits = records.exit_ns[order] - begin + process[order] * span
    latest = np.maximum.accumulate(exits)
    is_next = process[order][1:] == process[order][:-1]
    before = latest[:-1][is_next] - process[order][1:][is_next] * span + begin
    rows = order[1:][is_next]
    gap[rows] = np.maximum(records.entry_ns[rows] - before, 0)
    return gap


def operation_columns(records: Records, joined: Flags, since_ns: int | None) -> dict[str, Any]:
    """Each row's place among the other rows of its operation."""
    count = len(records)
    found = {
        "operation": np.full(count, -1, dtype=np.int64),
        "late_ns": np.zeros(count, dtype=np.int64),
        "is_last_in": np.zeros(count, dtype=bool),
        "is_least_inside": np.zeros(count, dtype=bool),
        "is_during": since(records.exit_ns, since_ns),
    }
    rows = np.flatnonzero(joined)
    if not len(rows):
        return found
    own: Records = records.select(rows)
    index = operation_index(own)
    starts = starts_of(index)
    inside = own.exit_ns - own.entry_ns
    found["operation"][rows] = index
    found["late_ns"][rows] = own.entry_ns - medians(own.entry_ns, index)[index]
    found["is_last_in"][rows] = own.entry_ns == reduced(np.maximum, own.entry_ns, starts)[index]
    found["is_least_inside"][rows] = inside == reduced(np.minimum, inside, starts)[index]
    last_exit = reduced(np.maximum, own.exit_ns, starts)[index]
    found["is_during"][rows] = since(last_exit, since_ns)
    return found


def explain_ranks(job: JobWindow, table: RankTable, left: list[LeftOut]) -> list[RankExplained]:
    """Each rank of each kind; past EXPLAIN_RANKS_MAX those whose own time is longest."""
    rows = table.select(table.joined)
    if not len(rows):
        return []
    own = rows.records
    first, which = distinct(own.communicator, own.operation, own.size_bytes, own.rank)
    before, during = (
        rank_times(rows, which, rows.is_during == is_during, len(first))
        for is_during in (False, True)
    )
    kept = np.arange(len(first))
    if len(first) > EXPLAIN_RANKS_MAX:
        gaps = np.array([times.gap_ns or 0 for times in during])
        kept = np.sort(np.argsort(-gaps, kind="stable")[:EXPLAIN_RANKS_MAX])
        leave_out(left, f"ranks of {job.job}", len(first) - len(kept), "EXPLAIN_RANKS_MAX")
    return [
        explain_rank(job, rows, int(first[place]), before[place], during[place])
        for place in kept.tolist()
    ]


def explain_rank(
    job: JobWindow, rows: RankTable, row: int, before: RankTimes, during: RankTimes
) -> RankExplained:
    records = rows.records
    number = int(rows.job_rank[row])
    place = job.ranks.get(number, Rank(rank=number))
    return RankExplained(
        communicator=records.communicators[records.communicator[row]],
        operation=records.operations[records.operation[row]],
        size_bytes=known(int(records.size_bytes[row])),
        rank=int(records.rank[row]),
        job_rank=number if number >= 0 else None,
        host=place.host or records.hosts[records.host[row]],
        gpu=place.gpu,
        before=before,
        during=during,
    )


def rank_times(rows: RankTable, which: Ints, chosen: Flags, count: int) -> list[RankTimes]:
    """Medians over each group's records, all groups at once: one by one would take a minute."""
    group = which[chosen]
    timed = chosen & (rows.gap_ns != ABSENT)
    inside = rows.records.exit_ns - rows.records.entry_ns
    columns = (
        np.bincount(group, minlength=count).tolist(),
        group_medians(rows.gap_ns[timed], which[timed], count),
        group_medians(inside[chosen], group, count),
        group_medians(rows.late_ns[chosen], group, count),
        np.bincount(group, rows.is_last_in[chosen], count).astype(int).tolist(),
        np.bincount(group, rows.is_least_inside[chosen], count).astype(int).tolist(),
    )
    return [
        RankTimes(
            operations=operations,
            gap_ns=gap,
            inside_ns=inside_ns,
            late_ns=late,
            last_in=last_in,
            least_inside=least_inside,
        )
        for operations, gap, inside_ns, late, last_in, least_inside in zip(*columns, strict=True)
    ]


def group_medians(values: Ints, group: Ints, count: int) -> list[int | None]:
    found: list[int | None] = [None] * count
    if len(values):
        present, dense = np.unique(group, return_inverse=True)
        middle = medians(values, dense.astype(np.int64))
        for place, value in zip(present.tolist(), middle.tolist(), strict=True):
            found[place] = value
    return found


def explain_own_times(
    job: JobWindow, found: OwnTime | None, chosen: Chosen, left: list[LeftOut]
) -> OwnTimes | None:
    """Ranks x steps; past EXPLAIN_CELLS_MAX the ranks with the most excess."""
    if found is None:
        return None
    rows = np.arange(len(found.ranks))
    if chosen.rank is not None:
        rows = np.flatnonzero(found.ranks == chosen.rank)
    most = max(1, EXPLAIN_CELLS_MAX // max(1, len(found.end_ns)))
    if len(rows) > most:
        excess = np.nansum(found.excess_ns[rows], axis=1)
        kept = rows[np.sort(np.argsort(-excess, kind="stable")[:most])]
        hint = "name a rank=, or a shorter time"
        what = f"own times of {job.job}"
        leave_out(left, what, len(rows) - len(kept), "EXPLAIN_CELLS_MAX", hint)
        rows = kept
    return OwnTimes(
        ranks=found.ranks[rows].tolist(),
        start_ns=found.start_ns.tolist(),
        end_ns=found.end_ns.tolist(),
        outside_ns=rounded(found.outside_ns[rows]),
        late_ns=rounded(found.late_ns[rows]),
        excess_ns=rounded(found.excess_ns[rows]),
        peers_ns=rounded(found.peers_ns[rows]),
    )


def rounded(table: Floats) -> list[list[Number]]:
    """Rows of whole nanoseconds; None where nothing is known."""
    return [[int(value) if value == value else None for value in row] for row in table.tolist()]  # noqa: PLR0124 - NaN


def steps_of(table: RankTable, outside: OwnTime | None) -> list[int | None]:
    """The step that each record was counted into; None where it is outside of all."""
    if outside is None or not len(table):
        return [None] * len(table)
    theirs, own = outside.rows.records, table.records
    _, code = distinct(
        np.concatenate([theirs.communicator, own.communicator]),
        np.concatenate([theirs.operation, own.operation]),
        np.concatenate([theirs.sequence, own.sequence]),
    )
    step = np.full(int(code.max()) + 1, -1, dtype=np.int64)
    step[code[: len(theirs)]] = outside.rows.bin
    count = len(outside.end_ns)
    places = step[code[len(theirs) :]].tolist()
    return [place if 0 <= place < count else None for place in places]


def explain_records(
    table: RankTable, outside: OwnTime | None, left: list[LeftOut]
) -> RecordColumns:
    """Single records; past EXPLAIN_RECORDS_MAX only every nth operation's."""
    rows = table
    if len(table) > EXPLAIN_RECORDS_MAX:
        nth = -(-len(table) // EXPLAIN_RECORDS_MAX)
        rows = table.select(table.records.sequence % nth == 0)
        rows = rows.select(np.arange(min(len(rows), EXPLAIN_RECORDS_MAX)))
        hint = "name a communicator= or a rank=, or a shorter time"
        leave_out(left, "records", len(table) - len(rows), "EXPLAIN_RECORDS_MAX", hint)
    own = rows.records
    return RecordColumns(
        communicators=own.communicators,
        operations=own.operations,
        communicator=own.communicator.tolist(),
        operation=own.operation.tolist(),
        sequence=own.sequence.tolist(),
        size_bytes=[known(size) for size in own.size_bytes.tolist()],
        rank=own.rank.tolist(),
        job_rank=[number if number >= 0 else None for number in rows.job_rank.tolist()],
        entry_ns=own.entry_ns.tolist(),
        exit_ns=own.exit_ns.tolist(),
        gap_ns=[known(gap) for gap in rows.gap_ns.tolist()],
        step=steps_of(rows, outside),
    )


# Rings -------------------------------------------------------------------------------------------


def explain_ladders(
    job: JobWindow, table: RankTable, chosen: Chosen, left: list[LeftOut]
) -> list[Ladder]:
    """Exits around each ring, by kind; of operations in which every rank was seen."""
    if chosen.rank is not None:
        return []  # one rank is no ladder
    found: list[Ladder] = []
    places = unseen = 0
    for own in by_kind(table.select(table.joined)):
        name = own.records.communicators[own.records.communicator[0]]
        communicator = job.communicators.get(name)
        if communicator is None or not communicator.rings:
            continue
        ring = list(communicator.rings[0])
        if places + len(ring) > EXPLAIN_LADDER_PLACES_MAX:
            unseen += 1
            continue
        ladder = explain_ladder(job, own, ring, is_assumed=communicator.is_ring_assumed)
        if ladder is not None:
            found.append(ladder)
            places += len(ring)
    leave_out(left, f"ladders of {job.job}", unseen, "EXPLAIN_LADDER_PLACES_MAX")
    return found


def by_kind(rows: RankTable) -> Iterator[RankTable]:
    if not len(rows):
        return
    own = rows.records
    _, which = distinct(own.communicator, own.operation, own.size_bytes)
    order = np.argsort(which, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
        yield rows.select(group)


def explain_ladder(
    job: JobWindow, own: RankTable, ring: Sequence[int], *, is_assumed: bool
) -> Ladder | None:
    """Medians of exit minus the operation's mean exit; None if no operation was seen whole."""
    records = own.records
    count = len(ring)
    _, index, seen = np.unique(own.operation, return_inverse=True, return_counts=True)
    own = own.select((seen == count)[index])
    records = own.records
    if not len(own) or count < 2:  # noqa: PLR2004 - a ring of one
        return None
    order = np.lexsort((records.rank, own.operation))
    exits = records.exit_ns[order].reshape(-1, count)
    is_during = own.is_during[order].reshape(-1, count)[:, 0]
    ranks = records.rank[order].reshape(-1, count)[0].tolist()
    if set(ranks) != set(ring):
        return None
    base = exits.min(axis=1, keepdims=True)
    relative = (exits - base).astype(np.float64)
    relative -= relative.mean(axis=1, keepdims=True)
    column = {rank: place for place, rank in enumerate(ranks)}
    before = [median_of(relative[~is_during, column[rank]]) for rank in ring]
    during = [median_of(relative[is_during, column[rank]]) for rank in ring]
    name = records.communicators[records.communicator[0]]
    return Ladder(
        communicator=name,
        operation=records.operations[records.operation[0]],
        size_bytes=known(int(records.size_bytes[0])),
        is_ring_assumed=is_assumed,
        operations_before=int((~is_during).sum()),
        operations_during=int(is_during.sum()),
        places=ladder_places(job, name, ring, before, during),
    )


def ladder_places(
    job: JobWindow,
    name: str,
    ring: Sequence[int],
    before: Sequence[int | None],
    during: Sequence[int | None],
) -> list[LadderPlace]:
    # Without a stretch before, the exits themselves must do.
    changes = [
        None if late is None else late - (early or 0)
        for early, late in zip(before, during, strict=True)
    ]
    found = []
    for place, rank in enumerate(ring):
        who = job.rank_of(name, rank)
        here, following = changes[place], changes[(place + 1) % len(ring)]
        found.append(
            LadderPlace(
                rank=rank,
                job_rank=None if who is None else who.rank,
                host="" if who is None else who.host,
                before_ns=before[place],
                during_ns=during[place],
                change_ns=here,
                jump_ns=None if here is None or following is None else following - here,
            )
        )
    return found


# The rest ----------------------------------------------------------------------------------------


def explain_clocks(job: JobWindow, left: list[LeftOut]) -> list[ClockExplained]:
    """Every host's clock in every stretch; past EXPLAIN_CLOCKS_MAX the latest stretches'."""
    found = [
        ClockExplained(
            **{**msgspec.structs.asdict(clock), "from_ns": fit.from_ns, "to_ns": fit.to_ns}
        )
        for fit in job.clocks
        for clock in fit.clocks
    ]
    leave_out(left, f"clocks of {job.job}", len(found) - EXPLAIN_CLOCKS_MAX, "EXPLAIN_CLOCKS_MAX")
    return found[-EXPLAIN_CLOCKS_MAX:]


def explain_steps(job: JobWindow, left: list[LeftOut]) -> StepColumns | None:
    """The latest EXPLAIN_STEPS_MAX steps; None where none is known."""
    if not job.steps:
        return None
    leave_out(left, f"steps of {job.job}", len(job.steps) - EXPLAIN_STEPS_MAX, "EXPLAIN_STEPS_MAX")
    steps = list(job.steps)[-EXPLAIN_STEPS_MAX:]
    return StepColumns(
        number=[step.number for step in steps],
        start_ns=[step.start_ns for step in steps],
        end_ns=[step.end_ns for step in steps],
        compute_ns=[step.compute_ns for step in steps],
        wait_ns=[step.wait_ns for step in steps],
        transfer_ns=[step.transfer_ns for step in steps],
        last_rank=[step.last_rank for step in steps],
    )


def explain_pending(job: JobWindow, chosen: Chosen, left: list[LeftOut]) -> list[PendingExplained]:
    """Operations that did not end; the earliest EXPLAIN_PENDING_MAX."""
    own = [one for one in job.pending if chosen.communicator in {None, one.communicator}]
    leave_out(left, f"pending of {job.job}", len(own) - EXPLAIN_PENDING_MAX, "EXPLAIN_PENDING_MAX")
    return [
        PendingExplained(
            communicator=one.communicator,
            operation=one.operation,
            sequence=one.sequence,
            ranks=one.ranks,
            states={str(rank): str(state) for rank, state in sorted(one.states.items())},
            silent=[rank for rank in range(one.ranks) if rank not in one.states],
            job_rank={str(rank): number for rank, number in sorted(one.job_rank.items())},
            time_ns=one.time_ns or None,
        )
        for one in own[:EXPLAIN_PENDING_MAX]
    ]
