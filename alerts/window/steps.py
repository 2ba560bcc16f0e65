"""Steps of a job: from the training loop's own marks, or inferred from its collectives. Pure.

A training loop repeats itself, and so do its collectives: the shortest period with which a rank's
operations repeat is a step, and it begins where the rank stays away from collectives longest.
Operations are told apart by kind, size and group size, and counted by their sequence numbers, so
that lost records shift nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np

from alerts.window.clocks import operation_index
from alerts.window.columns import Codes, Columns, Floats, Ints, Operations, Records, Step
from alerts.window.grouped import compact, lengths_of, middles, order_by, rows_of, running_most
from alerts.window.messages import is_pairwise, met_ns
from alerts.window.split import distinct, joinable, medians, members_in, reduced, starts_of
from alerts.window.statistics import middle
from collector.contract.records import ABSENT

PERIOD_MAX = 4_096
"""Operations in one step: a sharded model of a hundred layers has a few hundred."""
LOOKED_AT_MAX = 20_000
"""Operations of one rank that the period is looked for in."""
REPEATS_SHARE = 0.9
"""So many operations must repeat after a period. Warm-up, evaluation and lost records do not."""
STEPS_MIN = 3
"""Fewer are no repetition."""
JUMP_STEPS = 64
"""Where a stream's numbers grow by so many times as much as usual, some time was left out. A few
lost records, and an agent that keeps one operation in two, leave the rhythm."""


class Bounds(Columns, frozen=True, kw_only=True):
    """Where steps begin and end on each rank, sorted by rank and start."""

    rank: Codes
    number: Ints
    start_ns: Ints
    end_ns: Ints


class Work(Columns, frozen=True, kw_only=True):
    """A rank's collectives, sorted by rank and entry; ``waited_ns`` is when the last rank came."""

    rank: Codes
    kind: Ints
    """Operations that look alike have the same: kind, size, size of the group."""
    stream: Ints
    """Operations that are counted together: communicator and kind of operation."""
    sequence: Ints
    entry_ns: Ints
    exit_ns: Ints
    enqueue_ns: Ints
    waited_ns: Ints
    is_last: Codes
    """1 where this rank itself was the last to enter an operation of several."""
    skew_ns: Ints
    late_ns: Ints
    """How much later than the median rank it entered; 0 for a rank that was seen alone."""


def to_work(
    records: Records, job_rank: Mapping[tuple[str, int], int], operations: Operations | None = None
) -> Work:
    """The records of ranks whose place in the job is known.

    ``operations`` are the joined ones, where the records are those of some ranks only.
    """
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    starts = starts_of(index)
    last_entry = reduced(np.maximum, rows.entry_ns, starts)
    first_entry = reduced(np.minimum, rows.entry_ns, starts)
    members = np.diff(np.append(starts, len(rows)))
    if operations is not None and len(rows):
        found = place_in(operations, rows.select(starts))
        last_entry = np.maximum(last_entry, operations.last_entry_ns[found])
        first_entry = np.minimum(first_entry, operations.first_entry_ns[found])
        members = np.maximum(members, operations.ranks_seen[found])
    rank = job_ranks_of_rows(rows, job_rank)
    is_last = (rows.entry_ns == last_entry[index]) & (members[index] > 1)
    work = Work(
        rank=rank,
        kind=distinct(rows.operation, rows.size_bytes, rows.ranks)[1],
        stream=distinct(rows.communicator, rows.operation)[1],
        sequence=rows.sequence,
        entry_ns=rows.entry_ns,
        exit_ns=rows.exit_ns,
        enqueue_ns=rows.enqueue_ns,
        waited_ns=last_entry[index],
        is_last=is_last.astype(np.int32),
        skew_ns=(last_entry - first_entry)[index],
        late_ns=rows.entry_ns - medians(rows.entry_ns, index)[index],
    )
    work = work.select(work.rank >= 0)
    ordered: Work = work.select(order_by(work.rank, work.entry_ns))
    return ordered


class Late(Columns, frozen=True, kw_only=True):
    """Of a rank's collectives what tells how late it was, in any order; fields as of `Work`."""

    rank: Codes
    exit_ns: Ints
    waited_ns: Ints
    late_ns: Ints


