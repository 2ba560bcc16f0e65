"""Sensors over SNMP: where they are, what they measure, and in which unit."""

import asyncio

import pytest

from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.switches.makers import SensorWalk
from collector.switches.snmp.interfaces import Choice, read_interfaces
from collector.switches.snmp.model import Value
from collector.switches.snmp.optics import (
    Sensor,
    exponent_of,
    measure,
    metric_of,
    plan_sensors,
    read_entities,
    read_sensors,
)
from tests.doubles.snmp_fake import FakeSwitch, oid, ports

SENSOR = "1.3.6.1.2.1.99.1.1.1"
ENTITY = "1.3.6.1.2.1.47.1.1.1.1"
WALK = SensorWalk(name="entity-sensor", entry=oid(SENSOR))
TWO = ports("Ethernet1/1", "Ethernet1/2", "Ethernet0")


def sensor(entity: int, text: bytes, kind: int = 6, inside: int = 0) -> dict[str, Value]:
    return {
        f"{ENTITY}.2.{entity}": text,
        f"{ENTITY}.4.{entity}": inside,
        f"{ENTITY}.7.{entity}": b"",
        f"{SENSOR}.1.{entity}": kind,
        f"{SENSOR}.2.{entity}": 8,
        f"{SENSOR}.3.{entity}": 4,
        f"{SENSOR}.4.{entity}": 8000,
        f"{SENSOR}.5.{entity}": 1,
    }


def read(rows: dict[str, Value]) -> list[Reading]:
    async def ask() -> list[Reading]:
        switch = FakeSwitch(TWO | rows)
        interfaces = await read_interfaces(switch, Choice())
        entities, _ = await read_entities(switch)
        plan = await plan_sensors(switch, WALK, entities, interfaces, "leaf")
        return (await read_sensors(switch, plan, lambda: 5)).readings

    return asyncio.run(ask())


def where(rows: dict[str, Value]) -> list[tuple[str, str, str]]:
    """Metric, port and lane of every sensor that is read."""
    found = []
    for each in read(rows):
        assert isinstance(each, Sample)
        labels = dict(each.series.labels)
        short = each.series.metric.removeprefix("fabric_port_module_")
        found.append((short, labels.get("port", ""), labels.get("lane", "")))
    return found


@pytest.mark.parametrize(
    ("text", "port", "lane"),
    [
        (b"DOM RX Power Sensor for Ethernet1/1", "Ethernet1/1", ""),
        (b"Ethernet1/2 Lane 3 Transceiver Receive Power Sensor", "Ethernet1/2", "3"),
        # SONiC's lane behind a slash; a port of that name would go first.
        (b"DOM RX Power Sensor for Ethernet0/4", "Ethernet0", "4"),
        (b"(Ethernet1/1), channel 2 rx power", "Ethernet1/1", "2"),
    ],
)
def test_a_sensor_is_at_the_port_that_its_name_contains(text: bytes, port: str, lane: str) -> None:
    assert where(sensor(7, text)) == [("receive_power_watts", port, lane)]


def test_a_number_in_a_sensors_name_is_not_the_port_of_that_name() -> None:
    assert where(sensor(7, b"lane 1 rx power") | ports("1", first=50)) == []


def test_a_sensor_is_where_the_thing_is_that_contains_it() -> None:
    rows = sensor(9, b"Receive Power Sensor", inside=8) | {
        f"{ENTITY}.2.8": b"Lane 2",
        f"{ENTITY}.4.8": 7,
        f"{ENTITY}.2.7": b"Transceiver in Ethernet1/2",
    }
    assert where(rows) == [("receive_power_watts", "Ethernet1/2", "2")]


def test_a_sensor_is_where_an_alias_points() -> None:
    alias: dict[str, Value] = {"1.3.6.1.2.1.47.1.3.2.1.2.8.0": oid("1.3.6.1.2.1.2.2.1.1.2")}
    assert where(sensor(9, b"Transmit Power", inside=8) | alias) == [
        ("transmit_power_watts", "Ethernet1/2", "")
    ]


def test_things_that_contain_each_other_do_not_hang_the_poll() -> None:
    rows = sensor(8, b"rx power", inside=9) | sensor(9, b"rx power", inside=8)
    assert where(rows) == []


