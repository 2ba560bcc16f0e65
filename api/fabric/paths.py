"""All equal-cost ways from one port to another, over links that are up. Pure.

Cost is the number of links. Ways go up the tiers and down again (`api.fabric.graph`), never
through a host. Counting is exact, however many there are; listing stops at the client's limit.
A dragonfly's routers may weigh global links more than local ones: that is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from api.fabric.cabling import PortKey, natural_port
from api.fabric.graph import FAR, Bundles, Distances, Graph, measure
from api.fabric.model import Link, NodeKind, Topology
from collector.contract.identity import PortId

PAIRS_MAX = 64
"""Pairs of ports in one request between hosts: eight NICs on either side without rails. Past it the
first ones by name, and the answer counts all."""


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a way, in its direction."""

    link: Link
    source: PortId
    target: PortId


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """All equal-cost ways between two ports."""

    source: PortId
    target: PortId
    hops: int | None
    """Links on each way; None if there is no way."""
    count: int
    paths: tuple[tuple[Hop, ...], ...]
    """The first of them, in the order of port names."""
    reason: str = ""


def ports_of(topology: Topology, name: str, device: str | None = None) -> list[PortId]:
    """The ports of a host, or of one of its devices, that have a link; in natural order."""
    found = {
        end
        for link in topology.neighbours.get(name, ())
        for end in (link.id.a, link.id.b)
        if end.host == name and device in {None, end.device}
    }
    return sorted(found, key=natural_port)


def pairs_between(
    topology: Topology, sources: list[PortId], targets: list[PortId]
) -> list[tuple[PortId, PortId]]:
    """Which ports talk to which: NICs of one rail, as collectives use them; else all to all."""
    if len(sources) == 1 and len(targets) == 1:
        return [(sources[0], targets[0])] if sources != targets else []
    every = [(one, other) for one in sources for other in targets if one != other]
    aligned = [
        (one, other)
        for one, other in every
        if (rail := rail_of(topology, one)) is not None and rail == rail_of(topology, other)
    ]
    return aligned or every


def rail_of(topology: Topology, port: PortId) -> int | None:
    known = topology.ports.get(port)
    return None if known is None else known.rail


def find_ways(graph: Graph, source: PortId, target: PortId, limit: int) -> Ways:
    """At most ``limit`` are listed. A port of a switch stands for the switch, over any port."""
    cable = direct_cable(graph, source, target)
    if cable is not None:
        hop = Hop(link=cable, source=source, target=target)
        return Ways(source=source, target=target, hops=1, count=1, paths=((hop,),)[:limit])
    ends = (entry(graph, source), entry(graph, target))
    for port, end in zip((source, target), ends, strict=True):
        if end is None:
            return no_way(source, target, why_unattached(graph.topology, port))
    (start, up), (goal, down) = (end for end in ends if end is not None)
    walk = Walk(graph, measure(graph, np.array([goal], dtype=np.int32)))
    steps = walk.steps(start, is_rising=True)
    if steps >= FAR:
        return no_way(source, target, why_no_way(graph, start, goal))
    edges = [number for number in (up, down) if number is not None]
    listed = walk.first_ways(start, limit)
    return Ways(
        source=source,
        target=target,
        hops=steps + len(edges),
        count=walk.count(start, is_rising=True) if steps + len(edges) else 0,
        paths=tuple(as_hops(graph, source, [up, *way, down]) for way in listed),
        reason="" if steps + len(edges) else "both ports are the same switch's",
    )


def direct_cable(graph: Graph, source: PortId, target: PortId) -> Link | None:
    link = graph.topology.link_of.get(source)
    if link is None or link.is_up is False or target not in {link.id.a, link.id.b}:
        return None
    return link


def entry(graph: Graph, port: PortId) -> tuple[int, int | None] | None:
    """The switch at which a port's ways begin, and the link to it; no link for a switch's own."""
    number = graph.switch_number.get(port.host)
    return graph.attached.get(port) if number is None else (number, None)


def no_way(source: PortId, target: PortId, reason: str) -> Ways:
    return Ways(source=source, target=target, hops=None, count=0, paths=(), reason=reason)


