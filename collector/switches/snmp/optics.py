"""Sensors: light, current and temperature of the modules in a switch's ports, and its own heat.

ENTITY-SENSOR-MIB gives what is measured (type, scale, precision) and of which *entity*; the port of
an entity is found in several ways, tried in this order: a name that contains a port's, an
alias that points to an ifIndex, or the same of the thing that contains it. Cisco has a table of its
own with the same columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.switches.makers import SensorWalk
from collector.switches.snmp.interfaces import IF_ENTRY, Interface, Interfaces, by_index
from collector.switches.snmp.model import Oid, Session, Value
from collector.switches.snmp.plans import DBM_MAX, watts_of
from collector.switches.snmp.words import number_of, text_of

ENTITY: Oid = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1)
ENTITY_DESCRIPTION = (*ENTITY, 2)
ENTITY_CONTAINED_IN = (*ENTITY, 4)
ENTITY_NAME = (*ENTITY, 7)
ENTITY_ALIAS: Oid = (1, 3, 6, 1, 2, 1, 47, 1, 3, 2, 1, 2)
IF_INDEX = (*IF_ENTRY, 1)

TYPE, SCALE, PRECISION, VALUE, STATUS = 1, 2, 3, 4, 5
"""Columns, in both makers' tables."""

ENTITIES_MAX = 20_000
"""Entities of one switch that are read; a chassis full of modules has some 5,000 sensors."""
CONTAINERS_MAX = 8
"""How far up the tree of things a sensor's port is looked for: sensor, lane, module, cage, port."""

VOLTS_AC, VOLTS, AMPERES, WATTS, CELSIUS, DBM = 3, 4, 5, 6, 8, 14
"""EntitySensorDataType (RFC 3433), and Cisco's dBm, which others use as well."""
SCALE_UNITS = 9
"""EntitySensorDataScale counts in steps of a thousand; this one is 1."""
SCALES = range(1, 18)
PRECISIONS = range(-8, 10)
STATUS_OK, STATUS_UNAVAILABLE = 1, 2
UNIT_MAX = 1e6
"""No sensor of a switch measures a megawatt or a million degrees."""

_LANE = re.compile(r"\b(?:lane|channel)[ #-]*(\d{1,3})\b", re.IGNORECASE)
_RECEIVE = re.compile(r"\b(?:rx|receive|received|input)\b", re.IGNORECASE)
_SEND = re.compile(r"\b(?:tx|transmit|transmitted|output)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\s,;()\[\]]+")

POWER_IN = "fabric_port_module_receive_power_watts"
POWER_OUT = "fabric_port_module_transmit_power_watts"
BIAS = "fabric_port_module_bias_amperes"
MODULE_TEMPERATURE = "fabric_port_module_temperature_celsius"
SUPPLY = "fabric_port_module_supply_volts"
SWITCH_TEMPERATURE = "fabric_switch_temperature_celsius"


class Entities(NamedTuple):
    """Things inside a switch, by entPhysicalIndex."""

    texts: dict[int, str]
    """Name and description, one after the other: some agents fill in only one of them."""
    names: dict[int, str]
    inside: dict[int, int]
    aliases: dict[int, int]
    """The ifIndex that a thing is an alias of."""


class Place(NamedTuple):
    """Where a sensor is."""

    interface: Interface | None
    lane: str


class Sensor(NamedTuple):
    """One sensor that is read."""

    series: Series
    exponent: int
    """Its number times ten to this is in the sensor's unit."""
    is_dbm: bool


class SensorPlan(NamedTuple):
    """The sensors of one table that are read."""

    walk: SensorWalk
    sensors: dict[Oid, Sensor]
    flaws: Counter[str]


async def read_entities(session: Session) -> tuple[Entities, Counter[str]]:
    columns = [ENTITY_DESCRIPTION, ENTITY_CONTAINED_IN, ENTITY_NAME]
    walked = await session.walk(columns, ENTITIES_MAX)
    alias = await session.walk([ENTITY_ALIAS], ENTITIES_MAX)
    flaws = Counter(flaw.reason.value for flaw in (*walked.flaws, *alias.flaws))
    descriptions, inside, names = (by_index(walked.columns.get(c, {})) for c in columns)
    texts: dict[int, str] = {}
    called: dict[int, str] = {}
    for index in {*descriptions, *names}:
        name, description = text_of(names.get(index)), text_of(descriptions.get(index))
        texts[index] = f"{name} {description}" if name != description else name
        called[index] = name or description
    containers = {index: number for index, value in inside.items() if (number := number_of(value))}
    return Entities(texts, called, containers, _aliases(alias.columns.get(ENTITY_ALIAS, {}))), flaws


