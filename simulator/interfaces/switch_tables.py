"""Switch counters for all ports of a fabric at once, and the MIB tables that show them over SNMP.

A *reading* is a column of numbers with one for each switch port; a *column* of a MIB shows one of
them under an OID. Several columns show the same reading (a vendor's queue table repeats IF-MIB), so
readings are kept once. Constant values (names, neighbours) are rows of text.

All traffic of a simulated fabric is RoCE in the one lossless class, `LOSSLESS_PRIORITY`: the other
seven priorities and queues of a port exist, as on a real switch, and count nothing.

No MIB of these vendors shows packets marked with ECN, and Juniper's shows no pause frames. Real
collectors do not get them over SNMP, and neither does the simulated poller.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.interfaces.columns import LOSSLESS_PRIORITY, PRIORITIES
from simulator.network.optics import received_milliwatts
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import SONIC_PORT, SONIC_STEP, Bools, Ints, Topology

TICKS_PER_SECOND = 100
"""Of SNMP's TimeTicks."""
MEGABIT = 1e6

SEND_POWER_MILLIWATTS = 1.2
POWER_UNITS_PER_MILLIWATT = 10_000
"""Sensors report milliwatts with four decimals, as in SONiC and EOS."""


class Flavour(enum.StrEnum):
    """The vendor whose MIBs a switch answers."""

    SONIC = "sonic"
    """Cisco's MIBs too: SONiC has no own ones for queues and pauses and answers under Cisco's."""
    ARISTA = "arista"
    CUMULUS = "cumulus"
    JUNIPER = "juniper"


class Syntax(enum.IntEnum):
    """SNMP's types, by the numbers that recordings (`snmprec`) use."""

    INTEGER = 2
    OCTETS = 4
    OBJECT = 6
    COUNTER32 = 65
    GAUGE32 = 66
    TIMETICKS = 67
    COUNTER64 = 70


class Reading(enum.IntEnum):
    """The readings of a switch port; the number is its row in the table of readings."""

    SENT_BYTES = 0
    SENT_PACKETS = 1
    RECEIVED_BYTES = 2
    RECEIVED_PACKETS = 3
    DROPPED_PACKETS = 4
    DROPPED_BYTES = 5
    DAMAGED_PACKETS = 6
    SYMBOL_ERRORS = 7
    PAUSES_SENT = 8
    PAUSES_RECEIVED = 9
    CARRIER_CHANGES = 10
    UPTIME_TICKS = 11
    """The same for every port."""
    OFFERED_PACKETS = 12
    """Sent and dropped: what came to the queue."""
    OFFERED_BYTES = 13
    OPERATIONAL_STATUS = 14
    """ifOperStatus: 1 up, 2 down."""
    BITS_PER_SECOND = 15
    MEGABITS_PER_SECOND = 16
    QUEUE_BYTES = 17
    QUEUE_PEAK_BYTES = 18
    RECEIVE_POWER = 19
    SEND_POWER = 20


COUNTERS = 14
"""Readings below this number only grow; the others are gauges."""


class Ports:
    """The ports of all switches, by switch and then by number; columns have one value for each."""

    def __init__(self, topology: Topology) -> None:
        of_switches = np.flatnonzero(topology.source_switch >= 0).astype(np.int32)
        order = np.lexsort((topology.port[of_switches], topology.source_switch[of_switches]))
        self.out: Ints = of_switches[order]
        self.back: Ints = topology.reverse[self.out]
        self.switch: Ints = topology.source_switch[self.out]
        self.number: Ints = topology.port[self.out]
        self._starts = np.searchsorted(self.switch, np.arange(len(topology.switches) + 1))

    def of_switch(self, switch: int) -> range:
        return range(int(self._starts[switch]), int(self._starts[switch + 1]))


