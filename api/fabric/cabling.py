"""Counts of links between nodes: the input of tiers, plans and mistakes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from api.fabric.model import Link, NodeKind, Topology
from collector.contract.identity import NaturalKey, PortId, natural

ALIKE_SHARE = 0.5
"""Two switches belong together when they share more than this of what is cabled to them: a few
wrong cables neither part a group nor join two."""

PortKey = tuple[NaturalKey, NaturalKey, NaturalKey]


class Cabling(msgspec.Struct, frozen=True, kw_only=True):
    """A topology's links, by what they join. Links that are down are cabled, too."""

    switch_of: dict[PortId, str]
    """Of each host's port that is cabled to a switch: that switch."""
    ports_at: dict[str, list[PortId]]
    """Of each switch: the hosts' ports that are cabled to it."""
    between: dict[str, Counter[str]]
    """Of each switch: how many links it has to each other one."""


def read_cabling(topology: Topology) -> Cabling:
    kinds = {name: node.kind for name, node in topology.nodes.items()}

    has_agents = NodeKind.HOST in kinds.values()

    def kind_of(end: PortId) -> NodeKind:
        """Where no host has an agent, unknown machines (`unknown_port`) are the hosts."""
        is_machine = kinds[end.host] is NodeKind.UNKNOWN and end.device != end.host
        return NodeKind.HOST if is_machine and not has_agents else kinds[end.host]

    between: dict[str, Counter[str]] = {
        name: Counter() for name, kind in kinds.items() if kind is NodeKind.SWITCH
    }
    latest: dict[PortId, tuple[Link, str]] = {}
    for link in topology.links.values():
        a, b = link.id.a, link.id.b
        pair = (kind_of(a), kind_of(b))
        if pair == (NodeKind.SWITCH, NodeKind.SWITCH):
            if a.host != b.host:
                between[a.host][b.host] += 1
                between[b.host][a.host] += 1
        elif NodeKind.SWITCH in pair and NodeKind.HOST in pair:
            port, switch = (a, b.host) if pair[0] is NodeKind.HOST else (b, a.host)
            known = latest.get(port)
            if known is None or (known[0].last_seen, known[0].id) < (link.last_seen, link.id):
                latest[port] = (link, switch)
    ports_at: dict[str, list[PortId]] = {name: [] for name in between}
    for port, (_, switch) in latest.items():
        ports_at[switch].append(port)
    return Cabling(
        switch_of={port: switch for port, (_, switch) in latest.items()},
        ports_at=ports_at,
        between=between,
    )


def natural_port(port: PortId) -> PortKey:
    return natural(port.host), natural(port.device), natural(port.port)


def alike_groups(tied: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """The names in groups that share most of what they are tied to, each group in natural order.

    ``tied``: for each name its number of links to each thing. A name is compared with the first of
    each group that it shares something with: the work stays in proportion to the links.
    """
    groups: list[list[str]] = []
    groups_at: dict[str, set[int]] = {}
    for name in sorted(tied, key=natural):
        mine = tied[name]
        candidates = Counter(number for thing in mine for number in groups_at.get(thing, ()))
        for number in sorted(candidates, key=lambda number: (-candidates[number], number)):
            if likeness(mine, tied[groups[number][0]]) > ALIKE_SHARE:
                groups[number].append(name)
                break
        else:
            number = len(groups)
            groups.append([name])
            for thing in mine:
                groups_at.setdefault(thing, set()).add(number)
    return groups


def likeness(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """How much of the larger is in both, from 0 to 1."""
    shared = sum(min(count, other.get(thing, 0)) for thing, count in one.items())
    whole = max(sum(one.values()), sum(other.values()))
    return shared / whole if whole else 0.0
