"""The folder's jobs as one window, for the same detectors as in the service."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.window.model import JobWindow, Window
from alerts.window.steps import job_ranks_of_rows
from api.diagnose.analyse import Analysis, TimeRange
from api.diagnose.calls import compare_calls, may_differ
from api.diagnose.deaths import read_last_words
from api.diagnose.find import Found
from api.diagnose.jobs import Job
from api.diagnose.load import Loaded
from api.diagnose.sets import RUNS_APART_NS
from api.diagnose.throw_away import ThrowAwayStore
from api.jobs.correlate.readings import GridReader, chained
from api.jobs.correlate.things import read_gpus, read_hosts, read_ports
from api.jobs.correlate.windows import (
    EVENTS_MAX,
    baselines_of,
    grid_of,
    members_of,
    read_pending,
    to_communicator,
    to_rank,
)
from collector.contract.communicator import COMMUNICATOR, PROCESS_GROUP
from collector.contract.model import Event
from collector.contract.ras import RAS
from collector.contract.units import NS
from collector.parsing.last_words import HOST_ADDRESS, LAST_WORDS

STEP_SECONDS_MIN = 0.01
"""Counters in files may be read a hundred times a second; nothing reads them more often."""
CELLS = 4_000

SAID = (LAST_WORDS, HOST_ADDRESS)
AFTER_THE_END = (*SAID, RAS)
"""Kinds of events that count although the records have ended: a job that hangs makes none."""

SPAN_SQL = """
    SELECT toUnixTimestamp64Nano(toDateTime64(min(time), 9)) AS from_ns,
           toUnixTimestamp64Nano(toDateTime64(max(time), 9)) AS to_ns
    FROM samples
"""


def window_of(
    store: ThrowAwayStore,
    analyses: Sequence[Analysis],
    asked: TimeRange | None = None,
    loaded: Loaded | None = None,
    others: Sequence[Job] = (),
) -> Window:
    """From first to last record, or reading where there is no job; cut by ``asked``.

    Last words belong to it whenever they were said, unless a time was asked for that ends earlier.
    ``others`` are jobs of other times, which have last words of their own.
    """
    own = [analysis.job for analysis in analyses]
    said = read_last_words(store, [*own, *others])
    if others:
        said = [one for one in said if is_theirs(one, own)]
    if asked is not None:
        said = [one for one in said if asked.from_ns <= one.time_ns <= asked.to_ns]
    dumps = loaded.dumps if loaded is not None else []
    jobs = [job_window(store, analysis, dumps, said) for analysis in analyses]
    spans = [(analysis.job.first_ns, analysis.job.last_ns) for analysis in analyses]
    from_ns = min((first for first, _ in spans if first), default=0)
    to_ns = max((last for _, last in spans), default=0)
    if not from_ns:
        from_ns, to_ns = span_of_readings(store)
        times = [event.time_ns for event in said]
        if said and to_ns <= NS:
            from_ns, to_ns = min(times), max(times)
    if asked is not None:
        from_ns, to_ns = max(from_ns, asked.from_ns), min(to_ns, asked.to_ns)
    to_ns = max(to_ns, from_ns + 1)
    step_seconds = max(STEP_SECONDS_MIN, (to_ns - from_ns) / NS / CELLS)
    grid = grid_of(from_ns, to_ns, step_seconds)
    reader = GridReader(store)
    samples = None if store.holds("samples") else chained([], grid)
    return Window(
        from_ns=from_ns,
        to_ns=to_ns,
        jobs=jobs,
        ports=read_ports(reader, None, grid, samples),
        gpus=read_gpus(reader, grid, samples),
        hosts=read_hosts(reader, grid, samples),
        events=[*events_within(store, from_ns, to_ns), *said, *answers_of(store, analyses, asked)],
        is_live=False,
    )


def is_theirs(event: Event, jobs: Sequence[Job]) -> bool:
    """Whether last words are about one of these jobs, or about none and of their time."""
    if "job" in event.labels:
        return event.labels["job"] in {job.name for job in jobs}
    return any(
        job.first_ns - RUNS_APART_NS <= event.time_ns <= job.last_ns + RUNS_APART_NS for job in jobs
    )


def windows_of(
    store: ThrowAwayStore,
    analyses: Sequence[Analysis],
    asked: TimeRange | None = None,
    loaded: Loaded | None = None,
) -> list[Window]:
    """A window for each time in which jobs ran: over a month of nothing no reading is fine enough.

    Jobs that are near in time share one, since they may share a cable.
    """
    groups: list[list[Analysis]] = []
    until = 0
    for analysis in sorted(analyses, key=lambda each: each.job.first_ns):
        if not groups or analysis.job.first_ns > until + RUNS_APART_NS:
            groups.append([])
        groups[-1].append(analysis)
        until = max(until, analysis.job.last_ns)
    return [
        window_of(
            store,
            group,
            asked,
            loaded,
            [each.job for each in analyses if all(each is not one for one in group)],
        )
        for group in groups or [[]]
    ]


def span_of_readings(store: ThrowAwayStore) -> tuple[int, int]:
    """The times of the first and the last reading; zero and a second if there is none."""
    rows = store.rows("samples", SPAN_SQL)
    return (rows[0]["from_ns"], rows[0]["to_ns"]) if rows else (0, NS)


def events_within(store: ThrowAwayStore, from_ns: int, to_ns: int) -> list[Event]:
    """As the service's windows have them: in order of time, and past EVENTS_MAX the newest."""
    events = store.events(without=(COMMUNICATOR, PROCESS_GROUP, *AFTER_THE_END))
    return [event for event in events if from_ns <= event.time_ns <= to_ns][-EVENTS_MAX:]


