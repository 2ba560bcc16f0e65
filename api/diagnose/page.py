"""The report as one HTML file that needs nothing else: no fonts, no network, no other files.

The file is made of the built-in page's own parts: `make page` builds an empty report with its
script and style inside (`dashboards/web/report.html`), and here the data goes into it. A content
policy in the page allows that one script and no request; everything that comes from outside is
data, which the script shows as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from alerts.window.columns import Floats
from alerts.window.model import Window
from api.diagnose import units
from api.diagnose.analyse import Analysis
from api.diagnose.job_tables import job_facts, job_tables, pending_table, table
from api.diagnose.page_data import (
    CollectivePanel,
    Dots,
    DotSeries,
    DotSet,
    FileList,
    HeatData,
    HeatRank,
    JobData,
    Line,
    PageData,
    ReadingPanel,
    StepBars,
    Table,
    figures,
    packed,
    seconds,
    share_of,
    stretch,
    thinned,
    to_script,
)
from api.diagnose.readings import BUCKETS, Readings
from api.diagnose.readings import Line as Series
from api.diagnose.report import CollectiveReport, Diagnosis, JobReport
from api.diagnose.text import last_in_of, reason_of
from api.diagnose.verdict_page import DOTS_MAX, VERDICTS_MAX, verdict_data
from api.diagnose.verdicts import attendance_lines, failed_lines, looked_lines
from collector.contract.causes import cause_table
from collector.contract.errors import SettingsError
from dashboards import PAGE

TEMPLATE = "report.html"
DATA_MARK = '<script type="application/json" id="data"></script>'
"""Where the data goes, as dashboards/web/report.html has it."""
STEP_BARS_MAX = 600
"""Bars of the step plot; of more steps neighbours are put together."""
HEAT_COLUMNS_MAX = 240
HEAT_ROWS_MAX = 64
PANELS_MAX = 6
"""Plots of single collectives; of more kinds those that took longest."""
PROBLEMS_SHOWN = 200
HEADROOM = 1.1
"""How much higher than its highest bar a plot is."""
GAP_TIMES = 2.5
"""A line is broken where readings are so many times further apart than usual."""


def read_template(folder: Path = PAGE) -> str:
    """The empty report; a SettingsError names what to do where none was built."""
    path = folder / TEMPLATE
    try:
        template = path.read_text("utf-8")
    except OSError as error:
        raise SettingsError(
            f"--html needs the built-in page, and there is no {path} ({error.strerror}): "
            "run `make page`, or install the wheel, which has it; without --html all else works"
        ) from error
    if template.count(DATA_MARK) != 1:
        raise SettingsError(f"{path} has no place for the data: run `make page` to build it anew")
    return template


def render(
    diagnosis: Diagnosis,
    analyses: Sequence[Analysis],
    readings: Sequence[list[Readings]],
    seen: Window | None = None,
    template: str | None = None,
) -> Iterator[str]:
    """In pieces; analyses and readings in the order of jobs; evidence is drawn from ``seen``."""
    before, _, after = (read_template() if template is None else template).partition(DATA_MARK)
    yield before
    yield DATA_MARK.removesuffix("</script>")
    yield to_script(page_data(diagnosis, analyses, readings, seen))
    yield f"</script>{after}"


def page_data(
    diagnosis: Diagnosis,
    analyses: Sequence[Analysis],
    readings: Sequence[list[Readings]],
    seen: Window | None,
) -> PageData:
    read, jobs = diagnosis.read, diagnosis.jobs
    more = len(diagnosis.verdicts) - VERDICTS_MAX
    left_out = units.count(diagnosis.jobs_left_out, "smaller job")
    return PageData(
        causes=cause_table(),
        about=f"{units.count(len(jobs), 'job')} in {units.count(read.files, 'file')}, "
        f"{units.size(read.size_bytes)}"
        + (f"; {left_out} not looked at" if diagnosis.jobs_left_out else ""),
        ranks_read=attendance_lines(diagnosis),
        verdicts=verdict_data(diagnosis, analyses, seen),
        verdicts_note=f"{units.count(more, 'more verdict')} in --json." if more > 0 else "",
        unclear=diagnosis.unclear,
        looked=looked_lines(diagnosis),
        failed=failed_lines(diagnosis),
        jobs=[
            job_data(diagnosis, job, analysis, panels)
            for job, analysis, panels in zip(jobs, analyses, readings, strict=True)
        ],
        warnings=warning_table(diagnosis),
        read=read_table(diagnosis),
        problems=problem_lists(diagnosis),
    )


def job_data(
    diagnosis: Diagnosis, job: JobReport, analysis: Analysis, panels: Sequence[Readings]
) -> JobData:
    among = len(diagnosis.jobs)
    named = "named by its own files" if job.was_said else "inferred from who talks to whom"
    times = f"times of {job.source}: {job.source_reason}" if job.source else job.source_reason
    collectives, note = collective_panels(job, share_of(DOTS_MAX, among))
    return JobData(
        job=job.job,
        explanation=f"{named}; {times}",
        facts=job_facts(job),
        span=stretch(job.first_ns, max(job.last_ns, job.first_ns + 1_000_000)),
        accused=accused_of(diagnosis, job),
        pending=pending_table(job),
        steps=step_bars(job, share_of(STEP_BARS_MAX, among)),
        heat=heat_data(job, analysis),
        collectives=collectives,
        collectives_note=note,
        readings=[reading_panel(each, share_of(BUCKETS, among)) for each in panels],
        tables=job_tables(job, among),
    )


def accused_of(diagnosis: Diagnosis, job: JobReport) -> list[int]:
    accused = {
        one.rank
        for verdict in diagnosis.verdicts
        for one in (verdict.culprit, *verdict.accomplices)
        if one.rank is not None and job.job in (one.job, *verdict.jobs)
    }
    return sorted(accused)


# Steps -------------------------------------------------------------------------------------------


def step_bars(job: JobReport, bars_max: int = STEP_BARS_MAX) -> StepBars | None:
    if not job.steps:
        return None
    groups = np.array_split(np.arange(len(job.steps)), min(len(job.steps), bars_max))
    spans, labels = [], []
    parts: list[tuple[float, float, float]] = []
    for group in groups:
        some = [job.steps[place] for place in group.tolist()]
        compute, transfer, wait = (
            float(np.median([getattr(step, name) for step in some]))
            for name in ("compute_ns", "transfer_ns", "wait_ns")
        )
        spans.append(stretch(some[0].start_ns, some[-1].end_ns))
        parts.append((seconds(compute), seconds(transfer), seconds(wait)))
        number = str(some[0].number) if len(some) == 1 else f"{some[0].number}-{some[-1].number}"
        after = units.duration(some[0].start_ns - job.first_ns)
        last = some[0].last_rank
        waited = f", waited for rank {last}" if last is not None and len(some) == 1 else ""
        labels.append(f"step {number}, {after} after the start{waited}")
    totals = [sum(each) for each in parts]
    top = units.scale_top(totals) * HEADROOM or 1.0
    higher = sum(total > top for total in totals)
    note = f" {units.count(higher, 'bar')} higher than the plot." if higher else ""
    return StepBars(
        spans=spans,
        parts=parts,
        said=labels,
        top=top,
        note="Median over ranks. Compute is outside collectives, wait inside them until the last "
        f"rank came, transfer inside after that.{note}",
    )


def heat_data(job: JobReport, analysis: Analysis) -> HeatData | None:
    """How late each rank came, step by step; the most in each cell."""
    rows = analysis.by_rank
    known = rows.rank >= 0
    if not known.any() or analysis.job.guessed:
        return None  # its rows are called by the ranks' numbers
    steps_in_one = 1
    if len(job.steps) > 1:
        steps_in_one = -(-len(job.steps) // HEAT_COLUMNS_MAX)
        starts = [step.start_ns for step in job.steps[::steps_in_one]]
        edges_ns = np.array([*starts, job.steps[-1].end_ns])
    else:
        edges_ns = np.linspace(job.first_ns, job.last_ns + 1, HEAT_COLUMNS_MAX // 2).astype(int)
    ranks = np.unique(rows.rank[known])
    cells = np.full((len(ranks), len(edges_ns) - 1), -np.inf)
    column = np.searchsorted(edges_ns, rows.entry_ns, side="right") - 1
    inside = known & (column >= 0) & (column < len(edges_ns) - 1)
    place = np.searchsorted(ranks, rows.rank[inside])
    np.maximum.at(cells, (place, column[inside]), rows.late_ns[inside].astype(np.float64))
    cells[np.isneginf(cells)] = np.nan
    everybody = len(ranks)
    if everybody > HEAT_ROWS_MAX:
        worst = np.argsort(-np.nan_to_num(np.nanquantile(cells, 0.9, axis=1)))[:HEAT_ROWS_MAX]
        worst = np.sort(worst)
        ranks, cells = ranks[worst], cells[worst]
    who = {rank.rank: rank for rank in job.ranks if rank.rank is not None}
    return HeatData(
        ranks=[
            HeatRank(
                rank=rank,
                host=who[rank].host if rank in who else None,
                gpu=who[rank].gpu if rank in who else None,
                device=who[rank].device if rank in who else None,
            )
            for rank in ranks.tolist()
        ],
        ranks_left_out=everybody - len(ranks),
        columns=[
            stretch(start, end)
            for start, end in zip(edges_ns[:-1].tolist(), edges_ns[1:].tolist(), strict=True)
        ],
        steps_in_one=steps_in_one,
        is_by_step=len(job.steps) > 1,
        values=packed(cells / 1e9),
    )


# Collectives -------------------------------------------------------------------------------------


def collective_panels(job: JobReport, dots: int = DOTS_MAX) -> tuple[list[CollectivePanel], str]:
    """Wait and transfer of each collective over time, a plot for each kind; how many have none."""
    kinds: dict[tuple[str, int | None], list[CollectiveReport]] = {}
    for each in job.collectives:
        kinds.setdefault((each.operation, each.size_bytes), []).append(each)
    longest = sorted(kinds.items(), key=lambda item: -sum(e.end_ns - e.start_ns for e in item[1]))
    shown = [
        collective_panel(operation, size, some, dots)
        for (operation, size), some in longest[:PANELS_MAX]
    ]
    rest = len(longest) - len(shown)
    return shown, f"{units.count(rest, 'more kind')} of collectives not shown." if rest else ""


def collective_panel(
    operation: str, size: int | None, some: Sequence[CollectiveReport], dots: int
) -> CollectivePanel:
    """One kind of collective: a dot for its wait and one for its transfer."""
    took = np.array([each.end_ns - each.start_ns for each in some])
    chosen = [some[place] for place in thinned(took, dots).tolist()]
    both = [t for each in chosen for t in (each.entry_skew_ns, each.transfer_ns)]
    low_ns = max(float(np.quantile(both, 0.01)) / 2, 10_000.0)
    dot_set = DotSet(
        at=[seconds(each.start_ns) for each in chosen],
        said=[f"number {each.sequence}, last in {last_in_of(each)}" for each in chosen],
        series=[
            DotSeries("wait (entry skew)", "wait", [seconds(one.entry_skew_ns) for one in chosen]),
            DotSeries("transfer", "transfer", [seconds(one.transfer_ns) for one in chosen]),
        ],
    )
    return CollectivePanel(
        title=f"{operation}, {units.size(size)}",
        explanation=f"{units.count(len(some), 'collective')}: how long the first rank waited for "
        "the last one, and how long it took after that.",
        dots=Dots(
            sets=[dot_set], low=seconds(low_ns), high=seconds(max(*both, low_ns) * 1.3), is_log=True
        ),
    )


# Readings and files ------------------------------------------------------------------------------


def reading_panel(readings: Readings, points_max: int = BUCKETS) -> ReadingPanel:
    """Network and GPU readings beside the job, on at most so many common times."""
    lines, unit = readings.lines, readings.plot.unit
    times_ns = np.linspace(
        min(float(line.time_ns[0]) for line in lines),
        max(float(line.time_ns[-1]) for line in lines),
        max(2, min(points_max, max(len(line.time_ns) for line in lines))),
    )
    left = readings.left_out
    more = f" {units.count(left, 'quieter line')} not shown." if left else ""
    return ReadingPanel(
        title=readings.plot.title,
        explanation=f"{units.count(len(lines), 'series', 'series')}, in {unit}.{more}",
        unit=unit,
        times=[seconds(time_ns) for time_ns in times_ns.tolist()],
        lines=[Line(label=line.name, values=figures(line_at(line, times_ns))) for line in lines],
        middles=[float(f"{np.nanmedian(line.value):.4g}") for line in lines],
        mosts=[float(f"{np.nanmax(line.value):.4g}") for line in lines],
    )


def line_at(line: Series, times_ns: Floats) -> Floats:
    """A line's values at these times; NaN where it was not read for longer than usual."""
    is_known = np.isfinite(line.value)
    own_ns, value = line.time_ns[is_known], line.value[is_known]
    apart_ns = float(np.median(np.diff(line.time_ns))) if len(line.time_ns) > 1 else 1e9
    after = np.searchsorted(own_ns, times_ns).clip(0, len(own_ns) - 1)
    before = (after - 1).clip(0)
    nearest_ns = np.minimum(np.abs(own_ns[after] - times_ns), np.abs(times_ns - own_ns[before]))
    at: Floats = np.where(
        nearest_ns <= GAP_TIMES / 2 * apart_ns, np.interp(times_ns, own_ns, value), np.nan
    )
    return at


