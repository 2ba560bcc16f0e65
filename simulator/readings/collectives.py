"""The agent's `nccl_inspector` source: records of collectives, and counters of them.

A record is written when the operation has ended on its rank, so hung operations are missing. Times
are microseconds of the host's own clock, as Inspector writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.contract.collective import Operation, State, Timing, communicator_id
from collector.contract.model import Event
from collector.contract.records import NUMBERS, THIN_MAX, Context
from collector.contract.units import NS
from simulator.interfaces.inspector import NAMES
from simulator.pattern import Algorithm
from simulator.readings.ranks import Ranks
from simulator.readings.records import Contexts, Gathered, Places, Records
from simulator.readings.series import Rows, make_row
from simulator.readings.unread import Unread
from simulator.snapshot import CollectiveBlock, Counts, Snapshot
from simulator.topology.model import Bools, Floats, Topology

SOURCE = "nccl_inspector"
FORGET_SECONDS = 1800.0
"""How long after its last operation the agent still reports a rank's counters."""
ROWS_PER_SECOND_MAX = 1000.0
"""Operations of one host that the agent passes on; above it thins them out."""
THIN_FALL_SHARE = 0.8
"""How far below the limit the rows must be before the agent thins less."""
INTERVAL_SECONDS = 1.0
"""How often the agent reads the logs: thinning counts rows over no less."""
NS_PER_US = 1000
_LATEST_NS = 1 << 62

_SEQUENCE, _TIME, _ENTRY, _EXIT, _ENQUEUE, _DURATION, _SIZE = range(len(NUMBERS))
_COUNTED = tuple(f"fabric_collective_{what}_total" for what in ("operations", "bytes", "seconds"))
_LOST = "fabric_collective_lost_total"
_ITSELF = tuple(
    f"fabric_collective_{what}"
    for what in (
        "kept_one_in",
        "thinned_total",
        "left_out_total",
        "unparseable_lines_total",
        "skipped_bytes_total",
        "files",
        "files_left_out",
    )
)
_POINT_TO_POINT = frozenset({Operation.SEND, Operation.RECV})
_PAIRS = {
    Operation.SEND: (Operation.SEND, Operation.RECV),
    Operation.RECV: (Operation.RECV, Operation.SEND),
    Operation.SEND_RECV: (Operation.SEND_RECV, Operation.SEND_RECV),
}
_TOLD = frozenset(one for one in Algorithm if one.value.startswith(("nvls", "collnet")))
"""Algorithms that records name. Only Inspector's format 4.2 and later does, and no job has it that
goes by rings and trees: there readers must do without."""
_NAMED = frozenset(NAMES)
"""Collectives that Inspector has a name for; the agent reports all others as unnamed."""

_Key = tuple[str, int, Operation, str]
"""Communicator, rank in it, operation and job: one tally of an agent."""


@dataclass(eq=False)
class Shape:
    """What is constant in all blocks of a pattern, for each rank of each unit."""

    host: Places
    context: Places
    tally: Places
    speaker: Places
    """Numbers of ranks of communicators, each announced by one event."""


@dataclass(frozen=True, eq=False)
class Lines:
    """A block as it stands in the logs of its ranks; columns have a value for each line."""

    sequence: int
    size_bytes: int
    host: Places
    context: Places
    tally: Places
    speaker: Places
    numbers: Counts
    """[7, lines]: a line of the matrix for each of the wire's columns."""
    dumped_ns: Counts
    """For each host of the cluster: when its ranks wrote this, by its clock."""

    def select(self, which: Bools) -> Lines:
        return replace(
            self,
            host=self.host[which],
            context=self.context[which],
            tally=self.tally[which],
            speaker=self.speaker[which],
            numbers=self.numbers[:, which],
        )


@dataclass(eq=False)
class Speaker:
    """A process as a rank of a communicator: the content of its `communicator` event."""

    host: int
    labels: dict[str, str]
    attributes: dict[str, str]


