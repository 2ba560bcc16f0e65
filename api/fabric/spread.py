"""How the traffic of many pairs of ports spreads over links, if every switch shares out evenly.

For each pair: the links that any of its equal-cost ways uses, and the share of the pair's traffic
that each carries when all links of a choice are equally likely (ECMP without bad luck). That is
what voting over paths needs; the ways themselves are too many to list. Pure, in columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.fabric.graph import FAR, Bundles, Distances, Graph, Ints, measure
from collector.contract.errors import FabricscopeError
from collector.contract.identity import PortId

SPREAD_LINKS_MAX = 60_000_000
"""Links of all pairs together, about half a gigabyte: a three-tier pair has up to 2,000."""

CHUNK_CELLS = 1 << 20
"""Pairs times switches that are in work at once: 8 MiB, about what a processor keeps near."""

Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]


class SpreadTooLarge(FabricscopeError):  # noqa: N818 - named like the errors of other bounds
    """The pairs use more links than are kept at once: request fewer at a time."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Links of each pair: those of pair ``i`` stand from ``start[i]`` to ``start[i + 1]``."""

    start: Longs
    link: Ints
    """Places in ``Graph.links``."""
    share: Floats
    """Of the pair's traffic, from 0 to 1."""


def edge_paths(graph: Graph, pairs: Sequence[tuple[PortId, PortId]]) -> Spread:
    """The links of each pair of hosts' ports, in no order. A pair without a way has none."""
    none = (-1, -1)
    source = np.array([graph.attached.get(one, none) for one, _ in pairs], dtype=np.int32)
    target = np.array([graph.attached.get(other, none) for _, other in pairs], dtype=np.int32)
    (begin, up), (end, down) = source.reshape(-1, 2).T, target.reshape(-1, 2).T
    pair = np.flatnonzero((begin >= 0) & (end >= 0) & (up != down))
    # Goals first: pairs with one goal stand together, so that a chunk measures to few goals.
    switches = max(1, len(graph.switches))
    key, row = np.unique(end[pair].astype(np.int64) * switches + begin[pair], return_inverse=True)
    rows, is_reached = spread_between(graph, key % switches, key // switches)
    reached = is_reached[row]
    return attach(rows, row[reached], (len(pairs), pair[reached]), up, down)


def attach(rows: Spread, row: Longs, pairs: tuple[int, Longs], up: Ints, down: Ints) -> Spread:
    """Each pair's links between switches (a row of ``rows``), and its ports' two links around."""
    number, pair = pairs
    inner = rows.start[row + 1] - rows.start[row]
    length = np.zeros(number, dtype=np.int64)
    length[pair] = inner + 2
    start = starts(length)
    check_size(int(start[-1]), number)
    link = np.empty(start[-1], dtype=np.int32)
    share = np.ones(start[-1], dtype=np.float32)
    link[start[pair]] = up[pair]
    link[start[pair + 1] - 1] = down[pair]
    for place, begin, size in zip(
        start[pair].tolist(), rows.start[row].tolist(), inner.tolist(), strict=True
    ):
        link[place + 1 : place + 1 + size] = rows.link[begin : begin + size]
        share[place + 1 : place + 1 + size] = rows.share[begin : begin + size]
    return Spread(start=start, link=link, share=share)


def check_size(links: int, pairs: int) -> None:
    """Raise SpreadTooLarge past SPREAD_LINKS_MAX."""
    if links > SPREAD_LINKS_MAX:
        raise SpreadTooLarge(
            f"{pairs} pairs use over SPREAD_LINKS_MAX = {SPREAD_LINKS_MAX} links;"
            " ask for fewer pairs at a time"
        )


def starts(length: Longs) -> Longs:
    """Where runs of these lengths begin, and where the last one ends."""
    found = np.zeros(len(length) + 1, dtype=np.int64)
    np.cumsum(length, out=found[1:])
    return found


def runs(first: Longs, length: Longs) -> Longs:
    """All numbers of runs that begin at ``first``, one run behind the other.

    >>> runs(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    start = starts(length)
    return np.arange(start[-1]) + np.repeat(first - start[:-1], length)


def summed(place: Longs, amount: Longs | Doubles, places: int) -> Doubles:
    total: Doubles = np.bincount(place, amount.astype(np.float64), places)  # type: ignore[assignment]
    return total


def spread_between(graph: Graph, source: Longs, target: Longs) -> tuple[Spread, Bools]:
    """The links between each two switches, and whether there is a way. Targets must ascend."""
    chunk = max(1, CHUNK_CELLS // max(1, len(graph.switches)))
    pieces: list[Spread] = []
    reached: list[Bools] = []
    total = 0
    for first in range(0, len(source), chunk):
        some = slice(first, first + chunk)
        goals, goal = np.unique(target[some], return_inverse=True)
        flow = Flow(graph, measure(graph, goals.astype(np.int32)), source[some], goal)
        pieces.append(flow.run())
        reached.append(flow.is_reached)
        total += len(pieces[-1].link)
        check_size(total, len(source))
    if not pieces:
        return Spread(starts(source), np.zeros(0, np.int32), np.zeros(0, np.float32)), source > 0
    length = np.concatenate([np.diff(piece.start) for piece in pieces])
    return Spread(
        start=starts(length),
        link=np.concatenate([piece.link for piece in pieces]),
        share=np.concatenate([piece.share for piece in pieces]),
    ), np.concatenate(reached)


@dataclass(frozen=True, eq=False)
class Taken:
    """Bundles that pairs take, in the order of pairs."""

    pair: Longs
    first: Longs
    """Where the bundle's links begin in ``Graph.bundled``."""
    count: Longs
    share: NDArray[np.float64]
    """Of each of its links."""


class Flow:
    """The traffic of some pairs of switches on its way, all pairs a step at a time.

    A state is a pair at a switch, as ``pair * switches + switch``, with the share of the pair's
    traffic that gets there; those that may still rise are kept apart from those that may not.
    """

    def __init__(self, graph: Graph, distances: Distances, source: Longs, goal: Longs) -> None:
        self._graph = graph
        self._distances = distances
        self._goal = goal
        self._switches = len(graph.switches)
        self._source = source
        self._pairs = len(source)
        self.is_reached: Bools = distances.rising[goal, source] < FAR
        self._taken: list[Taken] = []
        self._prepare_falling()

    def _prepare_falling(self) -> None:
        """For each goal and switch, the bundles down that bring one nearer."""
        falling, steps = self._graph.falling, self._distances.falling
        nearer = steps[:, falling.source] == steps[:, falling.target] + 1
        nearer &= steps[:, falling.source] < FAR
        goal, bundle = np.nonzero(nearer)
        cells = len(steps) * self._switches
        here = goal * self._switches + falling.source[bundle]
        self._down_count = np.bincount(here, minlength=cells)
        self._down_start = starts(self._down_count)
        self._down_bundle = bundle

    def run(self) -> Spread:
        """Send all pairs' traffic to its goals; returns the links that it took."""
        pair = np.flatnonzero(self.is_reached)
        rising = pair * self._switches + self._source[pair]
        rising_share = np.ones(len(rising))
        falling, falling_share = rising[:0], rising_share[:0]
        while len(rising) or len(falling):
            up = self._rise(rising)
            down = self._fall(rising)
            total = self._sum(up, len(rising)) + self._sum(down, len(rising))
            # Traffic that has arrived takes no further bundle.
            part = rising_share / np.maximum(total, 1)
            higher = self._take(self._graph.rising, rising, part, up)
            turned = self._take(self._graph.falling, rising, part, down)
            on = self._fall(falling)
            part = falling_share / np.maximum(self._sum(on, len(falling)), 1)
            lower = self._take(self._graph.falling, falling, part, on)
            rising, rising_share = self._merge([higher])
            falling, falling_share = self._merge([turned, lower])
        return self._links()

    def _rise(self, states: Longs) -> tuple[Longs, Longs, Longs]:
        """Bundles up that bring these states nearer: number of the state, bundle, its links."""
        rising, steps = self._graph.rising, self._distances.rising
        pair, switch = np.divmod(states, self._switches)
        length = (rising.start[switch + 1] - rising.start[switch]).astype(np.int64)
        bundle = runs(rising.start[switch].astype(np.int64), length)
        state = np.repeat(np.arange(len(states)), length)
        goal = self._goal[pair]
        left = steps[goal, switch] - 1
        nearer = steps[np.repeat(goal, length), rising.target[bundle]] == np.repeat(left, length)
        state, bundle = state[nearer], bundle[nearer]
        return state, bundle, rising.count[bundle].astype(np.int64)

    def _fall(self, states: Longs) -> tuple[Longs, Longs, Longs]:
        """The same for bundles down; of a state that may rise, only if down is no longer."""
        falling, distances = self._graph.falling, self._distances
        pair, switch = np.divmod(states, self._switches)
        goal = self._goal[pair]
        cell = goal * self._switches + switch
        is_short = distances.falling[goal, switch] <= distances.rising[goal, switch]
        length = np.where(is_short, self._down_count[cell], 0)
        bundle = self._down_bundle[runs(self._down_start[cell], length)]
        state = np.repeat(np.arange(len(states)), length)
        return state, bundle, falling.count[bundle].astype(np.int64)

    @staticmethod
    def _sum(onward: tuple[Longs, Longs, Longs], states: int) -> NDArray[np.float64]:
        """How many links each state may take."""
        state, _, count = onward
        return summed(state, count, states)

    def _take(
        self,
        bundles: Bundles,
        states: Longs,
        part: NDArray[np.float64],
        onward: tuple[Longs, Longs, Longs],
    ) -> tuple[Longs, NDArray[np.float64]]:
        """Send the states over these bundles, ``part`` on each link: where that leads to."""
        state, bundle, count = onward
        pair = states[state] // self._switches
        share = part[state]
        taken = Taken(pair, bundles.first[bundle].astype(np.int64), count, share)
        self._taken.append(taken)
        return pair * self._switches + bundles.target[bundle], share * count

    def _merge(
        self, arrivals: list[tuple[Longs, NDArray[np.float64]]]
    ) -> tuple[Longs, NDArray[np.float64]]:
        """The states in order, each once, with all that arrived there."""
        states = np.concatenate([state for state, _ in arrivals])
        shares = np.concatenate([share for _, share in arrivals])
        if len(states) <= 1 or bool((states[1:] > states[:-1]).all()):
            return states, shares  # as on the way up a tree, where no paths meet
        total = summed(states, shares, self._pairs * self._switches)
        found = np.flatnonzero(total != 0)  # on booleans it is ten times as fast
        return found, total[found]

    def _links(self) -> Spread:
        length = np.zeros(self._pairs, dtype=np.int64)
        for taken in self._taken:
            length += summed(taken.pair, taken.count, self._pairs).astype(np.int64)
        start = starts(length)
        link = np.empty(start[-1], dtype=np.int32)
        share = np.empty(start[-1], dtype=np.float32)
        filled = start[:-1].copy()
        for taken in self._taken:
            before = starts(taken.count)[:-1]
            first = np.flatnonzero(np.diff(taken.pair, prepend=-1))
            size = np.diff(first, append=len(taken.pair))
            place = before + np.repeat(filled[taken.pair[first]] - before[first], size)
            to = runs(place, taken.count)
            link[to] = self._graph.bundled[runs(taken.first, taken.count)]
            share[to] = np.repeat(taken.share, taken.count)
            filled += summed(taken.pair, taken.count, self._pairs).astype(np.int64)
        return Spread(start=start, link=link, share=share)