def to_late(records: Records, job_rank: Mapping[tuple[str, int], int]) -> Late:
    """The same rows as `to_work` gives, in a fifth of its time."""
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    late = Late(
        rank=job_ranks_of_rows(rows, job_rank),
        exit_ns=rows.exit_ns,
        waited_ns=reduced(np.maximum, rows.entry_ns, starts_of(index))[index],
        late_ns=rows.entry_ns - medians(rows.entry_ns, index)[index],
    )
    known: Late = late if (late.rank >= 0).all() else late.select(late.rank >= 0)
    return known


def job_ranks_of_rows(records: Records, job_rank: Mapping[tuple[str, int], int]) -> Codes:
    """The job's rank of each row; -1 where it is not known."""
    members, which = members_in(records)
    known = np.array([job_rank.get(member, -1) for member in members], dtype=np.int32)
    return known[which]


def place_in(operations: Operations, rows: Records) -> Ints:
    """The row of ``operations`` that each record belongs to; every one has one."""
    codes = {
        kind: {name: code for code, name in enumerate(names)}
        for kind, names in (
            ("communicator", operations.communicators),
            ("operation", operations.operations),
        )
    }
    communicator = np.array([codes["communicator"].get(name, -1) for name in rows.communicators])
    operation = np.array([codes["operation"].get(name, -1) for name in rows.operations])
    joined = np.stack([operations.communicator, operations.operation, operations.sequence])
    wanted = np.stack([communicator[rows.communicator], operation[rows.operation], rows.sequence])
    _, group = distinct(*np.concatenate([joined, wanted], axis=1).astype(np.int64))
    place = np.zeros(int(group.max()) + 1, dtype=np.int64)
    place[group[: len(operations)]] = np.arange(len(operations))
    return place[group[len(operations) :]]


def infer_steps(
    records: Records, job_rank: Mapping[tuple[str, int], int], operations: Operations | None = None
) -> list[Step]:
    """The steps that the collectives show, in order; none if nothing repeats.

    ``job_rank`` gives the job's rank of each (communicator, rank within it); ``operations`` are
    needed where the records are those of some ranks only.
    """
    work = to_work(records, job_rank, operations)
    bounds = infer_bounds(work)
    if bounds is None:
        return []
    return measure_steps(with_messages(work, records, job_rank), bounds)


def usual_step_ns(records: Records, job_rank: Mapping[tuple[str, int], int]) -> int:
    """How long a step usually takes, by the records of some ranks; 0 if nothing repeats."""
    bounds = infer_bounds(to_work(records, job_rank))
    if bounds is None or len(bounds) <= 1:
        return 0
    return int(middle(bounds.end_ns - bounds.start_ns))


