"""LLDP over SNMP: the port behind a number, and a neighbour's own names."""

import asyncio
from collections import Counter

import pytest

from collector.switches.snmp.interfaces import Choice, Interfaces, build_interfaces, read_interfaces
from collector.switches.snmp.model import Value
from collector.switches.snmp.neighbours import (
    NEIGHBOURS_OF_PORT_MAX,
    Neighbours,
    chassis_text,
    port_name,
    read_neighbours,
)
from tests.doubles.snmp_fake import FakeSwitch, ports

LOCAL = "1.0.8802.1.1.2.1.3.7.1"
REMOTE = "1.0.8802.1.1.2.1.4.1.1"
BRIDGE = "1.3.6.1.2.1.17.1.4.1.2"
ADDRESS = "1.3.6.1.2.1.2.2.1.6"


def peer(index: str, name: bytes = b"spine") -> dict[str, Value]:
    return {
        f"{REMOTE}.4.{index}": 4,
        f"{REMOTE}.5.{index}": bytes.fromhex("0c42a1000009"),
        f"{REMOTE}.6.{index}": 5,
        f"{REMOTE}.7.{index}": b"Ethernet8",
        f"{REMOTE}.8.{index}": b"to leaf",
        f"{REMOTE}.9.{index}": name,
    }


def read(rows: dict[str, Value], choice: Choice = Choice()) -> Neighbours:  # noqa: B008
    async def ask() -> Neighbours:
        switch = FakeSwitch(rows)
        return await read_neighbours(switch, await read_interfaces(switch, choice), "leaf")

    return asyncio.run(ask())


def places(found: Neighbours) -> list[str]:
    return [dict(series.labels)["port"] for series in found.links]


TWO = ports("Ethernet0", "Ethernet4", first=101)


@pytest.mark.parametrize(
    "local",
    [
        # An identifier that is a name; the number is no ifIndex.
        {f"{LOCAL}.2.7": 5, f"{LOCAL}.3.7": b"Ethernet4"},
        # The description is the name.
        {f"{LOCAL}.2.7": 7, f"{LOCAL}.3.7": b"whatever", f"{LOCAL}.4.7": b"Ethernet4"},
        # A local identifier that is an ifIndex as text.
        {f"{LOCAL}.2.7": 7, f"{LOCAL}.3.7": b"102", f"{LOCAL}.4.7": b"server 3"},
        # The port's own address.
        {
            f"{LOCAL}.2.7": 3,
            f"{LOCAL}.3.7": bytes([2, 0, 0, 0, 0, 4]),
            f"{ADDRESS}.102": bytes([2, 0, 0, 0, 0, 4]),
        },
        # No description: a bridge port.
        {f"{BRIDGE}.7": 102},
    ],
)
def test_the_local_port_is_found_whatever_the_number_means(local: dict[str, Value]) -> None:
    assert places(read(TWO | local | peer("0.7.1"))) == ["Ethernet4"]


def test_a_number_without_a_description_is_an_ifindex() -> None:
    assert places(read(TWO | peer("0.102.1"))) == ["Ethernet4"]


def test_a_description_goes_before_the_number() -> None:
    local: dict[str, Value] = {f"{LOCAL}.2.102": 5, f"{LOCAL}.3.102": b"Ethernet0"}
    assert places(read(TWO | local | peer("0.102.1"))) == ["Ethernet0"]


def test_an_address_that_two_ports_share_names_neither() -> None:
    mac = bytes([2, 0, 0, 0, 0, 4])
    shared: dict[str, Value] = {f"{ADDRESS}.101": mac, f"{ADDRESS}.102": mac}
    local: dict[str, Value] = {f"{LOCAL}.2.7": 3, f"{LOCAL}.3.7": mac}
    found = read(TWO | shared | local | peer("0.7.1"))
    assert found.links == []
    assert found.flaws == {"unknown_local_port": 1}


def test_a_row_of_another_shape_is_counted_and_the_others_are_read() -> None:
    found = read(TWO | peer("0.101.1") | {f"{REMOTE}.9.5": b"odd"})
    assert places(found) == ["Ethernet0"]
    assert found.flaws == {"odd_index": 1}


def test_neighbours_at_ports_that_are_not_read_are_left_out() -> None:
    found = read(TWO | peer("0.101.1"), Choice(exclude=("Ethernet0",)))
    assert found.links == []
    assert found.flaws == Counter()


def test_a_port_that_sees_all_neighbours_is_bounded() -> None:
    rows = dict(TWO)
    for number in range(30):
        rows |= peer(f"0.101.{number}", b"host-%d" % number)
    found = read(rows)
    assert len(found.links) == NEIGHBOURS_OF_PORT_MAX
    assert found.flaws == {"too_many_neighbours": 30 - NEIGHBOURS_OF_PORT_MAX}


@pytest.mark.parametrize(
    ("kind", "identifier", "description", "name"),
    [
        (5, "Ethernet8", "to leaf", "Ethernet8"),
        (3, "02:00:00:00:00:01", "ens1f0", "ens1f0"),
        (3, "02:00:00:00:00:01", "", "02:00:00:00:00:01"),
        (7, "Eth1/54", "Ethernet56", "Eth1/54"),
        (7, "513", "et-0/0/2", "et-0/0/2"),
        (7, "513", "", "513"),
        (1, "rail 3", "swp7", "swp7"),
        (None, "x", "y", "y"),
        (5, "", "y", "y"),
    ],
)
def test_what_a_neighbour_calls_its_port(
    kind: int | None, identifier: str, description: str, name: str
) -> None:
    assert port_name(kind, identifier, description) == name


def test_a_chassis_is_an_address_or_a_text() -> None:
    assert chassis_text(4, bytes.fromhex("0c42a1000009")) == "0c:42:a1:00:00:09"
    assert chassis_text(4, b"74:86:E2:0A:0C:04") == "74:86:e2:0a:0c:04"
    assert chassis_text(5, bytes([1, 192, 0, 2, 7])) == "192.0.2.7"
    assert chassis_text(7, b"node-5\x00") == "node-5"
    assert chassis_text(4, 17) == ""


# --- names of ports -------------------------------------------------------------------------------


def interfaces(names: dict[int, Value], types: dict[int, Value], choice: Choice) -> Interfaces:
    return build_interfaces([{}, types, {}, names, {}], choice, Counter())


def test_only_physical_ports_are_read_unless_others_are_asked_for() -> None:
    names: dict[int, Value] = {1: b"Ethernet1", 2: b"Port-Channel1", 3: b"Vlan7", 4: b"Management1"}
    types: dict[int, Value] = {1: 6, 2: 161, 3: 136, 4: 6}
    found = interfaces(names, types, Choice(include=("Port-*",), exclude=("Man*",)))
    assert [each.name for each in found.chosen] == ["Ethernet1", "Port-Channel1"]


def test_a_switch_without_port_types_has_all_ports_read() -> None:
    found = interfaces({1: b"a", 2: b"b"}, {}, Choice())
    assert [each.name for each in found.chosen] == ["a", "b"]


def test_ports_of_the_same_name_are_distinguished_by_their_index() -> None:
    found = interfaces({1: b"port", 2: b"port", 3: b"other"}, {}, Choice())
    assert [each.name for each in found.chosen] == ["port#1", "port#2", "other"]
    assert found.flaws == {"duplicate_name": 2}


def test_a_port_without_a_name_has_its_index() -> None:
    assert [each.name for each in interfaces({5: b""}, {}, Choice()).chosen] == ["5"]
