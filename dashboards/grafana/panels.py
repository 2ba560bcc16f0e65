"""From a panel of ours to Grafana's JSON of it: one function for each way to draw.

What all of them share stands in `panel_json`; the rest is calm defaults, the same everywhere: thin
lines, no gradients, legends as tables when there may be many series, one tooltip for all lines.
Options that only some versions of Grafana know are given in both spellings: Grafana leaves out
what it does not know.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

from dashboards.grafana.fields import DATASOURCE, Json, decimals_of, steps_json, words_for
from dashboards.grafana.jumps import data_link
from dashboards.grafana.model import Colour, Draw, Panel, Query
from dashboards.grafana.tables import table_parts

COLUMN_PIXELS_MIN = 50
"""Of a table. Grafana's own 150 would push most of a matrix of ranks out of sight."""
LIST_HEIGHT_MAX = 6
"""Up to this height a legend is one line: a table would leave no room for the lines."""
ALL_VALUES = -1e18
"""The heat map hides cells up to this. Its default hides 0, and a rank that is never late would
look like one that is not measured."""
COLOUR_STEPS = 64
NOTHING = "Nothing to report"

SHOWN: Json = {"legend": False, "tooltip": False, "viz": False}
"""Hidden from nothing."""
LIST: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
LAST: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
"""One value for each series: the last there is."""
LINE_STYLE: Json = {
    "axisBorderShow": False,
    "axisCenteredZero": False,
    "axisColorMode": "text",
    "axisLabel": "",
    "axisPlacement": "auto",
    "barAlignment": 0,
    "drawStyle": "line",
    "gradientMode": "none",
    "hideFrom": SHOWN,
    "insertNulls": False,
    "lineInterpolation": "linear",
    "lineWidth": 1,
    "pointSize": 4,
    "scaleDistribution": {"type": "linear"},
    # A series of one sample would be invisible with "never".
    "showPoints": "auto",
    # A gap is information: nothing was measured.
    "spanNulls": False,
}


def panel_json(panel: Panel, carried: Sequence[str]) -> Json:
    """The panel without id and place; ``carried`` are the variables that its links take along."""
    defaults: Json = {
        "unit": panel.unit.value,
        "thresholds": {"mode": "absolute", "steps": steps_json(panel.steps)},
        "color": {"mode": "thresholds"},
        "mappings": mappings_of(panel),
        "links": [data_link(panel.jump, carried, panel.draw)] if panel.jump else [],
    }
    if text := empty_text(panel):
        defaults["noValue"] = text
    decimals = decimals_of(panel.unit) if panel.decimals is None else panel.decimals
    for key, value in (("min", panel.least), ("max", panel.most), ("decimals", decimals)):
        if value is not None and (panel.draw is not Draw.TABLE or key == "decimals"):
            defaults[key] = value
    made: Json = {
        "type": panel.draw.value,
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "targets": [target_json(panel, query, place) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "transformations": [],
    }
    if panel.draw is Draw.TABLE:
        overrides, made["transformations"], made["options"] = table_parts(panel, carried)
        made["fieldConfig"] = {"defaults": defaults, "overrides": overrides}
        defaults["custom"] = {
            "align": "auto",
            "filterable": False,
            "inspect": False,
            "minWidth": COLUMN_PIXELS_MIN,
        }
    else:
        made["options"] = STYLES[panel.draw](panel, defaults)
    return made


def reference(place: int) -> str:
    """The refId of a query by its place.

    >>> reference(0), reference(1)
    ('A', 'B')
    """
    return string.ascii_uppercase[place]


def target_json(panel: Panel, query: Query, place: int) -> Json:
    is_instant = query.is_instant or panel.draw is Draw.TABLE
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "exemplar": False,
        "expr": query.expr,
        # Never `heatmap`: Grafana would take the series for a histogram's cumulative buckets and
        # subtract each from the next.
        "format": "table" if panel.draw is Draw.TABLE else "time_series",
        "instant": is_instant,
        "legendFormat": query.legend or "__auto",
        "range": not is_instant,
        "refId": reference(place),
    }


def empty_text(panel: Panel) -> str:
    return panel.empty_text or (NOTHING if panel.is_empty_fine else "")