class HcaPorts(Ports):
    """The ports of all NICs, one for each, as a fabric that is asked for them shows them.

    ``switch`` is the leaf at the other end; `of_switch` has no meaning here.
    """

    def __init__(self, topology: Topology) -> None:
        nics = np.arange(topology.nics, dtype=np.int32)
        self.out = np.asarray(topology.up(nics), dtype=np.int32)
        self.back = np.asarray(topology.down(nics), dtype=np.int32)
        self.switch = topology.source_switch[self.back]
        self.number = np.ones(topology.nics, dtype=np.int32)


class Readings:
    """Readings of all switch ports, or of ``ports``, from one snapshot to the next.

    It keeps the last ones for one reason: received bytes are a difference of two counters, one of
    them random, and could fall by a packet; a real counter never does.
    """

    def __init__(self, topology: Topology, ports: Ports | None = None) -> None:
        self.ports = Ports(topology) if ports is None else ports
        self.values: Counts = np.zeros((len(Reading), len(self.ports.out)), dtype=np.int64)

    def update(self, snapshot: Snapshot) -> Counts:
        fresh = np.empty_like(self.values)
        self._count(snapshot, fresh)
        self._gauge(snapshot, fresh)
        np.maximum(fresh[:COUNTERS], self.values[:COUNTERS], out=fresh[:COUNTERS])
        self.values = fresh
        return fresh

    def _count(self, snapshot: Snapshot, fresh: Counts) -> None:
        links, out, back = snapshot.links, self.ports.out, self.ports.back
        fresh[Reading.SENT_BYTES] = links.bytes[out]
        fresh[Reading.SENT_PACKETS] = links.packets[out]
        received = np.maximum(links.packets[back] - links.lost_packets[back], 0)
        fresh[Reading.RECEIVED_PACKETS] = received
        missing = links.packets[back] - received
        fresh[Reading.RECEIVED_BYTES] = links.bytes[back] - missing * _mean_size(snapshot, back)
        dropped = links.dropped_packets[out]
        fresh[Reading.DROPPED_PACKETS] = dropped
        fresh[Reading.DROPPED_BYTES] = dropped * _mean_size(snapshot, out)
        fresh[Reading.OFFERED_PACKETS] = fresh[Reading.SENT_PACKETS] + dropped
        fresh[Reading.OFFERED_BYTES] = fresh[Reading.SENT_BYTES] + fresh[Reading.DROPPED_BYTES]
        fresh[Reading.DAMAGED_PACKETS] = links.corrupted_packets[back]
        fresh[Reading.SYMBOL_ERRORS] = links.symbol_errors[back]
        # Pause frames are counted for the link that they stop, and travel against it.
        fresh[Reading.PAUSES_SENT] = links.pause_frames[back]
        fresh[Reading.PAUSES_RECEIVED] = links.pause_frames[out]
        # Both directions go down together. A cable that is down has come back once less than it
        # went.
        downs = np.maximum(links.downs[out], links.downs[back])
        fresh[Reading.CARRIER_CHANGES] = np.maximum(2 * downs - ~self._is_up(snapshot), 0)
        fresh[Reading.UPTIME_TICKS] = int(snapshot.time_s * TICKS_PER_SECOND)

    def _gauge(self, snapshot: Snapshot, fresh: Counts) -> None:
        links, world, out = snapshot.links, snapshot.world, self.ports.out
        is_up = self._is_up(snapshot)
        speed = snapshot.topology.bits_per_second[out] * world.link_speed_share[out]
        fresh[Reading.OPERATIONAL_STATUS] = np.where(is_up, 1, 2)
        fresh[Reading.BITS_PER_SECOND] = speed
        fresh[Reading.MEGABITS_PER_SECOND] = speed / MEGABIT
        fresh[Reading.QUEUE_BYTES] = links.queue_bytes[out]
        fresh[Reading.QUEUE_PEAK_BYTES] = links.queue_peak_bytes[out]
        light = received_milliwatts(world.link_raw_ber[self.ports.back]) * is_up
        fresh[Reading.RECEIVE_POWER] = light * POWER_UNITS_PER_MILLIWATT
        fresh[Reading.SEND_POWER] = is_up * SEND_POWER_MILLIWATTS * POWER_UNITS_PER_MILLIWATT

    def _is_up(self, snapshot: Snapshot) -> Bools:
        """A port is up when both directions of its cable are."""
        up: Bools = snapshot.world.link_up[self.ports.out] & snapshot.world.link_up[self.ports.back]
        return up


