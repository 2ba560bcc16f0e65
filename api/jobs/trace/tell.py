"""A trace's events, the important first: one that a bound ends early still explains itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from alerts.window.model import JobWindow
from api.data.store.store import Store
from api.jobs.trace.collectives import ORDER_PHASES, ORDER_STEPS, ORDERS, Collectives
from api.jobs.trace.counters import tell_counters
from api.jobs.trace.event import Event, Frame, about, clean, moment, stretch
from api.jobs.trace.stream import Account, pieces
from api.jobs.trace.subject import Ahead, Span, Story, Subject
from api.jobs.trace.tracks import Track, Tracks
from api.jobs.trace.troubles import Arrows, DrawnTrouble, tell_troubles

ORDER_TROUBLES, ORDER_JOB_STEPS, ORDER_PENDING = range(3)
"""The tracks of a job's own process, from top to bottom."""
ORDER_HOST_EVENTS = 0
RANK_ORDER_FIRST = 1
"""A host's events stand above its ranks."""
PHASES_MAX = 16
"""Different phases that a rank's tracks are made for: their names come from training loops. Others
are left out, counted."""
PENDING_MAX = 200
"""Operations that did not end, of one job: the oldest. Everything after them waits too."""
PROFILER = "kineto"
"""The source whose steps are a profiler's, with numbers of its own."""
NS_PER_MS = 1e6

Names = Callable[[int], Track]
"""The process of a rank, what its tracks' names begin with, and where they stand."""


def write_story(store: Store, story: Story, *, seconds_max: float = math.inf) -> Iterator[bytes]:
    """The document in pieces; past ``seconds_max`` it ends, whole, and says so."""
    account = Account()
    frame = Frame(story.from_ns, story.to_ns)
    events = tell(store, story, frame, account)
    return pieces(events, account, lambda: facts_of(story), seconds_max=seconds_max)


def facts_of(story: Story) -> Event:
    """The summary at the document's end: the job, the time, and how precise the clocks are."""
    return {
        "writer": "fabricscope",
        "from_ns": story.from_ns,
        "to_ns": story.to_ns,
        "jobs": [
            {
                "job": clean(one.job.job),
                "ranks": one.job.size,
                "source": one.job.source,
                "is_estimate": one.job.is_estimate,
                "kept_one_in": one.job.kept_one_in,
                "clock_error_ns": one.job.clock_error_ns,
            }
            for one in story.subjects
        ],
    }


def tell(store: Store, story: Story, frame: Frame, account: Account) -> Iterator[Event]:
    tracks = Tracks(account)
    shown: list[DrawnTrouble] = []
    titles = [f"job {one.job.job}" for one in story.subjects] or ["incidents"]
    for title in titles:
        tracks.process(title)
    for host in hosts_of(story):
        tracks.process(host)
    yield from tracks.news()
    track = Track(titles[0], "incidents", ORDER_TROUBLES)
    yield from tell_troubles(story.troubles, frame, tracks, track, shown)
    ahead = Ahead(*(one.job.clocks for one in story.subjects))
    yield from tell_events(story, frame, ahead, tracks)
    for subject, title in zip(story.subjects, titles, strict=False):
        yield from tell_job(subject.job, frame, tracks, title, account)
    account.leave_out("SWITCH_PORTS_MAX", story.machines.switch_ports_left_out)
    yield from tell_counters(store, story.machines, frame, ahead, tracks, account)
    numbers = itertools.count(1)
    for subject in story.subjects:
        names = naming(subject.job, is_alone=len(story.subjects) == 1)
        yield from tell_steps(subject, frame, tracks, names, account)
        yield from tell_collectives(subject, frame, tracks, names, account, shown, numbers)


def hosts_of(story: Story) -> list[str]:
    ranks = [
        rank for one in story.subjects for _, rank in sorted(one.job.ranks.items()) if rank.host
    ]
    return list(dict.fromkeys(rank.host for rank in ranks))


def naming(job: JobWindow, *, is_alone: bool) -> Names:
    prefix = "" if is_alone else f"{job.job} "

    def names(rank: int) -> Track:
        known = job.ranks.get(rank)
        process = known.host if known is not None and known.host else f"job {job.job}"
        return Track(process, f"{prefix}rank {rank}", RANK_ORDER_FIRST + rank * ORDERS)

    return names