class Tallies:
    """The agents' counters, by number of tally; columns grow by doubling."""

    def __init__(self) -> None:
        self.keys: list[_Key] = []
        self.host: Places = np.zeros(0, dtype=np.intp)
        self.counts: Counts = np.zeros((3, 0), dtype=np.int64)
        """Operations, bytes and nanoseconds."""
        self.seen_s: Floats = np.zeros(0)
        """True time of the last operation; minus infinity for a tally that is not reported."""
        self._numbers: dict[tuple[int, _Key], int] = {}

    def number(self, host: int, key: _Key) -> int:
        number = self._numbers.setdefault((host, key), len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
            if number == len(self.host):
                self._grow()
            self.host[number] = host
        return number

    def _grow(self) -> None:
        more = max(1024, len(self.host))
        self.host = np.concatenate([self.host, np.full(more, -1, dtype=np.intp)])
        self.counts = np.concatenate([self.counts, np.zeros((3, more), dtype=np.int64)], axis=1)
        self.seen_s = np.concatenate([self.seen_s, np.full(more, -np.inf)])

    def forget(self, which: Places) -> None:
        """Stop reporting these; a later operation starts them at zero."""
        self.counts[:, which] = 0
        self.seen_s[which] = -np.inf

    def of_host(self, host: int) -> Places:
        return np.flatnonzero((self.host == host) & (self.seen_s > -np.inf))


class Thinner:
    """Which operations each host passes on: those whose sequence number 2**power divides."""

    def __init__(self, hosts: int) -> None:
        self.power: Counts = np.zeros(hosts, dtype=np.int64)
        self.thinned: Counts = np.zeros(hosts, dtype=np.int64)
        self._rows: Counts = np.zeros(hosts, dtype=np.int64)
        self._first_ns: Counts = np.full(hosts, _LATEST_NS)
        self._last_ns: Counts = np.full(hosts, -_LATEST_NS)

    def keeps(self, host: Places, sequence: int, time_ns: Counts) -> Bools:
        self._rows += np.bincount(host, minlength=len(self._rows))
        np.minimum.at(self._first_ns, host, time_ns)
        np.maximum.at(self._last_ns, host, time_ns)
        is_thinned = (sequence & ((1 << self.power) - 1)) != 0
        if not is_thinned.any():
            return np.ones(len(host), dtype=np.bool_)
        self.thinned += np.bincount(
            host, weights=is_thinned[host], minlength=len(self.power)
        ).astype(np.int64)
        kept: Bools = ~is_thinned[host]
        return kept

    def adapt(self, is_read: Bools, seconds: float) -> None:
        """After a read, choose the powers for the next; ``seconds`` passed since the last one."""
        span = np.maximum((self._last_ns - self._first_ns) / NS, seconds)
        excess = np.where(self._rows > 0, self._rows / span / ROWS_PER_SECOND_MAX, 1e-9)
        needed = np.clip(np.ceil(np.log2(excess)), 0, THIN_MAX).astype(np.int64)
        power = np.maximum(self.power, needed)
        is_low = excess / 2.0 ** np.maximum(power - 1, 0) < THIN_FALL_SHARE
        power -= (power > 0) & is_low
        self.power = np.where(is_read, power, self.power)
        self._rows[:] = 0
        self._first_ns[:], self._last_ns[:] = _LATEST_NS, -_LATEST_NS

    def restart(self, hosts: Sequence[int]) -> None:
        self.power[list(hosts)] = 0
        self.thinned[list(hosts)] = 0


class CollectiveSection:
    """The source on every host."""

    def __init__(self, topology: Topology, ranks: Ranks, contexts: Contexts) -> None:
        hosts = topology.hosts
        self._topology = topology
        self._ranks = ranks
        self._contexts = contexts
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._tallies = Tallies()
        self._speakers: list[Speaker] = []
        self._speaker_numbers: dict[tuple[int, str, int, int], int] = {}
        self._is_introduced: Bools = np.zeros(0, dtype=np.bool_)
        self._thinner = Thinner(hosts)
        self._gathered = Gathered()
        self._unread: Unread[Lines] = Unread()
        self._events: list[list[Event]] = [[] for _ in range(hosts)]
        self._files: list[dict[int, None]] = [{} for _ in range(hosts)]
        self._rows: list[Rows | None] = [None] * hosts
        self._places: list[Places] = [np.zeros(0, dtype=np.intp)] * hosts
        self._lost = [0] * hosts
        self._read_s: float | None = None

    # Section -------------------------------------------------------------------------------------

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._gathered = Gathered()
        self._events = [[] for _ in range(self._topology.hosts)]
        hosts = np.arange(self._topology.hosts, dtype=np.int32)
        clock_ns = snapshot.host_unix_ns(hosts, snapshot.time_s)
        fresh = (
            self._write(snapshot, block, clock_ns)
            for block in snapshot.collectives
            if block.state is State.COMPLETED and block.job in self._ranks.jobs
        )
        for lines in self._unread.read(fresh, snapshot.time_s, is_read):
            self._take(lines, snapshot.time_s)
        elapsed_s = snapshot.time_s - self._read_s if self._read_s is not None else 0.0
        self._thinner.adapt(is_read, max(elapsed_s, INTERVAL_SECONDS))
        self._read_s = snapshot.time_s
        seen_s = self._tallies.seen_s
        old = np.flatnonzero((seen_s > -np.inf) & (seen_s < snapshot.time_s - FORGET_SECONDS))
        self._forget(old)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002 - as every section
        """Counters restart at zero, and every communicator is announced again."""
        self._thinner.restart(started)
        self._forget(np.flatnonzero(np.isin(self._tallies.host, list(started))))
        for number, speaker in enumerate(self._speakers):
            if speaker.host in started:
                self._is_introduced[number] = False

    def rows(self, host: int) -> Rows:
        rows = self._rows[host]
        if rows is None:
            rows = self._rows[host] = self._make_rows(host)
        return rows

    def values(self, host: int) -> Floats:
        self.rows(host)
        counts = self._tallies.counts[:, self._places[host]].astype(np.float64)
        counts[2] /= NS
        itself = (
            float(1 << int(self._thinner.power[host])),
            float(self._thinner.thinned[host]),
            *(0.0, 0.0, 0.0),
            float(len(self._files[host])),
            0.0,
        )
        # Nothing is ever lost on the way from NCCL to the agent.
        return np.concatenate([counts.T.ravel(), np.zeros(self._lost[host]), itself])

    def events(self, host: int) -> list[Event]:
        """A `communicator` event for each rank that appears for the first time."""
        return self._events[host]

    def records(self, host: int) -> Records | None:
        return self._gathered.of_host(host)

    # One block -----------------------------------------------------------------------------------

    def _write(self, snapshot: Snapshot, block: CollectiveBlock, clock_ns: Counts) -> Lines:
        shape = self._shape_of(block)
        is_done = np.isfinite(block.entry_s) & np.isfinite(block.exit_s)
        host = shape.host[is_done]
        return Lines(
            sequence=block.sequence,
            size_bytes=block.size_bytes,
            host=host,
            context=shape.context[is_done],
            tally=shape.tally[is_done],
            speaker=shape.speaker[is_done],
            numbers=self._numbers(snapshot, block, host, is_done),
            dumped_ns=clock_ns,
        )

    def _take(self, lines: Lines, time_s: float) -> None:
        """Count lines, and send those that are not thinned out."""
        host, tally, numbers = lines.host, lines.tally, lines.numbers
        is_new = self._tallies.seen_s[tally] == -np.inf
        if is_new.any():
            for each in np.unique(host[is_new]).tolist():
                self._rows[each] = None
        # A block holds each rank of a communicator once, so that adding by position is safe.
        self._tallies.counts[0, tally] += 1
        self._tallies.counts[1, tally] += lines.size_bytes
        self._tallies.counts[2, tally] += numbers[_DURATION]
        self._tallies.seen_s[tally] = time_s
        self._introduce(lines)
        kept = self._thinner.keeps(host, lines.sequence, numbers[_TIME])
        self._gathered.add(host[kept], lines.context[kept], numbers[:, kept])

    @staticmethod
    def _numbers(
        snapshot: Snapshot, block: CollectiveBlock, host: Places, is_done: Bools
    ) -> Counts:
        hosts = host.astype(np.int32)
        entry_ns = snapshot.host_unix_ns(hosts, block.entry_s[is_done]) // NS_PER_US * NS_PER_US
        exit_ns = snapshot.host_unix_ns(hosts, block.exit_s[is_done]) // NS_PER_US * NS_PER_US
        numbers: Counts = np.empty((len(NUMBERS), len(host)), dtype=np.int64)
        numbers[_SEQUENCE] = block.sequence
        numbers[_TIME] = exit_ns
        numbers[_ENTRY] = entry_ns
        numbers[_EXIT] = exit_ns
        numbers[_ENQUEUE] = entry_ns
        numbers[_DURATION] = exit_ns - entry_ns
        numbers[_SIZE] = block.size_bytes
        return numbers

    def _introduce(self, lines: Lines) -> None:
        fresh = lines.speaker[~self._is_introduced[lines.speaker]]
        self._is_introduced[fresh] = True
        for number in fresh.tolist():
            speaker = self._speakers[number]
            time_ns = int(lines.dumped_ns[speaker.host])
            self._events[speaker.host].append(
                Event(
                    kind="communicator",
                    time_ns=time_ns // NS_PER_US * NS_PER_US,
                    labels=speaker.labels,
                    attributes=speaker.attributes,
                )
            )

    # Constants of patterns -----------------------------------------------------------------------

    def _shape_of(self, block: CollectiveBlock) -> Shape:
        edition = self._ranks.edition(block.job)
        key = (block.job, edition, block.operation, block.algorithm, block.communicators)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._make_shape(block)
        return shape

    def _make_shape(self, block: CollectiveBlock) -> Shape:
        """Number every rank's context, tally and announcement: once for each pattern."""
        job = self._ranks.jobs[block.job]
        host = job.rank_host[block.members].astype(np.intp)
        context, tally, speaker = (np.empty_like(host) for _ in range(3))
        ranks = block.members.shape[1]
        for unit, communicator in enumerate(block.communicators):
            nodes = len(np.unique(host[unit]))
            for rank in range(ranks):
                where, pid = int(host[unit, rank]), int(job.rank_pid[block.members[unit, rank]])
                known = make_context(block, communicator, rank, pid)
                context[unit, rank] = self._contexts.number(where, known)
                key = (known.communicator, rank, known.operation, block.job)
                tally[unit, rank] = self._tallies.number(where, key)
                speaker[unit, rank] = self._speaker_number(where, known, nodes)
                self._files[where].setdefault(pid)
        fresh = len(self._speakers) - len(self._is_introduced)
        self._is_introduced = np.append(self._is_introduced, np.zeros(fresh, dtype=np.bool_))
        return Shape(host, context, tally, speaker)

    def _speaker_number(self, host: int, context: Context, nodes: int) -> int:
        key = (host, context.communicator, context.rank, context.pid)
        number = self._speaker_numbers.setdefault(key, len(self._speakers))
        if number == len(self._speakers):
            labels = {"communicator": context.communicator, "rank": str(context.rank)}
            attributes = {
                "ranks": str(context.ranks),
                "nodes": str(nodes),
                "pid": str(context.pid),
                "job": context.job,
            }
            self._speakers.append(Speaker(host, labels, attributes))
        return number

    def _forget(self, tallies: Places) -> None:
        self._tallies.forget(tallies)
        for host in np.unique(self._tallies.host[tallies]).tolist():
            if host >= 0:
                self._rows[host] = None

    def _make_rows(self, host: int) -> Rows:
        places = self._places[host] = self._tallies.of_host(host)
        keys = [self._tallies.keys[place] for place in places.tolist()]
        rows = [make_row(metric, labels_of(key)) for key in keys for metric in _COUNTED]
        # Sends and receives of a rank share one numbering, and so one count of what is lost.
        numberings = {
            (key[0], key[1], Operation.SEND_RECV if key[2] in _POINT_TO_POINT else key[2], key[3])
            for key in keys
        }
        lost = [make_row(_LOST, labels_of(key)) for key in sorted(numberings)]
        self._lost[host] = len(lost)
        return (*rows, *lost, *(make_row(metric) for metric in _ITSELF))


def labels_of(key: _Key) -> dict[str, str]:
    communicator, rank, operation, job = key
    return {"job": job, "rank": str(rank), "communicator": communicator, "operation": operation}


def make_context(block: CollectiveBlock, communicator: str, rank: int, pid: int) -> Context:
    """What is constant in all records of a rank of a block."""
    operation = block.operation if block.operation in _NAMED else Operation.OTHER
    peer = None
    if block.operation in _PAIRS:
        operation, peer = _PAIRS[block.operation][rank % 2], rank ^ 1
    return Context(
        communicator=communicator_id(communicator),
        operation=operation,
        rank=rank,
        ranks=block.members.shape[1],
        source=SOURCE,
        timing=Timing.KERNEL,
        state=State.COMPLETED,
        algorithm=block.algorithm if block.algorithm in _TOLD else "",
        protocol="",
        peer=peer,
        host="",
        pid=pid,
        job=block.job,
    )
