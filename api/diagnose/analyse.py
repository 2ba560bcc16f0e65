"""One job of a throw-away store, by the service's functions (`api.jobs.correlate`), as columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.signals.ends import with_ends
from alerts.signals.guessed import apart
from alerts.window.clocks import align, operation_index
from alerts.window.columns import (
    ClockFit,
    Codes,
    Computing,
    Ints,
    Lateness,
    Operations,
    Records,
    Step,
)
from alerts.window.common_clock import ahead_of, correct, host_clocks
from alerts.window.counted import with_common_numbers
from alerts.window.messages import is_pairwise
from alerts.window.split import joinable, lateness, medians, split, starts_of
from alerts.window.steps import (
    Bounds,
    infer_steps,
    job_ranks_of_rows,
    measure_steps,
    to_work,
    with_messages,
)
from api.diagnose.apart import common_span, put_together, told
from api.diagnose.jobs import Job
from api.diagnose.throw_away import ThrowAwayStore
from api.jobs.correlate.join import split_in_store
from api.jobs.correlate.read import (
    CODES,
    COLUMNS,
    INTS,
    RECORDS_MAX,
    SEEN_BY,
    Question,
    count_records,
    query_records,
    read_members,
)
from api.jobs.correlate.window import power_of_two, some_members
from collector.contract.records import ABSENT

SPANS_MAX = 2_000_000
"""Marks of steps that are read: those of 10,000 ranks over 200 steps."""

UNNAMED_HOST = "host of rank"
"""The name of a host that no file names, with the rank that runs there: no host's name has a
space."""

COUNTS_SQL = """
    SELECT source, communicator, count() AS records,
           countIf(entry IS NOT NULL AND exit IS NOT NULL) AS timed,
           countIf(timing = 'kernel') AS kernel,
           countIf(duration_ns IS NOT NULL) AS measured
    FROM collectives
    WHERE time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64})
               AND fromUnixTimestamp64Nano({to_ns:Int64})
    GROUP BY source, communicator ORDER BY source, communicator
"""
COMPUTING = "gpu.compute"
"""What profiles call the stretches in which a GPU computed."""
STEPS_SQL = f"""
    SELECT source, job, step, rank, host, pid,
           toUnixTimestamp64Nano(start) AS start_ns, toUnixTimestamp64Nano(end) AS end_ns
    FROM steps FINAL
    WHERE phase = {{phase:String}} AND start BETWEEN fromUnixTimestamp64Nano({{from_ns:Int64}})
                                         AND fromUnixTimestamp64Nano({{to_ns:Int64}})
    ORDER BY source, job, step, rank LIMIT {SPANS_MAX}
"""  # noqa: S608 - our words


class TimeRange(msgspec.Struct, frozen=True):
    """The time that was asked about."""

    from_ns: int
    to_ns: int

    def parameters(self) -> dict[str, int]:
        return {"from_ns": self.from_ns, "to_ns": self.to_ns}


class Choice(msgspec.Struct, frozen=True):
    """Which source's records are split, of which communicators, and why."""

    source: str | None
    communicators: list[str]
    reason: str
    is_estimate: bool = False
    """Whether only durations are known: entries and exits are then made of them."""


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a job, as columns. Times are on the common clock."""

    job: Job
    read_ns: tuple[int, int]
    """The job's first and last record by the clocks that wrote them; ``job`` has the common one."""
    choice: Choice
    kept_one_in: int
    records: Records
    fits: list[ClockFit]
    operations: Operations
    lateness: Lateness
    by_rank: RankRows
    steps: list[Step]
    steps_from: str
    computing: Computing | None = None
    """What GPUs computed; not read unless ranks send to each other."""


class RankRows(msgspec.Struct, frozen=True, kw_only=True):
    """Each rank's part in each joined operation of several ranks: how late, how long inside."""

    rank: Codes
    """The job's rank; -1 where it is not known."""
    entry_ns: Ints
    late_ns: Ints
    """Its entry minus the median rank's."""
    inside_ns: Ints
    is_last: Ints
    is_least: Ints


