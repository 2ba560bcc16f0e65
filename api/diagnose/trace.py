"""The report as a trace that ui.perfetto.dev and chrome://tracing open: Chrome's JSON, streamed.

A process for each host and a thread for each rank, with collectives, phases and steps on one
clock; beside them counters of NICs and GPUs. Times are microseconds from the first job's start: as
large as they are since 1970, viewers would round them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.clocks import operation_index
from alerts.columns import Records
from alerts.split import joinable
from api.correlate.steps import job_ranks_of_rows
from api.diagnose.analyse import Analysis, ahead_ns
from api.diagnose.readings import Readings
from api.diagnose.report import Diagnosis, JobReport
from api.store.store import Store
from collector.contract.identity import printable
from collector.contract.records import ABSENT

RECORDS_MAX = 2_000_000
"""Slices of collectives: 500 MB of JSON, more than viewers open. Of more, every nth operation."""
PHASES_MAX = 1_000_000
"""Slices of phases."""
PID_STEP = 100_000
"""Processes of a job are numbered from here times its place: two jobs may share hosts."""
STEP_THREAD = 1
FIRST_RANK_THREAD = 10

PHASES_SQL = f"""
    SELECT job, step, rank, phase, source, host, pid,
           toUnixTimestamp64Nano(start) AS start_ns, toUnixTimestamp64Nano(end) AS end_ns
    FROM steps FINAL ORDER BY start, end DESC LIMIT {PHASES_MAX}
