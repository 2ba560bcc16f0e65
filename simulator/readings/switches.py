"""A poller's readings of all switches: over SNMP on RoCE, over management datagrams on InfiniBand.

A *view* gives a matrix of numbers, [number, switch port], at every poll, and maps each series of a
switch to a cell of it. Numbers of a switch as a whole stand at its first port.

The poller reads everything at every poll. A production `snmp` source reads names, neighbours and
optics only every few rounds and repeats them in between. The sources' metrics about their own work
(duration of a poll, rows of a table, flaws) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from collector.contract.counters import WRAPS_32
from collector.contract.reason import UnreadReason
from simulator.interfaces.columns import PHYSICAL_POLLING, PHYSICAL_UP, PORT_ACTIVE, PORT_DOWN
from simulator.interfaces.infiniband_switches import (
    BITS,
    TICK_BYTES,
    InfinibandReadings,
    PortStates,
)
from simulator.interfaces.switch_tables import (
    JUMBO_FRAME_BYTES,
    MEGABIT,
    POWER_UNITS_PER_MILLIWATT,
    PRODUCTS,
    TICKS_PER_SECOND,
    Flavour,
    Ports,
    Reading,
    Readings,
    interface_name,
    neighbour_of,
)
from simulator.readings.devices import Extenders
from simulator.readings.series import ABSENT, Row, make_row, missing_row
from simulator.readings.switch_names import (
    COUNTERS,
    FACTS,
    INFINIBAND_PORT,
    InfinibandNumber,
    Labels,
    Number,
    absent_metrics,
    columns_of,
)
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Fabric, Floats, Topology

SNMP, INFINIBAND = "snmp", "ib_fabric"
MILLIWATTS_PER_WATT = 1000
GAUGE_MAX = (1 << 32) - 1
"""SNMP's Gauge32 stops there."""
OPERATIONAL = 1
CHIP = "Quantum-2"
"""What simulated InfiniBand switches are; what it counts is wide, and never at its end."""

Cell = tuple[Row, int, int]
"""A series, and which number of which port (by its place in `Ports`) it shows."""


class View(Protocol):
    """All switches of a fabric as one source sees them."""

    ports: Ports

    def read(self, snapshot: Snapshot) -> Floats:
        """The matrix of this moment; NaN where a number is absent."""

    def cells(self, switch: int) -> Iterator[Cell]: ...


def make_view(topology: Topology, flavour: Flavour) -> View:
    if topology.fabric is Fabric.INFINIBAND:
        return InfinibandView(topology)
    return SnmpView(topology, flavour)


# Ethernet ---------------------------------------------------------------------------------------