def _mean_size(snapshot: Snapshot, links: Ints) -> Counts:
    packets = np.maximum(snapshot.links.packets[links], 1)
    size: Counts = snapshot.links.bytes[links] // packets
    return size


# Columns ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A reading under an OID: ``oid``, the port's ifIndex, ``suffix``."""

    oid: str
    syntax: Syntax
    reading: Reading | None
    """None: always 0."""
    suffix: str = ""


IF_ENTRY = "1.3.6.1.2.1.2.2.1"
IF_X_ENTRY = "1.3.6.1.2.1.31.1.1.1"
DOT3_STATISTICS = "1.3.6.1.2.1.10.7.2.1"
DOT3_PAUSE = "1.3.6.1.2.1.10.7.10.1"

STANDARD_COLUMNS = (
    Column(f"{IF_ENTRY}.5", Syntax.GAUGE32, Reading.BITS_PER_SECOND),
    Column(f"{IF_ENTRY}.8", Syntax.INTEGER, Reading.OPERATIONAL_STATUS),
    Column(f"{IF_ENTRY}.10", Syntax.COUNTER32, Reading.RECEIVED_BYTES),
    Column(f"{IF_ENTRY}.11", Syntax.COUNTER32, Reading.RECEIVED_PACKETS),
    Column(f"{IF_ENTRY}.13", Syntax.COUNTER32, None),
    Column(f"{IF_ENTRY}.14", Syntax.COUNTER32, Reading.DAMAGED_PACKETS),
    Column(f"{IF_ENTRY}.16", Syntax.COUNTER32, Reading.SENT_BYTES),
    Column(f"{IF_ENTRY}.17", Syntax.COUNTER32, Reading.SENT_PACKETS),
    Column(f"{IF_ENTRY}.19", Syntax.COUNTER32, Reading.DROPPED_PACKETS),
    Column(f"{IF_ENTRY}.20", Syntax.COUNTER32, None),
    Column(f"{IF_X_ENTRY}.6", Syntax.COUNTER64, Reading.RECEIVED_BYTES),
    Column(f"{IF_X_ENTRY}.7", Syntax.COUNTER64, Reading.RECEIVED_PACKETS),
    Column(f"{IF_X_ENTRY}.10", Syntax.COUNTER64, Reading.SENT_BYTES),
    Column(f"{IF_X_ENTRY}.11", Syntax.COUNTER64, Reading.SENT_PACKETS),
    Column(f"{IF_X_ENTRY}.15", Syntax.GAUGE32, Reading.MEGABITS_PER_SECOND),
    Column(f"{DOT3_STATISTICS}.3", Syntax.COUNTER32, Reading.DAMAGED_PACKETS),
    Column(f"{DOT3_STATISTICS}.18", Syntax.COUNTER32, Reading.SYMBOL_ERRORS),
    # Pausing a whole port (802.3x) is off where single classes are paused.
    Column(f"{DOT3_PAUSE}.3", Syntax.COUNTER32, None),
    Column(f"{DOT3_PAUSE}.4", Syntax.COUNTER32, None),
)
"""IF-MIB and EtherLike-MIB. Drops are outbound: a full queue stands in front of a link."""


def vendor_columns(flavour: Flavour) -> tuple[Column, ...]:
    """Pauses and queues as the vendor's own MIBs show them."""
    columns = {
        Flavour.SONIC: _cisco_columns,
        Flavour.ARISTA: _arista_columns,
        Flavour.CUMULUS: _cumulus_columns,
        Flavour.JUNIPER: _juniper_columns,
    }
    return tuple(columns[flavour]())


def _class_columns(oid: str, reading: Reading, suffix: str = ".{}") -> Iterator[Column]:
    """One column for each priority or queue; ``suffix`` takes its number, from 0."""
    for priority in range(PRIORITIES):
        counted = reading if priority == LOSSLESS_PRIORITY else None
        yield Column(oid, Syntax.COUNTER64, counted, suffix.format(priority))


