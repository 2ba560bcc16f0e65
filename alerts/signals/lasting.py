"""Rings that were slow for all of a window: no healthy time is there to compare with. Pure.

Behind a slow edge the exits of a ring fall from rank to rank (`alerts.signals.ladder`), by a time
that grows with the bytes of the operation. Exits of a healthy ring differ by 1 to 3 % of the
transfer. So a high ladder needs no past to be found. Wrong clocks could be mistaken for one: a rank
with a wrong clock leaves late in every operation, and a ladder that lasts bends the alignment of
clocks until a part of it is gone. But clocks are wrong by the same time in a long operation and in
a short one beside it. So only the difference between the two is looked at, in pairs that follow
each other: what is the same in both drops out, and what is left must be as high as the difference
between their transfers, in nearly every pair.

A ring of unequal edges has a ladder by nature: of three ranks on one host and one on another, the
one alone is behind two edges of the network. So some edges must cross the network and be as fast as
the others. And a rank that comes late may leave late: but never by more than it came late by, since
no rank of a collective waits longer than the latest one makes it. So exits must be further apart
than entries are.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np

from alerts.signals.edges import HEALTHY_SHARE, is_one_host
from alerts.signals.ladder import (
    RANKS_MIN,
    STEPS_OF,
    Ladder,
    exits_at,
    is_of_late_rank,
    ladders,
    ring_orders,
)
from alerts.signals.transfer import LOW, MANY, Kinds, Stretch, kind_of, stretch_from
from alerts.window.clock_fit import DRIFT_TYPICAL
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow
from collector.contract.records import ABSENT
from collector.contract.units import NS

SECONDS_MIN = 2.0
"""A shorter window may be one stumble of a single connection: these last for half a second."""
STEPS_RATIO_MIN = 2.0
"""Times that a step of the long kind must take of the short kind's."""
FOCUS_MIN, STEP_MIN, STEP_MAX = 0.85, 0.6, 1.5
"""Shares that edges of one NIC must have, and the height of a step against what the transfers
require: as for a ladder that supports unclear times. A ring cannot be held up by more than its
transfer."""
PEERS_MIN = 3
"""So many edges between hosts must be as fast as the others."""
EVEN_SHARE = 0.5
"""Of the median height: nearly every pair (its 20th percentile) must show so much of it."""
APART_MIN = 0.5
"""Of the least height of exits that could be believed: below it a kind is not looked at. The
alignment of clocks takes away up to a third of a ladder that lasts."""
DRIFT_SHARE_MAX = 0.1
"""Of a step, which clocks may drift apart by between the two operations of a pair."""
CANDIDATES_MAX = 64
"""Communicators whose exits are looked at, those furthest apart."""


class Lasting(msgspec.Struct, frozen=True, kw_only=True):
    """A ring that was slow for all of the window."""

    stretch: Stretch
    """All operations of its long kind; nothing is known to be usual, so they stand for that too."""
    ladder: Ladder
    other: Stretch


def lasting(job: JobWindow, kinds: Kinds, wanted: Collection[str]) -> list[Lasting]:
    """Those of the wanted communicators that have a ladder all the time, the highest first."""
    if job.is_estimate or not len(kinds.row):
        return []
    step = step_times(job, kinds)
    count = np.diff(kinds.start)
    usable = np.isfinite(step) & (count >= MANY)
    by_name: dict[str, list[int]] = {}
    for kind in np.flatnonzero(usable).tolist():
        by_name.setdefault(kind_of(job.operations, kinds, kind)[0], []).append(kind)
    apart = np.where(usable, apart_share(job, kinds), 0.0)
    chosen = []
    for name in sorted(set(by_name) & set(wanted)):
        # The long kind by what its steps take; its name and size decide between equals.
        own = sorted(by_name[name], key=lambda kind: (step[kind], kind))
        if apart[own[-1]] >= 1.0 and step[own[-1]] >= STEPS_RATIO_MIN * step[own[0]]:
            chosen.append((own[-1], own[0]))
    chosen.sort(key=lambda pair: (-apart[pair[0]], pair[0]))
    made = [lasting_of(job, kinds, *pair) for pair in chosen[:CANDIDATES_MAX]]
    found = [one for one in made if one is not None]
    return sorted(found, key=lambda one: (-one.ladder.belief, one.stretch.communicator))


def step_times(job: JobWindow, kinds: Kinds) -> Floats:
    """For each kind what a step takes if the ring is never faster than that; NaN where no ring."""
    operations = job.operations
    first = kinds.row[kinds.start[:-1]]
    rounds = np.array([STEPS_OF.get(name, 0) for name in operations.operations], dtype=float)
    ranks = operations.ranks[first].astype(np.float64)
    sized = operations.size_bytes[first] != ABSENT
    steps = rounds[operations.operation[first]] * (ranks - 1.0)
    is_ring: Flags = sized & (steps > 0) & (ranks >= RANKS_MIN)
    times = np.exp(medians_of(kinds, kinds.level))
    found: Floats = np.where(is_ring, times / np.maximum(steps, 1.0), np.nan)
    return found


