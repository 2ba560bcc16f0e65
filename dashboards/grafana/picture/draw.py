"""One function for each way to draw: lines, numbers, bars, distributions and plain text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dashboards.grafana.picture.ask import Answer, Span, legend
from dashboards.grafana.picture.marks import (
    FAINT,
    GRID,
    LINK,
    MARGIN,
    NAMED,
    PALETTE,
    TEXT,
    Box,
    area,
    colour,
    dot,
    fitting,
    line,
    path,
    rect,
    text,
)
from dashboards.grafana.picture.parts import Defaults, Panel
from dashboards.grafana.picture.scales import Axis, clock, ends, ticks, time_ticks
from dashboards.grafana.picture.units import shown

SERIES_MAX = 60
"""Lines that are drawn in one panel: more are a carpet. The legend says how many there are."""
LEGEND_SHARE = 0.35
"""Of a panel's height that a legend may take, as in Grafana."""
LEGEND_ROW = 17.0
BUCKETS = 20
"""Of a distribution."""
BARS_MAX = 40


class Named(NamedTuple):
    """A series with the name and colour that it has in its panel."""

    name: str
    fill: str
    points: list[tuple[float, float]]


def named(answers: Sequence[Answer]) -> list[Named]:
    """All series of a panel, with their names and colours."""
    found = [
        (legend(answer.target, one.labels), one) for answer in answers for one in answer.series
    ]
    return [
        Named(name, PALETTE[place % len(PALETTE)], one.points)
        for place, (name, one) in enumerate(found)
    ]


def last(points: Sequence[tuple[float, float]]) -> float:
    """The last value that is a number."""
    return next((value for _, value in reversed(points) if not math.isnan(value)), math.nan)


def limit_colour(defaults: Defaults, value: float) -> str:
    """The colour that a value has by the panel's limits."""
    found = NAMED["green"]
    for step in defaults.thresholds.steps:
        if step.value is None or value >= step.value:
            found = colour(step.color)
    return found


def worded(defaults: Defaults, value: float) -> str:
    """A value as a panel says it: by its words for values, or in its unit."""
    for mapping in defaults.mappings:
        if mapping.get("type") == "value" and not math.isnan(value):
            found = mapping.get("options", {}).get(f"{value:g}")
            if found:
                return str(found.get("text", ""))
    return shown(value, defaults.unit, defaults.decimals)


# --- lines ----------------------------------------------------------------------------------------


class Region(NamedTuple):
    """A time that is marked on all lines of a board, unix seconds."""

    start_s: float
    end_s: float
    fill: str


def lines(
    panel: Panel,
    answers: Sequence[Answer],
    box: Box,
    span: Span,
    regions: Sequence[Region] = (),
) -> list[str]:
    """Series over time, with limits across and a legend below."""
    defaults = panel.field_config.defaults
    series = [one for one in named(answers) if one.points]
    drawn = series[:SERIES_MAX]
    legend_box, plot = legend_room(panel, box, len(series))
    is_stacked = defaults.custom.get("stacking", {}).get("mode") == "normal"
    heights = stacked(drawn) if is_stacked else [one.points for one in drawn]
    values = [value for points in heights for _, value in points if math.isfinite(value)]
    low, high = ends(values, defaults.min, defaults.max)
    across = axes(plot, (low, high), span, defaults.unit)
    marks = [*across.marks, *region_marks(across, regions)]
    opacity = float(defaults.custom.get("fillOpacity", 0)) / 100
    grounds: list[dict[float, float]] = floors(drawn) if is_stacked else [{} for _ in drawn]
    for one, points, ground in zip(drawn, heights, grounds, strict=True):
        marks += one_line(points, one.fill, across, opacity, span.step_s, ground)
    marks += limits(defaults, across, plot)
    return [*marks, *legend_marks(panel, series, legend_box)]


class Axes(NamedTuple):
    """Both axes of a plot and what is drawn of them."""

    across: Axis
    up: Axis
    marks: list[str]