def _cisco_columns() -> Iterator[Column]:
    """CISCO-PFC-EXT-MIB and CISCO-SWITCH-QOS-MIB, as SONiC's agent fills them in."""
    # Of a whole port the agent reports priority 3.
    yield Column("1.3.6.1.4.1.9.9.813.1.1.1.1", Syntax.COUNTER64, Reading.PAUSES_SENT)
    yield Column("1.3.6.1.4.1.9.9.813.1.1.1.2", Syntax.COUNTER64, Reading.PAUSES_RECEIVED)
    yield from _class_columns("1.3.6.1.4.1.9.9.813.1.2.1.2", Reading.PAUSES_SENT)
    yield from _class_columns("1.3.6.1.4.1.9.9.813.1.2.1.3", Reading.PAUSES_RECEIVED)
    statistics = {
        1: Reading.SENT_PACKETS,
        2: Reading.SENT_BYTES,
        5: Reading.DROPPED_PACKETS,
        6: Reading.DROPPED_BYTES,
    }
    # Direction 2 is egress. Queues are counted from 1 here and from 0 everywhere else.
    for priority in range(PRIORITIES):
        for kind, reading in statistics.items():
            yield Column(
                "1.3.6.1.4.1.9.9.580.1.5.5.1.4",
                Syntax.COUNTER64,
                reading if priority == LOSSLESS_PRIORITY else None,
                f".2.{priority + 1}.{kind}",
            )


def _arista_columns() -> Iterator[Column]:
    """ARISTA-PFC-MIB and ARISTA-QUEUE-MIB."""
    yield from _class_columns("1.3.6.1.4.1.30065.3.11.1.1.1.3", Reading.PAUSES_SENT)
    yield from _class_columns("1.3.6.1.4.1.30065.3.11.1.1.1.4", Reading.PAUSES_RECEIVED)
    unicast = ".{}.0"
    queue = "1.3.6.1.4.1.30065.3.6.1.2.1"
    yield from _class_columns(f"{queue}.4", Reading.SENT_PACKETS, unicast)
    yield from _class_columns(f"{queue}.5", Reading.SENT_BYTES, unicast)
    yield from _class_columns(f"{queue}.6", Reading.DROPPED_PACKETS, unicast)
    yield from _class_columns(f"{queue}.7", Reading.DROPPED_BYTES, unicast)


def _cumulus_columns() -> Iterator[Column]:
    """CUMULUS-COUNTERS-MIB: a column of its own for each priority, in and out by turns."""
    interface = "1.3.6.1.4.1.40310.2.2"
    yield Column("1.3.6.1.4.1.40310.2.1.2.1.6", Syntax.COUNTER64, Reading.DROPPED_PACKETS)
    yield Column(f"{interface}.3.1.2", Syntax.COUNTER64, None)
    yield Column(f"{interface}.3.1.3", Syntax.COUNTER64, None)
    for priority in range(PRIORITIES):
        is_counted = priority == LOSSLESS_PRIORITY
        pauses = f"{interface}.3.1.{{}}"
        received = Reading.PAUSES_RECEIVED if is_counted else None
        sent = Reading.PAUSES_SENT if is_counted else None
        yield Column(pauses.format(4 + 2 * priority), Syntax.COUNTER64, received)
        yield Column(pauses.format(5 + 2 * priority), Syntax.COUNTER64, sent)
        traffic = f"{interface}.4.1.{{}}"
        packets = Reading.SENT_PACKETS if is_counted else None
        dropped = Reading.DROPPED_PACKETS if is_counted else None
        yield Column(traffic.format(2 + 3 * priority), Syntax.COUNTER64, packets)
        yield Column(traffic.format(3 + 3 * priority), Syntax.COUNTER64, dropped)
        yield Column(traffic.format(4 + 3 * priority), Syntax.COUNTER64, None)
    yield Column(f"{interface}.5.1.4", Syntax.COUNTER64, Reading.CARRIER_CHANGES)


