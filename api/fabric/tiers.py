"""Derives tier, rail and pod of each switch from its cables. Pure.

Hosts hang on tier 0. A host on a spine by mistake makes no leaf of it, a leaf with a single host is
one: the neighbours' hosts decide. In a flat fabric (a dragonfly, or leaves that are cabled to each
other) every switch is tier 0. Values that a file sets for a switch stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from api.fabric.cabling import Cabling, alike_groups, read_cabling
from api.fabric.model import Node, NodeKind, Topology
from collector.contract.identity import PortId

WEAK_SHARE = 0.25
"""A switch with less than this of the typical leaf's hosts counts as a leaf only if its neighbours
agree: it may be a core with a host on it by mistake."""

FLAT_SHARE = 0.5
"""More than this of the links between switches that leaves have, by the host that hangs on them,
lead to other leaves: a flat fabric. In a tree that is nearly nothing, or a pair to one peer."""

BRANCHES = 2
"""Leaves that a switch above them joins at least: with one, nothing is above anything."""

STRAY_SHARE = 0.25
"""A switch stands above those to which at least this of its links between switches lead, without
doubt. Fewer may be strays: one cable from a leaf into a core makes no spine of it."""

RAILS_SHARE = 0.75
"""A fabric has rails when this much of its NICs hang on a leaf where most are of their rail."""


def with_tiers(topology: Topology) -> Topology:
    """The topology with tier, rail and pod of every switch, as far as its cables show."""
    cabling = read_cabling(topology)
    tiers = tiers_of(cabling)
    leaves = [name for name, tier in tiers.items() if tier == 0 and cabling.ports_at[name]]
    rails = rails_of(topology, cabling, leaves)
    pods = pods_of(cabling, leaves)

    def placed(node: Node) -> Node:
        if node.kind is not NodeKind.SWITCH:
            return node
        return msgspec.structs.replace(
            node,
            tier=tiers.get(node.name) if node.tier is None else node.tier,
            rail=rails.get(node.name) if node.rail is None else node.rail,
            pod=pods.get(node.name) if node.pod is None else node.pod,
        )

    nodes = {name: placed(node) for name, node in topology.nodes.items()}
    return msgspec.structs.replace(topology, nodes=nodes)


# --- tiers --------------------------------------------------------------------------------------


def tiers_of(cabling: Cabling) -> dict[str, int]:
    """The tier of each switch from which a leaf can be reached; others have none."""
    own = {name: len(ports) for name, ports in cabling.ports_at.items()}
    if is_flat(cabling, own):
        tiers = dict.fromkeys((name for name, hosts in own.items() if hosts), 0)
        spread(cabling, tiers, rise=0)
        return tiers
    tiers = dict.fromkeys(leaves_of(cabling, own), 0)
    waiting = {name for name in own if name not in tiers}
    tier = 0
    while waiting:
        joined = standing_on(cabling, waiting, {name for name, at in tiers.items() if at == tier})
        if not joined:
            break
        tier += 1
        tiers.update(dict.fromkeys(joined, tier))
        waiting -= joined
    spread(cabling, tiers, rise=1)
    return tiers


def standing_on(cabling: Cabling, waiting: set[str], below: set[str]) -> set[str]:
    """Those of the waiting that stand a tier above ``below``.

    A switch with few links down may be a spine whose block is nearly empty, or a core with a stray
    cable from a leaf. Around the core are spines that stand there without doubt.
    """
    down = {name: links_to(cabling.between[name], below) for name in waiting}
    reached = {name for name, links in down.items() if links}
    sure = {name for name in reached if down[name] >= STRAY_SHARE * cabling.between[name].total()}
    return sure | {
        name
        for name in reached - sure
        if 2 * links_to(cabling.between[name], sure) < cabling.between[name].total()
    }


def links_to(around: Counter[str], some: set[str]) -> int:
    return sum(count for name, count in around.items() if name in some)


def is_flat(cabling: Cabling, own: Mapping[str, int]) -> bool:
    """Whether the switches that hosts hang on are mostly cabled to such switches."""
    alike = total = 0.0
    for name, hosts in own.items():
        around = cabling.between[name]
        if hosts and around:
            links = sum(count for other, count in around.items() if own[other] > hosts / 2)
            alike += hosts * links / around.total()
            total += hosts
    return alike > FLAT_SHARE * total


def leaves_of(cabling: Cabling, own: Mapping[str, int]) -> list[str]:
    """The switches of a tree that hosts are meant to hang on."""
    around = {name: mean_around(cabling.between[name], own) for name in own}
    fuller = {name for name, hosts in own.items() if hosts and hosts >= around[name]}
    # A switch above leaves joins several; a switch beside a fuller one is its like.
    candidates = [
        name
        for name, hosts in own.items()
        if hosts and (name in fuller or len(fuller.intersection(cabling.between[name])) < BRANCHES)
    ]
    typical = typical_hosts(own[name] for name in candidates)
    strong = {name for name in candidates if own[name] >= WEAK_SHARE * typical}
    return [
        name
        for name in candidates
        if name in strong or neighbours_belong_together(cabling, name, strong)
    ]


def mean_around(around: Counter[str], own: Mapping[str, int]) -> float:
    links = around.total()
    return sum(own[name] * count for name, count in around.items()) / links if links else 0.0


def typical_hosts(counts: Iterable[int]) -> int:
    """How many hosts' ports the switch has on which the median port hangs."""
    ordered = sorted(counts)
    half = sum(ordered) / 2
    below = 0
    for count in ordered:
        below += count
        if below >= half:
            return count
    return 0


