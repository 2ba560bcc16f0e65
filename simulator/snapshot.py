"""The cluster at one tick: the input of every interface (files, SNMP, batches).

Counters are whole numbers that only grow, as in hardware; a host that reboots restarts at zero.
Times are true seconds since the scenario began; `Snapshot.host_unix_ns` is the time on a host's own
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collector.contract.collective import Operation, State
from collector.contract.units import NS
from simulator.pattern import Algorithm
from simulator.topology.model import Bools, Floats, Ints, Topology
from simulator.topology.world import World

Counts = NDArray[np.int64]


@dataclass(eq=False)
class LinkCounters:
    """Since the start, for each directed link; see `simulator.network.model.LinkRates`.

    A port's own view joins two links: port ``l`` transmits what is counted for ``l`` and receives
    what is counted for ``reverse[l]``, less what was lost on the way.
    """

    bytes: Counts
    packets: Counts
    lost_packets: Counts
    """All that went missing on the link: `corrupted_packets` of them with a checksum error."""
    corrupted_packets: Counts
    """Arrived damaged: the receiving port counts a CRC (symbol, receive) error."""
    dropped_packets: Counts
    marked_packets: Counts
    paused_us: Counts
    """Microseconds in which the sending end was forbidden to send."""
    pause_frames: Counts
    wait_ns: Counts
    """Time with something to send and no credit: InfiniBand's XmitWait, in nanoseconds."""
    bits: Counts
    """Received, good or bad, idle patterns included: what error rates are relative to."""
    corrected_bits: Counts
    """By forward error correction, at the receiving end."""
    symbol_errors: Counts
    """Symbols that correction could not repair, at the receiving end."""
    recoveries: Counts
    """Times the link retrained and came back by itself."""
    downs: Counts
    queue_bytes: Counts
    """A gauge: mean depth of the queue in front of the link since the last tick."""
    queue_peak_bytes: Counts
    """A gauge: the deepest it was since the last tick."""


@dataclass(eq=False)
class NicCounters:
    """Since the start, for each NIC; see `simulator.network.model.NicRates`."""

    marked_received: Counts
    cnp_sent: Counts
    cnp_handled: Counts
    out_of_sequence: Counts
    sequence_errors: Counts
    ack_timeouts: Counts
    retransmitted_packets: Counts


@dataclass(eq=False)
class GpuReadings:
    """Readings of each GPU now; names and units as in NVML."""

    utilization_share: Floats
    """Of the last second in which some kernel ran: a rank that waits in a collective is busy."""
    tensor_share: Floats
    """Of the last second in which tensor cores worked: waiting is not working."""
    sm_clock_mhz: Floats
    memory_clock_mhz: Floats
    temperature_celsius: Floats
    memory_temperature_celsius: Floats
    power_watts: Floats
    power_limit_watts: Floats
    energy_joules: Floats
    memory_used_bytes: Counts
    throttle_reasons: Ints
    """NVML's mask: 0x1 idle, 0x4 power cap, 0x20 software thermal, 0x40 hardware thermal."""
    power_violation_ns: Counts
    thermal_violation_ns: Counts
    correctable_errors: Counts
    uncorrectable_errors: Counts
    pcie_generation: Ints
    pcie_width: Ints
    pcie_replays: Counts
    nvlink_transmit_bytes: Counts
    nvlink_receive_bytes: Counts
    nvlink_replays: Counts
    pcie_transmit_bytes_per_second: Floats
    pcie_receive_bytes_per_second: Floats


@dataclass(eq=False)
class HostReadings:
    """Readings of each host: counters since boot, in the units of /proc."""

    cpus: int
    memory_total_bytes: int
    boot_unix_ns: Counts
    cpu_user_s: Floats
    cpu_system_s: Floats
    cpu_idle_s: Floats
    cpu_iowait_s: Floats
    cpu_steal_s: Floats
    memory_available_bytes: Counts
    pressure_cpu_us: Counts
    """`some` of /proc/pressure/cpu: microseconds in which a task waited for a CPU."""
    pressure_io_us: Counts
    pressure_memory_us: Counts
    load_1m: Floats
    mount_reads: Counts
    """Of the shared mount, since boot: requests, bytes, and milliseconds until their answers."""
    mount_read_bytes: Counts
    mount_response_ms: Counts
    mount_writes: Counts
    mount_written_bytes: Counts
    mount_write_response_ms: Counts


