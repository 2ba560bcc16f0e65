"""The page's first part: each verdict with its evidence, in words and drawn; or that there is none.

Evidence is drawn from the same window that detectors saw, so that a reader can doubt it by eye: the
stretch that is blamed is shaded, the culprit has the hot colour and its peers the pale one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts import words
from alerts.columns import Flags, Floats
from alerts.split import medians
from alerts.window import NS, JobWindow, Ports, Things, Window
from api.diagnose import plots, units
from api.diagnose.analyse import Analysis
from api.diagnose.cards import legend, table
from api.diagnose.plots import Plot, safe
from api.diagnose.report import Diagnosis
from api.diagnose.verdicts import (
    clock_words,
    cost_lines,
    evidence_rows,
    failed_lines,
    looked_lines,
    start_of,
    when,
)
from collector.contract.verdict import Cause, Evidence, Layer, Reason, Verdict

VERDICTS_MAX = 50
"""Verdicts on a page; --json has all."""
SERIES_PLOTS_MAX = 3
"""Metrics of a verdict's evidence that are drawn."""
SERIES_POINTS = 400
"""Points of a line: a plot has some 1,000 pixels."""
PEERS_MAX = 48
"""Pale lines beside the culprit's."""
BARS_MAX = 64
"""Ranks or NICs side by side; of more, those around the culprit."""
SMOOTH_STEP_NS_MAX = NS // 10
"""Counters read less often than ten times a second do not show how bytes flow within a step."""
EDGE_SHARE = 0.1
"""Of the stretch, left out at both its ends: it begins and ends within a step, at full speed."""
BYTES_READINGS = ("transmit_bytes_total", "receive_bytes_total")
HEADROOM = 1.12
"""How much higher than its highest value a plot is."""


def verdict_part(
    diagnosis: Diagnosis, analyses: Sequence[Analysis], seen: Window | None
) -> Iterator[str]:
    """All verdicts, and what was looked for."""
    for verdict in diagnosis.verdicts[:VERDICTS_MAX]:
        yield from verdict_card(diagnosis, verdict, analyses, seen)
    rest = len(diagnosis.verdicts) - VERDICTS_MAX
    if rest > 0:
        yield f'<p class="soft">{units.count(rest, "more verdict")} in --json.</p>'
    looked = "".join(f'<p class="soft">{safe(line)}</p>' for line in looked_lines(diagnosis))
    failed = "".join(f'<p class="failed">{safe(line)}</p>' for line in failed_lines(diagnosis))
    if not diagnosis.verdicts:
        yield f'<section class="quiet"><h2>Nothing stands out.</h2>{looked}{failed}</section>'
    elif looked or failed:
        yield f"<section>{looked}{failed}</section>"


def verdict_card(
    diagnosis: Diagnosis, verdict: Verdict, analyses: Sequence[Analysis], seen: Window | None
) -> Iterator[str]:
    """One verdict, from the sentence to what to do."""
    start_ns = start_of(diagnosis, verdict)
    chips = [str(verdict.cause).replace("_", " ")]
    chips += [str(verdict.reason).replace("_", " ")] * (verdict.reason is not Reason.UNKNOWN)
    chips += [str(verdict.layer)] * (verdict.layer is not Layer.UNKNOWN)
    marks = "".join(f"<span>{safe(chip)}</span>" for chip in chips)
    yield f'<section class="verdict"><h2>{safe(verdict.summary)}</h2>'
    yield f'<div class="chips"><b>{safe(words.sure(verdict.confidence))}</b>{marks}</div>'
    yield f"<p>{safe(when(verdict, start_ns))}</p>"
    for line in cost_lines(verdict):
        yield f"<p>Cost: {safe(line)}</p>"
    if verdict.clock_error_ns is not None:
        yield f'<p class="soft">{safe(clock_words(verdict.clock_error_ns))}</p>'
    yield f'<div class="do"><b>What to do.</b> {in_code(verdict.action)}</div>'
    if verdict.evidence:
        rows = [(row, "") for row in evidence_rows(verdict)]
        yield "<h3>Evidence</h3>" + table(("what", ">seen", ">usual", ">n"), rows)
    yield from drawings(verdict, start_ns, analyses, seen)
    if verdict.victims:
        yield f"<h3>Late only because of it</h3><p>{safe(words.names(verdict.victims))}</p>"
    if verdict.ruled_out:
        out = [((one.what.replace("_", " "), one.why), "") for one in verdict.ruled_out]
        yield "<h3>Ruled out</h3>" + table(("what", "why"), out)
    yield "</section>"


