"""Reads a trace's content from store, inventory and topology; its records piece by piece."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from alerts.judge.incident import Incident
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from alerts.window.model import JobWindow, Rank
from alerts.window.steps import infer_bounds, measure_steps, to_work
from api.base.errors import Problem
from api.base.trace_limits import TRACE_RECORDS_MAX, TRACE_SPANS_MAX
from api.data.inventory.records import JobState
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.read import Question, count_in_pieces, query_records
from api.jobs.correlate.window import JobCollectives, JobRanks, best_source, look_in_slices
from api.jobs.correlate.windows import (
    read_communicators,
    read_dumped,
    read_pending,
    read_window_events,
    to_rank,
)
from api.jobs.records import Question as SpanQuestion
from api.jobs.records import steps_of
from api.jobs.trace.machines import machines_of
from api.jobs.trace.subject import Ahead, Span, Story, Subject, Trouble
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Verdict

PLAN_RECORDS_MAX = 200_000
"""Records from which clocks and steps are derived before the first is drawn: 16 MB. Of more, those
of some slices of the time, as windows for detectors have them."""
STRETCH_RECORDS = 20_000
"""Records that are in memory at once, about 10 MB; two such stretches are."""
STRETCH_PIECES = 4_096
"""Equal parts of the time in which records are counted, to form stretches of them."""
NARROWED_MAX = 3
"""How often a piece with too many records is counted again in smaller ones; three times is from an
hour to a nanosecond."""

Topologies = Callable[[dt.datetime | None], BuiltTopology]


def read_story(
    store: Store,
    inventory: Inventory,
    topologies: Topologies,
    incidents: Sequence[Incident],
    job: str,
    span: tuple[int, int],
) -> Story:
    from_ns, to_ns = span
    subject = read_subject(store, inventory, job, span)
    troubles = [
        Trouble(verdict=ended(one), id=one.id, history=one.history)
        for one in incidents
        if one.verdict.since_ns <= to_ns
    ]
    built = topologies(dt.datetime.fromtimestamp(to_ns / NS, tz=dt.UTC))
    return Story(
        from_ns=from_ns,
        to_ns=to_ns,
        subjects=[subject],
        machines=machines_of(subject.job, built, [one.verdict for one in troubles]),
        troubles=troubles,
        events=read_window_events(store, from_ns, to_ns),
    )


def ended(incident: Incident) -> Verdict:
    """Its verdict; a closed one without a time of its end ended when it was last seen."""
    verdict = incident.verdict
    if incident.is_open or verdict.until_ns is not None:
        return verdict
    return msgspec.structs.replace(verdict, until_ns=incident.last_seen_ns)


def read_subject(store: Store, inventory: Inventory, job: str, span: tuple[int, int]) -> Subject:
    job_rank = job_ranks_of(inventory, job)
    communicators = sorted({name for name, _ in job_rank})
    source, count = best_source(store, communicators, *span)
    refuse_too_many(count, TRACE_RECORDS_MAX, "TRACE_RECORDS_MAX", "records of collectives", span)
    processes, marks = read_marks(inventory, job, span)
    refuse_too_many(marks.count(store), TRACE_SPANS_MAX, "TRACE_SPANS_MAX", "steps", span)
    whole = msgspec.structs.replace(marks, conditions=(*marks.conditions, "phase = ''"))
    seen = look_in_slices(store, job_rank, *span, records_max=PLAN_RECORDS_MAX)
    work = to_work(seen.members, job_rank, seen.operations)
    bounds = infer_bounds(work)
    window = job_window(store, inventory, job, span, seen, job_rank)
    if bounds is not None:
        window = msgspec.structs.replace(window, steps=measure_steps(work, bounds))
    question = Question(communicators, *span, [source])
    return Subject(
        job=msgspec.structs.replace(window, records=seen.records.select(slice(0))),
        job_rank=job_rank,
        records=lambda: read_pieces(store, question, seen),
        spans=lambda: read_spans(store, marks, processes, Ahead(seen.clocks)),
        bounds=bounds,
        has_marks=whole.count(store) > 0,
    )


def refuse_too_many(count: int, bound: int, rule: str, what: str, span: tuple[int, int]) -> None:
    """Raise the Problem for a request past a bound, with the time that would fit."""
    if count > bound:
        seconds = (span[1] - span[0]) / NS
        raise Problem(
            422,
            "too much at once",
            f"{count} {what} in {seconds:.3g} s; {rule} is {bound}: "
            f"about {seconds * bound / count:.3g} s of this job fit into one trace",
            rule=rule,
        )


def job_window(
    store: Store,
    inventory: Inventory,
    job: str,
    span: tuple[int, int],
    seen: JobCollectives,
    job_rank: JobRanks,
) -> JobWindow:
    ranks = {place.rank: to_rank(place) for place in inventory.jobs.ranks(job)}
    for rank in set(job_rank.values()) - ranks.keys():
        ranks[rank] = Rank(rank=rank)
    communicators = read_communicators(inventory, job, job_rank, ranks)
    known = inventory.jobs.get(job)
    hung = sorted(read_dumped(store, *span) & communicators.keys())
    return JobWindow(
        job=job,
        size=max(len(ranks), known.ranks or 0 if known is not None else 0),
        ranks=ranks,
        communicators=communicators,
        source=seen.source,
        records=seen.records,
        operations=seen.operations,
        clocks=seen.clocks,
        pending=read_pending(store, hung, *span, job_rank),
        is_running=known is None or known.state is not JobState.ENDED,
    )


# Records -----------------------------------------------------------------------------------------


def read_pieces(store: Store, question: Question, seen: JobCollectives) -> Iterator[Records]:
    for begin, end in stretches(store, question):
        raw = query_records(store, question.narrowed(begin, end))
        yield correct(raw, seen.clocks)


def stretches(store: Store, question: Question, narrowed: int = 0) -> Iterator[tuple[int, int]]:
    """The question's time in stretches of about STRETCH_RECORDS; those without any are left out."""
    counts, edges = count_in_pieces(store, question, STRETCH_PIECES)
    begin, held = int(edges[0]), 0
    for place, count in enumerate(counts.tolist()):
        first, last = int(edges[place]), int(edges[place + 1]) - 1
        if held and held + count > STRETCH_RECORDS:
            yield begin, first - 1
            begin, held = first, 0
        if not held:
            begin = first
        held += count
        if held > 2 * STRETCH_RECORDS and last > begin and narrowed < NARROWED_MAX:
            yield from stretches(store, question.narrowed(begin, last), narrowed + 1)
            held = 0
    if held:
        yield begin, int(edges[-1]) - 1


