"""Ports of a switch: the name of each ifIndex, and which of them are read.

An ifIndex is only a number that the switch uses today: after a restart or a new line card it may be
another port's. Series follow the *name*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from collector.switches.snmp.model import Oid, Session, Value
from collector.switches.snmp.words import mac_of, number_of, text_of

IF_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IF_X_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_DESCRIPTION = (*IF_ENTRY, 2)
IF_TYPE = (*IF_ENTRY, 3)
IF_ADDRESS = (*IF_ENTRY, 6)
IF_NAME = (*IF_X_ENTRY, 1)
IF_ALIAS = (*IF_X_ENTRY, 18)

PORTS_MAX = 4096
"""Interfaces of one switch that are read. The largest chassis has 1,152 ports, each perhaps
with some VLANs; more is an agent that makes them up."""
PHYSICAL_TYPES = frozenset({6, 26, 62, 69, 117, 199})
"""IANAifType of what a cable goes into: ethernetCsmacd, and what older agents call Ethernet; and
infiniband. Not 161 (a LAG's counters are its members' again) and not VLANs or tunnels."""
ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"
INFINIBAND_TYPE = 199
INTERFACES = "interfaces"
"""The table name under which flaws of these columns are counted."""


class Interface(NamedTuple):
    """One row of ifTable."""

    if_index: int
    name: str
    """What the switch calls it; unique among its ports."""
    texts: frozenset[str]
    """Every name that the switch has for it: ifName and ifDescr."""
    address: str
    description: str
    """What its operator wrote on it (ifAlias)."""
    link_layer: str
    is_chosen: bool


class Choice(NamedTuple):
    """Which ports are read, by shell patterns of their names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def takes(self, names: frozenset[str], kind: int | None) -> bool:
        if any(fnmatchcase(name, pattern) for name in names for pattern in self.exclude):
            return False
        if kind is None or kind in PHYSICAL_TYPES:
            return True
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.include)


class Interfaces:
    """All interfaces of a switch, by index and by name."""

    def __init__(self, interfaces: list[Interface], flaws: Mapping[str, int]) -> None:
        self.by_index = {each.if_index: each for each in interfaces}
        self.flaws = Counter(flaws)
        self.by_text: dict[str, Interface] = {}
        self.by_address: dict[str, Interface | None] = {}
        for each in interfaces:
            for text in each.texts:
                self.by_text.setdefault(text, each)
            if each.address:
                # Many ports may share one address; then it names none of them.
                known = each.address in self.by_address
                self.by_address[each.address] = None if known else each

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interfaces) and self.by_index == other.by_index

    def __hash__(self) -> int:
        raise TypeError("interfaces change; they are no key")

    @property
    def chosen(self) -> list[Interface]:
        return [each for each in self.by_index.values() if each.is_chosen]


async def read_interfaces(session: Session, choice: Choice) -> Interfaces:
    """Ask for the names of all interfaces. Raises SnmpError."""
    columns = [IF_DESCRIPTION, IF_TYPE, IF_ADDRESS, IF_NAME, IF_ALIAS]
    walked = await session.walk(columns, PORTS_MAX)
    flaws = Counter(flaw.reason.value for flaw in walked.flaws)
    columns_by_index = [by_index(walked.columns.get(column, {})) for column in columns]
    return build_interfaces(columns_by_index, choice, flaws)


def by_index(rows: Mapping[Oid, Value]) -> dict[int, Value]:
    """A column of a table whose index is one number; rows with another index are passed over."""
    return {index[0]: value for index, value in rows.items() if len(index) == 1}


def build_interfaces(
    columns: list[dict[int, Value]], choice: Choice, flaws: Counter[str]
) -> Interfaces:
    """The interfaces that these columns (description, type, address, name, alias) describe."""
    descriptions, types, addresses, names, aliases = columns
    indexes = sorted({*descriptions, *names, *types})
    if len(indexes) > PORTS_MAX:
        flaws["too_many_ports"] += len(indexes) - PORTS_MAX
        indexes = indexes[:PORTS_MAX]
    called = {}
    for index in indexes:
        own, described = text_of(names.get(index)), text_of(descriptions.get(index))
        called[index] = own or described or str(index), frozenset(filter(None, (own, described)))
    uses = Counter(name for name, _ in called.values())
    found: list[Interface] = []
    for index, (name, texts) in called.items():
        unique = name
        if uses[name] > 1:
            flaws["duplicate_name"] += 1
            unique = f"{name}#{index}"
        kind = number_of(types.get(index))
        found.append(
            Interface(
                if_index=index,
                name=unique,
                texts=texts,
                address=mac_of(addresses.get(index)),
                description=text_of(aliases.get(index)),
                link_layer=INFINIBAND if kind == INFINIBAND_TYPE else ETHERNET,
                is_chosen=choice.takes(texts | {unique}, kind),
            )
        )
    return Interfaces(found, flaws)