def mappings_of(panel: Panel) -> list[Json]:
    """Words for values, and for no value.

    A number without data would take the colour of the first step, and "not measured" in green
    would mean the opposite: it is grey unless nothing is good news. Tables have theirs by column,
    because a label may be the same text as a value.
    """
    found: list[Json] = []
    if panel.values and panel.draw is not Draw.TABLE:
        found.append(words_for(panel.values))
    if panel.draw in {Draw.NUMBER, Draw.BARS} and (text := empty_text(panel)):
        colour = Colour.FINE if panel.is_empty_fine else Colour.GREY
        result = {"color": colour.value, "index": len(panel.values), "text": text}
        found.append({"type": "special", "options": {"match": "null+nan", "result": result}})
    return found


def legend_json(panel: Panel) -> Json:
    """A table with the last and the largest value where labels make many series, else one line."""
    has_many = any("{{" in query.legend or not query.legend for query in panel.queries)
    if has_many and panel.height > LIST_HEIGHT_MAX:
        calcs = ["lastNotNull", "max"]
        return {**LIST, "calcs": calcs, "displayMode": "table", "sortBy": "Max", "sortDesc": True}
    return LIST


def lines(panel: Panel, defaults: Json) -> Json:
    defaults["color"] = {"mode": "palette-classic"}
    has_limits = any(step.value is not None for step in panel.steps)
    defaults["custom"] = {
        **LINE_STYLE,
        "fillOpacity": 40 if panel.is_stacked else 5,
        "stacking": {"group": "A", "mode": "normal" if panel.is_stacked else "none"},
        "thresholdsStyle": {"mode": "dashed" if has_limits else "off"},
    }
    return {"legend": legend_json(panel), "tooltip": {"mode": "multi", "sort": "desc"}}


def number(panel: Panel, _: Json) -> Json:
    """Big figures, coloured; with the course behind them where the question has one."""
    has_course = any(not query.is_instant for query in panel.queries)
    return {
        "colorMode": "value",
        "graphMode": "area" if has_course else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": LAST,
        "textMode": "auto",
        "wideLayout": True,
    }


def bars(_: Panel, __: Json) -> Json:
    return {
        "displayMode": "basic",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": LAST,
        "showUnfilled": True,
        "valueMode": "color",
    }


def heat(panel: Panel, defaults: Json) -> Json:
    """One row for each series, coloured by value.

    Grafana's heat map takes plain series as rows when it does not calculate buckets itself
    (since 9.0): it joins them by time and shows their names on the axis. A state timeline would
    also do for a few series, but merges cells, has no scale beside it, and turns every value into
    a state.
    """
    scale: Json = {
        "exponent": 0.5,
        "fill": "dark-orange",
        "mode": "scheme",
        "reverse": False,
        "scale": "exponential",
        "scheme": "Oranges",
        "steps": COLOUR_STEPS,
    }
    for key, value in (("min", panel.least), ("max", panel.most)):
        if value is not None:
            scale[key] = value
        defaults.pop(key, None)
    cell: Json = {"unit": panel.unit.value}
    if panel.decimals is not None:
        cell["decimals"] = panel.decimals
    defaults["custom"] = {"hideFrom": SHOWN, "scaleDistribution": {"type": "linear"}}
    return {
        "calculate": False,
        "cellGap": 1,
        "cellValues": cell,
        "color": scale,
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": ALL_VALUES},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        # The first series on top, as in a table.
        "yAxis": {"axisPlacement": "left", "reverse": True},
    }


def states(panel: Panel, defaults: Json) -> Json:
    defaults["custom"] = {
        "fillOpacity": 80,
        "hideFrom": SHOWN,
        "insertNulls": False,
        "lineWidth": 0,
        "spanNulls": False,
    }
    return {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": bool(panel.values)},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto" if panel.values else "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }


def spread(_: Panel, defaults: Json) -> Json:
    """How many things have which value; all series together are one distribution."""
    defaults["color"] = {"mode": "fixed", "fixedColor": Colour.PLAIN.value}
    defaults["custom"] = {
        "fillOpacity": 80,
        "gradientMode": "none",
        "hideFrom": SHOWN,
        "lineWidth": 1,
    }
    return {
        "bucketOffset": 0,
        "combine": True,
        "legend": {**LIST, "showLegend": False},
        "tooltip": {"mode": "single", "sort": "none"},
    }


STYLES: dict[Draw, Callable[[Panel, Json], Json]] = {
    Draw.LINES: lines,
    Draw.NUMBER: number,
    Draw.BARS: bars,
    Draw.HEAT: heat,
    Draw.STATES: states,
    Draw.SPREAD: spread,
}
"""The options of a panel; each may also change the defaults of its fields."""
