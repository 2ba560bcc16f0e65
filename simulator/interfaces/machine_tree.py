"""A host's machine as files: /proc, the ranks' processes, and a recording of NVML's answers.

An agent with ``--root`` reads the tree below ``<folder>/<hostname>/``. Files of /proc are written
in place, by one write each, and never become shorter: empty lines, which every reader of /proc
skips, overwrite the rest of a longer text. NVML's recording is longer than a page and no reader may
see half of two, so a rename replaces it (which takes ten times as long); the agent opens it at
every read.

A process is shown as the kernel would: running, waiting for a disk, or asleep. The tree holds
nothing that only a detector would look for.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from collector.contract.units import NS
from simulator.interfaces.fabric_tree import gpu_pci_path
from simulator.interfaces.kernel import (
    COMMAND,
    RANK_THREADS,
    WAIT_CHANNELS,
    RankProcesses,
    load_texts,
    local_ranks,
    memory_kib,
    mount_texts,
    processor_ticks,
    scheduler_counts,
    start_ticks,
    uptime_s,
)
from simulator.interfaces.kernel_lines import nic_lines
from simulator.interfaces.time_service import kernel_lines, tracking_lines
from simulator.snapshot import Counts, JobStatus, Snapshot
from simulator.topology.model import Bools, Floats, Ints, Topology

USER, USER_ID = "trainer", 1000
PRESSURE_WINDOWS = (10.0, 60.0, 300.0)
"""Seconds that the kernel averages pressure over."""

MODEL = "NVIDIA H200"
MEMORY_BYTES, RESERVED_BYTES = 150_754_820_096, 644_939_776
"""Of an H200, as driver 580 reports."""
TEMPERATURE_MAX_CELSIUS = 87
"""Above it the GPU slows down; NVML's margin is relative to it."""
NVLINKS = 18
"""Of an H200, all to the host's NVSwitches."""
NVLINK_MEGABYTES_PER_SECOND = 26_562
"""Of one link and direction."""
COLLECTIVE_SM_SHARE = 16 / 132
"""Multiprocessors that NCCL's kernel holds while a GPU waits in a collective: 16 channels."""
GPM_DECIMALS = 4
"""Of a percent, or of MiB a second."""
DRAM_SHARE = 0.45
"""Of memory's time that is busy while tensor cores work: large matrix products."""
FABRIC_HEALTHY = 0b10101010
"""NVML's health mask of an NVLink domain: each of the four conditions is known to be false."""
NVML_LOST, NVML_REFUSED = 15, 3
"""nvmlReturn_t: the GPU is lost, and not supported."""
XID_OFF_THE_BUS = 79
XID_EVENT = 8
"""nvmlEventTypeXidCriticalError."""
XID_SECONDS = 300.0
"""How long an event stays in the recording, so that an agent that reads seldom still gets it. Each
has a number, by which a reader skips events that it has had."""
LINK_ERRORS_REFUSED = (29, 30, 31, 160)
"""Fields that an H200 refuses: page retirement is older, NVLink's ECC counter as well."""
FIELDS_ZERO = (
    *(38, 45, 59, 76, 77, 78, 79, 80, 81, 95, 142, 143, 144, 145, 169, 173, 174, 175, 176),
    *(177, 178, 179, 180, 181, 182, 230, 270, 271),
)
"""Errors of NVLink and PCIe, violations and retired rows without a cause in the model."""


# Identities --------------------------------------------------------------------------------------


def gpu_address(index: int) -> str:
    """The PCI address of a host's GPU: NVML numbers GPUs in the order of these.

    >>> gpu_address(0), gpu_address(7)
    ('0000:19:00.0', '0000:c1:00.0')
    """
    return gpu_pci_path(index).rpartition("/")[2]


def gpu_uuid(topology: Topology, gpu: int) -> str:
    """A GPU's permanent name, the same in every run of a cluster of this name."""
    digits = blake2b(f"{topology.name}/{gpu}".encode(), digest_size=16).hexdigest()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


