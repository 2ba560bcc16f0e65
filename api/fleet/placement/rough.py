"""A rough search for sets that are worth weighing link by link. Pure.

A set is as fast as its slowest host and, if it spans groups, as the narrowest way out of one. So
for every bandwidth that some host or group has, and every risk, the hosts are taken that have at
least that and risk at most that: from one group, from one block, from all; whole groups first, and
the rest from the group that it fills best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from api.fabric.spread import Bools, Doubles, Longs, runs, starts
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.jobs import Traffic
from api.fleet.placement.score import Key, Scale, carried

BANDWIDTHS_MAX, RISKS_MAX = 8, 6
"""Different bandwidths and risks that are tried as the least and the most: fleets have few NIC
speeds, and risks below the first that suffices cannot help."""

PLACES_MAX = 4
"""Groups, and blocks, that are tried for each of these: those that are filled best."""

SAME = 1e-3
"""Bandwidths that differ by less than this part are one."""


class Rough:
    """A rough search: what each host, and each group as a whole, can send."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        pool = scale.pool
        floor = pool.floor
        self._hosts = pool.hosts
        self._group = floor.group[pool.hosts]
        self._risk = pool.risk[pool.hosts]
        groups = len(floor.groups) + 1  # the last is of those whose place is not known
        self._groups = groups
        sends = host_rates(floor, pool.traffic, pool.part)
        self._sends = sends[pool.hosts]
        self._sends_all = sends
        self._leaves = np.append(group_rates(floor, pool.traffic, pool.part), np.inf)
        self._block = np.append(floor.block, NOWHERE)
        # The best of a group first; a name decides between those that are alike.
        self._order = np.lexsort((pool.hosts, pool.lemon[pool.hosts], self._risk, self._group))

    def promise(self, hosts: Longs) -> Doubles:
        """The value of each host by itself in a set that spans groups: bandwidth times chance."""
        pool = self._scale.pool
        sends = np.minimum(self._sends_all[hosts], self._leaves[pool.floor.group[hosts]])
        promised: Doubles = sends * (1 - pool.risk[hosts])
        return promised

    def key(self, hosts: Longs) -> Key:
        scale = self._scale
        group = np.unique(scale.pool.floor.group[hosts])
        sent = float(self._sends_all[hosts].min())
        if len(group) > 1:
            sent = min(sent, float(self._leaves[group].min()))
        known = scale.pool.floor.is_known and len(hosts) > 1
        worth = scale.chance(hosts) * (sent / (scale.best or 1.0) if known else 1.0)
        return scale.key(worth, hosts)

    def candidates(
        self, size: int, without: Iterable[int] = (), *, is_one_group: bool
    ) -> Iterator[Longs]:
        """Promising sets, ``without`` these hosts."""
        is_free = ~np.isin(self._hosts, list(without))
        for least in self._bandwidths():
            is_fast = is_free & (self._sends >= least * (1 - SAME))
            for most in self._risks(is_fast, size):
                may = is_fast & (self._risk <= most)
                yield from self._within_groups(may, size)
                if not is_one_group:
                    wide = may & (self._leaves[self._group] >= least * (1 - SAME))
                    yield from self._within_blocks(wide, size)
                    yield from self._filled(wide, size)
                    yield from self._least_risk(wide, size, most)

    def _bandwidths(self) -> list[float]:
        used = self._leaves[np.unique(self._group)]
        every = np.concatenate([self._sends, used[np.isfinite(used)]])
        return spaced(distinct(every)[::-1], BANDWIDTHS_MAX)

    def _risks(self, may: Bools, size: int) -> list[float]:
        """Risks that suffice for a set, from the lowest."""
        risks = np.sort(self._risk[may])
        if len(risks) < size:
            return []
        enough = np.unique(risks[size - 1 :])
        return spaced(enough, RISKS_MAX)

    def _within_groups(self, may: Bools, size: int) -> Iterator[Longs]:
        """Sets of one group, those groups first of which least is left."""
        counts = np.bincount(self._group[may] % self._groups, minlength=self._groups)
        counts[-1] = 0
        fitting = np.flatnonzero(counts >= size)
        fullest = fitting[np.argsort(counts[fitting], kind="stable")][:PLACES_MAX]
        for group in fullest.tolist():
            yield self._take(may & (self._group == group), size)

    def _within_blocks(self, may: Bools, size: int) -> Iterator[Longs]:
        block = self._block[self._group]
        numbers, counts = np.unique(block[may], return_counts=True)
        order = np.argsort(counts, kind="stable")
        for place in order[counts[order] >= size][:PLACES_MAX].tolist():
            yield from self._filled(may & (block == numbers[place]), size)

    def _filled(self, may: Bools, size: int, taken: Longs | None = None) -> Iterator[Longs]:
        """A set of few groups: whole ones while they fit, the rest from where it fits best."""
        counts = np.bincount(self._group[may] % self._groups, minlength=self._groups)
        if int(counts.sum()) < size:
            return
        # Groups that are used already cost nothing more.
        is_used = np.zeros(self._groups, dtype=bool)
        if taken is not None:
            is_used[self._group[taken]] = True
        order = np.lexsort((np.arange(self._groups), -counts, ~is_used)).tolist()
        chosen: list[Longs] = []
        left = size
        for group in order:
            if not left:
                break
            if counts[group] > left:
                group = smallest_holding(counts, left, is_used)  # noqa: PLW2901 - the last one
            if counts[group]:
                some = self._take(may & (self._group == group_number(group, self._groups)), left)
                chosen.append(some)
                left -= len(some)
                counts[group] = 0
        yield np.concatenate(chosen) if chosen else self._hosts[:0]

    def _least_risk(self, may: Bools, size: int, most: float) -> Iterator[Longs]:
        """All hosts below the highest risk that is needed, the rest compact at that risk."""
        below = may & (self._risk < most)
        number = int(below.sum())
        if not 0 < number < size:
            return
        taken = np.flatnonzero(below)
        for rest in self._filled(may & ~below, size - number, taken):
            yield np.concatenate([self._hosts[taken], rest])

    def _take(self, may: Bools, size: int) -> Longs:
        return self._hosts[self._order[may[self._order]][:size]]


