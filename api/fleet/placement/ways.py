"""The flows of a ring of hosts over the fabric, and what each gets of the links it takes. Pure.

Assumptions. A job is a ring: every NIC sends to the NIC of the same slot of the next host, all
the time, as much as both carry. Switches share out evenly among equal ways (`api.fabric.spread`),
so no flow suffers from its hash; links are shared in proportion to what each flow could send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from api.fabric.graph import Ints, measure
from api.fabric.spread import Bools, Doubles, Longs, runs, spread_between, starts
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.tree_ways import Rows, is_even, tree_ways

WAYS_CACHED_MAX = 4_000_000
"""Links of ways between leaves that are remembered, about 64 MB. Past it the cache is cleared."""

WARMED_MAX = 1_000
"""Ways that are found for a new floor because they were asked for on the one before, the latest:
a second's work at most, behind answers."""

Way = tuple[Longs, Doubles]
"""Directed links between two leaves, and the share of the traffic that each carries."""


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows of a ring: those of flow ``i`` stand from ``start[i]`` to ``start[i + 1]``."""

    edge: Longs
    """The place in the ring that the flow leaves."""
    demand: Doubles
    """Bits a second that both of its NICs carry."""
    start: Longs
    way: Longs
    share: Doubles
    """Of the flow, on that link."""
    is_crossing: Bools
    """[flow] it leaves its leaf."""

    def loads(self, size: int) -> Doubles:
        sent = np.repeat(self.demand, np.diff(self.start)) * self.share
        return np.bincount(self.way, sent, size).astype(np.float64)

    def rates(self, loads: Doubles, capacity: Doubles) -> Doubles:
        """Bits a second that each flow gets when links carry these loads, its own among them."""
        if not len(self.demand):
            return np.zeros(0)
        part = capacity[self.way >> 1] / np.maximum(loads[self.way], 1e-9)
        least = np.minimum.reduceat(np.minimum(part, 1.0), self.start[:-1])
        rates: Doubles = self.demand * least
        return rates

    def crossed(self, size: int) -> Bools:
        """Which of ``size`` directed links any flow takes between switches."""
        length = np.diff(self.start)
        # The first and the last of each flow are its NICs'.
        inner = runs(self.start[:-1] + 1, np.maximum(length - 2, 0))
        is_taken = np.zeros(size, dtype=bool)
        is_taken[self.way[inner]] = True
        return is_taken


class Ways:
    """A cache of ways between leaves. Not thread-safe: one request at a time."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._switches = max(1, len(floor.graph.switches))
        self._is_even = is_even(floor.graph)
        self._known: dict[int, Way | None] = {}
        self._links = 0

    def again(self, floor: Floor) -> Ways:
        """With known ways, so that the next request need not wait; threads may go on here."""
        other = Ways(floor)
        known = self._known.copy()
        if floor is self._floor:
            other._known, other._links = known, self._links
            return other
        names, number = self._floor.graph.switches, floor.graph.switch_number
        keys = []
        for goal, source in (divmod(key, self._switches) for key in [*known][-WARMED_MAX:]):
            if names[goal] in number and names[source] in number:
                keys.append(number[names[goal]] * other._switches + number[names[source]])
        other._find(np.array(sorted(keys), dtype=np.int64))
        return other

    def flows(self, ring: Longs, part: float = 1.0) -> Flows:
        floor = self._floor
        if len(ring) < 2:  # noqa: PLR2004 - one host sends nothing
            ring = ring[:0]
        after = np.roll(ring, -1)
        near, far = floor.nic_leaf[ring], floor.nic_leaf[after]
        edge, slot = np.nonzero((near != NOWHERE) & (far != NOWHERE))
        cables = floor.nic_link[ring[edge], slot], floor.nic_link[after[edge], slot]
        demand = part * np.minimum(floor.capacity[cables[0]], floor.capacity[cables[1]])
        ends = floor.nic_out[ring[edge], slot], floor.nic_out[after[edge], slot] ^ 1
        return self.between(edge, demand, ends, (near[edge, slot], far[edge, slot]))

    def between(
        self, edge: Longs, demand: Doubles, ends: tuple[Longs, Longs], leaves: tuple[Ints, Ints]
    ) -> Flows:
        """Flows between NICs on these leaves, without those between which there is no way.

        ``ends`` are the NICs' directed links, out of the one host and into the other. ``edge``
        numbers the flows for the caller.
        """
        near, far = leaves
        key = far.astype(np.int64) * self._switches + near
        is_crossing = near != far
        crossing = np.unique(key[is_crossing])
        self._find(crossing)
        lost = [each for each in crossing.tolist() if self._known[each] is None]
        if lost:
            kept = ~(is_crossing & np.isin(key, lost))
            edge, demand, key, is_crossing = (
                each[kept] for each in (edge, demand, key, is_crossing)
            )
            ends = ends[0][kept], ends[1][kept]
        return self._join(edge, demand, ends, key, is_crossing)

    def _join(
        self, edge: Longs, demand: Doubles, ends: tuple[Longs, Longs], key: Longs, crosses: Bools
    ) -> Flows:
        """Flows with their ways: out of the host, between leaves, into the next host."""
        names, row = np.unique(key[crosses], return_inverse=True)
        known = [found for each in names.tolist() if (found := self._known[each]) is not None]
        length = np.array([len(links) for links, _ in known], dtype=np.int64)
        begin = starts(length)[:-1]
        inner = np.zeros(len(edge), dtype=np.int64)
        inner[crosses] = length[row]
        start = starts(inner + 2)
        way, share = np.empty(start[-1], dtype=np.int64), np.ones(start[-1])
        way[start[:-1]], way[start[1:] - 1] = ends
        if known:
            to = runs(start[:-1][crosses] + 1, inner[crosses])
            taken = runs(begin[row], inner[crosses])
            way[to] = np.concatenate([links for links, _ in known])[taken]
            share[to] = np.concatenate([shares for _, shares in known])[taken]
        return Flows(edge, demand, start, way, share, crosses)

    def _find(self, keys: Longs) -> None:
        """Find ways that are not known yet; keys ascend, so their goals do."""
        if self._links > WAYS_CACHED_MAX:
            self._known, self._links = {}, 0
        wanted = np.array([each for each in keys.tolist() if each not in self._known], np.int64)
        if not len(wanted):
            return
        goal, source = np.divmod(wanted, self._switches)
        if self._is_even:
            self._keep(wanted, rows := tree_ways(self._floor, source, goal))
            rest = ~rows.is_found
            wanted, source, goal = wanted[rest], source[rest], goal[rest]
        if len(wanted):
            spread, is_found = spread_between(self._floor.graph, source, goal)
            way = self._directed(source, spread.start, spread.link.astype(np.int64))
            self._keep(wanted, Rows(way, spread.share.astype(float), spread.start, is_found))
            self._known.update(dict.fromkeys(wanted[~is_found].tolist()))

    def _keep(self, keys: Longs, rows: Rows) -> None:
        self._links += len(rows.way)
        bounds = rows.start.tolist()
        for place in np.flatnonzero(rows.is_found).tolist():
            some = slice(bounds[place], bounds[place + 1])
            self._known[int(keys[place])] = rows.way[some], rows.share[some]

    def _directed(self, source: Longs, start: Longs, link: Longs) -> Longs:
        """Links of ways with their direction: away from the source, by the steps from there."""
        origins, origin = np.unique(source, return_inverse=True)
        steps = measure(self._floor.graph, origins.astype(np.int32)).rising
        row = np.repeat(origin, np.diff(start))
        ends = self._floor.ends[link]
        return 2 * link + (steps[row, ends[:, 0]] > steps[row, ends[:, 1]])


def ring_order(floor: Floor, hosts: Sequence[int] | Longs) -> Longs:
    """Hosts in the order of their ring: by block, group and name, so that few edges cross."""
    chosen = np.sort(np.asarray(hosts, dtype=np.int64))
    group = floor.group[chosen]
    blocks = np.append(floor.block, NOWHERE)
    return chosen[np.lexsort((chosen, group, blocks[group]))]