def test_a_temperature_that_is_at_no_port_is_the_switchs() -> None:
    assert where(sensor(7, b"CPU temp sensor", kind=8)) == [
        ("fabric_switch_temperature_celsius", "", "")
    ]
    assert where(sensor(7, b"PwrCon1 Rail 1 12V", kind=4)) == []


def test_sensors_of_one_name_are_told_apart_by_what_contains_them() -> None:
    rows = sensor(7, b"Hotspot", kind=8, inside=5) | sensor(8, b"Hotspot", kind=8, inside=6)
    rows |= {f"{ENTITY}.2.5": b"PowerSupply1", f"{ENTITY}.2.6": b"PowerSupply2"}
    assert {
        dict(each.series.labels)["sensor"] for each in read(rows) if isinstance(each, Sample)
    } == {
        "PowerSupply1 Hotspot",
        "PowerSupply2 Hotspot",
    }


def test_two_sensors_of_one_name_are_one_series() -> None:
    rows = sensor(7, b"rx power of Ethernet0") | sensor(8, b"rx power of Ethernet0")
    assert len(read(rows)) == 1


@pytest.mark.parametrize(
    ("kind", "text", "metric"),
    [
        (6, "TX power", "fabric_port_module_transmit_power_watts"),
        (14, "Receive Power", "fabric_port_module_receive_power_watts"),
        (5, "TX Bias", "fabric_port_module_bias_amperes"),
        (8, "", "fabric_port_module_temperature_celsius"),
        (3, "", "fabric_port_module_supply_volts"),
        (4, "", "fabric_port_module_supply_volts"),
        (6, "power consumption", None),
        (10, "fan", None),
        (b"6", "RX", None),
    ],
)
def test_what_a_sensor_measures(kind: Value, text: str, metric: str | None) -> None:
    assert metric_of(kind, text) == metric


@pytest.mark.parametrize(
    ("scale", "precision", "exponent"),
    [
        (9, 0, 0),
        (8, 4, -7),
        (10, 0, 3),
        (None, None, 0),
        (8, -2, -3),
        (0, 0, None),
        (9, 99, None),
        (b"9", 0, None),
    ],
)
def test_a_sensors_scale(
    scale: Value | None, precision: Value | None, exponent: int | None
) -> None:
    assert exponent_of(scale, precision) == exponent


SERIES = Series("fabric_port_module_receive_power_watts", {"port": "x"})


def test_units_are_base_units() -> None:
    assert measure(Sensor(SERIES, -4, is_dbm=False), 33000, 1, 5) == Sample(SERIES, 3.3, 5)
    assert measure(Sensor(SERIES, -3, is_dbm=True), 10_000, 1, 5) == Sample(SERIES, 0.01, 5)
    dark = measure(Sensor(SERIES, -3, is_dbm=True), -40_000, None, 5)
    assert isinstance(dark, Sample)
    assert dark.value == pytest.approx(1e-7)


@pytest.mark.parametrize(
    ("value", "status", "reason"),
    [
        (5, 2, UnreadReason.NOT_SUPPORTED),
        (5, 3, UnreadReason.NOT_SUPPORTED),
        (None, 1, UnreadReason.ABSENT),
        (b"5", 1, UnreadReason.UNPARSEABLE),
        (10**30, 1, UnreadReason.UNPARSEABLE),
    ],
)
def test_a_sensor_without_a_value_has_a_reason(
    value: Value | None, status: Value | None, reason: UnreadReason
) -> None:
    found = measure(Sensor(SERIES, 0, is_dbm=False), value, status, 5)
    assert isinstance(found, Missing)
    assert found.reason is reason


@pytest.mark.parametrize(
    ("value", "is_dbm"), [(-1_000_000_000, False), (1_000_000_000, False), (0, True)]
)
def test_what_a_sensor_does_not_measure_is_no_number(value: int, is_dbm: bool) -> None:  # noqa: FBT001 - a parameter
    """Underflow and overflow of RFC 3433 (EOS), and 0 dBm of a copper cable (NX-OS)."""
    found = measure(Sensor(SERIES, -4, is_dbm=is_dbm), value, 1, 5)
    assert isinstance(found, Missing)
    assert found.reason is UnreadReason.NOT_SUPPORTED
