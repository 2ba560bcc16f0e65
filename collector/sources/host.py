"""What stalls a rank from below: pressure, processors, memory, cgroups, and GPU processes' states.

From `/proc` and `/sys/fs/cgroup`. A rank that is late although its GPU, its link and its work are
as its peers' has lost its time here: the hypervisor stole it, a quota ran out, a disk blocked it,
or a user stopped it.

The state of a process is that of its main thread at the moment of the read; a thread that hangs
beside it (a NCCL proxy) is not seen. Which GPU a process uses follows from the files that it holds
open and its local rank; `nvml` gets it from the driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.cgroups import ROOTS, ROOTS_V1, folders_above, path_below, read_cgroups
from collector.reading.jobs import (
    CLOCK_TICKS_PER_SECOND,
    GpuProcess,
    GpuProcessFinder,
    ProcessFacts,
    ProcessStat,
    choose_gpus,
    has_gpus,
    printable,
    read_process,
    read_stat,
)
from collector.sources import SourceSettings

UNINTERRUPTIBLE_SECONDS = 10
"""How long a process must stand in the kernel without using the processor before it is an event. A
read from a busy file system takes seconds; a driver or an NFS server that hangs takes for ever."""
CGROUPS_MAX = 64
"""Cgroups that are read: sixteen processes, each with four above its own."""
DISCOVER_SECONDS = 60
"""How long the choice of cgroups is believed; a new process is seen at once."""
MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000

PRESSURE = {
    # Documentation/accounting/psi.rst. `full` of the processor means nothing for a whole host.
    ("cpu", "some"): "fabric_host_pressure_cpu_waiting_seconds_total",
    ("memory", "some"): "fabric_host_pressure_memory_waiting_seconds_total",
    ("memory", "full"): "fabric_host_pressure_memory_stalled_seconds_total",
    ("io", "some"): "fabric_host_pressure_io_waiting_seconds_total",
    ("io", "full"): "fabric_host_pressure_io_stalled_seconds_total",
    ("irq", "full"): "fabric_host_pressure_irq_stalled_seconds_total",
}
CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
STAT = {
    "ctxt": "fabric_host_context_switches_total",
    "intr": "fabric_host_interrupts_total",
    "procs_running": "fabric_host_tasks_running",
    "procs_blocked": "fabric_host_tasks_blocked",
}
MEMORY = {
    "MemTotal": "fabric_host_memory_total_bytes",
    "MemAvailable": "fabric_host_memory_available_bytes",
    "Cached": "fabric_host_memory_cached_bytes",
    "Dirty": "fabric_host_memory_dirty_bytes",
    "Writeback": "fabric_host_memory_writeback_bytes",
    "SwapTotal": "fabric_host_swap_total_bytes",
    "SwapFree": "fabric_host_swap_free_bytes",
}
MEMORY_UNIT = 1024
"""`/proc/meminfo` writes kB and means KiB."""
VMSTAT = {
    # The kernel counts some per zone (allocstall_normal, …); a name with a star is their sum.
    "pgmajfault": "fabric_host_major_faults_total",
    "pswpin": "fabric_host_swap_in_pages_total",
    "pswpout": "fabric_host_swap_out_pages_total",
    "allocstall*": "fabric_host_allocation_stalls_total",
    "pgscan_direct": "fabric_host_direct_reclaim_pages_total",
    "compact_stall": "fabric_host_compaction_stalls_total",
    "oom_kill": "fabric_host_oom_kills_total",
}
LOAD = "fabric_host_load1"
CPUS = "fabric_host_cpus"
GPU_PROCESSES = "fabric_host_gpu_processes"

STATES = {
    "R": "running",
    "S": "sleeping",
    "I": "sleeping",
    "D": "uninterruptible",
    "T": "stopped",
    "t": "stopped",
    "Z": "zombie",
    "X": "zombie",
}
STATE_NAMES = tuple(dict.fromkeys(STATES.values()))
SLICES = ("system.slice", "user.slice", "machine.slice", "kubepods.slice", "kubepods", "slurm")
"""Cgroups of the first level that quotas are put on, besides those of GPU processes."""
CGROUP = {
    # The kernel's name (v2, or else v1) and how many of its unit make one of ours.
    "nr_periods": ("fabric_host_cgroup_cpu_periods_total", 1),
    "nr_throttled": ("fabric_host_cgroup_cpu_throttled_periods_total", 1),
    "throttled_usec": ("fabric_host_cgroup_cpu_throttled_seconds_total", MICROSECONDS),
    "throttled_time": ("fabric_host_cgroup_cpu_throttled_seconds_total", NANOSECONDS),
}


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `host`."""

    job_variables: tuple[str, ...] = ()
    """More environment variables that hold a job's name; they win over the schedulers' own."""


