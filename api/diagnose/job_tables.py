"""A job's tables and numbers as texts, for the report in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.diagnose import stage_words, units
from api.diagnose.clock_words import clock_lines
from api.diagnose.page_data import Column, Row, Table, share_of
from api.diagnose.report import JobReport, Quantiles
from api.diagnose.text import (
    is_whole,
    last_in_of,
    not_in_it,
    oldest_pending,
    rank_cells,
    slowest_of,
)

RANKS_SHOWN = 6_000
"""Rows of the table of ranks; of more, those that are last in most often. Jobs share them."""
ROWS_SHOWN = 200
"""Rows of the other tables; --json has all."""


def table(
    title: str,
    explanation: str,
    headings: Sequence[str],
    rows: Sequence[tuple[Sequence[str], bool]],
) -> Table:
    """A table; a heading that begins with `>` is of numbers. Rows are cells and whether marked."""
    return Table(
        title=title,
        explanation=explanation,
        columns=[Column(name.removeprefix(">"), name.startswith(">")) for name in headings],
        rows=[Row(cells, is_marked) for cells, is_marked in rows],
    )


def job_facts(job: JobReport) -> list[tuple[str, str]]:
    hosts = {rank.host for rank in job.ranks if rank.host}
    took = [step.end_ns - step.start_ns for step in job.steps]
    clocks = [clock for fit in job.clocks for clock in fit.clocks if clock.is_known]
    worst = max((abs(clock.offset_ns) for clock in clocks), default=None)
    residual = max((clock.residual_ns for clock in clocks), default=None)
    changed = len({clock.host for clock in clocks if clock.is_corrected})
    facts = [
        ("ranks", f"{job.size:,}"),
        ("hosts", f"{len(hosts):,}" if hosts else ""),
        ("NCCL", ", ".join(job.nccl_versions)),
        ("network", ", ".join(job.networks)),
        (
            f"seen for, from {units.moment(job.first_ns)}",
            units.duration(job.last_ns - job.first_ns),
        ),
        ("steps", f"{len(job.steps):,}" if took else ""),
        ("median step", units.duration(float(np.median(took))) if took else ""),
        ("p95 of steps", units.duration(float(np.quantile(took, 0.95))) if took else ""),
        (
            f"worst clock, good to {units.duration(residual)}, "
            + (f"{changed} corrected" if changed else "none corrected"),
            units.duration(worst) if worst is not None else "",
        ),
        *(("clocks", line) for line in clock_lines(job.clocks)),
        ("operations that did not end", f"{job.pending_total:,}" if job.pending_total else ""),
        (
            "operations are looked at, since there are too many",
            f"one in {job.kept_one_in:,}" if job.kept_one_in > 1 else "",
        ),
    ]
    return [(name, value) for name, value in facts if value]


def job_tables(job: JobReport, among: int = 1) -> list[Table]:
    """The tables below a job's plots; ``among`` is the number of jobs on the page."""
    found = (
        operation_table(job),
        stage_table(job),
        rank_table(job, share_of(RANKS_SHOWN, among)),
        slowest_table(job),
        communicator_table(job),
    )
    return [each for each in found if each.rows]


def operation_table(job: JobReport) -> Table:
    names = {report.communicator: report.name for report in job.communicators}
    rows = [
        (
            (
                names.get(each.communicator) or each.communicator, each.operation,
                units.size(each.size_bytes), f"{each.count:,}",
                f"{each.count - each.complete:,}", quantiles(each.entry_skew),
                quantiles(each.transfer), units.rate(each.bus_bandwidth_bytes_per_second),
                units.rate(each.baseline_bytes_per_second),
            ),
            False,
        )
        for each in job.operations[:ROWS_SHOWN]
    ]  # fmt: skip
    headings = (
        "communicator", "operation", ">size", ">times", ">incomplete", ">wait p50 / p95 / most",
        ">transfer p50 / p95 / most", ">bus bandwidth", ">in nccl-tests",
    )  # fmt: skip
    explanation = (
        "Wait: from the first rank's entry to the last one's. Transfer: from there to the last "
        "exit. Bandwidth is the median over the transfer."
    )
    return table("Collectives", explanation, headings, rows)