def group_number(place: int, groups: int) -> int:
    """A group by its place in counts, where those without one are the last."""
    return NOWHERE if place == groups - 1 else place


def smallest_holding(counts: Longs, size: int, is_used: Bools) -> int:
    """The group that is filled best by so many; one that is used already before others."""
    holding = np.flatnonzero(counts >= size)
    order = np.lexsort((holding, counts[holding], ~is_used[holding]))
    return int(holding[order[0]])


def distinct(values: Doubles) -> Doubles:
    """Values that differ by more than SAME, ascending: of those alike, the least."""
    ordered = np.unique(values)
    if not len(ordered):
        return ordered
    kept = [float(ordered[0])]
    for value in ordered.tolist():
        if value > kept[-1] * (1 + SAME):
            kept.append(value)
    return np.array(kept)


def spaced(values: Doubles, most: int) -> list[float]:
    """The values, or as many of them evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return [float(value) for value in values]
    places = np.linspace(0, len(values) - 1, most).round().astype(np.int64)
    return [float(values[place]) for place in np.unique(places)]


# --- what hosts and groups can send -------------------------------------------------------------


def host_rates(floor: Floor, traffic: Traffic, part: float) -> Doubles:
    """Bits a second that each host's NICs send and receive beside running jobs."""
    capacity = carried(floor, floor.nic_link)
    loads = np.append(traffic.loads, 0.0)
    is_live = floor.nic_link != NOWHERE
    out = np.where(is_live, floor.nic_out, NOWHERE)
    back = np.where(is_live, floor.nic_out ^ 1, NOWHERE)
    wanted = part * capacity
    busiest = wanted + np.maximum(loads[out], loads[back])
    got = wanted * np.minimum(1.0, capacity / np.maximum(busiest, 1e-9))
    sums: Doubles = got.sum(axis=1)
    return sums


def group_rates(floor: Floor, traffic: Traffic, part: float) -> Doubles:
    """Bits a second out of each group and into it; the uplink with least to spare decides."""
    up = np.flatnonzero(floor.is_up)
    link = up >> 1
    leaf = np.where(up & 1, floor.ends[link, 1], floor.ends[link, 0])
    order = np.argsort(leaf, kind="stable")
    up, link = up[order], link[order]
    count = np.bincount(leaf, minlength=len(floor.graph.switches))
    first = starts(count)[:-1]
    busy = np.maximum(traffic.loads[up], traffic.loads[up ^ 1])
    at = np.array(floor.groups, dtype=np.int64).reshape(floor.group_nics.shape)
    wanted = part * floor.group_nics
    cell = np.flatnonzero((at.ravel() != NOWHERE) & (np.append(count, 0)[at.ravel()] > 0))
    links = count[at.ravel()[cell]]
    place = runs(first[at.ravel()[cell]], links)
    sent = np.repeat(wanted.ravel()[cell] / links, links) + busy[place]
    got = np.zeros(at.size)
    if len(cell):
        spare = floor.capacity[link[place]] / np.maximum(sent, 1e-9)
        got[cell] = np.minimum(1.0, np.minimum.reduceat(spare, starts(links)[:-1]))
    rates: Doubles = (wanted * got.reshape(wanted.shape)).sum(axis=1)
    return rates