class HostStalls:
    """The source; it keeps its series, and what it knows of each process that holds a GPU."""

    name: ClassVar[str] = "host"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        cpu = "fabric_host_cpu_seconds_total"
        names = (*PRESSURE.values(), *STAT.values(), *MEMORY.values(), *VMSTAT.values())
        self._series = {name: Series(name) for name in (*names, LOAD, CPUS, GPU_PROCESSES)}
        self._modes = [Series(cpu, {"mode": mode}) for mode in CPU_MODES]
        self._left_out = {
            what: Series("fabric_host_left_out", {"what": what})
            for what in ("cgroups", "gpu_processes")
        }
        self._finder = GpuProcessFinder()
        self._watched: dict[int, Watched] = {}
        self._cgroups: dict[str, dict[str, Series]] = {}
        self._cgroups_left_out = 0
        self._discover_ns = 0

    def read(self, host: Host) -> Iterator[Reading]:
        """Everything about the host, then about each process that holds a GPU."""
        if not host.exists("proc/stat"):
            return
        yield from self._read_pressure(host)
        yield from self._read_stat(host)
        yield from self._read_table(host, "proc/meminfo", MEMORY, MEMORY_UNIT)
        yield from self._read_table(host, "proc/vmstat", VMSTAT, 1)
        yield self._read_load(host)
        has_changed = False
        if has_gpus(host):
            before = set(self._watched)
            yield from self._read_processes(host)
            has_changed = before != set(self._watched)
        if has_changed or host.monotonic_ns() >= self._discover_ns:
            self._discover_ns = host.monotonic_ns() + DISCOVER_SECONDS * 1_000_000_000
            self._choose_cgroups(host)
        yield from self._read_cgroups(host)
        if has_gpus(host):
            now_ns = host.now_ns()
            yield Sample(self._left_out["cgroups"], self._cgroups_left_out, now_ns)
            yield Sample(self._left_out["gpu_processes"], len(self._finder.left_out), now_ns)

    # --- the whole host ------------------------------------------------------------------------

    def _read_pressure(self, host: Host) -> Iterator[Reading]:
        for resource in dict.fromkeys(resource for resource, _ in PRESSURE):
            wanted = {
                share: self._series[metric]
                for (of, share), metric in PRESSURE.items()
                if of == resource
            }
            try:
                text = host.read(f"proc/pressure/{resource}")
            except HostError as error:
                yield from (Missing(each, error.reason, error.detail) for each in wanted.values())
                continue
            time_ns, totals = host.now_ns(), parse_pressure(text)
            for share, series in wanted.items():
                if share in totals:
                    yield Sample(series, totals[share] / MICROSECONDS, time_ns)
                else:
                    yield unparseable(series, f"no line {share!r} with a total")

    def _read_stat(self, host: Host) -> Iterator[Reading]:
        of_text = {key: self._series[metric] for key, metric in STAT.items()}
        try:
            text = host.read("proc/stat")
        except HostError as error:
            every = (*self._modes, *of_text.values(), self._series[CPUS])
            yield from (Missing(series, error.reason, error.detail) for series in every)
            return
        time_ns = host.now_ns()
        ticks, cpus, numbers = parse_cpu_stat(text)
        for place, series in enumerate(self._modes):
            if place < len(ticks):
                yield Sample(series, ticks[place] / CLOCK_TICKS_PER_SECOND, time_ns)
            else:
                yield unparseable(series, f"the line cpu has {len(ticks)} numbers")
        yield Sample(self._series[CPUS], cpus, time_ns)
        yield from pick(numbers, of_text, 1, time_ns)

    def _read_table(
        self, host: Host, path: str, table: Mapping[str, str], factor: float
    ) -> Iterator[Reading]:
        wanted = {key: self._series[metric] for key, metric in table.items()}
        try:
            numbers = parse_numbers_by_name(host.read(path))
        except HostError as error:
            yield from (Missing(each, error.reason, error.detail) for each in wanted.values())
            return
        for key in [key for key in wanted if key.endswith("*")]:
            parts = [numbers[name] for name in numbers if name.startswith(key[:-1])]
            numbers |= {key: sum(parts)} if parts else {}
        yield from pick(numbers, wanted, factor, host.now_ns())

    def _read_load(self, host: Host) -> Reading:
        series = self._series[LOAD]
        try:
            text = host.read("proc/loadavg")[:64]
        except HostError as error:
            return Missing(series, error.reason, error.detail)
        found = re.match(rb"\d{1,9}\.\d{1,6} ", text)
        if not found:
            return unparseable(series, f"{text[:40]!r} does not begin with a number")
        return Sample(series, float(found[0]), host.now_ns())

    # --- processes that hold a GPU -------------------------------------------------------------

    def _read_processes(self, host: Host) -> Iterator[Reading]:
        holders = self._finder.find(host)
        counted = self._series[GPU_PROCESSES]
        if self._finder.refused:
            detail = (
                f"the open files of {len(self._finder.refused)} processes may not be seen; "
                "run the agent as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
            )
            yield Missing(counted, UnreadReason.UNREADABLE, detail)
        else:
            yield Sample(counted, len(holders), host.now_ns())
        watched, self._watched = self._watched, {}
        for held in holders:
            stat = read_stat(host, held.pid)
            if stat is None or stat.start_ticks != held.start_ticks:
                continue  # it ended since it was found; reported below
            process = watched.get(held.pid)
            if process is None or process.held != held:
                facts = read_process(host, held.pid, self._settings.job_variables)
                if facts is None:
                    continue
                process = Watched(held, facts, process)
            self._watched[held.pid] = process
            yield from process.read(host, stat)
        for pid, process in watched.items():
            is_same = pid in self._watched and process.is_same(self._watched[pid])
            if not is_same and not process.is_alive(host):
                yield from process.report_gone(host, "it is not there any more")

    # --- cgroups -------------------------------------------------------------------------------

    def _choose_cgroups(self, host: Host) -> None:
        """Find the cgroups to read: all above each GPU process, and the slices."""
        chosen: dict[str, None] = {}
        for pid in self._watched:
            for controllers, path in read_cgroups(host, pid):
                for folder in folders_above("cpu", controllers, path):
                    chosen.setdefault(folder)
        for root in (*ROOTS, *ROOTS_V1["cpu"]):
            for name in SLICES:
                chosen.setdefault(f"{root}/{name}")
        there = [folder for folder in chosen if host.exists(f"{folder}/cpu.stat")]
        self._cgroups_left_out = max(0, len(there) - CGROUPS_MAX)
        self._cgroups = {
            folder: self._cgroups.get(folder) or cgroup_series(folder)
            for folder in there[:CGROUPS_MAX]
        }

    def _read_cgroups(self, host: Host) -> Iterator[Reading]:
        for folder, series in self._cgroups.items():
            try:
                numbers = parse_numbers_by_name(host.read(f"{folder}/cpu.stat"))
            except HostError:
                continue  # it went with its processes
            time_ns = host.now_ns()
            for key, (_, divisor) in CGROUP.items():
                # Without the cpu controller the kernel leaves these lines out: no quota can be set.
                if key in numbers:
                    yield Sample(series[key], numbers[key] / divisor, time_ns)