# Marks -------------------------------------------------------------------------------------------

Processes = Mapping[tuple[str, int], int]


def read_marks(
    inventory: Inventory, job: str, span: tuple[int, int]
) -> tuple[Processes, SpanQuestion]:
    found: dict[tuple[str, int], list[int]] = {}
    for place in inventory.jobs.ranks(job):
        if place.host is not None and place.pid is not None:
            found.setdefault((place.host, place.pid), []).append(place.rank)
    processes = {process: ranks[0] for process, ranks in found.items() if len(ranks) == 1}
    return processes, steps_of(job, processes, span[0] // NS_PER_MS, span[1] // NS_PER_MS)


def read_spans(
    store: Store, question: SpanQuestion, processes: Processes, ahead: Ahead
) -> Iterator[list[Span]]:
    for table in question.tables(store):
        yield spans_of(table, processes, ahead)


def spans_of(table: pa.Table, processes: Processes, ahead: Ahead) -> list[Span]:
    names = ("rank", "step", "phase", "start_ns", "end_ns", "source", "host", "pid")
    columns = [table[name].to_pylist() for name in names]
    found = []
    for rank, step, phase, start_ns, end_ns, source, host, pid in zip(*columns, strict=True):
        number = rank if rank >= 0 else processes.get((host, pid))
        if number is not None:
            begin = ahead.corrected_one(host, start_ns)
            found.append(Span(number, step, phase, begin, begin + end_ns - start_ns, source))
    return found
