"""The agent's `flight_recorder` source: the progress of each rank of a stuck job.

Dumps are rare, so records are made one by one here. A production agent reads a dump a tick after
its last write; here it is read at once. An agent that was away reads it when it is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from collector.contract import communicator as words
from collector.contract.collective import Collective, Operation, State, Timing
from collector.contract.model import Event
from collector.contract.records import ABSENT as NO_NUMBER
from collector.contract.records import context_of, numbers_of
from simulator.interfaces.flight_recorder import NAMES, make_dumps
from simulator.readings.records import Contexts, Records
from simulator.readings.series import Rows, make_row
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats, Topology

SOURCE = "flight_recorder"
RANKS_SHOWN = 1024
"""Ranks of a group that its event lists."""
STATUS_TEXT_MAX = 8 << 10
"""Characters of the status of all groups in a dump's event; longer ones are left out."""
STATUS = ("last_enqueued", "last_started", "last_completed")
ELEMENT_BYTES = {"BFloat16": 2, "Byte": 1}
_OPERATIONS = {name: operation for operation, name in NAMES.items()}
_PENDING = "fabric_job_flight_recorder_pending_operations"
_ITSELF = tuple(
    f"fabric_job_flight_recorder_{what}"
    for what in ("dumps_total", "unparsed_total", "files_left_out")
)

Dump = dict[str, Any]
"""The content of a rank's file."""


@dataclass(eq=False)
class Group:
    """A process group as one of its ranks sees it."""

    communicator: str
    name: str
    description: str
    members: list[int]
    rank: int


class DumpSection:
    """The source on every host."""

    def __init__(self, topology: Topology, contexts: Contexts) -> None:
        self._topology = topology
        self._contexts = contexts
        self._waiting: list[dict[int, Dump]] = [{} for _ in range(topology.hosts)]
        """Of each host, by rank, dumps that its agent has not read."""
        self._counts = [0] * topology.hosts
        self._pending: list[dict[int, int]] = [{} for _ in range(topology.hosts)]
        """Of each host, by rank, operations that are under way."""
        self._rows: list[Rows] = [()] * topology.hosts
        self._events: dict[int, list[Event]] = {}
        self._records: dict[int, Records] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        jobs = {job.name: job for job in snapshot.jobs}
        for dump in snapshot.dumps:
            job = jobs.get(dump.job)
            for rank, content in make_dumps(snapshot, job, dump).items() if job else ():
                host = int(job.rank_host[rank]) if job else 0
                if not snapshot.world.host_is_down[host]:
                    self._waiting[host][rank] = content
        self._events, self._records = {}, {}
        for host in np.flatnonzero(is_read).tolist():
            if waiting := self._waiting[host]:
                self._waiting[host] = {}
                self._take(host, waiting, int(snapshot.host_unix_ns(host, snapshot.time_s)))

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:
        """Nothing is forgotten: the files are still there."""

    def rows(self, host: int) -> Rows:
        """Empty until there is a dump."""
        return self._rows[host]

    def values(self, host: int) -> Floats:
        if not self._counts[host]:
            return np.zeros(0)
        itself = (self._counts[host], 0, 0)
        return np.array([*itself, *self._pending[host].values()], dtype=np.float64)

    def events(self, host: int) -> list[Event]:
        """Events about each new dump's rank and its groups."""
        return self._events.get(host, [])

    def records(self, host: int) -> Records | None:
        return self._records.get(host)

    def _take(self, host: int, dumps: dict[int, Dump], time_ns: int) -> None:
        records: list[Collective] = []
        events: list[Event] = []
        for rank, dump in dumps.items():
            groups = find_groups(dump, rank)
            found = [read_entry(entry, groups) for entry in dump["entries"]]
            records += found
            pending = sum(record.state is not State.COMPLETED for record in found)
            events.append(describe_dump(dump, rank, found, time_ns))
            events += describe_groups(dump, groups, time_ns)
            self._pending[host][rank] = pending
        self._counts[host] += len(dumps)
        self._rows[host] = (
            *(make_row(metric) for metric in _ITSELF),
            *(make_row(_PENDING, {"rank": str(rank)}) for rank in self._pending[host]),
        )
        self._events[host] = events
        if records:
            places = [self._contexts.number(host, context_of(record)) for record in records]
            lines = [
                [NO_NUMBER if number is None else number for number in numbers_of(record)]
                for record in records
            ]
            numbers = np.array(lines, dtype=np.int64).T
            self._records[host] = Records(np.array(places, dtype=np.intp), numbers)


