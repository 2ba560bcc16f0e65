"""Dumps of PyTorch's Flight Recorder: what each rank of a stuck job has launched and finished.

Every rank writes one, `nccl_trace_rank_<rank>`: a pickle of plain containers in PyTorch's format
2.10. So does a rank whose training loop is deadlocked, because the watchdog is a thread of its own
that needs no Python; but it never launched the collective in which the others wait, and has no
entry for it. A host that is down writes nothing.

Times that a watchdog discovers are late, up to its period; sequence numbers count all collectives
of a group, whatever their operation.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.contract.collective import Operation, State
from simulator.interfaces.inspector import FolderOf
from simulator.snapshot import CollectiveBlock, HangDump, JobStatus, Snapshot
from simulator.topology.model import Topology

VERSION = "2.10"
LIBRARY_VERSION = "2.28.9"
PROTOCOL = 2
"""Of pickle, as PyTorch writes it."""
WATCHDOG_SECONDS = 0.1
"""How often the watchdog checks whether operations have started or ended."""
TIMEOUT_SECONDS = 600
"""PyTorch's default, for a dump in which nothing hangs."""
ELEMENT_BYTES = 2
NAMES = {
    Operation.ALL_REDUCE: "nccl:all_reduce",
    Operation.ALL_GATHER: "nccl:_all_gather_base",
    Operation.REDUCE_SCATTER: "nccl:_reduce_scatter_base",
    Operation.ALL_TO_ALL: "nccl:all_to_all",
    Operation.BROADCAST: "nccl:broadcast",
    Operation.REDUCE: "nccl:reduce",
    Operation.GATHER: "nccl:gather",
    Operation.SCATTER: "nccl:scatter",
    Operation.BARRIER: "nccl:barrier",
}
PAIRS = frozenset({Operation.SEND, Operation.RECV, Operation.SEND_RECV})
GROUP_DESCRIPTION = "default_pg"
"""PyTorch's for the group of all ranks, whose name is `0`."""


@dataclass(frozen=True, eq=False)
class _Group:
    """A process group: one communicator of the job."""

    name: str
    description: str
    ranks: list[int]
    """The job's, ascending: the place of one is its rank in the group."""


@dataclass(frozen=True, eq=False)
class _Launch:
    """One collective of one communicator, as the members saw it."""

    block: CollectiveBlock
    unit: int
    group: _Group
    sequence: int


class FlightRecorderDumps:
    """The dumps of all jobs; `write` makes a file for each rank after a watchdog fired."""

    def __init__(self, topology: Topology, folder_of: FolderOf) -> None:
        self._topology = topology
        self._folder_of = folder_of

    def write(self, snapshot: Snapshot) -> None:
        jobs = {job.name: job for job in snapshot.jobs}
        for dump in snapshot.dumps:
            if dump.job not in jobs:
                continue
            job = jobs[dump.job]
            for rank, content in make_dumps(snapshot, job, dump).items():
                host = int(job.rank_host[rank])
                if not snapshot.world.host_is_down[host]:
                    self._write_one(job, host, rank, content)

    def _write_one(self, job: JobStatus, host: int, rank: int, content: dict[str, Any]) -> None:
        folder = self._folder_of(job.name, host)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(content, protocol=PROTOCOL))


def make_dumps(snapshot: Snapshot, job: JobStatus, dump: HangDump) -> dict[int, dict[str, Any]]:
    groups = _find_groups(job, dump)
    launches = _number(dump, groups)
    timeout_ms = _timeout_ms(dump)
    entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(job.ranks)}
    for launch in launches:
        for place, rank in enumerate(launch.block.members[launch.unit].tolist()):
            if math.isfinite(launch.block.entry_s[launch.unit, place]):
                entry = _make_entry(snapshot, job, launch, place)
                entry |= {"record_id": len(entries[rank]), "timeout_ms": timeout_ms}
                entries[rank].append(entry)
    own: dict[int, list[_Group]] = {rank: [] for rank in range(job.ranks)}
    for group in groups.values():
        for rank in group.ranks:
            own[rank].append(group)
    return {rank: _make_dump(own[rank], of_rank) for rank, of_rank in entries.items()}


def _find_groups(job: JobStatus, dump: HangDump) -> dict[str, _Group]:
    """By communicator, its process group. Every rank makes all groups, so all number them alike."""
    known = {key: (kind, ranks.tolist()) for key, (kind, ranks) in job.communicators.items()}
    for block in dump.blocks:
        for unit, communicator in enumerate(block.communicators):
            known.setdefault(communicator, ("undefined", block.members[unit].tolist()))
    groups = {"": _Group("0", GROUP_DESCRIPTION, list(range(job.ranks)))}
    for number, (communicator, (kind, ranks)) in enumerate(known.items(), start=1):
        groups[communicator] = _Group(str(number), kind, sorted(ranks))
    return groups