def analyse_job(store: ThrowAwayStore, job: Job, within: TimeRange) -> Analysis:
    choice = choose_source(store, job, within)
    sources = [choice.source or "none"]
    question = Question(choice.communicators, within.from_ns, within.to_ns, sources)
    # Sequence numbers need not be even: a margin keeps the share below the bound.
    count = count_records(store, question) if store.holds("collectives") else 0
    share = max(1.0, count / (RECORDS_MAX * 3 // 4))
    kept_one_in = power_of_two(math.ceil(share))
    columns = SEEN_BY if choice.is_estimate else COLUMNS
    records = no_records()
    if count:
        raw = query_records(store, question, keep_one_in=kept_one_in, columns=columns)
        records = placed(raw, job)
        if kept_one_in == 1 and not choice.is_estimate:
            records, job.apart = apart(records, job.job_ranks)
    if choice.source in COUNTED and kept_one_in == 1:
        records = with_common_numbers(records)
    far: dict[str, int] = {}
    if choice.is_estimate:
        records, far = leaving_together(records)
    fits = align(records)
    corrected = members = correct(records, fits)
    fits = told(fits, far)
    if kept_one_in == 1 and not choice.is_estimate:
        corrected = members = with_ends(corrected)
    if kept_one_in == 1 or choice.is_estimate:
        operations = split(corrected)
    else:
        # Steps need all operations of a rank, so they are found by some of the ranks.
        operations = split_in_store(store, question, fits)
        chosen = some_members(job.job_ranks, 1 / share)
        members = correct(placed(read_members(store, question, chosen), job), fits)
    steps, steps_from = find_steps(
        store, job, within, (members, operations), fits, is_estimate=choice.is_estimate
    )
    # Beside another source's records kernels are off by what the two see differently.
    is_of_profiles = choice.source == "kineto" and kept_one_in == 1
    has_messages = is_of_profiles and bool(is_pairwise(corrected).any())
    computing = read_computing(store, job, within, fits) if has_messages else None
    read_ns = job.first_ns, job.last_ns
    job.first_ns, job.last_ns = common_span(store, job, fits)
    return Analysis(
        job=job,
        read_ns=read_ns,
        choice=choice,
        kept_one_in=kept_one_in,
        records=corrected,
        fits=fits,
        operations=operations,
        lateness=lateness(corrected),
        by_rank=rank_rows(corrected, job.job_ranks),
        steps=steps,
        steps_from=steps_from,
        computing=computing,
    )


def no_records() -> Records:
    codes = dict.fromkeys(("communicator", "operation", "host", *CODES), np.zeros(0, np.int32))
    numbers = dict.fromkeys(INTS, np.zeros(0, np.int64))
    columns: dict[str, Any] = {**codes, **numbers}
    return Records(communicators=[], operations=[], hosts=[], **columns)


def choose_source(store: ThrowAwayStore, job: Job, within: TimeRange) -> Choice:
    """The source with the most informative times: kernels before watchdogs."""
    sums: dict[str, dict[str, Any]] = {}
    mine = {each.communicator for each in job.found.communicators}
    groups = {(each.source, name) for each in job.collections for name in each.sizes}
    for row in store.rows("collectives", COUNTS_SQL, within.parameters()):
        source, communicator = row["source"], row["communicator"]
        is_group = communicator.startswith("pg:")
        if (source, communicator) in groups or (communicator in mine and not is_group):
            total = sums.setdefault(source, {"communicators": []})
            total["communicators"].append(communicator)
            for kind in ("timed", "kernel", "measured"):
                total[kind] = total.get(kind, 0) + row[kind]
    for source, kind, reason in PREFERENCES:
        if sums.get(source, {}).get(kind, 0):
            names = sums[source]["communicators"]
            return Choice(source, names, reason, is_estimate=kind == "measured")
    everything = sorted({name for total in sums.values() for name in total["communicators"]})
    return Choice(None, everything, "no file records when ranks entered and left collectives")


COUNTED = frozenset({"kineto"})
"""Sources in which collectives may have no numbers, and were counted."""
PREFERENCES = (
    ("nccl_inspector", "kernel", "NCCL Inspector saw each kernel start and end"),
    ("kineto", "timed", "kernel times of profiler traces; no Inspector log has them"),
    ("nccl_inspector", "timed", "NCCL Inspector without kernel times: as the host saw it"),
    (
        "nccl_inspector",
        "measured",
        "NCCL Inspector, not verbose: durations, as if all ranks had left together; an estimate",
    ),
    (
        "flight_recorder",
        "measured",
        "Flight Recorder only: its durations, as if all ranks had left together; an estimate",
    ),
)
"""Source, which of its records it must have, and the reason for the choice; the best first."""


def placed(records: Records, job: Job) -> Records:
    """The records, with hosts for ranks whose file names none.

    Profiler traces name no host. Where other files do, that name is used; else every rank counts as
    a host of its own, because its clock is one.
    """
    if "" not in records.hosts:
        return records
    nowhere = records.hosts.index("")
    ranks = job_ranks_of_rows(records, job.job_ranks)
    lost = records.host == nowhere
    names = list(records.hosts)
    code = {name: number for number, name in enumerate(names)}
    host = records.host.copy()
    for rank in np.unique(ranks[lost]).tolist():
        place = job.places.get(rank)
        name = (place.host if place is not None else None) or f"{UNNAMED_HOST} {rank}"
        if name not in code:
            code[name] = len(names)
            names.append(name)
        host[lost & (ranks == rank)] = code[name]
    return msgspec.structs.replace(records, hosts=names, host=host)


def leaving_together(records: Records) -> tuple[Records, dict[str, int]]:
    """The same with entries and exits computed from durations; none where nothing was measured.

    And hosts whose clocks were far ahead, which is taken off.

    The Flight Recorder's own times are when a watchdog looked, and NCCL Inspector without its
    verbose mode has only when a line was written: too late, by up to seconds. But how long each
    rank was inside, the GPU's clock has measured, and ranks leave an operation nearly together: at
    the latest when the first of them was seen to have. In a ring with a slow link they do not
    quite, which makes waiting look longer and the transfer shorter.
    """
    if not len(records):
        return records, {}
    measured = (records.duration_ns != ABSENT) & (records.exit_ns != ABSENT)
    records, far = put_together(records, measured)
    index = operation_index(records)
    seen = np.where(measured, records.exit_ns, np.iinfo(np.int64).max)
    exits = np.minimum.reduceat(seen, starts_of(index))[index]
    together = msgspec.structs.replace(
        records,
        entry_ns=np.where(measured, exits - records.duration_ns, ABSENT),
        exit_ns=np.where(measured, exits, ABSENT),
    )
    return together, far


def rank_rows(records: Records, job_ranks: Mapping[tuple[str, int], int]) -> RankRows:
    """How late each rank came to each operation; operations that one rank was seen in are out."""
    rows: Records = records.select(joinable(records))
    index = operation_index(rows)
    if len(rows):
        rows = rows.select((np.bincount(index) > 1)[index])
        index = operation_index(rows)
    if not len(rows):
        none = np.zeros(0, dtype=np.int64)
        return RankRows(
            rank=none.astype(np.int32), entry_ns=none, late_ns=none, inside_ns=none,
            is_last=none, is_least=none,
        )  # fmt: skip
    starts = starts_of(index)
    inside = rows.exit_ns - rows.entry_ns
    return RankRows(
        rank=job_ranks_of_rows(rows, job_ranks),
        entry_ns=rows.entry_ns,
        late_ns=rows.entry_ns - medians(rows.entry_ns, index)[index],
        inside_ns=inside,
        is_last=(rows.entry_ns == np.maximum.reduceat(rows.entry_ns, starts)[index]).astype(int),
        is_least=(inside == np.minimum.reduceat(inside, starts)[index]).astype(int),
    )


# Steps -------------------------------------------------------------------------------------------


def find_steps(
    store: ThrowAwayStore,
    job: Job,
    within: TimeRange,
    joined: tuple[Records, Operations],
    fits: Sequence[ClockFit],
    *,
    is_estimate: bool,
) -> tuple[list[Step], str]:
    """The job's steps, and where they come from: marks win, then collectives, then profiles."""
    spans: dict[str, list[Span]] = {}
    for source, span in read_spans(store, job, within, fits):
        spans.setdefault("profile" if source == "kineto" else "marks", []).append(span)
    records, operations = joined
    work = to_work(records, job.job_ranks, operations)
    whole = with_messages(work, records, job.job_ranks)
    if marks := spans.get("marks"):
        return measure_steps(whole, to_bounds(marks)), "marks"
    # Estimates are too coarse for steps: a watchdog looks ten times a second.
    if not is_estimate and (steps := infer_steps(records, job.job_ranks, operations)):
        return steps, "collectives"
    if profile := spans.get("profile"):
        return measure_steps(whole, to_bounds(profile)), "profile"
    return [], "nothing"


Span = tuple[int, int, int, int]
"""Rank, number, start and end."""


def read_spans(
    store: ThrowAwayStore,
    job: Job,
    within: TimeRange,
    fits: Sequence[ClockFit],
    phase: str = "",
) -> Iterator[tuple[str, Span]]:
    """A phase of the job's ranks, or whole steps, with the source, on the common clock."""
    by_process = {(place.host, place.pid): place.rank for place in job.found.places}
    keys = {collection.key for collection in job.collections} | {job.name}
    clocks = host_clocks(fits)
    for row in store.rows("steps", STEPS_SQL, within.parameters() | {"phase": phase}):
        rank = by_process.get((row["host"], row["pid"]))
        if rank is None and row["job"] in keys and row["rank"] >= 0:
            rank = row["rank"]
        if rank is None:
            continue
        place = job.places.get(rank)
        host = row["host"] or (place.host if place is not None else None) or ""
        shift = int(ahead_of(clocks, host, np.array([row["start_ns"]]))[0])
        yield row["source"], (rank, row["step"], row["start_ns"] - shift, row["end_ns"] - shift)


def read_computing(
    store: ThrowAwayStore, job: Job, within: TimeRange, fits: Sequence[ClockFit]
) -> Computing | None:
    """What the ranks' GPUs computed by their profiles; None where there is none."""
    spans = [span for _, span in read_spans(store, job, within, fits, COMPUTING)]
    if not spans:
        return None
    rows = np.array(spans, dtype=np.int64)
    return Computing(rank=rows[:, 0], start_ns=rows[:, 2], end_ns=rows[:, 3])


def to_bounds(spans: Sequence[Span]) -> Bounds:
    rows = np.array(sorted(spans, key=lambda span: (span[0], span[2])), dtype=np.int64)
    return Bounds(
        rank=rows[:, 0].astype(np.int32), number=rows[:, 1], start_ns=rows[:, 2], end_ns=rows[:, 3]
    )
