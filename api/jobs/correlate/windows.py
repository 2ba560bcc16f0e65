"""Reads windows for detectors from the store, the inventory and the topology."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from alerts.window.columns import Ints, Operations
from alerts.window.model import (
    Communicator,
    Grid,
    JobWindow,
    Kind,
    Past,
    Paths,
    Pending,
    Ports,
    Rank,
    Window,
)
from alerts.window.split import distinct
from api.base.threads import Threads
from api.data.inventory.job_model import JobRank
from api.data.inventory.records import JobState
from api.data.store.store import Store
from api.jobs.correlate.baseline import Baselines, read_baselines
from api.jobs.correlate.captured import read_captured
from api.jobs.correlate.meanings import ROAD
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.readings import GridReader
from api.jobs.correlate.things import read_gpus, read_hosts, read_ports, read_samples
from api.jobs.correlate.wanted import wanted_of
from api.jobs.correlate.window import look_in_slices, steps_of
from api.jobs.facts import to_event
from collector.contract.collective import State, size_class
from collector.contract.communicator import CUT, DUMP, RANKS_MAX
from collector.contract.errors import InventoryError, StoreError
from collector.contract.identity import GPU_MAX, PortId, metric_id, odd_part, whole_number
from collector.contract.model import Event
from collector.contract.records import ABSENT
from collector.contract.units import NS

if TYPE_CHECKING:  # they bring SQLAlchemy and all of the topology, which `diagnose` does not need
    from api.data.inventory.repository import Inventory
    from api.fabric.cache import BuiltTopology

log = logging.getLogger(__name__)

STEP_SECONDS = 5
"""A cell of the grid: how often agents read, by default."""
CELLS_MAX = 8_000
"""Cells of a grid: a window of hours has longer ones."""
RECORDS_MAX = 800_000
"""Records of a job that a window holds: 64 MB. Of more it has some slices of its time."""
EVENTS_MAX = 10_000
EDGES_MAX = 20_000
"""Ring neighbours whose ways are looked up: two directions of 10,000 ranks."""
PAST_SECONDS = 3_600
"""How far before the window the past goes that operations are compared with."""
PAST_QUANTILE = 0.25
"""Of the past's stretches of ten seconds: low, because a fault of half an hour is no new normal."""
KEPT_SECONDS = 60
"""How long an hour's past and what tests reached stand for the windows that come after."""
TOPOLOGY_KEPT_SECONDS = 15
"""How long cables stand for the live windows that come after: to build a topology of 4,096 hosts
takes seconds, and moving a cable takes longer."""
JOBS_KEPT_MAX = 1_000
"""Jobs whose past is cached; past it the cache is cleared."""

NO_JOBS: Mapping[str, JobWindow] = MappingProxyType({})

EVENTS_SQL = f"""
    SELECT kind, toUnixTimestamp64Nano(time) AS time_ns, labels, message, attributes
    FROM events FINAL
    WHERE kind NOT IN ('communicator', 'process_group')
      AND time BETWEEN fromUnixTimestamp64Nano({{from_ns:Int64}})
                   AND fromUnixTimestamp64Nano({{to_ns:Int64}})
    ORDER BY time DESC, id DESC LIMIT {EVENTS_MAX}
"""  # noqa: S608 - our words
DUMPED_SQL = """
    SELECT DISTINCT communicator FROM collectives
    WHERE source = 'flight_recorder'
      AND time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64})
                   AND fromUnixTimestamp64Nano({to_ns:Int64})
"""
PENDING_SQL = """
    SELECT communicator, operation, sequence, max(ranks) AS ranks,
           groupArray((rank, toString(state))) AS states,
           toUnixTimestamp64Nano(max(ifNull(entry, ifNull(enqueue, time)))) AS time_ns
    FROM collectives FINAL
    WHERE communicator IN {communicators:Array(String)} AND source = 'flight_recorder'
      AND time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64})
                   AND fromUnixTimestamp64Nano({to_ns:Int64})
    GROUP BY communicator, operation, sequence
    HAVING countIf(state IN ('scheduled', 'started')) > 0
    ORDER BY communicator, sequence, operation
"""
PAST_SQL = f"""
    SELECT metric, communicator, operation, size, quantile({PAST_QUANTILE})(value) AS usual,
           count() AS stretches
    FROM (
        SELECT DISTINCT series, labels['communicator'] AS communicator,
               labels['operation'] AS operation, labels['size'] AS size
        FROM series WHERE metric_name IN {{names:Array(String)}} AND labels['job'] = {{job:String}}
    ) AS named
    INNER JOIN (
        SELECT metric, series, value FROM samples
        WHERE metric IN {{metrics:Array(UInt32)}}
          AND time BETWEEN fromUnixTimestamp64Nano({{from_ns:Int64}})
                       AND fromUnixTimestamp64Nano({{to_ns:Int64}})
    ) AS numbers USING series
    GROUP BY metric, communicator, operation, size
"""  # noqa: S608 - our words
TRANSFER = "fabric_communicator_transfer_seconds"
SKEW = "fabric_communicator_entry_skew_seconds"


