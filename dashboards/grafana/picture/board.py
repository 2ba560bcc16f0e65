"""A whole board as one SVG: title, choices, rows and panels where Grafana's grid puts them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dashboards.grafana.picture.ask import Answer, AskError, Source, Span, ask, choose
from dashboards.grafana.picture.draw import (
    Region,
    bars,
    lines,
    nothing,
    numbers,
    pieces,
    spread,
    words,
)
from dashboards.grafana.picture.grids import heat, states
from dashboards.grafana.picture.marks import (
    BACKGROUND,
    BORDER,
    FAINT,
    MARGIN,
    PANEL,
    TEXT,
    Box,
    colour,
    fitting,
    rect,
    text,
)
from dashboards.grafana.picture.parts import Dashboard, Panel
from dashboards.grafana.picture.tables import tables
from dashboards.grafana.substitute import ALL, Value, substituted

WIDTH = 1_400.0
COLUMNS = 24
CELL = 30.0
GAP = 8.0
"""Grafana's grid: cells of 30 pixels with 8 between them."""
HEAD = 74.0
"""Title and choices."""
TITLE = 28.0
"""Of a panel."""
HEIGHT_MAX = 20_000.0
"""Of a page. Ours have a tenth of it; a board of somebody else may say anything."""
REGIONS_MAX = 100
"""Annotations on one board: beyond it everything is red."""
FONT = "Inter, Roboto, 'DejaVu Sans', Arial, sans-serif"

Draw = Callable[[Panel, Sequence[Answer], Box, Span], list[str]]
DRAWN: dict[str, Draw] = {
    "timeseries": lines,
    "stat": numbers,
    "bargauge": bars,
    "table": tables,
    "heatmap": heat,
    "state-timeline": states,
    "histogram": spread,
}


def draw_board(
    board: Dashboard, source: Source, span: Span, wanted: Mapping[str, str] | None = None
) -> str:
    """The page. ``wanted`` are values of variables; others are as when the board is opened.

    Raises AskError when a variable cannot be read; a panel whose question is refused says so.
    """
    chosen = choose(board, source, span, wanted or {})
    regions = incident_spans(board, source, span, chosen)
    marks = head(board, chosen, span)
    bottom = HEAD
    for panel in unfolded(board.panels):
        box = place(panel)
        bottom = max(bottom, min(box.bottom, HEIGHT_MAX))
        if box.bottom > HEIGHT_MAX:
            continue
        if panel.type == "row":
            marks.append(text(box.left + 4, box.top + 20, f"⌄  {panel.title}", size=15, weight=500))
        else:
            marks += panel_marks(panel, source, span, chosen, box, regions)
    height = bottom + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{height:g}"'
        f' viewBox="0 0 {WIDTH:g} {height:g}" font-family="{FONT}">'
        f"{rect(Box(0, 0, WIDTH, height), BACKGROUND)}{''.join(marks)}</svg>"
    )


def unfolded(panels: Sequence[Panel]) -> list[Panel]:
    """All panels as if every row had been opened, each row below the one before."""
    made: list[Panel] = []
    down = 0
    for panel in panels:
        made.append(moved(panel, down))
        if panel.type == "row" and panel.panels:
            made += [moved(one, down) for one in panel.panels]
            bottom = max(one.grid_pos.y + one.grid_pos.h for one in panel.panels)
            down += bottom - panel.grid_pos.y - 1
    return made


def moved(panel: Panel, down: int) -> Panel:
    """The panel, further down."""
    at = panel.grid_pos
    return msgspec.structs.replace(panel, grid_pos=msgspec.structs.replace(at, y=at.y + down))


def place(panel: Panel) -> Box:
    """A panel's pixels."""
    at = panel.grid_pos
    cell = (WIDTH - GAP) / COLUMNS
    return Box(
        GAP + at.x * cell,
        HEAD + at.y * (CELL + GAP),
        at.w * cell - GAP,
        at.h * (CELL + GAP) - GAP,
    )


def head(board: Dashboard, chosen: Mapping[str, Value], span: Span) -> list[str]:
    """What stands above all panels."""
    start, end = (dt.datetime.fromtimestamp(at, tz=dt.UTC) for at in (span.start_s, span.end_s))
    said = f"{start:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"
    marks = [
        text(GAP + 6, 28, board.title, size=20, weight=500),
        text(WIDTH - GAP - 6, 28, said, size=13, fill=FAINT, anchor="end"),
        text(GAP + 16 + 11.5 * len(board.title), 28, board.description, size=13, fill=FAINT),
    ]
    x = GAP + 6
    for variable in board.templating.variables:
        if variable.type != "query":
            continue
        value = chosen.get(variable.name, "")
        word = "All" if value == ALL else str(value)
        label = variable.label or variable.name
        label_width, width = 7.2 * len(label) + 16, 7.4 * len(word) + 20
        marks.append(rect(Box(x, 42, label_width + width, 24), PANEL, stroke=BORDER, radius=2))
        marks.append(text(x + 8, 58, label, size=12, fill=FAINT))
        marks.append(text(x + label_width + 6, 58, word, size=12, fill=TEXT))
        x += label_width + width + 10
    return marks


def panel_marks(
    panel: Panel,
    source: Source,
    span: Span,
    chosen: Mapping[str, Value],
    box: Box,
    regions: Sequence[Region],
) -> list[str]:
    """A panel with its frame."""
    title = fitting(panel.title, box.width - 2 * MARGIN, 13)
    frame = [
        rect(box, PANEL, stroke=BORDER, radius=2),
        text(box.left + MARGIN, box.top + 19, title, size=13.5, weight=500),
    ]
    inside = box.inner(MARGIN, TITLE, MARGIN, MARGIN)
    if panel.type == "text":
        return [*frame, *words(panel, inside)]
    draw = DRAWN.get(panel.type)
    if draw is None:
        return [*frame, *nothing(panel, inside)]
    try:
        answers = ask(panel, source, span, chosen)
    except AskError as error:
        return [*frame, text(inside.left, inside.top + 14, str(error)[:200], fill=colour("red"))]
    drawn: list[str] = []
    if any(one.series for one in answers):
        has_time = panel.type == "timeseries"
        drawn = (
            lines(panel, answers, inside, span, regions)
            if has_time
            else draw(panel, answers, inside, span)
        )
    return [*frame, *(drawn or nothing(panel, inside))]


def incident_spans(
    board: Dashboard, source: Source, span: Span, chosen: Mapping[str, Value]
) -> list[Region]:
    """What the board draws over all lines: from when to when, and its colour."""
    found: list[Region] = []
    for annotation in board.annotations.layers:
        if not annotation.expr:
            continue
        expr = substituted(annotation.expr, chosen, span.lengths())
        for series in source.range(expr, span):
            is_true = [(at, value) for at, value in series.points if value]
            fill = colour(annotation.icon_color)
            found += [
                Region(piece[0][0], piece[-1][0], fill) for piece in pieces(is_true, span.step_s)
            ]
    return found[:REGIONS_MAX]
