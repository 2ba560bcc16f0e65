"""Linux counters of every host and of the ranks' processes, as numbers.

The trees print these numbers as files of /proc, and the fast mode sends what an agent reads there;
so each rule stands here once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collector.contract.units import NS
from simulator.snapshot import Counts, HostReadings, JobStatus, Snapshot
from simulator.topology.model import Floats, Ints
from simulator.topology.world import STORAGE

MOUNT, MOUNT_TYPE = "/datasets", "nfs"
"""Where all hosts of a cluster mount their one file system."""
TICKS_PER_SECOND = 100
"""USER_HZ: what /proc counts processor time in."""
KIB = 1024
CACHED_PARTS = 4
"""One of so many parts of the memory that is available is page cache."""
DIRTY_KIB, BUFFERS_KIB = 592, 12_288
"""Of a quiet page cache; no detector reads them."""
INTERRUPTS_PER_SECOND, SWITCHES_PER_SECOND = 12_000, 30_000
"""Of a host that trains; no detector reads them."""
PREEMPTIONS_PER_SECOND = 0.2
"""Of a rank's main thread, per second of its processor time: ranks have cores of their own."""
BLOCKED_SHARE = 0.5
"""Of time that a host stalls on its disks; above it a rank is most likely found waiting there."""
COMMAND = "pt_main_thread"
"""What PyTorch calls the main thread of a rank."""
RANK_THREADS = 128
"""Of a PyTorch process with its data loaders' and NCCL's threads."""
WAIT_CHANNELS = {"R": "0", "D": "folio_wait_bit_common", "S": "futex_wait_queue"}
"""The kernel function that a main thread of this state stands in."""


# The host ----------------------------------------------------------------------------------------


def uptime_s(snapshot: Snapshot) -> Floats:
    now_ns = snapshot.start_unix_ns + int(snapshot.time_s * NS)
    uptime: Floats = np.maximum(now_ns - snapshot.hosts.boot_unix_ns, 0) / NS
    return uptime


def processor_ticks(hosts: HostReadings) -> dict[str, Counts]:
    """Processor time of each host by mode, in the order of /proc/stat."""
    nothing = np.zeros(len(hosts.cpu_user_s))
    seconds = {
        "user": hosts.cpu_user_s,
        "nice": nothing,
        "system": hosts.cpu_system_s,
        "idle": hosts.cpu_idle_s,
        "iowait": hosts.cpu_iowait_s,
        "irq": nothing,
        "softirq": nothing,
        "steal": hosts.cpu_steal_s,
    }
    return {mode: in_ticks(each) for mode, each in seconds.items()}


def in_ticks(seconds: Floats) -> Counts:
    return (seconds * TICKS_PER_SECOND).astype(np.int64)


def scheduler_counts(snapshot: Snapshot) -> dict[str, Counts]:
    """The other lines of each host's /proc/stat, by their names there."""
    uptime, stall = uptime_s(snapshot), snapshot.world.host_io_stall_share
    counts = {
        "intr": uptime * INTERRUPTS_PER_SECOND,
        "ctxt": uptime * SWITCHES_PER_SECOND,
        "procs_running": np.maximum(np.rint(snapshot.hosts.load_1m), 1),
        "procs_blocked": np.ceil(stall - BLOCKED_SHARE),
    }
    return {name: each.astype(np.int64) for name, each in counts.items()}


def memory_kib(hosts: HostReadings) -> dict[str, Counts]:
    """Lines of each host's /proc/meminfo, by their names there. Hosts have no swap."""
    available = hosts.memory_available_bytes // KIB
    cached = available // CACHED_PARTS
    zero = np.zeros_like(available)
    return {
        "MemTotal": zero + hosts.memory_total_bytes // KIB,
        "MemFree": available - cached,
        "MemAvailable": available,
        "Buffers": zero + BUFFERS_KIB,
        "Cached": cached,
        "SwapCached": zero,
        "SwapTotal": zero,
        "SwapFree": zero,
        "Dirty": zero + DIRTY_KIB,
        "Writeback": zero,
    }


def load_texts(hosts: HostReadings) -> list[str]:
    return [f"{load:.2f}" for load in hosts.load_1m.tolist()]


# Ranks' processes --------------------------------------------------------------------------------


def local_ranks(job: JobStatus) -> Ints:
    order = np.lexsort((np.arange(job.ranks), job.rank_host))
    hosts = job.rank_host[order]
    first = np.searchsorted(hosts, hosts, side="left")
    local = np.empty(job.ranks, dtype=np.int32)
    local[order] = np.arange(job.ranks) - first
    return local


def mount_texts(snapshot: Snapshot) -> list[str]:
    """`/proc/self/mountstats` of each host: reads and writes, and nothing else."""
    hosts = snapshot.hosts
    rows = zip(
        hosts.mount_reads.tolist(),
        hosts.mount_read_bytes.tolist(),
        hosts.mount_response_ms.tolist(),
        hosts.mount_writes.tolist(),
        hosts.mount_written_bytes.tolist(),
        hosts.mount_write_response_ms.tolist(),
        strict=True,
    )
    return [
        f"device {STORAGE} mounted on {MOUNT} with fstype {MOUNT_TYPE} statvers=1.1\n"
        "\topts:\trw,vers=3,rsize=1048576,wsize=1048576,proto=tcp\n"
        f"\tbytes:\t{size} {written} 0 0 {size} {written} {size >> 12} {written >> 12}\n"
        "\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)\n"
        "\tper-op statistics\n"
        f"\t        READ: {reads} {reads} 0 {reads * 128} {size} 0 {response} {response} 0\n"
        f"\t       WRITE: {writes} {writes} 0 {written + writes * 128} {writes * 160}"
        f" 0 {wrote} {wrote} 0\n"
        for reads, size, response, writes, written, wrote in rows
    ]


def start_ticks(snapshot: Snapshot, job: JobStatus) -> Counts:
    """For each rank, when its process started: clock ticks since its host's boot."""
    boot_ns = snapshot.hosts.boot_unix_ns[job.rank_host]
    start_ns = snapshot.start_unix_ns + int(job.start_s * NS)
    ticks: Counts = (start_ns - boot_ns) * TICKS_PER_SECOND // NS
    return np.maximum(ticks, 1)


class RankProcesses:
    """The main threads of a job's ranks: their processor time and state."""

    def __init__(self, snapshot: Snapshot, job: JobStatus) -> None:
        """A rank that is seen for the first time has been busy since its job started."""
        self._rank_host = job.rank_host
        self._cpu_s = np.full(job.ranks, max(0.0, snapshot.time_s - job.start_s))
        self.states: NDArray[np.str_] = np.full(job.ranks, "R")
        """The kernel's letter for each."""

    def go_on(self, snapshot: Snapshot) -> None:
        world, host = snapshot.world, self._rank_host
        # A deadlock, the usual way to stop: the main thread sleeps, and the kernel sees no fault.
        is_stopped = world.host_process_is_stopped[host]
        io_stall = world.host_io_stall_share[host]
        free = (1 - io_stall) * (1 - world.host_steal_share[host])
        self._cpu_s += np.where(is_stopped, 0.0, free) * snapshot.interval_s
        self.states = np.where(is_stopped, "S", np.where(io_stall > BLOCKED_SHARE, "D", "R"))

    @property
    def cpu_ticks(self) -> Counts:
        return in_ticks(self._cpu_s)

    @property
    def preemptions(self) -> Counts:
        return (self._cpu_s * PREEMPTIONS_PER_SECOND).astype(np.int64)
