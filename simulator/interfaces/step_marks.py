"""Marks of training loops in files, as `fabricscope_steps.py` writes them: `*.steps.jsonl`.

A batch is a line that identifies the writer, and a line for each mark: the phases of a step, then
the step itself. Times are nanoseconds of the host's own clock.
"""

from __future__ import annotations

import json

import numpy as np

from simulator.interfaces.inspector import FolderOf, append
from simulator.interfaces.kernel import local_ranks, start_ticks
from simulator.snapshot import Counts, JobStatus, Snapshot, StepBlock
from simulator.topology.model import Bools, Floats, Topology

VERSION = 1


class StepMarks:
    """The files of all ranks; `write` appends a batch for each that ended a step."""

    def __init__(self, topology: Topology, folder_of: FolderOf) -> None:
        self._topology = topology
        self._folder_of = folder_of
        self._heads: dict[str, tuple[bytes, list[tuple[str, str]]]] = {}

    def write(self, snapshot: Snapshot) -> None:
        jobs = {job.name: job for job in snapshot.jobs}
        for name in dict.fromkeys(block.job for block in snapshot.steps):
            if name in jobs:
                blocks = [block for block in snapshot.steps if block.job == name]
                self._write_job(snapshot, jobs[name], blocks)

    def _write_job(self, snapshot: Snapshot, job: JobStatus, blocks: list[StepBlock]) -> None:
        marks: list[list[str]] = [[] for _ in range(job.ranks)]
        for block in blocks:
            spans = {**block.phases, "": (block.start_s, block.end_s)}
            for phase, (start_s, end_s) in spans.items():
                is_known = np.isfinite(start_s) & np.isfinite(end_s)
                head = f"[{json.dumps(phase)}, {block.step}, "
                start_ns, duration_ns = self._span(snapshot, job, start_s, end_s, is_known)
                ranks = np.flatnonzero(is_known).tolist()
                for rank, start, duration in zip(ranks, start_ns, duration_ns, strict=True):
                    marks[rank].append(f"{head}{start}, {duration}]\n")
        for (path, head), lines in zip(self._heads_of(snapshot, job), marks, strict=True):
            if lines:
                append(path, head + "".join(lines))

    @staticmethod
    def _span(
        snapshot: Snapshot, job: JobStatus, start_s: Floats, end_s: Floats, is_known: Bools
    ) -> tuple[list[int], list[int]]:
        hosts = job.rank_host[is_known]
        start_ns: Counts = snapshot.host_unix_ns(hosts, start_s[is_known])
        end_ns: Counts = snapshot.host_unix_ns(hosts, end_s[is_known])
        return start_ns.tolist(), np.maximum(end_ns - start_ns, 0).tolist()

    def _heads_of(self, snapshot: Snapshot, job: JobStatus) -> list[tuple[str, str]]:
        processes = job.rank_pid.tobytes()
        known = self._heads.get(job.name)
        if known is None or known[0] != processes:
            known = self._heads[job.name] = processes, self._make_heads(snapshot, job)
        return known[1]

    def _make_heads(self, snapshot: Snapshot, job: JobStatus) -> list[tuple[str, str]]:
        ticks, local = start_ticks(snapshot, job).tolist(), local_ranks(job).tolist()
        made = []
        places = zip(job.rank_host.tolist(), job.rank_pid.tolist(), strict=True)
        for rank, (host, pid) in enumerate(places):
            name = self._topology.host_name(host)
            identity = {
                "fabricscope_steps": VERSION,
                "pid": pid,
                "start_ticks": ticks[rank],
                "host": name,
                "job": job.name,
                "run": "none",
                "rank": rank,
                "local_rank": local[rank],
                "world_size": job.ranks,
                "dropped": 0,
            }
            path = self._folder_of(job.name, host) / f"{name}-{pid}.steps.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            made.append((str(path), json.dumps(identity) + "\n"))
        return made
