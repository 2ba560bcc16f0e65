"""The physical state of a cluster at one moment: faults change it, the models read it.

Nothing here is a counter. A fault turns these knobs (a cable's error rate, a GPU's cooling), the
models of network, jobs and machines react, and counters show the consequence.

Every change sets all knobs again: `reset` restores the healthy values, then every active fault
applies itself. So a fault defines only what it does, never how to undo it, and two may overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b

import numpy as np

from simulator.topology.model import Bools, Fabric, Floats, Ints, LinkKind, Topology

STORAGE = "storage0:/datasets"
"""The one file system that all hosts of a cluster mount."""
STORAGE_SECONDS = 0.002
"""Of a healthy file server to answer a read of 1 MiB: flash, and a network of 25 Gbit/s."""
RAW_BER_MEDIAN = 1e-9
"""Bit errors before correction of a good cable at 100 Gb/s a lane; correction removes all of it."""
RAW_BER_SPREAD = 1.0
"""Standard deviation of the logarithm of that rate between cables."""
COOLING_SPREAD = 0.04

HASH_BITS = 32
SWITCH_BUFFER_BYTES = 64 << 20
"""Shared packet memory of one switch: a 51.2 Tb/s chip of 2024 has 64 to 165 MiB."""


@dataclass(frozen=True)
class Background:
    """Traffic of no simulated job, steady or on for ``on_seconds`` of every ``period_seconds``."""

    source_nic: int
    target_nic: int
    bits_per_second: float
    period_seconds: float = 0.0
    """0 for steady traffic."""
    on_seconds: float = 0.0


@dataclass(eq=False)
class Knobs:
    """The knobs that faults may turn. Shares are of the healthy value: 1.0 is healthy."""

    # Per directed link.
    link_up: Bools
    link_speed_share: Floats
    """Lanes and signalling rate that are left: 0.5 after a width downgrade from 4x to 2x."""
    link_raw_ber: Floats
    """Bit error rate on the wire, before forward error correction."""
    link_loss: Floats
    """Probability that a packet vanishes without a trace on the link (a broken switch chip)."""

    # Per NIC.
    nic_send_share: Floats
    """Of line rate that the NIC can send: firmware, a hot chip."""
    nic_storage_written_bytes_per_second: Floats
    """That its host wants to write to the file server through it: a checkpoint."""
    nic_receive_share: Floats
    """Of line rate that the NIC can write to memory: below 1 it must pause its sender."""
    nic_pcie_share: Floats
    """PCIe lanes and generation that are left, in both directions: 0.5 is x8 for x16."""
    nic_pfc_ok: Bools
    """Its priority is lossless end to end; False: misconfigured, and full queues drop."""
    nic_is_dead: Bools
    """Its firmware has stopped: the port stays up, and carries nothing."""

    # Per switch.
    switch_buffer_share: Floats
    """Of packet memory left for the jobs (the rest holds other traffic)."""
    switch_hash_seed: Ints
    """ECMP hash seed. All equal: the tiers choose alike (polarisation)."""
    switch_hash_bits: Ints
    """Of a flow's identity, what the hash sees: `HASH_BITS`; 0 puts every flow on one uplink."""

    # Per GPU.
    gpu_cooling_share: Floats
    """Of healthy cooling: at 0.5 the same power heats twice as far above the inlet."""
    gpu_power_limit_share: Floats
    gpu_correctable_per_second: Floats
    gpu_nvlink_share: Floats
    """Of NVLink's speed that is left, to and from the GPU: the rest is sent twice."""
    gpu_xid: Ints
    """The XID that the GPU has just reported, or 0."""
    gpu_is_dead: Bools
    """Whether its kernels never end any more."""

    # Per host.
    host_steal_share: Floats
    """Of CPU time that a hypervisor or a neighbour takes."""
    host_io_stall_share: Floats
    """Of time in which processes wait for memory or disk (page cache, swapping)."""
    host_loader_seconds: Floats
    """Added to every step's wait for its batch of data."""
    host_storage_seconds: Floats
    """That the shared file server takes to answer a read of this host."""
    host_storage_bytes_per_second: Floats
    """That this host reads from it beside its batches: a checkpoint."""
    host_is_down: Bools
    """Rebooting: it does not answer, and its counters restart at zero afterwards."""
    host_agent_is_dead: Bools
    host_telemetry_loss: Floats
    """Of batches that never arrive."""
    host_clock_offset_s: Floats
    """The host's clock minus the true time, when its fault began."""
    host_clock_drift: Floats
    """Seconds that the host's clock gains in a second."""
    host_time_server_off_s: Floats
    """How far the time server that the host follows is ahead of the true time."""
    host_time_service_is_lost: Bools
    """Its time daemon follows no server."""
    host_process_is_stopped: Bools
    """Its training processes do not run and launch nothing (SIGSTOP, a deadlock)."""

    # Of the whole cluster.
    background: list[Background]


NETWORK_KNOBS = tuple(
    one.name for one in fields(Knobs) if one.name.startswith(("link_", "nic_", "switch_"))
)
"""Knobs that affect the network, beside the background. Hosts that are down have their links
down."""


