"""The terms of a topology: nodes, ports, links. Pure data.

A node is a host or a switch, by its name. A port is a `PortId`: of a host its RDMA device's port
(`node-0/mlx5_0/1`), or `node-0/eth2/1` where an interface has no RDMA device; of a switch
`leaf-0/leaf-0/Ethernet4`, because a switch is a host whose device is the switch itself.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from collector.contract.identity import LinkId, PortId


class NodeKind(enum.StrEnum):
    """What a node is."""

    HOST = "host"
    SWITCH = "switch"
    UNKNOWN = "unknown"
    """A neighbour of which only a name, an address or a GUID is known."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A host or a switch. ``tier`` counts from 0, where hosts hang; hosts have none."""

    name: str
    kind: NodeKind
    tier: int | None = None
    rail: int | None = None
    """Of a leaf: the rail of all its hosts' NICs, if they have one in common."""
    pod: int | None = None
    """Of a leaf: leaves with one number serve the same hosts. None where a leaf has its own."""
    attributes: dict[str, str] = {}


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port that has a link, had one, or should have one."""

    id: PortId
    state: str | None = None
    """A state of `fabric_port_state`: "active", "down", …"""
    rate_bits_per_second: int | None = None
    rail: int | None = None
    """Of a host's NIC: its place among the host's NICs in PCI order, from 0."""
    guid: str | None = None
    netdev: str | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A cable between two ports, and the ends that report it."""

    id: LinkId
    since: dt.datetime
    """Since when it is cabled like this, as far as is known."""
    last_seen: dt.datetime
    seen_from: tuple[PortId, ...]
    """The ends that name the other one. One end alone is normal for a host without LLDP."""
    methods: tuple[str, ...] = ()
    is_up: bool | None = None
    """None: no end reports it."""
    rate_bits_per_second: int | None = None
    """The lower of both ends', where known."""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two ends that contradict each other: one names a port that names another neighbour."""

    port: PortId
    """The end that is contradicted."""
    names: PortId
    """The neighbour that it names."""
    named_back: PortId
    """The port that this neighbour names instead."""
    methods: tuple[str, ...] = ()
    last_seen: dt.datetime


class Topology(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The nodes, ports and links at one moment."""

    at: dt.datetime
    nodes: Mapping[str, Node]
    ports: Mapping[PortId, Port]
    links: Mapping[LinkId, Link]
    conflicts: tuple[Conflict, ...] = ()

    @cached_property
    def neighbours(self) -> dict[str, list[Link]]:
        found: dict[str, list[Link]] = {name: [] for name in self.nodes}
        for link in sorted(self.links.values(), key=lambda link: link.id):
            for end in (link.id.a, link.id.b):
                found.setdefault(end.host, []).append(link)
        return found

    @cached_property
    def link_of(self) -> dict[PortId, Link]:
        """The link at each port. A port with two reported links has the one seen last."""
        found: dict[PortId, Link] = {}
        for link in sorted(self.links.values(), key=lambda link: (link.last_seen, link.id)):
            found[link.id.a] = found[link.id.b] = link
        return found

    @cached_property
    def ports_of(self) -> dict[str, list[Port]]:
        found: dict[str, list[Port]] = {}
        for port in self.ports.values():
            found.setdefault(port.id.host, []).append(port)
        return found

    def other_end(self, port: PortId) -> PortId | None:
        link = self.link_of.get(port)
        if link is None:
            return None
        return link.id.b if link.id.a == port else link.id.a


def make_topology(
    at: dt.datetime,
    nodes: Iterable[Node],
    ports: Iterable[Port],
    links: Iterable[Link],
    conflicts: Iterable[Conflict] = (),
) -> Topology:
    """A node or port that only a link names is created from its name."""
    kept_nodes = {node.name: node for node in nodes}
    kept_ports = {port.id: port for port in ports}
    kept_links = {link.id: link for link in links}
    for link in kept_links.values():
        for end in (link.id.a, link.id.b):
            kept_ports.setdefault(end, Port(id=end))
            kind = NodeKind.SWITCH if end.host == end.device else NodeKind.HOST
            kept_nodes.setdefault(end.host, Node(name=end.host, kind=kind))
    return Topology(
        at=at, nodes=kept_nodes, ports=kept_ports, links=kept_links, conflicts=tuple(conflicts)
    )