def axes(plot: Box, values: tuple[float, float], span: Span, unit: str) -> Axes:
    """Grid lines with their values and times."""
    low, high = values
    said = [
        (value, shown(value, unit))
        for value in ticks(low, high, max(2, int(plot.height / 45)), unit)
    ]
    room = 6.2 * max((len(word) for _, word in said), default=1) + 8
    inside = plot.inner(room, 4, 10, 18)
    up = Axis(low, high, inside.bottom, inside.top)
    across = Axis(span.start_s, span.end_s, inside.left, inside.right)
    marks = []
    for value, word in said:
        y = up.at(value)
        marks.append(line(inside.left, y, inside.right, y, GRID))
        marks.append(text(inside.left - 6, y + 4, word, size=11, fill=FAINT, anchor="end"))
    length_s = span.end_s - span.start_s
    for at_s in time_ticks(span.start_s, span.end_s, max(2, int(inside.width / 90))):
        x = across.at(at_s)
        marks.append(line(x, inside.top, x, inside.bottom, GRID))
        if inside.left + 10 < x < inside.right - 10:
            word = clock(at_s, length_s)
            marks.append(text(x, inside.bottom + 14, word, size=11, fill=FAINT, anchor="middle"))
    return Axes(across, up, marks)


def pieces(points: Sequence[tuple[float, float]], step_s: float) -> list[list[tuple[float, float]]]:
    """A series in pieces between gaps: what nobody measured is not drawn."""
    found: list[list[tuple[float, float]]] = []
    for at, value in points:
        if not math.isfinite(value):
            continue
        if not found or at - found[-1][-1][0] > 1.5 * step_s:
            found.append([])
        found[-1].append((at, value))
    return found


def one_line(
    points: Sequence[tuple[float, float]],
    fill: str,
    at: Axes,
    opacity: float,
    step_s: float,
    ground: Mapping[float, float] = MappingProxyType({}),
) -> list[str]:
    """One series; filled down to the axis, or to the one that it stands on."""
    marks = []
    for piece in pieces(points, step_s):
        places = [(at.across.at(moment), at.up.at(value)) for moment, value in piece]
        if len(places) == 1:
            marks.append(dot(*places[0], fill))
            continue
        if opacity:
            under = [
                (at.across.at(moment), at.up.at(ground.get(moment, at.up.low)))
                for moment, _ in reversed(piece)
            ]
            marks.append(area([*places, *under], fill, opacity))
        marks.append(path(places, fill))
    return marks


def stacked(series: Sequence[Named]) -> list[list[tuple[float, float]]]:
    """Each series on top of those before it."""
    below: dict[float, float] = {}
    made = []
    for one in series:
        points = []
        for at, value in one.points:
            below[at] = below.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
            points.append((at, below[at]))
        made.append(points)
    return made


def floors(series: Sequence[Named]) -> list[dict[float, float]]:
    """What each series of a stack stands on, by moment."""
    below: dict[float, float] = {}
    made = []
    for one in series:
        made.append({at: below.get(at, 0.0) for at, _ in one.points})
        for at, value in one.points:
            below[at] = below.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
    return made


def limits(defaults: Defaults, at: Axes, plot: Box) -> list[str]:
    """Dashed lines where a colour begins."""
    style = str(defaults.custom.get("thresholdsStyle", {}).get("mode", "off"))
    if style == "off":
        return []
    return [
        line(
            at.across.start,
            at.up.at(step.value),
            plot.right - 10,
            at.up.at(step.value),
            colour(step.color),
            dash="6 4",
        )
        for step in defaults.thresholds.steps
        if step.value is not None and at.up.low <= step.value <= at.up.high
    ]


def region_marks(at: Axes, regions: Sequence[Region]) -> list[str]:
    """Annotations: a faint area and a bar below it, as Grafana has them.

    Several at once are drawn as one: laid over each other they would hide the lines.
    """
    marks = []
    height = at.up.start - at.up.end
    for region in united(regions):
        left, right = at.across.at(region.start_s), at.across.at(region.end_s)
        width = max(1.0, right - left)
        marks.append(rect(Box(left, at.up.end, width, height), region.fill, opacity=0.06))
        marks.append(rect(Box(left, at.up.start, width, 3), region.fill, opacity=0.8))
    return marks


def united(regions: Sequence[Region]) -> list[Region]:
    """Regions without those that lie within others; what overlaps becomes one."""
    made: list[Region] = []
    for region in sorted(regions):
        if made and region.start_s <= made[-1].end_s:
            end_s = max(region.end_s, made[-1].end_s)
            made[-1] = made[-1]._replace(end_s=end_s)
        else:
            made.append(region)
    return made


# --- legends --------------------------------------------------------------------------------------


