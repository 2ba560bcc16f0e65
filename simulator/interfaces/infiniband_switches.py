"""Counters and link states of InfiniBand switches, for all their ports at once.

By the names of IBTA's counters, wide as in Quantum's chips. `simulator.interfaces.ibsim` cuts them
to what ibsim can hold; the outputs of infiniband-diags and the batches of a poller show them whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.contract.units import NS, WORD_BYTES
from simulator.interfaces.switch_tables import Ports, Reading, Readings
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Floats, Topology

TICK_BYTES = 8
"""Of PortXmitWait on Quantum and its successors: what the whole port could have sent meanwhile
(Switch-IB and older: 32 bytes of each lane)."""
BITS = 8

UNCOUNTED = (
    "PortMulticastXmitPkts",
    "PortMulticastRcvPkts",
    "PortRcvRemotePhysicalErrors",
    "PortRcvSwitchRelayErrors",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "QP1Dropped",
    "VL15Dropped",
)
"""Counters without a cause in the model: every switch has them, at zero."""


@dataclass(frozen=True, eq=False)
class PortStates:
    """Of every switch port, in the order of `Ports`."""

    is_up: Bools
    lanes: Counts
    """That the link came up with; a width downgrade leaves whole lanes."""
    bits_per_second: Floats
    is_degraded: Bools
    """Whether it runs below what both ends could do."""
    is_found: Bools
    """Whether a scan of the fabric reaches its switch: one without a live cable is not there."""


def port_states(snapshot: Snapshot, ports: Ports) -> PortStates:
    world, speed = snapshot.world, snapshot.topology.speed
    is_up = world.link_is_live()[ports.out]
    share = np.minimum(world.link_speed_share[ports.out], world.link_speed_share[ports.back])
    lanes = np.maximum(np.ceil(speed.lanes * share - 1e-9), 1.0).astype(np.int64)
    rate: Floats = lanes * np.float64(speed.bits_per_second / speed.lanes)
    live_ports = np.bincount(ports.switch, is_up, minlength=len(snapshot.topology.switches))
    return PortStates(
        is_up=is_up,
        lanes=lanes,
        bits_per_second=rate,
        is_degraded=share < 1.0,
        is_found=live_ports[ports.switch] > 0,
    )


def counted(snapshot: Snapshot, ports: Ports, values: Counts) -> dict[str, Counts]:
    """The ports' counters without the ticks of waiting; ``values`` are of `Readings`."""
    links, out, back = snapshot.links, ports.out, ports.back
    return {
        "PortXmitData": values[Reading.SENT_BYTES] // WORD_BYTES,
        "PortRcvData": values[Reading.RECEIVED_BYTES] // WORD_BYTES,
        "PortXmitPkts": values[Reading.SENT_PACKETS],
        "PortRcvPkts": values[Reading.RECEIVED_PACKETS],
        # All traffic is between two ends; what a subnet manager sends to many is left out.
        "PortUnicastXmitPkts": values[Reading.SENT_PACKETS],
        "PortUnicastRcvPkts": values[Reading.RECEIVED_PACKETS],
        "SymbolErrorCounter": values[Reading.SYMBOL_ERRORS],
        "LinkErrorRecoveryCounter": np.maximum(links.recoveries[out], links.recoveries[back]),
        "LinkDownedCounter": np.maximum(links.downs[out], links.downs[back]),
        "PortRcvErrors": values[Reading.DAMAGED_PACKETS],
        "PortXmitDiscards": values[Reading.DROPPED_PACKETS],
    }


def ticks_at(wait_ns: Counts, bits_per_second: Floats | float) -> Floats:
    """Time without credit in a Quantum switch's ticks, at this rate of the whole port."""
    ticks: Floats = wait_ns * (np.asarray(bits_per_second) / BITS / NS / TICK_BYTES)
    return ticks


class InfinibandReadings:
    """Counters and states of all switch ports, or of ``ports``, from one snapshot to the next.

    It keeps ticks: they are counted at the rate that a link had while it waited, and a link that
    comes up with fewer lanes must not lower the count.
    """

    def __init__(self, topology: Topology, ports: Ports | None = None) -> None:
        self._readings = Readings(topology, ports)
        self.ports = self._readings.ports
        self._wait_ns: Counts = np.zeros(len(self.ports.out), dtype=np.int64)
        self._ticks: Floats = np.zeros(len(self.ports.out))

    def update(self, snapshot: Snapshot) -> tuple[PortStates, dict[str, Counts]]:
        states = port_states(snapshot, self.ports)
        wait_ns = snapshot.links.wait_ns[self.ports.out]
        self._ticks += ticks_at(wait_ns - self._wait_ns, states.bits_per_second)
        self._wait_ns = wait_ns.copy()
        zero = np.zeros(len(wait_ns), dtype=np.int64)
        counters = dict.fromkeys(UNCOUNTED, zero)
        counters |= counted(snapshot, self.ports, self._readings.update(snapshot))
        # Whole ticks; the sum of many parts may lack the last bit of one.
        counters["PortXmitWait"] = np.floor(self._ticks + 1e-6).astype(np.int64)
        return states, counters
