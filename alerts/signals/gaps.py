"""How long each rank of a job stays outside of collectives and messages, step by step. Pure.

Lateness travels: a rank that left one collective late enters the next one late, and so do all ranks
that were in it. The time between a rank's exit and its own next entry does not travel. It is
measured on one clock, so that no alignment of clocks can bend it, and it grows for the rank that
computes, loads or sleeps longer, and for no other.

Peers are the ranks that share a collective: of one step they do the same work. A rank's excess is
its time outside minus its peers' median, and never more than it was late by: a rank that leaves an
overlapped collective early is outside for longer too, and delays none.

Stages of a pipeline share collectives, too, but not the work (`alerts.signals.pipelines`): peers
are the copies of one stage. A rank without a copy is held against its own past instead, less what
changed for all stages, and never by more than the step became longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

import msgspec
import numpy as np

from alerts.signals.computing import Busy, of_pipelines, own_gaps, shared_factor, with_waiting
from alerts.signals.pipelines import (
    are_copies,
    job_ranks,
    message_edges,
    pipelines_of,
    stages_of,
)
from alerts.window.clocks import operation_index
from alerts.window.columns import Codes, Flags, Floats, Ints, Records
from alerts.window.messages import is_pairwise
from alerts.window.model import JobWindow
from alerts.window.slices import whole_steps
from alerts.window.split import distinct, medians, reduced, starts_of
from alerts.window.statistics import middle, running_median

BINS_MAX = 20_000
"""Steps that are looked at, the newest: a window of hours."""
BINS_WITHOUT_STEPS = 30
"""Where the steps are not known, the window is cut into so many pieces."""
CELLS_MAX = 20_000_000
"""Ranks times steps: 160 MB a table. Of more the newest steps are looked at."""
SPAN_NS_MAX = 86_400 * 1_000_000_000
"""A record that is further than a day from the others has a wrong time. Ten thousand ranks times so
many nanoseconds still fit into a number."""
STEPS_MIN = 3
"""Steps of a time before a rank's own lateness in them says anything."""
KEPT = "own_time"
"""Where a job keeps its table, like any cached property: several detectors look at it."""
LOST_FACTOR = 2
"""Sequence numbers that jump by more than so many usual jumps: records were lost there."""
ROWS_SHARE_MIN, ROWS_SHARE_MAX = 0.75, 1.33
"""Of the operations that a rank usually has in a step: with fewer some were lost; with more it is
another kind of step, or a clock was set back."""


USUAL_SHARE = 0.1
"""A rank that has no peers usually takes what it takes in its shortest tenth of steps: a fault may
last for most of a window."""
GROWTH_SHARE_MIN = 0.1
"""Of a step, by which such a rank must have become slower: without a peer that comes first there is
less to go by. Ranks that share a GPU or a host with a slow one become slower by a twentieth."""
SMOOTH_STEPS = 9
"""Steps over which counting and the clock are reconciled."""
SMEAR_SHARE = 0.25
"""Of the time between the first and the last exit of a collective, by which a rank's exit may be
seen too early: in a tree behind a slow NIC kernels were seen to end, and the next one to begin up
to 0.16 of that time after all had left, with nothing launched in between."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Timed records of known ranks, sorted by rank and entry."""

    records: Records
    rank: Ints
    operation: Ints
    bin: Ints
    gap_ns: Ints
    """Since the rank's latest exit of anything; -1 where there was none before."""
    is_lost: Flags
    """Records of this rank are missing before this one."""
    busy: Busy | None = None
    """How long ranks computed, where it is known: then gaps are their own time since the entry of
    the row before."""


class OwnTime(msgspec.Struct, frozen=True, kw_only=True):
    """What ranks do outside of collectives; all tables are [ranks, steps], in nanoseconds."""

    ranks: Ints
    start_ns: Ints
    end_ns: Ints
    outside_ns: Floats
    """Between a collective and the next, summed over the step. NaN: records are missing."""
    late_ns: Floats
    """How much later than its peers it entered, summed over the step's collectives."""
    excess_ns: Floats
    """Time outside beyond the peers', as far as it made the rank late; NaN: not known."""
    together_ns: Floats
    """What all stages of the rank's pipeline are late by alike: not this rank's own excess."""
    peers_ns: Floats
    """The peers' time outside that the excess is measured from, or the rank's own usual one."""
    is_by_past: Flags
    """Ranks that no other does the same work as: their excess is over their own past."""
    pipeline: Ints
    """The pipeline that each rank is in, by a number; -1: in none."""
    stage: Ints
    """The stage, likewise: copies have the same; -1 for ranks in no pipeline."""
    is_computing: bool
    """Whether traces show what ranks compute: then time outside is that, and what is idle."""
    rows: Rows

    @property
    def length_ns(self) -> Ints:
        return self.end_ns - self.start_ns


