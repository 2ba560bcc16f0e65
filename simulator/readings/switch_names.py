"""A poller's names of switch counters: copies of the tables of `snmp` and `ib_fabric`.

The simulator may not import the agent, so names and factors are repeated here; a test compares both
on the same switches. The metrics of an Ethernet switch depend on the MIBs that it answers
(`Flavour`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from simulator.interfaces.columns import LOSSLESS_PRIORITY, PRIORITIES
from simulator.interfaces.switch_tables import Flavour

Labels = dict[str, str]


class Number(enum.IntEnum):
    """Numbers of an Ethernet switch's port: rows of the matrix that `SnmpView` makes."""

    ZERO = 0
    ONE = 1
    UPTIME_SECONDS = 2
    MTU_BYTES = 3
    STATE = 4
    RATE = 5
    RECEIVE_WATTS = 6
    SEND_WATTS = 7
    RECEIVED_BYTES = 8
    RECEIVED_PACKETS = 9
    SENT_BYTES = 10
    SENT_PACKETS = 11
    DROPPED_PACKETS = 12
    """As a counter of 64 bits."""
    DROPPED_BYTES = 13
    OFFERED_PACKETS = 14
    OFFERED_BYTES = 15
    PAUSES_SENT = 16
    PAUSES_RECEIVED = 17
    CARRIER_CHANGES = 18
    QUEUE_BYTES = 19
    QUEUE_PEAK_BYTES = 20
    NARROW_DAMAGED_PACKETS = 21
    """This and those behind it are read from counters of 32 bits."""
    NARROW_DROPPED_PACKETS = 22
    NARROW_SYMBOL_ERRORS = 23


class Column(NamedTuple):
    """One series of every port."""

    metric: str
    number: Number
    labels: tuple[tuple[str, str], ...] = ()


def _port(metric: str, number: Number, **labels: str) -> Column:
    return Column(f"fabric_port_{metric}", number, tuple(labels.items()))


STANDARD = (
    _port("receive_bytes_total", Number.RECEIVED_BYTES),
    _port("receive_unicast_packets_total", Number.RECEIVED_PACKETS),
    _port("transmit_bytes_total", Number.SENT_BYTES),
    _port("transmit_unicast_packets_total", Number.SENT_PACKETS),
    _port("rate_bits_per_second", Number.RATE),
    _port("mtu_bytes", Number.MTU_BYTES),
    _port("enabled", Number.ONE),
    _port("state", Number.STATE),
    _port("receive_discards_total", Number.ZERO),
    _port("receive_errors_total", Number.NARROW_DAMAGED_PACKETS),
    _port("transmit_discards_total", Number.NARROW_DROPPED_PACKETS),
    _port("transmit_errors_total", Number.ZERO),
    _port("receive_crc_errors_total", Number.NARROW_DAMAGED_PACKETS),
    _port("symbol_errors_total", Number.NARROW_SYMBOL_ERRORS),
    _port("receive_pause_frames_total", Number.ZERO, priority="global"),
    _port("transmit_pause_frames_total", Number.ZERO, priority="global"),
    _port("module_receive_power_watts", Number.RECEIVE_WATTS),
    _port("module_transmit_power_watts", Number.SEND_WATTS),
)
"""In switches of every maker: IF-MIB, EtherLike-MIB, ENTITY-SENSOR-MIB."""

STANDARD_ABSENT = (
    "receive_broadcast_packets_total",
    "receive_multicast_packets_total",
    "transmit_broadcast_packets_total",
    "transmit_multicast_packets_total",
    "receive_alignment_errors_total",
    "receive_mac_errors_total",
)
"""Columns that are missing in the tables of simulated switches."""


def columns_of(flavour: Flavour) -> tuple[Column, ...]:
    own = {
        Flavour.SONIC: _queues_by_cast,
        Flavour.ARISTA: _queues_by_cast,
        Flavour.CUMULUS: _cumulus,
        Flavour.JUNIPER: _juniper,
    }
    return (*STANDARD, *own[flavour]())


def absent_metrics(flavour: Flavour) -> tuple[str, ...]:
    """The metrics that the source reports as absent, of a switch as a whole."""
    more = {
        Flavour.CUMULUS: ("link_downed_total", "link_ups_total"),
        Flavour.JUNIPER: ("queue_early_discarded_packets_total",),
    }
    return tuple(f"fabric_port_{name}" for name in (*STANDARD_ABSENT, *more.get(flavour, ())))


def _by_class(metric: str, number: Number, label: str, **labels: str) -> Iterator[Column]:
    for each in range(PRIORITIES):
        counted = number if each == LOSSLESS_PRIORITY else Number.ZERO
        yield _port(metric, counted, **{label: str(each)}, **labels)


def _pauses() -> Iterator[Column]:
    yield from _by_class("receive_pause_frames_total", Number.PAUSES_RECEIVED, "priority")
    yield from _by_class("transmit_pause_frames_total", Number.PAUSES_SENT, "priority")