def _aliases(rows: Mapping[Oid, Value]) -> dict[int, int]:
    """The ifIndex of each entity whose alias points into ifTable."""
    found: dict[int, int] = {}
    for index, value in rows.items():
        is_interface = isinstance(value, tuple) and value[:-1] == IF_INDEX
        if index and is_interface and isinstance(value, tuple):
            found.setdefault(index[0], value[-1])
    return found


async def plan_sensors(
    session: Session, walk: SensorWalk, entities: Entities, interfaces: Interfaces, switch: str
) -> SensorPlan:
    """Read what the sensors of one table measure, and find their places. Raises SnmpError."""
    columns = [(*walk.entry, column) for column in (TYPE, SCALE, PRECISION)]
    walked = await session.walk(columns, ENTITIES_MAX)
    flaws = Counter(flaw.reason.value for flaw in walked.flaws)
    kinds, scales, precisions = (walked.columns.get(column, {}) for column in columns)
    finder = PlaceFinder(entities, interfaces)
    sensors: dict[Oid, Sensor] = {}
    taken: set[Series] = set()
    for index, kind in kinds.items():
        if len(index) != 1:
            continue
        exponent = exponent_of(scales.get(index), precisions.get(index))
        if exponent is None:
            flaws["odd_scale"] += 1
            continue
        series = name_sensor(finder, index[0], kind, switch)
        if series is None:
            continue
        if series in taken:
            flaws["duplicate_series"] += 1
            continue
        taken.add(series)
        sensors[index] = Sensor(series, exponent, kind == DBM)
    return SensorPlan(walk, sensors, flaws)


def exponent_of(scale: Value | None, precision: Value | None) -> int | None:
    """The power of ten between a sensor's number and its unit; None if the switch sends nonsense.

    >>> exponent_of(8, 1), exponent_of(9, None), exponent_of(99, 0)
    (-4, 0, None)
    """
    scale = SCALE_UNITS if scale is None else scale
    precision = 0 if precision is None else precision
    if scale not in SCALES or precision not in PRECISIONS:
        return None
    assert isinstance(scale, int)
    assert isinstance(precision, int)
    # Precision is decimals of the number as sent; negative, it is the number of accurate digits.
    return 3 * (scale - SCALE_UNITS) - max(precision, 0)


def name_sensor(finder: PlaceFinder, entity: int, kind: Value, switch: str) -> Series | None:
    """The series of a sensor; None for one that is not about ports or heat."""
    place = finder.find(entity)
    if place.interface is None:
        if kind != CELSIUS:
            return None
        return Series(SWITCH_TEMPERATURE, {"host": switch, "sensor": finder.name_of(entity)})
    if not place.interface.is_chosen:
        return None
    metric = metric_of(kind, finder.entities.texts.get(entity, ""))
    if metric is None:
        return None
    labels = {"host": switch, "device": switch, "port": place.interface.name}
    if metric in {POWER_IN, POWER_OUT, BIAS}:
        labels["lane"] = place.lane
    return Series(metric, labels)


def metric_of(kind: Value, text: str) -> str | None:
    """The metric of a sensor in a port's module, by its type and its name.

    >>> metric_of(6, "DOM RX Power Sensor for Ethernet1")
    'fabric_port_module_receive_power_watts'
    """
    if kind in {WATTS, DBM}:
        if _RECEIVE.search(text):
            return POWER_IN
        return POWER_OUT if _SEND.search(text) else None
    if kind == AMPERES:
        return BIAS
    if kind == CELSIUS:
        return MODULE_TEMPERATURE
    return SUPPLY if kind in {VOLTS, VOLTS_AC} else None


