"""Cables from LLDP: the neighbour seen at each port (LLDP-MIB, or its second edition).

The tables number local ports in a way of their own, and makers differ in what the number is: an
ifIndex, a bridge port, or a count. So a port is looked up by what the switch reports *about* the
number (its identifier, its description), and only then is the number taken for an ifIndex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from collector.contract.model import Series
from collector.switches.snmp.interfaces import Interface, Interfaces, by_index
from collector.switches.snmp.model import Oid, Session, Value
from collector.switches.snmp.words import mac_of, network_address_of, number_of, text_of

LLDP: Oid = (1, 0, 8802, 1, 1, 2, 1)
LOCAL_CHASSIS_KIND = (*LLDP, 3, 1, 0)
LOCAL_CHASSIS = (*LLDP, 3, 2, 0)
LOCAL_PORT = (*LLDP, 3, 7, 1)
REMOTE = (*LLDP, 4, 1, 1)
REMOTE_V2: Oid = (1, 3, 111, 2, 802, 1, 1, 13, 1, 4, 1, 1)
BRIDGE_PORT_INTERFACE: Oid = (1, 3, 6, 1, 2, 1, 17, 1, 4, 1, 2)

NEIGHBOURS_MAX = 8192
"""Rows of the table of neighbours. A port may have several (a phone and a computer behind it)."""
NEIGHBOURS_OF_PORT_MAX = 8
"""Of one port: a switch that floods LLDP shows all neighbours at every port, and each is a
series."""
INDEX_PARTS = 3
"""Time mark, local port, number of the neighbour."""
LLDP_TABLE = "lldp"

INDEX_DIGITS_MAX = 10
"""Of an ifIndex as a text: it has 31 bits."""

CHASSIS_MAC, CHASSIS_ADDRESS = 4, 5
PORT_ALIAS, PORT_MAC, PORT_ADDRESS, PORT_NAME, PORT_LOCAL = 1, 3, 4, 5, 7
"""LldpChassisIdSubtype and LldpPortIdSubtype (IEEE 802.1AB)."""

UNKNOWN_PORT = "unknown_local_port"
ODD_ROW = "odd_index"
TOO_MANY = "too_many_neighbours"


class Peer(NamedTuple):
    """A neighbour, by its own names."""

    name: str
    port: str
    chassis: str
    port_id: str


class Neighbours(NamedTuple):
    """The neighbours seen at the chosen ports."""

    links: list[Series]
    flaws: Counter[str]
    rows: int
    values: int


def chassis_text(kind: int | None, value: Value | None) -> str:
    if kind == CHASSIS_ADDRESS:
        return network_address_of(value)
    if kind == CHASSIS_MAC:
        return mac_of(value) or text_of(value)
    return text_of(value)


def port_text(kind: int | None, value: Value | None) -> str:
    if kind == PORT_ADDRESS:
        return network_address_of(value)
    if kind == PORT_MAC:
        return mac_of(value) or text_of(value)
    return text_of(value)


def port_name(kind: int | None, identifier: str, description: str) -> str:
    """The neighbour's name for its port.

    An identifier that is a name is better than the description, which often is what an operator
    wrote on the port; an address or a bare number is no name.

    >>> port_name(5, "Ethernet8", "to leaf-3"), port_name(3, "02:00:00:00:00:01", "eth2")
    ('Ethernet8', 'eth2')
    """
    is_name = kind == PORT_NAME or (kind == PORT_LOCAL and not identifier.isdigit())
    if is_name and identifier:
        return identifier
    return description or identifier


async def read_neighbours(session: Session, interfaces: Interfaces, switch: str) -> Neighbours:
    columns = [(*REMOTE, column) for column in (4, 5, 6, 7, 8, 9)]
    walked = await session.walk(columns, NEIGHBOURS_MAX)
    flaws = Counter(flaw.reason.value for flaw in walked.flaws)
    if any(walked.columns.values()):
        local = await _read_local_ports(session, interfaces, flaws)
        rows = _rows([walked.columns.get(column, {}) for column in columns])
        places = {index: local.find(index[1]) for index in rows if len(index) == INDEX_PARTS}
    else:
        columns = [(*REMOTE_V2, column) for column in (5, 6, 7, 8, 9, 10)]
        walked = await session.walk(columns, NEIGHBOURS_MAX)
        flaws.update(flaw.reason.value for flaw in walked.flaws)
        rows = _rows([walked.columns.get(column, {}) for column in columns])
        # The second edition's index is really an ifIndex; the part after it is an address.
        places = {
            index: interfaces.by_index.get(index[1]) for index in rows if len(index) >= INDEX_PARTS
        }
    links = _links(rows, places, switch, flaws)
    return Neighbours(links, flaws, len(rows), sum(map(len, walked.columns.values())))


def _rows(columns: list[Mapping[Oid, Value]]) -> dict[Oid, list[Value | None]]:
    """Rows by index, of columns that may each lack some."""
    indexes = dict.fromkeys(index for column in columns for index in column)
    return {index: [column.get(index) for column in columns] for index in indexes}


def _links(
    rows: Mapping[Oid, list[Value | None]],
    places: Mapping[Oid, Interface | None],
    switch: str,
    flaws: Counter[str],
) -> list[Series]:
    links: dict[Series, None] = {}
    seen: Counter[str] = Counter()
    for index, row in rows.items():
        if index not in places:
            flaws[ODD_ROW] += 1
            continue
        interface = places[index]
        if interface is None:
            flaws[UNKNOWN_PORT] += 1
            continue
        if not interface.is_chosen:
            continue
        series = _series(_peer(row), interface, switch)
        if series in links:
            continue
        seen[interface.name] += 1
        if seen[interface.name] > NEIGHBOURS_OF_PORT_MAX:
            flaws[TOO_MANY] += 1
            continue
        links[series] = None
    return list(links)


def _peer(row: list[Value | None]) -> Peer:
    chassis_kind, chassis, port_kind, port_id, description, name = row
    identifier = port_text(number_of(port_kind), port_id)
    return Peer(
        name=text_of(name),
        port=port_name(number_of(port_kind), identifier, text_of(description)),
        chassis=chassis_text(number_of(chassis_kind), chassis),
        port_id=identifier,
    )


def _series(peer: Peer, interface: Interface, switch: str) -> Series:
    return Series(
        "fabric_link_info",
        {
            "host": switch,
            "device": switch,
            "port": interface.name,
            "method": "lldp",
            "peer_name": peer.name,
            "peer_port": peer.port,
            "peer_chassis": peer.chassis,
            "peer_port_id": peer.port_id,
        },
    )


# Local ports -------------------------------------------------------------------------------------


async def _read_local_ports(
    session: Session, interfaces: Interfaces, flaws: Counter[str]
) -> LocalPorts:
    """The switch's own description of LLDP's port numbers. Raises SnmpError."""
    columns = [(*LOCAL_PORT, column) for column in (2, 3, 4)]
    walked = await session.walk([*columns, BRIDGE_PORT_INTERFACE], NEIGHBOURS_MAX)
    flaws.update(flaw.reason.value for flaw in walked.flaws)
    kinds, identifiers, descriptions = (by_index(walked.columns.get(c, {})) for c in columns)
    found = LocalPorts(interfaces, by_index(walked.columns.get(BRIDGE_PORT_INTERFACE, {})))
    for number in {*kinds, *identifiers, *descriptions}:
        kind = number_of(kinds.get(number))
        identifier = port_text(kind, identifiers.get(number))
        found.describe(number, kind, identifier, text_of(descriptions.get(number)))
    return found


class LocalPorts:
    """The interface behind each of LLDP's numbers."""

    def __init__(self, interfaces: Interfaces, bridge_ports: Mapping[int, Value]) -> None:
        self._interfaces = interfaces
        self._bridge_ports = bridge_ports
        self._described: dict[int, Interface] = {}

    def describe(self, number: int, kind: int | None, identifier: str, description: str) -> None:
        """Find the interface by the switch's description of this number, if that names one."""
        by_text = self._interfaces.by_text
        found = by_text.get(identifier) if kind != PORT_MAC else None
        if found is None and kind == PORT_LOCAL and identifier.isdigit():
            # Junos writes the ifIndex as a text.
            found = self._interfaces.by_index.get(int(identifier[:INDEX_DIGITS_MAX]))
        found = found or by_text.get(description)
        if found is None and kind == PORT_MAC:
            found = self._interfaces.by_address.get(identifier)
        if found is not None:
            self._described[number] = found

    def find(self, number: int) -> Interface | None:
        """The interface of this number: as described, else by ifIndex, else by bridge port."""
        found = self._described.get(number) or self._interfaces.by_index.get(number)
        if found is None:
            index = number_of(self._bridge_ports.get(number))
            found = self._interfaces.by_index.get(index) if index is not None else None
        return found