def _queues_by_cast() -> Iterator[Column]:
    """SONiC under Cisco's tables, and Arista: queues of unicast traffic."""
    yield from _pauses()
    for metric, number in (
        ("queue_transmit_packets_total", Number.SENT_PACKETS),
        ("queue_transmit_bytes_total", Number.SENT_BYTES),
        ("queue_discarded_packets_total", Number.DROPPED_PACKETS),
        ("queue_discarded_bytes_total", Number.DROPPED_BYTES),
    ):
        yield from _by_class(metric, number, "queue", cast="unicast")


def _cumulus() -> Iterator[Column]:
    yield from _pauses()
    yield from _by_class("queue_transmit_packets_total", Number.SENT_PACKETS, "queue")
    yield from _by_class("queue_discarded_packets_total", Number.DROPPED_PACKETS, "queue")
    yield from _by_class("queue_early_discarded_packets_total", Number.ZERO, "queue")
    yield _port("drops_total", Number.DROPPED_PACKETS, drop_reason="egress_queue_overflow")
    yield _port("carrier_changes_total", Number.CARRIER_CHANGES)


def _juniper() -> Iterator[Column]:
    """Depths of queues, and no pauses."""
    for metric, number in (
        ("queue_offered_packets_total", Number.OFFERED_PACKETS),
        ("queue_offered_bytes_total", Number.OFFERED_BYTES),
        ("queue_transmit_packets_total", Number.SENT_PACKETS),
        ("queue_transmit_bytes_total", Number.SENT_BYTES),
        ("queue_discarded_packets_total", Number.DROPPED_PACKETS),
        ("queue_depth_average_bytes", Number.QUEUE_BYTES),
        ("queue_depth_bytes", Number.QUEUE_BYTES),
        ("queue_peak_bytes", Number.QUEUE_PEAK_BYTES),
    ):
        yield from _by_class(metric, number, "queue")


FACTS: dict[Flavour, Labels] = {
    Flavour.SONIC: {
        "profile": "sonic",
        "vendor": "SONiC",
        "model": "simulated",
        "version": "202411",
    },
    Flavour.ARISTA: {
        "profile": "arista",
        "vendor": "Arista",
        "model": "simulated switch",
        "version": "4.33.6M",
    },
    Flavour.CUMULUS: {"profile": "cumulus", "vendor": "NVIDIA", "version": "5.9.2"},
    Flavour.JUNIPER: {
        "profile": "juniper",
        "vendor": "Juniper",
        "model": "simulated",
        "version": "22.2R3-EVO",
    },
}
"""The source's labels from a switch's description (`switch_tables.PRODUCTS`)."""

# InfiniBand -------------------------------------------------------------------------------------


class InfinibandNumber(enum.IntEnum):
    """Numbers of an InfiniBand switch's port that are no counters of its own."""

    KNOWN = 0
    """1 once the switch was found; the same for all its ports, as the next two."""
    UP = 1
    SILENT = 2
    """1 while a known switch does not answer."""
    LINK = 3
    """1 while there is a neighbour."""
    STATE = 4
    PHYSICAL_STATE = 5
    LANES = 6
    RATE = 7
    COULD_BE_FASTER = 8
    WAIT_SECONDS = 9


INFINIBAND_PORT = {
    InfinibandNumber.STATE: "fabric_port_state",
    InfinibandNumber.PHYSICAL_STATE: "fabric_port_physical_state",
    InfinibandNumber.LANES: "fabric_port_lanes",
    InfinibandNumber.RATE: "fabric_port_rate_bits_per_second",
    InfinibandNumber.COULD_BE_FASTER: "fabric_port_could_be_faster",
    InfinibandNumber.WAIT_SECONDS: "fabric_port_transmit_wait_seconds_total",
}

COUNTERS: dict[str, tuple[str, int]] = {
    "PortXmitData": ("fabric_port_transmit_bytes_total", 4),
    "PortRcvData": ("fabric_port_receive_bytes_total", 4),
    **{
        name: (f"fabric_port_{metric}_total", 1)
        for name, metric in {
            "PortXmitPkts": "transmit_packets",
            "PortRcvPkts": "receive_packets",
            "PortUnicastXmitPkts": "transmit_unicast_packets",
            "PortUnicastRcvPkts": "receive_unicast_packets",
            "PortMulticastXmitPkts": "transmit_multicast_packets",
            "PortMulticastRcvPkts": "receive_multicast_packets",
            "SymbolErrorCounter": "symbol_errors",
            "LinkErrorRecoveryCounter": "link_error_recoveries",
            "LinkDownedCounter": "link_downed",
            "PortRcvErrors": "receive_errors",
            "PortRcvRemotePhysicalErrors": "receive_remote_physical_errors",
            "PortRcvSwitchRelayErrors": "receive_switch_relay_errors",
            "PortXmitDiscards": "transmit_discards",
            "PortXmitConstraintErrors": "transmit_constraint_errors",
            "PortRcvConstraintErrors": "receive_constraint_errors",
            "LocalLinkIntegrityErrors": "local_link_integrity_errors",
            "ExcessiveBufferOverrunErrors": "excessive_buffer_overruns",
            "QP1Dropped": "qp1_dropped",
            "VL15Dropped": "vl15_dropped",
            "PortXmitWait": "transmit_wait_ticks",
        }.items()
    },
}
"""IBTA's counters: metric and factor."""