def legend_room(panel: Panel, box: Box, count: int) -> tuple[Box, Box]:
    """Where the legend stands, and what is left for the plot."""
    options = panel.options.get("legend", {})
    if not options.get("showLegend", True) or not count:
        return Box(box.left, box.bottom, box.width, 0), box
    rows = count + 1 if options.get("displayMode") == "table" else 1
    height = min(rows * LEGEND_ROW, max(LEGEND_ROW, LEGEND_SHARE * box.height))
    below = Box(box.left, box.bottom - height, box.width, height)
    return below, Box(box.left, box.top, box.width, box.height - height - 4)


def legend_marks(panel: Panel, series: Sequence[Named], box: Box) -> list[str]:
    """Names with colours; in a table also the last and the largest value."""
    if not box.height:
        return []
    if panel.options.get("legend", {}).get("displayMode") == "table":
        return legend_table(panel, series, box)
    marks, x = [], box.left + MARGIN
    for place, one in enumerate(series):
        if x > box.right - 80:
            marks.append(text(x, box.top + 12, f"+{len(series) - place}", size=11, fill=FAINT))
            break
        said = fitting(one.name, box.right - x - 30, 11)
        marks.append(rect(Box(x, box.top + 7, 12, 3), one.fill))
        marks.append(text(x + 17, box.top + 12, said, size=11))
        x += 17 + 6.2 * len(said) + 16
    return marks


