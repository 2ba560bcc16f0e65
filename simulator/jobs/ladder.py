"""When each rank leaves a collective: the steps of rings and trees, one after the other.

The network gives each flow's possible speed and each unit's end. The exits follow from how the
algorithm waits: in a ring a rank can pass on a chunk when it has received it and has sent the one
before. Behind a slow edge the others run dry one after the other, so their exits form a ladder
around the ring: the rank before the slow edge leaves first, the one after it last.

Sends are buffered: a rank leaves when it has received its last chunk, and hands over its own last
one in no time. Assumes buffers deep enough for that.
"""

from __future__ import annotations

import numpy as np

from simulator.jobs.patterns import (
    NETWORK_STEP_SECONDS,
    NVLINK_BYTES_PER_SECOND,
    NVLINK_STEP_SECONDS,
    Collective,
    local_step_seconds,
    ring_edge_share,
)
from simulator.jobs.rings import TREES
from simulator.pattern import Algorithm
from simulator.topology.model import Floats, Ints

BITS = 8
BPS_MIN = 1.0
"""A flow that could not move at all is taken to be this fast, so that nothing divides by zero."""
STEADY_CHECK_STEPS = 32
"""How often to check whether a ring has settled: seldom enough to cost nothing."""
STEADY_SECONDS = 1e-12
"""Edges whose steps differ by less are equally fast; over a thousand steps it is a nanosecond."""
TREE_CHUNKS = 16
"""Pieces that a tree's message is cut into, so that it goes up and comes down at the same time."""


def exits(
    collective: Collective,
    entry_s: Floats,
    end_s: Floats,
    flow_bps: Floats,
    member_share: Floats | None = None,
) -> Floats:
    """[units, members]: when each rank leaves. ``entry_s`` is finite, ``flow_bps`` a mean.

    ``member_share``: of NVLink's speed, what is left of each member's; None: all of it.
    """
    algorithm = collective.pattern.algorithm
    share = np.ones(entry_s.shape) if member_share is None else member_share
    if algorithm is Algorithm.RING:
        steps = ring_step_seconds(collective, flow_bps, share)
        raw = ring_exits(entry_s, steps, collective.steps)
    elif algorithm.is_tree:
        raw = _tree_exits(collective, entry_s, flow_bps, share)
    elif algorithm.is_in_network:
        raw = _together(entry_s)
    else:
        raw = _direct_exits(collective, entry_s, flow_bps, share)
    return _stretched(raw, entry_s.max(axis=1), raw.max(axis=1), end_s)


def _stretched(time_s: Floats, start_s: Floats, last_s: Floats, end_s: Floats) -> Floats:
    """Times since a unit's start, stretched to its end: only the shape is computed here."""
    shape = (-1,) + (1,) * (time_s.ndim - 1)
    start = start_s.reshape(shape)
    span = np.maximum(last_s - start_s, 1e-12)
    factor = (np.maximum(end_s - start_s, 0.0) / span).reshape(shape)
    after = time_s - start
    stretched: Floats = start + np.where(after > 0, after * factor, after)
    return stretched


# Rings -------------------------------------------------------------------------------------------


def ring_step_seconds(
    collective: Collective, flow_bps: Floats, member_share: Floats | None = None
) -> Floats:
    """[units, members]: seconds of a step to the next member, by the edge's slowest channel."""
    pattern = collective.pattern
    edge_share = 1.0 if member_share is None else ring_edge_share(member_share)
    seconds = local_step_seconds(collective.is_local, collective.chunk_bytes, edge_share)
    if len(flow_bps):
        moving = np.zeros(seconds.shape)
        step_bits = pattern.flow_bytes * (BITS / collective.steps)
        edge = (pattern.flow_unit, pattern.flow_member)
        np.maximum.at(moving, edge, step_bits / np.maximum(flow_bps, BPS_MIN))
        seconds = seconds + moving
    return seconds


def ring_exits(entry_s: Floats, step_seconds: Floats, steps: int) -> Floats:
    """[units, members]: when each rank has received its last chunk.

    Edge ``r`` (from member ``r`` to the next) ends step ``s`` at ``max(end of step s - 1 on edge
    r - 1, on edge r) + step_seconds[r]``; its first step begins when both ends have entered.
    """
    # A column in front repeats the last one, so that the edge before is always one to the left
    # and no step has to roll anything.
    units, size = entry_s.shape
    start = entry_s.max(axis=1, keepdims=True)
    both = np.maximum(entry_s, np.roll(entry_s, -1, axis=1)) - start
    ends = np.empty((units, size + 1))
    ends[:, 1:] = both + step_seconds
    ends[:, 0] = ends[:, -1]
    before = np.empty_like(ends)
    for step in range(1, steps):
        before, ends = ends, before
        following = ends[:, 1:]
        np.maximum(before[:, :-1], before[:, 1:], out=following)
        following += step_seconds
        ends[:, 0] = ends[:, -1]
        if step % STEADY_CHECK_STEPS == 0:
            # The recurrence only compares and adds: once every edge of a unit moved on by the same
            # time, it does so for ever.
            moved = ends - before
            pace = moved.max(axis=1, keepdims=True)
            if (pace - moved).max() < STEADY_SECONDS:
                ends += pace * (steps - 1 - step)
                break
    # The last chunk of member r arrives over the edge before it.
    left: Floats = start + ends[:, :-1]
    return left