def own_time(job: JobWindow) -> OwnTime | None:
    """The table of a job, made once; None where nothing can be compared."""
    kept: dict[str, OwnTime | None] = job.__dict__
    if KEPT not in kept:
        kept[KEPT] = make_own_time(job)
    return kept[KEPT]


def latest_own_ns(job: JobWindow, since_ns: int, last_ns: int) -> float | None:
    """How late the latest rank is through its own doing in a step of this time, in nanoseconds.

    By medians over its steps; None where too few are known. Ranks that come late only because they
    left late do not count.
    """
    own = own_time(job)
    if own is None:
        return None
    inside = (own.start_ns < last_ns) & (own.end_ns > since_ns)
    excess = own.excess_ns[:, inside]
    excess = excess[np.isfinite(excess).sum(axis=1) >= STEPS_MIN]
    return max(0.0, float(np.nanmedian(excess, axis=1).max())) if len(excess) else None


def make_own_time(job: JobWindow) -> OwnTime | None:
    records, number = known_rows(job)
    # Who is late without the hosts that are left out may have waited for one of them.
    if not len(records) or job.kept_one_in > 1 or job.hosts_left_out:
        return None
    ranks, place = np.unique(number, return_inverse=True)
    starts, ends = bins_of(job, records)
    chosen = looked_at(job, starts, ends, len(ranks))
    if len(ranks) == 1 or not len(chosen):
        return None
    rows = to_rows(records, place.astype(np.int64), ends, slice_of(job, records.exit_ns))
    rows = in_steps(rows, chosen, len(ends))
    starts, ends = starts[chosen], ends[chosen]
    shape = (len(ranks), len(starts))
    groups = groups_of(job, ranks)
    pipeline = pipelines_of(message_edges(job), ranks)
    busy = busy_of(job, ranks, pipeline)
    if busy is not None:
        rows = with_computing(rows, busy)
    outside = outside_of(rows, shape)
    copies = {name: group for name, group in groups.items() if are_copies(pipeline[group])}
    late = late_of(rows, shape, copies.keys())
    beyond, peers = excess_of(outside, [*copies.values()])
    if busy is None:
        common = common_of(beyond, pipeline)
    else:
        common = (shared_factor(outside, peers, pipeline) - 1.0) * peers
    beyond, peers = beyond - common, peers + common
    # Kernels that compute wait for no other rank: nothing has to show that they made it late.
    excess = np.minimum(beyond, late) if busy is None else beyond
    mixed = [group for name, group in groups.items() if name not in copies]
    is_by_past = without_copies(len(ranks), [*copies.values()], mixed)
    if (pipeline >= 0).any():
        grown, usual = growth_of(outside, [*groups.values()], ends - starts)
        # Two pipelines that each have a slow rank are late alike, and neither waits for the other.
        excess = np.where(
            (pipeline >= 0)[:, None], np.fmax(excess, np.minimum(beyond, grown)), excess
        )
        excess[is_by_past], peers[is_by_past] = grown[is_by_past], usual[is_by_past]
    return OwnTime(
        ranks=ranks.astype(np.int64),
        start_ns=starts,
        end_ns=ends,
        outside_ns=outside,
        late_ns=late,
        excess_ns=excess,
        together_ns=np.fmin(common, late) if busy is None else common,
        peers_ns=peers,
        is_by_past=is_by_past,
        pipeline=pipeline,
        stage=np.where(pipeline >= 0, stages_of([*copies.values()], len(ranks)), -1),
        is_computing=busy is not None,
        rows=rows,
    )