def in_code(text: str) -> str:
    """Text in which commands stand between backticks.

    >>> in_code("run `a<b` now")
    'run <code>a&lt;b</code> now'
    """
    parts = safe(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part
                   for place, part in enumerate(parts))  # fmt: skip


# Drawings ----------------------------------------------------------------------------------------


def drawings(
    verdict: Verdict, start_ns: int, analyses: Sequence[Analysis], seen: Window | None
) -> Iterator[str]:
    """What can be drawn of the evidence."""
    if seen is None:
        return
    names = {*verdict.jobs, verdict.culprit.job}
    job = next((job for job in seen.jobs if job.job in names), None)
    analysis = next((one for one in analyses if one.job.name in names), None)
    inside = (verdict.since_ns, verdict.until_ns or seen.to_ns)
    if analysis is not None and verdict.cause is Cause.STRAGGLER:
        yield from gap_drawing(verdict, analysis, (start_ns, seen.to_ns), inside)
    elif job is not None and len(job.operations):
        yield from transfer_drawing(job, (start_ns, seen.to_ns), inside)
    if job is not None and verdict.layer is Layer.NETWORK:
        yield from ladder_drawing(verdict, job, inside)
        yield from smooth_drawing(verdict, seen, inside)
    metrics: set[str] = set()
    for evidence in verdict.evidence:
        if evidence.metric not in metrics and len(metrics) < SERIES_PLOTS_MAX:
            drawn = series_drawing(evidence, seen, start_ns, inside)
            metrics |= {evidence.metric} if drawn else set()
            yield drawn


def figure(title: str, explanation: str, *body: str) -> str:
    """A drawing within a verdict's card."""
    return f'<h3>{safe(title)}</h3><p class="soft">{safe(explanation)}</p>{"".join(body)}'


def shade(plot: Plot, start_ns: int, inside: tuple[int, int]) -> None:
    """The stretch that is blamed."""
    x1, x2 = (plot.x.at((time_ns - start_ns) / NS) for time_ns in inside)
    height = plot.height - plots.TOP - plots.BOTTOM
    place = plots.at(x=x1, y=plots.TOP, width=max(1.0, x2 - x1), height=height)
    plot.add(f'<rect class="shade" {place}/>')


