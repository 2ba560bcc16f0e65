"""The agent's sources `nvml` and `host`: ranks' processes, and so `fabric_job_info`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.contract.model import Event
from simulator.interfaces.kernel import (
    COMMAND,
    RANK_THREADS,
    TICKS_PER_SECOND,
    WAIT_CHANNELS,
    RankProcesses,
    local_ranks,
)
from simulator.interfaces.machine_tree import USER
from simulator.readings.machines import GpuSection, gpu_labels
from simulator.readings.ranks import Ranks
from simulator.readings.records import Places
from simulator.readings.series import ABSENT, Row, Rows, make_row
from simulator.snapshot import Counts, JobStatus, Snapshot
from simulator.topology.model import Bools, Floats, Topology

STATES = {"running": "R", "sleeping": "S", "uninterruptible": "D", "stopped": "T", "zombie": "Z"}
"""The agent's words for the kernel's state letters."""
UNINTERRUPTIBLE_SECONDS = 10.0
"""How long a process must stay in the kernel before the agent sends an event."""

_PREFIX = "fabric_host_gpu_process"


@dataclass(eq=False)
class Processes:
    """The processes of one job, and the agents' state of each."""

    job: JobStatus
    edition: int
    order: Places
    """Ranks, sorted by host."""
    first: Places
    """Where each host's ranks begin in ``order``; one more than hosts."""
    gpu: list[int]
    """Of each rank, on its host, by its launcher's convention."""
    local_rank: list[int]
    kernel: RankProcesses
    since_s: Floats
    """Since when it is in uninterruptible sleep, NaN if it is not."""
    since_ticks: Counts
    """Its processor time then."""
    is_reported: Bools
    numbers: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """[ranks, rows of a rank], in the order of ``order``."""

    def ranks_of(self, host: int) -> list[int]:
        ranks: list[int] = self.order[self.first[host] : self.first[host + 1]].tolist()
        return ranks

    def labels(self, rank: int) -> dict[str, str]:
        return {
            "pid": str(self.job.rank_pid[rank]),
            "gpu": str(self.gpu[rank]),
            "rank": str(rank),
            "job": self.job.name,
        }


def meet(snapshot: Snapshot, job: JobStatus, edition: int) -> Processes:
    topology = snapshot.topology
    order = np.argsort(job.rank_host, kind="stable").astype(np.intp)
    first = np.searchsorted(job.rank_host[order], np.arange(topology.hosts + 1)).astype(np.intp)
    local = local_ranks(job).tolist()
    indexes = job.rank_gpu % topology.gpus_per_host
    # Local rank n uses the n-th GPU that its launcher gave to the job on this host.
    gpus = [
        sorted(indexes[order[first[host] : first[host + 1]]].tolist())
        for host in range(topology.hosts)
    ]
    hosts = job.rank_host.tolist()
    gpu = [gpus[hosts[rank]][local[rank]] for rank in range(job.ranks)]
    return Processes(
        job=job,
        edition=edition,
        order=order,
        first=first,
        gpu=gpu,
        local_rank=local,
        kernel=RankProcesses(snapshot, job),
        since_s=np.full(job.ranks, np.nan),
        since_ticks=np.zeros(job.ranks, dtype=np.int64),
        is_reported=np.zeros(job.ranks, dtype=np.bool_),
    )