def with_computing(rows: Rows, busy: Busy) -> Rows:
    """The rows with the ranks' own time before each: what they compute, also inside of others."""
    seen = with_waiting(rows.records, rows.rank, rows.gap_ns, busy)
    moved = rows.records.entry_ns - seen.entry_ns
    gap = np.where(rows.gap_ns > 0, rows.gap_ns - moved, rows.gap_ns)
    own = own_gaps(seen, rows.rank, gap, busy)
    return msgspec.structs.replace(rows, records=seen, gap_ns=own, busy=busy)


def busy_of(job: JobWindow, ranks: Ints, pipeline: Ints) -> Busy | None:
    """How long the ranks computed; None unless it is known of all, and they form pipelines.

    Elsewhere ranks meet in collectives, and time outside of them is their own.
    """
    if job.computing is None or not (pipeline >= 0).any():
        return None
    busy = Busy(job.computing, ranks)
    return busy if busy.is_known.all() else None


def without_copies(ranks: int, copies: list[Ints], mixed: list[Ints]) -> Flags:
    """The ranks of groups that no copy of theirs is in."""
    found = np.zeros(ranks, dtype=bool)
    for group in mixed:
        found[group] = True
    for group in copies:
        found[group] = False
    return found


def common_of(beyond: Floats, pipeline: Ints) -> Floats:
    """What all stages of a pipeline are beyond their copies by: the lower median, 0 at least.

    While a pipeline waits for a slow one, it waits inside of collectives that it overlaps with its
    work, and is outside for less. Every stage of the slow one then looks slow, and one is.
    """
    return of_pipelines(beyond, pipeline, 0.0)


def growth_of(outside: Floats, groups: list[Ints], length_ns: Ints) -> tuple[Floats, Floats]:
    """How far each rank's time outside is above its own usual one, and that usual one.

    Less what changed for the group (longer sequences are longer for all stages), and no more than
    the step became longer: time that a pipeline hides delays no rank.
    """
    usual = low_quantile(outside)
    grown, common = excess_of(outside - usual[:, None], groups)
    longer = np.maximum(length_ns - low_quantile(length_ns[None].astype(np.float64)), 0.0)
    grown = np.minimum(grown, longer)
    grown = np.where(grown < GROWTH_SHARE_MIN * length_ns, np.fmin(grown, 0.0), grown)
    return grown, usual[:, None] + common


def low_quantile(values: Floats) -> Floats:
    """Of each row the value below which a tenth of it lies; NaN for a row of nothing else."""
    ordered = np.sort(values, axis=1)
    count = (~np.isnan(values)).sum(axis=1)
    place = (np.maximum(count - 1, 0) * USUAL_SHARE).astype(np.int64)
    found: Floats = np.take_along_axis(ordered, place[:, None], axis=1)[:, 0]
    return found


