"""The page's first part: each verdict with its evidence, as text and as data of drawings.

Evidence is drawn from the same window that detectors saw, so that a reader can check it by eye: the
stretch that is blamed is shaded, the culprit has the hot colour and its peers the pale one. Which
evidence is drawn, and from what, is decided here; the page decides how it looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from alerts.compare.model import StepsCompared
from alerts.compare.sides import why_not
from alerts.compare.steps import Asked, blamed_of, compare_steps
from alerts.judge import words
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow, Ports, Things, Window
from alerts.window.split import medians
from api.diagnose import units
from api.diagnose.analyse import Analysis
from api.diagnose.page_data import (
    Bar,
    Bars,
    Dots,
    DotSeries,
    DotSet,
    Figure,
    Line,
    Lines,
    VerdictData,
    figures,
    seconds,
    share_of,
    stretch,
    thinned,
)
from api.diagnose.readings import THING_LABELS
from api.diagnose.report import Diagnosis
from api.diagnose.verdicts import clock_words, cost_lines, start_of, when
from collector.contract.units import NS
from collector.contract.verdict import Cause, Evidence, Layer, Verdict

COMPARED_MAX = 4
"""Verdicts, the first, whose steps are compared on the page: half a megabyte each of many ranks."""
VERDICTS_MAX = 50
"""Verdicts on a page; --json has all."""
DOTS_MAX = 3_000
"""Dots of a drawing: more cover each other. Those of many verdicts share them."""
SERIES_PLOTS_MAX = 3
SERIES_POINTS = 400
"""Points of a line: a plot has some 1,000 pixels."""
PEERS_MAX = 48
BARS_MAX = 64
"""Ranks or NICs side by side; of more, those around the culprit."""
SMOOTH_STEP_NS_MAX = NS // 10
"""Counters read less often than ten times a second do not show how bytes flow within a step."""
EDGE_SHARE = 0.1
"""Of the stretch, left out at both its ends: it begins and ends within a step, at full speed."""
BYTES_READINGS = ("transmit_bytes_total", "receive_bytes_total")
HEADROOM = 1.12
"""How much higher than its highest value a plot is."""


def verdict_data(
    diagnosis: Diagnosis, analyses: Sequence[Analysis], seen: Window | None
) -> list[VerdictData]:
    shown = diagnosis.verdicts[:VERDICTS_MAX]
    dots = share_of(DOTS_MAX, len(shown))
    found = [one_verdict(diagnosis, verdict, analyses, seen, dots) for verdict in shown]
    return [
        msgspec.structs.replace(one, steps=steps_of(seen, one.verdict))
        if seen is not None and place < COMPARED_MAX
        else one
        for place, one in enumerate(found)
    ]


def one_verdict(
    diagnosis: Diagnosis,
    verdict: Verdict,
    analyses: Sequence[Analysis],
    seen: Window | None,
    dots: int,
) -> VerdictData:
    start_ns = start_of(diagnosis, verdict)
    end_ns = seen.to_ns if seen is not None else verdict.until_ns or verdict.since_ns
    inside = (verdict.since_ns, verdict.until_ns or end_ns)
    error_ns = verdict.clock_error_ns
    return VerdictData(
        verdict=verdict,
        when=when(verdict, start_ns),
        costs=cost_lines(verdict),
        clock="" if error_ns is None else clock_words(error_ns),
        shown=stretch(start_ns, max(end_ns, start_ns + 1)),
        blamed=stretch(*inside),
        figures=list(drawings(verdict, analyses, seen, inside, dots)) if seen is not None else [],
        steps=None,
    )


def steps_of(seen: Window, verdict: Verdict) -> StepsCompared | None:
    """The steps of a verdict's time against those before; None where that shows nothing."""
    job = next((one for one in seen.jobs if one.job in verdict.jobs), None)
    if job is None or why_not(job) or job.guessed:
        return None
    until_ns = verdict.until_ns or seen.to_ns
    asked = Asked(slow=(verdict.since_ns, max(until_ns, verdict.since_ns)))
    found = compare_steps(seen, job, asked, blamed_of([verdict], job.job))
    return found if found.excess_ns is not None else None


# Drawings ----------------------------------------------------------------------------------------