def _juniper_columns() -> Iterator[Column]:
    """JUNIPER-COS-MIB jnxCosQstatTable: the one with depths of queues."""
    table = "1.3.6.1.4.1.2636.3.15.4.1"
    yield from _class_columns(f"{table}.3", Reading.OFFERED_PACKETS)
    yield from _class_columns(f"{table}.5", Reading.OFFERED_BYTES)
    yield from _class_columns(f"{table}.7", Reading.SENT_PACKETS)
    yield from _class_columns(f"{table}.9", Reading.SENT_BYTES)
    yield from _class_columns(f"{table}.11", Reading.DROPPED_PACKETS)
    yield from _class_columns(f"{table}.53", Reading.DROPPED_PACKETS)
    depths = {57: Reading.QUEUE_BYTES, 58: Reading.QUEUE_BYTES, 59: Reading.QUEUE_PEAK_BYTES}
    for number, reading in depths.items():
        for column in _class_columns(f"{table}.{number}", reading):
            yield Column(column.oid, Syntax.GAUGE32, column.reading, column.suffix)


# Names ------------------------------------------------------------------------------------------


class Product(NamedTuple):
    """A maker's switch description and port names."""

    description: str
    object_id: str
    port_name: str
    """Takes ``number``, counted from ``first``."""
    first: int
    step: int
    """Between the numbers of neighbouring ports."""
    first_index: int
    """ifIndex of the first port; they go on by ``step``."""


PRODUCTS = {
    Flavour.SONIC: Product(
        "SONiC Software Version: SONiC.202411 - HwSku: simulated",
        "1.3.6.1.4.1.8072.3.2.10",
        SONIC_PORT,
        first=0,
        step=SONIC_STEP,
        first_index=1,
    ),
    Flavour.ARISTA: Product(
        "Arista Networks EOS version 4.33.6M running on a simulated switch",
        "1.3.6.1.4.1.30065.1.3011",
        "Ethernet{number}",
        first=1,
        step=1,
        first_index=1,
    ),
    Flavour.CUMULUS: Product(
        "Cumulus-Linux 5.9.2 (simulated)",
        "1.3.6.1.4.1.40310",
        "swp{number}",
        first=1,
        step=1,
        first_index=3,
    ),
    Flavour.JUNIPER: Product(
        "Juniper Networks, Inc. simulated Ethernet Switch, kernel JUNOS 22.2R3-EVO",
        "1.3.6.1.4.1.2636.1.1.1.2",
        "et-0/0/{number}",
        first=0,
        step=1,
        first_index=501,
    ),
}
"""Numbers of ports and of ifIndex differ on purpose, as on real switches: a reader must not confuse
them."""


def interface_name(flavour: Flavour, port: int) -> str:
    """The switch's name of its port, from the topology's number (from 1).

    >>> interface_name(Flavour.SONIC, 3), interface_name(Flavour.JUNIPER, 3)
    ('Ethernet8', 'et-0/0/2')
    """
    product = PRODUCTS[flavour]
    return product.port_name.format(number=product.first + product.step * (port - 1))


def interface_index(flavour: Flavour, port: int) -> int:
    product = PRODUCTS[flavour]
    return product.first_index + product.step * (port - 1)


# Rows -------------------------------------------------------------------------------------------

SYSTEM = "1.3.6.1.2.1.1"
LLDP_LOCAL = "1.0.8802.1.1.2.1.3"
LLDP_REMOTE = "1.0.8802.1.1.2.1.4.1.1"
ENTITY = "1.3.6.1.2.1.47.1.1.1.1"
SENSOR = "1.3.6.1.2.1.99.1.1.1"

ETHERNET = 6
"""ifType."""
JUMBO_FRAME_BYTES = 9216
CHASSIS_IS_MAC = 4
PORT_IS_MAC = 3
PORT_IS_NAME = 5
"""Subtypes of LLDP's identifiers. Switches identify a port by name; `lldpd` on a host by MAC."""
SENSOR_CLASS = 8
SENSOR_WATTS = 6
SENSOR_MILLI = 8
SENSOR_DECIMALS = 4
SENSOR_OK = 1
FIRST_SENSOR = 1_000_000
"""entPhysicalIndex: ten for each ifIndex from here."""


