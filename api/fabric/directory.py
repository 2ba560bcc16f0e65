"""Resolves a port's report of its neighbour to a port of the inventory. Pure.

InfiniBand identifies a node by its GUID and a port by its number. LLDP leaves the choice to the
sender: a switch sends its own name and a port's name, a host the MAC of the port, with a name that
may be short or long; a network card's firmware sends a MAC and no name. So identifiers that are
certain are tried first (GUID, MAC), then names, and an unknown neighbour gets a node of its own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from collector.contract.identity import PortId

GUID_DIGITS: Final = 16
MAC_DIGITS: Final = 12
FIRST_PORT: Final = "1"
"""The port of an interface that is no RDMA device's, and of most RDMA devices."""
NAMES_CACHED_MAX: Final = 16_384
"""Parsed names that are cached: all neighbours of a node look it up, and switches of one make name
their ports alike."""

_HEX = "0123456789abcdef"
_MARKS = str.maketrans("", "", ":. -")
"""Separators between the digits of addresses."""
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_INTERFACE = re.compile(r"([a-z][a-z_. -]*?)[ -]?(\d[\d/:.,-]*)")

_HCA = re.compile(r"(?P<host>\S+) (?P<device>(?:mlx[45]|hfi1|qib|rxe|siw)_\d+)")
"""How rdma-ndd(8) of rdma-core describes an HCA by default, "%h %d", where the device has the
kernel's own name."""


class EndFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One port's report of its neighbour by one method; empty: not reported."""

    port: PortId
    method: str
    peer_name: str = ""
    peer_port: str = ""
    peer_guid: str = ""
    peer_chassis: str = ""
    peer_port_id: str = ""
    since: datetime
    last_seen: datetime


class PortFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A port that the inventory knows."""

    id: PortId
    netdev: str = ""
    node_guid: str = ""
    description: str = ""
    is_local: bool = False
    """The host's own agent reports it, so its name is the one used on that host."""
    state: str | None = None
    rate_bits_per_second: int | None = None


class NicFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A network interface of a host and its MAC."""

    host: str
    device: str
    address: str


class SwitchFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A switch that an agent polls."""

    name: str
    guid: str = ""


class Found(NamedTuple):
    """The port that an end names, and whether the inventory has its node."""

    port: PortId
    is_known: bool


Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", bound=Hashable)


class Unique(Generic[Key, Thing]):
    """An index that finds only unambiguous keys."""

    def __init__(self) -> None:
        self._things: dict[Key, Thing | None] = {}

    def add(self, key: Key, thing: Thing) -> None:
        if self._things.setdefault(key, thing) != thing:
            self._things[key] = None

    def get(self, key: Key) -> Thing | None:
        return self._things.get(key)


def as_guid(text: str) -> str:
    """A GUID as 16 digits; empty if it is none, or all zeros, as software devices have.

    >>> as_guid("0x0002c903000e0b72"), as_guid("0002:c903:000e:0b72"), as_guid("0x0")
    ('0002c903000e0b72', '0002c903000e0b72', '')
    """
    lowered = text.strip().lower()
    digits = lowered.translate(_MARKS)
    if digits.startswith("0x"):
        digits = digits[2:].rjust(GUID_DIGITS, "0")
    return digits if len(digits) == GUID_DIGITS and is_hex(digits) else ""


def as_mac(text: str) -> str:
    """A MAC as 12 digits, however it is written; empty if it is none.

    >>> as_mac("02:00:00:00:00:0A"), as_mac("0200.0000.000a"), as_mac("Ethernet4")
    ('02000000000a', '02000000000a', '')
    """
    digits = text.translate(_MARKS)
    if len(digits) != MAC_DIGITS:
        return ""
    digits = digits.lower()
    # Twelve decimal digits without a mark between them are rather a serial number.
    is_marked = len(text) > MAC_DIGITS or not digits.isdigit()
    return digits if is_marked and is_hex(digits) else ""


def is_hex(digits: str) -> bool:
    """Whether these are hexadecimal digits and not all zeros."""
    return not digits.strip(_HEX) and bool(digits.strip("0"))


@lru_cache(maxsize=NAMES_CACHED_MAX)
def short_name(name: str) -> str:
    """A host's name without its domain; addresses have none.

    >>> short_name("Leaf-0.dc1.example.com"), short_name("10.0.0.7"), short_name("node-1")
    ('leaf-0', '10.0.0.7', 'node-1')
    """
    lowered = name.strip().lower()
    return lowered if _ADDRESS.fullmatch(lowered) else lowered.partition(".")[0]


@lru_cache(maxsize=NAMES_CACHED_MAX)
def interface_parts(name: str) -> tuple[str, str] | None:
    """What sort of interface, and which: two names of one differ in how the first is abbreviated.

    >>> interface_parts("Ethernet1/1"), interface_parts("Eth 1/1"), interface_parts("17")
    (('ethernet', '1/1'), ('eth', '1/1'), None)
    """
    found = _INTERFACE.fullmatch(name.strip().lower())
    return (found[1].strip(), found[2]) if found else None


