"""Which edges of a ring are slow, by the order in which its ranks leave. Pure.

In a ring every rank passes on what it has received. Behind a slow edge the others run dry one after
the other: the rank at its far end leaves last, and going on round the ring each leaves one step
earlier, down to the rank at its near end, which leaves first. So from each rank to the next the
exits fall by the time of one step, T, except over slow edges, where they jump. All jumps round a
ring add up to nothing: what lies above -T is shared among the slow edges, and these shares show how
much each of them holds the ring up. A slow NIC has two slow edges beside each other, the one into
it and the one out of it; a slow direction of a cable has one.

Medians over operations of the difference between neighbours are used: the scatter of single exits
falls out, and so does most of the error of clocks, when the same ranks' differences at other times
are taken off. Both ways are tried, and the one that looks more like a ladder is believed: a ring
may have a slow edge at all times, and clocks may have been bent by a ladder.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.signals.transfer import Stretch
from alerts.window.clocks import operation_index
from alerts.window.columns import Flags, Floats, Ints, Records
from alerts.window.model import Communicator, JobWindow
from alerts.window.statistics import NORMAL
from collector.contract.collective import Operation

RANKS_MIN = 3
"""Two ranks have no order to leave in; see `pair`."""
SLOW_EDGES = 2
"""Edges that may be slow at once in a ladder that is believed: those of one NIC."""
OPERATIONS_MAX = 256
"""Operations that medians are taken of; more make them no better."""
SEEN_SHARE = 0.5
"""A rank that is missing from more of the operations is left out of its ring."""
RINGS_MAX = 8
"""Different orders of one communicator's channels that are tried."""
SIGMAS = 4.0
"""A ladder's whole height in standard errors of its steps, at least."""
ERROR_NS_MIN = 1_000.0
"""Exits are not known better than to a microsecond."""
QUALITY_CLEAR, SIGMAS_CLEAR = 0.7, 12.0
"""Of a ladder beyond doubt: slow NICs of eight ranks had 0.77 to 0.96, and 13 to 240 standard
errors after four operations and more. Exits of healthy runs lacked the one or the other, except
where a single connection stumbled for a moment, which is a ladder, too."""
NIC_SHARE_MIN = 0.15
"""Of each of the two slow edges of a NIC: seen were 0.17 to 0.5 for the lesser one."""
LATE_FACTOR = 1.5
"""How many times further apart than entries exits must be, before they show anything that lateness
does not: behind slow NICs it was 3.3 to 10 times, behind a rank that slept before each operation a
tenth. Once would do if clocks were perfect."""
STEPS_OF: dict[str, int] = {
    Operation.ALL_REDUCE: 2,
    Operation.ALL_GATHER: 1,
    Operation.REDUCE_SCATTER: 1,
}
"""How often a ring's data goes round, by operation: a chunk takes so many times ranks - 1 steps."""


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """What the exits of one communicator's ring show."""

    source: Ints
    """The communicator's rank that each edge leaves."""
    target: Ints
    share: Floats
    """Of the delay, for each edge; 1 over all."""
    quality: float
    """0 to 1: how much it looks like a ladder; 0: the shares are equal, nothing is known."""
    step_ns: float
    """By how much exits fall from one rank to the next."""
    step_share: float
    """Of what one step takes if the slow edge alone makes the operation last as long as it does; 0
    where that is not known. Below 1 where bytes go round in many small pieces."""
    height_ns: float
    """From the first exit to the last one, by medians."""
    usual_ns: float | None = None
    """The same at other times, whichever ranks are first and last then; None: no other time is
    known."""
    height_sigmas: float
    """The height of the whole ladder, in standard errors of a step."""
    first_out: int
    last_out: int
    samples: int

    @property
    def is_clear(self) -> bool:
        return self.quality >= QUALITY_CLEAR and self.height_sigmas >= SIGMAS_CLEAR

    @property
    def focus(self) -> float:
        """The largest share that edges of one rank have together: 1 for one NIC or one edge."""
        return float((self.share + np.roll(self.share, 1)).max())

    @property
    def is_of_nic(self) -> bool:
        """Whether both edges of one rank are slow: a NIC is, a single connection is not."""
        into = np.roll(self.share, 1)
        best = int(np.argmax(self.share + into))
        return min(float(self.share[best]), float(into[best])) >= NIC_SHARE_MIN

    @property
    def belief(self) -> float:
        """0 to 1: how far its shares may be believed; the rest is for all edges alike."""
        return self.quality * min(1.0, self.height_sigmas / SIGMAS_CLEAR)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of how much later each rank leaves than the one before it in the ring."""

    jump_ns: Floats
    error_ns: Floats
    samples: int


def ladder_of(job: JobWindow, stretch: Stretch) -> Ladder | None:
    """The ladder in a slow stretch; None where the communicator's members are not known."""
    communicator = job.communicators.get(stretch.communicator)
    if communicator is not None and communicator.is_one_way:
        return without_order(np.array([0]), np.array([1]))
    orders = ring_orders(communicator, stretch.ranks)
    if not orders:
        return None
    slow = exits_of(job, stretch, stretch.slow)
    usual = exits_of(job, stretch, stretch.usual)
    if stretch.ranks < RANKS_MIN:
        return pair(orders[0], slow, usual, stretch) or without_order(orders[0])
    found = [one for order in orders for one in ladders(order, slow, usual, stretch)]
    best = max(found, key=lambda one: one.quality, default=None)
    return best if best is not None and best.quality > 0 else without_order(orders[0])