class Row(NamedTuple):
    """One line of a recording: a fixed value, or the slot of a reading that is looked up."""

    oid: tuple[int, ...]
    syntax: Syntax
    value: str | bytes | int
    slot: int | None = None


def _row(oid: str, syntax: Syntax, value: str | bytes | int, slot: int | None = None) -> Row:
    return Row(tuple(map(int, oid.split("."))), syntax, value, slot)


def slot_of(ports: Ports, reading: Reading, position: int) -> int:
    """Where the reading of one port stands when `Readings.values` is laid out flat."""
    return int(reading) * len(ports.out) + position


def switch_rows(topology: Topology, ports: Ports, switch: int, flavour: Flavour) -> list[Row]:
    rows = list(_system_rows(topology, ports, switch, flavour))
    columns = (*STANDARD_COLUMNS, *vendor_columns(flavour))
    for position in ports.of_switch(switch):
        index = interface_index(flavour, int(ports.number[position]))
        rows.extend(_interface_rows(topology, ports, position, flavour))
        rows.extend(_neighbour_rows(topology, ports, position, flavour))
        rows.extend(_optics_rows(ports, position, flavour))
        for column in columns:
            slot = None if column.reading is None else slot_of(ports, column.reading, position)
            rows.append(_row(f"{column.oid}.{index}{column.suffix}", column.syntax, 0, slot))
    return sorted(rows, key=lambda row: row.oid)


def _system_rows(topology: Topology, ports: Ports, switch: int, flavour: Flavour) -> Iterator[Row]:
    product, name = PRODUCTS[flavour], topology.switches[switch].name
    mine = ports.of_switch(switch)
    yield _row(f"{SYSTEM}.1.0", Syntax.OCTETS, product.description)
    yield _row(f"{SYSTEM}.2.0", Syntax.OBJECT, product.object_id)
    uptime = slot_of(ports, Reading.UPTIME_TICKS, mine.start)
    yield _row(f"{SYSTEM}.3.0", Syntax.TIMETICKS, 0, uptime)
    yield _row(f"{SYSTEM}.5.0", Syntax.OCTETS, name)
    yield _row("1.3.6.1.2.1.2.1.0", Syntax.INTEGER, len(mine))
    yield _row(f"{LLDP_LOCAL}.1.0", Syntax.INTEGER, CHASSIS_IS_MAC)
    yield _row(f"{LLDP_LOCAL}.2.0", Syntax.OCTETS, _mac_bytes(topology.switch_mac(switch)))
    yield _row(f"{LLDP_LOCAL}.3.0", Syntax.OCTETS, name)
    yield _row(f"{LLDP_LOCAL}.4.0", Syntax.OCTETS, product.description)


def _interface_rows(
    topology: Topology, ports: Ports, position: int, flavour: Flavour
) -> Iterator[Row]:
    number = int(ports.number[position])
    index, name = interface_index(flavour, number), interface_name(flavour, number)
    mac = _mac_bytes(topology.switch_mac(int(ports.switch[position]), number))
    peer = neighbour_of(topology, int(ports.back[position]), flavour)
    fixed: tuple[tuple[str, Syntax, str | bytes | int], ...] = (
        (f"{IF_ENTRY}.1", Syntax.INTEGER, index),
        (f"{IF_ENTRY}.2", Syntax.OCTETS, name),
        (f"{IF_ENTRY}.3", Syntax.INTEGER, ETHERNET),
        (f"{IF_ENTRY}.4", Syntax.INTEGER, JUMBO_FRAME_BYTES),
        (f"{IF_ENTRY}.6", Syntax.OCTETS, mac),
        (f"{IF_ENTRY}.7", Syntax.INTEGER, 1),
        (f"{IF_X_ENTRY}.1", Syntax.OCTETS, name),
        (f"{IF_X_ENTRY}.18", Syntax.OCTETS, f"{peer.system} {peer.port_name}"),
        (f"{IF_X_ENTRY}.19", Syntax.TIMETICKS, 0),
        (f"{LLDP_LOCAL}.7.1.2", Syntax.INTEGER, PORT_IS_NAME),
        (f"{LLDP_LOCAL}.7.1.3", Syntax.OCTETS, name),
        (f"{LLDP_LOCAL}.7.1.4", Syntax.OCTETS, name),
    )
    for oid, syntax, value in fixed:
        yield _row(f"{oid}.{index}", syntax, value)


