"""Logs of NCCL Inspector (JSON lines of format v4.0, verbose), one file for each rank's process.

As in the plugin, a line is written when the operation has ended on its rank, with microseconds of
the *host's* clock. So hung operations are missing, and clock errors show.

Simpler than in production: nothing is lost in the plugin's ring buffers; an operation is enqueued
at the moment when its kernel starts; and the exit of a *tree* all-reduce is the true one, whereas
real logs have it hundreds of milliseconds early on most ranks, because the plugin there misses the
kernel's last stretch. A detector that relies on exits of trees does better here than in production.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from collector.contract.collective import Operation, bus_bytes
from simulator.snapshot import CollectiveBlock, Counts, JobStatus, Snapshot
from simulator.topology.model import Bools, Topology

FolderOf = Callable[[str, int], Path]
"""The folder of a job's files of a host."""

VERSION = "v4.0"
NAMES = {
    Operation.ALL_REDUCE: "AllReduce",
    Operation.ALL_GATHER: "AllGather",
    Operation.REDUCE_SCATTER: "ReduceScatter",
    Operation.ALL_TO_ALL: "All2All",
    Operation.BROADCAST: "Broadcast",
    Operation.REDUCE: "Reduce",
    Operation.GATHER: "Gather",
    Operation.SCATTER: "Scatter",
}
"""The plugin's names of collectives; it calls all others Invalid."""
PAIRS = {
    Operation.SEND: ("Send", "Recv"),
    Operation.RECV: ("Recv", "Send"),
    Operation.SEND_RECV: ("SendRecv", "SendRecv"),
}
"""Its names of the two ends of an exchange between two ranks."""
PARTS = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER})
"""Operations whose size is one rank's part of the whole."""
CHANNEL_MICROSECONDS = 3
"""Between the starts, and between the ends, of a kernel's two channels: 3 to 15 in real logs."""
_US = 1000


class InspectorLogs:
    """The logs of all ranks; `write` appends what ended since the last tick."""

    def __init__(self, topology: Topology, folder_of: FolderOf) -> None:
        self._topology = topology
        self._folder_of = folder_of
        self._templates: dict[tuple[object, ...], list[tuple[str, str]]] = {}

    def write(self, snapshot: Snapshot) -> None:
        """Append the lines of all collectives that have ended, file by file."""
        jobs = {job.name: job for job in snapshot.jobs}
        texts: dict[str, list[str]] = {}
        for block in snapshot.collectives:
            if block.job in jobs:
                self._take(snapshot, block, jobs[block.job], texts)
        for path, lines in texts.items():
            append(path, "".join(lines))

    def _take(
        self,
        snapshot: Snapshot,
        block: CollectiveBlock,
        job: JobStatus,
        texts: dict[str, list[str]],
    ) -> None:
        is_done = np.isfinite(block.entry_s) & np.isfinite(block.exit_s)
        numbers = self._numbers(snapshot, block, job, is_done)
        templates = self._templates_of(block, job)
        if not is_done.all():
            chosen = np.flatnonzero(is_done.ravel()).tolist()
            templates = [templates[place] for place in chosen]
        for (path, template), row in zip(templates, numbers, strict=True):
            texts.setdefault(path, []).append(template % row)

    @staticmethod
    def _numbers(
        snapshot: Snapshot, block: CollectiveBlock, job: JobStatus, is_done: Bools
    ) -> list[tuple[float, ...]]:
        """Values for the template of each rank that is done, in the template's order."""
        host = job.rank_host[block.members][is_done]
        dump_us: Counts = snapshot.host_unix_ns(host, snapshot.time_s) // _US
        entry_us: Counts = snapshot.host_unix_ns(host, block.entry_s[is_done]) // _US
        exit_us: Counts = snapshot.host_unix_ns(host, block.exit_s[is_done]) // _US
        duration_us = exit_us - entry_us
        ranks = block.members.shape[1]
        whole = block.size_bytes * (ranks if block.operation in PARTS else 1)
        # The plugin has no rule for all-to-all, and writes 0.
        is_known = block.operation is not Operation.ALL_TO_ALL
        per_us = np.where(duration_us > 0, 1e-3 / np.maximum(duration_us, 1), 0.0) * is_known
        second_us = np.minimum(entry_us + CHANNEL_MICROSECONDS, exit_us)
        first_us = np.maximum(exit_us - CHANNEL_MICROSECONDS, entry_us)
        columns = (
            dump_us,
            np.full(len(host), block.sequence),
            duration_us,
            whole * per_us,
            bus_bytes(block.operation, block.size_bytes, ranks) * per_us,
            *(entry_us, entry_us),
            *(entry_us, first_us, first_us),
            *(second_us, exit_us, exit_us),
        )
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _templates_of(self, block: CollectiveBlock, job: JobStatus) -> list[tuple[str, str]]:
        """The file and the line of each member of each unit, with holes for numbers."""
        processes = job.rank_pid.tobytes()
        key = (block.job, processes, block.operation, block.size_bytes, block.communicators)
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = self._make_templates(block, job)
        return found

    def _make_templates(self, block: CollectiveBlock, job: JobStatus) -> list[tuple[str, str]]:
        made = []
        for unit, communicator in enumerate(block.communicators):
            members = block.members[unit]
            nodes = len(np.unique(job.rank_host[members]))
            for place, member in enumerate(members.tolist()):
                host, pid = int(job.rank_host[member]), int(job.rank_pid[member])
                name = self._topology.host_name(host)
                header: dict[str, str | int] = {
                    "id": communicator,
                    "comm_name": "unknown",
                    "rank": place,
                    "n_ranks": len(members),
                    "nnodes": nodes,
                }
                line = make_template(header, name, pid, block.operation, block.size_bytes)
                path = self._folder_of(job.name, host) / f"{name}-pid{pid}.log"
                path.parent.mkdir(parents=True, exist_ok=True)
                made.append((str(path), line))
        return made


