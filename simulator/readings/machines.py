"""The agent's sources `nvml` and `host`, without ranks' processes (see `processes`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.contract.model import Event
from collector.contract.reason import UnreadReason
from simulator.interfaces.fabric_tree import gpu_pci_path
from simulator.interfaces.kernel import (
    KIB,
    TICKS_PER_SECOND,
    load_texts,
    memory_kib,
    processor_ticks,
    scheduler_counts,
)
from simulator.interfaces.machine_tree import (
    MODEL,
    NVLINKS,
    XID_OFF_THE_BUS,
    gpu_address,
    gpu_columns,
    gpu_uuid,
)
from simulator.readings.devices import DeviceSection
from simulator.readings.gpu_names import (
    KIBIBYTE,
    LINK_BYTES,
    LINK_REPLAYS,
    LINK_STEADY,
    NUMBERS,
    REFUSED,
    STEADY,
    Labels,
)
from simulator.readings.ranks import Ranks
from simulator.readings.series import ABSENT, Row, Rows, make_row, missing_row
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Floats, Topology

NVML = "nvml"
US_PER_SECOND = 1e6
INFO = "fabric_gpu_info"

XIDS = {
    48: ("memory error that could not be corrected", "drain the host and reset the GPU"),
    63: ("a memory row is to be replaced", "reset the GPU when the job is done"),
    64: (
        "a memory row could not be replaced",
        "drain the host, run NVIDIA's field diagnostics, replace the GPU if it comes again",
    ),
    79: ("the GPU has fallen off the bus", "reboot the host; check its power, slot and heat"),
    92: (
        "many memory errors were corrected",
        "drain the host, run NVIDIA's field diagnostics, replace the GPU if it comes again",
    ),
    94: ("memory error that hit one application only", "restart the job, then reset the GPU"),
    95: ("memory error that may have hit every application", "drain the host and reset the GPU"),
}
"""The agent's text for an XID: its meaning and what to do; those that simulated faults cause."""


def gpu_labels(topology: Topology, gpu: int) -> dict[str, str]:
    return {"gpu": str(gpu % topology.gpus_per_host), "uuid": gpu_uuid(topology, gpu)}


def explain_xid(number: int) -> str:
    if number not in XIDS:
        return f"XID {number}: see NVIDIA's XID catalogue"
    meaning, action = XIDS[number]
    return f"XID {number}: {meaning}; {action}"


