"""One rank in one step: what a click into the heat map shows. Common clock, nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints, Operations, Records
from alerts.window.common_clock import correct
from alerts.window.split import distinct, medians
from alerts.window.steps import Work, measure_ranks, to_work
from api.base.limits import CELL_MARKS_MAX, CELL_OPERATIONS_MAX, LOOK_RECORDS_MAX
from api.data.inventory.job_model import JobRank
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.model import Topology
from api.jobs.correlate.heat import Pulse, Quantity, bounds_in, find_pulse, spent_on
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.read import Question, read_members
from api.jobs.correlate.window import JobCollectives, JobRanks, JobWork, look, records_of
from api.jobs.records import steps_of
from api.jobs.trace.counters import Line, drawn, find_lines, read_samples
from api.jobs.trace.event import Frame
from api.jobs.trace.stream import Account
from api.jobs.trace.subject import Ahead, Machines
from collector.contract.figures import duration, figures, shown
from collector.contract.identity import PortId
from collector.contract.records import ABSENT
from collector.contract.units import NS, NS_PER_MS

AROUND_NS_MIN, AROUND_NS_MAX, AROUND_CELLS = 10 * NS, 300 * NS, 4
"""Before and after that is looked at too, as many times the cell's own length within bounds: clocks
are estimated from many operations, steps from several, and what is usual from those around."""
BEFORE_NS = 60 * NS
"""Of readings before the cell, whose median is what was usual."""
AFTER_NS = 30 * NS
"""Of readings after it: the next one of a counter ends the rate that covers the cell."""
NOTABLE_MIN = 0.05
"""Of the stretch of time: a difference below a twentieth is not worth a sentence."""
SLOWER_MIN = 1.5
"""So many times its usual transfer makes a collective worth a sentence."""


SPENT = {"compute_ns": Quantity.COMPUTE, "wait_ns": Quantity.WAIT, "network_ns": Quantity.NETWORK}


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's time went, the median over the steps of the cell; null: not seen."""

    compute_ns: int | None = None
    wait_ns: int | None = None
    network_ns: int | None = None