def answers_of(
    store: ThrowAwayStore, analyses: Sequence[Analysis], asked: TimeRange | None
) -> list[Event]:
    """What NCCL's RAS said of these jobs' communicators, whenever it was saved."""
    names = {name for analysis in analyses for name, _ in analysis.job.job_ranks}
    return [
        event
        for event in store.events((RAS,))
        if event.labels.get(COMMUNICATOR) in names
        and (asked is None or asked.from_ns <= event.time_ns <= asked.to_ns)
    ]


def job_window(
    store: ThrowAwayStore,
    analysis: Analysis,
    dumps: Sequence[tuple[str, int, Found]] = (),
    said: Sequence[Event] = (),
) -> JobWindow:
    job = analysis.job
    ranks = {place.rank: to_rank(place) for place in job.found.places}
    job_ranks = job.job_ranks
    wired = {each.communicator: each for each in job.found.communicators}
    communicators = {}
    for name, own in members_of(job_ranks).items():
        known = wired.get(name)
        communicators[name] = to_communicator(
            name,
            own,
            known.ranks if known is not None else 0,
            known.rings if known is not None else [],
            known.trees if known is not None else [],
            ranks,
            is_in_network=known is not None and known.is_in_network,
        )
    timed = set(np.unique(job_ranks_of_rows(analysis.records, job_ranks)).tolist()) - {-1}
    groups = dumped_groups(analysis)
    # A recorder's last operation may be later than all that other sources have seen.
    dumped = [each for each in job.collections if each.source == "flight_recorder"]
    first_ns = min([job.first_ns, *(each.first_ns for each in dumped if each.first_ns)])
    last_ns = max([job.last_ns, *(each.last_ns for each in dumped if each.last_ns)])
    pending = read_pending(store, groups, first_ns, last_ns, job_ranks)
    # Calls are compared where something is wrong: reading all dumps again takes its time.
    is_in_trouble = bool(pending) or any(one.labels.get("job") == job.name for one in said)
    is_compared = dumps and groups and (is_in_trouble or may_differ(store, groups))
    return JobWindow(
        job=job.name,
        size=job.size,
        ranks_read=len(timed) if analysis.choice.source else None,
        unread=[] if timed & job.guessed else job.lacks(timed),
        guessed=job.guessed,
        dumped=dumped_ranks(job),
        ranks=ranks,
        communicators=communicators,
        source=analysis.choice.source or "",
        is_estimate=analysis.choice.is_estimate,
        kept_one_in=analysis.kept_one_in,
        records=analysis.records,
        operations=analysis.operations,
        clocks=analysis.fits,
        steps=analysis.steps,
        computing=analysis.computing,
        pending=pending,
        calls=compare_calls(dumps, job.collections) if is_compared else [],
        baselines=baselines_of(analysis.operations, store.results.baselines()),
        is_running=False,
    )


def dumped_ranks(job: Job) -> frozenset[int]:
    """Ranks whose dumps were read to their end."""
    return frozenset(
        rank
        for collection in job.collections
        if collection.source == "flight_recorder"
        for rank in collection.ranks - collection.cut
    )


def dumped_groups(analysis: Analysis) -> list[str]:
    names = {
        name
        for collection in analysis.job.collections
        if collection.source == "flight_recorder"
        for name in collection.sizes
    }
    return sorted(names)