# NVML: numbers -----------------------------------------------------------------------------------


def gpu_columns(
    snapshot: Snapshot, nvlink_before: tuple[Counts, Counts]
) -> dict[str, Counts | Floats]:
    """GPU numbers as NVML names and counts them; ``nvlink_before``: NVLink's bytes a tick ago."""
    gpus = snapshot.gpus
    waiting = np.maximum(gpus.utilization_share - gpus.tensor_share, 0.0)
    busy = np.minimum(gpus.tensor_share + COLLECTIVE_SM_SHARE * waiting, 1.0)
    seconds = max(snapshot.interval_s, 1e-9)
    sent = (gpus.nvlink_transmit_bytes - nvlink_before[0]) / seconds
    received = (gpus.nvlink_receive_bytes - nvlink_before[1]) / seconds
    measured: dict[str, Floats] = {
        "gpm 1": 100 * gpus.utilization_share,
        "gpm 2": 100 * busy,
        "gpm 3": 50 * busy,
        "gpm 5": 100 * gpus.tensor_share,
        "gpm 10": 100 * DRAM_SHARE * gpus.tensor_share,
        "gpm 20": gpus.pcie_transmit_bytes_per_second / (1 << 20),
        "gpm 21": gpus.pcie_receive_bytes_per_second / (1 << 20),
        "gpm 60": np.maximum(received, 0.0) / (1 << 20),
        "gpm 61": np.maximum(sent, 0.0) / (1 << 20),
    }
    columns: dict[str, Floats | Counts | Ints] = {
        "utilization gpu": 100 * gpus.utilization_share,
        "utilization memory": 100 * DRAM_SHARE * gpus.tensor_share,
        "memory free": MEMORY_BYTES - RESERVED_BYTES - gpus.memory_used_bytes,
        "memory used": gpus.memory_used_bytes,
        "clock 1": gpus.sm_clock_mhz,
        "clock 2": gpus.memory_clock_mhz,
        "clock_event_reasons": gpus.throttle_reasons,
        "power": 1e3 * gpus.power_watts,
        "power_limit": 1e3 * gpus.power_limit_watts,
        "temperature": gpus.temperature_celsius,
        "temperature_margin": TEMPERATURE_MAX_CELSIUS - np.rint(gpus.temperature_celsius),
        "pcie_generation": gpus.pcie_generation,
        "pcie_width": gpus.pcie_width,
        "field 3": gpus.correctable_errors,
        "field 4": gpus.uncorrectable_errors,
        "field 5": gpus.correctable_errors,
        "field 6": gpus.uncorrectable_errors,
        "field 74": gpus.power_violation_ns,
        "field 75": gpus.thermal_violation_ns,
        "field 269": gpus.thermal_violation_ns,
        "field 82": gpus.memory_temperature_celsius,
        "field 83": 1e3 * gpus.energy_joules,
        "field 94": gpus.pcie_replays,
        "field 52": gpus.nvlink_replays,
    }
    # Links take turns: their kibibytes add up to the GPU's, and none ever counts backwards.
    for link in range(NVLINKS):
        columns[f"field 138 {link}"] = (gpus.nvlink_transmit_bytes // 1024 + link) // NVLINKS
        columns[f"field 139 {link}"] = (gpus.nvlink_receive_bytes // 1024 + link) // NVLINKS
        columns[f"field 161 {link}"] = (gpus.nvlink_replays + link) // NVLINKS
    whole = {key: np.rint(column).astype(np.int64) for key, column in columns.items()}
    return {**whole, **{key: np.round(each, GPM_DECIMALS) for key, each in measured.items()}}


def _hole(name: str) -> str:
    return f"<{name}>"


def _gpu_answers(topology: Topology, gpu: int) -> dict[str, Any]:
    """A recording of one GPU, with holes for changing numbers."""
    address = f"0000{gpu_address(gpu % topology.gpus_per_host)}".upper()
    fields: dict[str, Any] = dict.fromkeys((f"field {number} 0" for number in FIELDS_ZERO), 0)
    for number in LINK_ERRORS_REFUSED:
        fields[f"field {number} 0"] = {"error": NVML_REFUSED}
    for number in (3, 4, 5, 6, 52, 74, 75, 269, 82, 83, 94):
        fields[f"field {number} 0"] = _hole(f"field {number}")
    fields |= {"field 91 0": NVLINKS, "field 147 0": NVLINKS}
    for link in range(NVLINKS):
        steady = {164: NVLINK_MEGABYTES_PER_SECOND, 165: 1, 162: 0, 163: 0}
        fields |= {f"field {number} {link}": value for number, value in steady.items()}
        for number in (138, 139, 161):
            fields[f"field {number} {link}"] = _hole(f"field {number} {link}")
    one = {
        "uuid": gpu_uuid(topology, gpu),
        "name": MODEL,
        "vbios": "96.00.A5.00.1A",
        "max_clock 1": 1980,
        "max_clock 2": 3201,
        "performance_state": 0,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "temperature_threshold 0": 95,
        "temperature_threshold 1": 89,
        "temperature_threshold 2": 95,
        "temperature_threshold 3": TEMPERATURE_MAX_CELSIUS,
    }
    changing = ["clock 1", "clock 2", "clock_event_reasons", "power", "power_limit"]
    changing += ["temperature", "temperature_margin", "pcie_generation", "pcie_width"]
    metrics = (1, 2, 3, 5, 10, 20, 21, 60, 61)
    cluster = "0" * 32
    return {
        **{key: {"value": value} for key, value in one.items()},
        **{key: {"value": _hole(key)} for key in changing},
        "pci": {"bus_id": address},
        "mig_mode": {"current": 0, "pending": 0},
        "fabric": {
            "clique": 0,
            "cluster": cluster,
            "health": FABRIC_HEALTHY,
            "state": 3,
            "status": 0,
        },
        "utilization": {"gpu": _hole("utilization gpu"), "memory": _hole("utilization memory")},
        "memory": {
            "total": MEMORY_BYTES,
            "reserved": RESERVED_BYTES,
            **{name: _hole(f"memory {name}") for name in ("free", "used")},
        },
        "row_remapper": {"max": 3072, "high": 0, "partial": 0, "low": 0, "none": 0},
        "gpm": {str(metric): _hole(f"gpm {metric}") for metric in metrics},
        **fields,
        "processes": _hole("processes"),
    }


class _Template:
    """A text with holes, filled for one GPU after another."""

    def __init__(self, answers: dict[str, Any], names: Sequence[str]) -> None:
        text = json.dumps(answers).replace("%", "%%")
        places = sorted((text.index(f'"<{name}>"'), name) for name in names)
        self.names = [name for _, name in places]
        for name in names:
            text = text.replace(f'"<{name}>"', "%s")
        self.text = text


class GpuRecordings:
    """NVML's answers on every host, as the text of a recording."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._templates: list[_Template] = []
        self._nvlink: tuple[Counts, Counts] | None = None
        self._events: list[tuple[float, int, dict[str, int]]] = []
        """Time, host, and the event as in NVML, with a number of its own."""
        self._event_count = 0
        self._is_lost: Bools = np.zeros(topology.gpus, dtype=np.bool_)

    def write(self, snapshot: Snapshot) -> list[str]:
        gpus = snapshot.gpus
        now = gpus.nvlink_transmit_bytes, gpus.nvlink_receive_bytes
        columns = gpu_columns(snapshot, self._nvlink or now)
        self._nvlink = now[0].copy(), now[1].copy()
        self._note_events(snapshot)
        texts = self._gpu_texts(snapshot, {key: each.tolist() for key, each in columns.items()})
        size = self._topology.gpus_per_host
        system = json.dumps(
            {"count": {"value": size}, "cuda": {"value": 13000}, "driver": {"value": "580.159.04"}}
        )
        return [
            f'{{"system": {system}, "gpus": [{", ".join(texts[host * size : (host + 1) * size])}], '
            f'"events": {json.dumps([event for _, of, event in self._events if of == host])}}}\n'
            for host in range(self._topology.hosts)
        ]

    def _gpu_texts(self, snapshot: Snapshot, columns: dict[str, list[Any]]) -> list[str]:
        topology = self._topology
        if not self._templates:
            names = (*columns, "processes")
            self._templates = [
                _Template(_gpu_answers(topology, gpu), names) for gpu in range(topology.gpus)
            ]
        filled: dict[str, list[Any]] = {**columns, "processes": _gpu_processes(snapshot)}
        rows = zip(*(filled[name] for name in self._templates[0].names), strict=True)
        texts = [template.text % row for template, row in zip(self._templates, rows, strict=True)]
        for gpu in np.flatnonzero(self._is_lost & snapshot.world.gpu_is_dead):
            answers = _gpu_answers(topology, int(gpu))
            lost = {key: {"error": NVML_LOST} for key in (*answers, "fields")}
            texts[gpu] = json.dumps(lost)
        return texts

    def _note_events(self, snapshot: Snapshot) -> None:
        """Add the XIDs of this tick; remove those that every reader has had time to read."""
        oldest_s = snapshot.time_s - XID_SECONDS
        self._events = [event for event in self._events if event[0] >= oldest_s]
        size = self._topology.gpus_per_host
        for happening in snapshot.happenings:
            if happening.kind != "xid" or happening.gpu < 0:
                continue
            self._event_count += 1
            gpu = happening.gpu
            self._is_lost[gpu] = happening.value == XID_OFF_THE_BUS
            event = {"gpu": gpu % size, "type": XID_EVENT, "data": happening.value}
            numbered = {**event, "number": self._event_count}
            self._events.append((happening.time_s, gpu // size, numbered))


def _gpu_processes(snapshot: Snapshot) -> list[str]:
    """For each GPU, the processes that compute on it, as JSON."""
    found: list[list[dict[str, int]]] = [[] for _ in range(snapshot.topology.gpus)]
    used = snapshot.gpus.memory_used_bytes
    for job in snapshot.jobs:
        if job.is_running:
            for gpu, pid in zip(job.rank_gpu.tolist(), job.rank_pid.tolist(), strict=True):
                found[gpu].append({"pid": pid, "used": int(used[gpu])})
    return [json.dumps(processes) for processes in found]


# /proc: texts ------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _put_in_place(path: str, text: str, *, is_new: bool) -> None:
    """Overwrite the beginning of a file. By hand: pathlib takes three times as long."""
    # Nothing of an earlier run below the same folder may remain.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_new else 0)
    handle = os.open(path, flags, 0o644)
    os.write(handle, text.encode())
    os.close(handle)


def _replace(path: str, text: str) -> None:
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, text.encode())
    os.close(handle)
    os.rename(f"{path}.new", path)  # noqa: PTH104


def _stat_texts(snapshot: Snapshot) -> list[str]:
    hosts = snapshot.hosts
    nothing = np.zeros(snapshot.topology.hosts, dtype=np.int64)
    # The last two are the time that guests took.
    ticks = np.stack([*processor_ticks(hosts).values(), nothing, nothing], axis=1)
    counts = {name: each.tolist() for name, each in scheduler_counts(snapshot).items()}
    texts = []
    for host in range(snapshot.topology.hosts):
        one = " ".join(map(str, (ticks[host] // max(hosts.cpus, 1)).tolist()))
        lines = [f"cpu  {' '.join(map(str, ticks[host].tolist()))}"]
        lines += [f"cpu{cpu} {one}" for cpu in range(hosts.cpus)]
        lines += [
            f"intr {counts['intr'][host]}",
            f"ctxt {counts['ctxt'][host]}",
            f"btime {hosts.boot_unix_ns[host] // NS}",
            "processes 24138",
            f"procs_running {counts['procs_running'][host]}",
            f"procs_blocked {counts['procs_blocked'][host]}",
        ]
        texts.append("\n".join(lines) + "\n")
    return texts


def _memory_texts(snapshot: Snapshot) -> list[str]:
    sizes = memory_kib(snapshot.hosts)
    names = [f"{name + ':':<15}" for name in sizes]
    return [
        "".join(f"{name}{size:>9} kB\n" for name, size in zip(names, row, strict=True))
        for row in np.stack(list(sizes.values()), axis=1).tolist()
    ]


VMSTAT = "".join(
    f"{name} 0\n"
    for name in (
        *("nr_free_pages", "pgmajfault", "pswpin", "pswpout", "allocstall_normal"),
        *("allocstall_movable", "pgscan_direct", "compact_stall", "oom_kill"),
    )
)
"""Hosts have no swap and never run out of memory here: memory pressure is in `pressure/memory`."""


class _Pressure:
    """Averages of `/proc/pressure/<resource>`, which the kernel lets fade over three windows."""

    def __init__(self, hosts: int) -> None:
        self._total_us: Counts | None = None
        self._shares = np.zeros((len(PRESSURE_WINDOWS), hosts))

    def texts(self, total_us: Counts, seconds: float, *, has_full: bool) -> list[str]:
        """The file of each host; where processes stall, all of a job's do: `full` is `some`."""
        before, self._total_us = self._total_us, total_us.copy()
        share = np.clip((total_us - (total_us if before is None else before)) / 1e6 / seconds, 0, 1)
        fade = 1 - np.exp(-seconds / np.array(PRESSURE_WINDOWS))[:, None]
        self._shares += (share - self._shares) * fade
        percents = (100 * self._shares).T.tolist()
        nothing = "full avg10=0.00 avg60=0.00 avg300=0.00 total=0"
        texts = []
        for (ten, sixty, long), total in zip(percents, total_us.tolist(), strict=True):
            rest = f"avg10={ten:.2f} avg60={sixty:.2f} avg300={long:.2f} total={total}"
            texts.append(f"some {rest}\n{f'full {rest}' if has_full else nothing}\n")
        return texts


# Processes ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Ranks:
    """The processes of one running job."""

    job: JobStatus
    folders: list[str]
    """Of each rank, below /proc of its host."""
    start_ticks: list[int]
    processes: RankProcesses


def _environment(job: JobStatus, rank: int, local_rank: int, gpus: Sequence[int]) -> str:
    variables = {
        "SLURM_JOB_ID": job.name,
        "SLURM_JOB_USER": USER,
        "SLURM_PROCID": str(rank // max(len(gpus), 1)),
        "SLURM_LOCALID": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "WORLD_SIZE": str(job.ranks),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
    }
    return "".join(f"{name}={value}\0" for name, value in variables.items())


def _status(pid: int, state: str, preemptions: int) -> str:
    words = {"R": "R (running)", "D": "D (disk sleep)", "S": "S (sleeping)"}
    return (
        f"Name:\t{COMMAND}\nState:\t{words[state]}\nTgid:\t{pid}\nPid:\t{pid}\n"
        f"Uid:\t{USER_ID}\t{USER_ID}\t{USER_ID}\t{USER_ID}\nNSpid:\t{pid}\n"
        f"voluntary_ctxt_switches:\t1234\nnonvoluntary_ctxt_switches:\t{preemptions}\n"
    )


# The tree ----------------------------------------------------------------------------------------


class MachineTree:
    """The trees of all hosts below one folder; `start` once, then `update` at every tick."""

    def __init__(self, folder: Path, topology: Topology) -> None:
        self._folder = folder
        self._topology = topology
        self._recordings = GpuRecordings(topology)
        resources = ("cpu", "io", "memory")
        self._pressure = {name: _Pressure(topology.hosts) for name in resources}
        self._jobs: dict[str, _Ranks] = {}
        self._written: dict[str, str] = {}
        self._dead_nics: Bools = np.zeros(topology.nics, dtype=np.bool_)
        self._kernel_records = [0] * topology.hosts

    def root(self, host: int) -> Path:
        """Where a host's tree begins: what its agent is given as ``--root``."""
        return self._folder / self._topology.host_name(host)

    def start(self, snapshot: Snapshot) -> None:
        for host in range(self._topology.hosts):
            root = self.root(host)
            _write(root / "proc/sys/kernel/hostname", f"{self._topology.host_name(host)}\n")
            _write(root / "proc/vmstat", VMSTAT)
            nothing = "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
            _write(root / "proc/pressure/irq", nothing)
            users = f"root:x:0:0:root:/root:/bin/bash\n{USER}:x:{USER_ID}:{USER_ID}::/srv:/bin/sh\n"
            _write(root / "etc/passwd", users)
            _write(root / "dev/nvidiactl", "")
            _write(root / "dev/kmsg", "")
            _write(root / "run/chrony/chronyd.pid", "811\n")
            for folder in ("clock", "commands", "nvml"):
                (root / folder).mkdir(exist_ok=True)
            _write(root / "proc/self/mountstats", "")
            for gpu in range(self._topology.gpus_per_host):
                address = gpu_address(gpu)
                _write(
                    root / f"proc/driver/nvidia/gpus/{address}/information",
                    f"Model: \t\t {MODEL}\nBus Location: \t {address}\nDevice Minor: \t {gpu}\n",
                )
        self.update(snapshot)

    def update(self, snapshot: Snapshot) -> None:
        """Rewrite what has changed. A host that is down keeps its files."""
        hosts = np.flatnonzero(~snapshot.world.host_is_down).tolist()
        roots = {host: str(self.root(host)) for host in hosts}
        recordings = self._recordings.write(snapshot)
        for host in hosts:
            _replace(f"{roots[host]}/nvml/answers.json", recordings[host])
        for name, texts in self._host_files(snapshot):
            for host in hosts:
                self._put(f"{roots[host]}/proc/{name}", texts[host])
        clocks = {
            "commands/chronyc -c -n tracking": tracking_lines(snapshot),
            "clock/adjtimex": kernel_lines(snapshot),
        }
        for name, texts in clocks.items():
            for host in hosts:
                self._put(f"{roots[host]}/{name}", texts[host])
        self._update_processes(snapshot)
        self._update_kernel_logs(snapshot)

    def _update_kernel_logs(self, snapshot: Snapshot) -> None:
        """Append what the kernels say of NICs whose firmware has stopped, or runs again."""
        dead = snapshot.world.nic_is_dead
        uptime = uptime_s(snapshot)
        for nic in np.flatnonzero(dead != self._dead_nics).tolist():
            host = nic // self._topology.nics_per_host
            with (self.root(host) / "dev/kmsg").open("a", encoding="utf-8") as log:
                for line in nic_lines(self._topology, nic, is_dead=bool(dead[nic])):
                    self._kernel_records[host] += 1
                    place = f"{self._kernel_records[host]},{int(uptime[host] * 1e6)}"
                    log.write(f"3,{place},-;{line}\n")
        self._dead_nics = dead.copy()

    def _put(self, path: str, text: str) -> None:
        before = self._written.get(path, "")
        padded = text.ljust(len(before), "\n")
        if padded != before:
            self._written[path] = padded
            _put_in_place(path, padded, is_new=not before)

    def _host_files(self, snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
        """Each file of /proc that changes, and its text on every host."""
        hosts = snapshot.hosts
        yield "stat", _stat_texts(snapshot)
        yield "self/mountstats", mount_texts(snapshot)
        yield "meminfo", _memory_texts(snapshot)
        yield "loadavg", [f"{one} {one} {one} 3/2812 24140\n" for one in load_texts(hosts)]
        uptime, idle = uptime_s(snapshot).tolist(), hosts.cpu_idle_s.tolist()
        yield "uptime", [f"{a:.2f} {b:.2f}\n" for a, b in zip(uptime, idle, strict=True)]
        totals = {"cpu": hosts.pressure_cpu_us, "io": hosts.pressure_io_us}
        totals["memory"] = hosts.pressure_memory_us
        seconds = max(snapshot.interval_s, 1e-3)
        for name, pressure in self._pressure.items():
            texts = pressure.texts(totals[name], seconds, has_full=name != "cpu")
            yield f"pressure/{name}", texts

    # The ranks -------------------------------------------------------------------------------

    def _update_processes(self, snapshot: Snapshot) -> None:
        running = {job.name: job for job in snapshot.jobs if job.is_running}
        for name, ranks in list(self._jobs.items()):
            job = running.get(name)
            if job is None or not np.array_equal(job.rank_pid, ranks.job.rank_pid):
                self._end(self._jobs.pop(name))
        for name, job in running.items():
            if name not in self._jobs:
                self._jobs[name] = self._begin(snapshot, job)
            self._show(snapshot, self._jobs[name])

    def _begin(self, snapshot: Snapshot, job: JobStatus) -> _Ranks:
        ticks, local = start_ticks(snapshot, job).tolist(), local_ranks(job).tolist()
        folders = []
        rows = zip(job.rank_host.tolist(), job.rank_pid.tolist(), local, strict=True)
        for rank, (host, pid, place) in enumerate(rows):
            folder = self.root(host) / f"proc/{pid}"
            folders.append(str(folder))
            same = np.flatnonzero(job.rank_host == host)
            gpus = sorted((job.rank_gpu[same] % self._topology.gpus_per_host).tolist())
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "fd").mkdir(parents=True)
            files = ["null", "nvidiactl", "nvidia-uvm", *(f"nvidia{gpu}" for gpu in gpus)]
            for number, file in enumerate(files):
                (folder / "fd" / str(number)).symlink_to(f"/dev/{file}")
            _write(folder / "environ", _environment(job, rank, place, gpus))
            _write(folder / "cmdline", "python\0train.py\0")
            cgroup = f"/system.slice/slurmstepd.scope/job_{job.name}/step_0/user/task_0"
            _write(folder / "cgroup", f"0::{cgroup}\n")
        return _Ranks(job, folders, ticks, RankProcesses(snapshot, job))

    def _end(self, ranks: _Ranks) -> None:
        for folder in ranks.folders:
            shutil.rmtree(folder, ignore_errors=True)
            for name in ("stat", "status", "wchan"):
                self._written.pop(f"{folder}/{name}", None)

    def _show(self, snapshot: Snapshot, ranks: _Ranks) -> None:
        job, processes = ranks.job, ranks.processes
        processes.go_on(snapshot)
        is_shown = ~snapshot.world.host_is_down[job.rank_host]
        columns = (job.rank_pid, processes.states, processes.cpu_ticks, processes.preemptions)
        rows = list(zip(*(each.tolist() for each in columns), strict=True))
        for rank in np.flatnonzero(is_shown).tolist():
            folder, (pid, state, ticks, preemptions) = ranks.folders[rank], rows[rank]
            self._put(
                f"{folder}/stat",
                f"{pid} ({COMMAND}) {state} 1 {pid} {pid} 0 -1 4194304 1000 0 0 0 {ticks} 0"
                f" 0 0 20 0 {RANK_THREADS} 0 {ranks.start_ticks[rank]}{' 0' * 30}\n",
            )
            self._put(f"{folder}/status", _status(pid, state, preemptions))
            self._put(f"{folder}/wchan", WAIT_CHANNELS[state])
