"""From a board of ours to Grafana's Classic JSON, which Grafana 9 to 13 read from files and APIs.

The same board always gives the same text, byte for byte: `push` finds changes by it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dashboards.grafana.fields import DATASOURCE, Json
from dashboards.grafana.jumps import uid_of
from dashboards.grafana.model import Board, Panel, Row, Variable
from dashboards.grafana.panels import panel_json
from dashboards.grafana.substitute import ALL

SCHEMA_VERSION = 39
"""Grafana 10.4's and 11's. Newer ones lift it when they load it; older ones leave out what they do
not know."""
TAG = "fabricscope"
"""On every board, and what the menu of boards looks for."""

REFRESH_ON_TIME = 2
"""A variable asks again when the range of time changes: hosts come and go."""
SORT_NATURAL = 7
"""node-9 before node-10. Grafana before 10 keeps the order of the answer: alphabetical."""
SHARED_CROSSHAIR = 1
GRID_COLUMNS = 24

CULPRIT = ("switch", "switch_port", "host", "device", "port", "gpu", "rank")
"""Labels that name an incident's culprit, from the fabric to the rank."""


def to_classic(name: str, board: Board) -> Json:
    """The dashboard. ``name`` is the name of the board's file, from which its uid comes."""
    return {
        "uid": uid_of(name),
        "title": board.title,
        "description": board.question,
        "tags": list(dict.fromkeys([TAG, *board.tags])),
        "annotations": {"list": [incidents_json(board)] if board.has_incidents else []},
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": SHARED_CROSSHAIR,
        "links": [menu_json()],
        "panels": laid_out(board),
        "refresh": board.refresh,
        "schemaVersion": SCHEMA_VERSION,
        "templating": {"list": [datasource_json(), *map(variable_json, board.variables)]},
        "time": {"from": board.since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "weekStart": "",
    }


def text_of(name: str, board: Board) -> str:
    """The dashboard as a file: keys in order, two spaces, a newline at the end."""
    return text_of_json(to_classic(name, board))


def text_of_json(dashboard: Json) -> str:
    """The one way to write a dashboard, so that a comparison sees only what differs."""
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def datasource_json() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


def variable_json(variable: Variable) -> Json:
    has_all = variable.is_many or variable.is_all_default
    made: Json = {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": DATASOURCE,
        "definition": variable.query,
        # As a text: an object is refused by the schema, and every version reads the text.
        "query": variable.query,
        "hide": 0,
        "includeAll": has_all,
        "multi": variable.is_many,
        "options": [],
        "refresh": REFRESH_ON_TIME,
        "regex": "",
        "skipUrlSync": False,
        "sort": SORT_NATURAL,
    }
    if has_all:
        made["allValue"] = ALL
    if variable.is_all_default:
        made["current"] = {
            "selected": True,
            "text": ["All"] if variable.is_many else "All",
            "value": ["$__all"] if variable.is_many else "$__all",
        }
    return made


def menu_json() -> Json:
    return {
        "type": "dashboards",
        "title": "Fabricscope",
        "tooltip": "The other boards, at the same time and with the same choices",
        "icon": "external link",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "url": "",
    }


def incidents_json(board: Board) -> Json:
    """Incidents over all panels: a region from its first verdict until it is over.

    Grafana draws a region where a series is 1, so the confidence is made one. An incident has a
    series for each job that suffers; they are one here. The culprit is put together in the
    question, because Grafana writes a label's name where a series lacks the label.
    """
    matcher = '{job=~"$job"}' if any(each.name == "job" for each in board.variables) else ""
    labels = ", ".join(("incident", "cause", *CULPRIT))
    expr = f"max by ({labels}) (fabric_incident{matcher}) > bool 0"
    for label, word in (("port", "port"), ("gpu", "GPU"), ("rank", "rank")):
        expr = f'label_replace({expr}, "{label}", "{word} $1", "{label}", "(.+)")'
    parts = ", ".join(f'"{label}"' for label in CULPRIT)
    return {
        "name": "Incidents",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": f'label_join({expr}, "culprit", " ", {parts})',
        "step": "30s",
        "titleFormat": "{{cause}}",
        "textFormat": "{{culprit}} (incident {{incident}})",
        "tagKeys": "cause",
        "useValueForTime": False,
    }


def laid_out(board: Board) -> list[Json]:
    """All panels with ids and places: rows below each other, panels from left to right."""
    carried = [variable.name for variable in board.variables]
    made: list[Json] = []
    top = 0
    number = 1
    for row in board.rows:
        heading: list[Json] = []
        if row.title:
            heading = [row_json(row, number, top)]
            number, top = number + 1, top + 1
        panels, bottom = flow(row.panels, number, top, carried)
        number += len(panels)
        if row.is_folded and heading:
            heading[0]["panels"] = panels
            made += heading
        else:
            made += [*heading, *panels]
            top = bottom
    return made


def row_json(row: Row, number: int, top: int) -> Json:
    return {
        "type": "row",
        "id": number,
        "title": row.title,
        "collapsed": row.is_folded,
        "gridPos": {"h": 1, "w": GRID_COLUMNS, "x": 0, "y": top},
        "panels": [],
    }


def flow(
    panels: Sequence[Panel], number: int, top: int, carried: Sequence[str]
) -> tuple[list[Json], int]:
    """Panels from left to right, a new line where one does not fit; and where the last ends."""
    made: list[Json] = []
    left = line_height = 0
    for panel in panels:
        assert 0 < panel.width <= GRID_COLUMNS, f"{panel.title}: {panel.width} columns wide"
        if left + panel.width > GRID_COLUMNS:
            left, top, line_height = 0, top + line_height, 0
        place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
        made.append({**panel_json(panel, carried), "id": number + len(made), "gridPos": place})
        left += panel.width
        line_height = max(line_height, panel.height)
    return made, top + line_height
