"""Windows for detectors from what is held in memory: the twin of `api.jobs.correlate.windows`."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import ClockFit, Ints, Operations, Records
from alerts.window.common_clock import correct
from alerts.window.model import Communicator, JobWindow, Paths, Pending, Rank, Window
from alerts.window.slices import PIECES, align_slices, align_whole, shrunk
from alerts.window.split import distinct, split
from alerts.window.statistics import middle
from alerts.window.steps import infer_steps, usual_step_ns
from api.data.inventory.job_model import JobFound, JobRank
from api.fabric.cache import BuiltTopology
from api.fabric.model import Link, Node, NodeKind, Port, make_topology
from api.fabric.model import Topology as Cabling
from api.jobs.correlate.read import SOURCES_TIMED
from api.jobs.correlate.roll import DELAY_SECONDS, ROLL_SECONDS
from api.jobs.correlate.things import read_gpus, read_hosts, read_ports
from api.jobs.correlate.window import (
    STEP_MEMBERS_MAX,
    newest_time,
    records_of,
    rhythm_members,
    slices_of,
    some_members,
)
from api.jobs.correlate.windows import (
    EVENTS_MAX,
    KEPT_SECONDS,
    NO_JOBS,
    PAST_QUANTILE,
    PAST_SECONDS,
    RECORDS_MAX,
    SKEW,
    TRANSFER,
    Usual,
    find_paths,
    grid_of,
    is_kept,
    members_of,
    past_of,
    ranks_of_dumps,
    to_communicator,
    to_pending,
    to_rank,
)
from api.jobs.facts import facts_of
from api.jobs.infer import infer
from api.jobs.watch import JOBS_SECONDS, QUIET
from api.oncall.evaluate.resting import Member
from collector.contract.collective import State, size_class
from collector.contract.communicator import COMMUNICATOR, DUMP, PROCESS_GROUP
from collector.contract.identity import LinkId, PortId, metric_id
from collector.contract.model import Event
from collector.contract.records import ABSENT, NUMBERS
from collector.contract.units import NS
from collector.contract.wire import Batch
from simulator.score.direct.held import READ_SECONDS, HeldRecords, HeldSamples, Names
from simulator.snapshot import JobStatus, Snapshot
from simulator.topology.model import Topology

DUMPS = "flight_recorder"
ENTRY, ENQUEUE, TIME, SEQUENCE = map(
    NUMBERS.index, ("entry_ns", "enqueue_ns", "time_ns", "sequence")
)


class DirectWindows:
    """Takes what agents send and gives windows. For one cluster, in order of time."""

    def __init__(
        self, topology: Topology, start_unix_ns: int, read_seconds: float = READ_SECONDS
    ) -> None:
        """``read_seconds``: how often agents read, which is a scenario's tick."""
        self._topology = topology
        self._start_ns = start_unix_ns
        self._samples = HeldSamples(start_unix_ns // 1_000_000 - 1, read_seconds)
        self._records = HeldRecords()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._facts: dict[tuple[str, str, str], Event] = {}
        self._marked: dict[tuple[str, int], int] = {}
        self._built = BuiltTopology(make_cabling(topology, start_unix_ns))
        self._status: dict[str, JobStatus] = {}
        self._jobs: list[JobFound] = []
        self._names = Names(())
        self._looked_ns = start_unix_ns
        self._is_news = False
        self._last_ns: dict[str, int] = {}
        """By job: its latest record."""
        self.past: dict[str, Rolled] = {}
        self._rows: tuple[list[str], list[str], list[str]] | None = None
        """The ports of the last window, which paths are rows of."""
        self._paths: dict[str, tuple[JobFound, Paths | None]] = {}
        """By job, for as long as it is not inferred anew and windows have the same ports."""

    @property
    def wanted(self) -> frozenset[str]:
        """Metrics whose samples windows are made of."""
        return self._samples.wanted

    def take(self, snapshot: Snapshot, batches: Sequence[Batch], now_ns: int) -> None:
        self._samples.add(batches)
        self._is_news |= self._records.add(batches, now_ns)
        self._status = {job.name: job for job in snapshot.jobs}
        for batch in batches:
            for event in batch.events:
                self._note(event, batch.common)
            for span in batch.steps:
                if span.rank is not None and span.rank >= 0 and span.pid > 0:
                    self._marked[span.host or batch.common["host"], span.pid] = span.rank
        if now_ns - self._looked_ns >= JOBS_SECONDS * NS:
            self._looked_ns = now_ns
            if self._is_news:
                self._infer(now_ns)

    def _note(self, event: Event, common: Mapping[str, str]) -> None:
        labels = {**common, **event.labels}
        event = msgspec.structs.replace(event, labels=labels)
        if event.kind not in (COMMUNICATOR, PROCESS_GROUP):
            self._events.append(event)
            return
        key = event.kind, labels.get("communicator", ""), labels.get("rank", "")
        old = self._facts.get(key)
        attributes = {**(old.attributes if old else {}), **event.attributes}
        if old is None or attributes != old.attributes:
            self._facts[key] = msgspec.structs.replace(event, attributes=attributes)
            self._is_news = True

    def _infer(self, now_ns: int) -> None:
        self._is_news = False
        found = infer(
            self._records.members(now_ns),
            facts_of(self._facts.values()),
            marked_ranks=self._marked,
        )
        self._jobs = [self._filled(job) for job in found]
        self._names = Names(self._records.contexts)

    def _filled(self, job: JobFound) -> JobFound:
        """With the NICs next to the ranks' GPUs, which a service has from the hosts' inventory."""
        status = self._status.get(job.job)
        if status is None:
            return job
        return msgspec.structs.replace(
            job, places=tuple(self._place(place, status) for place in job.places)
        )

    def _place(self, place: JobRank, status: JobStatus) -> JobRank:
        if place.device is not None or not 0 <= place.rank < status.ranks:
            return place
        device = self._topology.device_name(int(status.rank_nic[place.rank]))
        gpu = int(status.rank_gpu[place.rank]) % self._topology.gpus_per_host
        return msgspec.structs.replace(
            place, device=device, devices=device, gpu=place.gpu or str(gpu)
        )

    # One window ----------------------------------------------------------------------------------

    def hear(self, source: str, members: Sequence[Member], from_ns: int, to_ns: int) -> Records:
        """The records of some ranks."""
        context, numbers = self._records.within(from_ns, to_ns)
        self._name()
        wanted = set(members)
        is_wanted = np.array(
            [
                one.source == source and (one.communicator, one.rank) in wanted
                for one in self._records.contexts
            ],
            dtype=bool,
        )
        rows = np.flatnonzero(is_wanted[context]) if len(is_wanted) else context[:0]
        return self._names.records(context[rows], numbers[:, rows])

    def _name(self) -> None:
        if len(self._names.rank) < len(self._records.contexts):
            self._names = Names(self._records.contexts)

    def read(self, from_ns: int, to_ns: int, at_rest: Mapping[str, JobWindow] = NO_JOBS) -> Window:
        grid = grid_of(from_ns, to_ns)
        # One kind of thing after the other: all their samples at once are as much again.
        ports = read_ports(self._samples, self._built.topology, grid)
        events = [one for one in self._events if from_ns <= one.time_ns <= to_ns]
        events.sort(key=lambda one: one.time_ns)
        context, numbers = self._records.within(from_ns, to_ns)
        self._name()
        jobs = []
        rows = (ports.host, ports.device, ports.port)
        self._rows, is_same = rows, rows == self._rows
        if not is_same:
            self._paths = {}
        for job in self._running(context, numbers, to_ns):
            if is_same and job.job in at_rest:
                jobs.append(at_rest[job.job])
                continue
            window = self._job(job, from_ns, to_ns, context, numbers, events)
            kept = self._paths.get(job.job)
            if kept is None or kept[0] is not job:
                kept = self._paths[job.job] = job, find_paths(window, self._built, ports)
            jobs.append(msgspec.structs.replace(window, paths=kept[1]))
        return Window(
            from_ns=from_ns,
            to_ns=to_ns,
            jobs=jobs,
            jobs_ended_ns=max(self._last_ns.values(), default=None) if not jobs else None,
            ports=ports,
            gpus=read_gpus(self._samples, grid),
            hosts=read_hosts(self._samples, grid),
            events=events,
        )

    def _running(self, context: Ints, numbers: Ints, to_ns: int) -> Iterable[JobFound]:
        """Jobs with a record in the last minutes: one that is silent for longer has ended."""
        names, communicator = self._names, self._names.communicator[context]
        last = np.zeros(len(names.communicators), dtype=np.int64)
        np.maximum.at(last, communicator, numbers[TIME])
        latest = dict(zip(names.communicators, last.tolist(), strict=True))
        for job in sorted(self._jobs, key=lambda one: one.job):
            own = max((latest.get(one.communicator, 0) for one in job.communicators), default=0)
            self._last_ns[job.job] = max(own, self._last_ns.get(job.job, 0))
            if self._last_ns[job.job] >= to_ns - int(QUIET.total_seconds()) * NS:
                yield job

    def _job(
        self,
        job: JobFound,
        from_ns: int,
        to_ns: int,
        context: Ints,
        numbers: Ints,
        events: Sequence[Event],
    ) -> JobWindow:
        job_rank = {
            (one.communicator, member.rank): member.job_rank
            for one in job.communicators
            for member in one.members
            if member.job_rank is not None
        }
        ranks = {place.rank: to_rank(place) for place in job.places}
        rows = self._rows_of(job, context)
        seen = look(self._names, context[rows], numbers[:, rows], job_rank, (from_ns, to_ns))
        rolled = self.past.setdefault(job.job, Rolled())
        rolled.roll(seen.operations, to_ns)
        return JobWindow(
            job=job.job,
            size=max(len(ranks), job.ranks),
            ranks=ranks,
            communicators=communicators_of(job, job_rank, ranks),
            source=seen.source,
            slices=seen.slices,
            records=seen.records,
            operations=seen.operations,
            clocks=seen.clocks,
            steps=infer_steps(seen.members, job_rank, seen.operations),
            pending=pending_of(self._names, context[rows], numbers[:, rows], job_rank),
            past=past_of(seen.operations, rolled.usual(from_ns)),
            dumped=ranks_of_dumps(job.job, ranks, [one for one in events if one.kind == DUMP]),
        )

    def _rows_of(self, job: JobFound, context: Ints) -> Ints:
        own = {one.communicator for one in job.communicators}
        is_own = np.array([name in own for name in self._names.communicators], dtype=bool)
        if not len(is_own):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(is_own[self._names.communicator[context]]).astype(np.int64)


def communicators_of(
    job: JobFound, job_rank: Mapping[tuple[str, int], int], ranks: Mapping[int, Rank]
) -> dict[str, Communicator]:
    members = members_of(job_rank)
    return {
        one.communicator: to_communicator(
            one.communicator,
            members.get(one.communicator, {}),
            one.ranks,
            one.rings,
            one.trees,
            ranks,
            is_in_network=one.is_in_network,
        )
        for one in job.communicators
    }


# Records -----------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """As `api.jobs.correlate.window.JobCollectives`."""

    source: str
    slices: Sequence[tuple[int, int]]
    records: Records
    members: Records
    clocks: list[ClockFit]
    operations: Operations


def look(
    names: Names,
    context: Ints,
    numbers: Ints,
    job_rank: Mapping[tuple[str, int], int],
    span: tuple[int, int],
) -> Seen:
    source = names.source[context]
    best, chosen = SOURCES_TIMED[0], np.zeros(0, dtype=np.int64)
    for name in SOURCES_TIMED:
        if name in names.sources:
            chosen = np.flatnonzero(source == names.sources.index(name))
            if len(chosen):
                best = name
                break
    raw = names.records(context[chosen], numbers[:, chosen])
    some = some_members(job_rank, STEP_MEMBERS_MAX / max(1, len(set(job_rank.values()))))
    if len(chosen) <= RECORDS_MAX:
        clocks = align_whole(raw)
        records = correct(raw, clocks)
        return Seen(
            source=best,
            slices=(),
            records=records,
            members=records_of(records, some),
            clocks=clocks,
            operations=split(records),
        )
    time = numbers[TIME, chosen]
    edges = np.linspace(span[0], span[1] + 1, PIECES + 1).astype(np.int64)
    counts = np.histogram(time, edges)[0].astype(np.int64)
    begin, end = newest_time(counts, edges)
    newest = chosen[(time >= begin) & (time <= end)]
    few = of_members(names, context[newest], rhythm_members(job_rank))
    rhythm = names.records(context[newest[few]], numbers[:, newest[few]])
    slices = slices_of(counts, edges, usual_step_ns(rhythm, job_rank), RECORDS_MAX)
    inside = np.zeros(len(chosen), dtype=bool)
    for begin, end in slices:
        inside |= (time >= begin) & (time <= end)
    part = names.records(context[chosen[inside]], numbers[:, chosen[inside]])
    clocks = align_slices(part, slices)
    records = correct(part, clocks)
    return Seen(
        source=best,
        slices=shrunk(slices, clocks) or [(span[1], span[1])],
        records=records,
        members=records_of(records, some),
        clocks=clocks,
        operations=split(correct(raw, clocks)),
    )


def of_members(names: Names, context: Ints, members: Sequence[tuple[str, int]]) -> Ints:
    """The rows of these ranks of communicators; ``context`` has one number for each row."""
    codes = {name: code for code, name in enumerate(names.communicators)}
    is_own = np.zeros(len(names.rank), dtype=bool)
    for name, rank in members:
        is_own |= (names.communicator == codes.get(name, -1)) & (names.rank == rank)
    return np.flatnonzero(is_own[context])


def pending_of(
    names: Names, context: Ints, numbers: Ints, job_rank: Mapping[tuple[str, int], int]
) -> list[Pending]:
    """Operations that did not end, from dumps; of two records of a rank the later counts."""
    if DUMPS not in names.sources:
        return []
    rows = np.flatnonzero(names.source[context] == names.sources.index(DUMPS))
    found: dict[tuple[str, int, str], dict[int, tuple[State, int, int]]] = {}
    for row in rows.tolist():
        code = int(context[row])
        key = (
            names.communicators[names.communicator[code]],
            int(numbers[SEQUENCE, row]),
            names.operations[names.operation[code]],
        )
        moments = [int(numbers[place, row]) for place in (ENTRY, ENQUEUE, TIME)]
        moment = next(one for one in moments if one != ABSENT)
        own = (names.state[code], moment, int(names.ranks[code]))
        found.setdefault(key, {})[int(names.rank[code])] = own
    return [
        to_pending(
            {
                "communicator": communicator,
                "operation": operation,
                "sequence": sequence,
                "ranks": max(ranks for _, _, ranks in states.values()),
                "states": [(rank, str(state)) for rank, (state, _, _) in states.items()],
                "time_ns": max(moment for _, moment, _ in states.values()),
            },
            job_rank,
        )
        for (communicator, sequence, operation), states in sorted(found.items())
        if any(state in (State.SCHEDULED, State.STARTED) for state, _, _ in states.values())
    ]


class Rolled:
    """What was usual of a job's operations: medians of stretches, as the roll of a service."""

    def __init__(self) -> None:
        self._until_ns = 0
        self._kept: dict[tuple[str, str, str], deque[tuple[int, float, float]]] = {}
        self._usual: tuple[int, Usual] | None = None

    def roll(self, operations: Operations, to_ns: int) -> None:
        """Add the stretches that are complete by now."""
        length = ROLL_SECONDS * NS
        due_ns = (to_ns - DELAY_SECONDS * NS) // length * length
        ended = operations.last_exit_ns
        first_ns = max(self._until_ns, int(ended.min()) // length * length) if len(ended) else 0
        self._until_ns = max(self._until_ns, due_ns)
        inside = (ended >= first_ns) & (ended < due_ns)
        rows: Operations = operations.select(inside)
        if not len(rows):
            return
        stretch = rows.last_exit_ns // length
        _, group = distinct(rows.communicator, rows.operation, rows.size_bytes, stretch)
        order = np.argsort(group, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            one = int(own[0])
            size = int(rows.size_bytes[one])
            key = (
                rows.communicators[rows.communicator[one]],
                rows.operations[rows.operation[one]],
                "unknown" if size == ABSENT else size_class(size),
            )
            kept = self._kept.setdefault(key, deque(maxlen=PAST_SECONDS // ROLL_SECONDS + 64))
            transfer = middle(rows.transfer_ns[own]) / NS
            skew = middle(rows.skew_ns[own]) / NS
            kept.append(((int(stretch[one]) + 1) * length, transfer, skew))

    def usual(self, before_ns: int) -> Usual:
        if self._usual is None or not is_kept(self._usual[0], before_ns, KEPT_SECONDS):
            self._usual = before_ns, self._quantiles(before_ns)
        return self._usual[1]

    def _quantiles(self, before_ns: int) -> Usual:
        found = {}
        for key, kept in self._kept.items():
            inside = [one for one in kept if before_ns - PAST_SECONDS * NS <= one[0] <= before_ns]
            if inside:
                _, *columns = zip(*inside, strict=True)
                usual = np.quantile(np.array(columns), PAST_QUANTILE, axis=1).tolist()
                found[key] = {
                    metric_id(name): (one, len(inside))
                    for name, one in zip((TRANSFER, SKEW), usual, strict=True)
                }
        return found


# Cables ------------------------------------------------------------------------------------------


def make_cabling(topology: Topology, at_ns: int) -> Cabling:
    """The cluster as it is cabled, as the service finds it by what ports say of each other."""
    at = dt.datetime.fromtimestamp(at_ns / NS, tz=dt.UTC)
    rate = topology.bits_per_second

    def port(link: int) -> PortId:
        node = int(topology.source[link])
        if node >= 2 * topology.nics:
            name = topology.switches[node - 2 * topology.nics].name
            return PortId(name, name, topology.switch_port_name(link))
        nic = node % topology.nics
        host = topology.host_name(topology.host_of_nic(nic))
        return PortId(host, topology.device_name(nic), str(int(topology.port[link])))

    links = [
        Link(
            id=LinkId.between(port(link), port(back)),
            since=at,
            last_seen=at,
            seen_from=(port(link), port(back)),
            is_up=True,
            rate_bits_per_second=int(rate[link]),
        )
        for link in range(2 * topology.nics, topology.links)
        if link < (back := int(topology.reverse[link]))
    ]
    nodes = [Node(name=switch.name, kind=NodeKind.SWITCH) for switch in topology.switches]
    ports = [
        Port(
            id=port(topology.up(nic)),
            state="active",
            rate_bits_per_second=int(rate[topology.up(nic)]),
            rail=nic % topology.nics_per_host,
            netdev=topology.interface_name(nic),
        )
        for nic in range(topology.nics)
    ]
    return make_topology(at, nodes, ports, links)
