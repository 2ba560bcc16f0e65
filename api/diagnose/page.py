"""The report as one HTML file that needs nothing else: no scripts, no fonts, no network.

Everything that comes from outside passes `safe`; a content policy in the page forbids scripts
and requests even if something should slip through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.window import Window
from api.diagnose import plots, units
from api.diagnose.analyse import Analysis
from api.diagnose.cards import facts, legend, section, table
from api.diagnose.plots import Plot, safe
from api.diagnose.readings import Line, Readings
from api.diagnose.report import CollectiveReport, Diagnosis, JobReport, Problem
from api.diagnose.style import HUES, STYLE
from api.diagnose.text import last_in_of, rank_cells, reason_of, slowest_of
from api.diagnose.verdict_page import verdict_part

STEP_BARS_MAX = 600
"""Bars of the step plot; of more steps neighbours are put together."""
HEAT_COLUMNS_MAX = 240
HEAT_ROWS_MAX = 64
"""Ranks of the heat map; of more, those that are ever waited for longest."""
PANELS_MAX = 6
"""Plots of single collectives; of more kinds those that took longest."""
PROBLEMS_SHOWN = 200
HEADROOM = 1.1
"""How much higher than its highest bar a plot is."""
NAMES_LEFT = 150
"""Room for ranks' names; the plot of steps has it too, so that steps stand above each other."""

Numbers = tuple[str, ...]


def render(
    diagnosis: Diagnosis,
    analyses: Sequence[Analysis],
    readings: Sequence[list[Readings]],
    seen: Window | None = None,
) -> Iterator[str]:
    """The page, piece by piece; analyses and readings are those of the jobs, in order.

    ``seen`` is what detectors saw: the evidence is drawn from it.
    """
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    yield f"<title>Fabricscope report</title><style>{STYLE}</style></head><body><main>"
    yield from header(diagnosis)
    yield from verdict_part(diagnosis, analyses, seen)
    for job, analysis, panels in zip(diagnosis.jobs, analyses, readings, strict=True):
        yield from job_part(job, analysis, panels)
    yield from warning_part(diagnosis)
    yield from read_part(diagnosis)
    yield "</main></body></html>\n"


def header(diagnosis: Diagnosis) -> Iterator[str]:
    """What this is about."""
    read = diagnosis.read
    jobs = units.count(len(diagnosis.jobs), "job")
    yield "<h1>Fabricscope report</h1>"
    yield (
        f'<p class="soft">{jobs} in {units.count(read.files, "file")}, '
        f"{units.size(read.size_bytes)}</p>"
    )


def job_part(job: JobReport, analysis: Analysis, panels: Sequence[Readings]) -> Iterator[str]:
    """Everything about one job."""
    yield f"<h2>Job {safe(job.job)}</h2>"
    named = "named by its own files" if job.was_said else "inferred from who talks to whom"
    times = f"times of {job.source}: {job.source_reason}" if job.source else job.source_reason
    yield f'<p class="soft">{safe(named)}; {safe(times)}</p>'
    yield facts(job_facts(job))
    yield from step_part(job)
    yield from heat_part(job, analysis)
    yield from pending_part(job)
    yield from collective_part(job)
    yield from rank_part(job)
    yield from slowest_part(job)
    yield from reading_part(job, panels)
    yield from communicator_part(job)