def drawings(
    verdict: Verdict, analyses: Sequence[Analysis], seen: Window, inside: tuple[int, int], dots: int
) -> Iterator[Figure]:
    names = {*verdict.jobs, verdict.culprit.job}
    job = next((job for job in seen.jobs if job.job in names), None)
    analysis = next((one for one in analyses if one.job.name in names), None)
    if analysis is not None and verdict.cause is Cause.STRAGGLER:
        yield from gap_drawing(verdict, analysis, dots)
    elif job is not None and len(job.operations):
        yield transfer_drawing(verdict, job, dots)
    if job is not None and verdict.layer is Layer.NETWORK:
        yield from ladder_drawing(verdict, job, inside)
        yield from smooth_drawing(verdict, seen, inside)
    metrics: set[str] = set()
    for place, evidence in enumerate(verdict.evidence):
        if evidence.metric not in metrics and len(metrics) < SERIES_PLOTS_MAX:
            drawn = list(series_drawing(place, evidence, seen))
            metrics |= {evidence.metric} if drawn else set()
            yield from drawn


def place_of(verdict: Verdict, metric: str) -> int | None:
    """The first evidence of this kind: a drawing stands beside it."""
    return next((place for place, one in enumerate(verdict.evidence) if one.metric == metric), None)


def transfer_drawing(verdict: Verdict, job: JobWindow, dots: int) -> Figure:
    operations = job.operations
    transfer_ns = operations.transfer_ns
    chosen = thinned(transfer_ns, dots).tolist()
    low_ns = max(float(np.quantile(transfer_ns, 0.01)) / 2, 10_000.0)
    names = operations.operations
    dot_set = DotSet(
        at=[seconds(int(operations.last_entry_ns[row])) for row in chosen],
        said=[f"{names[operations.operation[row]]} {operations.sequence[row]}" for row in chosen],
        series=[
            DotSeries("transfer", "transfer", [seconds(int(transfer_ns[row])) for row in chosen])
        ],
    )
    return Figure(
        title="Transfer over time",
        explanation="From the last rank's entry to the last exit, of every collective: the "
        "network's part. Shaded: the stretch that the verdict is about.",
        evidence=place_of(verdict, "collective_transfer"),
        drawing=Dots(
            sets=[dot_set],
            low=seconds(low_ns),
            high=seconds(max(float(transfer_ns.max()), low_ns) * 1.3),
            is_log=True,
        ),
    )


def gap_drawing(verdict: Verdict, analysis: Analysis, dots: int) -> Iterator[Figure]:
    """How late the culprit comes, over time, with all other ranks behind it."""
    rows = analysis.by_rank
    accused = (verdict.culprit, *verdict.accomplices)
    ranks = {one.rank for one in accused if one.rank is not None}
    is_culprit = np.isin(rows.rank, sorted(ranks))
    if not is_culprit.any():
        return
    late_ns = rows.late_ns
    low_ns = float(np.quantile(late_ns, 0.005))
    high_ns = units.scale_top(late_ns.tolist()) * HEADROOM
    sets = []
    for label, colour, is_own in (
        ("everybody else", "compute", ~is_culprit),
        (words.names(accused), "bad", is_culprit),
    ):
        own: Ints = np.flatnonzero(is_own & (rows.rank >= 0))
        chosen = own[thinned(late_ns[own], dots)].tolist()
        late = [seconds(int(late_ns[row])) for row in chosen]
        sets.append(
            DotSet(
                at=[seconds(int(rows.entry_ns[row])) for row in chosen],
                said=[analysis.job.called(int(rows.rank[row])) for row in chosen],
                series=[DotSeries(label, colour, late)],
            )
        )
    yield Figure(
        title="Entries over time",
        explanation="How far behind the median rank each rank enters each collective. Shaded: the "
        "stretch that the verdict is about.",
        evidence=place_of(verdict, "rank_gap"),
        drawing=Dots(
            sets=sets,
            low=seconds(low_ns),
            high=seconds(max(high_ns, low_ns + 1_000_000)),
            is_log=False,
        ),
    )