class PlaceFinder:
    """Finds the port and the lane of a thing inside a switch."""

    def __init__(self, entities: Entities, interfaces: Interfaces) -> None:
        self.entities = entities
        self._interfaces = interfaces
        self._shared = Counter(entities.names.values())

    def name_of(self, entity: int) -> str:
        """A thing's own name; one that others have too follows those of what contains it.

        Every power supply has a `Hotspot temperature sensor`.
        """
        entities, names, inside = self.entities, list[str](), entity
        for _ in range(CONTAINERS_MAX):
            name = entities.names.get(inside, "")
            if name:
                names.insert(0, name)
                if self._shared[name] == 1:
                    return " ".join(names)
            if inside not in entities.inside:
                break
            inside = entities.inside[inside]
        return entities.names.get(entity) or str(entity)

    def find(self, entity: int) -> Place:
        lane = ""
        for _ in range(CONTAINERS_MAX):
            text = self.entities.texts.get(entity, "")
            interface, own_lane = self._by_text(text)
            match = _LANE.search(text)
            lane = lane or (match[1] if match else own_lane)
            if interface is None and entity in self.entities.aliases:
                interface = self._interfaces.by_index.get(self.entities.aliases[entity])
            if interface is not None:
                return Place(interface, lane)
            if entity not in self.entities.inside:
                break
            entity = self.entities.inside[entity]
        return Place(None, lane)

    def _by_text(self, text: str) -> tuple[Interface | None, str]:
        """The port whose name is a word of this text, and a lane that is written behind it.

        SONiC writes ``Ethernet0/2`` for lane 2 of Ethernet0; elsewhere that is a port of its own,
        which goes first.
        """
        for match in _WORD.finditer(text):
            word = match[0].rstrip(".:-")
            if word.isdigit():
                continue  # a lane, a slot, or a port that is called 1: ambiguous
            found = self._interfaces.by_text.get(word)
            if found is not None:
                return found, ""
            base, slash, lane = word.rpartition("/")
            found = self._interfaces.by_text.get(base) if slash and lane.isdigit() else None
            if found is not None:
                return found, lane
        return None, ""


class Measured(NamedTuple):
    """The readings of the sensors of one table."""

    readings: list[Reading]
    flaws: Counter[str]
    values: int


async def read_sensors(session: Session, plan: SensorPlan, now_ns: Callable[[], int]) -> Measured:
    value_column, status_column = (*plan.walk.entry, VALUE), (*plan.walk.entry, STATUS)
    walked = await session.walk([value_column, status_column], ENTITIES_MAX)
    values = walked.columns.get(value_column, {})
    statuses = walked.columns.get(status_column, {})
    time_ns = now_ns()
    readings: list[Reading] = [
        measure(sensor, values.get(index), statuses.get(index), time_ns)
        for index, sensor in plan.sensors.items()
    ]
    flaws = plan.flaws + Counter(flaw.reason.value for flaw in walked.flaws)
    return Measured(readings, flaws, sum(map(len, walked.columns.values())))


UNDERFLOW, OVERFLOW = -1_000_000_000, 1_000_000_000
"""EntitySensorValue of RFC 3433. EOS sends the first for a cage without light or without a module,
and calls the sensor OK."""


def nothing_measured(sensor: Sensor, value: Value | None, status: Value | None) -> str:
    """Why a sensor's number is none; empty: it is one."""
    if status not in {None, STATUS_OK}:
        word = "unavailable" if status == STATUS_UNAVAILABLE else "broken"
        return f"the switch reports: {word}"
    if value in {UNDERFLOW, OVERFLOW}:
        return f"beyond what the sensor measures ({value})"
    # NX-OS shows 0 dBm and 0 mA for a copper cable: a milliwatt of light would be made up.
    return "0 dBm: nothing is measured" if sensor.is_dbm and value == 0 else ""


def measure(
    sensor: Sensor, value: Value | None, status: Value | None, time_ns: int
) -> Sample | Missing:
    if why := nothing_measured(sensor, value, status):
        return Missing(sensor.series, UnreadReason.NOT_SUPPORTED, why)
    if value is None:
        return Missing(sensor.series, UnreadReason.ABSENT, "the sensor has no value")
    if not isinstance(value, int):
        return Missing(sensor.series, UnreadReason.UNPARSEABLE, "the sensor's value is no number")
    # Dividing by a power of ten is exact to the last digit; multiplying by 0.001 is not.
    exponent = sensor.exponent
    number = value * 10.0**exponent if exponent > 0 else value / 10.0**-exponent
    if abs(number) > (DBM_MAX if sensor.is_dbm else UNIT_MAX):
        return Missing(sensor.series, UnreadReason.UNPARSEABLE, f"is {number:g}")
    return Sample(sensor.series, watts_of(number) if sensor.is_dbm else number, time_ns)
