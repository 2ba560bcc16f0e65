"""Simulated clusters as the service would see them: every cable a link, every NIC a port."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

from api.fabric.model import Link, Node, NodeKind, Port, Topology, make_topology
from collector.contract.identity import LinkId, PortId
from simulator.topology import model as simulated
from simulator.topology.build import ClusterSpec, build

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
RATE = 400_000_000_000
"""Of NDR, the simulator's default."""


def port_of(cluster: simulated.Topology, link: int) -> PortId:
    """The port that a simulated link leaves."""
    node = int(cluster.source[link])
    if node >= 2 * cluster.nics:
        name = cluster.switches[node - 2 * cluster.nics].name
        return PortId(name, name, str(int(cluster.port[link])))
    nic = node % cluster.nics
    host = cluster.host_name(cluster.host_of_nic(nic))
    return PortId(host, cluster.device_name(nic), str(int(cluster.port[link])))


def cable(one: PortId, other: PortId, **changes: object) -> Link:
    """A cable that both ends have seen, and that is up."""
    values: dict[str, object] = {
        "since": AT,
        "last_seen": AT,
        "seen_from": (one, other),
        "is_up": True,
        "rate_bits_per_second": RATE,
    }
    return Link(id=LinkId.between(one, other), **(values | changes))  # type: ignore[arg-type]


def topology_of(cluster: simulated.Topology) -> Topology:
    """The simulated cluster as it is cabled; tiers, rails and pods of switches are left out."""
    first = 2 * cluster.nics
    rate = int(cluster.speed.bits_per_second)
    links = [
        cable(port_of(cluster, link), port_of(cluster, back), rate_bits_per_second=rate)
        for link in range(first, cluster.links)
        if link < (back := int(cluster.reverse[link]))
    ]
    nodes = [Node(name=switch.name, kind=NodeKind.SWITCH) for switch in cluster.switches]
    ports = [
        Port(
            id=port_of(cluster, cluster.up(nic)),
            state="active",
            rate_bits_per_second=rate,
            rail=nic % cluster.nics_per_host,
        )
        for nic in range(cluster.nics)
    ]
    return make_topology(AT, nodes, ports, links)


def simulated_topology(**order: object) -> Topology:
    """The topology of a simulated cluster, by what is ordered."""
    return topology_of(build(ClusterSpec(**order)))  # type: ignore[arg-type]


def changed(
    topology: Topology,
    *,
    without: Iterable[LinkId] = (),
    plus: Iterable[Link] = (),
    alter: Callable[[Link], Link] | None = None,
    ports: Iterable[Port] = (),
) -> Topology:
    """The topology with some cables gone, added or altered, and some ports changed."""
    gone = set(without)
    kept = [link for link in topology.links.values() if link.id not in gone]
    if alter is not None:
        kept = [alter(link) for link in kept]
    said = {**topology.ports, **{port.id: port for port in ports}}
    return make_topology(
        topology.at,
        topology.nodes.values(),
        said.values(),
        [*kept, *plus],
        topology.conflicts,
    )


def recabled(topology: Topology, moves: dict[PortId, PortId]) -> Topology:
    """Each of these ports is cabled to that other one instead; what was there loses its cable."""
    gone = [
        topology.link_of[end].id
        for pair in moves.items()
        for end in pair
        if end in topology.link_of
    ]
    return changed(topology, without=gone, plus=[cable(one, to) for one, to in moves.items()])


def swapped(topology: Topology, one: PortId, other: PortId) -> Topology:
    """Two ports have each other's cables."""
    first, second = topology.other_end(one), topology.other_end(other)
    assert first is not None
    assert second is not None
    return recabled(topology, {one: second, other: first})


def nic(host: int, device: int) -> PortId:
    """The port of a simulated host's NIC."""
    return PortId(f"node{host:04d}", f"mlx5_{device}", "1")


def switch_port(switch: str, port: int | str) -> PortId:
    """A port of a switch."""
    return PortId(switch, switch, str(port))
