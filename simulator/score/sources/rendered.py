"""Simulated switches in the words of SONiC's gNMI server and of Cumulus' OTLP exporter.

Numbers come from `simulator.interfaces.switch_tables`, as for SNMP; a number that an interface has
and the simulation does not (octets of broadcasts) is left out, and one that the interface lacks is
not sent. Names are those of sonic-gnmi (`COUNTERS_DB`, `APPL_DB`, `STATE_DB`) and of NVIDIA's "Open
Telemetry Export" for Cumulus Linux 5.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from collector.contract.units import NS
from simulator.interfaces.columns import LOSSLESS_PRIORITY, PRIORITIES
from simulator.interfaces.switch_tables import (
    JUMBO_FRAME_BYTES,
    POWER_UNITS_PER_MILLIWATT,
    Flavour,
    Reading,
    Readings,
    interface_name,
    neighbour_of,
)
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Topology

UP = 1
"""Of Reading.OPERATIONAL_STATUS."""
DARK_DBM = "-inf"
CLASSES = tuple(range(PRIORITIES))

Values = Mapping[Reading, int]

# SONiC -------------------------------------------------------------------------------------------

SAI_PORT = {
    "SAI_PORT_STAT_IF_IN_OCTETS": Reading.RECEIVED_BYTES,
    "SAI_PORT_STAT_IF_OUT_OCTETS": Reading.SENT_BYTES,
    "SAI_PORT_STAT_IF_IN_UCAST_PKTS": Reading.RECEIVED_PACKETS,
    "SAI_PORT_STAT_IF_OUT_UCAST_PKTS": Reading.SENT_PACKETS,
    "SAI_PORT_STAT_IF_IN_ERRORS": Reading.DAMAGED_PACKETS,
    "SAI_PORT_STAT_IF_OUT_DISCARDS": Reading.DROPPED_PACKETS,
    f"SAI_PORT_STAT_PFC_{LOSSLESS_PRIORITY}_RX_PKTS": Reading.PAUSES_RECEIVED,
    f"SAI_PORT_STAT_PFC_{LOSSLESS_PRIORITY}_TX_PKTS": Reading.PAUSES_SENT,
}
"""A port's fields in COUNTERS_DB. Images of today poll neither CRC nor symbol errors."""
SAI_QUEUE = {
    "SAI_QUEUE_STAT_PACKETS": Reading.SENT_PACKETS,
    "SAI_QUEUE_STAT_BYTES": Reading.SENT_BYTES,
    "SAI_QUEUE_STAT_DROPPED_PACKETS": Reading.DROPPED_PACKETS,
    "SAI_QUEUE_STAT_DROPPED_BYTES": Reading.DROPPED_BYTES,
    "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": Reading.QUEUE_BYTES,
    "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": Reading.QUEUE_PEAK_BYTES,
}


class Rendered:
    """The switches of a fabric, from one snapshot to the next."""

    def __init__(self, topology: Topology, flavour: Flavour) -> None:
        self.topology = topology
        self.flavour = flavour
        self._readings = Readings(topology)
        self.ports = self._readings.ports
        self._values: Counts = self._readings.values

    def update(self, snapshot: Snapshot) -> None:
        self._values = self._readings.update(snapshot)

    def of_port(self, position: int) -> Values:
        column = self._values[:, position]
        return {reading: int(column[reading]) for reading in Reading}

    def name(self, position: int) -> str:
        return interface_name(self.flavour, int(self.ports.number[position]))

    def neighbour(self, position: int) -> dict[str, str]:
        peer = neighbour_of(self.topology, int(self.ports.back[position]), self.flavour)
        is_text = isinstance(peer.port_id, str)
        return {
            "name": peer.system,
            "chassis": peer.chassis.hex(":"),
            "port": peer.port_name,
            "port_id": peer.port_id if isinstance(peer.port_id, str) else peer.port_id.hex(":"),
            "port_id_type": "ifname" if is_text else "mac",
        }


def dbm(units: int) -> str:
    """A module's light as SONiC writes it, from the simulation's ten thousandths of a milliwatt."""
    milliwatts = units / POWER_UNITS_PER_MILLIWATT
    return f"{10 * np.log10(milliwatts):.4f}" if milliwatts > 0 else DARK_DBM


def sonic_messages(shown: Rendered, switch: int, time_ns: int) -> bytes:
    """A recording of one answer of a switch: what a subscription to its databases is sent."""
    tables: dict[str, dict[str, dict[str, str]]] = {
        "COUNTERS/Ethernet*": {},
        "COUNTERS/Ethernet*/Queues": {},
        "PORT_TABLE": {},
        "LLDP_ENTRY_TABLE": {},
        "TRANSCEIVER_DOM_SENSOR": {},
    }
    for position in shown.ports.of_switch(switch):
        port, values = shown.name(position), shown.of_port(position)
        peer = shown.neighbour(position)
        counters = {name: str(values[reading]) for name, reading in SAI_PORT.items()}
        tables["COUNTERS/Ethernet*"][port] = counters
        queue = {name: str(values[reading]) for name, reading in SAI_QUEUE.items()}
        tables["COUNTERS/Ethernet*/Queues"][f"{port}:{LOSSLESS_PRIORITY}"] = queue
        tables["PORT_TABLE"][port] = {
            "oper_status": "up" if values[Reading.OPERATIONAL_STATUS] == UP else "down",
            "admin_status": "up",
            "speed": str(values[Reading.MEGABITS_PER_SECOND]),
            "mtu": str(JUMBO_FRAME_BYTES),
            "flap_count": str(values[Reading.CARRIER_CHANGES]),
        }
        tables["LLDP_ENTRY_TABLE"][port] = {
            "lldp_rem_sys_name": peer["name"],
            "lldp_rem_chassis_id": peer["chassis"],
            "lldp_rem_port_id": peer["port_id"],
            "lldp_rem_port_desc": peer["port"],
        }
        tables["TRANSCEIVER_DOM_SENSOR"][port] = {
            "rx1power": dbm(values[Reading.RECEIVE_POWER]),
            "tx1power": dbm(values[Reading.SEND_POWER]),
        }
    updates = [{"path": path, "val": table} for path, table in tables.items()]
    recorded = [{"update": {"timestamp": time_ns, "update": updates}}, {"syncResponse": True}]
    return msgspec.json.encode(recorded)