def transfer_drawing(
    job: JobWindow, across_ns: tuple[int, int], inside: tuple[int, int]
) -> Iterator[str]:
    """Each collective's transfer over time."""
    operations = job.operations
    start_ns = across_ns[0]
    transfer_ms = operations.transfer_ns / 1e6
    chosen = plots.thinned(transfer_ms, plots.POINTS_MAX // 2)
    low = max(float(np.quantile(transfer_ms, 0.01)) / 2, 0.01)
    plot = Plot(
        (0.0, (across_ns[1] - start_ns) / NS),
        max(float(transfer_ms.max()), low) * 1.3,
        height=190,
        low=low,
        is_log=True,
        unit="ms",
    )
    shade(plot, start_ns, inside)
    plot.axes()
    points, titles = [], []
    for row in chosen.tolist():
        seconds = (int(operations.last_entry_ns[row]) - start_ns) / NS
        points.append((seconds, max(float(transfer_ms[row]), low)))
        name = operations.operations[operations.operation[row]]
        took = units.duration(float(operations.transfer_ns[row]))
        titles.append(f"{name} {operations.sequence[row]}: {took} at {seconds:.3f} s")
    plots.dots(plot, "transfer", points, titles)
    yield figure(
        "Transfer over time",
        "From the last rank's entry to the last exit, of every collective: the network's part. "
        "Shaded: the stretch that the verdict is about.",
        plot.svg("transfer of each collective over time"),
    )


def gap_drawing(
    verdict: Verdict, analysis: Analysis, across_ns: tuple[int, int], inside: tuple[int, int]
) -> Iterator[str]:
    """How late the culprit comes, over time, with everybody else behind it."""
    rows, start_ns = analysis.by_rank, across_ns[0]
    ranks = {one.rank for one in (verdict.culprit, *verdict.accomplices) if one.rank is not None}
    is_culprit = np.isin(rows.rank, sorted(ranks))
    if not is_culprit.any():
        return
    late_ms = rows.late_ns / 1e6
    low, top = float(np.quantile(late_ms, 0.005)), units.scale_top(late_ms.tolist()) * HEADROOM
    plot = Plot(
        (0.0, (across_ns[1] - start_ns) / NS), max(top, low + 1.0), height=210, low=low, unit="ms"
    )
    shade(plot, start_ns, inside)
    plot.axes()
    for kind, is_own in (("peer", ~is_culprit), ("culprit", is_culprit)):
        own = np.flatnonzero(is_own & (rows.rank >= 0))
        chosen = own[plots.thinned(late_ms[own], plots.POINTS_MAX // 3)]
        points = [
            ((int(rows.entry_ns[row]) - start_ns) / NS, max(float(late_ms[row]), low))
            for row in chosen.tolist()
        ]
        titles = [
            f"rank {rows.rank[row]}: {units.duration(float(rows.late_ns[row]))} late"
            for row in chosen.tolist()
        ]
        plots.dots(plot, kind, points, titles)
    yield figure(
        "Entries over time",
        "How far behind the median rank each rank enters each collective. Shaded: the stretch that "
        "the verdict is about.",
        legend(
            [
                ("culprit", words.names((verdict.culprit, *verdict.accomplices))),
                ("peer", "everybody else"),
            ]
        ),
        plot.svg("lateness of the culprit and of its peers over time"),
    )


def ladder_drawing(verdict: Verdict, job: JobWindow, inside: tuple[int, int]) -> Iterator[str]:
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
            (rank_name(job, communicator.job_rank.get(rank)), exits[rank], rank in members)
            for rank in ring
            if rank in exits
        ]
        assumed = " Nobody said how the ring goes; ranks are in their order." * (
            communicator.is_ring_assumed
        )
        yield figure(
            "Exits around the ring",
            "When each rank leaves, after the first one: medians of the stretch, in the order in "
            f"which bytes go round, from the culprit on.{assumed}",
            bar_plot(bars, "ms", "exits of ranks around the ring"),
        )
        return


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
    # The operation that bytes take longest in shows it best; others are mostly latency.
    _, kind = np.unique(records.operation[rows], return_inverse=True)
    taken = medians((records.exit_ns - records.entry_ns)[rows], kind)
    rows = rows[kind == int(np.argmax(taken))]
    _, number = np.unique(records.sequence[rows], return_inverse=True)
    first = np.full(int(number.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, number, records.exit_ns[rows])
    ranks, which = np.unique(records.rank[rows], return_inverse=True)
    after_ns = medians(records.exit_ns[rows] - first[number], which)
    return dict(zip(ranks.tolist(), (after_ns / 1e6).tolist(), strict=True))


def smooth_drawing(verdict: Verdict, seen: Window, inside: tuple[int, int]) -> Iterator[str]:
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
        (
            f"{ports.host[row]} {ports.device[row]}",
            float(spread[row]),
            (ports.host[row], ports.device[row]) == (culprit.host, culprit.device),
        )
        for row in rows.tolist()
    ]
    yield figure(
        "How evenly bytes flow",
        f"Standard deviation over mean of each NIC's rate, read every {grid.step_ns / 1e6:.3g} ms, "
        "in its less even direction. The slow NIC is always busy; the others burst and wait.",
        bar_plot(bars, "", "variation of each NIC's rate"),
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


def series_drawing(evidence: Evidence, seen: Window, start_ns: int, inside: tuple[int, int]) -> str:
    """A metric of the evidence: the culprit's line over those of its peers; empty if unknown."""
    for things in (seen.ports, seen.gpus, seen.hosts):
        for name, readings in things.readings.items():
            if evidence.metric not in (readings.metric, name, *readings.others.values()):
                continue
            is_own = own_rows(things, evidence)
            if is_own.any():
                return lines_drawing(evidence, things, name, is_own, start_ns, inside)
    return ""


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
    evidence: Evidence,
    things: Things,
    name: str,
    is_own: Flags,
    start_ns: int,
    inside: tuple[int, int],
) -> str:
    """Lines of one reading."""
    seconds, values = thinned_cells(things, things.values(name), start_ns)
    known = ~np.isnan(values).all(axis=1)
    peers = np.flatnonzero(known & ~is_own)[:PEERS_MAX]
    own = np.flatnonzero(known & is_own)
    if not len(own):
        return ""
    top = float(np.nanmax(values[np.concatenate((own, peers))]))
    plot = Plot((0.0, float(seconds[-1])), (top if top > 0 else 1.0) * HEADROOM, height=190)
    shade(plot, start_ns, inside)
    plot.axes()
    for kind, rows in (("peer", peers), ("culprit", own)):
        for row in rows.tolist():
            plots.line(plot, kind, seconds, values[row], things.host[row])
    counted = "a second" if name.endswith("_total") else "as read"
    return figure(
        evidence.metric,
        f"{evidence.text} ({counted})",
        legend([("culprit", "the culprit"), ("peer", f"{len(peers)} peers")]),
        plot.svg(evidence.metric),
    )


def thinned_cells(things: Things, values: Floats, start_ns: int) -> tuple[Floats, Floats]:
    """Seconds after the start and means of so many cells each that a plot can show them."""
    grid = things.grid
    width = max(1, -(-grid.cells // SERIES_POINTS))
    edges = np.arange(0, grid.cells, width)
    is_known = ~np.isnan(values)
    count = np.add.reduceat(is_known, edges, axis=1, dtype=np.int64)
    sums = np.add.reduceat(np.nan_to_num(values), edges, axis=1)
    with np.errstate(all="ignore"):
        means = np.where(count > 0, sums / np.maximum(count, 1), np.nan)
    seconds = (grid.start_ns + (edges + width / 2) * grid.step_ns - start_ns) / NS
    return seconds, means


def cells_within(things: Things, inside: tuple[int, int]) -> slice:
    """The cells of a stretch of time."""
    first, last = (things.grid.cell_of(time_ns) for time_ns in inside)
    return slice(max(0, first), max(1, min(things.grid.cells, last + 1)))


def rank_name(job: JobWindow, rank: int | None) -> str:
    """A rank with its host, below a bar."""
    if rank is None:
        return "?"
    place = job.ranks.get(rank)
    return f"{rank} {place.host}" if place is not None and place.host else str(rank)


def bar_plot(bars: Sequence[tuple[str, float, bool]], unit: str, label: str) -> str:
    """Bars side by side with their names; the culprit's is hot."""
    top = max((value for _, value, _ in bars), default=0.0)
    plot = Plot(
        (0.0, float(len(bars))), (top if top > 0 else 1.0) * HEADROOM, height=190, unit=unit
    )
    plot.axes(has_lower=False)
    base = plot.height - plots.BOTTOM
    width = (plot.x.at(1.0) - plot.x.at(0.0)) * 0.62
    room = int((plot.x.at(1.0) - plot.x.at(0.0)) / 7)
    for place, (name, value, is_hot) in enumerate(bars):
        middle, y = plot.x.at(place + 0.5), plot.y.at(value)
        shape = plots.at(x=middle - width / 2, y=y, width=width, height=max(1.0, base - y))
        kind = "culprit" if is_hot else "peer"
        said = f"{name}: {value:.3g}{' ' + unit if unit else ''}"
        plot.add(plots.titled(f'<rect class="{kind}" {shape}/>', said))
        if room > 2:  # noqa: PLR2004 - below, names are dots
            text = name if len(name) <= room else f"{name[: room - 1]}…"
            plot.add(f'<text class="tick" {plots.at(x=middle)} y="{base + 18}" '
                     f'text-anchor="middle">{safe(text)}</text>')  # fmt: skip
    return plot.svg(label)