def ladder_drawing(verdict: Verdict, job: JobWindow, inside: tuple[int, int]) -> Iterator[Figure]:
    """When each rank leaves, around the ring: a slow link makes a ladder of it."""
    culprit = verdict.culprit
    suspects = {rank.rank for rank in job.ranks.values() if rank.host == culprit.host}
    own = {culprit.rank} if culprit.rank is not None else suspects
    for communicator in sorted(job.communicators.values(), key=lambda one: (-one.ranks, one.name)):
        members = {rank for rank, number in communicator.job_rank.items() if number in own}
        if not members or not communicator.rings or communicator.ranks <= 2:  # noqa: PLR2004 - a pair has no ladder
            continue
        exits = exits_of(job, communicator.name, inside)
        if len(exits) < communicator.ranks:
            continue
        ring = list(communicator.rings[0])
        place = next(place for place, rank in enumerate(ring) if rank in members)
        ring = [*ring[place:], *ring[:place]][:BARS_MAX]
        bars = [
            bar(
                rank_name(job, communicator.job_rank.get(rank)),
                exits[rank] / 1e3,
                is_culprit=rank in members,
            )
            for rank in ring
            if rank in exits
        ]
        assumed = " No file records the ring; ranks are in their order." * (
            communicator.is_ring_assumed
        )
        yield Figure(
            title="Exits around the ring",
            explanation="When each rank leaves, after the first one: medians of the stretch, in "
            f"the order in which bytes go round, from the culprit on.{assumed}",
            evidence=place_of(verdict, "exit_ladder"),
            drawing=Bars(bars=bars, unit="seconds"),
        )
        return


def bar(name: str, value: float, *, is_culprit: bool) -> Bar:
    short = name.partition(" ")[0]
    return Bar(label=name, short=short, value=float(f"{value:.5g}"), is_culprit=is_culprit)