def is_of_late_rank(job: JobWindow, stretch: Stretch, ladder: Ladder) -> bool:
    """Whether a rank that comes late may have made it: exits are hardly further apart than entries.

    Coming late by some time delays every exit by as much at most, so it cannot move exits further
    apart than that.
    """
    skew_ns = float(np.median(job.operations.skew_ns[stretch.slow]))
    return ladder.height_ns < LATE_FACTOR * skew_ns


def ring_orders(communicator: Communicator | None, ranks: int) -> list[Ints]:
    """The different orders of its channels; ranks in their order where NCCL's log is missing.

    None where switches may add up: then which ranks are neighbours decides nothing, and what lies
    between them is neither slow nor innocent.
    """
    if communicator is not None and communicator.is_in_network:
        return []
    rings: Sequence[Sequence[int]] = communicator.rings if communicator is not None else ()
    different = list(dict.fromkeys(tuple(ring) for ring in rings))[:RINGS_MAX]
    whole = [ring for ring in different if sorted(ring) == list(range(ranks))]
    if not whole:
        whole = [tuple(range(ranks))] if ranks > 1 else []
    return [np.array(ring, dtype=np.int64) for ring in whole]


def without_order(order: Ints, target: Ints | None = None) -> Ladder:
    """A ring, or other edges, of which nothing is known but its order: all edges alike."""
    return Ladder(
        source=order,
        target=np.roll(order, -1) if target is None else target,
        share=np.full(len(order), 1 / len(order)),
        quality=0.0,
        step_ns=0.0,
        step_share=0.0,
        height_ns=0.0,
        height_sigmas=0.0,
        first_out=-1,
        last_out=-1,
        samples=0,
    )


def exits_of(job: JobWindow, stretch: Stretch, rows: Ints) -> Floats:
    """[operations, ranks] of the latest of these: exits after the first one; NaN: not seen."""
    return exits_at(job, stretch, rows)[0]


def exits_at(job: JobWindow, stretch: Stretch, rows: Ints) -> tuple[Floats, Ints]:
    """The same, and for each operation when the first rank left it."""
    wanted = np.sort(job.operations.sequence[rows])[-OPERATIONS_MAX:]
    records = records_of(job.records, stretch)
    records = records.select(np.isin(records.sequence, wanted) & records.timed())
    records = records.select((records.rank >= 0) & (records.rank < stretch.ranks))
    if not len(records):
        return np.zeros((0, stretch.ranks)), np.zeros(0, dtype=np.int64)
    index = operation_index(records)
    exits = np.full((int(index[-1]) + 1, stretch.ranks), np.nan)
    start = np.full(len(exits), np.iinfo(np.int64).max)
    np.minimum.at(start, index, records.exit_ns)
    exits[index, records.rank] = (records.exit_ns - start[index]).astype(np.float64)
    return exits, start