Usual = Mapping[tuple[str, str, str], Mapping[int, tuple[float, int]]]
"""By communicator, operation and class of sizes: of each metric what was usual, and how often."""


class Dumps(NamedTuple):
    """What the Flight Recorder dumped in a window."""

    communicators: frozenset[str]
    events: Sequence[Event]


class VerdictInputs(NamedTuple):
    """What a job is read with that verdicts need, and nothing else does."""

    built: BuiltTopology
    ports: Ports
    dumps: Dumps


class WindowReader:
    """One a service, for one thread at a time: caches series' meanings, cables, the past, tests."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        topology: Callable[[dt.datetime | None], BuiltTopology],
    ) -> None:
        self._store = store
        self._inventory = inventory
        self._topology = topology
        self._reader = GridReader(store)
        self._built: tuple[int, BuiltTopology] | None = None
        self._baselines: tuple[int, Baselines] | None = None
        self._past: dict[str, tuple[int, Usual]] = {}
        self._rows: tuple[list[str], list[str], list[str]] | None = None
        self._jobs_ended: tuple[int | None] | None = None
        """When the last job was last seen; None while one runs, or not asked yet."""

    def read(
        self,
        from_ns: int,
        to_ns: int,
        at_rest: Mapping[str, JobWindow] = NO_JOBS,
        *,
        job: str | None = None,
        is_live: bool = True,
        records_max: int = RECORDS_MAX,
        is_wanted: Callable[[str], bool] = lambda _: True,
    ) -> Window:
        """A live window ends now and has jobs that run; any other has those that ran in it.

        Jobs that are not wanted are left out. Of jobs ``at_rest`` no records are read, unless there
        are other ports than in the window before, which their paths are rows of.
        """
        built = self._topology_at(to_ns, is_live=is_live)
        grid = grid_of(from_ns, to_ns)
        samples = read_samples(self._reader, grid)
        ports = read_ports(self._reader, built.topology, grid, samples)
        running = self._jobs(from_ns, to_ns, job, is_live=is_live)
        chosen = [each for each in running if is_wanted(each)]
        events = read_window_events(self._store, from_ns, to_ns)
        dumps = self._dumps(from_ns, to_ns, events) if chosen else Dumps(frozenset(), ())
        if not self._has_same_ports(ports):
            at_rest = NO_JOBS
        read = (
            at_rest.get(each)
            or self._sound_job(
                each, from_ns, to_ns, records_max, VerdictInputs(built, ports, dumps)
            )
            for each in chosen
        )
        jobs = [each for each in read if each is not None]
        return Window(
            from_ns=from_ns,
            to_ns=to_ns,
            jobs=jobs,
            jobs_ended_ns=self._ended_ns(running) if is_live and job is None else None,
            ports=ports,
            gpus=read_gpus(self._reader, grid, samples),
            hosts=read_hosts(self._reader, grid, samples),
            events=events,
            captured=read_captured(self._store, events, ports, from_ns, to_ns),
            is_live=is_live,
        )

    def again(
        self,
        window: Window,
        at_rest: Mapping[str, JobWindow],
        *,
        records_max: int = RECORDS_MAX,
    ) -> Window:
        """The same live window with the records of jobs that rest in it, but not ``at_rest``.

        Machines, events, and the jobs that were looked at are as they were read.
        """
        built = self._topology_at(window.to_ns, is_live=True)
        dumps = self._dumps(window.from_ns, window.to_ns, window.events)
        needed = VerdictInputs(built, window.ports, dumps)
        read = (
            job
            if not job.is_resting or job.job in at_rest
            else self._sound_job(job.job, window.from_ns, window.to_ns, records_max, needed)
            for job in window.jobs
        )
        return msgspec.structs.replace(window, jobs=[job for job in read if job is not None])

    def read_alone(self, job: str, from_ns: int, to_ns: int) -> Window:
        """One past job with its own machines, for what is no verdict.

        No readings are taken of other hosts, nor of switch ports that none of its cables ends at,
        and nothing is read that only verdicts need: events, dumps, what was usual before, tests,
        ways.
        """
        with Threads(1) as beside:
            # The engine looks for machines' samples while records are joined here. What this is an
            # errand of holds for both threads.
            machines = beside.submit(copy_context().run, self._machines, job, from_ns, to_ns)
            alone = self.job_alone(job, from_ns, to_ns)
            return msgspec.structs.replace(machines.result(), jobs=[] if alone is None else [alone])

    def job_alone(self, job: str, from_ns: int, to_ns: int) -> JobWindow | None:
        """The same without machines; None: it cannot be read."""
        return self._sound_job(job, from_ns, to_ns, RECORDS_MAX, None)

    def _machines(self, job: str, from_ns: int, to_ns: int) -> Window:
        """A past window of a job's own machines, without the job."""
        topology = self._topology_at(to_ns, is_live=False).topology
        grid = grid_of(from_ns, to_ns)
        wanted = wanted_of(map(to_rank, self._inventory.jobs.ranks(job)), topology)
        samples = read_samples(self._reader, grid, wanted)
        return Window(
            from_ns=from_ns,
            to_ns=to_ns,
            ports=read_ports(self._reader, topology, grid, samples),
            gpus=read_gpus(self._reader, grid, samples),
            hosts=read_hosts(self._reader, grid, samples),
            events=[],
            is_live=False,
        )

    def _dumps(self, from_ns: int, to_ns: int, events: Sequence[Event]) -> Dumps:
        dumped = read_dumped(self._store, from_ns, to_ns)
        return Dumps(dumped, [event for event in events if event.kind == DUMP])

    def _has_same_ports(self, ports: Ports) -> bool:
        """Whether the ports are those of the last call, row by row."""
        before, self._rows = self._rows, (ports.host, ports.device, ports.port)
        return before == self._rows

    def _topology_at(self, to_ns: int, *, is_live: bool) -> BuiltTopology:
        """The cables at the window's end; live ones may be some seconds old."""
        if not is_live:
            return self._topology(dt.datetime.fromtimestamp(to_ns / NS, tz=dt.UTC))
        if self._built is None or not is_kept(self._built[0], to_ns, TOPOLOGY_KEPT_SECONDS):
            self._built = (to_ns, self._topology(None))
        return self._built[1]

    def _tests(self, to_ns: int) -> Baselines:
        if self._baselines is None or not is_kept(self._baselines[0], to_ns, KEPT_SECONDS):
            self._baselines = (to_ns, read_baselines(self._store))
        return self._baselines[1]

    def _usual(self, job: str, before_ns: int) -> Usual:
        kept = self._past.get(job)
        if kept is None or not is_kept(kept[0], before_ns, KEPT_SECONDS):
            if len(self._past) >= JOBS_KEPT_MAX:
                self._past.clear()
            kept = self._past[job] = (before_ns, read_usual(self._store, job, before_ns))
        return kept[1]

    def _jobs(self, from_ns: int, to_ns: int, job: str | None, *, is_live: bool) -> list[str]:
        if job is not None:
            return [job]
        if is_live:
            return sorted(each.job for each in self._inventory.jobs.running())
        return sorted(
            each.job
            for each in self._inventory.jobs.page()
            if each.alias_of is None
            and each.first_seen.timestamp() * NS <= to_ns
            and each.last_seen.timestamp() * NS >= from_ns
        )

    def _ended_ns(self, running: Sequence[str]) -> int | None:
        """When the last job was last seen; asked once after the last of them has ended."""
        if running:
            self._jobs_ended = None
            return None
        if self._jobs_ended is None:
            self._jobs_ended = (self._inventory.jobs.last_seen_ns(),)
        return self._jobs_ended[0]

    def _sound_job(self, job: str, *given: Any) -> JobWindow | None:  # noqa: ANN401 - as `_job`
        """None for a job that cannot be read: it is noted, and the others are judged."""
        try:
            return self._job(job, *given)
        except (StoreError, InventoryError):
            raise
        except Exception as error:
            log.debug("job %r cannot be read", job, exc_info=True)
            self._store.quarantine.put(ROAD, f"a job: {type(error).__name__}", f"{job}: {error}")
            return None

    def _job(
        self,
        job: str,
        from_ns: int,
        to_ns: int,
        records_max: int,
        needed: VerdictInputs | None,
    ) -> JobWindow:
        """Without what is ``needed`` it is for no verdict."""
        job_rank = job_ranks_of(self._inventory, job)
        seen = look_in_slices(self._store, job_rank, from_ns, to_ns, records_max=records_max)
        ranks = {place.rank: to_rank(place) for place in self._inventory.jobs.ranks(job)}
        communicators = read_communicators(self._inventory, job, job_rank, ranks)
        known = self._inventory.jobs.get(job)
        window = JobWindow(
            job=job,
            size=max(len(ranks), known.ranks or 0 if known is not None else 0),
            ranks=ranks,
            communicators=communicators,
            source=seen.source,
            kept_one_in=seen.kept_one_in,
            slices=seen.slices,
            records=seen.records,
            operations=seen.operations,
            clocks=seen.clocks,
            steps=steps_of(seen, job_rank),
            is_running=known is None or known.state is not JobState.ENDED,
        )
        if needed is None:
            return window
        built, ports, dumps = needed
        hung = sorted(dumps.communicators & communicators.keys())
        return msgspec.structs.replace(
            window,
            pending=read_pending(self._store, hung, from_ns, to_ns, job_rank),
            past=past_of(seen.operations, self._usual(job, from_ns)),
            baselines=baselines_of(seen.operations, self._tests(to_ns)),
            dumped=ranks_of_dumps(job, ranks, dumps.events),
            paths=find_paths(window, built, ports),
        )