class SnmpView:
    """Switches as `snmp` sees them. A management network connects them, and all answer."""

    def __init__(self, topology: Topology, flavour: Flavour) -> None:
        self._topology = topology
        self._flavour = flavour
        self._readings = Readings(topology)
        self.ports = self._readings.ports
        self._extenders = Extenders(WRAPS_32, len(self.ports.out), 3)
        # Labels in their order: a cluster has millions of series, and sorting them takes longest.
        self._columns = [
            (
                column,
                {name: text for name, text in sorted(column.labels) if name < "port"},
                {name: text for name, text in sorted(column.labels) if name > "port"},
            )
            for column in columns_of(flavour)
        ]

    def read(self, snapshot: Snapshot) -> Floats:
        """[Number, port]; none is ever missing."""
        values = self._readings.update(snapshot)
        fresh = np.zeros((len(Number), values.shape[1]))
        fresh[Number.ONE] = 1.0
        fresh[Number.UPTIME_SECONDS] = values[Reading.UPTIME_TICKS] / TICKS_PER_SECOND
        fresh[Number.MTU_BYTES] = JUMBO_FRAME_BYTES
        is_up = values[Reading.OPERATIONAL_STATUS] == OPERATIONAL
        fresh[Number.STATE] = np.where(is_up, PORT_ACTIVE, PORT_DOWN)
        fresh[Number.RATE] = values[Reading.MEGABITS_PER_SECOND] * MEGABIT
        units = POWER_UNITS_PER_MILLIWATT * MILLIWATTS_PER_WATT
        fresh[Number.RECEIVE_WATTS] = values[Reading.RECEIVE_POWER] / units
        fresh[Number.SEND_WATTS] = values[Reading.SEND_POWER] / units
        for number in range(Number.RECEIVED_BYTES, Number.NARROW_DAMAGED_PACKETS):
            fresh[number] = values[Reading[Number(number).name]]
        for gauge in (Number.QUEUE_BYTES, Number.QUEUE_PEAK_BYTES):
            np.minimum(fresh[gauge], GAUGE_MAX, out=fresh[gauge])
        fresh[Number.NARROW_DAMAGED_PACKETS :] = self._extend(values)
        return fresh

    def _extend(self, values: Counts) -> Floats:
        """Counters of 32 bits as the source extends them; in the order of `Number`."""
        narrow = (Reading.DAMAGED_PACKETS, Reading.DROPPED_PACKETS, Reading.SYMBOL_ERRORS)
        raw = values[list(narrow)].T % (1 << WRAPS_32.bits)
        extended = self._extenders.extend(raw, np.ones(len(raw), dtype=np.bool_))
        return extended.T.astype(np.float64)

    def cells(self, switch: int) -> Iterator[Cell]:
        topology, flavour = self._topology, self._flavour
        name, mine = topology.switches[switch].name, self.ports.of_switch(switch)
        facts = {
            "address": name,
            "chassis": topology.switch_mac(switch),
            "description": PRODUCTS[flavour].description,
            "system_name": name,
        }
        asked = {"host": name, "method": SNMP}
        first = mine.start
        yield make_row("fabric_switch_up", asked), Number.ONE, first
        yield make_row("fabric_switch_info", asked | facts | FACTS[flavour]), Number.ONE, first
        yield make_row("fabric_switch_uptime_seconds", {"host": name}), Number.UPTIME_SECONDS, first
        for metric in absent_metrics(flavour):
            row = make_row(metric, {"host": name, "device": name})
            yield missing_row(row, UnreadReason.ABSENT, SNMP), Number.ONE, first
        for position in mine:
            yield from self._port_cells(name, position)

    def _port_cells(self, switch: str, position: int) -> Iterator[Cell]:
        flavour = self._flavour
        peer = neighbour_of(self._topology, int(self.ports.back[position]), flavour)
        port = interface_name(flavour, int(self.ports.number[position]))
        labels: Labels = {"device": switch, "host": switch, "port": port}
        about = {"link_layer": "Ethernet", "description": f"{peer.system} {peer.port_name}"}
        yield make_row("fabric_port_info", labels | about), Number.ONE, position
        identifier = peer.port_id if isinstance(peer.port_id, str) else peer.port_id.hex(":")
        neighbour = {
            "method": "lldp",
            "peer_name": peer.system,
            "peer_port": peer.port_name,
            "peer_chassis": peer.chassis.hex(":"),
            "peer_port_id": identifier,
        }
        yield make_row("fabric_link_info", labels | neighbour), Number.ONE, position
        for column, before, after in self._columns:
            row = make_row(column.metric, {**before, **labels, **after})
            yield row, column.number, position


# InfiniBand -------------------------------------------------------------------------------------


