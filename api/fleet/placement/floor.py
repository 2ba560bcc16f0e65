"""The fabric as placement sees it: hosts, the leaves of their NICs, what links carry. Pure.

A *slot* is a NIC's place in its host: its rail, or its place by name where rails do not distinguish
NICs. Hosts of a *group* hang on the same leaf with every slot; groups of a *block* reach each
other over the first switches above their leaves. Everything is numbered in natural order of names,
so that whatever is chosen by number is chosen by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.fabric.cabling import natural_port
from api.fabric.graph import Graph, Ints
from api.fabric.model import Link, NodeKind, Port, Topology
from api.fabric.spread import Bools, Doubles, Longs
from collector.contract.identity import NaturalKey, natural

NOWHERE = -1
"""In place of a number: there is none."""

GUESSED_RATE = 1.0
"""Of every link, where no rate is known: shares can be computed then, bits a second cannot."""


@dataclass(frozen=True, eq=False)
class Floor:
    """What is cabled to what, in numbers.

    Links are places in ``graph.links``, switches in ``graph.switches``; a directed link is
    ``2 * link`` from ``a`` to ``b``, and one more from ``b`` to ``a``.
    """

    graph: Graph
    hosts: tuple[str, ...]
    number: dict[str, int]
    nic_link: Ints
    """[host, slot] the live link; NOWHERE: no NIC, no cable, or it is down."""
    nic_leaf: Ints
    """[host, slot] the switch behind it."""
    nic_out: Longs
    """[host, slot] the directed link from the host; the other direction is ``^ 1``."""
    group: Ints
    """[host] NOWHERE where no cable is known."""
    groups: tuple[tuple[int, ...], ...]
    """The leaf of each slot, down or not."""
    group_nics: Doubles
    """[group, slot] bits a second that the best NIC of any of its hosts carries."""
    block: Ints
    """[group]"""
    is_aligned: Bools
    """[host] every NIC is up and on a leaf of its own rail."""
    ends: Ints
    """[link, 2] switches at ``a`` and ``b``; NOWHERE: a host."""
    capacity: Doubles
    """[link] bits a second in each direction."""
    up_capacity: Doubles
    """[switch] of all its live links that lead up; in a flat fabric, to other switches."""
    is_up: Bools
    """[directed link] it is such a link, and leads away from the switch."""
    guessed: int
    """Live links without a known rate."""
    rate_guessed: float
    """The assumed rate of these: the most common one."""

    @property
    def is_known(self) -> bool:
        return bool(self.groups)

    @property
    def has_rates(self) -> bool:
        return self.rate_guessed != GUESSED_RATE

    @property
    def has_rails(self) -> bool:
        nodes = self.graph.topology.nodes
        return any(nodes[name].rail is not None for name in self.graph.switches)

    def leaf_names(self, group: int) -> list[str]:
        leaves = dict.fromkeys(leaf for leaf in self.groups[group] if leaf != NOWHERE)
        return [self.graph.switches[leaf] for leaf in leaves]


def make_floor(graph: Graph, names: Iterable[str] = ()) -> Floor:
    topology = graph.topology
    cabled = (name for name, node in topology.nodes.items() if node.kind is NodeKind.HOST)
    hosts = tuple(sorted({*cabled, *names}, key=natural))
    nics = [slots_of(topology, name) for name in hosts]
    slots = max((slot + 1 for each in nics for slot, _ in each), default=1)
    capacity, guessed, rate = capacities(graph.links)
    nic_link = np.full((len(hosts), slots), NOWHERE, dtype=np.int32)
    nic_leaf, cabled_leaf = nic_link.copy(), nic_link.copy()
    nic_out = np.full((len(hosts), slots), NOWHERE, dtype=np.int64)
    is_aligned = np.zeros(len(hosts), dtype=bool)
    for host, each in enumerate(nics):
        own_rails = 0
        for slot, port in each:
            far = topology.other_end(port.id)
            cabled_leaf[host, slot] = graph.switch_number.get(far.host, NOWHERE) if far else NOWHERE
            if port.id not in graph.attached:
                continue
            leaf, link = graph.attached[port.id]
            nic_leaf[host, slot], nic_link[host, slot] = leaf, link
            nic_out[host, slot] = 2 * link + (graph.links[link].id.b == port.id)
            rail = topology.nodes[graph.switches[leaf]].rail
            own_rails += rail is not None and rail == port.rail
        is_aligned[host] = bool(each) and own_rails == len(each)
    group, groups = group_hosts(graph, cabled_leaf)
    up_capacity, is_up = uplinks(graph, capacity)
    return Floor(
        graph=graph,
        hosts=hosts,
        number={name: place for place, name in enumerate(hosts)},
        nic_link=nic_link,
        nic_leaf=nic_leaf,
        nic_out=nic_out,
        group=group,
        groups=groups,
        group_nics=best_nics(np.append(capacity, 0.0)[nic_link], group, len(groups)),
        block=blocks_of(graph, groups),
        is_aligned=is_aligned,
        ends=ends_of(graph),
        capacity=capacity,
        up_capacity=up_capacity,
        is_up=is_up,
        guessed=guessed,
        rate_guessed=rate,
    )


def slots_of(topology: Topology, host: str) -> list[tuple[int, Port]]:
    """The NICs of a host that are in the fabric, or should be, each with its slot."""
    ports = [
        port
        for port in topology.ports_of.get(host, ())
        if port.rail is not None or is_on_switch(topology, port)
    ]
    ports.sort(key=lambda port: (port.rail is None, port.rail or 0, natural_port(port.id)))
    rails = [port.rail for port in ports if port.rail is not None]
    if len(set(rails)) == len(ports):
        return list(zip(rails, ports, strict=True))
    return list(enumerate(ports))


def is_on_switch(topology: Topology, port: Port) -> bool:
    far = topology.other_end(port.id)
    return far is not None and topology.nodes[far.host].kind is NodeKind.SWITCH


def capacities(links: Sequence[Link]) -> tuple[Doubles, int, float]:
    """What each link carries, how many rates were guessed, and as what: the most common one."""
    rates = [link.rate_bits_per_second or 0 for link in links]
    counted = Counter(rate for rate in rates if rate > 0)
    guess = float(max(counted, key=lambda rate: (counted[rate], rate))) if counted else GUESSED_RATE
    down = np.array([link.is_up is False for link in links], dtype=bool)
    known = np.array(rates, dtype=np.float64)
    capacity = np.where(down, 0.0, np.where(known > 0, known, guess))
    return capacity, int(((known <= 0) & ~down).sum()), guess


def ends_of(graph: Graph) -> Ints:
    number = graph.switch_number
    ends = [
        (number.get(link.id.a.host, NOWHERE), number.get(link.id.b.host, NOWHERE))
        for link in graph.links
    ]
    return np.array(ends, dtype=np.int32).reshape(-1, 2)


def uplinks(graph: Graph, capacity: Doubles) -> tuple[Doubles, NDArray[np.bool_]]:
    """What the links carry that lead up from each switch, and which directed links these are."""
    rising = graph.rising
    link = graph.bundled[: int(rising.count.sum())]
    source = np.repeat(rising.source, rising.count)
    total = np.bincount(source, capacity[link], len(graph.switches))
    is_up = np.zeros(2 * len(graph.links), dtype=bool)
    at_a = ends_of(graph)[link, 0] == source
    is_up[2 * link.astype(np.int64) + ~at_a] = True
    return total.astype(np.float64), is_up


def group_hosts(graph: Graph, cabled_leaf: Ints) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    keys = [tuple(row) for row in cabled_leaf.tolist()]
    known = {key for key in keys if max(key, default=NOWHERE) != NOWHERE}

    def by_name(key: tuple[int, ...]) -> list[NaturalKey]:
        return [natural(graph.switches[leaf]) if leaf != NOWHERE else () for leaf in key]

    # By names: numbers of switches depend on the order in which they were discovered.
    groups = tuple(sorted(known, key=by_name))
    number = {key: place for place, key in enumerate(groups)}
    return np.array([number.get(key, NOWHERE) for key in keys], dtype=np.int32), groups


def best_nics(carried: Doubles, group: Ints, groups: int) -> Doubles:
    """What the best NIC of each group carries, by slot; ``carried`` is by host and slot."""
    found = np.zeros((groups, carried.shape[1]))
    is_somewhere = group != NOWHERE
    np.maximum.at(found, group[is_somewhere], carried[is_somewhere])
    return found


def blocks_of(graph: Graph, groups: Sequence[tuple[int, ...]]) -> Ints:
    """The block of each group: those that share a switch right above their leaves, joined."""
    found = np.arange(len(groups), dtype=np.int32)
    first_at: dict[int, int] = {}

    def root(group: int) -> int:
        while found[group] != group:
            found[group] = found[found[group]]
            group = int(found[group])
        return group

    rising = graph.rising
    for group, leaves in enumerate(groups):
        for leaf in {leaf for leaf in leaves if leaf != NOWHERE}:
            above = rising.target[rising.start[leaf] : rising.start[leaf + 1]].tolist()
            for switch in (leaf, *above):
                one, other = root(first_at.setdefault(switch, group)), root(group)
                found[max(one, other)] = min(one, other)
    return np.array([root(group) for group in range(len(groups))], dtype=np.int32)