def warning_table(diagnosis: Diagnosis) -> Table | None:
    rows = [
        ((f"{each.count:,}", each.message, ", ".join(each.hosts[:8])), False)
        for each in diagnosis.warnings
    ]
    if not rows:
        return None
    return table("NCCL warned", "Equal messages are one.", (">times", "message", "on"), rows)


def read_table(diagnosis: Diagnosis) -> Table:
    read = diagnosis.read
    lost = sum(loss.lost for loss in read.losses)
    rows = [
        (
            (
                each.title, f"{each.files:,}", units.size(each.size_bytes),
                units.counts(each.counts), units.span(each.first_ns, each.last_ns),
            ),
            False,
        )
        for each in read.formats
    ]  # fmt: skip
    return table(
        "What was read",
        f"{units.count(lost, 'record')} lost by gaps in their numbers."
        if lost
        else "No record is missing between others.",
        ("kind", ">files", ">size", "records", "time"),
        rows,
    )


def problem_lists(diagnosis: Diagnosis) -> list[FileList]:
    read = diagnosis.read
    return [
        FileList(
            title=f"{what}: {units.count(total, 'file')}",
            files=[(problem.path, reason_of(problem)) for problem in problems[:PROBLEMS_SHOWN]],
        )
        for what, problems, total in (
            ("Read in part", read.broken, read.broken_count),
            ("Not understood", read.not_understood, read.not_understood_count),
            ("Left out", read.left_out, len(read.left_out)),
        )
        if total
    ]