class InfinibandView:
    """Switches as `ib_fabric` sees them: through the fabric itself.

    A switch without a live cable cannot be read; once found, it is still reported as down.
    Partitions of a fabric are all read: pollers have an HCA in each. The reasons of discards
    (PortXmitDiscardDetails) are not reported: where senders wait for credits, there are none.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._readings = InfinibandReadings(topology)
        self.ports = self._readings.ports
        size = len(self.ports.out)
        self._is_known: Bools = np.zeros(size, dtype=np.bool_)
        self._ticks: Counts = np.full(size, -1, dtype=np.int64)
        """At the last poll; -1: not read yet."""
        self._wait_s: Floats = np.zeros(size)

    def read(self, snapshot: Snapshot) -> Floats:
        """[InfinibandNumber and then COUNTERS, port]."""
        states, counters = self._readings.update(snapshot)
        is_found, has_link = states.is_found, states.is_found & states.is_up
        self._is_known |= is_found
        self._add_wait(states, counters["PortXmitWait"])
        silent = self._is_known & ~is_found
        numbers = {
            InfinibandNumber.KNOWN: np.where(self._is_known, 1.0, ABSENT),
            InfinibandNumber.UP: np.where(self._is_known, is_found * 1.0, ABSENT),
            InfinibandNumber.SILENT: np.where(silent, 1.0, ABSENT),
            InfinibandNumber.LINK: np.where(has_link, 1.0, ABSENT),
            InfinibandNumber.STATE: _where(is_found, np.where(has_link, PORT_ACTIVE, PORT_DOWN)),
            InfinibandNumber.PHYSICAL_STATE: _where(
                is_found, np.where(has_link, PHYSICAL_UP, PHYSICAL_POLLING)
            ),
            InfinibandNumber.LANES: _where(has_link, states.lanes),
            InfinibandNumber.RATE: _where(has_link, states.bits_per_second),
            InfinibandNumber.COULD_BE_FASTER: _where(has_link, states.is_degraded),
            InfinibandNumber.WAIT_SECONDS: _where(is_found & (self._ticks >= 0), self._wait_s),
        }
        counted = [_where(is_found, counters[name] * by) for name, (_, by) in COUNTERS.items()]
        return np.stack([numbers[number] for number in InfinibandNumber] + counted)

    def _add_wait(self, states: PortStates, ticks: Counts) -> None:
        """Add up the time of waiting as the source does: fresh ticks at the rate of now."""
        is_read = states.is_found & states.is_up
        fresh = np.where(self._ticks < 0, ticks, ticks - self._ticks)
        seconds = fresh * (TICK_BYTES * BITS) / states.bits_per_second
        self._wait_s = np.where(is_read, self._wait_s + seconds, self._wait_s)
        self._ticks = np.where(is_read, ticks, self._ticks)

    def cells(self, switch: int) -> Iterator[Cell]:
        topology = self._topology
        name, mine = topology.switches[switch].name, self.ports.of_switch(switch)
        guid = f"0x{topology.switch_guid(switch):016x}"
        asked = {"host": name, "method": "ib"}
        facts = {"guid": guid, "model": CHIP, "description": name}
        first, numbers = mine.start, InfinibandNumber
        yield make_row("fabric_switch_info", asked | facts), numbers.KNOWN, first
        yield make_row("fabric_switch_up", asked), numbers.UP, first
        values = make_row("fabric_switch_poll_values", asked)
        yield missing_row(values, UnreadReason.TIMEOUT, INFINIBAND), numbers.SILENT, first
        for position in mine:
            labels = {"device": name, "host": name, "port": str(self.ports.number[position])}
            peer = self._neighbour(int(self.ports.back[position]))
            yield make_row("fabric_link_info", labels | peer), numbers.LINK, position
            for number, metric in INFINIBAND_PORT.items():
                yield make_row(metric, labels), number, position
            for place, (metric, _) in enumerate(COUNTERS.values(), start=len(numbers)):
                yield make_row(metric, labels), place, position

    def _neighbour(self, back: int) -> Labels:
        topology = self._topology
        switch = int(topology.source_switch[back])
        if switch >= 0:
            name, guid = topology.switches[switch].name, topology.switch_guid(switch)
        else:
            nic = int(topology.source[back]) % topology.nics
            host = topology.host_name(topology.host_of_nic(nic))
            name, guid = f"{host} {topology.device_name(nic)}", topology.nic_guid(nic)
        return {
            "method": "ib",
            "peer_name": name,
            "peer_port": str(topology.port[back]),
            "peer_guid": f"0x{guid:016x}",
        }


def _where(is_known: Bools, numbers: Floats | Counts | Bools) -> Floats:
    known: Floats = np.where(is_known, numbers, ABSENT)
    return known