class Neighbour(NamedTuple):
    """The other end of a cable, as it announces itself over LLDP."""

    system: str
    chassis: bytes
    port_name: str
    port_kind: int
    port_id: str | bytes


def neighbour_of(topology: Topology, back: int, flavour: Flavour) -> Neighbour:
    switch = int(topology.source_switch[back])
    if switch >= 0:
        name = interface_name(flavour, int(topology.port[back]))
        chassis = _mac_bytes(topology.switch_mac(switch))
        return Neighbour(topology.switches[switch].name, chassis, name, PORT_IS_NAME, name)
    nic = int(topology.source[back]) % topology.nics
    host = topology.host_of_nic(nic)
    # A host's chassis is one for all its NICs: the address of its first.
    chassis = _mac_bytes(topology.nic_mac(host * topology.nics_per_host))
    mac = _mac_bytes(topology.nic_mac(nic))
    name = topology.interface_name(nic)
    return Neighbour(topology.host_name(host), chassis, name, PORT_IS_MAC, mac)


def _neighbour_rows(
    topology: Topology, ports: Ports, position: int, flavour: Flavour
) -> Iterator[Row]:
    """LLDP-MIB's remote table; a neighbour stays while its cable is cut, as for two minutes."""
    peer = neighbour_of(topology, int(ports.back[position]), flavour)
    index = interface_index(flavour, int(ports.number[position]))
    fixed: tuple[tuple[int, Syntax, str | bytes | int], ...] = (
        (4, Syntax.INTEGER, CHASSIS_IS_MAC),
        (5, Syntax.OCTETS, peer.chassis),
        (6, Syntax.INTEGER, peer.port_kind),
        (7, Syntax.OCTETS, peer.port_id),
        (8, Syntax.OCTETS, peer.port_name),
        (9, Syntax.OCTETS, peer.system),
    )
    for column, syntax, value in fixed:
        yield _row(f"{LLDP_REMOTE}.{column}.0.{index}.1", syntax, value)


def _optics_rows(ports: Ports, position: int, flavour: Flavour) -> Iterator[Row]:
    """ENTITY-MIB and ENTITY-SENSOR-MIB: light in and out of the port's module."""
    number = int(ports.number[position])
    index, name = interface_index(flavour, number), interface_name(flavour, number)
    sensors = (("RX", Reading.RECEIVE_POWER), ("TX", Reading.SEND_POWER))
    for offset, (direction, reading) in enumerate(sensors, start=1):
        entity = FIRST_SENSOR + 10 * index + offset
        text = f"DOM {direction} Power Sensor for {name}"
        yield _row(f"{ENTITY}.2.{entity}", Syntax.OCTETS, text)
        yield _row(f"{ENTITY}.5.{entity}", Syntax.INTEGER, SENSOR_CLASS)
        yield _row(f"{ENTITY}.7.{entity}", Syntax.OCTETS, text)
        yield _row(f"{SENSOR}.1.{entity}", Syntax.INTEGER, SENSOR_WATTS)
        yield _row(f"{SENSOR}.2.{entity}", Syntax.INTEGER, SENSOR_MILLI)
        yield _row(f"{SENSOR}.3.{entity}", Syntax.INTEGER, SENSOR_DECIMALS)
        slot = slot_of(ports, reading, position)
        yield _row(f"{SENSOR}.4.{entity}", Syntax.INTEGER, 0, slot)
        yield _row(f"{SENSOR}.5.{entity}", Syntax.INTEGER, SENSOR_OK)


def _mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
