"""Tables: answers merged by their labels, then the columns that the board asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dashboards.grafana.picture.ask import Answer, Span, natural
from dashboards.grafana.picture.draw import last, limit_colour, worded
from dashboards.grafana.picture.marks import (
    BACKGROUND,
    FAINT,
    GRID,
    LINK,
    TEXT,
    Box,
    fitting,
    line,
    rect,
    text,
)
from dashboards.grafana.picture.parts import Defaults, Limits, Panel, Property
from dashboards.grafana.picture.units import shown

ROW = 24.0
"""Pixels of a row."""
NAME_WIDTH, NAME_HEIGHT = 24.0, 10.0
"""Pixels that a name of a matrix needs; of smaller cells only some have theirs."""
LETTER = 6.4
"""Pixels of a letter in a cell."""
VALUE = "Value"

Cell = str | float
Row = dict[str, Cell]


class Shown(NamedTuple):
    """A column: the field that it shows, its title and how."""

    field: str
    title: str
    defaults: Defaults
    is_coloured: bool
    is_link: bool
    width: float | None


def merged(answers: Sequence[Answer]) -> list[Row]:
    """One row for each set of labels, with a value for each question.

    As Grafana's `merge`: rows whose common labels are the same become one.
    """
    rows: list[Row] = []
    for answer in answers:
        name = VALUE if len(answers) == 1 else f"{VALUE} #{answer.target.ref_id}"
        made: list[Row] = []
        for one in answer.series:
            labels: Row = {key: text for key, text in one.labels.items() if key != "__name__"}
            fitting_rows = [row for row in rows if name not in row and shares(row, labels)]
            for row in fitting_rows:
                row.update(labels)
                row[name] = last(one.points)
            if not fitting_rows:
                made.append({**labels, name: last(one.points)})
        rows += made
    return rows


def shares(row: Row, labels: Row) -> bool:
    """Whether all labels that both have are the same."""
    common = row.keys() & labels.keys()
    return all(row[key] == labels[key] for key in common)


def columns_of(panel: Panel, rows: Sequence[Row]) -> list[Shown]:
    """What is shown, in order."""
    names: dict[str, str] = {}
    order: dict[str, float] = {}
    for step in panel.transformations:
        if step.id == "organize":
            names |= step.options.get("renameByName", {})
            order |= step.options.get("indexByName", {})
    present = dict.fromkeys(key for row in rows for key in row)
    fields = sorted(
        (key for key in present if not order or key in order), key=lambda key: order.get(key, 0)
    )
    made = [column(panel, key, names.get(key, key)) for key in fields]
    return [one for one in made if one is not None]


def column(panel: Panel, field: str, title: str) -> Shown | None:
    """How a column is shown; None if it is hidden."""
    properties: list[Property] = []
    for override in panel.field_config.overrides:
        if override.matcher.id == "byName" and override.matcher.options == title:
            properties += override.properties
    by_id = {one.id: one.value for one in properties}
    if by_id.get("custom.hidden"):
        return None
    defaults = panel.field_config.defaults
    changed: dict[str, Any] = {}
    if "unit" in by_id:
        changed["unit"] = str(by_id["unit"])
    if "mappings" in by_id:
        changed["mappings"] = by_id["mappings"]
    if "thresholds" in by_id:
        changed["thresholds"] = msgspec.convert(by_id["thresholds"], Limits)
    cell = by_id.get("custom.cellOptions", {})
    return Shown(
        field,
        title,
        msgspec.structs.replace(defaults, **changed),
        is_coloured=isinstance(cell, Mapping) and str(cell.get("type", "")).startswith("color"),
        is_link=bool(by_id.get("links")),
        width=by_id.get("custom.width"),
    )


def sorted_rows(panel: Panel, rows: Sequence[Row], columns: Sequence[Shown]) -> list[Row]:
    """The rows in the board's order."""
    for order in panel.options.get("sortBy", [])[:1]:
        field = next((one.field for one in columns if one.title == order.get("displayName")), None)
        if field is not None:
            has, lacks = [r for r in rows if field in r], [r for r in rows if field not in r]
            has.sort(key=lambda row: sort_key(row[field]), reverse=bool(order.get("desc")))
            return has + lacks
    return list(rows)


def sort_key(cell: Cell) -> tuple[float, list[tuple[int, str]]]:
    """Numbers by size, words by their numbers and letters."""
    if isinstance(cell, str):
        return 0.0, natural(cell)
    return (-math.inf if math.isnan(cell) else cell), []


def said(one: Shown, cell: Cell) -> str:
    """A cell as a person reads it."""
    return cell if isinstance(cell, str) else worded(one.defaults, cell)


