"""InfiniBand's management counters, speeds and switch chips: their names and our metrics.

Names are those that infiniband-diags prints (libibmad's fields), which UFM prints too, some with
an `Extended` or `Ext` behind them. Facts: IBTA volume 1, 16.1 (performance management), and
NVIDIA's ibdiagnet manual, "Congestion Assessment on InfiniBand Links".
"""

from __future__ import annotations

from typing import NamedTuple

from collector.contract.counters import Overflow, Width
from collector.contract.units import WORD_BYTES
from collector.tables.rdma import CLAMPS_4, CLAMPS_8, CLAMPS_16, CLAMPS_32

CLAMPS_64 = Width(64, Overflow.CLAMP)
"""All ones in 64 bits is the answer of a device that does not count this at all."""

WIDE_END = CLAMPS_64.maximum

TICKS = "fabric_port_transmit_wait_ticks_total"
WAIT_SECONDS = "fabric_port_transmit_wait_seconds_total"


class Counter(NamedTuple):
    """A counter of a port: ``factor`` times its number is the metric's value."""

    metric: str
    narrow: Width
    """As the attribute PortCounters holds it; PortCountersExtended has 64 bits for all."""
    factor: int = 1
    is_expected: bool = True
    """Whether every port has it; the absence of others is no news."""


COUNTERS: dict[str, Counter] = {
    "PortXmitData": Counter("fabric_port_transmit_bytes_total", CLAMPS_32, WORD_BYTES),
    "PortRcvData": Counter("fabric_port_receive_bytes_total", CLAMPS_32, WORD_BYTES),
    "PortXmitPkts": Counter("fabric_port_transmit_packets_total", CLAMPS_32),
    "PortRcvPkts": Counter("fabric_port_receive_packets_total", CLAMPS_32),
    "PortUnicastXmitPkts": Counter(
        "fabric_port_transmit_unicast_packets_total", CLAMPS_64, is_expected=False
    ),
    "PortUnicastRcvPkts": Counter(
        "fabric_port_receive_unicast_packets_total", CLAMPS_64, is_expected=False
    ),
    "PortMulticastXmitPkts": Counter(
        "fabric_port_transmit_multicast_packets_total", CLAMPS_64, is_expected=False
    ),
    "PortMulticastRcvPkts": Counter(
        "fabric_port_receive_multicast_packets_total", CLAMPS_64, is_expected=False
    ),
    "SymbolErrorCounter": Counter("fabric_port_symbol_errors_total", CLAMPS_16),
    "LinkErrorRecoveryCounter": Counter("fabric_port_link_error_recoveries_total", CLAMPS_8),
    "LinkDownedCounter": Counter("fabric_port_link_downed_total", CLAMPS_8),
    "PortRcvErrors": Counter("fabric_port_receive_errors_total", CLAMPS_16),
    "PortRcvRemotePhysicalErrors": Counter(
        "fabric_port_receive_remote_physical_errors_total", CLAMPS_16
    ),
    "PortRcvSwitchRelayErrors": Counter("fabric_port_receive_switch_relay_errors_total", CLAMPS_16),
    "PortXmitDiscards": Counter("fabric_port_transmit_discards_total", CLAMPS_16),
    "PortXmitConstraintErrors": Counter("fabric_port_transmit_constraint_errors_total", CLAMPS_8),
    "PortRcvConstraintErrors": Counter("fabric_port_receive_constraint_errors_total", CLAMPS_8),
    "LocalLinkIntegrityErrors": Counter("fabric_port_local_link_integrity_errors_total", CLAMPS_4),
    "ExcessiveBufferOverrunErrors": Counter(
        "fabric_port_excessive_buffer_overruns_total", CLAMPS_4
    ),
    "QP1Dropped": Counter("fabric_port_qp1_dropped_total", CLAMPS_16, is_expected=False),
    "VL15Dropped": Counter("fabric_port_vl15_dropped_total", CLAMPS_16),
    "PortXmitWait": Counter(TICKS, CLAMPS_32),
}
"""IBTA volume 1, 16.1.3.5 PortCounters and 16.1.4.11 PortCountersExtended. Narrow counters stop at
their end."""

ERRORS_FIRST = "SymbolErrorCounter"
"""A block of extended counters that lacks it holds no error counters at all."""
WAIT = "PortXmitWait"
DISCARDS = "PortXmitDiscards"

DISCARD_DETAILS: dict[str, Counter] = {
    "PortInactiveDiscards": Counter("fabric_port_transmit_inactive_discards_total", CLAMPS_16),
    "PortNeighborMTUDiscards": Counter(
        "fabric_port_transmit_neighbour_mtu_discards_total", CLAMPS_16
    ),
    "PortSwLifetimeLimitDiscards": Counter(
        "fabric_port_transmit_switch_lifetime_discards_total", CLAMPS_16
    ),
    "PortSwHOQLifetimeLimitDiscards": Counter(
        "fabric_port_transmit_lifetime_discards_total", CLAMPS_16
    ),
}
"""IBTA volume 1, 16.1.4.3 PortXmitDiscardDetails."""