def legend_table(panel: Panel, series: Sequence[Named], box: Box) -> list[str]:
    """The series with the largest values first."""
    defaults = panel.field_config.defaults
    rows = max(1, int(box.height // LEGEND_ROW) - 1)
    top = sorted(series, key=lambda one: -largest(one.points))
    marks = [
        text(box.left + MARGIN, box.top + 12, "Name", size=11, fill=LINK),
        text(box.right - 100, box.top + 12, "Last", size=11, fill=LINK, anchor="end"),
        text(box.right - 12, box.top + 12, "Max", size=11, fill=LINK, anchor="end"),
    ]
    shown_rows = top[:rows]
    for place, one in enumerate(shown_rows):
        y = box.top + 12 + (place + 1) * LEGEND_ROW
        more = len(series) - len(shown_rows)
        name = f"{one.name}   (+{more} more)" if more and place == len(shown_rows) - 1 else one.name
        marks.append(rect(Box(box.left + MARGIN, y - 5, 12, 3), one.fill))
        marks.append(text(box.left + 26, y, fitting(name, box.width - 210, 11), size=11))
        for right, value in ((100, last(one.points)), (12, largest(one.points))):
            marks.append(text(box.right - right, y, worded(defaults, value), size=11, anchor="end"))
    return marks


def largest(points: Sequence[tuple[float, float]]) -> float:
    """The largest value, -inf of none."""
    return max((value for _, value in points if not math.isnan(value)), default=-math.inf)


# --- numbers and bars ----------------------------------------------------------------------------


def numbers(panel: Panel, answers: Sequence[Answer], box: Box, span: Span) -> list[str]:
    """Big figures beside each other."""
    defaults = panel.field_config.defaults
    series = named(answers)
    if not series:
        return []
    width = box.width / len(series)
    marks = []
    for place, one in enumerate(series):
        cell = Box(box.left + place * width, box.top, width, box.height)
        value = last(one.points)
        fill = limit_colour(defaults, value)
        said = worded(defaults, value)
        size = min(cell.height * 0.5, 48.0, 1.5 * cell.width / max(2, len(said)))
        if panel.options.get("graphMode") == "area" and len(one.points) > 1:
            marks += course(one, cell, fill, span)
        middle = cell.left + cell.width / 2
        y = cell.top + cell.height / 2 + size * 0.3
        marks.append(text(middle, y, said, size=size, fill=fill, anchor="middle", weight=500))
        if len(series) > 1:
            name = fitting(one.name, cell.width, 11)
            marks.append(text(middle, cell.top + 12, name, size=11, anchor="middle"))
    return marks


def course(one: Named, cell: Box, fill: str, span: Span) -> list[str]:
    """How a number came about, small and without axes."""
    low, high = ends([value for _, value in one.points if math.isfinite(value)], None, None)
    inside = cell.inner(0, cell.height * 0.6, 0, 2)
    at = Axes(
        Axis(span.start_s, span.end_s, inside.left, inside.right),
        Axis(low, high, inside.bottom, inside.top),
        [],
    )
    return one_line(one.points, fill, at, 0.15, span.step_s)


def bars(panel: Panel, answers: Sequence[Answer], box: Box, _: Span) -> list[str]:
    """One horizontal bar for each thing."""
    defaults = panel.field_config.defaults
    series = named(answers)[:BARS_MAX]
    if not series:
        return []
    values = [last(one.points) for one in series]
    low, high = ends(
        [value for value in values if math.isfinite(value)], defaults.min, defaults.max
    )
    height = min(box.height / len(series), 40.0)
    size = min(12.0, max(8.0, height * 0.6))
    names_width = min(0.4 * box.width, max(6.6 * len(one.name) for one in series) + 12)
    marks = []
    for place, (one, value) in enumerate(zip(series, values, strict=True)):
        top = box.top + place * height
        fill, said = limit_colour(defaults, value), worded(defaults, value)
        track = Box(box.left + names_width, top + 2, box.width - names_width - 90, height - 4)
        axis = Axis(low, high, 0.0, track.width)
        marks.append(rect(track, GRID))
        marks.append(rect(track._replace(width=axis.at(value)), fill, opacity=0.85))
        name = fitting(one.name, names_width, size)
        baseline = top + height / 2 + size / 3
        marks.append(text(box.left + 4, baseline, name, size=size))
        marks.append(text(box.right - 6, baseline, said, size=size, fill=fill, anchor="end"))
    return marks


# --- distributions and text -----------------------------------------------------------------------


def spread(panel: Panel, answers: Sequence[Answer], box: Box, _: Span) -> list[str]:
    """How many values lie where, of all series and moments together."""
    defaults = panel.field_config.defaults
    values = [
        value
        for answer in answers
        for one in answer.series
        for _, value in one.points
        if math.isfinite(value)
    ]
    if not values:
        return []
    low, high = ends(values, defaults.min, defaults.max)
    counts = [0] * BUCKETS
    for value in values:
        counts[min(BUCKETS - 1, max(0, int((value - low) / (high - low) * BUCKETS)))] += 1
    inside = box.inner(50, 4, 10, 20)
    up = Axis(0.0, max(counts) * 1.05, inside.bottom, inside.top)
    across = Axis(low, high, inside.left, inside.right)
    marks = []
    for count in ticks(0, max(counts), 4):
        y = up.at(count)
        marks.append(line(inside.left, y, inside.right, y, GRID))
        said = shown(count)
        marks.append(text(inside.left - 6, y + 4, said, size=11, fill=FAINT, anchor="end"))
    for value in ticks(low, high, 6, defaults.unit):
        said = shown(value, defaults.unit)
        x = across.at(value)
        marks.append(text(x, inside.bottom + 14, said, size=11, fill=FAINT, anchor="middle"))
    width = inside.width / BUCKETS
    for place, count in enumerate(counts):
        top = up.at(count)
        bar = Box(inside.left + place * width + 1, top, width - 2, inside.bottom - top)
        marks.append(rect(bar, NAMED["blue"], opacity=0.8))
    return marks


def words(panel: Panel, box: Box) -> list[str]:
    """A few lines of Markdown, without its marks."""
    marks: list[str] = []
    y = box.top + 14
    for raw in str(panel.options.get("content", "")).splitlines():
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", raw)
        said = re.sub(r"[*_`#]+", "", plain).strip()
        is_heading = raw.startswith("#")
        for row in wrapped(said, box.width - 2 * MARGIN, 12):
            if y > box.bottom:
                return marks
            weight = 600 if is_heading else 400
            marks.append(text(box.left + MARGIN, y, row, size=12, fill=TEXT, weight=weight))
            y += 17
        y += 0 if said else 8
    return marks


def wrapped(said: str, width: float, size: float) -> list[str]:
    """Rows of words that fit."""
    room = max(8, int(width / (size * 0.52)))
    rows: list[str] = []
    for word in said.split():
        if rows and len(rows[-1]) + 1 + len(word) <= room:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def nothing(panel: Panel, box: Box) -> list[str]:
    """What an empty panel says."""
    said = panel.field_config.defaults.no_value or "No data"
    middle = box.left + box.width / 2
    rows = wrapped(said, box.width - 20, 13)
    top = box.top + box.height / 2 - 9 * (len(rows) - 1)
    return [
        text(middle, top + 18 * place, row, size=13, fill=FAINT, anchor="middle")
        for place, row in enumerate(rows)
    ]