def make_template(
    header: dict[str, str | int], host: str, pid: int, operation: Operation, size_bytes: int
) -> str:
    """A line of the log with thirteen holes: see `InspectorLogs._numbers`."""
    metadata = {
        "inspector_output_format_version": VERSION,
        "git_rev": "unknown",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": "<d>",
        "hostname": host,
        "pid": pid,
    }
    kind = "p2p" if operation in PAIRS else "coll"
    place = int(header["rank"])
    name = PAIRS[operation][place % 2] if operation in PAIRS else NAMES.get(operation, "Invalid")
    performance: dict[str, object] = {kind: name, f"{kind}_sn": "<d>"}
    if operation in PAIRS:
        performance["p2p_peer"] = place ^ 1
    performance |= {
        f"{kind}_msg_size_bytes": size_bytes,
        f"{kind}_exec_time_us": "<d>",
        f"{kind}_timing_source": "kernel_gpu",
        f"{kind}_algobw_gbs": "<f>",
        f"{kind}_busbw_gbs": "<f>",
        "event_trace_sn": _trace(kind, "sn", ((1, 2), (3, 6, 5), (4, 8, 7))),
        "event_trace_ts": _trace(kind, "ts", (("<d>",) * 2, ("<d>",) * 3, ("<d>",) * 3)),
    }
    line = {"header": header, "metadata": metadata, f"{kind}_perf": performance}
    text = json.dumps(line, separators=(",", ":")).replace("%", "%%")
    return text.replace('"<d>"', "%d").replace('"<f>"', "%f") + "\n"


def _trace(kind: str, what: str, values: tuple[tuple[object, ...], ...]) -> dict[str, object]:
    """Start and stop of the operation, then start, stop and record of each channel's kernel."""
    (start, stop), *channels = values
    events = ("start", "stop", "record")
    return {
        f"{kind}_start_{what}": start,
        f"{kind}_stop_{what}": stop,
        "kernel_events": [
            {"channel_id": number}
            | {f"kernel_{event}_{what}": each for event, each in zip(events, channel, strict=True)}
            for number, channel in enumerate(channels)
        ],
    }


def append(path: str, text: str) -> None:
    """Append whole lines to a file with one write: a reader never sees half a batch."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, text.encode())
    os.close(handle)
