"""The agent's `steps` source: the marks of training loops, and counters of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collector.contract.collective import StepSpan
from collector.contract.model import Event
from simulator.readings.ranks import Ranks
from simulator.readings.records import Places
from simulator.readings.series import ABSENT, Rows, make_row
from simulator.readings.unread import Unread
from simulator.snapshot import Counts, JobStatus, Snapshot, StepBlock
from simulator.topology.model import Bools, Floats, Topology

SOURCE = "steps"
NS_PER_US, US_PER_SECOND, NS_PER_SECOND = 1000, 1e6, 1_000_000_000
_COUNTED = (
    "fabric_step_marks_total",
    "fabric_step_steps_total",
    "fabric_step_last_duration_seconds",
    "fabric_step_last_completed_time_seconds",
)
_PHASE = "fabric_step_phase_seconds_total"
_DROPPED = "fabric_step_marks_dropped_total"
_REFUSALS = ("limit", "unparseable")
"""Reasons why the agent drops marks: reported as soon as there is a loop."""


@dataclass(eq=False)
class Loops:
    """Counters of the ranks of one job, a number for each rank."""

    edition: int
    marks: Counts
    steps: Counts
    last_start_ns: Counts
    last_duration_ns: Counts
    phase_ns: dict[str, Counts] = field(default_factory=dict)

    @classmethod
    def begin(cls, ranks: int, edition: int) -> Loops:
        marks, steps, start, duration = (np.zeros(ranks, dtype=np.int64) for _ in range(4))
        return cls(edition, marks, steps, start, duration)

    def count(self, phase: str, ranks: Places, start_ns: Counts, end_ns: Counts) -> None:
        self.marks[ranks] += 1
        if phase:
            sums = self.phase_ns.setdefault(phase, np.zeros_like(self.marks))
            sums[ranks] += end_ns - start_ns
            return
        self.steps[ranks] += 1
        self.last_start_ns[ranks] = start_ns
        self.last_duration_ns[ranks] = end_ns - start_ns

    def numbers(self) -> Floats:
        """[ranks, rows of a rank]."""
        completed = (self.last_start_ns + self.last_duration_ns) // NS_PER_US / US_PER_SECOND
        has_step = self.steps > 0
        columns = [
            self.marks,
            self.steps,
            np.where(has_step, self.last_duration_ns / NS_PER_SECOND, ABSENT),
            np.where(has_step, completed, ABSENT),
            np.zeros(len(self.marks)),
            *(sums / NS_PER_SECOND for sums in self.phase_ns.values()),
        ]
        return np.column_stack(columns).astype(np.float64)

    def forget(self, ranks: Bools) -> None:
        """Restart these at zero."""
        columns = (self.marks, self.steps, self.last_start_ns, self.last_duration_ns)
        for column in (*columns, *self.phase_ns.values()):
            column[ranks] = 0


@dataclass(frozen=True, eq=False)
class Marks:
    """A stretch of one step as ranks marked it; columns have a value for each mark."""

    job: JobStatus
    edition: int
    """Of the job's processes: those of another edition are counted separately."""
    step: int
    phase: str
    """Empty for the whole step."""
    rank: Places
    host: Places
    start_ns: Counts
    end_ns: Counts

    def select(self, which: Bools) -> Marks:
        return replace(
            self,
            rank=self.rank[which],
            host=self.host[which],
            start_ns=self.start_ns[which],
            end_ns=self.end_ns[which],
        )