class Directory:
    """Everything that the inventory knows, by every name that a neighbour may use for it."""

    def __init__(
        self,
        ports: Iterable[PortFact],
        nics: Iterable[NicFact],
        switches: Iterable[SwitchFact],
        ends: Iterable[EndFact],
    ) -> None:
        self._aliases: dict[PortId, PortId] = {}
        self._nodes: set[str] = set()
        self._switches: set[str] = set()
        self._by_guid: Unique[str, tuple[str, str]] = Unique()
        """Node GUID to host and device."""
        self._by_mac: Unique[str, PortId] = Unique()
        self._by_chassis: Unique[str, str] = Unique()
        self._by_name: Unique[str, str] = Unique()
        self._by_short_name: Unique[str, str] = Unique()
        self._port_names: dict[str, Unique[str, PortId]] = {}
        self._descriptions: dict[str, Unique[str, PortId]] = {}
        self._device_ports: dict[tuple[str, str], dict[str, PortId]] = {}
        self._add_switches(switches)
        rdma_ports = self._add_ports(list(ports))
        self._add_nics(nics, rdma_ports)
        self._add_tellers(ends)

    # --- what is known -------------------------------------------------------------------------

    def _add_node(self, name: str) -> None:
        if name in self._nodes:
            return
        self._nodes.add(name)
        self._by_name.add(name.lower(), name)
        self._by_short_name.add(short_name(name), name)

    def _add_switches(self, switches: Iterable[SwitchFact]) -> None:
        for switch in switches:
            self._switches.add(switch.name)
            self._add_node(switch.name)
            if guid := as_guid(switch.guid):
                self._by_guid.add(guid, (switch.name, switch.name))

    def _add_ports(self, ports: list[PortFact]) -> dict[tuple[str, str], PortId]:
        """A poller's own name for an HCA becomes an alias of the port with the same GUID."""
        behind: dict[tuple[str, str], PortId] = {}
        local: Unique[tuple[str, str], PortId] = Unique()
        for fact in ports:
            if fact.is_local and (guid := as_guid(fact.node_guid)):
                local.add((guid, fact.id.port), fact.id)
        for fact in ports:
            host, device, port = fact.id.host, fact.id.device, fact.id.port
            guid = as_guid(fact.node_guid)
            known = local.get((guid, port)) if guid and not fact.is_local else None
            if known is not None:
                self._aliases[fact.id] = known
                continue
            if host == device:
                self._switches.add(host)
            self._add_node(host)
            self._device_ports.setdefault((host, device), {})[port] = fact.id
            if guid:
                self._by_guid.add(guid, (host, device))
            if fact.netdev:
                behind[host, fact.netdev] = fact.id
            self._add_port_names(fact)
        return behind

    def _add_port_names(self, fact: PortFact) -> None:
        """Index the names that a neighbour may use for a port within its node."""
        names = self._port_names.setdefault(fact.id.host, Unique())
        if fact.id.host == fact.id.device:
            names.add(fact.id.port.lower(), fact.id)
        else:
            for name in filter(None, (fact.netdev, fact.id.device)):
                names.add(name.lower(), fact.id)
        if fact.description:
            described = self._descriptions.setdefault(fact.id.host, Unique())
            described.add(fact.description.lower(), fact.id)

    def _add_nics(self, nics: Iterable[NicFact], behind: dict[tuple[str, str], PortId]) -> None:
        """Index interfaces. Of those of one host that share a MAC, the one with RDMA is meant."""
        plain: list[tuple[str, PortId]] = []
        with_rdma: set[tuple[str, str]] = set()
        for nic in nics:
            self._add_node(nic.host)
            mac = as_mac(nic.address)
            port = behind.get((nic.host, nic.device))
            if port is not None and mac:
                with_rdma.add((nic.host, mac))
                self._by_mac.add(mac, port)
            elif port is None:
                itself = PortId(nic.host, nic.device, FIRST_PORT)
                names = self._port_names.setdefault(nic.host, Unique())
                names.add(nic.device.lower(), itself)
                plain.append((mac, itself))
        for mac, itself in plain:
            if mac and (itself.host, mac) not in with_rdma:
                self._by_mac.add(mac, itself)

    def _add_tellers(self, ends: Iterable[EndFact]) -> None:
        """Index the reporting nodes, and chassis that are reported with a known name."""
        reported_pairs: dict[tuple[str, str], None] = {}
        for end in ends:
            self._add_node(end.port.host)
            if end.port.host == end.port.device:
                self._switches.add(end.port.host)
            if end.peer_chassis and end.peer_name:
                reported_pairs[end.peer_chassis, end.peer_name] = None
        for chassis, name in reported_pairs:
            if (node := self._node_of_name(name)) is not None:
                self._by_chassis.add(as_mac(chassis) or chassis.lower(), node)

    @property
    def aliases(self) -> frozenset[PortId]:
        """Names that pollers have for ports which have a better one."""
        return frozenset(self._aliases)

    # --- look-up -------------------------------------------------------------------------------

    def itself(self, port: PortId) -> PortId:
        """The port under the name used on its own host."""
        return self._aliases.get(port, port)

    def find(self, end: EndFact) -> Found:
        found = self._by_hardware(end)
        if found is not None:
            return Found(self.itself(found), is_known=True)
        node = self._node_of(end)
        if node is None:
            machine = unknown_port(end)
            return Found(self.itself(machine), is_known=machine.host in self._nodes)
        port = self._port_of(node, end)
        if port is None and not end.peer_name and (mac := as_mac(end.peer_chassis)):
            port = self._by_mac.get(mac)  # the firmware of a network card reports itself
        if port is None:
            port = made_up_port(node, end, is_switch=node in self._switches)
        return Found(self.itself(port), is_known=True)

    def _by_hardware(self, end: EndFact) -> PortId | None:
        """By what no configuration changes: a GUID with a port's number, or a port's MAC."""
        if end.peer_guid and (place := self._by_guid.get(as_guid(end.peer_guid))):
            ports = self._device_ports.get(place, {})
            if end.peer_port in ports:
                return ports[end.peer_port]
            if len(ports) == 1 and place[0] not in self._switches:
                return next(iter(ports.values()))
            return PortId(*place, end.peer_port) if end.peer_port else None
        for text in (end.peer_port_id, end.peer_port):
            if (mac := as_mac(text)) and (port := self._by_mac.get(mac)) is not None:
                return port
        return None

    def _node_of(self, end: EndFact) -> str | None:
        if end.peer_name and (node := self._node_of_name(end.peer_name)) is not None:
            return node
        if not end.peer_chassis:
            return None
        mac = as_mac(end.peer_chassis)
        if (node := self._by_chassis.get(mac or end.peer_chassis.lower())) is not None:
            return node
        port = self._by_mac.get(mac) if mac else None
        return None if port is None else port.host

    def _node_of_name(self, name: str) -> str | None:
        """The node of a name: as it is written, else without domains if that is clear."""
        whole = self._by_name.get(name.strip().lower())
        return whole if whole is not None else self._by_short_name.get(short_name(name))

    def _port_of(self, node: str, end: EndFact) -> PortId | None:
        """The port of a node that an end names, by name, description or an abbreviation."""
        texts = [text.strip().lower() for text in (end.peer_port_id, end.peer_port) if text]
        for index in (self._port_names.get(node), self._descriptions.get(node)):
            for text in texts:
                if index is not None and (port := index.get(text)) is not None:
                    return port
        for text in texts:
            if (port := self._abbreviated(node, text)) is not None:
                return port
        return None

    def _abbreviated(self, node: str, text: str) -> PortId | None:
        """The one port of a switch whose name begins like this one and has the same number."""
        parts = interface_parts(text)
        if parts is None:
            return None
        candidates = []
        for name, port in self._device_ports.get((node, node), {}).items():
            other = interface_parts(name)
            if other is not None and other[1] == parts[1]:
                begins_alike = other[0].startswith(parts[0]) or parts[0].startswith(other[0])
                candidates += [port] if begins_alike else []
        return candidates[0] if len(candidates) == 1 else None


def made_up_port(node: str, end: EndFact, *, is_switch: bool) -> PortId:
    name = end.peer_port or end.peer_port_id or f"at {end.port}"
    return PortId(node, node, name) if is_switch else PortId(node, name, FIRST_PORT)


def unknown_port(end: EndFact) -> PortId:
    """A synthetic port of an unknown node, under the best name that its neighbour reports.

    A node that identifies its port by an address and describes it by a name is a machine: lldpd
    and the firmware of network cards do so, and switches identify a port by its name. Where no
    agent runs on hosts, this tells a leaf's ports to hosts from those to other switches. On
    InfiniBand, rdma-ndd describes an HCA as its host and its device, and no switch says so.
    """
    node = end.peer_name or end.peer_chassis or end.peer_guid or end.peer_port_id or end.peer_port
    if end.peer_name and as_mac(end.peer_port_id) and end.peer_port and not as_mac(end.peer_port):
        return PortId(node, end.peer_port, FIRST_PORT)
    if end.peer_guid and end.peer_port and (described := _HCA.fullmatch(node.strip())):
        return PortId(described["host"], described["device"], end.peer_port)
    return PortId(node, node, end.peer_port or end.peer_port_id or f"at {end.port}")