def records_of(records: Records, stretch: Stretch) -> Records:
    """Those of the stretch's kind; records are sorted by communicator first."""
    is_there = stretch.communicator in records.communicators
    if not is_there or stretch.operation not in records.operations:
        nothing: Records = records.select(slice(0, 0))
        return nothing
    code = records.communicators.index(stretch.communicator)
    first, last = np.searchsorted(records.communicator, [code, code + 1])
    own: Records = records.select(slice(int(first), int(last)))
    operation = records.operations.index(stretch.operation)
    chosen = (own.operation == operation) & (own.size_bytes == stretch.size_bytes)
    kind: Records = own.select(chosen)
    return kind


def ladders(order: Ints, slow: Floats, usual: Floats, stretch: Stretch) -> list[Ladder]:
    """As the exits are, and against what is usual of the same ranks."""
    if not len(slow):
        return []
    seen: Flags = np.isfinite(slow).mean(axis=0) >= SEEN_SHARE
    ring = order[seen[order]]
    if len(ring) < RANKS_MIN:
        return []
    span = spans(order, ring)
    now = steps_between(slow, ring)
    found = [fit(ring, span, now, stretch)]
    before: Steps | None = None
    if len(usual) and np.isfinite(usual[:, ring]).any(axis=0).all():
        before = steps_between(usual, ring)
        change = Steps(
            jump_ns=now.jump_ns - before.jump_ns,
            error_ns=np.hypot(now.error_ns, before.error_ns),
            samples=now.samples,
        )
        found.append(fit(ring, span, change, stretch))
    known = [measured(one, now, before) for one in found if one is not None]
    return [spread_out(one, order, ring) for one in known]


def pair(order: Ints, slow: Floats, usual: Floats, stretch: Stretch) -> Ladder | None:
    """Which of the two directions between two ranks is slow; None where exits do not show it.

    What a rank receives last came over the edge into it. With one slow edge the rank behind it
    leaves one step later than the other, less what a step usually takes; where both are slow, both
    leave together.
    """
    rounds = STEPS_OF.get(stretch.operation, 0)
    if not rounds or stretch.slow_ns <= 0 or not np.isfinite(slow).any(axis=0).all():
        return None
    now = steps_between(slow, order)
    change, error = float(now.jump_ns[0]), float(now.error_ns[0])
    if len(usual) and np.isfinite(usual).any(axis=0).all():
        before = steps_between(usual, order)
        change -= float(before.jump_ns[0])
        error = float(np.hypot(error, before.error_ns[0]))
    error = max(error, ERROR_NS_MIN)
    if abs(change) < SIGMAS * error:
        return None
    step_ns = stretch.slow_ns / rounds
    # Over the other edge a step takes as long as ever.
    lean = float(np.clip(change / (step_ns * (1.0 - 1.0 / max(stretch.ratio, 1.1))), -1.0, 1.0))
    first, last = (0, 1) if change > 0 else (1, 0)
    return msgspec.structs.replace(
        without_order(order),
        share=np.array([0.5 + lean / 2, 0.5 - lean / 2]),
        quality=abs(lean),
        step_ns=step_ns,
        step_share=abs(lean),
        height_ns=abs(float(now.jump_ns[0])),
        height_sigmas=abs(change) / error,
        first_out=int(order[first]),
        last_out=int(order[last]),
        samples=now.samples,
    )


def measured(ladder: Ladder, now: Steps, before: Steps | None) -> Ladder:
    """With its height as it is now and how far exits are apart at other times."""
    exits = exits_by(now)
    first, last = (
        int(np.flatnonzero(ladder.source == rank)[0])
        for rank in (ladder.first_out, ladder.last_out)
    )
    return msgspec.structs.replace(
        ladder,
        height_ns=float(exits[last] - exits[first]),
        usual_ns=float(np.ptp(exits_by(before))) if before is not None else None,
    )