def neighbours_belong_together(cabling: Cabling, name: str, strong: set[str]) -> bool:
    """Switches above a leaf serve the same leaves; each around a core another block of them."""
    served = [strong.intersection(cabling.between[other]) for other in cabling.between[name]]
    if not served:
        return True
    alike = sum(1 for leaves in served if leaves & served[0] or not (leaves or served[0]))
    return 2 * alike > len(served)


def spread(cabling: Cabling, tiers: dict[str, int], rise: int) -> None:
    """The lowest neighbour's tier plus ``rise``; each round gives one its tier, or is the last."""
    frontier = list(tiers)
    while frontier:
        reached: dict[str, int] = {}
        for name in frontier:
            for other in cabling.between[name]:
                if other not in tiers:
                    tier = tiers[name] + rise
                    reached[other] = min(tier, reached.get(other, tier))
        tiers.update(reached)
        frontier = list(reached)


# --- rails and pods -----------------------------------------------------------------------------


def rails_of(topology: Topology, cabling: Cabling, leaves: Iterable[str]) -> dict[str, int]:
    """The rail of each leaf, where most of its NICs are of one; nothing in a fabric without."""
    counted = {name: count_rails(topology, cabling.ports_at[name]) for name in leaves}
    total = sum(rails.total() for rails in counted.values())
    aligned = sum(max(rails.values(), default=0) for rails in counted.values())
    if not total or aligned < RAILS_SHARE * total:
        return {}
    found: dict[str, int] = {}
    for name, rails in counted.items():
        for rail, count in rails.items():
            if 2 * count > rails.total():
                found[name] = rail
    return found


def count_rails(topology: Topology, ports: Iterable[PortId]) -> Counter[int]:
    rails = (topology.ports[port].rail for port in ports)
    return Counter(rail for rail in rails if rail is not None)


def pods_of(cabling: Cabling, leaves: Iterable[str]) -> dict[str, int]:
    """The pod of each leaf that serves its hosts together with others, numbered by name."""
    groups = [group for group in leaf_groups(cabling, leaves) if len(group) > 1]
    return {name: pod for pod, group in enumerate(groups) for name in group}


def leaf_groups(cabling: Cabling, leaves: Iterable[str]) -> list[list[str]]:
    """Leaves in groups that serve the same hosts: the rails of a pod, or a rack's leaf alone."""
    tied = {name: Counter(port.host for port in cabling.ports_at[name]) for name in leaves}
    return alike_groups(tied)
