"""The search for sets: the most promising ones, weighed, and improved by exchange. Pure.

The sets of a rough search (`api.fleet.placement.rough`) are weighed link by link, and the
best of them improved: the host or group at the worst edge, or at the highest risk, is exchanged as
long as that helps. Nothing is left to chance or to the clock: the same question over the same floor
has the same answer. Work is bounded by counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from api.fabric.graph import Ints
from api.fabric.spread import Longs
from api.fleet.placement.rough import Rough
from api.fleet.placement.score import Key, Pool, Scale, Scored

ALTERNATIVES = 2
"""Sets for each in the answer that are looked for: what looks best need not be."""

WEIGHED_MAX = 12
"""Sets that are weighed link by link before the best are improved."""

TRIES_MAX = 100
"""Sets that are weighed for one answer beside those in it, half a millisecond each."""

INSTEAD_MAX = 12
"""Hosts, or groups, that are tried in place of one; hosts of the set's groups and others, each."""

LOOKED_AT_MAX = 256
"""Hosts among which these are looked for, those that promise most."""

LINKS_MAX = 300_000
"""Links that the flows of all these may follow together, about 60 ms: of large sets fewer are
weighed. The bound is no clock, so that answers do not depend on how busy the machine is."""


def choose(scale: Scale, size: int, sets: int, *, same_leaf: bool) -> list[Scored]:
    """The best sets found, the best first; fewer if there are not as many."""
    rough = Rough(scale)
    budget = Budget(scale)
    weighed: list[Scored] = []
    for key in look(rough, size, sets, same_leaf=same_leaf)[: max(WEIGHED_MAX, sets)]:
        if len(weighed) >= sets and not budget.allows(len(weighed[-1].flows.way)):
            break
        weighed.append(scale.weigh(np.array(key[-1], dtype=np.int64)))
    weighed.sort(key=lambda each: each.key)
    exchange = Exchange(rough, scale, same_leaf=same_leaf)
    best = [improve(scale, each, budget, exchange) for each in weighed[:sets]]
    unlike = {each.key[-1]: each for each in (*best, *weighed)}
    for hosts in exchange.sets(best[0]) if best else ():
        if len(unlike) >= sets:
            break
        other = scale.weigh(hosts)
        unlike.setdefault(other.key[-1], other)
    return sorted(unlike.values(), key=lambda each: each.key)[:sets]


def look(rough: Rough, size: int, sets: int, *, same_leaf: bool) -> list[Key]:
    """The most promising sets; if there are few, again without the hosts of the best ones."""
    found: dict[tuple[int, ...], Key] = {}
    used: set[int] = set()
    for _ in range(sets):
        seen = [rough.key(hosts) for hosts in rough.candidates(size, used, is_one_group=same_leaf)]
        found.update((key[-1], key) for key in seen)
        if len(found) >= ALTERNATIVES * sets or not seen:
            break
        used.update(min(seen)[-1])
    return sorted(found.values())


class Budget:
    """The bound on the work of weighing the sets of one answer."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._links_max = scale.links_followed + LINKS_MAX
        self._tries = TRIES_MAX

    def allows(self, links: int) -> bool:
        """Whether a set whose flows follow so many links may be weighed; if so, it is counted."""
        if self._tries <= 0 or self._scale.links_followed + links > self._links_max:
            return False
        self._tries -= 1
        return True


def improve(scale: Scale, start: Scored, budget: Budget, exchange: Exchange) -> Scored:
    best = start
    is_better = not start.is_perfect
    while is_better:
        is_better = False
        for hosts in exchange.sets(best):
            if not budget.allows(len(best.flows.way)):
                return best
            other = scale.weigh(hosts)
            if other.key < best.key:
                best, is_better = other, True
                break
    return best


class Exchange:
    """Finds sets that differ from one in a host, or in all hosts of a group."""

    def __init__(self, rough: Rough, scale: Scale, *, same_leaf: bool) -> None:
        self._pool = pool = scale.pool
        self._group = pool.floor.group
        self._same_leaf = same_leaf
        promise = rough.promise(pool.hosts)
        # The most promising first; then past and name, as everywhere.
        self._hosts = pool.hosts[np.lexsort((pool.hosts, pool.lemon[pool.hosts], -promise))]

    def sets(self, now: Scored) -> Iterator[Longs]:
        group = self._group
        used = np.unique(group[now.ring])
        free = self._hosts[~np.isin(self._hosts, now.ring)]
        is_near = np.isin(group[free], used)
        instead = in_turns(free[is_near], group)
        if not self._same_leaf:
            instead += in_turns(free[~is_near], group)
        worst = worst_hosts(self._pool, now)
        for host in worst:
            rest = now.ring[now.ring != host]
            yield from (np.append(rest, other) for other in instead)
        if not self._same_leaf and len(used) > 1:
            # Any group may share links with a running job, not only one at the worst edge.
            every = dict.fromkeys([*(int(group[host]) for host in worst), *used.tolist()])
            for left in [*every][:INSTEAD_MAX]:
                yield from self._without(now, left, free)

    def _without(self, now: Scored, left: int, free: Longs) -> Iterator[Longs]:
        """Sets with hosts of one other group in place of those of this one."""
        group = self._group
        rest = now.ring[group[now.ring] != left]
        needed = len(now.ring) - len(rest)
        others = group[free[group[free] != left]]
        numbers, first, counts = np.unique(others, return_index=True, return_counts=True)
        order = np.argsort(first, kind="stable")
        for number in numbers[order][counts[order] >= needed][:INSTEAD_MAX].tolist():
            yield np.concatenate([rest, free[group[free] == number][:needed]])


def worst_hosts(pool: Pool, now: Scored) -> list[int]:
    """The hosts at both ends of the worst edge, and the one at the highest risk."""
    found: list[int] = []
    if len(now.edges):
        place = int(now.edges.argmin())
        found += [int(now.ring[place]), int(now.ring[(place + 1) % len(now.ring)])]
    risk = pool.risk[now.ring]
    if risk.max(initial=0.0) > 0:
        found.append(int(now.ring[risk.argmax()]))
    return list(dict.fromkeys(found))


def in_turns(hosts: Longs, group: Ints) -> list[int]:
    """The first INSTEAD_MAX of these hosts: of each group the first, then the second of each."""
    place: dict[int, int] = {}
    turns: list[tuple[int, int]] = []
    for host in hosts[:LOOKED_AT_MAX].tolist():
        number = int(group[host])
        place[number] = place.get(number, -1) + 1
        turns.append((place[number], host))
    turns.sort(key=lambda turn: turn[0])
    return [host for _, host in turns[:INSTEAD_MAX]]