def apart_share(job: JobWindow, kinds: Kinds) -> Floats:
    """How far exits of each kind are apart; 1 could be believed. Cheap: nearly all end here."""
    operations = job.operations
    spread = (operations.last_exit_ns - operations.first_exit_ns)[kinds.row].astype(np.float64)
    first = kinds.row[kinds.start[:-1]]
    names = operations.operations
    rounds = np.array([max(1, STEPS_OF.get(name, 1)) for name in names], dtype=float)
    height = np.exp(medians_of(kinds, kinds.level)) / rounds[operations.operation[first]]
    found: Floats = medians_of(kinds, spread) / (APART_MIN * STEP_MIN * height)
    return found


def medians_of(kinds: Kinds, values: Floats) -> Floats:
    number = np.repeat(np.arange(len(kinds.start) - 1), np.diff(kinds.start))
    ordered = values[np.lexsort((values, number))]
    middle: Floats = ordered[(kinds.start[:-1] + kinds.start[1:] - 1) // 2]
    return middle


def lasting_of(job: JobWindow, kinds: Kinds, long_kind: int, short_kind: int) -> Lasting | None:
    """A communicator by its long kind and its short one; None where no slow NIC explains it."""
    long, short = whole_kind(job, kinds, long_kind), whole_kind(job, kinds, short_kind)
    if long.last_ns - long.since_ns < SECONDS_MIN * NS:
        return None
    step_ns = step_of(long) - step_of(short)
    pairs = differences(job, long, short, DRIFT_SHARE_MAX * step_ns / (2 * DRIFT_TYPICAL))
    if len(pairs) < MANY:
        return None
    # Whose step is that of the difference, and all else the long kind's.
    steps = STEPS_OF[long.operation] * (long.ranks - 1)
    part = msgspec.structs.replace(long, slow_ns=step_ns * steps)
    orders = ring_orders(job.communicators.get(long.communicator), long.ranks)
    found = [one for order in orders for one in ladders(order, pairs, pairs[:0], part)]
    best = max(found, key=lambda one: one.quality, default=None)
    if best is None or is_of_late_rank(job, long, best):
        return None
    if not is_slow_nic(job, long.communicator, best, pairs):
        return None
    return Lasting(stretch=long, ladder=best, other=short)


def whole_kind(job: JobWindow, kinds: Kinds, kind: int) -> Stretch:
    everywhere = np.arange(int(kinds.start[kind + 1] - kinds.start[kind]))
    return stretch_from(job.operations, kinds, kind, everywhere, usual=everywhere)


def step_of(stretch: Stretch) -> float:
    """What a step takes if the ring is never faster than that, in nanoseconds."""
    return stretch.slow_ns / (STEPS_OF[stretch.operation] * (stretch.ranks - 1))


def differences(job: JobWindow, long: Stretch, short: Stretch, gap_ns: float) -> Floats:
    """[pairs, ranks]: exits of a long operation minus those of the short one before it.

    Each short one is used once, for the first long one after it, whatever that one took; and only
    within a time in which clocks do not drift apart.
    """
    exits, start = exits_at(job, long, long.slow)
    others, moment = exits_at(job, short, short.slow)
    if not len(start) or not len(moment) or long.ranks != short.ranks:
        return np.zeros((0, long.ranks))
    order: Ints = np.argsort(moment, kind="stable")
    before = np.searchsorted(moment[order], start, side="right") - 1
    by_time = np.argsort(start, kind="stable")
    by_time = by_time[before[by_time] >= 0]
    is_first = np.ones(len(by_time), dtype=bool)
    is_first[1:] = np.diff(before[by_time]) != 0
    kept = by_time[is_first]
    nearest = order[before[kept]]
    is_near = start[kept] - moment[nearest] <= gap_ns
    pairs: Floats = exits[kept[is_near]] - others[nearest[is_near]]
    return pairs


def is_slow_nic(job: JobWindow, communicator: str, ladder: Ladder, pairs: Floats) -> bool:
    """Whether one NIC explains a ladder that is beyond doubt and nearly always there."""
    is_high = STEP_MIN <= ladder.step_share <= STEP_MAX
    if not (ladder.is_clear and is_high and ladder.focus >= FOCUS_MIN):
        return False
    height = pairs[:, ladder.last_out] - pairs[:, ladder.first_out]
    height = height[np.isfinite(height)]
    if len(height) < MANY or np.percentile(height, LOW) < EVEN_SHARE * np.median(height):
        return False
    return healthy_peers(job, communicator, ladder) >= PEERS_MIN


def healthy_peers(job: JobWindow, communicator: str, ladder: Ladder) -> int:
    """How many edges are as fast as the others, without those that are known to be in one host."""
    fast = ladder.share < HEALTHY_SHARE
    ends = zip(ladder.source[fast].tolist(), ladder.target[fast].tolist(), strict=True)
    peers = 0
    for source, target in ends:
        sender, receiver = (job.rank_of(communicator, rank) for rank in (source, target))
        is_inside = sender is not None and receiver is not None and is_one_host(sender, receiver)
        peers += not is_inside
    return peers