"""  # noqa: S608 - our words

Event = dict[str, Any]


def trace_events(
    store: Store,
    diagnosis: Diagnosis,
    analyses: Sequence[Analysis],
    readings: Sequence[list[Readings]],
) -> Iterator[str]:
    """The file, piece by piece."""
    start_ns = min((job.first_ns for job in diagnosis.jobs), default=0)
    head = {"start_ns": start_ns, "writer": "fabricscope diagnose"}
    yield f'{{"otherData":{encode(head)},"displayTimeUnit":"ms","traceEvents":['
    separator = "\n"
    for place, (job, analysis, panels) in enumerate(
        zip(diagnosis.jobs, analyses, readings, strict=True)
    ):
        writer = JobTrace(job, analysis, place, start_ns)
        for event in writer.events(store, panels):
            yield separator + encode(event)
            separator = ",\n"
    yield "\n]}\n"


def encode(event: Event) -> str:
    """One event as JSON."""
    return msgspec.json.encode(event).decode()


class JobTrace:
    """The events of one job."""

    def __init__(self, job: JobReport, analysis: Analysis, place: int, start_ns: int) -> None:
        self._job = job
        self._analysis = analysis
        self._start_ns = start_ns
        self._job_pid = place * PID_STEP + 1
        hosts = sorted({rank.host or "" for rank in job.ranks})
        self._pids = {host: self._job_pid + 1 + number for number, host in enumerate(hosts)}
        self._host_of = {rank.rank: rank.host or "" for rank in job.ranks}

    def events(self, store: Store, panels: Sequence[Readings]) -> Iterator[Event]:
        """Names first, then slices, then counters."""
        yield from self._names()
        yield from self._steps()
        yield from self._collectives()
        yield from self._phases(store)
        yield from self._counters(panels)

    def _us(self, time_ns: float) -> float:
        return (time_ns - self._start_ns) / 1e3

    def _names(self) -> Iterator[Event]:
        name = printable(self._job.job)
        yield named("process_name", self._job_pid, 0, f"job {name}")
        yield named("thread_name", self._job_pid, STEP_THREAD, "steps")
        for host, pid in self._pids.items():
            yield named("process_name", pid, 0, printable(host) or f"unknown host of {name}")
        for rank, host in self._host_of.items():
            yield named("thread_name", self._pids[host], FIRST_RANK_THREAD + rank, f"rank {rank}")

    def _steps(self) -> Iterator[Event]:
        for step in self._job.steps:
            yield self._slice(
                f"step {step.number}",
                (self._job_pid, STEP_THREAD),
                step.start_ns,
                step.end_ns,
                {
                    "compute_ms": step.compute_ns / 1e6,
                    "wait_ms": step.wait_ns / 1e6,
                    "transfer_ms": step.transfer_ns / 1e6,
                    "last_rank": step.last_rank,
                },
            )

    def _collectives(self) -> Iterator[Event]:
        """Each rank's part in each joined operation."""
        records = self._analysis.records
        rows: Records = records.select(joinable(records))
        if not len(rows):
            return
        index = operation_index(rows)
        operations = self._analysis.operations
        skew, transfer = operations.skew_ns / 1e6, operations.transfer_ns / 1e6
        ranks = job_ranks_of_rows(rows, self._analysis.job.job_ranks)
        every = -(-len(rows) // RECORDS_MAX)
        for row in np.flatnonzero((ranks >= 0) & (index % every == 0)).tolist():
            rank, number = int(ranks[row]), int(index[row])
            size = int(rows.size_bytes[row])
            yield self._slice(
                rows.operations[rows.operation[row]],
                self._thread(rank, rows.hosts[rows.host[row]]),
                int(rows.entry_ns[row]),
                int(rows.exit_ns[row]),
                {
                    "sequence": int(rows.sequence[row]),
                    "communicator": rows.communicators[rows.communicator[row]],
                    "size_bytes": None if size == ABSENT else size,
                    "entry_skew_ms": float(skew[number]),
                    "transfer_ms": float(transfer[number]),
                    "late_ms": (int(rows.entry_ns[row]) - int(operations.first_entry_ns[number]))
                    / 1e6,
                    "last_in": int(operations.last_in[number]) == int(rows.rank[row]),
                },
            )

    def _phases(self, store: Store) -> Iterator[Event]:
        """Steps and phases as marks and profiles tell them, on threads of their own."""
        job = self._analysis.job
        by_process = {(place.host, place.pid): place.rank for place in job.found.places}
        keys = {collection.key for collection in job.collections} | {job.name}
        seen: set[tuple[int, int]] = set()
        for row in store.query(PHASES_SQL).to_pylist():
            rank = by_process.get((row["host"], row["pid"]))
            if rank is None and row["job"] in keys and row["rank"] >= 0:
                rank = row["rank"]
            if rank is None:
                continue
            host = row["host"] or self._host_of.get(rank, "")
            pid, thread = self._thread(rank, host)
            lane = PID_STEP + thread * 10 + LANES.get(row["phase"], LANE_OTHER)
            if (pid, lane) not in seen:
                seen.add((pid, lane))
                what = row["phase"] if row["phase"] in LANES else "phases"
                yield named("thread_name", pid, lane, f"rank {rank} {what or 'steps'}")
            shift = ahead_ns(self._analysis.fits, host, row["start_ns"])
            yield self._slice(
                printable(row["phase"]) or f"step {row['step']}",
                (pid, lane),
                row["start_ns"] - shift,
                row["end_ns"] - shift,
                {"step": row["step"], "source": row["source"]},
            )

    def _counters(self, panels: Sequence[Readings]) -> Iterator[Event]:
        for each in panels:
            for line in each.lines:
                pid = self._pids.get(line.host, self._job_pid)
                name = printable(f"{each.panel.title} {line.name}")
                for time_ns, value in zip(line.time_ns.tolist(), line.value.tolist(), strict=True):
                    if np.isfinite(value):
                        yield {
                            "ph": "C",
                            "name": name,
                            "pid": pid,
                            "ts": self._us(time_ns),
                            "args": {each.panel.unit: value},
                        }

    def _thread(self, rank: int, host: str) -> tuple[int, int]:
        where = self._host_of.get(rank, "") or host
        return self._pids.get(where, self._job_pid), FIRST_RANK_THREAD + rank

    def _slice(
        self, name: str, thread: tuple[int, int], start_ns: int, end_ns: int, about: Event
    ) -> Event:
        """A stretch of time on a thread."""
        return {
            "ph": "X",
            "name": name,
            "pid": thread[0],
            "tid": thread[1],
            "ts": self._us(start_ns),
            "dur": max(0, end_ns - start_ns) / 1e3,
            "args": {key: value for key, value in about.items() if value is not None},
        }


LANES = {"": 0, "gpu.compute": 1, "gpu.communication": 2, "gpu.copy": 3, "gpu.idle": 4}
"""Phases that overlap need lanes of their own: slices of one thread must lie within each other."""
LANE_OTHER = 5


def named(what: str, pid: int, thread: int, name: str) -> Event:
    """The name of a process or thread."""
    return {"ph": "M", "name": what, "pid": pid, "tid": thread, "args": {"name": name}}