def ring_sends(
    collective: Collective, entry_s: Floats, end_s: Floats, flow_bps: Floats
) -> tuple[Floats, Floats]:
    """[steps, units, members] twice: when each member begins and ends each of its sends.

    On the slow edge one send follows the other without a gap; everywhere else a short one is
    followed by a wait. On the same scale as `exits`.
    """
    seconds = ring_step_seconds(collective, flow_bps)
    shape = (collective.steps, *entry_s.shape)
    starts, ends = np.empty(shape), np.empty(shape)
    starts[0] = np.maximum(entry_s, np.roll(entry_s, -1, axis=1))
    ends[0] = starts[0] + seconds
    for step in range(1, collective.steps):
        starts[step] = np.maximum(np.roll(ends[step - 1], 1, axis=1), ends[step - 1])
        ends[step] = starts[step] + seconds
    start, last = entry_s.max(axis=1), ends[-1].max(axis=1)
    by_unit = (1, 0, 2)
    begun, done = (
        _stretched(times.transpose(by_unit), start, last, end_s).transpose(by_unit)
        for times in (starts, ends)
    )
    return begun, done


# Trees -------------------------------------------------------------------------------------------


def _tree_exits(
    collective: Collective, entry_s: Floats, flow_bps: Floats, member_share: Floats
) -> Floats:
    """Reduced towards the roots and handed down again, in pieces that follow each other."""
    assert collective.parents is not None
    assert collective.depths is not None
    left = np.zeros_like(entry_s)
    for tree in range(TREES):
        parents = collective.parents[:, tree]
        up, down = _tree_edge_seconds(collective, parents, flow_bps, member_share)
        left = np.maximum(
            left, _tree_pass(parents, collective.depths[:, tree], entry_s, (up, down))
        )
    return left


def _tree_edge_seconds(
    collective: Collective, parents: Ints, flow_bps: Floats, member_share: Floats
) -> tuple[Floats, Floats]:
    """[units, members] twice: seconds of a tree's half of the message to and from the parent.

    On the slowest channel, and without latency.
    """
    pattern = collective.pattern
    half = pattern.size_bytes / TREES
    above = np.take_along_axis(member_share, np.maximum(parents, 0), axis=1)
    local = half / (NVLINK_BYTES_PER_SECOND * np.minimum(member_share, above))
    up, down = local.copy(), local.copy()
    seconds = pattern.flow_bytes * BITS / np.maximum(flow_bps, BPS_MIN)
    unit, member, peer = pattern.flow_unit, pattern.flow_member, pattern.flow_peer
    is_up = parents[unit, member] == peer
    np.maximum.at(up, (unit[is_up], member[is_up]), seconds[is_up])
    is_down = parents[unit, peer] == member
    np.maximum.at(down, (unit[is_down], peer[is_down]), seconds[is_down])
    return up, down


def _tree_pass(parents: Ints, depth: Ints, entry_s: Floats, edges: tuple[Floats, Floats]) -> Floats:
    """[units, members]: when the last piece of one tree's half has come down to each member.

    Two times travel along the edges: that of the first piece and that of the last. The last piece
    is one piece behind on its way, or the edge is the bottleneck and all pieces queue there.
    """
    up, down = edges
    first, last = entry_s.copy(), entry_s.copy()
    latency = NETWORK_STEP_SECONDS
    levels = [np.nonzero(depth == level) for level in range(1, int(depth.max()) + 1)]
    for unit, child in reversed(levels):
        parent = (unit, parents[unit, child])
        hop = latency + up[unit, child] / TREE_CHUNKS
        whole = first[unit, child] + latency + up[unit, child]
        np.maximum.at(first, parent, first[unit, child] + hop)
        np.maximum.at(last, parent, np.maximum(last[unit, child] + hop, whole))
    last = np.maximum(last, first)
    for unit, child in levels:
        parent = (unit, parents[unit, child])
        hop = latency + down[unit, child] / TREE_CHUNKS
        whole = first[parent] + latency + down[unit, child]
        # The time down replaces the time up: it is later in any case.
        last[unit, child] = np.maximum(last[parent] + hop, whole)
        first[unit, child] = first[parent] + hop
    return last


def _together(entry_s: Floats) -> Floats:
    """What switches have added up comes to all ranks at once: none leaves before another."""
    last = entry_s.max(axis=1, keepdims=True)
    left: Floats = np.repeat(last + NETWORK_STEP_SECONDS, entry_s.shape[1], axis=1)
    return left


# Direct ------------------------------------------------------------------------------------------


def _direct_exits(
    collective: Collective, entry_s: Floats, flow_bps: Floats, member_share: Floats
) -> Floats:
    """A rank leaves when all that it sends and all that it receives has arrived."""
    pattern = collective.pattern
    seconds = np.full(entry_s.shape, NVLINK_STEP_SECONDS)
    speed = NVLINK_BYTES_PER_SECOND * member_share
    seconds += np.where(collective.is_local, collective.chunk_bytes / speed, 0.0)
    if len(flow_bps):
        moving = pattern.flow_bytes * BITS / np.maximum(flow_bps, BPS_MIN) + NETWORK_STEP_SECONDS
        np.maximum.at(seconds, (pattern.flow_unit, pattern.flow_member), moving)
        np.maximum.at(seconds, (pattern.flow_unit, pattern.flow_peer), moving)
    left: Floats = entry_s.max(axis=1, keepdims=True) + seconds
    return left
