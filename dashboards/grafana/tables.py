"""Tables: only the columns asked for, under their titles, in their order; or as a matrix.

Grafana answers an instant question with a table of all labels, `Time` and `Value`. Several
questions are merged by their labels first; then other columns are taken out, and the rest are put
in order and named.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.grafana.fields import Json, decimals_of, steps_json, words_for
from dashboards.grafana.jumps import data_link
from dashboards.grafana.model import Column, Draw, Jump, Matrix, Panel, Unit

VALUE = "Value"
EMPTY_CELLS: Json = {
    "matcher": {"id": "byRegexp", "options": "/.*/"},
    "properties": [{"id": "noValue", "value": ""}],
}
"""What a table says when nothing is there would else stand in each cell without a value, too."""
UNCOLOURED: Json = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"color": "transparent", "index": 0, "text": ""}},
}
"""A cell without a value. It would have the colour of the first step, and pairs that never met
would be as green as those that are well."""


def table_parts(panel: Panel, carried: Sequence[str]) -> tuple[list[Json], list[Json], Json]:
    options: Json = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "fields": "", "reducer": ["sum"], "show": False},
        "showHeader": True,
        "sortBy": [{"desc": True, "displayName": panel.sort_by}] if panel.sort_by else [],
    }
    if panel.matrix:
        overrides = [EMPTY_CELLS, *matrix_overrides(panel.matrix)]
        return overrides, matrix_transformations(panel.matrix), options
    hidden = hidden_labels(panel)
    overrides = [EMPTY_CELLS]
    overrides += [column_override(column, panel, carried) for column in panel.columns]
    overrides += [hidden_override(label) for label in hidden]
    return overrides, column_transformations(panel, hidden), options


def hidden_labels(panel: Panel) -> list[str]:
    """Labels that links need and no column shows: they stay in the table, out of sight."""
    jumps: list[Jump] = [column.jump for column in panel.columns if column.jump]
    if panel.jump:
        jumps.append(panel.jump)
    shown = {column.label for column in panel.columns}
    return sorted({label for jump in jumps for label in jump.variables.values()} - shown)


def names_of(column: Column) -> list[str]:
    """What Grafana may call the column before it is renamed.

    Of several questions the values are `Value #A`, `Value #B`, …; of one, `Value`; and of several
    of which only one has an answer, some versions call it `Value` too.
    """
    return [VALUE, f"{VALUE} #A"] if column.label == VALUE else [column.label]


def column_transformations(panel: Panel, hidden: Sequence[str]) -> list[Json]:
    made: list[Json] = [{"id": "merge", "options": {}}] if len(panel.queries) > 1 else []
    if not panel.columns:
        return [*made, {"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    named = [(name, column.title) for column in panel.columns for name in names_of(column)]
    wanted = [name for name, _ in named] + list(hidden)
    return [
        *made,
        {"id": "filterFieldsByName", "options": {"include": {"names": wanted}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: place for place, name in enumerate(wanted)},
                "renameByName": dict(named),
            },
        },
    ]


def override(name: str, properties: Sequence[tuple[str, object]]) -> Json:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties],
    }


def column_override(column: Column, panel: Panel, carried: Sequence[str]) -> Json:
    properties: list[tuple[str, object]] = []
    if column.label.startswith(VALUE):
        unit = column.unit or panel.unit
        properties.append(("unit", unit.value))
        if (decimals := decimals_of(unit)) is not None:
            properties.append(("decimals", decimals))
        if panel.values and column.unit is None:
            properties.append(("mappings", [words_for(panel.values)]))
    else:
        # A label that looks like a number (a port, a serial) must not become "1.2 K".
        properties.append(("unit", (column.unit or Unit.TEXT).value))
    if column.steps:
        properties += coloured("color-text")
        steps: Json = {"mode": "absolute", "steps": steps_json(column.steps)}
        properties.append(("thresholds", steps))
    if column.width:
        properties.append(("custom.width", column.width))
    if column.jump:
        properties.append(("links", [data_link(column.jump, carried, Draw.TABLE)]))
    return override(column.title, properties)


def coloured(how: str) -> list[tuple[str, object]]:
    """Cells coloured by value: in the form of Grafana 9.4 and newer, and in the older one."""
    return [("custom.cellOptions", {"type": how}), ("custom.displayMode", how)]


def hidden_override(label: str) -> Json:
    """A hidden column that links read; the second form is that of Grafana 12.2 and newer."""
    nowhere = {"legend": True, "tooltip": True, "viz": True}
    return override(label, [("custom.hidden", True), ("custom.hideFrom", nowhere)])


def corner(matrix: Matrix) -> str:
    """What Grafana calls the first column of a matrix, which holds the rows' names."""
    return f"{matrix.rows}\\{matrix.columns}"


def matrix_transformations(matrix: Matrix) -> list[Json]:
    """A row for each value of one label, a column for each of the other, both in order.

    Columns stand in the order in which they first come, so they are sorted before; rows are
    sorted after, because the first columns need not have all of them.
    """
    made: list[Json] = []
    if matrix.is_numeric:
        numbers = [
            {"destinationType": "number", "targetField": label}
            for label in (matrix.rows, matrix.columns)
        ]
        made.append({"id": "convertFieldType", "options": {"conversions": numbers, "fields": {}}})
    names: Json = {
        "columnField": matrix.columns,
        "emptyValue": "null",
        "rowField": matrix.rows,
        "valueField": VALUE,
    }
    return [
        *made,
        sorted_by(matrix.columns),
        {"id": "groupingToMatrix", "options": names},
        sorted_by(corner(matrix)),
    ]


def sorted_by(field: str) -> Json:
    return {"id": "sortBy", "options": {"fields": {}, "sort": [{"desc": False, "field": field}]}}


def matrix_overrides(matrix: Matrix) -> list[Json]:
    """Cells are coloured by the panel's steps, the rows' names are not."""
    properties = [*coloured("color-background"), ("mappings", [UNCOLOURED])]
    cells: Json = {
        "matcher": {"id": "byType", "options": "number"},
        "properties": [{"id": key, "value": value} for key, value in properties],
    }
    names = override(corner(matrix), [("unit", Unit.TEXT.value), *coloured("auto")])
    return [cells, names]