# Content of a dump -------------------------------------------------------------------------------


def find_groups(dump: Dump, rank: int) -> dict[str, Group]:
    groups = {}
    for name, config in dump["pg_config"].items():
        members = msgspec.json.decode(config["ranks"], type=list[int])
        groups[name] = Group(
            communicator=words.group_communicator(name, members),
            name=name,
            description=config["desc"],
            members=members,
            rank=members.index(rank),
        )
    return groups


def find_operation(profiling_name: str) -> Operation:
    if profiling_name.startswith("nccl:send "):
        return Operation.SEND
    if profiling_name.startswith("nccl:recv "):
        return Operation.RECV
    return _OPERATIONS.get(profiling_name, Operation.OTHER)


def find_peer(profiling_name: str) -> int | None:
    """The other rank, in `nccl:send 0->1` or `nccl:recv 1<-0`."""
    _, _, ends = profiling_name.partition(" ")
    peer = ends.replace("<-", "->").partition("->")[2]
    return int(peer) if peer else None


def read_entry(entry: Dump, groups: dict[str, Group]) -> Collective:
    group = groups[entry["process_group"][0]]
    name, is_pair = entry["profiling_name"], entry["is_p2p"]
    operation = find_operation(name)
    state = State(entry["state"])
    start_ns, end_ns = entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]
    side = "output" if operation is Operation.REDUCE_SCATTER else "input"
    duration_ms = entry.get("duration_ms")
    return Collective(
        communicator=group.communicator,
        operation=operation,
        sequence=entry["p2p_seq_id" if is_pair else "collective_seq_id"],
        rank=group.rank,
        ranks=len(group.members),
        source=SOURCE,
        time_ns=end_ns or entry["time_created_ns"],
        entry_ns=start_ns,
        exit_ns=end_ns,
        enqueue_ns=entry["time_created_ns"],
        duration_ns=None if duration_ms is None else round(duration_ms * 1e6),
        size_bytes=entry[f"{side}_sizes"][0][0] * ELEMENT_BYTES[entry[f"{side}_dtypes"][0]],
        timing=Timing.DISCOVERED,
        state=state,
        peer=find_peer(name),
    )


def status_of(dump: Dump, number: str) -> dict[str, str]:
    """The last sequence numbers of one group."""
    status = dump["pg_status"].get(number, {})
    return {what: str(status[f"{what}_collective"]) for what in STATUS if status}


def describe_dump(dump: Dump, rank: int, records: list[Collective], time_ns: int) -> Event:
    states = [record.state for record in records]
    pending = len(states) - states.count(State.COMPLETED)
    status = msgspec.json.encode({name: status_of(dump, name) for name in dump["pg_status"]})
    attributes = {
        "version": dump["version"],
        words.NCCL_VERSION: dump["comm_lib_version"],
        "entries": str(len(records)),
        **{state.value: str(states.count(state)) for state in State},
        "pending": str(pending),
        "status": status.decode() if len(status) <= STATUS_TEXT_MAX else "",
    }
    return Event(
        kind=words.DUMP,
        time_ns=time_ns,
        labels={words.RANK: str(rank)},
        message=f"Flight Recorder dump of rank {rank}: {pending} operations pending.",
        attributes={name: value for name, value in attributes.items() if value},
    )


def describe_groups(dump: Dump, groups: dict[str, Group], time_ns: int) -> list[Event]:
    numbers: dict[str, int] = {}
    for entry in dump["entries"]:
        numbers.setdefault(entry["process_group"][0], entry["pg_id"])
    events = []
    for group in groups.values():
        attributes = {
            words.NAME: group.name,
            "description": group.description,
            words.RANKS: ",".join(map(str, group.members[:RANKS_SHOWN])),
            "size": str(len(group.members)),
        }
        if (number := numbers.get(group.name)) is not None:
            attributes |= {"pg_id": str(number), **status_of(dump, str(number))}
        labels = {words.COMMUNICATOR: group.communicator, words.RANK: str(group.rank)}
        present = {name: value for name, value in attributes.items() if value}
        events.append(
            Event(kind=words.PROCESS_GROUP, time_ns=time_ns, labels=labels, attributes=present)
        )
    return events