class GpuSection(DeviceSection):
    """`nvml` without processes; a GPU that has fallen off the bus reports only that."""

    def __init__(self, topology: Topology, ranks: Ranks) -> None:
        super().__init__(topology.hosts)
        self._topology = topology
        self._ranks = ranks
        self._nvlink: tuple[Counts, Counts] | None = None
        self.is_lost: Bools = np.zeros(topology.gpus, dtype=np.bool_)
        self._fell: Bools = np.zeros(topology.gpus, dtype=np.bool_)
        steady = [each.value for each in STEADY]
        steady += [each.value for each in LINK_STEADY for _ in range(NVLINKS)]
        self._steady: Floats = np.tile(np.array(steady, dtype=np.float64), (topology.gpus, 1))

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        gpus = snapshot.gpus
        now = gpus.nvlink_transmit_bytes, gpus.nvlink_receive_bytes
        columns = gpu_columns(snapshot, self._nvlink or now)
        self._nvlink = now[0].copy(), now[1].copy()
        self._note_lost(snapshot)
        numbers = [columns[each.column] * each.factor for each in NUMBERS]
        for field in LINK_BYTES:
            links = [columns[f"{field} {link}"] * KIBIBYTE for link in range(NVLINKS)]
            numbers += [*links, np.sum(links, axis=0)]
        numbers += [columns[f"{LINK_REPLAYS[0]} {link}"] * 1.0 for link in range(NVLINKS)]
        every = np.ones(self._topology.gpus)
        processes = self._count_processes()
        readings = np.column_stack(
            [
                every,
                *numbers,
                self._steady,
                np.tile(every, (len(REFUSED), 1)).T,
                processes,
                np.maximum(0.0, processes - PROCESSES_MAX),
            ]
        )
        readings[self.is_lost] = ABSENT
        is_up = np.where(self.is_lost, 0.0, 1.0)
        is_missing = np.where(self.is_lost, 1.0, ABSENT)
        self.show([is_up, is_missing, readings])

    def _note_lost(self, snapshot: Snapshot) -> None:
        for happening in snapshot.happenings:
            if happening.kind == "xid" and happening.gpu >= 0:
                self._fell[happening.gpu] = happening.value == XID_OFF_THE_BUS
        self.is_lost = self._fell & snapshot.world.gpu_is_dead

    def _count_processes(self) -> Floats:
        counts = np.zeros(self._topology.gpus)
        for job in self._ranks.jobs.values():
            counts += np.bincount(job.rank_gpu, minlength=self._topology.gpus)
        return counts

    def make_rows(self, host: int) -> Rows:
        size = self._topology.gpus_per_host
        gpus = range(host * size, (host + 1) * size)
        return tuple(row for gpu in gpus for row in self._rows_of_gpu(gpu))

    def _rows_of_gpu(self, gpu: int) -> list[Row]:
        labels = gpu_labels(self._topology, gpu)
        info = make_row(INFO, labels | self._facts(gpu))

        def row(metric: str, more: Labels = ()) -> Row:
            return make_row(metric, labels | dict(more))

        def links(metric: str) -> list[Row]:
            return [row(metric, (("link", str(link)),)) for link in range(NVLINKS)]

        rows = [row("fabric_gpu_up"), missing_row(info, UnreadReason.UNREADABLE, NVML), info]
        rows += [row(each.metric) for each in NUMBERS]
        for metric, word in LINK_BYTES.values():
            rows += [*links(metric), row(f"fabric_gpu_nvlink_{word}_bytes_total")]
        rows += links(LINK_REPLAYS[1])
        rows += [row(each.metric, each.labels) for each in STEADY]
        rows += [each for steady in LINK_STEADY for each in links(steady.metric)]
        rows += [
            missing_row(row(metric, more), UnreadReason.NOT_SUPPORTED, NVML)
            for metric, more in REFUSED
        ]
        return [*rows, row("fabric_gpu_processes"), row("fabric_gpu_processes_left_out")]

    def _facts(self, gpu: int) -> dict[str, str]:
        index = gpu % self._topology.gpus_per_host
        return {
            "model": MODEL,
            "pci_bus_id": f"0000{gpu_address(index)}",
            "pci_path": gpu_pci_path(index),
            "vbios": "96.00.A5.00.1A",
            "driver": "580.159.04",
            "cuda": "13.0",
            "mig": "off",
        }


PROCESSES_MAX = 64
"""Processes of a GPU that the agent shows one by one."""


