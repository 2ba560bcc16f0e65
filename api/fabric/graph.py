"""A topology as numbers: its switches, and the links between them in bundles. Pure.

A bundle is all live links from one switch to another, in one direction. Ways go up the tiers and
then down, never up again: that is what routing in trees allows. So a bundle leads up, or down, or,
where a fabric has no tiers to climb, anywhere (`FREE`). Links within a tier of a tree carry no
traffic of others and are left out. Hosts forward nothing and are no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from api.fabric.model import Link, NodeKind, Topology
from collector.contract.identity import PortId

Ints = NDArray[np.int32]
Steps = NDArray[np.int8]

UP, DOWN, FREE = 1, -1, 0

FAR = 100
"""Steps to an unreachable switch; fits a byte with room for one more. Trees have six at most, and
no training fabric has over a hundred switches in a row."""


@dataclass(frozen=True, eq=False)
class Bundles:
    """Bundles in the order of the switch that they leave."""

    source: Ints
    target: Ints
    first: Ints
    """Where the bundle's links begin in ``Graph.bundled``; it has ``count`` of them."""
    count: Ints
    start: Ints
    """For each switch and one more: where its bundles begin."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Live links only. Numbers of links are places in `links`."""

    topology: Topology
    links: tuple[Link, ...]
    switches: tuple[str, ...]
    switch_number: dict[str, int]
    attached: dict[PortId, tuple[int, int]]
    """Of each port of a host: the switch that it hangs on, and the link."""
    bundled: Ints
    """Numbers of links, bundle by bundle."""
    rising: Bundles
    """Those that lead up, or anywhere."""
    falling: Bundles
    tier: Ints
    """Of each switch; -1 where unknown."""
    is_flat: bool
    """No tiers to climb: all rising bundles lead anywhere."""
    levels: tuple[int, ...] = field(default=())
    """The tiers that there are, from the lowest."""


def compile_graph(topology: Topology) -> Graph:
    switches = tuple(name for name, node in topology.nodes.items() if node.kind is NodeKind.SWITCH)
    number = {name: place for place, name in enumerate(switches)}
    links = tuple(topology.links.values())
    ends: list[tuple[int, int, int]] = []
    attached: dict[PortId, tuple[int, int]] = {}
    for place, link in enumerate(links):
        if link.is_up is False:
            continue
        a, b = number.get(link.id.a.host), number.get(link.id.b.host)
        if a is not None and b is not None:
            if a != b:
                ends.append((a, b, place))
        elif a is not None or b is not None:
            port, switch = (link.id.b, a) if a is not None else (link.id.a, b)
            known = attached.get(port)
            if known is None or links[known[1]].last_seen <= link.last_seen:
                attached[port] = (int(switch or 0), place)
    tiers = (topology.nodes[name].tier for name in switches)
    tier = np.array([-1 if known is None else known for known in tiers], dtype=np.int32)
    return bundle(topology, links, switches, attached, ends, tier)


def bundle(
    topology: Topology,
    links: tuple[Link, ...],
    switches: tuple[str, ...],
    attached: dict[PortId, tuple[int, int]],
    ends: list[tuple[int, int, int]],
    tier: Ints,
) -> Graph:
    near, far, place = np.array(ends, dtype=np.int32).reshape(-1, 3).T
    source, target = np.concatenate([near, far]), np.concatenate([far, near])
    link = np.concatenate([place, place])
    is_flat = len(tier) == 0 or int(tier.max()) <= 0
    way = np.sign(tier[target] - tier[source])
    is_rising = (way == FREE) if is_flat else (way == UP)
    rising, up_links = bundles_of(source, target, link, is_rising, len(switches))
    falling, down_links = bundles_of(source, target, link, way == DOWN, len(switches))
    falling.first[:] += len(up_links)
    return Graph(
        topology=topology,
        links=links,
        switches=switches,
        switch_number={name: number for number, name in enumerate(switches)},
        attached=attached,
        bundled=np.concatenate([up_links, down_links]),
        rising=rising,
        falling=falling,
        tier=tier,
        is_flat=is_flat,
        levels=tuple(int(level) for level in np.unique(tier)),
    )


def bundles_of(
    source: Ints, target: Ints, link: Ints, chosen: NDArray[np.bool_], switches: int
) -> tuple[Bundles, Ints]:
    """The chosen directed links in bundles, and their numbers in the order of bundles."""
    key = source[chosen].astype(np.int64) * max(1, switches) + target[chosen]
    order = np.argsort(key, kind="stable")
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    sources = (keys // max(1, switches)).astype(np.int32)
    start = np.searchsorted(sources, np.arange(switches + 1)).astype(np.int32)
    found = Bundles(
        source=sources,
        target=(keys % max(1, switches)).astype(np.int32),
        first=first.astype(np.int32),
        count=count.astype(np.int32),
        start=start,
    )
    return found, link[chosen][order]


@dataclass(frozen=True, eq=False)
class Distances:
    """Steps between switches to each goal, [goal, switch]; FAR where it is unreachable."""

    goals: Ints
    falling: Steps
    """For traffic that may only go down from here."""
    rising: Steps
    """For traffic that may still go up."""


def measure(graph: Graph, goals: Ints) -> Distances:
    falling = np.full((len(goals), len(graph.switches)), FAR, dtype=np.int8)
    falling[np.arange(len(goals)), goals] = 0
    for level in graph.levels:
        relax(graph.falling, falling, graph.tier == level)
    rising = falling.copy()
    if graph.is_flat:
        while relax(graph.rising, rising, None):
            pass  # each round goes a step further, and FAR ends it
    else:
        for level in reversed(graph.levels):
            relax(graph.rising, rising, graph.tier == level)
    return Distances(goals=goals, falling=falling, rising=rising)


def relax(bundles: Bundles, steps: Steps, of: NDArray[np.bool_] | None) -> bool:
    """Shorten the steps of switches by one step over their bundles; True if any became shorter."""
    chosen = slice(None) if of is None else of[bundles.source]
    source, target = bundles.source[chosen], bundles.target[chosen]
    if not len(source):
        return False
    first = np.flatnonzero(np.diff(source, prepend=-1))
    best = np.minimum.reduceat(steps[:, target], first, axis=1) + np.int8(1)
    where = source[first]
    helped = best < steps[:, where]
    steps[:, where] = np.minimum(steps[:, where], best)
    return bool(helped.any())