# Cumulus -----------------------------------------------------------------------------------------

CUMULUS_PORT: dict[str, Callable[[Values], float]] = {
    "nvswitch_interface_oper_state": lambda v: 1 if v[Reading.OPERATIONAL_STATUS] == UP else 2,
    "nvswitch_interface_oper_aggregate_speed": lambda v: v[Reading.BITS_PER_SECOND],
    "nvswitch_interface_mtu_bytes": lambda _: JUMBO_FRAME_BYTES,
    "nvswitch_interface_ether_stats_octets": lambda v: v[Reading.RECEIVED_BYTES],
    "nvswitch_interface_if_out_octets": lambda v: v[Reading.SENT_BYTES],
    "nvswitch_interface_if_in_ucast_pkts": lambda v: v[Reading.RECEIVED_PACKETS],
    "nvswitch_interface_if_out_ucast_pkts": lambda v: v[Reading.SENT_PACKETS],
    "nvswitch_interface_if_in_errors": lambda v: v[Reading.DAMAGED_PACKETS],
    "nvswitch_interface_if_in_discards": lambda _: 0,
    "nvswitch_interface_if_out_discards": lambda v: v[Reading.DROPPED_PACKETS],
    "nvswitch_interface_dot3_stats_fcs_errors": lambda v: v[Reading.DAMAGED_PACKETS],
    "nvswitch_interface_dot3_stats_symbol_errors": lambda v: v[Reading.SYMBOL_ERRORS],
    "nvswitch_interface_dot3_in_pause_frames": lambda _: 0,
    "nvswitch_interface_dot3_out_pause_frames": lambda _: 0,
    "nvswitch_interface_carrier_changes_total": lambda v: v[Reading.CARRIER_CHANGES],
}
CUMULUS_CLASS: dict[str, tuple[str, Reading]] = {
    "nvswitch_interface_sp_rx_pause": ("sp", Reading.PAUSES_RECEIVED),
    "nvswitch_interface_sp_tx_pause": ("sp", Reading.PAUSES_SENT),
    "nvswitch_interface_tc_tx_frames": ("tc", Reading.SENT_PACKETS),
    "nvswitch_interface_tc_tx_octet": ("tc", Reading.SENT_BYTES),
    "nvswitch_interface_tc_tx_no_buffer_discard_uc": ("tc", Reading.DROPPED_PACKETS),
}
"""By switch priority or traffic class: the attribute, and what the lossless class counts."""


def cumulus_push(shown: Rendered, switch: int, time_ns: int) -> bytes:
    """One export of a switch: gauges with doubles, as Cumulus sends them."""
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    set_attributes(of_resource.resource, {"host.name": shown.topology.switches[switch].name})
    metrics = of_resource.scope_metrics.add().metrics
    mine = list(shown.ports.of_switch(switch))
    values = {position: shown.of_port(position) for position in mine}
    for name, number_of in CUMULUS_PORT.items():
        points = gauge(metrics, name)
        for position in mine:
            labels = {"interface": shown.name(position)}
            add_point(points, labels, number_of(values[position]), time_ns)
    for name, (attribute, reading) in CUMULUS_CLASS.items():
        points = gauge(metrics, name)
        for position in mine:
            for number in CLASSES:
                counted = values[position][reading] if number == LOSSLESS_PRIORITY else 0
                labels = {"interface": shown.name(position), attribute: str(number)}
                add_point(points, labels, counted, time_ns)
    points = gauge(metrics, "nvswitch_lldp_neighbor_info")
    for position in mine:
        add_point(points, dict(cumulus_neighbour(shown, position)), 1, time_ns)
    return bytes(message.SerializeToString())


def cumulus_neighbour(shown: Rendered, position: int) -> Iterator[tuple[str, str]]:
    peer = shown.neighbour(position)
    yield "interface", shown.name(position)
    yield "system_name", peer["name"]
    yield "chassis_id", peer["chassis"]
    yield "port_id", peer["port_id"]
    yield "port_id_type", peer["port_id_type"]
    yield "port_description", peer["port"]


def gauge(metrics: Any, name: str) -> Any:  # noqa: ANN401 - protobuf's repeated fields
    metric = metrics.add()
    metric.name = name
    metric.gauge.SetInParent()
    return metric.gauge.data_points


def add_point(points: Any, labels: Mapping[str, str], value: float, time_ns: int) -> None:  # noqa: ANN401 - as above
    point = points.add()
    point.time_unix_nano = time_ns
    point.as_double = float(value)
    set_attributes(point, labels)


def set_attributes(holder: Any, labels: Mapping[str, str]) -> None:  # noqa: ANN401 - as above
    for key, text in labels.items():
        pair = holder.attributes.add()
        pair.key = key
        pair.value.string_value = text


def time_ns_of(snapshot: Snapshot) -> int:
    return snapshot.start_unix_ns + round(snapshot.time_s * NS)