class XidSection:
    """`nvml`: XIDs, as counters and events."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._last: Counts = np.zeros(topology.gpus, dtype=np.int64)
        self._counts: list[dict[tuple[int, int], int]] = [{} for _ in range(topology.hosts)]
        """Of each host, by GPU and XID."""
        self._rows: list[Rows | None] = [None] * topology.hosts
        self._events: dict[int, list[Event]] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._events = {}
        size = self._topology.gpus_per_host
        for happening in snapshot.happenings:
            gpu = happening.gpu
            if happening.kind == "xid" and gpu >= 0 and is_read[gpu // size]:
                self._note(snapshot, gpu, happening.value)

    def _note(self, snapshot: Snapshot, gpu: int, xid: int) -> None:
        host, index = divmod(gpu, self._topology.gpus_per_host)
        counts = self._counts[host]
        if (gpu, xid) not in counts:
            self._rows[host] = None
        counts[gpu, xid] = counts.get((gpu, xid), 0) + 1
        self._last[gpu] = xid
        event = Event(
            kind="gpu_xid",
            time_ns=int(snapshot.host_unix_ns(host, snapshot.time_s)),
            labels=gpu_labels(self._topology, gpu),
            attributes={"xid": str(xid)},
            message=f"GPU {index}: {explain_xid(xid)}.",
        )
        self._events.setdefault(host, []).append(event)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002
        size = self._topology.gpus_per_host
        for host in started:
            self._counts[host], self._rows[host] = {}, None
            self._last[host * size : (host + 1) * size] = 0

    def rows(self, host: int) -> Rows:
        rows = self._rows[host]
        if rows is None:
            topology, size = self._topology, self._topology.gpus_per_host
            last = [
                make_row("fabric_gpu_xid_last", gpu_labels(topology, gpu))
                for gpu in range(host * size, (host + 1) * size)
            ]
            seen = [
                make_row(
                    "fabric_gpu_xid_errors_total", gpu_labels(topology, gpu) | {"xid": str(xid)}
                )
                for gpu, xid in self._counts[host]
            ]
            rows = self._rows[host] = (*last, *seen)
        return rows

    def values(self, host: int) -> Floats:
        size = self._topology.gpus_per_host
        last = self._last[host * size : (host + 1) * size]
        counts = np.array(list(self._counts[host].values()), dtype=np.float64)
        return np.concatenate([last.astype(np.float64), counts])

    def events(self, host: int) -> list[Event]:
        return self._events.get(host, [])


# The host itself ---------------------------------------------------------------------------------

_CPU = "fabric_host_cpu_seconds_total"
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PLAIN = (
    "pressure_cpu_waiting_seconds_total",
    "pressure_memory_waiting_seconds_total",
    "pressure_memory_stalled_seconds_total",
    "pressure_io_waiting_seconds_total",
    "pressure_io_stalled_seconds_total",
    "cpus",
    "context_switches_total",
    "interrupts_total",
    "tasks_running",
    "tasks_blocked",
    "memory_total_bytes",
    "memory_available_bytes",
    "memory_cached_bytes",
    "memory_dirty_bytes",
    "load1",
    "gpu_processes",
)
_STILL = (
    "pressure_irq_stalled_seconds_total",
    "memory_writeback_bytes",
    "swap_total_bytes",
    "swap_free_bytes",
    "major_faults_total",
    "swap_in_pages_total",
    "swap_out_pages_total",
    "allocation_stalls_total",
    "direct_reclaim_pages_total",
    "compaction_stalls_total",
    "oom_kills_total",
)
"""Metrics that are 0 on every host."""
_LEFT_OUT = ("cgroups", "gpu_processes")


class HostSection(DeviceSection):
    """`host`: processors, memory and pressure; without processes."""

    def __init__(self, topology: Topology, ranks: Ranks) -> None:
        super().__init__(topology.hosts)
        self._topology = topology
        self._ranks = ranks
        modes = [make_row(_CPU, {"mode": mode}) for mode in _MODES]
        plain = [make_row(f"fabric_host_{metric}") for metric in (*_PLAIN, *_STILL)]
        left_out = [make_row("fabric_host_left_out", {"what": what}) for what in _LEFT_OUT]
        self._same_rows: Rows = (*modes, *plain, *left_out)

    def make_rows(self, host: int) -> Rows:  # noqa: ARG002 - the same on every host
        return self._same_rows

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        """As the kernel rounds them: processor time to ticks, memory to KiB."""
        hosts, zero = snapshot.hosts, np.zeros(snapshot.topology.hosts)
        modes = [ticks / TICKS_PER_SECOND for ticks in processor_ticks(hosts).values()]
        memory = {name: size * KIB for name, size in memory_kib(hosts).items()}
        tasks = scheduler_counts(snapshot)
        memory_s = hosts.pressure_memory_us / US_PER_SECOND
        io_s = hosts.pressure_io_us / US_PER_SECOND
        plain: list[Floats | Counts] = [
            hosts.pressure_cpu_us / US_PER_SECOND,
            *(memory_s, memory_s, io_s, io_s),
            zero + hosts.cpus,
            *(tasks[name] for name in ("ctxt", "intr", "procs_running", "procs_blocked")),
            *(memory[name] for name in ("MemTotal", "MemAvailable", "Cached", "Dirty")),
            np.array(load_texts(hosts), dtype=np.float64),
            self._count_processes(),
        ]
        self.show([*modes, *plain, *(zero for _ in (*_STILL, *_LEFT_OUT))])

    def _count_processes(self) -> Floats:
        counts = np.zeros(self._topology.hosts)
        for job in self._ranks.jobs.values():
            counts += np.bincount(job.rank_host, minlength=self._topology.hosts)
        return counts