SOURCE = HostStalls


class Standstill:
    """Since when a process has not moved, and the event reported about it."""

    def __init__(self) -> None:
        self.since_ns: int | None = None
        self.cpu_ticks = -1
        self.reported = ""

    def seconds(self, now_ns: int, cpu_ticks: int) -> float:
        """How long it has stood; a process that used the processor in between has moved."""
        if self.since_ns is None or self.cpu_ticks != cpu_ticks:
            self.since_ns, self.cpu_ticks = now_ns, cpu_ticks
        return (now_ns - self.since_ns) / 1e9


class Watched:
    """A process that holds a GPU: its identity, its series, and how long it has stood still."""

    def __init__(self, held: GpuProcess, facts: ProcessFacts, before: Watched | None) -> None:
        self.held = held
        self.facts = facts
        gpus = ",".join(str(gpu) for gpu in choose_gpus(held.gpus, facts))
        numbers = {"rank": facts.rank, "local_rank": facts.local_rank}
        texts = {name: "" if each is None else str(each) for name, each in numbers.items()}
        self.labels = {
            "pid": str(held.pid),
            "gpu": printable(gpus),
            "rank": texts["rank"],
            "job": facts.job,
        }
        prefix = "fabric_host_gpu_process"
        self._states = {
            state: Series(f"{prefix}_state", {**self.labels, "state": state})
            for state in STATE_NAMES
        }
        self._cpu = Series(f"{prefix}_cpu_seconds_total", self.labels)
        self._preemptions = Series(f"{prefix}_preemptions_total", self.labels)
        self._faults = Series(f"{prefix}_major_faults_total", self.labels)
        self._threads = Series(f"{prefix}_threads", self.labels)
        more = {"user": facts.user, "scheduler": facts.scheduler}
        place = {"pod": facts.pod, "namespace": facts.namespace}
        job_labels = {**self.labels, "local_rank": texts["local_rank"], **more, **place}
        self._job = Series("fabric_job_info", job_labels) if facts.job else None
        self.still = Standstill()
        if before is not None and self.is_same(before):
            self.still = before.still

    def is_same(self, other: Watched) -> bool:
        """Compares more than the pid, which the kernel may have used again."""
        return (self.held.pid, self.held.start_ticks) == (other.held.pid, other.held.start_ticks)

    def is_alive(self, host: Host) -> bool:
        """Whether the process is still there, with a GPU or without."""
        stat = read_stat(host, self.held.pid)
        return stat is not None and stat.start_ticks == self.held.start_ticks

    def read(self, host: Host, stat: ProcessStat) -> Iterator[Reading]:
        time_ns = host.now_ns()
        state = STATES.get(stat.state)
        for name, series in self._states.items():
            if state is None:
                yield unparseable(series, f"{stat.state[:8]!r} is no state that we know")
            else:
                yield Sample(series, int(name == state), time_ns)
        yield Sample(self._cpu, stat.cpu_ticks / CLOCK_TICKS_PER_SECOND, time_ns)
        yield Sample(self._faults, stat.major_faults, time_ns)
        yield Sample(self._threads, stat.threads, time_ns)
        yield self._read_preemptions(host)
        if self._job:
            yield Sample(self._job, 1, time_ns)
        yield from self._tell(host, stat, state or "")

    def _read_preemptions(self, host: Host) -> Reading:
        try:
            text = host.read(f"proc/{self.held.pid}/status")
        except HostError as error:
            return Missing(self._preemptions, error.reason, error.detail)
        found = re.search(rb"^nonvoluntary_ctxt_switches:\s+(\d{1,20})$", text, re.MULTILINE)
        if not found:
            return unparseable(self._preemptions, "no line nonvoluntary_ctxt_switches")
        return Sample(self._preemptions, int(found[1]), host.now_ns())

    # --- events --------------------------------------------------------------------------------

    def _tell(self, host: Host, stat: ProcessStat, state: str) -> Iterator[Event]:
        """An event where the process stopped, ended, or has stood in the kernel for long."""
        if state == "zombie":
            yield from self.report_gone(host, "it has ended and its parent has not collected it")
            return
        if state not in {"stopped", "uninterruptible"}:
            self.still = Standstill()
            return
        seconds = self.still.seconds(host.monotonic_ns(), stat.cpu_ticks)
        # A signal stops a process until another starts it. A debugger or a profiler (`t`) and the
        # kernel (`D`) stop it all the time, for moments.
        is_over = stat.state == "T" or seconds >= UNINTERRUPTIBLE_SECONDS
        kind = f"gpu_process_{state}"
        if is_over and self.still.reported != kind:
            self.still.reported = kind
            where = read_wait_channel(host, self.held.pid)
            attributes = {"state": stat.state, "seconds": f"{seconds:.0f}", "wait_channel": where}
            yield self._event(
                host, kind, f"it is {state}" + (f" in {where}" if where else ""), attributes
            )

    def report_gone(self, host: Host, why: str) -> Iterator[Event]:
        """The event that the process has ended, once."""
        if self.still.reported != "gpu_process_gone":
            self.still.reported = "gpu_process_gone"
            yield self._event(host, self.still.reported, why, {})

    def _event(self, host: Host, kind: str, what: str, attributes: dict[str, str]) -> Event:
        process = f"process {self.held.pid} ({self.facts.command})"
        if self.facts.rank is not None:
            process = f"rank {self.facts.rank}, {process}"
        known = {"command": self.facts.command, "user": self.facts.user, **attributes}
        return Event(
            kind=kind,
            time_ns=host.now_ns(),
            labels={name: value for name, value in self.labels.items() if value},
            message=f"{process}: {what}",
            attributes={name: value for name, value in known.items() if value},
        )