def read_communicators(
    inventory: Inventory,
    job: str,
    job_rank: Mapping[tuple[str, int], int],
    ranks: Mapping[int, Rank],
) -> dict[str, Communicator]:
    members = members_of(job_rank)
    return {
        row.communicator: to_communicator(
            row.communicator,
            members.get(row.communicator, {}),
            row.ranks or 0,
            row.rings,
            [{int(rank): parent for rank, parent in tree.items()} for tree in row.trees],
            ranks,
            is_in_network=row.is_in_network,
        )
        for row in inventory.jobs.communicators(job)
    }


def members_of(job_rank: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    """The job's rank of each rank, by communicator."""
    members: dict[str, dict[int, int]] = {}
    for (name, rank), number in job_rank.items():
        members.setdefault(name, {})[rank] = number
    return members


def grid_of(from_ns: int, to_ns: int, step_seconds: float = STEP_SECONDS) -> Grid:
    """The cells of a stretch of time; the last one ends where the time does."""
    step_ns = round(step_seconds * NS)
    step_ns *= max(1, -(-(to_ns - from_ns) // (step_ns * CELLS_MAX)))
    cells = max(1, -(-(to_ns - from_ns) // step_ns))
    return Grid(to_ns - cells * step_ns, step_ns, cells)


def to_rank(place: JobRank) -> Rank:
    devices = [name for name in (place.devices or place.device or "").split(",") if name]
    return Rank(
        rank=place.rank,
        host=place.host or "",
        gpu=whole_number(place.gpu or "", GPU_MAX),
        devices=tuple(devices),
        port=place.port or "",
    )


def to_communicator(
    name: str,
    job_rank: Mapping[int, int],
    size: int,
    rings: Sequence[Sequence[int]],
    trees: Sequence[Mapping[int, int | None]],
    ranks: Mapping[int, Rank],
    *,
    is_in_network: bool = False,
) -> Communicator:
    size = max(size, len(job_rank), 1 + max(job_rank, default=-1))
    whole = [ring for ring in rings if len(ring) == size]
    hosts = {ranks[number].host for number in job_rank.values() if number in ranks}
    is_assumed = not whole and len(hosts) == size and "" not in hosts
    return Communicator(
        name=name,
        ranks=size,
        job_rank=job_rank,
        rings=[list(range(size))] if is_assumed else whole,
        trees=trees,
        is_ring_assumed=is_assumed,
        is_in_network=is_in_network,
    )


def read_window_events(store: Store, from_ns: int, to_ns: int) -> list[Event]:
    """Events in order of time; past EVENTS_MAX the newest."""
    rows = store.query(EVENTS_SQL, {"from_ns": from_ns, "to_ns": to_ns}).to_pylist()
    return store.quarantine.sound(ROAD, "an event", reversed(rows), to_event)


def is_kept(made_ns: int, now_ns: int, seconds: int) -> bool:
    """Whether a value cached for one window holds for another: not for an earlier one, nor long."""
    return 0 <= now_ns - made_ns < seconds * NS


def ranks_of_dumps(
    job: str, ranks: Mapping[int, Rank], dumps: Sequence[Event]
) -> frozenset[int] | None:
    """The job's ranks whose dumps were read; None where none was: then nothing tells."""
    found = set()
    for event in dumps:
        rank = whole_number(event.labels.get("rank", ""), RANKS_MAX)
        if rank is None:
            continue
        named, place = event.labels.get("job", ""), ranks.get(rank)
        is_here = place is not None and place.host == event.labels.get("host")
        if (named == job if named else is_here) and CUT not in event.attributes:
            found.add(rank)
    return frozenset(found) or None


def read_dumped(store: Store, from_ns: int, to_ns: int) -> frozenset[str]:
    """The communicators in dumps of the Flight Recorder: most of the time none."""
    found = store.query(DUMPED_SQL, {"from_ns": from_ns, "to_ns": to_ns})
    return frozenset(found["communicator"].to_pylist())


def read_pending(
    store: Store,
    communicators: Sequence[str],
    from_ns: int,
    to_ns: int,
    job_rank: Mapping[tuple[str, int], int],
) -> list[Pending]:
    """Operations that did not end, from dumps of the Flight Recorder."""
    if not communicators:
        return []
    parameters = {"communicators": list(communicators), "from_ns": from_ns, "to_ns": to_ns}
    rows = store.query(PENDING_SQL, parameters).to_pylist()
    return store.quarantine.sound(
        ROAD, "a pending operation", rows, lambda row: to_pending(row, job_rank)
    )


def to_pending(row: dict[str, Any], job_rank: Mapping[tuple[str, int], int]) -> Pending:
    states: dict[int, State] = {}
    for state in row["states"]:
        rank, word = state.values() if isinstance(state, dict) else state
        states[int(rank)] = State(word)
    name = row["communicator"]
    return Pending(
        communicator=name,
        operation=row["operation"],
        sequence=row["sequence"],
        ranks=row["ranks"],
        states=states,
        job_rank={rank: number for (one, rank), number in job_rank.items() if one == name},
        time_ns=row["time_ns"],
    )


def kinds_in(operations: Operations) -> list[tuple[Kind, int]]:
    if not len(operations):
        return []
    first, _ = distinct(operations.communicator, operations.operation, operations.size_bytes)
    return [
        (
            (
                operations.communicators[operations.communicator[row]],
                operations.operations[operations.operation[row]],
                int(operations.size_bytes[row]),
            ),
            int(operations.ranks[row]),
        )
        for row in first.tolist()
    ]


def baselines_of(operations: Operations, baselines: Baselines) -> dict[Kind, float]:
    if not baselines.tests:
        return {}
    found = (
        (kind, baselines.find(kind[1], ranks, None if kind[2] == ABSENT else kind[2]))
        for kind, ranks in kinds_in(operations)
    )
    return {kind: value for kind, value in found if value is not None}


def read_usual(store: Store, job: str, before_ns: int) -> Usual:
    """Usual values of a job's operations in the hour before."""
    parameters = {
        "names": [TRANSFER, SKEW],
        "metrics": [metric_id(TRANSFER), metric_id(SKEW)],
        "job": job,
        "from_ns": before_ns - PAST_SECONDS * NS,
        "to_ns": before_ns,
    }
    usual: dict[tuple[str, str, str], dict[int, tuple[float, int]]] = {}
    for row in store.query(PAST_SQL, parameters).to_pylist():
        key = (row["communicator"], row["operation"], row["size"])
        usual.setdefault(key, {})[row["metric"]] = row["usual"], row["stretches"]
    return usual


def past_of(operations: Operations, usual: Usual) -> dict[Kind, Past]:
    past = {}
    for kind, _ in kinds_in(operations):
        size = "unknown" if kind[2] == ABSENT else size_class(kind[2])
        found = usual.get((kind[0], kind[1], size), {})
        if metric_id(TRANSFER) in found:
            transfer, count = found[metric_id(TRANSFER)]
            skew, _ = found.get(metric_id(SKEW), (0.0, 0))
            past[kind] = Past(transfer_ns=transfer * NS, skew_ns=skew * NS, operations=count)
    return past


# Paths -------------------------------------------------------------------------------------------


class RingEdge(NamedTuple):
    """Two neighbours of a communicator's first ring that are on different hosts."""

    communicator: str
    source: int
    target: int
    ports: tuple[PortId, PortId]


def ring_edges(job: JobWindow) -> Iterator[RingEdge]:
    for communicator in job.communicators.values():
        for ring in communicator.rings[:1]:
            for source, target in zip(ring, [*ring[1:], *ring[:1]], strict=True):
                a, b = port_of(job, communicator, source), port_of(job, communicator, target)
                if a and b and a.host != b.host:
                    yield RingEdge(communicator.name, source, target, (a, b))


def find_paths(job: JobWindow, built: BuiltTopology, ports: Ports) -> Paths | None:
    """The ways of ring neighbours on different hosts; None where no port of them is known."""
    edges = list(ring_edges(job))
    if not edges or len(edges) > EDGES_MAX:
        return None
    pairs = [edge.ports for edge in edges]
    spread = built.spread(pairs)
    rows = ports.row_of
    side = [
        [rows.get((end.host, end.device, end.port), -1) for end in (link.id.a, link.id.b)]
        for link in built.graph.links
    ]
    pair_rows = [[rows.get((end.host, end.device, end.port), -1) for end in pair] for pair in pairs]
    start, port, share = directed(
        (spread.start, spread.link, spread.share),
        np.array(side, dtype=np.int64).reshape(-1, 2),
        np.array(pair_rows, dtype=np.int64),
        ports,
    )
    return Paths(
        communicator=[edge.communicator for edge in edges],
        source=np.array([edge.source for edge in edges], dtype=np.int64),
        target=np.array([edge.target for edge in edges], dtype=np.int64),
        start=start,
        port=port,
        share=share,
    )


def port_of(job: JobWindow, communicator: Communicator, rank: int) -> PortId | None:
    place = job.rank_of(communicator.name, rank)
    if place is None or not place.host or not place.devices:
        return None
    if odd_part(PortId.__struct_fields__, (place.host, place.devices[0], place.port or "1")):
        return None  # a rank's place is what a scheduler or a person registered
    return PortId(place.host, place.devices[0], place.port or "1")


def directed(
    spread: tuple[Any, Any, Any], side: Ints, pairs: Ints, ports: Ports
) -> tuple[Ints, Ints, Any]:
    """For each pair the ports that its bytes leave by: of each link the end on the sender's side.

    Known for the two ends' own cables and for those of their leaves; between higher tiers either
    end may be it, and both are named with half of the share.
    """
    start, link, share = spread
    edge = np.repeat(np.arange(len(start) - 1), np.diff(start))
    a, b = side[link, 0], side[link, 1]
    source, target = pairs[edge, 0], pairs[edge, 1]
    host = np.array([*ports.host, ""], dtype=object)  # -1 is no port
    near, far = ports.other_end[source], ports.other_end[target]
    leaf, goal = host[near], host[far]
    from_a, from_b = (a == source) | (b == target), (b == source) | (a == target)
    # Of cables between switches: away from the sender's leaf, towards the receiver's.
    inner = ~from_a & ~from_b & (leaf != goal)
    away_a, away_b = (host[a] == leaf) | (host[b] == goal), (host[b] == leaf) | (host[a] == goal)
    from_a, from_b = from_a | (inner & away_a), from_b | (inner & away_b)
    neither = ~from_a & ~from_b
    parts = [
        (edge[from_a], a[from_a], share[from_a]),
        (edge[from_b], b[from_b], share[from_b]),
        (edge[neither], a[neither], share[neither] / 2),
        (edge[neither], b[neither], share[neither] / 2),
    ]
    edges, port, part = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((port, edges))
    order = order[port[order] >= 0]
    begins = np.searchsorted(edges[order], np.arange(len(start)))
    return begins.astype(np.int64), port[order].astype(np.int64), part[order].astype(np.float64)