def job_facts(job: JobReport) -> list[tuple[str, str]]:
    """The job in a few numbers."""
    hosts = {rank.host for rank in job.ranks if rank.host}
    took = [step.end_ns - step.start_ns for step in job.steps]
    clocks = [clock for fit in job.clocks for clock in fit.clocks]
    worst = max((abs(clock.offset_ns) for clock in clocks), default=None)
    residual = max((clock.residual_ns for clock in clocks), default=None)
    changed = sum(clock.is_corrected for clock in clocks)
    return [
        ("ranks", f"{job.size:,}"),
        ("hosts", f"{len(hosts):,}" if hosts else ""),
        ("NCCL", ", ".join(job.nccl_versions)),
        ("network", ", ".join(job.networks)),
        (f"from {units.moment(job.first_ns)}", units.duration(job.last_ns - job.first_ns)),
        ("steps", f"{len(job.steps):,}" if took else ""),
        ("median step", units.duration(float(np.median(took))) if took else ""),
        ("p95 of steps", units.duration(float(np.quantile(took, 0.95))) if took else ""),
        (
            f"worst clock, good to {units.duration(residual)}, "
            + (f"{changed} corrected" if changed else "none corrected"),
            units.duration(worst) if worst is not None else "",
        ),
        ("operations that did not end", f"{job.pending_total:,}" if job.pending_total else ""),
    ]


# Steps -------------------------------------------------------------------------------------------

PARTS = (("compute", "compute"), ("transfer", "transfer"), ("wait", "wait"))


def step_part(job: JobReport) -> Iterator[str]:
    """Where the time of each step went."""
    if not job.steps:
        return
    groups = np.array_split(np.arange(len(job.steps)), min(len(job.steps), STEP_BARS_MAX))
    spans, titles = [], []
    heights: dict[str, list[float]] = {name: [] for name, _ in PARTS}
    for group in groups:
        some = [job.steps[place] for place in group.tolist()]
        spans.append((float(some[0].number), float(some[-1].number + 1)))
        middle = {
            "compute": float(np.median([step.compute_ns for step in some])),
            "wait": float(np.median([step.wait_ns for step in some])),
            "transfer": float(np.median([step.transfer_ns for step in some])),
        }
        for name, _ in PARTS:
            heights[name].append(middle[name] / 1e6)
        number = str(some[0].number) if len(some) == 1 else f"{some[0].number}-{some[-1].number}"
        after = units.duration(some[0].start_ns - job.first_ns)
        parts = ", ".join(f"{name} {units.duration(value)}" for name, value in middle.items())
        last = some[0].last_rank
        waited = f", waited for rank {last}" if last is not None and len(some) == 1 else ""
        titles.append(f"step {number}, {after} after the start: {parts}{waited}")
    totals = np.sum([heights[name] for name, _ in PARTS], axis=0)
    top = units.scale_top(totals.tolist()) * HEADROOM or 1.0
    plot = Plot(
        (spans[0][0], spans[-1][1]), top, height=270, unit="ms", across_unit="", left=NAMES_LEFT
    )
    plot.axes()
    layers = [(name, clipped(heights, name, top)) for name, _ in PARTS]
    plots.stacked_bars(plot, spans, layers, titles)
    higher = int((totals > top).sum())
    note = f" {units.count(higher, 'bar')} higher than the plot." if higher else ""
    yield section(
        "Steps",
        "Median over ranks. Compute is outside collectives, wait inside them until the last rank "
        f"came, transfer inside after that.{note}",
        legend([(name, title) for name, title in PARTS]),
        plot.svg("time of each step, split into compute, wait and transfer"),
    )


def clipped(heights: dict[str, list[float]], name: str, top: float) -> list[float]:
    """One layer's heights; what would stand out of the plot is cut."""
    below = np.zeros(len(heights[name]))
    for other, _ in PARTS:
        if other == name:
            break
        below += np.array(heights[other])
    room = np.maximum(0.0, top - below)
    cut: list[float] = np.minimum(np.array(heights[name]), room).tolist()
    return cut


