"""Rows of cells over time: heat maps of many series, and states as long as they last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dashboards.grafana.picture.ask import Answer, Span
from dashboards.grafana.picture.draw import LEGEND_ROW, limit_colour, named, worded
from dashboards.grafana.picture.marks import FAINT, Box, fitting, rect, text
from dashboards.grafana.picture.parts import Panel
from dashboards.grafana.picture.scales import Axis, clock, time_ticks
from dashboards.grafana.picture.units import shown

ROWS_MAX = 64
"""Series in one grid; below three pixels a row is nothing to see."""
SCALE = ((0.0, (38, 30, 25)), (0.35, (140, 58, 12)), (0.7, (241, 105, 19)), (1.0, (254, 230, 206)))
"""Oranges from dark to light, as Grafana has them in its dark theme."""
NAME_SHARE = 0.3
"""Of a panel's width that the names of rows may take."""
WORDS_MAX = 12
"""States that a legend names."""
NAME_HEIGHT = 10.0
"""Pixels that a name needs; of lower rows only some have theirs."""


def heat_colour(share: float) -> str:
    """A colour of the scale, for 0 to 1.

    >>> heat_colour(0.0), heat_colour(2.0)
    ('#261e19', '#fee6ce')
    """
    share = min(max(share, 0.0), 1.0)
    for (low, dark), (high, light) in itertools.pairwise(SCALE):
        if share <= high:
            part = (share - low) / (high - low)
            mixed = [round(one + part * (two - one)) for one, two in zip(dark, light, strict=True)]
            return "#{:02x}{:02x}{:02x}".format(*mixed)
    return "#{:02x}{:02x}{:02x}".format(*SCALE[-1][1])


def names_room(names: Sequence[str], box: Box) -> float:
    """Pixels for the names of rows."""
    return min(NAME_SHARE * box.width, 6.3 * max(map(len, names), default=1) + 12)


def time_marks(across: Axis, span: Span, y: float) -> list[str]:
    """The times below a grid."""
    length_s = span.end_s - span.start_s
    count = max(2, int((across.end - across.start) / 90))
    return [
        text(across.at(at), y, clock(at, length_s), size=11, fill=FAINT, anchor="middle")
        for at in time_ticks(span.start_s, span.end_s, count)
        if across.start + 10 < across.at(at) < across.end - 10
    ]


def heat(panel: Panel, answers: Sequence[Answer], box: Box, span: Span) -> list[str]:
    """One row for each series, coloured by value."""
    series = [one for one in named(answers) if one.points][:ROWS_MAX]
    values = [v for one in series for _, v in one.points if math.isfinite(v)]
    if not values:
        return []
    scale = panel.options.get("color", {})
    low = float(scale.get("min", min(values)))
    high = float(scale.get("max", max(values)))
    exponent = float(scale.get("exponent", 1.0)) if scale.get("scale") == "exponential" else 1.0
    inside = box.inner(names_room([one.name for one in series], box), 4, 10, 20 + 26)
    across = Axis(span.start_s, span.end_s, inside.left, inside.right)
    height = inside.height / len(series)
    width = inside.width * span.step_s / (span.end_s - span.start_s)
    marks = []
    for place, one in enumerate(series):
        top = inside.top + place * height
        if place % max(1, math.ceil(NAME_HEIGHT / height)) == 0:
            name = fitting(one.name, inside.left - box.left - 8, 11)
            y = top + height / 2 + 4
            marks.append(text(inside.left - 6, y, name, size=min(11, max(8, height)), anchor="end"))
        for at, value in one.points:
            if not math.isfinite(value):
                continue
            share = (value - low) / (high - low) if high > low else 0.0
            fill = heat_colour(min(max(share, 0.0), 1.0) ** exponent)
            left = max(inside.left, across.at(at) - width)
            cell = Box(left, top, max(0.5, across.at(at) - left - 0.6), max(1.0, height - 0.8))
            marks.append(rect(cell, fill))
    marks += time_marks(across, span, inside.bottom + 14)
    unit = str(panel.options.get("cellValues", {}).get("unit", "short"))
    return [*marks, *scale_marks(Box(inside.left, box.bottom - 20, 180, 8), low, high, unit)]


def scale_marks(box: Box, low: float, high: float, unit: str) -> list[str]:
    """What the colours mean."""
    cells = 30
    width = box.width / cells
    marks = [
        rect(
            Box(box.left + place * width, box.top, width + 0.5, box.height),
            heat_colour(place / cells),
        )
        for place in range(cells)
    ]
    marks.append(text(box.left, box.bottom + 11, shown(low, unit), size=10, fill=FAINT))
    marks.append(
        text(box.right, box.bottom + 11, shown(high, unit), size=10, fill=FAINT, anchor="end")
    )
    return marks


def states(panel: Panel, answers: Sequence[Answer], box: Box, span: Span) -> list[str]:
    """A band for each series, one colour for as long as its state lasts."""
    defaults = panel.field_config.defaults
    series = [one for one in named(answers) if one.points][:ROWS_MAX]
    if not series:
        return []
    inside = box.inner(names_room([one.name for one in series], box), 4, 10, 20 + LEGEND_ROW)
    across = Axis(span.start_s, span.end_s, inside.left, inside.right)
    height = inside.height / len(series)
    marks = []
    seen: dict[str, str] = {}
    for place, one in enumerate(series):
        top = inside.top + place * height + 0.05 * height
        name = fitting(one.name, inside.left - box.left - 8, 11)
        size = min(11.0, max(7.0, height * 0.9))
        y = top + 0.45 * height + size / 3
        marks.append(text(inside.left - 6, y, name, size=size, anchor="end"))
        for start, end, value in lasting(one.points, span):
            left, right = across.at(start), across.at(end)
            fill, said = limit_colour(defaults, value), worded(defaults, value)
            seen.setdefault(said, fill)
            marks.append(
                rect(Box(left, top, max(1.0, right - left), 0.9 * height), fill, opacity=0.8)
            )
            is_said = panel.options.get("showValue") != "never"
            if is_said and height > NAME_HEIGHT and right - left > 7 * len(said) + 6:
                marks.append(text(left + 4, y, said, size=11, fill="#111217"))
    marks += time_marks(across, span, inside.bottom + 14)
    if not panel.options.get("legend", {}).get("showLegend", True):
        return marks
    x = box.left + 8
    for said, fill in sorted(seen.items())[:WORDS_MAX]:
        marks.append(rect(Box(x, box.bottom - 10, 12, 4), fill))
        marks.append(text(x + 16, box.bottom - 5, said, size=11))
        x += 30 + 6.5 * len(said)
    return marks


def lasting(points: Sequence[tuple[float, float]], span: Span) -> list[tuple[float, float, float]]:
    """From when to when a value stayed the same; gaps end it."""
    found: list[tuple[float, float, float]] = []
    for at, value in points:
        if not math.isfinite(value):
            continue
        end = min(at + span.step_s, span.end_s)
        if found and found[-1][2] == value and at <= found[-1][1] + 1e-6:
            found[-1] = (found[-1][0], end, value)
        else:
            found.append((at, end, value))
    return found