class ProcessSection:
    """Both sources, on every host."""

    def __init__(self, topology: Topology, ranks: Ranks, gpus: GpuSection) -> None:
        self._topology = topology
        self._ranks = ranks
        self._gpus = gpus
        self._jobs: dict[str, Processes] = {}
        self._rows: list[Rows] = [()] * topology.hosts
        self._layouts: list[tuple[tuple[str, int], ...]] = [()] * topology.hosts
        self._events: dict[int, list[Event]] = {}

    # Section -------------------------------------------------------------------------------------

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._events = {}
        before, self._jobs = self._jobs, {}
        for name, job in self._ranks.jobs.items():
            known, edition = before.get(name), self._ranks.edition(name)
            if known is None or known.edition != edition:
                known = meet(snapshot, job, edition)
            known.job = job
            self._jobs[name] = known
            self._look(snapshot, known)
            self._report_stills(snapshot, known, is_read)
        for name, gone in before.items():
            if self._jobs.get(name) is not gone:
                self._report_gone(snapshot, gone, is_read)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002
        """A restarted agent has sent no event yet."""
        for known in self._jobs.values():
            ours = np.isin(known.job.rank_host, list(started))
            known.since_s[ours], known.is_reported[ours] = np.nan, False

    def rows(self, host: int) -> Rows:
        here = [known for known in self._jobs.values() if known.first[host] < known.first[host + 1]]
        layout = tuple((known.job.name, known.edition) for known in here)
        if layout != self._layouts[host]:
            self._layouts[host] = layout
            self._rows[host] = tuple(
                row
                for known in here
                for rank in known.ranks_of(host)
                for row in self._rows_of_rank(known, rank)
            )
        return self._rows[host]

    def values(self, host: int) -> Floats:
        parts = [
            known.numbers[known.first[host] : known.first[host + 1]].ravel()
            for known in self._jobs.values()
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def events(self, host: int) -> list[Event]:
        """Processes that hang in the kernel, or have ended."""
        return self._events.get(host, [])

    # Numbers -------------------------------------------------------------------------------------

    def _look(self, snapshot: Snapshot, known: Processes) -> None:
        job, kernel = known.job, known.kernel
        kernel.go_on(snapshot)
        every = np.ones(job.ranks)
        is_lost = self._gpus.is_lost[job.rank_gpu]
        columns = [
            np.where(is_lost, ABSENT, 1.0),
            np.where(is_lost, ABSENT, snapshot.gpus.memory_used_bytes[job.rank_gpu]),
            *(kernel.states == letter for letter in STATES.values()),
            kernel.cpu_ticks / TICKS_PER_SECOND,
            kernel.preemptions,
            0 * every,
            RANK_THREADS * every,
            every,
        ]
        known.numbers = np.column_stack(columns).astype(np.float64)[known.order]

    def _rows_of_rank(self, known: Processes, rank: int) -> list[Row]:
        labels, pid = known.labels(rank), str(known.job.rank_pid[rank])
        of_gpu = gpu_labels(self._topology, int(known.job.rank_gpu[rank])) | {"pid": pid}
        more = {"local_rank": str(known.local_rank[rank]), "user": USER, "scheduler": "slurm"}
        return [
            make_row("fabric_gpu_process_info", of_gpu),
            make_row("fabric_gpu_process_memory_used_bytes", of_gpu),
            *(make_row(f"{_PREFIX}_state", labels | {"state": state}) for state in STATES),
            make_row(f"{_PREFIX}_cpu_seconds_total", labels),
            make_row(f"{_PREFIX}_preemptions_total", labels),
            make_row(f"{_PREFIX}_major_faults_total", labels),
            make_row(f"{_PREFIX}_threads", labels),
            make_row("fabric_job_info", labels | more),
        ]

    # Events --------------------------------------------------------------------------------------

    def _report_stills(self, snapshot: Snapshot, known: Processes, is_read: Bools) -> None:
        """An event for each process that has been in uninterruptible sleep for long."""
        is_still = known.kernel.states == "D"
        ticks = known.kernel.cpu_ticks
        has_moved = np.isnan(known.since_s) | (ticks != known.since_ticks)
        since_s = np.where(has_moved, snapshot.time_s, known.since_s)
        known.since_s = np.where(is_still, since_s, np.nan)
        known.since_ticks = ticks
        known.is_reported &= is_still
        seconds = snapshot.time_s - known.since_s
        is_news = (seconds >= UNINTERRUPTIBLE_SECONDS) & ~known.is_reported
        is_news &= is_read[known.job.rank_host]
        known.is_reported |= is_news
        channel = WAIT_CHANNELS["D"]
        for rank in np.flatnonzero(is_news).tolist():
            attributes = {"state": "D", "seconds": f"{seconds[rank]:.0f}", "wait_channel": channel}
            what = f"it is uninterruptible in {channel}"
            self._report(snapshot, known, rank, "gpu_process_uninterruptible", what, attributes)

    def _report_gone(self, snapshot: Snapshot, gone: Processes, is_read: Bools) -> None:
        for rank in np.flatnonzero(is_read[gone.job.rank_host]).tolist():
            self._report(snapshot, gone, rank, "gpu_process_gone", "it is not there any more", {})

    def _report(
        self,
        snapshot: Snapshot,
        known: Processes,
        rank: int,
        kind: str,
        what: str,
        attributes: dict[str, str],
    ) -> None:
        host = int(known.job.rank_host[rank])
        event = Event(
            kind=kind,
            time_ns=int(snapshot.host_unix_ns(host, snapshot.time_s)),
            labels=known.labels(rank),
            message=f"rank {rank}, process {known.job.rank_pid[rank]} ({COMMAND}): {what}",
            attributes={"command": COMMAND, "user": USER, **attributes},
        )
        self._events.setdefault(host, []).append(event)