def with_messages(work: Work, records: Records, job_rank: Mapping[tuple[str, int], int]) -> Work:
    """The work and the ranks' sends and receives, to measure where time goes; not for rhythms.

    Until the other end has come, a message is waiting.
    """
    rows: Records = records.select(is_pairwise(records) & records.timed())
    if not len(rows):
        return work
    nothing = np.zeros(len(rows), dtype=np.int64)
    messages = Work(
        rank=job_ranks_of_rows(rows, job_rank),
        kind=nothing,
        stream=nothing,
        sequence=rows.sequence,
        entry_ns=rows.entry_ns,
        exit_ns=rows.exit_ns,
        enqueue_ns=rows.enqueue_ns,
        waited_ns=met_ns(rows),
        is_last=nothing.astype(np.int32),
        skew_ns=nothing,
        late_ns=nothing,
    )
    messages = messages.select(messages.rank >= 0)
    both = {
        name: np.concatenate([column, getattr(messages, name)])
        for name, column in work.arrays().items()
    }
    whole = Work(**both)
    ordered: Work = whole.select(order_by(whole.rank, whole.entry_ns))
    return ordered


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank's operations repeat.

    For each place in the period: what is done there, and how long the rank usually stays away
    from collectives before it.
    """

    pattern: Ints
    away_ns: Ints

    @property
    def period(self) -> int:
        return len(self.pattern)

    @property
    def before(self) -> Ints:
        """For each place what was done before it."""
        return np.roll(self.pattern, 1)


def infer_bounds(work: Work) -> Bounds | None:
    """Where steps begin and end on each rank, numbered alike on all; None if nothing repeats."""
    own = in_program_order(work)
    parts = parts_of(own)
    rhythms = find_rhythms(own, parts)
    begins = find_starts(own, parts, rhythms, find_seam(list(rhythms.values())))
    if not begins:
        return None
    if len(begins) < len(parts):
        known = [rank in begins for rank in range(len(parts))]
        own = own.select(np.repeat(known, [part.stop - part.start for part in parts]))
    periods = [rhythms[rank].period for rank in begins]
    first = starts_of(ranks_in(own)) + np.array(list(begins.values()))
    return renumbered(bounds_of(own, count_steps(own, first, np.array(periods))))


def in_program_order(work: Work) -> Work:
    """The work of each rank as the program launched it, where that is known of all that it did.

    Kernels on several streams take turns.
    """
    if not len(work):
        return work
    starts = starts_of(ranks_in(work))
    is_known = np.logical_and.reduceat(work.enqueue_ns != ABSENT, starts)
    if not is_known.any():
        return work
    is_known = np.repeat(is_known, lengths_of(starts, len(work)))
    launched = np.where(is_known, work.enqueue_ns, np.arange(len(work)))
    if ((np.diff(launched) >= 0) | (np.diff(work.rank) != 0)).all():
        return work
    ordered: Work = work.select(np.lexsort((launched, work.rank)))
    return ordered


def ranks_in(work: Work) -> Ints:
    return work.rank.astype(np.int64)


def parts_of(work: Work) -> list[slice]:
    """The rows of each rank."""
    edges = [*starts_of(ranks_in(work)).tolist(), len(work)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def find_rhythms(own: Work, parts: Sequence[slice]) -> dict[int, Rhythm]:
    """How the operations of each rank repeat; nothing of ranks whose operations do not.

    Most ranks run the same program: what is found for it is found once.
    """
    patterns: dict[bytes, Ints | None] = {}
    found: list[tuple[int, slice, Ints]] = []
    for rank, part in enumerate(unbroken(own, parts)):
        looked_at = slice(part.start, min(part.stop, part.start + LOOKED_AT_MAX))
        program = own.kind[looked_at].tobytes()
        if program not in patterns:
            patterns[program] = find_pattern(own.kind[looked_at])
        pattern = patterns[program]
        if pattern is not None:
            found.append((rank, looked_at, pattern))
    periods = [len(pattern) for _, _, pattern in found]
    usual = usually_away(own, [looked_at for _, looked_at, _ in found], periods)
    return {
        rank: Rhythm(pattern=pattern, away_ns=away)
        for (rank, _, pattern), away in zip(found, usual, strict=True)
    }


def usually_away(own: Work, parts: Sequence[slice], periods: Sequence[int]) -> list[Ints]:
    """How long ranks usually stay away before each place of their periods, in these rows."""
    if not parts:
        return []
    rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    looked_at: Work = own if len(rows) == len(own) else own.select(rows)
    lengths = np.array([part.stop - part.start for part in parts])
    starts = np.cumsum(lengths) - lengths
    away = away_before(looked_at, starts)
    period = np.array(periods)
    base = np.cumsum(period) - period
    place = np.arange(len(rows)) - np.repeat(starts, lengths)
    # The first period is warm-up: it says little about how long a rank usually stays away.
    counts = place >= np.repeat(period, lengths)
    group = place % np.repeat(period, lengths) + np.repeat(base, lengths)
    return np.split(medians(away[counts], group[counts]), base[1:])


def unbroken(own: Work, parts: Sequence[slice]) -> list[slice]:
    """Of each rank the longest stretch in which no stream's numbers jump.

    Between two slices of time (`alerts.window.slices`) steps are cut anywhere, and a pattern over
    both would be one of neither.
    """
    _, stream = distinct(own.rank, own.stream)
    order = rows_of(stream)
    stream, sequence = stream[order], own.sequence[order]
    same = np.flatnonzero(stream[1:] == stream[:-1])
    if not len(same):
        return list(parts)
    further = np.maximum(sequence[same + 1] - sequence[same], 0)
    _, group = distinct(stream[same])
    jumps = further > JUMP_STEPS * np.maximum(medians(further, group)[group], 1)
    if not jumps.any():
        return list(parts)
    behind = np.sort(order[same[jumps] + 1])
    found = []
    for part in parts:
        first, last = np.searchsorted(behind, (part.start, part.stop))
        edges = np.unique([part.start, *behind[first:last].tolist(), part.stop])
        longest = int(np.argmax(np.diff(edges)))
        found.append(slice(int(edges[longest]), int(edges[longest + 1])))
    return found


def away_before(own: Work, starts: Ints) -> Ints:
    """How long each rank was away from collectives before each: on the GPU and in the program.

    The shorter of the two counts. A program may launch operations long before they run; and of
    trees some ranks' kernels are seen to end early, with nothing but waiting after them.
    ``starts``: the ranks' first rows.
    """
    away = np.zeros(len(own), dtype=np.int64)
    away[1:] = own.entry_ns[1:] - running_most(own.exit_ns, starts)[:-1]
    is_known = np.logical_and.reduceat(own.enqueue_ns != ABSENT, starts)
    if is_known.any():
        is_known = np.repeat(is_known, lengths_of(starts, len(own)))[1:]
        launched = np.minimum(away[1:], np.diff(own.enqueue_ns))
        away[1:] = np.where(is_known, launched, away[1:])
    away[starts] = 0
    return away


def find_seam(rhythms: list[Rhythm]) -> tuple[int, int]:
    """The pair of operations between which all ranks together stay away longest: a step begins."""
    alike: dict[bytes, list[Rhythm]] = {}
    for rhythm in rhythms:
        alike.setdefault(rhythm.pattern.tobytes(), []).append(rhythm)
    away: dict[tuple[int, int], float] = {}
    for group in alike.values():
        before, after = group[0].before, group[0].pattern
        first, seam = distinct(before, after)
        order = np.argsort(seam, kind="stable")
        times = np.stack([rhythm.away_ns for rhythm in group])[:, order]
        longest = np.maximum.reduceat(times, starts_of(seam[order]), axis=1)
        together = np.maximum(longest, 0).sum(axis=0, dtype=np.float64)
        for number in np.argsort(first, kind="stable").tolist():
            place = first[number]
            pair = int(before[place]), int(after[place])
            away[pair] = away.get(pair, 0.0) + float(together[number])
    return max(away, key=lambda pair: away[pair], default=(-1, -1))


def bounds_of(own: Work, number: Ints) -> Bounds:
    """The ranks' steps, each numbered from its first whole one; ``number``: of each operation."""
    rank = ranks_in(own)
    exit_ns, entry_ns = own.exit_ns, own.entry_ns
    if not ((np.diff(number) >= 0) | (np.diff(rank) != 0)).all():
        order = np.lexsort((number, rank))
        rank, number = rank[order], number[order]
        exit_ns, entry_ns = exit_ns[order], entry_ns[order]
    is_new = np.ones(len(number), dtype=bool)
    is_new[1:] = (number[1:] != number[:-1]) | (rank[1:] != rank[:-1])
    firsts = np.flatnonzero(is_new)
    ends = np.maximum.reduceat(exit_ns, firsts)
    entries = np.minimum.reduceat(entry_ns, firsts)
    numbers, ranks = number[firsts], rank[firsts]
    starts = starts_of(ranks)
    # A step begins where the one before ended: what a rank computes before its first collective
    # belongs to it. For the first step nobody knows when that began.
    begins = np.append(entries[:1], running_most(ends, starts)[:-1])
    is_cut = np.diff(numbers, prepend=0) > 1
    is_cut[starts] = True
    begins = np.where(is_cut, entries, begins)
    return Bounds(
        rank=ranks.astype(np.int32),
        number=numbers,
        start_ns=np.minimum(begins, ends),
        end_ns=ends,
    )