def heat_part(job: JobReport, analysis: Analysis) -> Iterator[str]:
    """How late each rank came, step by step."""
    rows = analysis.by_rank
    known = rows.rank >= 0
    if not known.any():
        return
    if len(job.steps) > 1:
        edges_ns = np.array([step.start_ns for step in job.steps] + [job.steps[-1].end_ns])
        numbers = np.array([step.number for step in job.steps] + [job.steps[-1].number + 1])
        kept = np.unique(np.linspace(0, len(numbers) - 1, HEAT_COLUMNS_MAX + 1).astype(int))
        kept = kept if len(numbers) > HEAT_COLUMNS_MAX else np.arange(len(numbers))
        edges_ns, across = edges_ns[kept], numbers[kept].astype(np.float64)
        unit, what = "", "step"
    else:
        edges_ns = np.linspace(job.first_ns, job.last_ns + 1, HEAT_COLUMNS_MAX // 2)
        across = (edges_ns - job.first_ns) / 1e9
        unit, what = "s", "at"
    ranks = np.unique(rows.rank[known])
    cells = np.full((len(ranks), len(across) - 1), -np.inf)
    column = np.searchsorted(edges_ns, rows.entry_ns, side="right") - 1
    inside = known & (column >= 0) & (column < len(across) - 1)
    place = np.searchsorted(ranks, rows.rank[inside])
    np.maximum.at(cells, (place, column[inside]), rows.late_ns[inside].astype(np.float64))
    cells[np.isneginf(cells)] = np.nan
    if len(ranks) > HEAT_ROWS_MAX:
        worst = np.argsort(-np.nan_to_num(np.nanquantile(cells, 0.9, axis=1)))[:HEAT_ROWS_MAX]
        worst = np.sort(worst)
        ranks, cells = ranks[worst], cells[worst]
    finite = cells[np.isfinite(cells)]
    top = max(1e6, float(np.quantile(finite, 0.98))) if len(finite) else 1e6
    hosts = {rank.rank: rank.host or "" for rank in job.ranks}
    names = [f"rank {rank} {hosts.get(rank, '')}".strip() for rank in ranks.tolist()]
    height = int(max(12, min(26, 900 / len(names))) * len(names)) + plots.TOP + plots.BOTTOM
    bounds = (float(across[0]), float(across[-1]))
    plot = Plot(bounds, 1.0, height=height, across_unit=unit, left=NAMES_LEFT)
    plot.lower_axis()
    titles = [f"{what} {value:.6g}{' ' + unit if unit else ''}" for value in across[:-1].tolist()]
    plots.heat_map(plot, across.tolist(), names, cells, titles, top=top)
    yield section(
        "Who was waited for",
        "The most that each rank entered a collective behind the median rank, "
        f"{'over time' if unit else 'step by step'}. Full colour: {units.duration(top)} or more.",
        plot.svg("lateness of each rank over steps"),
    )


# Collectives -------------------------------------------------------------------------------------


def collective_part(job: JobReport) -> Iterator[str]:
    """Wait and transfer of each collective over time, a plot for each kind."""
    kinds: dict[tuple[str, int | None], list[CollectiveReport]] = {}
    for each in job.collectives:
        kinds.setdefault((each.operation, each.size_bytes), []).append(each)
    longest = sorted(kinds.items(), key=lambda item: -sum(e.end_ns - e.start_ns for e in item[1]))
    for (operation, size), some in longest[:PANELS_MAX]:
        yield collective_panel(job, operation, size, some)
    if len(longest) > PANELS_MAX:
        rest = len(longest) - PANELS_MAX
        yield f'<p class="soft">{units.count(rest, "more kind")} of collectives not shown.</p>'


def collective_panel(
    job: JobReport, operation: str, size: int | None, some: Sequence[CollectiveReport]
) -> str:
    """One kind of collective: a dot for its wait and one for its transfer."""
    took = np.array([each.end_ns - each.start_ns for each in some])
    chosen = [some[place] for place in plots.thinned(took, plots.POINTS_MAX // 2).tolist()]
    both = [t for each in chosen for t in (each.entry_skew_ns, each.transfer_ns)]
    low = max(float(np.quantile(both, 0.01)) / 1e6 / 2, 0.01)
    across = (0.0, (job.last_ns - job.first_ns) / 1e9)
    plot = Plot(
        across, max(max(both) / 1e6, low) * 1.3, height=210, low=low, is_log=True, unit="ms"
    )
    plot.axes()
    for kind in ("wait", "transfer"):
        points, titles = [], []
        for each in chosen:
            value = each.entry_skew_ns if kind == "wait" else each.transfer_ns
            points.append(((each.start_ns - job.first_ns) / 1e9, max(value / 1e6, low)))
            titles.append(
                f"number {each.sequence}: wait {units.duration(each.entry_skew_ns)}, "
                f"transfer {units.duration(each.transfer_ns)}, last in {last_in_of(each)}"
            )
        plots.dots(plot, kind, points, titles)
    return section(
        f"{operation}, {units.size(size)}",
        f"{units.count(len(some), 'collective')}: how long the first rank waited for the last one, "
        "and how long it took after that.",
        legend([("wait", "wait (entry skew)"), ("transfer", "transfer")]),
        plot.svg(f"wait and transfer of {operation} over time"),
    )


def rank_part(job: JobReport) -> Iterator[str]:
    """How late each rank comes, over the whole run."""
    ranks = [rank for rank in job.ranks if rank.operations]
    if len(ranks) > plots.POINTS_MAX:
        ranks = sorted(ranks, key=lambda rank: -rank.last_in)[: plots.POINTS_MAX]
    if ranks:
        headings = (
            ">rank", "host", "GPU", ">times last in", ">of", ">usually late", ">most late",
            ">usually inside",
        )  # fmt: skip
        rows = [(rank_cells(rank), "hot" if rank.is_outlier else "") for rank in ranks]
        yield section(
            "Ranks",
            "Late: behind the median rank's entry. The rank that others wait for enters last and "
            "spends the least time inside.",
            table(headings, rows),
        )


def slowest_part(job: JobReport) -> Iterator[str]:
    """The collectives that took longest, compared with their like."""
    slowest = slowest_of(job.collectives)
    if not slowest:
        return
    rows = [
        (
            (
                units.duration(each.start_ns - job.first_ns), each.operation,
                units.size(each.size_bytes), str(each.sequence), units.duration(each.slower_ns),
                units.duration(each.entry_skew_ns), units.duration(each.transfer_ns),
                last_in_of(each), each.communicator,
            ),
            "",
        )
        for each in slowest
    ]  # fmt: skip
    headings = (
        ">after start", "operation", ">size", ">number", ">slower by", ">wait", ">transfer",
        "last in", "communicator",
    )  # fmt: skip
    yield section(
        "Slowest collectives",
        "Compared with the median of the same communicator, operation and size.",
        table(headings, rows),
    )


def pending_part(job: JobReport) -> Iterator[str]:
    """Operations that did not end."""
    if not job.pending:
        return
    names = {report.communicator: report.name for report in job.communicators}
    members = {
        report.communicator: [m.job_rank for m in report.members if m.job_rank is not None]
        for report in job.communicators
    }
    rows = []
    for each in job.pending[:PROBLEMS_SHOWN]:
        absent = [rank for rank in members.get(each.communicator, []) if rank not in each.job_ranks]
        cells = (
            names.get(each.communicator) or each.communicator, each.operation, str(each.sequence),
            units.ranks(each.job_ranks, 24), units.ranks(absent, 24) if absent else "-",
        )  # fmt: skip
        rows.append((cells, "hot" if absent else ""))
    yield section(
        f"Operations that did not end ({job.pending_total:,})",
        "As dumps of the Flight Recorder tell: who waits in them, and who of the group does not.",
        table(("group", "operation", ">number", "waiting in it", "not in it"), rows),
    )


def communicator_part(job: JobReport) -> Iterator[str]:
    """Who is in which communicator, and how it is wired."""
    rows = []
    for each in job.communicators[:PROBLEMS_SHOWN]:
        members = [member.job_rank for member in each.members if member.job_rank is not None]
        wires = [
            units.count(len(each.rings), "ring") if each.rings else "",
            units.count(len(each.trees), "tree") if each.trees else "",
        ]
        ring = " ".join(map(str, each.rings[0][:32])) if each.rings else ""
        done = ", ".join(f"{number:,} {name}" for name, number in each.operations.items())
        cells = (
            each.communicator, each.name or "", units.ranks(members, 16) if members else "-",
            ", ".join(wire for wire in wires if wire), ring, done,
        )  # fmt: skip
        rows.append((cells, ""))
    if rows:
        headings = ("communicator", "name", "ranks", "wired as", "first ring", "operations")
        yield section("Communicators", "As far as files tell.", table(headings, rows))


# Readings and files ------------------------------------------------------------------------------


def reading_part(job: JobReport, panels: Sequence[Readings]) -> Iterator[str]:
    """Network and GPU readings beside the job."""
    for each in panels:
        top = max(float(np.nanmax(line.value)) for line in each.lines) * 1.08
        across = (0.0, (job.last_ns - job.first_ns) / 1e9)
        plot = Plot(across, top, height=200, unit=each.panel.unit)
        plot.axes()
        is_few = len(each.lines) <= len(HUES)
        for place, one in enumerate(each.lines):
            kind = f"l{place}" if is_few else "many"
            seconds = (one.time_ns - job.first_ns) / 1e9
            plots.line(plot, kind, seconds, one.value, reading_title(one, each))
        more = f" {units.count(each.left_out, 'quieter line')} not shown." if each.left_out else ""
        names = [(str(place), one.name) for place, one in enumerate(each.lines)] if is_few else []
        yield section(
            each.panel.title,
            f"{units.count(len(each.lines), 'series', 'series')}, in {each.panel.unit}.{more}",
            legend(names),
            plot.svg(each.panel.title),
        )


def reading_title(one: Line, readings: Readings) -> str:
    """What a line shows when the pointer rests on it."""
    middle, top = np.nanmedian(one.value), np.nanmax(one.value)
    return f"{one.name}: median {middle:.4g}, most {top:.4g} {readings.panel.unit}"


def warning_part(diagnosis: Diagnosis) -> Iterator[str]:
    """What NCCL itself warned of."""
    if diagnosis.warnings:
        rows = [
            ((f"{each.count:,}", each.message, ", ".join(each.hosts[:8])), "")
            for each in diagnosis.warnings
        ]
        yield section("NCCL warned", "Equal messages are one.", table((">times", "", "on"), rows))


def read_part(diagnosis: Diagnosis) -> Iterator[str]:
    """What was read, and what was not."""
    read = diagnosis.read
    yield "<h2>What was read</h2>"
    rows = [
        (
            (
                each.title, f"{each.files:,}", units.size(each.size_bytes),
                units.counts(each.counts),
                units.span(each.first_ns, each.last_ns),
            ),
            "",
        )
        for each in read.formats
    ]  # fmt: skip
    body = table(("kind", ">files", ">size", "records", "time"), rows)
    lost = sum(loss.lost for loss in read.losses)
    losses = f"{units.count(lost, 'record')} lost by gaps in their numbers." if lost else ""
    yield section("Files", losses or "No record is missing between others.", body)
    for what, problems, total in (
        ("Read in part", read.broken, read.broken_count),
        ("Not understood", read.not_understood, read.not_understood_count),
        ("Left out", read.left_out, len(read.left_out)),
    ):
        if total:
            yield problem_list(what, problems, total)


def problem_list(what: str, problems: Sequence[Problem], total: int) -> str:
    """Files with problems, folded."""
    shown = "".join(
        f"<li><code>{safe(problem.path)}</code>: {safe(reason_of(problem))}</li>"
        for problem in problems[:PROBLEMS_SHOWN]
    )
    return (
        f"<section><details><summary>{safe(what)}: {units.count(total, 'file')}</summary>"
        f"<ul>{shown}</ul></details></section>"
    )
