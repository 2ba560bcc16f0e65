"""The topology at one moment, out of the inventory and, where there is one, a file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from api.base.quarantine import Quarantine
from api.data.inventory.records import (
    DeviceKind,
    FabricDevice,
    FabricEnd,
    FabricPort,
    FabricRows,
    Host,
    HostRole,
)
from api.fabric.directory import EndFact, NicFact, PortFact, SwitchFact
from api.fabric.model import Conflict, Link, Node, NodeKind, Port, Topology, make_topology
from api.fabric.rails import NicPlace, rails_of
from api.fabric.resolve import Resolved, other_end, resolve
from collector.contract.identity import PortId, odd_part

if TYPE_CHECKING:  # it brings SQLAlchemy, which `diagnose` does not need
    from api.data.inventory.links import LinkTables

STATE_BELIEVED: Final = dt.timedelta(minutes=10)
"""The state of a port that was not reported for this long is unknown. The service refreshes states
in the inventory every minute, for ports with samples within five."""

ROAD: Final = "topology"
"""Under which the quarantine has rows of the inventory that topologies leave out."""

DevicePlace = tuple[str, str]
Row = TypeVar("Row")


def read_topology(
    links: LinkTables,
    at: dt.datetime | None = None,
    extra: Topology | None = None,
    *,
    now: dt.datetime | None = None,
) -> Topology:
    """The topology now or at a moment of the past.

    Of the past only cables, ports and nodes are known: states and rates are None. ``extra`` is the
    file's topology; an observed cable outranks the file's.
    """
    moment = at or now or dt.datetime.now(dt.UTC)
    rows = links.fabric(moment, is_now=at is None)
    return merged(build(rows, moment, links.quarantine, is_now=at is None), extra)


def build(
    rows: FabricRows, moment: dt.datetime, quarantine: Quarantine, *, is_now: bool
) -> Topology:
    rows = sound_rows(rows, quarantine)
    devices = {
        (device.host, device.device): device
        for device in rows.devices
        if device.kind != DeviceKind.NIC
    }
    facts = [port_fact(port, devices, moment if is_now else None) for port in rows.ports]
    resolved = resolve(
        (end_fact(row) for row in rows.ends),
        facts,
        nic_facts(rows),
        switch_facts(rows),
        lambda end, error: quarantine.put(ROAD, "a cable names no port", f"{error}: {end}"),
    )
    rails = find_rails(devices, rows.ports, resolved.links)
    ports = (
        make_port(fact, record, rails)
        for fact, record in zip(facts, rows.ports, strict=True)
        if fact.id not in resolved.aliases
    )
    nodes = (make_node(host) for host in rows.hosts)
    return make_topology(
        moment,
        [*resolved.unknown, *nodes],
        [*ports, *interface_ports(rows, resolved)],
        resolved.links,
        resolved.conflicts,
    )


def sound_rows(rows: FabricRows, quarantine: Quarantine) -> FabricRows:
    """The rows whose names can be identities; the others are noted, and hide none of these."""

    def sound(what: str, given: list[Row], *names: str) -> list[Row]:
        found = []
        for row in given:
            parts = [getattr(row, name) for name in names]
            if all(map(str.isprintable, parts)) and all(parts):
                found.append(row)
            else:
                quarantine.put(ROAD, f"{what}: {odd_part(names, parts)}", str(parts))
        return found

    return FabricRows(
        sound("a host", rows.hosts, "host"),
        sound("a device", rows.devices, "host", "device"),
        sound("a port", rows.ports, "host", "device", "port"),
        sound("a cable's end", rows.ends, "host", "device", "port"),
    )


# --- facts --------------------------------------------------------------------------------------


def end_fact(row: FabricEnd) -> EndFact:
    return EndFact(
        port=PortId(row.host, row.device, row.port),
        method=row.method,
        peer_name=row.peer_name,
        peer_port=row.peer_port,
        peer_guid=row.peer_guid,
        peer_chassis=row.peer_chassis,
        peer_port_id=row.peer_port_id,
        since=row.since,
        last_seen=row.last_seen,
    )


def port_fact(
    port: FabricPort, devices: dict[DevicePlace, FabricDevice], now: dt.datetime | None
) -> PortFact:
    """A port of the inventory; its state only if it was reported within STATE_BELIEVED."""
    device = devices.get((port.host, port.device))
    about = device.attributes if device is not None else {}
    is_fresh = now is not None and port.last_seen >= now - STATE_BELIEVED
    return PortFact(
        id=PortId(port.host, port.device, port.port),
        netdev=port.netdev or "",
        node_guid=about.get("node_guid", ""),
        description=port.description or "",
        is_local=bool(device is not None and (device.driver or about.get("pci_path"))),
        state=port.state if is_fresh else None,
        rate_bits_per_second=port.rate_bits_per_second if is_fresh else None,
    )


def nic_facts(rows: FabricRows) -> Iterator[NicFact]:
    for device in rows.devices:
        address = device.attributes.get("address")
        if device.kind == DeviceKind.NIC and address:
            yield NicFact(host=device.host, device=device.device, address=address)


def switch_facts(rows: FabricRows) -> Iterator[SwitchFact]:
    for host in rows.hosts:
        if host.role == HostRole.SWITCH:
            yield SwitchFact(name=host.host, guid=host.attributes.get("guid", ""))


# --- nodes, ports and rails ---------------------------------------------------------------------


def make_node(host: Host) -> Node:
    kind = NodeKind.SWITCH if host.role == HostRole.SWITCH else NodeKind.HOST
    cluster = {"cluster": host.cluster} if host.cluster else {}
    return Node(name=host.host, kind=kind, attributes={**host.attributes, **cluster})


def make_port(fact: PortFact, record: FabricPort, rails: dict[DevicePlace, int]) -> Port:
    return Port(
        id=fact.id,
        state=fact.state,
        rate_bits_per_second=fact.rate_bits_per_second,
        rail=rails.get((fact.id.host, fact.id.device)),
        guid=record.guid,
        netdev=record.netdev,
    )


def interface_ports(rows: FabricRows, resolved: Resolved) -> Iterator[Port]:
    """The cabled ports that are network interfaces without an RDMA device."""
    known = {(port.host, port.device) for port in rows.ports}
    nics = {(nic.host, nic.device) for nic in rows.devices if nic.kind == DeviceKind.NIC}
    for link in resolved.links:
        for end in (link.id.a, link.id.b):
            place = (end.host, end.device)
            if place in nics and place not in known:
                yield Port(id=end, netdev=end.device)


def find_rails(
    devices: dict[DevicePlace, FabricDevice], ports: Iterable[FabricPort], links: Iterable[Link]
) -> dict[DevicePlace, int]:
    cabled = {(end.host, end.device) for link in links for end in (link.id.a, link.id.b)}
    layers = {(port.host, port.device): port.link_layer or "" for port in ports}
    by_host: dict[str, list[NicPlace]] = {}
    for (host, name), device in devices.items():
        if device.kind != DeviceKind.RDMA or (host, name) not in layers:
            continue
        about = device.attributes
        nic = NicPlace(
            device=name,
            pci_path=about.get("pci_path", ""),
            kind=(about.get("board_id", ""), about.get("hca_type", ""), layers[host, name]),
            is_cabled=(host, name) in cabled,
        )
        by_host.setdefault(host, []).append(nic)
    return {
        (host, device): rail
        for host, nics in by_host.items()
        for device, rail in rails_of(nics).items()
    }


# --- a file -------------------------------------------------------------------------------------


def merged(seen: Topology, extra: Topology | None) -> Topology:
    """A port that the file cables otherwise than seen is a conflict with the method `file`."""
    if extra is None:
        return seen
    conflicts = list(seen.conflicts)
    links = dict(seen.links)
    for link in extra.links.values():
        if link.id in links:
            continue
        taken = [port for port in (link.id.a, link.id.b) if port in seen.link_of]
        for port in taken:
            instead = seen.other_end(port)
            assert instead is not None
            conflict = Conflict(
                port=other_end(link.id, port),
                names=port,
                named_back=instead,
                methods=link.methods or ("file",),
                last_seen=link.last_seen,
            )
            conflicts.append(conflict)
        if not taken:
            links[link.id] = link
    known = {
        name: node
        for name, node in seen.nodes.items()
        if node.kind is not NodeKind.UNKNOWN or name not in extra.nodes
    }
    ports = dict(extra.ports)
    for name, known_port in seen.ports.items():
        in_file = ports.get(name)
        ports[name] = known_port if in_file is None else filled(known_port, in_file)
    nodes = {**extra.nodes, **known}
    return make_topology(seen.at, nodes.values(), ports.values(), links.values(), conflicts)


def filled(port: Port, other: Port) -> Port:
    missing = {
        name: getattr(other, name)
        for name in Port.__struct_fields__
        if getattr(port, name) is None and getattr(other, name) is not None
    }
    return msgspec.structs.replace(port, **missing) if missing else port