class StepSection:
    """The source on every host."""

    def __init__(self, topology: Topology, ranks: Ranks) -> None:
        self._topology = topology
        self._ranks = ranks
        self._loops: dict[str, Loops] = {}
        self._unread: Unread[Marks] = Unread()
        self._spans: list[list[StepSpan]] = [[] for _ in range(topology.hosts)]
        self._rows: list[Rows] = [()] * topology.hosts
        self._layouts: list[tuple[object, ...]] = [()] * topology.hosts
        self._values: list[Floats] = [np.zeros(0)] * topology.hosts

    # Section -------------------------------------------------------------------------------------

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._spans = [[] for _ in range(self._topology.hosts)]
        jobs = self._ranks.jobs
        self._loops = {name: loops for name, loops in self._loops.items() if name in jobs}
        fresh = (
            marks
            for block in snapshot.steps
            if block.job in jobs
            for marks in self._write(snapshot, block, jobs[block.job])
        )
        for marks in self._unread.read(fresh, snapshot.time_s, is_read):
            self._take(marks)
        self._lay_out()

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002 - as every section
        """Counters restart at zero, as after every restart of an agent."""
        for name, loops in self._loops.items():
            if name in self._ranks.jobs:
                loops.forget(np.isin(self._ranks.jobs[name].rank_host, list(started)))

    def rows(self, host: int) -> Rows:
        """The counters of each loop; then the refused marks."""
        return self._rows[host]

    def values(self, host: int) -> Floats:
        return self._values[host]

    def events(self, host: int) -> list[Event]:  # noqa: ARG002 - a section's signature
        """None: marks are spans, not events."""
        return []

    def spans(self, host: int) -> list[StepSpan]:
        return self._spans[host]

    # One block -----------------------------------------------------------------------------------

    def _write(self, snapshot: Snapshot, block: StepBlock, job: JobStatus) -> Iterator[Marks]:
        """The marks of the ranks in a step, by their clocks: phases, then the whole."""
        edition = self._ranks.edition(job.name)
        for phase, (start_s, end_s) in (*block.phases.items(), ("", (block.start_s, block.end_s))):
            rank = np.flatnonzero(np.isfinite(start_s) & np.isfinite(end_s))
            host = job.rank_host[rank]
            yield Marks(
                job=job,
                edition=edition,
                step=block.step,
                phase=phase,
                rank=rank,
                host=host.astype(np.intp),
                start_ns=snapshot.host_unix_ns(host, start_s[rank]),
                end_ns=snapshot.host_unix_ns(host, end_s[rank]),
            )

    def _take(self, marks: Marks) -> None:
        job = marks.job
        if job.name in self._ranks.jobs and marks.edition == self._ranks.edition(job.name):
            loops = self._loops.get(job.name)
            if loops is None or loops.edition != marks.edition:
                loops = self._loops[job.name] = Loops.begin(job.ranks, marks.edition)
            loops.count(marks.phase, marks.rank, marks.start_ns, marks.end_ns)
        columns = (marks.rank, marks.host, job.rank_pid[marks.rank], marks.start_ns, marks.end_ns)
        for rank, host, pid, start, end in zip(*(each.tolist() for each in columns), strict=True):
            self._spans[host].append(
                StepSpan(
                    step=marks.step,
                    start_ns=start,
                    end_ns=end,
                    source=SOURCE,
                    phase=marks.phase,
                    rank=rank,
                    pid=pid,
                    job=job.name,
                )
            )

    # Rows ----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Assign the numbers of every loop to its host; rows change where loops changed."""
        hosts = range(self._topology.hosts)
        layouts: list[list[object]] = [[] for _ in hosts]
        loops_of: list[list[tuple[str, list[int], list[str]]]] = [[] for _ in hosts]
        values: list[list[Floats]] = [[] for _ in hosts]
        for name, loops in self._loops.items():
            rank_host = self._ranks.jobs[name].rank_host
            numbers, phases = loops.numbers(), list(loops.phase_ns)
            for host in np.unique(rank_host[loops.marks > 0]).tolist():
                ranks = np.flatnonzero((rank_host == host) & (loops.marks > 0))
                layouts[host] += [name, ranks.tobytes(), *phases]
                loops_of[host].append((name, ranks.tolist(), phases))
                values[host].append(numbers[ranks].ravel())
        refused = np.zeros(len(_REFUSALS))
        for host in hosts:
            if tuple(layouts[host]) != self._layouts[host]:
                self._layouts[host] = tuple(layouts[host])
                self._rows[host] = make_rows(loops_of[host])
            self._values[host] = np.concatenate([*values[host], refused[: len(self._rows[host])]])


def make_rows(loops: Sequence[tuple[str, list[int], list[str]]]) -> Rows:
    """The rows of some jobs' ranks, in the order of `Loops.numbers`."""
    rows = []
    for job, ranks, phases in loops:
        for rank in ranks:
            labels = {"job": job, "rank": str(rank)}
            rows += [make_row(metric, labels) for metric in _COUNTED]
            rows.append(make_row(_DROPPED, {**labels, "reason": "queue"}))
            rows += [make_row(_PHASE, {**labels, "phase": phase}) for phase in phases]
    if rows:
        rows += [make_row(_DROPPED, {"reason": reason}) for reason in _REFUSALS]
    return tuple(rows)