def exits_by(steps: Steps) -> Floats:
    exits: Floats = np.concatenate([[0.0], np.cumsum(steps.jump_ns)[:-1]])
    return exits


def spans(order: Ints, ring: Ints) -> Ints:
    """How many edges of the whole ring lie between each rank of a part of it and the next."""
    place = np.flatnonzero(np.isin(order, ring))
    gaps: Ints = np.diff(np.append(place, place[0] + len(order)))
    return gaps


def steps_between(exits: Floats, ring: Ints) -> Steps:
    """Medians over the operations in which both neighbours were seen."""
    difference = np.roll(exits[:, ring], -1, axis=1) - exits[:, ring]
    seen = np.isfinite(difference).sum(axis=0)
    filled = np.where(seen > 0, difference, 0.0)
    median = np.nanmedian(filled, axis=0)
    scatter = NORMAL * np.nanmedian(np.abs(filled - median), axis=0)
    return Steps(
        jump_ns=median, error_ns=1.25 * scatter / np.sqrt(np.maximum(seen, 1)), samples=len(exits)
    )


def fit(ring: Ints, span: Ints, steps: Steps, stretch: Stretch) -> Ladder | None:
    falls = -np.sort(steps.jump_ns / span)[: max(1, len(ring) - SLOW_EDGES)]
    rounds = STEPS_OF.get(stretch.operation, 0)
    expected = stretch.slow_ns / (rounds * (stretch.ranks - 1)) if rounds else 0.0
    best: Ladder | None = None
    for step in (float(np.median(falls)), expected):
        found = fit_step(ring, span, steps, step)
        if found is not None and (best is None or found.quality > best.quality):
            share = step / expected if expected > 0 else 0.0
            best = msgspec.structs.replace(found, step_share=share)
    return best


def fit_step(ring: Ints, span: Ints, steps: Steps, step_ns: float) -> Ladder | None:
    count = int(span.sum())
    error = max(float(np.median(steps.error_ns)), ERROR_NS_MIN)
    if step_ns <= 0 or len(ring) * step_ns < SIGMAS * error:
        return None
    above = (steps.jump_ns + span * step_ns) / (count * step_ns)
    largest = np.argsort(-above, kind="stable")[:SLOW_EDGES]
    rest = np.ones(len(ring), dtype=bool)
    rest[largest] = False
    wrong = float(np.abs(above[rest]).sum()) + float(np.abs(np.minimum(above[largest], 0.0)).sum())
    share = np.maximum(above, 0.0)
    exits = exits_by(steps)
    return Ladder(
        source=ring,
        target=np.roll(ring, -1),
        share=share / share.sum(),
        quality=max(0.0, 1.0 - wrong / (1.0 - SLOW_EDGES / len(ring))),
        height_sigmas=len(ring) * step_ns / error,
        step_ns=step_ns,
        step_share=0.0,
        height_ns=float(exits.max() - exits.min()),
        first_out=int(ring[np.argmin(exits)]),
        last_out=int(ring[np.argmax(exits)]),
        samples=steps.samples,
    )


def spread_out(ladder: Ladder, order: Ints, ring: Ints) -> Ladder:
    """For all edges of the whole ring: around a rank that was not seen, they share alike.

    Which of them is slow is then not known: to a slow edge beside a rank that was not seen, that
    rank seems to have two, as a slow NIC has. So a ladder is believed only as far as its delay lies
    between ranks that were seen.
    """
    if len(order) == len(ring):
        return ladder
    place = np.flatnonzero(np.isin(order, ring))
    gaps = spans(order, ring)
    rolled = np.roll(order, -int(place[0]))
    share = np.repeat(ladder.share / gaps, gaps)
    return msgspec.structs.replace(
        ladder,
        source=rolled,
        target=np.roll(rolled, -1),
        share=share,
        quality=ladder.quality * float(ladder.share[gaps == 1].sum()),
    )