class World(Knobs):
    """Knobs, and values that the models derive from them for each other."""

    def __init__(self, topology: Topology, random: np.random.Generator) -> None:
        self.topology = topology
        self.version = 0
        """Counts changes that affect the network: solutions of another version are stale."""
        links, nics = topology.links, topology.nics
        spread = random.lognormal(np.log(RAW_BER_MEDIAN), RAW_BER_SPREAD, links)
        is_pcie = topology.kind <= LinkKind.PCIE_IN
        self._raw_ber = np.where(is_pcie, 0.0, spread)
        self._cooling = random.normal(1.0, COOLING_SPREAD, topology.gpus)
        self._hash_seed = random.integers(1, 1 << 31, len(topology.switches)).astype(np.int32)
        self.reset()
        self.gpu_clock_share: Floats = np.ones(topology.gpus)
        """Of its top speed that a GPU runs at: its clock, less the cost of correcting memory
        errors. The model of machines sets it, jobs read it."""
        self.nic_host: Ints = (np.arange(nics) // topology.nics_per_host).astype(np.int32)
        self.gpu_host: Ints = (np.arange(topology.gpus) // topology.gpus_per_host).astype(np.int32)

    @property
    def is_infiniband(self) -> bool:
        return self.topology.fabric is Fabric.INFINIBAND

    def reset(self) -> None:
        topology = self.topology
        links, nics, gpus, hosts = topology.links, topology.nics, topology.gpus, topology.hosts
        switches = len(topology.switches)
        self.link_up = np.ones(links, dtype=np.bool_)
        self.link_speed_share = np.ones(links)
        self.link_raw_ber = self._raw_ber.copy()
        self.link_loss = np.zeros(links)
        self.nic_send_share = np.ones(nics)
        self.nic_storage_written_bytes_per_second = np.zeros(nics)
        self.nic_receive_share = np.ones(nics)
        self.nic_pcie_share = np.ones(nics)
        self.nic_pfc_ok = np.ones(nics, dtype=np.bool_)
        self.nic_is_dead = np.zeros(nics, dtype=np.bool_)
        self.switch_buffer_share = np.ones(switches)
        self.switch_hash_seed = self._hash_seed.copy()
        self.switch_hash_bits = np.full(switches, HASH_BITS, dtype=np.int32)
        self.gpu_cooling_share = self._cooling.copy()
        self.gpu_power_limit_share = np.ones(gpus)
        self.gpu_correctable_per_second = np.zeros(gpus)
        self.gpu_nvlink_share = np.ones(gpus)
        self.gpu_xid = np.zeros(gpus, dtype=np.int32)
        self.gpu_is_dead = np.zeros(gpus, dtype=np.bool_)
        self.host_steal_share = np.zeros(hosts)
        self.host_io_stall_share = np.zeros(hosts)
        self.host_loader_seconds = np.zeros(hosts)
        self.host_storage_seconds = np.full(hosts, STORAGE_SECONDS)
        self.host_storage_bytes_per_second = np.zeros(hosts)
        self.host_is_down = np.zeros(hosts, dtype=np.bool_)
        self.host_agent_is_dead = np.zeros(hosts, dtype=np.bool_)
        self.host_telemetry_loss = np.zeros(hosts)
        self.host_clock_offset_s = np.zeros(hosts)
        self.host_clock_drift = np.zeros(hosts)
        self.host_time_server_off_s = np.zeros(hosts)
        self.host_time_service_is_lost = np.zeros(hosts, dtype=np.bool_)
        self.host_process_is_stopped = np.zeros(hosts, dtype=np.bool_)
        self.background = []

    def link_is_live(self) -> Bools:
        """Which directed links can be used: a cable that is dead in one direction is down."""
        live: Bools = self.link_up & self.link_up[self.topology.reverse]
        return live

    def routes_as_built(self) -> bool:
        """Whether every flow goes where it would go without any fault."""
        is_hashed = (self.switch_hash_seed == self._hash_seed) & (
            self.switch_hash_bits == HASH_BITS
        )
        return bool(self.link_up.all() and is_hashed.all())

    def network_digest(self) -> bytes:
        """Equal where all knobs of links, NICs and switches are equal."""
        state = blake2b(repr(self.background).encode(), digest_size=16)
        for name in NETWORK_KNOBS:
            state.update(getattr(self, name).tobytes())
        return state.digest()

    def capacity(self) -> Floats:
        """Bits a second that each directed link can carry now."""
        topology = self.topology
        share = self.link_speed_share * self.link_is_live()
        nic = np.arange(topology.nics, dtype=np.int32)
        # A NIC that sends or receives badly is slow between its port and memory. PCIe has spare
        # capacity, so a loss of lanes counts against the slot and not against line rate.
        slot = topology.bits_per_second[: topology.nics] * self.nic_pcie_share
        line = topology.bits_per_second[topology.up(nic)]
        capacity: Floats = topology.bits_per_second * share
        capacity[topology.pcie_out(nic)] = np.minimum(
            slot, self._limited(line, self.nic_send_share)
        )
        capacity[topology.pcie_in(nic)] = np.minimum(
            slot, self._limited(line, self.nic_receive_share)
        )
        dead = np.flatnonzero(self.nic_is_dead).astype(np.int32)
        capacity[topology.up(dead)] = capacity[topology.down(dead)] = 0.0
        return capacity

    @staticmethod
    def _limited(line: Floats, share: Floats) -> Floats:
        """Line rate times the share, or no limit where the share is 1."""
        limited: Floats = np.where(share < 1.0, line * share, np.inf)
        return limited
