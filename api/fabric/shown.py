"""A topology as JSON; fields are only ever added, unknown values are null. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice

import msgspec

from api.fabric.model import Conflict, Link, Node, NodeKind, Port, Topology
from collector.contract.identity import PortId

TAG_BYTES = 12
"""Of a digest of everything: two topologies share one by chance once in 10^28."""


PIECE_ITEMS = 1_000
"""Nodes, ports or links that are sent together: about 400 KiB."""


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A host or a switch."""

    name: str
    kind: NodeKind
    tier: int | None
    rail: int | None
    pod: int | None
    attributes: dict[str, str]


class PortShown(msgspec.Struct, frozen=True, kw_only=True):
    """A port. ``link`` is the link at it, if there is one."""

    id: str
    host: str
    device: str
    port: str
    state: str | None
    rate_bits_per_second: int | None
    rail: int | None
    guid: str | None
    netdev: str | None
    link: str | None


class LinkShown(msgspec.Struct, frozen=True, kw_only=True):
    """A cable and its two ends."""

    id: str
    a: str
    b: str
    since: dt.datetime
    last_seen: dt.datetime
    seen_from: list[str]
    methods: list[str]
    is_up: bool | None
    rate_bits_per_second: int | None


class ConflictShown(msgspec.Struct, frozen=True, kw_only=True):
    """Two ends that contradict each other."""

    port: str
    names: str
    named_back: str
    methods: list[str]
    last_seen: dt.datetime


class TopologyShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is cabled to what at a moment."""

    at: dt.datetime
    nodes: list[NodeShown]
    ports: list[PortShown]
    links: list[LinkShown]
    conflicts: list[ConflictShown]


Shown = NodeShown | PortShown | LinkShown | ConflictShown


def write_json(topology: Topology) -> Iterator[bytes]:
    """The whole topology as a `TopologyShown`, in pieces: a large one is never whole in memory."""
    yield b'{"at":' + msgspec.json.encode(topology.at)
    lists: dict[str, Iterator[Shown]] = {
        "nodes": (show_node(node) for node in topology.nodes.values()),
        "ports": (show_port(topology, port) for port in topology.ports.values()),
        "links": (show_link(link) for link in topology.links.values()),
        "conflicts": (show_conflict(each) for each in topology.conflicts),
    }
    for name, items in lists.items():
        yield b',"%s":[' % name.encode()
        mark = b""
        while some := list(islice(items, PIECE_ITEMS)):
            yield mark + msgspec.json.encode(some)[1:-1]
            mark = b","
        yield b"]"
    yield b"}"


def show_conflict(conflict: Conflict) -> ConflictShown:
    return ConflictShown(
        port=str(conflict.port),
        names=str(conflict.names),
        named_back=str(conflict.named_back),
        methods=list(conflict.methods),
        last_seen=conflict.last_seen,
    )


def show_node(node: Node) -> NodeShown:
    return NodeShown(**msgspec.structs.asdict(node))


def show_port(topology: Topology, port: Port) -> PortShown:
    link = topology.link_of.get(port.id)
    return PortShown(
        id=str(port.id),
        host=port.id.host,
        device=port.id.device,
        port=port.id.port,
        state=port.state,
        rate_bits_per_second=port.rate_bits_per_second,
        rail=port.rail,
        guid=port.guid,
        netdev=port.netdev,
        link=None if link is None else str(link.id),
    )


def show_link(link: Link) -> LinkShown:
    return LinkShown(
        id=str(link.id),
        a=str(link.id.a),
        b=str(link.id.b),
        since=link.since,
        last_seen=link.last_seen,
        seen_from=[str(end) for end in link.seen_from],
        methods=list(link.methods),
        is_up=link.is_up,
        rate_bits_per_second=link.rate_bits_per_second,
    )


def part_of(topology: Topology, nodes: Iterable[str]) -> Topology:
    """The links that touch these nodes, with both ends, and the nodes' own ports."""
    chosen = set(nodes)
    links = {link.id: link for name in chosen for link in topology.neighbours.get(name, ())}
    ends = {end for link in links.values() for end in (link.id.a, link.id.b)}
    kept = chosen | {end.host for end in ends}
    return Topology(
        at=topology.at,
        nodes={name: node for name, node in topology.nodes.items() if name in kept},
        ports={
            port: known
            for port, known in topology.ports.items()
            if port in ends or port.host in chosen
        },
        links={link: links[link] for link in sorted(links)},
        conflicts=tuple(
            each for each in topology.conflicts if {each.port.host, each.names.host} & chosen
        ),
    )


def tag_of(topology: Topology) -> str:
    """Changes with cables, names and states; not with when a link was last seen."""
    digest = blake2b(digest_size=TAG_BYTES)
    for node in topology.nodes.values():
        digest.update(repr((node.name, node.kind, node.tier, node.rail, node.pod)).encode())
        digest.update(repr(sorted(node.attributes.items())).encode())
    for port in topology.ports.values():
        known = (port.state, port.rate_bits_per_second, port.rail, port.guid, port.netdev)
        digest.update(repr((names_of(port.id), known)).encode())
    for link in topology.links.values():
        known_link = (link.is_up, link.rate_bits_per_second, link.since, link.methods)
        ends = [names_of(end) for end in (link.id.a, link.id.b, *link.seen_from)]
        digest.update(repr((ends, known_link)).encode())
    for each in topology.conflicts:
        ends = [names_of(end) for end in (each.port, each.names, each.named_back)]
        digest.update(repr(ends).encode())
    return digest.hexdigest()


def names_of(port: PortId) -> tuple[str, str, str]:
    return port.host, port.device, port.port