def read_wait_channel(host: Host, pid: int) -> str:
    try:
        text = printable(host.read(f"proc/{pid}/wchan"))
    except HostError:
        return ""
    return "" if text == "0" else text


# --- pure ----------------------------------------------------------------------------------------


def unparseable(series: Series, detail: str) -> Missing:
    """An absence because the text is not what the kernel documents."""
    return Missing(series, UnreadReason.UNPARSEABLE, detail)


def pick(
    numbers: Mapping[str, int], wanted: Mapping[str, Series], factor: float, time_ns: int
) -> Iterator[Reading]:
    """A sample for each wanted name, or its absence: kernels differ in the lines that they have."""
    for key, series in wanted.items():
        if key in numbers:
            yield Sample(series, numbers[key] * factor, time_ns)
        else:
            yield Missing(series, UnreadReason.ABSENT, f"this kernel has no line {key}")


def parse_pressure(text: bytes) -> dict[str, int]:
    r"""Total microseconds of `some` and `full`.

    >>> parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.12 total=191938657\n")
    {'some': 191938657}
    """
    lines = re.findall(rb"^(some|full) .*\btotal=(\d{1,20})$", text, re.MULTILINE)
    return {share.decode("ascii"): int(total) for share, total in lines}


def parse_cpu_stat(text: bytes) -> tuple[list[int], int, dict[str, int]]:
    """Ticks of all processors by mode, how many processors there are, and the other lines."""
    ticks: list[int] = []
    cpus = 0
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        # The line `intr` has a number for each of thousands of interrupts; the first is their sum.
        name, *rest = line.split(None, 1)[:2] or [b""]
        values = rest[0] if rest else b""
        if name == b"cpu":
            parts = values.split()[: len(CPU_MODES)]
            ticks = [int(part) for part in parts if part.isdigit()]
        elif name.startswith(b"cpu"):
            cpus += 1
        elif (first := values.partition(b" ")[0]).isdigit():
            numbers[name.decode("latin-1")] = int(first)
    return ticks, cpus, numbers


def parse_numbers_by_name(text: bytes) -> dict[str, int]:
    r"""The first number on each line by the word before it, for meminfo, vmstat and cpu.stat.

    >>> parse_numbers_by_name(b"Dirty:      16 kB\nnr_throttled 3\n")
    {'Dirty': 16, 'nr_throttled': 3}
    """
    lines = re.findall(rb"^([A-Za-z][\w()]*):?[ \t]+(\d{1,20})\b", text, re.MULTILINE)
    return {name.decode("ascii"): int(number) for name, number in lines}


def cgroup_series(folder: str) -> dict[str, Series]:
    """The series of one cgroup by the kernel's name; the label is its path below the root."""
    path = path_below("cpu", folder)
    return {key: Series(metric, {"cgroup": path}) for key, (metric, _) in CGROUP.items()}
