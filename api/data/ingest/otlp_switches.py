"""What switches push over OTLP in words that no alias of the catalog can translate.

An alias is another name, other labels and a factor. A state that is a bitmap, a neighbour whose
port has one of two names, and an object's name that holds port and queue are none of these. They
are translated here, when they arrive, into the catalog's own series: everything that reads those
(windows, rules, boards, the inventory) needs to know nothing about OTLP.

- Cumulus Linux: NVIDIA's "Open Telemetry Export", Cumulus Linux 5.15. The switch's own series is
  stored as well: its user may have boards of it.
- SONiC's high-frequency telemetry: countersyncd of sonic-swss (message/otel.rs, sai/*.rs) names a
  metric `sai_counter_type_<object type>_stat_<statistic>`, by the numbers of SAI, and the object in
  `object_name` (a queue is `Ethernet0|3`). These are stored under the catalog's name *instead*.

A resource without a host's name (`host.name`) names no switch, and is stored as it is: countersyncd
sets none, and NVOS (`nvos@switch`) none either. A Collector on the way adds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

ACTIVE, DOWN = 4.0, 1.0
"""Of `fabric_port_state`."""
CUMULUS_UP, CUMULUS_DOWN = 1, 2
"""Bits of `nvswitch_interface_oper_state`; None, Invalid and Error say nothing about the link."""
MANAGEMENT: Final = frozenset({"eth0", "eth1", "lo", "mgmt"})
"""Interfaces of a Cumulus switch that are no ports of the fabric."""
MAC: Final = "mac"
"""`port_id_type` of a neighbour that identifies its port by an address: a host with lldpd."""

Labels = dict[str, str]


Translated = tuple[str, Labels]
"""A metric of the catalog, and the labels of a series of it."""


def state(number: float) -> float | None:
    """`fabric_port_state` of Cumulus' bitmap.

    >>> state(1.0), state(2.0), state(8.0)
    (4.0, 1.0, None)
    """
    return {CUMULUS_UP: ACTIVE, CUMULUS_DOWN: DOWN}.get(int(number)) if number >= 0 else None


def _port(metric: str, labels: Mapping[str, str], **more: str) -> Translated | None:
    """A series of a port; None for an interface that is no port of the fabric."""
    host, interface = labels["host"], labels.get("interface", "")
    if not interface or interface in MANAGEMENT:
        return None
    return metric, {"host": host, "device": host, "port": interface, **more}


def _state(labels: Mapping[str, str]) -> Translated | None:
    return _port("fabric_port_state", labels)


def _paused(metric: str) -> Callable[[Mapping[str, str]], Translated | None]:
    """Pauses of the whole port (802.3x): the priority is in the metric's name, and in no label."""
    return lambda labels: _port(metric, labels, priority="global")


def _neighbour(labels: Mapping[str, str]) -> Translated | None:
    port_id, described = labels.get("port_id", ""), labels.get("port_description", "")
    by_address = labels.get("port_id_type") == MAC
    told = {
        "method": "lldp",
        "peer_name": labels.get("system_name", ""),
        "peer_port": described if by_address else port_id,
        "peer_chassis": labels.get("chassis_id", ""),
        "peer_port_id": port_id,
    }
    return _port("fabric_link_info", labels, **{name: text for name, text in told.items() if text})


OPER_STATE: Final = "nvswitch_interface_oper_state"
CUMULUS: Final[dict[str, Callable[[Mapping[str, str]], Translated | None]]] = {
    OPER_STATE: _state,
    "nvswitch_interface_dot3_in_pause_frames": _paused("fabric_port_receive_pause_frames_total"),
    "nvswitch_interface_dot3_out_pause_frames": _paused("fabric_port_transmit_pause_frames_total"),
    "nvswitch_lldp_neighbor_info": _neighbour,
}


def converted(name: str, number: float) -> float | None:
    """The number of the catalog's series; None: this one has no meaning there."""
    return state(number) if name == OPER_STATE else number


def translation(name: str, labels: Mapping[str, str]) -> Translated | None:
    """The catalog's series beside this one; None where there is none, or no host is named."""
    translate = CUMULUS.get(name)
    return translate(labels) if translate is not None and labels.get("host") else None


# SONiC's high-frequency telemetry ----------------------------------------------------------------

SAI_PREFIX: Final = "sai_counter_type_"
SAI_NAME: Final = re.compile(r"sai_counter_type_\d{1,4}_stat_\d{1,10}(_ratio)?")
"""countersyncd gives the unit 1, which Prometheus' rules make a `_ratio` of."""
PORT, QUEUE, PRIORITY_GROUP = "1", "21", "26"
"""Of sai_object_type_t."""
FIRST_PAUSE, FIRST_CODEWORD = 103, 183
PRIORITIES, CODEWORDS = 8, 17