def why_unattached(topology: Topology, port: PortId) -> str:
    link = topology.link_of.get(port)
    if link is None:
        return f"{port}: no link is known at this port"
    if link.is_up is False:
        return f"{port}: its link {link.id} is down"
    return f"{port} is cabled to {topology.other_end(port)}, which is no switch"


def why_no_way(graph: Graph, start: int, goal: int) -> str:
    one, other = graph.switches[start], graph.switches[goal]
    down = sum(
        1
        for link in graph.links
        if link.is_up is False
        and is_switch(graph, link.id.a.host)
        and is_switch(graph, link.id.b.host)
    )
    seen = f"; {down} links between switches are down" if down else ""
    return f"no way up and down leads from {one} to {other} over the links that are known{seen}"


def is_switch(graph: Graph, name: str) -> bool:
    return graph.topology.nodes[name].kind is NodeKind.SWITCH


def as_hops(graph: Graph, source: PortId, numbers: list[int | None]) -> tuple[Hop, ...]:
    """Links in order as hops, each with its direction; the first one leaves the source's host."""
    hops: list[Hop] = []
    at = source.host
    for number in numbers:
        if number is None:
            continue
        link = graph.links[number]
        near, far = link.id.a, link.id.b
        if near.host != at:
            near, far = far, near
        hops.append(Hop(link=link, source=near, target=far))
        at = far.host
    return tuple(hops)


class Walk:
    """Ways between switches towards one goal."""

    def __init__(self, graph: Graph, distances: Distances) -> None:
        self._graph = graph
        self._rising = distances.rising[0]
        self._falling = distances.falling[0]
        self._counts: dict[tuple[int, bool], int] = {}

    def steps(self, switch: int, *, is_rising: bool) -> int:
        """Steps left from this switch for traffic that may still rise, or may not."""
        return int((self._rising if is_rising else self._falling)[switch])

    def onward(self, switch: int, *, is_rising: bool) -> Iterator[tuple[Bundles, int, int, bool]]:
        """Each bundle that brings one nearer: its place, where it leads, whether one may rise."""
        left = self.steps(switch, is_rising=is_rising) - 1
        ways: list[tuple[Bundles, bool]] = [(self._graph.falling, False)]
        if is_rising:
            ways.insert(0, (self._graph.rising, True))
        for bundles, still_rising in ways:
            steps = self._rising if still_rising else self._falling
            first, end = int(bundles.start[switch]), int(bundles.start[switch + 1])
            targets = bundles.target[first:end]
            for place in np.flatnonzero(steps[targets] == left).tolist():
                yield bundles, first + place, int(targets[place]), still_rising

    def count(self, switch: int, *, is_rising: bool) -> int:
        if self.steps(switch, is_rising=is_rising) == 0:
            return 1
        key = (switch, is_rising)
        if key not in self._counts:
            self._counts[key] = sum(
                int(bundles.count[place]) * self.count(target, is_rising=may_rise)
                for bundles, place, target, may_rise in self.onward(switch, is_rising=is_rising)
            )
        return self._counts[key]

    def first_ways(self, start: int, limit: int) -> list[list[int]]:
        found: list[list[int]] = []
        # Every branch leads to the goal, so the stack stays as small as degree times length.
        stack: list[tuple[int, bool, list[int]]] = [(start, True, [])]
        while stack and len(found) < limit:
            switch, is_rising, way = stack.pop()
            if self.steps(switch, is_rising=is_rising) == 0:
                found.append(way)
                continue
            onward = [
                (number, target, may_rise)
                for bundles, place, target, may_rise in self.onward(switch, is_rising=is_rising)
                for number in self.links_of(bundles, place)
            ]
            name = self._graph.switches[switch]
            onward.sort(key=lambda each: self.port_key(name, each[0]), reverse=True)
            stack.extend((target, may_rise, [*way, number]) for number, target, may_rise in onward)
        return found

    def links_of(self, bundles: Bundles, place: int) -> list[int]:
        first = int(bundles.first[place])
        numbers: list[int] = self._graph.bundled[first : first + int(bundles.count[place])].tolist()
        return numbers

    def port_key(self, switch: str, number: int) -> PortKey:
        """Where a link stands among its switch's: by the port that it leaves."""
        ends = self._graph.links[number].id
        return natural_port(ends.a if ends.a.host == switch else ends.b)