def quantiles(taken: Quantiles) -> str:
    return " / ".join(units.duration(each) for each in (taken.p50_ns, taken.p95_ns, taken.max_ns))


def rank_table(job: JobReport, ranks_max: int = RANKS_SHOWN) -> Table:
    ranks = [rank for rank in job.ranks if rank.operations]
    if len(ranks) > ranks_max:
        ranks = sorted(ranks, key=lambda rank: -rank.last_in)[:ranks_max]
    headings = (
        ">rank", "host", "GPU", ">times last in", ">of", ">usually late", ">most late",
        ">usually inside",
    )  # fmt: skip
    return table(
        "Ranks",
        "Late: behind the median rank's entry. The rank that others wait for enters last and "
        "spends the least time inside.",
        headings,
        [(rank_cells(rank), rank.is_outlier) for rank in ranks],
    )


def stage_table(job: JobReport) -> Table:
    stages = job.stages
    rows = [
        (stage_words.stage_cells(each), stages is not None and each.stage == stages.pace)
        for each in (stages.stages if stages is not None else [])
    ]
    headings = [
        f">{name}" if place >= stage_words.NUMBERS_FROM else name
        for place, name in enumerate(stage_words.HEADINGS)
    ]
    lines = stage_words.stage_lines(stages) if stages is not None else []
    return table(stage_words.TITLE, " ".join(lines), headings, rows)


def slowest_table(job: JobReport) -> Table:
    rows = [
        (
            (
                units.duration(each.start_ns - job.first_ns), each.operation,
                units.size(each.size_bytes), str(each.sequence), units.duration(each.slower_ns),
                units.duration(each.entry_skew_ns), units.duration(each.transfer_ns),
                last_in_of(each), each.communicator,
            ),
            False,
        )
        for each in slowest_of(job.collectives)
    ]  # fmt: skip
    headings = (
        ">after start", "operation", ">size", ">number", ">slower by", ">wait", ">transfer",
        "last in", "communicator",
    )  # fmt: skip
    explanation = "Compared with the median of the same communicator, operation and size."
    return table("Slowest collectives", explanation, headings, rows)


def pending_table(job: JobReport) -> Table | None:
    if not job.pending:
        return None
    names = {report.communicator: report.name for report in job.communicators}
    members = {each.communicator: each.job_ranks for each in job.communicators}
    rows = []
    for each in oldest_pending(job)[:ROWS_SHOWN]:
        absent = not_in_it(job, each, members.get(each.communicator, []))
        cells = (
            names.get(each.communicator) or each.communicator, each.operation, str(each.sequence),
            units.ranks(each.job_ranks, 24), absent,
        )  # fmt: skip
        rows.append((cells, not is_whole(each)))
    return table(
        f"Operations that did not end ({job.pending_total:,})",
        "From dumps of the Flight Recorder: the oldest of each group, which ranks wait in it, and "
        "which others do not. Marked: not all of the group wait in it.",
        ("group", "oldest operation", ">number", "waiting in it", "not in it"),
        rows,
    )


def communicator_table(job: JobReport) -> Table:
    rows = []
    for each in job.communicators[:ROWS_SHOWN]:
        ring = " ".join(map(str, each.rings[0][:32])) if each.rings else ""
        done = ", ".join(f"{number:,} {name}" for name, number in each.operations.items())
        cells = (
            each.communicator, each.name or "",
            units.ranks(each.job_ranks, 16) if each.job_ranks else "-", each.wiring, ring, done,
        )  # fmt: skip
        rows.append((cells, False))
    headings = ("communicator", "name", "ranks", "wired as", "first ring", "operations")
    return table("Communicators", "As far as the files show.", headings, rows)