def exits_of(job: JobWindow, communicator: str, inside: tuple[int, int]) -> dict[int, float]:
    """For each rank of the communicator when it leaves after the first, in ms: the median."""
    records = job.records
    if communicator not in records.communicators:
        return {}
    code = records.communicators.index(communicator)
    rows = np.flatnonzero(
        (records.communicator == code)
        & records.timed()
        & (records.exit_ns >= inside[0])
        & (records.exit_ns <= inside[1])
    )
    if not len(rows):
        return {}
    # The operation with the longest transfer shows it best; others are mostly latency.
    _, kind = np.unique(records.operation[rows], return_inverse=True)
    taken = medians((records.exit_ns - records.entry_ns)[rows], kind)
    rows = rows[kind == int(np.argmax(taken))]
    _, number = np.unique(records.sequence[rows], return_inverse=True)
    first = np.full(int(number.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, number, records.exit_ns[rows])
    ranks, which = np.unique(records.rank[rows], return_inverse=True)
    after_ns = medians(records.exit_ns[rows] - first[number], which)
    return dict(zip(ranks.tolist(), (after_ns / 1e6).tolist(), strict=True))


def smooth_drawing(verdict: Verdict, seen: Window, inside: tuple[int, int]) -> Iterator[Figure]:
    """How evenly each NIC's bytes flow: the one that holds the others up is the smooth one."""
    ports, grid = seen.ports, seen.ports.grid
    if not verdict.culprit.device or grid.step_ns > SMOOTH_STEP_NS_MAX:
        return
    edge_ns = int((inside[1] - inside[0]) * EDGE_SHARE)
    cells = cells_within(seen.ports, (inside[0] + edge_ns, inside[1] - edge_ns))
    spread = np.zeros(len(ports))
    for name in BYTES_READINGS:
        variation = variation_of(ports.values(name)[:, cells])
        spread = np.fmax(spread, np.nan_to_num(variation))
    rows = np.flatnonzero((spread > 0) & ~ports.is_switch)
    if len(rows) < 2:  # noqa: PLR2004 - one has no peers
        return
    rows = rows[np.argsort(spread[rows], kind="stable")][:BARS_MAX]
    culprit = verdict.culprit
    bars = [
        bar(
            f"{ports.host[row]} {ports.device[row]}",
            float(spread[row]),
            is_culprit=(ports.host[row], ports.device[row]) == (culprit.host, culprit.device),
        )
        for row in rows.tolist()
    ]
    yield Figure(
        title="How evenly bytes flow",
        explanation="Standard deviation over mean of each NIC's rate, read every "
        f"{grid.step_ns / 1e6:.3g} ms, in its less even direction. The slow NIC is always busy; "
        "the others burst and wait.",
        evidence=place_of(verdict, "nic_smoothness"),
        drawing=Bars(bars=bars, unit=""),
    )


def variation_of(values: Floats) -> Floats:
    """Standard deviation over mean of each row, of what was read; NaN where that is nothing."""
    is_known = ~np.isnan(values)
    filled = np.where(is_known, values, 0.0)
    with np.errstate(all="ignore"):
        count = is_known.sum(axis=1)
        mean = filled.sum(axis=1) / count
        square = (np.where(is_known, values - mean[:, None], 0.0) ** 2).sum(axis=1) / count
        variation: Floats = np.sqrt(square) / mean
    return variation


def series_drawing(place: int, evidence: Evidence, seen: Window) -> Iterator[Figure]:
    for things in (seen.ports, seen.gpus, seen.hosts):
        for name, readings in things.readings.items():
            if evidence.metric not in (readings.metric, name, *readings.others.values()):
                continue
            is_own = own_rows(things, evidence)
            if is_own.any():
                yield from lines_drawing(place, evidence, things, name, is_own)
                return


def own_rows(things: Things, evidence: Evidence) -> Flags:
    """The rows that the evidence's labels select."""
    chosen = np.ones(len(things), dtype=bool)
    for label in ("host", "device", "port", "gpu"):
        wanted, column = evidence.labels.get(label), getattr(things, label, None)
        if wanted is not None and column is not None:
            is_named = np.array([str(value) == wanted for value in column], dtype=bool)
            if label == "device" and isinstance(things, Ports) and things.netdev:
                # `fabric_nic_…` is named by the interface.
                is_named |= np.array([name == wanted for name in things.netdev], dtype=bool)
            chosen &= is_named
    return chosen & ("host" in evidence.labels)


def lines_drawing(
    place: int, evidence: Evidence, things: Things, name: str, is_own: Flags
) -> Iterator[Figure]:
    """Lines of one reading; nothing, if nothing was read of the culprit."""
    times, values = thinned_cells(things, things.values(name))
    known = ~np.isnan(values).all(axis=1)
    peers = np.flatnonzero(known & ~is_own)[:PEERS_MAX].tolist()
    own = np.flatnonzero(known & is_own).tolist()
    if not own:
        return
    lines = [
        Line(
            label=thing_name(things, row), values=figures(values[row]), is_culprit=bool(is_own[row])
        )
        for row in (*peers, *own)
    ]
    counted = "a second" if name.endswith("_total") else "as read"
    yield Figure(
        title=evidence.metric,
        explanation=f"{evidence.text} ({counted})",
        evidence=place,
        drawing=Lines(times=times, lines=lines, peers=len(peers)),
    )


def thing_name(things: Things, row: int) -> str:
    names = [things.host[row]]
    for label, word in THING_LABELS:
        column = getattr(things, label, None)
        if column is not None and str(column[row]):
            names.append(f"{word}{column[row]}")
    return " ".join(names)


def thinned_cells(things: Things, values: Floats) -> tuple[list[float], Floats]:
    """Times, and means of so many cells each that a plot can show them."""
    grid = things.grid
    width = max(1, -(-grid.cells // SERIES_POINTS))
    edges = np.arange(0, grid.cells, width)
    is_known = ~np.isnan(values)
    count = np.add.reduceat(is_known, edges, axis=1, dtype=np.int64)
    sums = np.add.reduceat(np.nan_to_num(values), edges, axis=1)
    with np.errstate(all="ignore"):
        means = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    half_ns = width * grid.step_ns // 2
    times = [seconds(grid.start_ns + edge * grid.step_ns + half_ns) for edge in edges.tolist()]
    return times, means


def cells_within(things: Things, inside: tuple[int, int]) -> slice:
    first, last = (things.grid.cell_of(time_ns) for time_ns in inside)
    return slice(max(0, first), max(1, min(things.grid.cells, last + 1)))


def rank_name(job: JobWindow, rank: int | None) -> str:
    """A rank with its host, below a bar."""
    if rank is None:
        return "?"
    place = job.ranks.get(rank)
    return f"{rank} {place.host}" if place is not None and place.host else str(rank)