def tell_events(story: Story, frame: Frame, ahead: Ahead, tracks: Tracks) -> Iterator[Event]:
    """XIDs, links that went down and the like: those of the hosts that are shown, and switches'."""
    shown = {*hosts_of(story), *story.machines.hosts}
    shown |= {port.host for port in story.machines.switch_ports}
    for event in story.events:
        host = event.labels.get("host", "")
        time_ns = ahead.corrected_one(host, event.time_ns)
        if not host or host not in shown or not frame.holds(time_ns):
            continue
        # Moments have no length, so they all fit on one track.
        track = Track(host, "events", ORDER_HOST_EVENTS)
        place = tracks.place(track, frame.from_ns, frame.from_ns)
        yield from tracks.news()
        if place is not None:
            words = {clean(key): clean(value) for key, value in event.labels.items()}
            if event.message:
                words["message"] = clean(event.message)
            yield moment(frame, place, clean(event.kind), time_ns, words)


def tell_job(
    job: JobWindow, frame: Frame, tracks: Tracks, title: str, account: Account
) -> Iterator[Event]:
    track = Track(title, "steps (median over ranks)", ORDER_JOB_STEPS)
    for step in sorted(job.steps, key=lambda each: each.start_ns):
        span = (step.start_ns, step.end_ns)
        place = tracks.place(track, *span) if step.end_ns >= frame.from_ns else None
        yield from tracks.news()
        if place is not None:
            words = {
                "compute_ms": step.compute_ns / NS_PER_MS,
                "wait_ms": step.wait_ns / NS_PER_MS,
                "transfer_ms": step.transfer_ns / NS_PER_MS,
                "last_rank": step.last_rank,
            }
            yield stretch(frame, place, f"step {step.number}", span, about(words))
    account.leave_out("PENDING_MAX", len(job.pending) - PENDING_MAX)
    yield from tell_pending(job, frame, tracks, Track(title, "never ended", ORDER_PENDING))


def tell_pending(job: JobWindow, frame: Frame, tracks: Tracks, track: Track) -> Iterator[Event]:
    """Operations that never ended, drawn to the end of the trace: each lies within the last."""
    pending = [one for one in job.pending if 0 < one.time_ns < frame.to_ns]
    pending.sort(key=lambda one: (one.time_ns, one.sequence))
    place = tracks.place(track, frame.from_ns, frame.to_ns) if pending else None
    yield from tracks.news()
    if place is None:
        return
    for one in pending[:PENDING_MAX]:
        states = {str(one.job_rank.get(rank, rank)): str(one.states[rank]) for rank in one.states}
        words: Event = {
            "communicator": clean(one.communicator),
            "sequence": one.sequence,
            "state_of_rank": states,
            "ranks_that_said_nothing": one.ranks - len(one.states),
        }
        yield stretch(frame, place, clean(one.operation), (one.time_ns, frame.to_ns), words)


def tell_steps(
    subject: Subject, frame: Frame, tracks: Tracks, names: Names, account: Account
) -> Iterator[Event]:
    """Each rank's steps and phases, from marks and profiles or inferred."""
    bounds = subject.bounds
    if bounds is not None and not subject.has_marks:
        columns = (bounds.rank, bounds.number, bounds.start_ns, bounds.end_ns)
        for rank, number, start_ns, end_ns in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            span = Span(rank, number, "", start_ns, end_ns, "collectives")
            yield from tell_span(span, frame, tracks, names(rank))
    phases: dict[int, set[str]] = {}
    for spans in subject.spans():
        for span in spans:
            known = phases.setdefault(span.rank, set())
            if span.phase not in known and len(known) >= PHASES_MAX:
                account.leave_out("PHASES_MAX")
                continue
            known.add(span.phase)
            yield from tell_span(span, frame, tracks, names(span.rank))


def tell_span(span: Span, frame: Frame, tracks: Tracks, base: Track) -> Iterator[Event]:
    """One step or phase; every phase has a track of its own, since they overlap."""
    if span.end_ns < frame.from_ns or span.start_ns > frame.to_ns:
        return
    order = ORDER_PHASES if span.phase else ORDER_STEPS
    what = clean(span.phase) or ("profiled steps" if span.source == PROFILER else "steps")
    track = Track(base.process, f"{base.name} {what}", base.order + order)
    place = tracks.place(track, span.start_ns, span.end_ns)
    yield from tracks.news()
    if place is not None:
        name = clean(span.phase) or f"step {span.step}"
        words = {"step": span.step, "source": clean(span.source)}
        yield stretch(frame, place, name, (span.start_ns, span.end_ns), words)


def tell_collectives(
    subject: Subject,
    frame: Frame,
    tracks: Tracks,
    names: Names,
    account: Account,
    shown: Sequence[DrawnTrouble],
    numbers: Iterator[int],
) -> Iterator[Event]:
    arrows = Arrows(subject, frame, shown, account)
    drawing = Collectives(subject, frame, tracks, names)
    for event in drawing.events(account, arrows.operations, arrows.note):
        yield event
        if arrows.whole:
            yield from arrows.ready(numbers)
    yield from arrows.rest(numbers)
