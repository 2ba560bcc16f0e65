"""A folder's jobs as a trace, as the service writes one; its records are in memory already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from alerts.window.clocks import operation_index
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Rank, Window
from alerts.window.steps import infer_bounds, to_work
from api.base.trace_limits import TRACE_RECORDS_MAX, TRACE_SPANS_MAX
from api.data.store.store import Store
from api.diagnose.analyse import Analysis
from api.jobs.trace.subject import Ahead, Machines, Span, Story, Subject, Trouble
from api.jobs.trace.tell import write_story
from collector.contract.identity import PortId
from collector.contract.verdict import Verdict

PIECE_RECORDS = 20_000
SPANS_AT_ONCE = 20_000
SWITCH_PORTS_MAX = 256

SPANS_SQL = f"""
    SELECT job, step, rank, phase, source, host, pid,
           toUnixTimestamp64Nano(start) AS start_ns, toUnixTimestamp64Nano(end) AS end_ns
    FROM steps FINAL
    WHERE start BETWEEN fromUnixTimestamp64Nano({{from_ns:Int64}})
                    AND fromUnixTimestamp64Nano({{to_ns:Int64}})
    ORDER BY start, end DESC LIMIT {TRACE_SPANS_MAX}
"""  # noqa: S608 - our words
SPAN_NAMES = ("job", "step", "rank", "phase", "source", "host", "pid", "start_ns", "end_ns")


def write_trace(
    store: Store, verdicts: Sequence[Verdict], analyses: Sequence[Analysis], seen: Window
) -> Iterator[bytes]:
    pairs = list(zip(seen.jobs, analyses, strict=True))
    from_ns, to_ns = span_of(analyses, seen)
    story = Story(
        from_ns=from_ns,
        to_ns=to_ns,
        subjects=[to_subject(store, job, analysis, from_ns, to_ns) for job, analysis in pairs],
        machines=machines_of(seen, verdicts),
        troubles=[Trouble(verdict=verdict) for verdict in verdicts],
        events=seen.events,
    )
    return write_story(store, story)


def span_of(analyses: Sequence[Analysis], seen: Window) -> tuple[int, int]:
    """From the first entry of any rank to the last exit: windows begin with the first record."""
    from_ns, to_ns = seen.from_ns, seen.to_ns
    for analysis in analyses:
        timed = analysis.records.timed()
        if timed.any():
            from_ns = min(from_ns, int(analysis.records.entry_ns[timed].min()))
            to_ns = max(to_ns, int(analysis.records.exit_ns[timed].max()))
    return from_ns, to_ns


def to_subject(
    store: Store, job: JobWindow, analysis: Analysis, from_ns: int, to_ns: int
) -> Subject:
    job_rank = analysis.job.job_ranks
    ranks = {**{rank: Rank(rank=rank) for rank in job_rank.values()}, **job.ranks}
    kept, every = thinned(analysis.records)
    is_inferred = analysis.steps_from == "collectives"
    work = to_work(kept, job_rank, analysis.operations) if is_inferred and every == 1 else None
    return Subject(
        job=msgspec.structs.replace(job, ranks=ranks, kept_one_in=job.kept_one_in * every),
        job_rank=job_rank,
        records=lambda: in_pieces(kept),
        spans=lambda: read_spans(store, analysis, from_ns, to_ns),
        bounds=infer_bounds(work) if work is not None else None,
        has_marks=not is_inferred,
    )


def thinned(records: Records) -> tuple[Records, int]:
    """The records, or those of every nth operation where there are more than a trace may have."""
    every = -(-len(records) // TRACE_RECORDS_MAX)
    if every <= 1:
        return records, 1
    kept: Records = records.select(operation_index(records) % every == 0)
    return kept, every


def in_pieces(records: Records) -> Iterator[Records]:
    order = np.argsort(np.maximum(records.entry_ns, records.exit_ns), kind="stable")
    for start in range(0, len(order), PIECE_RECORDS):
        yield records.select(order[start : start + PIECE_RECORDS])


def read_spans(store: Store, analysis: Analysis, from_ns: int, to_ns: int) -> Iterator[list[Span]]:
    job = analysis.job
    by_process = {(place.host, place.pid): place.rank for place in job.found.places}
    keys = {collection.key for collection in job.collections} | {job.name}
    ahead = Ahead(analysis.fits)
    table = store.query(SPANS_SQL, {"from_ns": from_ns, "to_ns": to_ns})
    for start in range(0, table.num_rows, SPANS_AT_ONCE):
        some = table.slice(start, SPANS_AT_ONCE)
        spans = []
        columns = [some[name].to_pylist() for name in SPAN_NAMES]
        for key, step, own_rank, phase, source, host, pid, begin, end in zip(*columns, strict=True):
            rank = by_process.get((host, pid))
            if rank is None and key in keys and own_rank >= 0:
                rank = own_rank
            if rank is not None:
                place = job.places.get(rank)
                where = host or (place.host if place is not None else None) or ""
                moved = ahead.corrected_one(where, begin)
                spans.append(Span(rank, step, phase, moved, moved + end - begin, source))
        yield spans


def machines_of(seen: Window, verdicts: Sequence[Verdict]) -> Machines:
    hosts = dict.fromkeys(one.culprit.host for one in verdicts if one.culprit.host)
    for job in seen.jobs:
        hosts |= dict.fromkeys(rank.host for _, rank in sorted(job.ranks.items()) if rank.host)
    ports = seen.ports
    is_switch = ports.is_switch.tolist()
    hosts |= dict.fromkeys(
        host for host, switch in zip(ports.host, is_switch, strict=True) if not switch
    )
    hosts |= dict.fromkeys(seen.gpus.host)
    keys = zip(ports.host, ports.device, ports.port, is_switch, strict=True)
    switches = [PortId(host, device, port) for host, device, port, switch in keys if switch]
    return Machines(
        hosts=list(hosts),
        switch_ports=frozenset(switches[:SWITCH_PORTS_MAX]),
        switch_ports_left_out=max(0, len(switches) - SWITCH_PORTS_MAX),
        unnamed=f"job {seen.jobs[0].job}" if seen.jobs else "incidents",
    )