@dataclass(eq=False)
class CollectiveBlock:
    """One collective of all units of a pattern. Matrices are [units, ranks of a unit]."""

    job: str
    operation: Operation
    algorithm: Algorithm
    communicators: tuple[str, ...]
    sequence: int
    """Per communicator and operation, from 0."""
    size_bytes: int
    members: Ints
    """The job's rank numbers; the column is the rank in the communicator."""
    entry_s: Floats
    """When each rank entered: true time. NaN: never."""
    exit_s: Floats
    state: State = State.COMPLETED


@dataclass(eq=False)
class StepBlock:
    """One step of all ranks of a job; columns have one value for each rank."""

    job: str
    step: int
    start_s: Floats
    end_s: Floats
    phases: dict[str, tuple[Floats, Floats]]
    """Name (`data`, `forward`, `backward`, `optimizer`, `checkpoint`…) to start and end."""


@dataclass(eq=False)
class HangDump:
    """Flight Recorder content of a stuck job: its last collectives, and the one that hangs.

    ``blocks`` are in order; those that no rank finished have NaN exits, ranks that never launched
    have NaN entries.
    """

    job: str
    time_s: float
    blocks: list[CollectiveBlock]


@dataclass(frozen=True)
class Happening:
    """An event at one moment: `xid`, `link_down`, `link_up`, `reboot`."""

    kind: str
    time_s: float
    host: int = -1
    gpu: int = -1
    link: int = -1
    value: int = 0


@dataclass(eq=False)
class JobStatus:
    """Where a job's ranks run, and its progress."""

    name: str
    ranks: int
    rank_host: Ints
    rank_gpu: Ints
    """Number in the cluster, as `Topology.gpus` counts."""
    rank_nic: Ints
    rank_pid: Ints
    step: int
    step_seconds: float
    """The last step's; 0 before the first."""
    hung_since_s: float | None
    is_running: bool
    start_s: float = 0.0
    """When its processes started: true time."""
    communicators: dict[str, tuple[str, Ints]] = field(default_factory=dict)
    """Hash to (kind, the job's ranks in order): kind is `tensor`, `data`, `pipeline`, `expert`."""
    in_network: frozenset[str] = frozenset()
    """Of those the hashes for which switches of the network add up."""


@dataclass(eq=False)
class Snapshot:
    """Everything visible at one tick, and what happened since the last one."""

    topology: Topology
    world: World
    time_s: float
    start_unix_ns: int
    """The true time at which the scenario began."""
    interval_s: float
    links: LinkCounters
    """As switches count."""
    host_links: LinkCounters
    """The same as hosts see them at their NICs' ports: since their last boot."""
    nics: NicCounters
    gpus: GpuReadings
    hosts: HostReadings
    jobs: list[JobStatus]
    collectives: list[CollectiveBlock]
    steps: list[StepBlock]
    dumps: list[HangDump]
    happenings: list[Happening]
    clock_offset_s: Floats
    """For each host: its clock minus the true time, now."""
    reporting: Bools
    """For each host: whether its agent's batch of this tick arrives."""
    burst_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    """By link: bytes a second at most over `simulator.network.model.FINEST_SECONDS`, since the last
    tick. Empty: no byte counter is read fast."""
    standing: list[HangDump] = field(default_factory=list)
    """The same as `dumps` of every job that hangs, at each tick: what a process could be asked."""

    def host_unix_ns(self, host: int | Ints, time_s: float | Floats) -> NDArray[np.int64]:
        """True seconds as times of these hosts' clocks (broadcast)."""
        elapsed = np.asarray(time_s) - self.time_s
        # Drift is computed per tick: within one it stays below a microsecond.
        seconds = np.asarray(time_s) + self.clock_offset_s[host]
        seconds = seconds + elapsed * self.world.host_clock_drift[host]
        whole: NDArray[np.int64] = (seconds * NS).astype(np.int64)
        return whole + self.start_unix_ns