class CellOperation(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that the rank took part in. Ranks are the job's, or null if not known."""

    communicator: str
    operation: str
    sequence: int
    size_bytes: int | None
    start_ns: int
    end_ns: int
    skew_ns: int
    transfer_ns: int
    usual_skew_ns: int
    """The median of operations like it around this time."""
    usual_transfer_ns: int
    last_in: int | None
    last_in_host: str | None
    late_ns: int | None
    """How long after the first rank this one entered; null: its record is missing."""
    waited_ns: int | None
    """How long it then waited for the last; 0: it was the last itself."""


class CellMark(msgspec.Struct, frozen=True, kw_only=True):
    """A step or a phase of it, as the training loop itself marked it; empty: the whole step."""

    phase: str
    step: int
    start_ns: int
    end_ns: int


class CellReading(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was read of the rank's GPU, its NICs or the switch ports they hang on."""

    host: str
    what: str
    """The thing and the reading in words: `GPU 3 clock`."""
    unit: str
    value: float
    """At the cell: a counter's rate between the readings around it, a gauge's last value."""
    usual: float | None
    """The median of the minute before; null where nothing was read then."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A rank in a stretch of time."""

    job: str
    rank: int
    host: str | None
    gpu: str | None
    devices: list[str]
    start_ns: int
    end_ns: int
    source: str
    steps: int
    """Whole steps in it; 0: none could be detected, or none is whole."""
    own: Spent
    median: Spent
    words: list[str]
    """What stands out, in sentences; empty: nothing does."""
    operations: list[CellOperation]
    """In order of time; of too many those that took longest."""
    operations_left_out: int
    marks: list[CellMark]
    readings: list[CellReading]


class CellReader:
    """Reads cells from the store and the inventory."""

    def __init__(self, store: Store, inventory: Inventory) -> None:
        self._store = store
        self._inventory = inventory

    def read(self, job: str, rank: int, span: tuple[int, int], topology: Topology) -> Cell | None:
        """None if the job has no such rank."""
        places = {place.rank: place for place in self._inventory.jobs.ranks(job)}
        job_rank = job_ranks_of(self._inventory, job)
        place = places.get(rank)
        if place is None:
            return None
        more_ns = min(max(AROUND_CELLS * (span[1] - span[0]), AROUND_NS_MIN), AROUND_NS_MAX)
        around = (span[0] - more_ns, span[1] + more_ns)
        window = look(self._store, job_rank, *around, records_max=LOOK_RECORDS_MAX)
        mine = [member for member, number in job_rank.items() if number == rank]
        own = own_records(self._store, window, mine, around)
        operations = operations_in(window.operations, {name for name, _ in mine}, span)
        work = JobWork(window, job_rank)
        pulse = find_pulse(work.bounds)
        spent, steps = spent_of(pulse, to_work(own, job_rank, window.operations), span)
        usual, _ = spent_of(pulse, work.of_some, span)
        own_operations = tell_operations(operations, window.operations, own, job_rank, places)
        kept = longest(own_operations)
        return Cell(
            job=job,
            rank=rank,
            host=place.host,
            gpu=place.gpu,
            devices=devices_of(place),
            start_ns=span[0],
            end_ns=span[1],
            source=window.source,
            steps=steps,
            own=spent,
            median=usual,
            words=list(say(rank, spent, usual, own_operations)),
            operations=kept,
            operations_left_out=len(own_operations) - len(kept),
            marks=self._marks(job, rank, span, places, window),
            readings=self._readings(place, span, topology),
        )

    def _marks(
        self,
        job: str,
        rank: int,
        span: tuple[int, int],
        places: Mapping[int, JobRank],
        window: JobCollectives,
    ) -> list[CellMark]:
        processes = {
            (one.host, one.pid): one.rank
            for one in places.values()
            if one.host is not None and one.pid is not None
        }
        from_ms, to_ms = span[0] // NS_PER_MS, -(-span[1] // NS_PER_MS)
        question = steps_of(job, processes, from_ms, to_ms, rank=rank)
        ahead = Ahead(window.clocks)
        found = [
            CellMark(
                phase=row["phase"],
                step=row["step"],
                start_ns=ahead.corrected_one(row["host"], row["start_ns"]),
                end_ns=ahead.corrected_one(row["host"], row["end_ns"]),
            )
            for row in question.page(self._store, None, CELL_MARKS_MAX)
        ]
        return sorted(found, key=lambda mark: (mark.start_ns, -mark.end_ns))

    def _readings(
        self, place: JobRank, span: tuple[int, int], topology: Topology
    ) -> list[CellReading]:
        if place.host is None:
            return []
        frame = Frame(span[0] - BEFORE_NS, span[1] + AFTER_NS)
        machines = machines_of(place, topology)
        lines = [
            line
            for line in find_lines(self._store, machines, frame, Account())
            if not line.thing.startswith("GPU ") or line.thing == f"GPU {place.gpu}"
        ]
        samples = read_samples(self._store, lines, frame) if lines else {}
        found = (tell_reading(line, samples.get(line.series), span) for line in lines)
        return [one for one in found if one is not None]


def devices_of(place: JobRank) -> list[str]:
    named = (place.devices or place.device or "").split(",")
    return [name for name in named if name]


def machines_of(place: JobRank, topology: Topology) -> Machines:
    host = place.host or ""
    devices = set(devices_of(place))
    interfaces, far_ends = set(), set()
    for port in topology.ports_of.get(host, []):
        if port.id.device in devices:
            interfaces.add(port.netdev or port.id.device)
            far = topology.other_end(port.id)
            if far is not None:
                far_ends.add(PortId(far.host, far.device, far.port))
    return Machines(
        hosts=[host], nics={host: frozenset(devices | interfaces)}, switch_ports=frozenset(far_ends)
    )


# Collectives --------------------------------------------------------------------------------------


def own_records(
    store: Store, window: JobCollectives, mine: Sequence[tuple[str, int]], around: tuple[int, int]
) -> Records:
    """On the common clock; read from the store where the window does not hold all of them."""
    if window.kept_one_in == 1:
        return records_of(window.records, mine)
    question = Question(sorted({name for name, _ in mine}), *around, [window.source])
    return correct(read_members(store, question, mine), window.clocks)


def operations_in(operations: Operations, names: set[str], span: tuple[int, int]) -> Operations:
    is_mine = np.array([name in names for name in operations.communicators], dtype=bool)
    came = operations.last_entry_ns
    rows = np.flatnonzero((came > span[0]) & (came <= span[1]) & is_mine[operations.communicator])
    chosen: Operations = operations.select(rows[np.argsort(came[rows], kind="stable")])
    return chosen


def tell_operations(
    operations: Operations,
    around: Operations,
    own: Records,
    job_rank: JobRanks,
    places: Mapping[int, JobRank],
) -> list[CellOperation]:
    columns = (own.communicator, own.operation, own.sequence, own.entry_ns)
    entries = {
        (own.communicators[communicator], own.operations[operation], sequence): entry
        for communicator, operation, sequence, entry in zip(
            *(column.tolist() for column in columns), strict=True
        )
        if entry != ABSENT
    }
    usual = usual_of(around)
    found = []
    for row in range(len(operations)):
        name = operations.communicators[operations.communicator[row]]
        kind = operations.operations[operations.operation[row]]
        size = int(operations.size_bytes[row])
        last = job_rank.get((name, int(operations.last_in[row])))
        entry = entries.get((name, kind, int(operations.sequence[row])))
        came_ns, first_ns = int(operations.last_entry_ns[row]), int(operations.first_entry_ns[row])
        skew, transfer = usual[name, kind, size]
        place = places.get(last) if last is not None else None
        found.append(
            CellOperation(
                communicator=name,
                operation=kind,
                sequence=int(operations.sequence[row]),
                size_bytes=None if size == ABSENT else size,
                start_ns=first_ns,
                end_ns=int(operations.last_exit_ns[row]),
                skew_ns=came_ns - first_ns,
                transfer_ns=int(operations.transfer_ns[row]),
                usual_skew_ns=skew,
                usual_transfer_ns=transfer,
                last_in=last,
                last_in_host=None if place is None else place.host,
                late_ns=None if entry is None else max(0, entry - first_ns),
                waited_ns=None if entry is None else max(0, came_ns - entry),
            )
        )
    return found


def usual_of(around: Operations) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Median skew and transfer of each communicator, operation and size."""
    if not len(around):
        return {}
    first, which = distinct(around.communicator, around.operation, around.size_bytes)
    skew, transfer = medians(around.skew_ns, which), medians(around.transfer_ns, which)
    return {
        (
            around.communicators[around.communicator[row]],
            around.operations[around.operation[row]],
            int(around.size_bytes[row]),
        ): (int(skew[place]), int(transfer[place]))
        for place, row in enumerate(first.tolist())
    }


def longest(operations: Sequence[CellOperation]) -> list[CellOperation]:
    """At most CELL_OPERATIONS_MAX, ordered by time: those that took longest."""
    if len(operations) <= CELL_OPERATIONS_MAX:
        return list(operations)
    took = np.array([one.skew_ns + one.transfer_ns for one in operations])
    chosen = np.sort(np.argsort(-took, kind="stable")[:CELL_OPERATIONS_MAX])
    return [operations[place] for place in chosen.tolist()]


def spent_of(pulse: Pulse | None, work: Work, span: tuple[int, int]) -> tuple[Spent, int]:
    """The median over the cell's whole steps, and their number; of one rank and step its time."""
    if pulse is None or not len(work):
        return Spent(), 0
    middle = pulse.start_ns + (pulse.end_ns - pulse.start_ns) // 2
    inside = (middle >= span[0]) & (middle <= span[1])
    bounds = bounds_in(pulse, work)
    rows = inside[bounds.number]
    if not rows.any():
        return Spent(), 0
    spent = measure_ranks(work, bounds)
    found = {
        name: round(float(np.median(spent_on(quantity, bounds, spent)[rows])))
        for name, quantity in SPENT.items()
    }
    return Spent(**found), int(inside.sum())


# Readings and words -------------------------------------------------------------------------------


def tell_reading(
    line: Line, samples: tuple[Ints, Floats] | None, span: tuple[int, int]
) -> CellReading | None:
    """At the cell, against the minute before; None where there is no reading or only zeros."""
    if samples is None:
        return None
    time_ns, values = drawn(line, *samples)
    # A rate stands at the first of its two readings, so that the last one covers the cell's end.
    at = int(np.searchsorted(time_ns, span[1], side="right")) - 1
    if at < 0:
        return None
    value = float(values[at])
    before = values[time_ns < span[0]]
    usual = float(np.median(before)) if len(before) else None
    if not line.shown.is_always and not value and not usual:
        return None
    return CellReading(
        host=line.host, what=line.name, unit=line.shown.unit, value=value, usual=usual
    )


def say(rank: int, own: Spent, median: Spent, operations: Sequence[CellOperation]) -> Iterator[str]:
    timed = [one for one in operations if one.waited_ns is not None]
    last = [one for one in timed if one.last_in == rank and one.skew_ns > 0]
    if timed and last:
        longest_ns = max(one.skew_ns for one in last)
        yield (
            f"Rank {rank} was the last to enter {len(last)} of {len(timed)} collectives; "
            f"the first rank waited up to {duration(longest_ns / NS)} for it."
        )
    waits = [one for one in timed if one.last_in not in {None, rank} and (one.waited_ns or 0) > 0]
    if waits and not last:
        worst = max(waits, key=lambda one: one.waited_ns or 0)
        where = f" on {shown(worst.last_in_host)}" if worst.last_in_host else ""
        yield (
            f"It waited longest for rank {worst.last_in}{where}: "
            f"{duration((worst.waited_ns or 0) / NS)} in {worst.operation} {worst.sequence}."
        )
    yield from say_spent(own, median)
    slow = [one for one in operations if one.transfer_ns > SLOWER_MIN * one.usual_transfer_ns]
    if slow:
        worst = max(slow, key=lambda one: one.transfer_ns / max(1, one.usual_transfer_ns))
        ratio = worst.transfer_ns / max(1, worst.usual_transfer_ns)
        yield (
            f"The transfer of {worst.operation} {worst.sequence} took "
            f"{duration(worst.transfer_ns / NS)}, {figures(ratio)} times what is usual."
        )


def say_spent(own: Spent, median: Spent) -> Iterator[str]:
    if own.compute_ns is None or median.compute_ns is None:
        return
    step_ns = median.compute_ns + (median.wait_ns or 0) + (median.network_ns or 0)
    more_ns = own.compute_ns - median.compute_ns
    if abs(more_ns) > NOTABLE_MIN * step_ns:
        word = "more" if more_ns > 0 else "less"
        yield (
            f"It was outside of collectives for {duration(own.compute_ns / NS)} a step, "
            f"{duration(abs(more_ns) / NS)} {word} than the median rank."
        )