LANE_WAITS: dict[str, str] = {f"PortVLXmitWait{lane}": str(lane) for lane in range(16)}
LANE_WAIT = Counter("fabric_port_lane_wait_ticks_total", CLAMPS_16)
"""IBTA volume 1, 16.1.4 PortVLXmitWaitCounters: the same ticks as PortXmitWait, by virtual lane, in
16 bits: on a fast link they stand at their end after microseconds of waiting."""

HAS_EXTENDED = 0x0600
"""Bits 9 and 10 of a port's CapabilityMask: the extended counters of bytes and packets mean
something (10: without those by cast)."""
HAS_WAIT = 0x1000
"""Bit 12: PortXmitWait means something. Where it is not set, the tools print a zero."""

# How fast links are --------------------------------------------------------------------------


class Speed(NamedTuple):
    """A generation of links; both numbers are bits a second of one lane."""

    name: str
    rate_bits: float
    """As the kernel rounds it in `rate`: both ends of a link must show the same."""
    data_bits: float
    """Without line encoding: what a byte that could not be sent is measured against."""


SPEEDS = (
    Speed("SDR", 2.5e9, 2e9),
    Speed("DDR", 5e9, 4e9),
    Speed("QDR", 10e9, 8e9),
    Speed("FDR10", 10e9, 10e9),
    Speed("FDR", 14e9, 14.0625e9 * 64 / 66),
    Speed("EDR", 25e9, 25e9),
    Speed("HDR", 50e9, 50e9),
    Speed("NDR", 100e9, 100e9),
    Speed("XDR", 200e9, 200e9),
)
"""8 of 10 bits carry data up to QDR, 64 of 66 from there on, and from HDR on what is left after
error correction is the round number."""

SPEED_BY_NAME = {speed.name: speed for speed in SPEEDS}


class Chip(NamedTuple):
    """A family of switch chips: how long it waits before PortXmitWait counts one."""

    name: str
    tick: int
    """The usual content of PortSamplesControl's Tick, for switches that do not report theirs."""
    is_per_lane: bool
    """Whether a tick is (Tick + 1) bytes of each lane, or of the whole port."""

    def tick_bytes(self, tick: int | None, lanes: int) -> int:
        """Bytes that the port could have sent during one tick."""
        size = (self.tick if tick is None else tick) + 1
        return size * lanes if self.is_per_lane else size


SWITCH_X = Chip("SwitchX", tick=31, is_per_lane=True)
SWITCH_IB = Chip("Switch-IB", tick=31, is_per_lane=True)
SWITCH_IB_2 = Chip("Switch-IB 2", tick=31, is_per_lane=True)
QUANTUM = Chip("Quantum", tick=7, is_per_lane=False)
QUANTUM_2 = Chip("Quantum-2", tick=7, is_per_lane=False)
QUANTUM_3 = Chip("Quantum-3", tick=7, is_per_lane=False)

NVIDIA = 0x2C9
"""The vendor number that Mellanox had, and its chips still have."""
CHIP_BY_DEVICE: dict[int, Chip] = {
    # PCI device numbers, which the chips also give as their device over management datagrams.
    0xC738: SWITCH_X,
    0xCB20: SWITCH_IB,
    0xCF08: SWITCH_IB_2,
    0xD2F0: QUANTUM,
    0xD2F2: QUANTUM_2,
    0xD2F4: QUANTUM_3,
}
CHIP_BY_MODEL: tuple[tuple[str, Chip], ...] = (
    # Beginnings of system names in node descriptions, for fabrics whose device numbers were not
    # read.
    ("QM87", QUANTUM),
    ("MQM87", QUANTUM),
    ("CS85", QUANTUM),
    ("QM97", QUANTUM_2),
    ("MQM97", QUANTUM_2),
    ("Q34", QUANTUM_3),
    ("Q32", QUANTUM_3),
    ("SB77", SWITCH_IB),
    ("MSB77", SWITCH_IB),
    ("CS75", SWITCH_IB),
    ("SB78", SWITCH_IB_2),
    ("MSB78", SWITCH_IB_2),
    ("SX6", SWITCH_X),
    ("MSX6", SWITCH_X),
)


def find_chip(vendor: int, device: int, model: str) -> Chip | None:
    """The chip in a switch by its numbers, or by its model's name; None for one we do not know.

    >>> find_chip(0x2C9, 0xD2F2, "").name, find_chip(0, 0, "MQM8700").name
    ('Quantum-2', 'Quantum')
    """
    if vendor == NVIDIA and device in CHIP_BY_DEVICE:
        return CHIP_BY_DEVICE[device]
    return next((chip for start, chip in CHIP_BY_MODEL if model.startswith(start)), None)