def _pauses() -> dict[tuple[str, str], tuple[str, Labels]]:
    """SAI_PORT_STAT_PFC_<n>_{RX,TX}_PKTS: two for each priority, from 103 on."""
    return {
        (PORT, str(FIRST_PAUSE + 2 * priority + place)): (
            f"fabric_port_{way}_pause_frames_total",
            {"priority": str(priority)},
        )
        for priority in range(PRIORITIES)
        for place, way in enumerate(("receive", "transmit"))
    }


SAI: Final[dict[tuple[str, str], tuple[str, Labels]]] = {
    (PORT, "0"): ("fabric_port_receive_bytes_total", {}),
    (PORT, "1"): ("fabric_port_receive_unicast_packets_total", {}),
    (PORT, "3"): ("fabric_port_receive_discards_total", {}),
    (PORT, "4"): ("fabric_port_receive_errors_total", {}),
    (PORT, "9"): ("fabric_port_transmit_bytes_total", {}),
    (PORT, "10"): ("fabric_port_transmit_unicast_packets_total", {}),
    (PORT, "12"): ("fabric_port_transmit_discards_total", {}),
    (PORT, "13"): ("fabric_port_transmit_errors_total", {}),
    (PORT, "39"): ("fabric_port_receive_crc_errors_total", {}),
    (PORT, "101"): ("fabric_port_receive_pause_frames_total", {"priority": "global"}),
    (PORT, "102"): ("fabric_port_transmit_pause_frames_total", {"priority": "global"}),
    **_pauses(),
    (PORT, "178"): ("fabric_port_receive_fec_corrected_blocks_total", {}),
    (PORT, "179"): ("fabric_port_receive_fec_uncorrectable_blocks_total", {}),
    (PORT, "180"): ("fabric_port_receive_fec_symbol_errors_total", {}),
    **{
        (PORT, str(FIRST_CODEWORD + count)): (
            "fabric_port_receive_fec_blocks_total",
            {"symbol_errors": str(count)},
        )
        for count in range(CODEWORDS)
    },
    (PORT, "200"): ("fabric_port_receive_fec_corrected_bits_total", {}),
    (QUEUE, "0"): ("fabric_port_queue_transmit_packets_total", {}),
    (QUEUE, "1"): ("fabric_port_queue_transmit_bytes_total", {}),
    (QUEUE, "2"): ("fabric_port_queue_discarded_packets_total", {}),
    (QUEUE, "3"): ("fabric_port_queue_discarded_bytes_total", {}),
    (QUEUE, "22"): ("fabric_port_queue_early_discarded_packets_total", {}),
    (QUEUE, "24"): ("fabric_port_queue_depth_bytes", {}),
    (QUEUE, "25"): ("fabric_port_queue_peak_bytes", {}),
    (QUEUE, "34"): ("fabric_port_queue_ecn_marked_packets_total", {}),
    (PRIORITY_GROUP, "2"): ("fabric_port_priority_group_depth_bytes", {}),
    (PRIORITY_GROUP, "5"): ("fabric_port_priority_group_peak_bytes", {}),
    (PRIORITY_GROUP, "7"): ("fabric_port_priority_group_headroom_peak_bytes", {}),
    (PRIORITY_GROUP, "8"): ("fabric_port_priority_group_discarded_packets_total", {}),
}
"""By object type and statistic (sai_port_stat_t, sai_queue_stat_t,
sai_ingress_priority_group_stat_t): the catalog's metric, and labels beside those of the object."""

PART_LABEL: Final = {QUEUE: "queue", PRIORITY_GROUP: "priority"}
"""What stands behind the bar in an object's name."""


def sai_series(name: str, labels: Mapping[str, str]) -> Translated | None:
    """The catalog's metric and labels that stand for a series of countersyncd; None: none do.

    >>> told = {"host": "leaf1", "object_name": "Ethernet0|3", "sai_type_id": "21"}
    >>> sai_series("sai_counter_type_21_stat_24_ratio", told | {"sai_stat_id": "24"})
    ('fabric_port_queue_depth_bytes', {'host': 'leaf1', 'device': 'leaf1', 'port': 'Ethernet0', \
'queue': '3'})
    """
    host, kind = labels.get("host", ""), labels.get("sai_type_id", "")
    known = SAI.get((kind, labels.get("sai_stat_id", "")))
    if not host or known is None or not SAI_NAME.fullmatch(name):
        return None
    metric, more = known
    port, bar, part = labels.get("object_name", "").partition("|")
    if not port or bool(bar) is not (kind in PART_LABEL):
        return None
    place = {"host": host, "device": host, "port": port, **more}
    if kind in PART_LABEL:
        place[PART_LABEL[kind]] = part
    return metric, place