def in_steps(rows: Rows, chosen: Ints, steps: int) -> Rows:
    """The rows with their step's place among the chosen ones; -1 for those of other steps."""
    place = np.full(steps, -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    is_step = (rows.bin >= 0) & (rows.bin < steps)
    found = np.where(is_step, place[np.clip(rows.bin, 0, steps - 1)], -1)
    return msgspec.structs.replace(rows, bin=found)


def known_rows(job: JobWindow) -> tuple[Records, Ints]:
    """Timed records of ranks whose place in the job is known, and that place."""
    timed: Records = job.records.select(job.records.timed())
    if not len(timed):
        return timed, np.zeros(0, dtype=np.int64)
    middle = int(np.median(timed.exit_ns))
    near = (timed.entry_ns > middle - SPAN_NS_MAX) & (timed.entry_ns < middle + SPAN_NS_MAX)
    near &= (timed.exit_ns >= timed.entry_ns) & (timed.exit_ns < middle + SPAN_NS_MAX)
    timed = timed.select(near)
    number = job_ranks(job, timed)
    chosen: Records = timed.select(number >= 0)
    return chosen, number[number >= 0]


def bins_of(job: JobWindow, records: Records) -> tuple[Ints, Ints]:
    if job.steps:
        steps = sorted((step.end_ns, step.start_ns) for step in job.steps)
        ends = np.array([end for end, _ in steps], dtype=np.int64)
        starts = np.array([start for _, start in steps], dtype=np.int64)
        return starts, ends
    edges = np.linspace(0, int(np.ptp(records.exit_ns)) + 1, BINS_WITHOUT_STEPS + 1)
    whole = edges.astype(np.int64) + int(records.exit_ns.min())
    return whole[:-1], whole[1:]


def looked_at(job: JobWindow, starts: Ints, ends: Ints, ranks: int) -> Ints:
    """The steps that the records show as a whole, the newest of too many."""
    chosen = whole_steps(job.slices, starts, ends)
    newest = max(1, min(BINS_MAX, CELLS_MAX // max(1, ranks)))
    found: Ints = np.flatnonzero(chosen)[-newest:]
    return found


def slice_of(job: JobWindow, times_ns: Ints) -> Ints:
    """Which of the job's slices each time is in, or nearest to."""
    middles = [(one[1] + other[0]) // 2 for one, other in itertools.pairwise(job.slices)]
    return np.searchsorted(np.array(middles, dtype=np.int64), times_ns).astype(np.int64)


def to_rows(records: Records, place: Ints, ends: Ints, part: Ints) -> Rows:
    """The records by rank and time, each with the gap before it and the step that it is in.

    ``part`` is the slice that each is in: between two of them nothing is known.
    """
    messages = is_pairwise(records)
    operation = apart_by_rank(records, messages)
    step = np.full(len(records), -1, dtype=np.int64)
    if messages.any():
        met = np.flatnonzero(~messages)
        meetings: Records = records.select(met)
        own = operation_index(meetings)
        step[met] = steps_by_count(meetings, own, ends, part[met])[own]
    else:
        step = steps_by_count(records, operation, ends, part)[operation]
    lost = lost_before(records, operation, messages)
    order = np.lexsort((records.exit_ns, records.entry_ns, place))
    chosen: Records = records.select(order)
    place = place[order]
    base = int(chosen.entry_ns.min())
    entry, leave = chosen.entry_ns - base, chosen.exit_ns - base
    # All ranks in one column, each above the one before, so that a running maximum stays within.
    span = int(max(entry.max(), leave.max())) + 1
    shift = place * span
    before = np.maximum.accumulate(np.maximum(leave, 0) + shift)
    gap = np.full(len(place), -1, dtype=np.int64)
    same = (place[1:] == place[:-1]) & (part[order][1:] == part[order][:-1])
    gap[1:][same] = np.maximum(entry[1:] - (before[:-1] - shift[:-1]), 0)[same]
    messages = messages[order]
    return Rows(
        records=chosen,
        rank=place,
        operation=operation[order],
        bin=steps_of_messages(step[order], messages, place, np.searchsorted(ends, chosen.entry_ns)),
        gap_ns=gap,
        is_lost=lost[order],
    )


def apart_by_rank(records: Records, messages: Flags) -> Ints:
    """The number of each row's operation; a message is each end's own.

    The two ends of a message need not number it alike, and messages of other pairs have the same
    numbers.
    """
    index = operation_index(records)
    if not messages.any():
        return index
    _, number = distinct(index, np.where(messages, records.rank, -1))
    return number


def steps_of_messages(step: Ints, is_message: Flags, rank: Ints, by_clock: Ints) -> Ints:
    """The steps with those of messages: the step of the rank's next collective.

    All copies of a stage send and receive the same between two collectives. After a rank's last
    collective, and for ranks without any, the clock decides. Rows are by rank and time.
    """
    rows = np.arange(len(step), dtype=np.int64)
    after = np.where(is_message, len(step), rows)
    after = np.minimum.accumulate(after[::-1])[::-1]
    known = after < len(step)
    known &= rank[np.minimum(after, len(step) - 1)] == rank
    found: Ints = np.where(known, step[np.minimum(after, len(step) - 1)], by_clock)
    return found


def steps_by_count(records: Records, operation: Ints, ends: Ints, part: Ints) -> Ints:
    """The step of each operation, the same for all of its ranks.

    By the clock it is the one in which the median rank enters. But a host that is late enters its
    own collectives in what is the next step for the others. A stream of operations has as many of
    them in each step, so they are counted, and the clock only gives where counting begins: the
    median of both over SMOOTH operations, because evaluations and lost records shift the count.
    """
    starts = starts_of(operation)
    by_clock = np.searchsorted(ends, medians(records.entry_ns, operation)).astype(np.int64)
    _, stream = distinct(records.communicator[starts], records.operation[starts], part[starts])
    answer = by_clock.copy()
    order = np.argsort(stream, kind="stable")
    bounds = np.append(starts_of(stream[order]), len(order))
    for first, last in itertools.pairwise(bounds.tolist()):
        own = order[first:last]
        answer[own] = counted(by_clock[own])
    return answer


def counted(by_clock: Ints) -> Ints:
    _, counts = np.unique(by_clock, return_counts=True)
    each = int(middle(counts))
    if each < 1 or len(by_clock) < 3 * each:
        return by_clock
    shift, agree = most_even(by_clock, each)
    if agree == len(by_clock):
        return by_clock  # the count and the clock differ by the same everywhere
    option = (np.arange(len(by_clock), dtype=np.int64) + shift) // each
    drift = by_clock - option
    width = 2 * (SMOOTH_STEPS * each // 2) + 1
    found: Ints = option + running_median(np.pad(drift, width // 2, mode="edge"), width)
    return found


def most_even(by_clock: Ints, each: int) -> tuple[int, int]:
    """After how many operations of ``each`` in a step counting begins to agree with the clock.

    The first place of those that agree most evenly, and how many operations then differ from the
    clock by what is usual.
    """
    step, place = np.divmod(np.arange(len(by_clock), dtype=np.int64), each)
    drift = by_clock - step
    low = int(drift.min()) - 1
    values = int(drift.max()) - low + 1
    # How often each drift comes, by the place in the step: to begin later puts one place after the
    # other, from the last on, into the next step.
    by_place = np.bincount(place * values + drift - low, minlength=each * values)
    upto = np.cumsum(by_place.reshape(each, values), axis=0)
    seen = upto[::-1]
    seen[:, :-1] += (upto[-1] - seen)[:, 1:]
    ends = np.cumsum(seen, axis=1)
    less, more = (
        (ends > rank).argmax(axis=1) for rank in ((len(by_clock) - 1) // 2, len(by_clock) // 2)
    )
    agree = np.where(less == more, seen[np.arange(each), less], 0)
    shift = int(agree.argmax())
    return shift, int(agree[shift])


def lost_before(records: Records, operation: Ints, messages: Flags) -> Flags:
    """Rows before which a rank's numbers jump further than usual, or than its peers' do.

    Where sends and receives of a rank share one numbering, each of the two by itself has gaps.
    """
    numbering: Ints | Codes = numberings(records, messages) if messages.any() else records.operation
    _, stream = distinct(records.communicator, numbering)
    _, own = distinct(stream, records.rank)
    order = np.lexsort((records.sequence, own))
    jump = np.zeros(len(own), dtype=np.int64)
    ordered = own[order]
    same = ordered[1:] == ordered[:-1]
    jump[order[1:][same]] = np.diff(records.sequence[order])[same]
    is_first = jump == 0
    known = np.flatnonzero(~is_first)
    lost = np.zeros(len(own), dtype=bool)
    if not len(known):
        return lost
    usual = np.zeros(int(stream.max()) + 1, dtype=np.int64)
    present, dense = np.unique(stream[known], return_inverse=True)
    usual[present] = medians(jump[known], dense.astype(np.int64))
    starts = starts_of(operation)
    least = reduced(np.minimum, np.where(is_first, np.iinfo(np.int64).max, jump), starts)
    lost = (jump > least[operation]) | (jump > LOST_FACTOR * usual[stream])
    found: Flags = lost & ~is_first
    return found


def numberings(records: Records, messages: Flags) -> Ints:
    """The operation that each row is counted with; -1: all messages of its rank together."""
    _, member = distinct(records.communicator, records.rank)
    twice, which = distinct(member, records.sequence, messages.astype(np.int32))
    shares = np.ones(int(member.max(initial=-1)) + 1, dtype=bool)
    shares[member[twice[(np.bincount(which) > 1) & messages[twice]]]] = False
    return np.where(messages & shares[member], -1, records.operation).astype(np.int64)


def outside_of(rows: Rows, shape: tuple[int, int]) -> Floats:
    """Time outside for each rank and step; NaN where records of it are missing."""
    ranks, bins = shape
    inside = (rows.bin >= 0) & (rows.bin < bins)
    cell = rows.rank * bins + np.clip(rows.bin, 0, bins - 1)
    size = ranks * bins
    known = inside & (rows.gap_ns >= 0)
    total = np.bincount(cell[known], rows.gap_ns[known], size)
    count = np.bincount(cell[inside], minlength=size).reshape(shape)
    bad = np.bincount(cell[inside & ((rows.gap_ns < 0) | rows.is_lost)], minlength=size)
    outside = np.where(bad > 0, np.nan, total).reshape(shape)
    usual = median_positive(count)
    outside[count < np.maximum(1, ROWS_SHARE_MIN * usual)[:, None]] = np.nan
    outside[count > ROWS_SHARE_MAX * usual[:, None]] = np.nan
    return outside


def median_positive(count: Ints) -> Floats:
    ordered = np.sort(count, axis=1)
    known = (count > 0).sum(axis=1)
    first = count.shape[1] - known
    low = np.minimum(first + np.maximum(known - 1, 0) // 2, count.shape[1] - 1)
    high = np.minimum(first + known // 2, count.shape[1] - 1)
    both = np.stack([low, high], axis=1)
    found: Floats = np.take_along_axis(ordered, both, axis=1).mean(axis=1)
    return np.where(known > 0, found, 0.0)


def late_of(rows: Rows, shape: tuple[int, int], communicators: Collection[str]) -> Floats:
    """How much later than the median of its peers each rank entered, summed over each step.

    In collectives of these communicators, whose ranks are peers.
    Less what may be due to the collective before it, by how far apart its ranks left it. And no
    more than the upper median of them was inside for longer, each by its own clock: a rank that
    came late was waited for, even if a clock was set in between.
    """
    ranks, bins = shape
    records = rows.records
    among = np.array([name in communicators for name in records.communicators], dtype=bool)
    _, dense = np.unique(rows.operation, return_inverse=True)
    number = dense.astype(np.int64)
    order = np.argsort(number, kind="stable")
    starts = starts_of(number[order])
    leave = records.exit_ns[order]
    apart = (reduced(np.maximum, leave, starts) - reduced(np.minimum, leave, starts))[number]
    before = np.zeros(len(number))
    before[1:] = np.where(rows.rank[1:] == rows.rank[:-1], apart[:-1], 0)
    late = records.entry_ns - medians(records.entry_ns, number)[number]
    inside = records.exit_ns - records.entry_ns
    waited = -medians(-inside, number)[number] - inside
    late = np.maximum(np.minimum(late - SMEAR_SHARE * before, waited), 0)
    met = ~is_pairwise(records) & among[records.communicator]
    met &= (rows.bin >= 0) & (rows.bin < bins)
    cell = rows.rank[met] * bins + rows.bin[met]
    weight = late[met].astype(np.float64)
    return np.bincount(cell, weight, ranks * bins).astype(np.float64).reshape(shape)


def groups_of(job: JobWindow, ranks: Ints) -> dict[str, Ints]:
    """Members of each communicator that does collectives, as places among ``ranks``."""
    place = {int(rank): index for index, rank in enumerate(ranks)}
    records = job.records
    rows = ~is_pairwise(records) & records.timed()
    names = [records.communicators[code] for code in np.unique(records.communicator[rows])]
    found = {}
    for name in names:
        known = job.communicators.get(name)
        members = (
            sorted({place[one] for one in known.job_rank.values() if one in place})
            if known is not None
            else []
        )
        if len(members) > 1:
            found[name] = np.array(members, dtype=np.int64)
    return found


def excess_of(outside: Floats, groups: list[Ints]) -> tuple[Floats, Floats]:
    """How far each rank is above its peers' lower median, by the group where that is most."""
    excess = np.full(outside.shape, np.nan)
    peers = np.full(outside.shape, np.nan)
    for size in sorted({len(group) for group in groups}):
        for members in (group for group in groups if len(group) == size):
            own = outside[members]
            ordered = np.sort(own, axis=0)
            count = (~np.isnan(own)).sum(axis=0)
            middle = np.take_along_axis(ordered, np.maximum(count - 1, 0)[None] // 2, axis=0)[0]
            middle = np.where(count > 1, middle, np.nan)
            beyond = own - middle
            better = np.isnan(excess[members]) | (beyond > excess[members])
            better &= ~np.isnan(beyond)
            excess[members] = np.where(better, beyond, excess[members])
            peers[members] = np.where(better, np.broadcast_to(middle, own.shape), peers[members])
    return excess, peers
