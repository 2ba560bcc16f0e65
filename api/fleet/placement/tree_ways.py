"""Ways between many pairs of leaves of a tree, found by climbing from both ends. Pure, in columns.

They are what `api.fabric.spread` finds, ten times as fast: it measures from every switch to each
goal, and here only those above a pair are visited. It needs a tree in which every link leads one
tier up and leaves of one tier; for others the caller uses `spread_between`.

A state is a pair at a switch, as ``pair * switches + switch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.fabric.graph import Bundles, Graph
from api.fabric.spread import Bools, Doubles, Longs, runs, starts
from api.fleet.placement.floor import Floor


@dataclass(frozen=True, eq=False)
class Rung:
    """Bundles between one tier and the next, taken by pairs."""

    low: Longs
    """States below, and ``high`` above each bundle."""
    bundle: Longs
    high: Longs

    def where(self, chosen: Bools) -> Rung:
        return Rung(self.low[chosen], self.bundle[chosen], self.high[chosen])


@dataclass(frozen=True, eq=False)
class Rows:
    """Directed links and shares of pairs: those of pair ``i`` stand from ``start[i]`` on."""

    way: Longs
    share: Doubles
    start: Longs
    is_found: Bools
    """[pair] the others must be looked for elsewhere, or have no way."""


def is_even(graph: Graph) -> bool:
    """Whether every link leads one tier up: then both ends of a pair climb as high."""
    steps = graph.tier[graph.rising.target] - graph.tier[graph.rising.source]
    return not graph.is_flat and bool((steps == 1).all())


def tree_ways(floor: Floor, source: Longs, goal: Longs) -> Rows:
    graph = floor.graph
    switches = max(1, len(graph.switches))
    pair = np.flatnonzero(graph.tier[source] == graph.tier[goal])
    near, far = pair * switches + source[pair], pair * switches + goal[pair]
    rungs: tuple[list[Rung], list[Rung]] = ([], [])
    taken: list[tuple[Longs, Longs, Doubles]] = []
    for _ in graph.levels[1:]:
        rungs[0].append(climb(graph.rising, near, switches))
        rungs[1].append(climb(graph.rising, far, switches))
        near, far = np.unique(rungs[0][-1].high), np.unique(rungs[1][-1].high)
        tops = np.intersect1d(near, far, assume_unique=True)
        if len(tops):
            taken += flow(floor, prune(rungs[0], tops), prune(rungs[1], tops), switches)
            # A pair that has met climbs no higher: ways over more links are longer.
            met = np.unique(tops // switches)
            near, far = (each[~np.isin(each // switches, met)] for each in (near, far))
    return arranged(taken, len(source))


def climb(rising: Bundles, states: Longs, switches: int) -> Rung:
    pair, switch = np.divmod(states, switches)
    first = rising.start[switch].astype(np.int64)
    count = rising.start[switch + 1].astype(np.int64) - first
    bundle = runs(first, count)
    high = np.repeat(pair, count) * switches + rising.target[bundle].astype(np.int64)
    return Rung(np.repeat(states, count), bundle, high)


def prune(rungs: Sequence[Rung], tops: Longs) -> list[Rung]:
    """Of these rungs, from the lowest, the bundles that lead to a top."""
    found: list[Rung] = []
    above = tops
    for rung in reversed(rungs):
        found.append(rung.where(np.isin(rung.high, above)))
        above = np.unique(found[-1].low)
    return found[::-1]


def flow(
    floor: Floor, ups: Sequence[Rung], downs: Sequence[Rung], switches: int
) -> list[tuple[Longs, Longs, Doubles]]:
    """Pairs, directed links and shares, if every switch shares out evenly over its links."""
    state = np.unique(ups[0].low)
    share: Doubles = np.ones(len(state))
    taken: list[tuple[Longs, Longs, Doubles]] = []
    steps = [(rung, rung.low, rung.high, 0) for rung in ups]
    steps += [(rung, rung.high, rung.low, 1) for rung in reversed(downs)]
    for rung, here, there, is_down in steps:
        links = floor.graph.rising.count[rung.bundle].astype(np.int64)
        place = np.searchsorted(state, here)
        total = np.bincount(place, links, len(state))
        each = share[place] / total[place]
        way = upward(floor, rung, links, switches) ^ is_down
        taken.append((np.repeat(here // switches, links), way, np.repeat(each, links)))
        state, place = np.unique(there, return_inverse=True)
        share = np.bincount(place, each * links, len(state)).astype(np.float64)
    return taken


def upward(floor: Floor, rung: Rung, links: Longs, switches: int) -> Longs:
    graph = floor.graph
    link = graph.bundled[runs(graph.rising.first[rung.bundle].astype(np.int64), links)]
    below = np.repeat(rung.low % switches, links)
    directed: Longs = 2 * link.astype(np.int64) + (floor.ends[link, 0] != below)
    return directed


def arranged(taken: Sequence[tuple[Longs, Longs, Doubles]], pairs: int) -> Rows:
    """Sorted by pair."""
    nothing = np.zeros(0, dtype=np.int64)
    pair = np.concatenate([nothing, *(each[0] for each in taken)])
    order = np.argsort(pair, kind="stable")
    length = np.bincount(pair, minlength=pairs)
    return Rows(
        way=np.concatenate([nothing, *(each[1] for each in taken)])[order],
        share=np.concatenate([np.zeros(0), *(each[2] for each in taken)])[order],
        start=starts(length),
        is_found=length > 0,
    )