def _number(dump: HangDump, groups: dict[str, _Group]) -> list[_Launch]:
    """Each collective with its number in its group, though blocks count per operation."""
    before: Counter[str] = Counter()
    seen: set[tuple[str, Operation]] = set()
    for block in dump.blocks:
        for communicator in block.communicators:
            if (communicator, block.operation) not in seen:
                seen.add((communicator, block.operation))
                before[communicator] += block.sequence
    launches = []
    for block in dump.blocks:
        for unit, communicator in enumerate(block.communicators):
            before[communicator] += 1
            launches.append(_Launch(block, unit, groups[communicator], before[communicator]))
    return launches


def _timeout_ms(dump: HangDump) -> int:
    """The watchdog's timeout: the age of the oldest pending collective at the dump."""
    waits = [
        dump.time_s - float(np.nanmin(block.entry_s[np.isnan(block.exit_s)]))
        for block in dump.blocks
        if np.isfinite(block.entry_s[np.isnan(block.exit_s)]).any()
    ]
    return 1000 * max(1, round(max(waits))) if waits else 1000 * TIMEOUT_SECONDS


def _make_entry(snapshot: Snapshot, job: JobStatus, launch: _Launch, place: int) -> dict[str, Any]:
    block, unit = launch.block, launch.unit
    rank = int(block.members[unit, place])
    host = int(job.rank_host[rank])
    entry_s, exit_s = float(block.entry_s[unit, place]), float(block.exit_s[unit, place])
    state = State.COMPLETED
    if not math.isfinite(exit_s):
        state = State.SCHEDULED if block.state is State.SCHEDULED else State.STARTED

    def discovered(time_s: float) -> int | None:
        if not math.isfinite(time_s):
            return None
        look_s = math.ceil(time_s / WATCHDOG_SECONDS) * WATCHDOG_SECONDS
        return int(snapshot.host_unix_ns(host, look_s))

    is_pair = block.operation in PAIRS
    sequence = launch.sequence
    entry: dict[str, Any] = {
        "pg_id": int(launch.group.name),
        "process_group": (launch.group.name, launch.group.description),
        "thread_name": "pt_main_thread",
        "thread_id": str(140_000_000_000_000 + int(job.rank_pid[rank])),
        "collective_seq_id": 0 if is_pair else sequence,
        "p2p_seq_id": sequence if is_pair else 0,
        "op_id": sequence,
        "profiling_name": _name(launch, place),
        "time_created_ns": int(snapshot.host_unix_ns(host, entry_s)),
        **_shapes(block.operation, block.size_bytes, block.members.shape[1]),
        "state": str(state),
        "time_discovered_started_ns": None if state is State.SCHEDULED else discovered(entry_s),
        "time_discovered_completed_ns": discovered(exit_s),
        "retired": state is State.COMPLETED,
        "is_p2p": is_pair,
    }
    if state is State.COMPLETED:
        entry["duration_ms"] = (exit_s - entry_s) * 1e3
    return entry


def _name(launch: _Launch, place: int) -> str:
    """What the profiler calls it; of an exchange, with the ranks in the group."""
    block, ranks = launch.block, launch.group.ranks
    if block.operation not in PAIRS:
        return NAMES.get(block.operation, "nccl:coalesced")
    own, peer = (ranks.index(int(block.members[launch.unit, end])) for end in (place, place ^ 1))
    is_sender = (place == 0) is not (block.operation is Operation.RECV)
    return f"nccl:send {own}->{peer}" if is_sender else f"nccl:recv {own}<-{peer}"


def _shapes(operation: Operation, size_bytes: int, ranks: int) -> dict[str, Any]:
    """Sizes of the tensors; one rank's part of the whole is on one side only."""
    is_even = size_bytes % ELEMENT_BYTES == 0
    part = size_bytes // ELEMENT_BYTES if is_even else size_bytes
    whole = part * ranks
    given = whole if operation is Operation.REDUCE_SCATTER else part
    got = whole if operation is Operation.ALL_GATHER else part
    kind = "BFloat16" if is_even else "Byte"
    return {
        "input_sizes": [[given]],
        "input_dtypes": [kind],
        "output_sizes": [[got]],
        "output_dtypes": [kind],
    }


def _make_dump(groups: list[_Group], entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "pg_config": {
            group.name: {"name": group.name, "desc": group.description, "ranks": str(group.ranks)}
            for group in groups
        },
        "pg_status": {group.name: _status(group, entries) for group in groups},
        "comm_lib_version": LIBRARY_VERSION,
        "entries": entries,
    }


def _status(group: _Group, entries: list[dict[str, Any]]) -> dict[str, int]:
    """The highest sequence numbers of a group by how far they came; -1 for none."""
    own = [entry for entry in entries if entry["process_group"][0] == group.name]

    def last(*states: State) -> int:
        numbers = (entry["collective_seq_id"] for entry in own if entry["state"] in states)
        return max(numbers, default=-1)

    return {
        "last_enqueued_collective": last(*State),
        "last_started_collective": last(State.STARTED, State.COMPLETED),
        "last_completed_collective": last(State.COMPLETED),
    }