def tables(panel: Panel, answers: Sequence[Answer], box: Box, _: Span) -> list[str]:
    """Rows and columns, as many as fit."""
    matrix_step = next((one for one in panel.transformations if one.id == "groupingToMatrix"), None)
    rows = merged(answers)
    if not rows:
        return []
    if matrix_step is not None:
        return matrix(panel, rows, matrix_step.options, box)
    columns = columns_of(panel, rows)
    ordered = sorted_rows(panel, rows, columns)
    lefts = column_lefts(columns, ordered, box)
    marks = []
    for one, (left, width) in zip(columns, lefts, strict=True):
        title = fitting(one.title, width - 8, 12)
        is_number = one.field.startswith(VALUE)
        x, anchor = (left + width - 8, "end") if is_number else (left + 8, "start")
        marks.append(text(x, box.top + 15, title, size=12, fill=LINK, anchor=anchor, weight=500))
    room = int((box.height - ROW) // ROW)
    for place, row in enumerate(ordered[:room]):
        top = box.top + ROW * (place + 1)
        marks.append(line(box.left, top, box.right, top, GRID))
        for one, (left, width) in zip(columns, lefts, strict=True):
            marks += cell_marks(one, row.get(one.field), Box(left, top, width, ROW))
    if len(ordered) > room:
        more = f"{len(ordered) - room} more rows"
        marks.append(text(box.right - 8, box.bottom + 4, more, size=10, fill=FAINT, anchor="end"))
    return marks


def cell_marks(one: Shown, cell: Cell | None, box: Box) -> list[str]:
    """One cell."""
    if cell is None:
        return []
    fill = LINK if one.is_link else TEXT
    if one.is_coloured and not isinstance(cell, str):
        fill = limit_colour(one.defaults, cell)
    is_number = one.field.startswith(VALUE)
    x, anchor = (box.right - 8, "end") if is_number else (box.left + 8, "start")
    shown_text = fitting(said(one, cell), box.width - 10, 12)
    return [text(x, box.top + 16, shown_text, size=12, fill=fill, anchor=anchor)]


def column_lefts(
    columns: Sequence[Shown], rows: Sequence[Row], box: Box
) -> list[tuple[float, float]]:
    """Where columns begin and how wide they are: by what stands in them."""
    wanted = [
        one.width
        or 7.0
        * max(
            [
                len(one.title),
                *(len(said(one, row[one.field])) for row in rows[:30] if one.field in row),
            ]
        )
        + 18
        for one in columns
    ]
    factor = box.width / sum(wanted) if wanted else 1.0
    lefts, left = [], box.left
    for width in wanted:
        lefts.append((left, width * factor))
        left += width * factor
    return lefts


def matrix(panel: Panel, rows: Sequence[Row], options: Mapping[str, Any], box: Box) -> list[str]:
    """A row for each value of one label, a column for each of another, cells coloured."""
    down, across = str(options.get("rowField", "")), str(options.get("columnField", ""))
    value = str(options.get("valueField", VALUE))
    cells = {
        (str(row.get(down, "")), str(row.get(across, ""))): row[value]
        for row in rows
        if value in row
    }
    names_down = sorted({key[0] for key in cells}, key=natural)
    names_across = sorted({key[1] for key in cells}, key=natural)
    side = min(90.0, 7.0 * max(len(f"{down} {across}"), *map(len, names_down)) + 12)
    inside = box.inner(side, 20, 6, 4)
    width = inside.width / max(1, len(names_across))
    height = min(ROW, inside.height / max(1, len(names_down)))
    marks = [text(box.left + 4, box.top + 13, f"{down} \\ {across}", size=11, fill=FAINT)]
    for place, name in enumerate(names_across):
        if place % max(1, math.ceil(NAME_WIDTH / width)) == 0:
            x = inside.left + (place + 0.5) * width
            short = fitting(name, max(width, NAME_WIDTH), 11)
            marks.append(text(x, box.top + 13, short, size=11, fill=LINK, anchor="middle"))
    for number, name in enumerate(names_down):
        top = inside.top + number * height
        if number % max(1, math.ceil(NAME_HEIGHT / height)) == 0:
            size = min(11.0, max(8.0, height))
            y = top + height / 2 + 4
            marks.append(text(inside.left - 6, y, name, size=size, anchor="end"))
        for place, other in enumerate(names_across):
            found = cells.get((name, other))
            if isinstance(found, float):
                cell = Box(inside.left + place * width, top, width, height)
                marks += matrix_cell(panel.field_config.defaults, found, cell)
    return marks


def matrix_cell(defaults: Defaults, value: float, box: Box) -> list[str]:
    """A coloured cell, with its number where that fits."""
    inside = box._replace(width=max(1.0, box.width - 1), height=max(1.0, box.height - 1))
    marks = [rect(inside, limit_colour(defaults, value), opacity=0.85)]
    number = shown(value, defaults.unit, defaults.decimals)
    if box.height >= NAME_HEIGHT and box.width > LETTER * len(number):
        x, y = box.left + box.width / 2, box.top + box.height / 2 + 4
        marks.append(text(x, y, number, size=10, fill=BACKGROUND, anchor="middle"))
    return marks