def find_pattern(kinds: Ints) -> Ints | None:
    """What is done at each place of a period, most of the time; None if nothing repeats."""
    period = find_period(kinds)
    if period is None:
        return None
    found, code = np.unique(kinds, return_inverse=True)
    place = np.arange(len(kinds)) % period
    done, counts = np.unique(place * len(found) + code.reshape(-1), return_counts=True)
    place, code = np.divmod(done, len(found))
    # Of each place first what is done there most often, and of equals the lowest.
    order = np.lexsort((code, -counts, place))
    pattern: Ints = found[code[order][starts_of(place[order])]]
    return pattern


def find_period(kinds: Ints) -> int | None:
    """After how many operations they repeat; the shortest period that explains nearly all."""
    longest = min(PERIOD_MAX, len(kinds) // STEPS_MIN)
    best = None
    for period in range(1, longest + 1):
        share = np.count_nonzero(kinds[period:] == kinds[:-period]) / (len(kinds) - period)
        if share >= REPEATS_SHARE and (best is None or share > best[0] + (1 - best[0]) / 2):
            # A longer period must explain half of what a shorter one left unexplained.
            best = share, period
            if share > 1 - 1e-9:
                break
    return best[1] if best is not None else None


def find_starts(
    own: Work, parts: Sequence[slice], rhythms: Mapping[int, Rhythm], seam: tuple[int, int]
) -> dict[int, int]:
    """Of each rank with such a seam the first of its operations that begins a whole step there."""
    found: dict[int, int] = {}
    seams: dict[bytes, Ints] = {}
    known: dict[tuple[bytes, bytes, int], int | None] = {}
    for rank, rhythm in rhythms.items():
        pattern = rhythm.pattern.tobytes()
        if pattern not in seams:
            is_seam = (rhythm.before == seam[0]) & (rhythm.pattern == seam[1])
            seams[pattern] = np.flatnonzero(is_seam)
        places = seams[pattern]
        if not len(places):
            continue
        begin = int(places[np.argmax(rhythm.away_ns[places])])
        kinds = own.kind[parts[rank]][:LOOKED_AT_MAX]
        # Ranks that run the same program begin their steps at the same place of it.
        key = kinds.tobytes(), pattern, begin
        if key not in known:
            known[key] = find_start(kinds, np.roll(rhythm.pattern, -begin), begin)
        start = known[key]
        if start is not None:
            found[rank] = start
    return found


def find_start(kinds: Ints, pattern: Ints, begin: int) -> int | None:
    """The first place of the pattern among the kinds, if it begins there as a rule."""
    period = len(pattern)
    last = len(kinds) - period
    # Where records were lost, the places are others: then every operation may begin a step.
    for first in chain(range(begin, last + 1, period), range(last + 1)):
        if (kinds[first : first + period] == pattern).all():
            return first
    return None


def count_steps(own: Work, first: Ints, period: Ints) -> Ints:
    """The step of each operation, by how far its stream has counted since the first whole step.

    ``first`` and ``period`` are of each rank: the row at which that step begins, and its length.
    """
    starts = starts_of(ranks_in(own))
    lengths, rows = lengths_of(starts, len(own)), np.arange(len(own))
    begin = np.repeat(first, lengths)
    whole = (rows >= begin) & (rows < begin + np.repeat(period, lengths))
    _, stream = distinct(own.rank, own.stream)
    order = rows_of(stream)
    ordered, sequence = stream[order], own.sequence[order]
    streams = starts_of(ordered)
    per_step = np.bincount(stream, whole).astype(np.int64)
    lowest = np.where(whole[order], sequence, np.iinfo(np.int64).max)
    begun = np.minimum.reduceat(lowest, streams)
    # Flight Recorder counts operations of all kinds together, so that a step is further.
    is_later = rows - streams[ordered] >= per_step[ordered]
    later = np.flatnonzero(is_later & (per_step[ordered] > 0))
    further = sequence[later] - sequence[later - per_step[ordered[later]]]
    step = np.ones(len(streams), dtype=np.int64)
    if len(later):
        some, group = distinct(ordered[later])
        usual = middles(further, group).astype(np.int64)
        step[ordered[later[some]]] = np.maximum(usual, 1)
    is_rare = (per_step == 0)[stream]
    number = (own.sequence - np.where(per_step > 0, begun, 0)[stream]) // step[stream]
    if is_rare.any():
        # What does not belong to every step (an evaluation, a checkpoint's barrier) counts to the
        # step in which it happens.
        before = np.maximum.accumulate(np.where(is_rare, -1, rows))
        soonest = np.minimum.reduceat(np.where(is_rare, len(rows), rows), starts)
        is_after = before >= np.repeat(starts, lengths)
        number = number[np.where(is_after, before, np.repeat(soonest, lengths))]
    return number


def renumbered(bounds: Bounds) -> Bounds:
    """The bounds numbered alike on all ranks, from 0, by which steps are nearest in time.

    Compared with those of the rank that has most of them.
    """
    starts = starts_of(bounds.rank.astype(np.int64))
    lengths = lengths_of(starts, len(bounds))
    longest = int(np.argmax(lengths))
    reference: Bounds = bounds.select(slice(starts[longest], starts[longest] + lengths[longest]))
    nearest = np.searchsorted(reference.end_ns, bounds.end_ns)
    nearest = np.clip(nearest, 0, len(reference) - 1)
    before = np.maximum(nearest - 1, 0)
    closer = np.abs(reference.end_ns[before] - bounds.end_ns) < np.abs(
        reference.end_ns[nearest] - bounds.end_ns
    )
    nearest = np.where(closer, before, nearest)
    rank = np.repeat(np.arange(len(starts)), lengths)
    shift = middles(reference.number[nearest] - bounds.number, rank).astype(np.int64)
    number = bounds.number + shift[rank]
    return msgspec.structs.replace(bounds, number=number - number.min())


def measure_steps(work: Work, bounds: Bounds) -> list[Step]:
    """The steps over all ranks; medians, so that one odd rank does not hide a step."""
    if not len(bounds):
        return []
    spent = measure_ranks(work, bounds)
    order = rows_of(bounds.number)
    first, group = distinct(bounds.number[order])
    wait = middles(spent.wait_ns[order], group)
    transfer = middles(spent.transfer_ns[order], group)
    begins, ends = bounds.start_ns[order], bounds.end_ns[order]
    # From the earliest on: whole times do not fit into a float's digits.
    base = np.minimum.reduceat(begins, first)
    start = base + middles(begins - base[group], group).astype(np.int64)
    end = base + middles(ends - base[group], group).astype(np.int64)
    compute = ((end - start) - wait - transfer).astype(np.int64)
    waited_for = spent.waited_for_ns[order]
    most = np.maximum.reduceat(waited_for, first)
    worst = np.flatnonzero(waited_for == most[group])
    worst = worst[starts_of(group[worst])]
    columns = (
        bounds.number[order][first],
        start,
        end,
        np.bincount(group),
        np.maximum(compute, 0),
        wait.astype(np.int64),
        transfer.astype(np.int64),
        np.where(most > 0, bounds.rank[order][worst], -1),
    )
    return [
        Step(
            number=number,
            start_ns=start_ns,
            end_ns=end_ns,
            ranks=ranks,
            compute_ns=compute_ns,
            wait_ns=wait_ns,
            transfer_ns=transfer_ns,
            last_rank=last_rank if last_rank >= 0 else None,
        )
        for number, start_ns, end_ns, ranks, compute_ns, wait_ns, transfer_ns, last_rank in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


class Spent(Columns, frozen=True, kw_only=True):
    """Where each rank's time in each step went, one row for each row of `Bounds`; nanoseconds."""

    wait_ns: Floats
    """Inside collectives, before the last rank had come."""
    transfer_ns: Floats
    """Inside, after."""
    waited_for_ns: Floats
    """How long others waited for this rank, in the collectives that it entered last."""


def measure_ranks(work: Work, bounds: Bounds) -> Spent:
    """Where each rank's time went, step by step; an operation belongs to the step it ends in."""
    if not len(work) or not len(bounds):
        return Spent(**dict.fromkeys(Spent.__struct_fields__, np.zeros(len(bounds))))
    place = steps_that_end(work, bounds)
    inside = place >= 0
    own, place = work.select(inside), place[inside]
    before, after = inside_times(own, bounds.start_ns[place])
    count = len(bounds)
    times = (before, after, (own.skew_ns * own.is_last).astype(np.float64))
    wait, transfer, waited_for = (
        np.bincount(place, each, count).astype(np.float64) for each in times
    )
    return Spent(wait_ns=wait, transfer_ns=transfer, waited_for_ns=waited_for)


def steps_that_end(work: Work, bounds: Bounds) -> Ints:
    """The row of ``bounds`` of the step that each operation ends in; -1: in none of its rank's."""
    starts = starts_of(bounds.rank.astype(np.int64))
    ends = np.append(starts[1:], len(bounds))
    ranks = bounds.rank[starts]
    rank = np.minimum(np.searchsorted(ranks, work.rank), len(ranks) - 1)
    both = np.concatenate([running_most(bounds.end_ns, starts), work.exit_ns])
    codes, _, count = compact(both, len(ranks))
    lane = np.repeat(np.arange(len(ranks)) * count, ends - starts)
    place = np.searchsorted(codes[: len(bounds)] + lane, codes[len(bounds) :] + rank * count)
    is_known = (ranks[rank] == work.rank) & (place < ends[rank])
    return np.where(is_known, place, -1)


def inside_times(own: Work, start_ns: Ints) -> tuple[Floats, Floats]:
    """Time in each collective before and after the last rank came, none of it counted twice.

    Collectives of one rank may overlap; what an earlier one covers is the earlier one's. Time
    before the step began is not counted.
    """
    starts = starts_of(ranks_in(own))
    ended = np.zeros(len(own), dtype=np.int64)
    ended[1:] = running_most(own.exit_ns, starts)[:-1]
    ended[starts] = 0
    begin = np.maximum(np.maximum(own.entry_ns, ended), start_ns)
    turn = np.clip(own.waited_ns, begin, np.maximum(begin, own.exit_ns))
    wait = np.maximum(turn - begin, 0)
    transfer = np.maximum(own.exit_ns - turn, 0)
    return wait.astype(np.float64), transfer.astype(np.float64)
