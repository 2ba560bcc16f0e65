"""The words of Grafana's that a dashboard uses, held against what Grafana's own libraries know.

`tests/fixtures/grafana/registries.json` lists the ids of `@grafana/data` and the enumerations of
`@grafana/schema`; `tests/tools/grafana/registries.cjs` prints them. A word that Grafana does not
know is no error there: the unit, the transformation or the option is left out without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

REGISTRIES = Path(__file__).parents[1] / "fixtures/grafana/registries.json"
CSS_COLOURS = {"gray", "transparent"}
"""Colours that Grafana hands to the browser by their name."""


class Word(NamedTuple):
    """A word, and the list that should have it."""

    kind: str
    """A key of the registries, or the name of an enumeration."""
    value: object
    where: str


@cache
def known() -> dict[str, set[object]]:
    """All words by their kind."""
    read = json.loads(REGISTRIES.read_text("utf-8"))
    enums = read.pop("enums")
    del read["package"]
    read["colours"] += CSS_COLOURS
    return {kind: set(words) for kind, words in (read | enums).items()}


def unknown_words(dashboard: Mapping[str, Any]) -> list[str]:
    """Each word of a dashboard that Grafana's libraries do not know, and where it stands."""
    return [
        f"{word.where}: {word.value!r} is not in {word.kind}"
        for word in words_of(dashboard)
        if word.value not in known()[word.kind]
    ]


def words_of(dashboard: Mapping[str, Any]) -> Iterator[Word]:
    """All words of all panels, folded ones too."""
    yield Word("DashboardCursorSync", dashboard["graphTooltip"], "graphTooltip")
    for variable in dashboard["templating"]["list"]:
        where = f"${variable['name']}"
        yield Word("VariableHide", variable["hide"], where)
        yield Word("VariableRefresh", variable["refresh"], where)
        if "sort" in variable:
            yield Word("VariableSort", variable["sort"], where)
    for panel in dashboard["panels"]:
        for each in panel["panels"] if panel["type"] == "row" else [panel]:
            yield from words_of_panel(each)


def words_of_panel(panel: Mapping[str, Any]) -> Iterator[Word]:
    where = panel["title"]
    for one in panel["transformations"]:
        yield Word("transformations", one["id"], where)
    config = panel["fieldConfig"]
    for name, value in config["defaults"].items():
        if name != "custom":
            yield Word("FieldConfigProperty", name, where)
            yield from words_of_property(name, value, where)
    for name, value in config["defaults"].get("custom", {}).items():
        yield from words_of_property(f"custom.{name}", value, where)
    for override in config["overrides"]:
        yield Word("field_matchers", override["matcher"]["id"], where)
        for one in override["properties"]:
            if not one["id"].startswith("custom."):
                yield Word("FieldConfigProperty", one["id"], where)
            yield from words_of_property(one["id"], one["value"], where)
    yield from words_of_options(panel["type"], panel["options"], where)


PROPERTIES = {
    "unit": (("units", "."),),
    "color": (("colour_modes", "mode"), ("colours", "fixedColor")),
    "custom.axisColorMode": (("AxisColorMode", "."),),
    "custom.axisPlacement": (("AxisPlacement", "."),),
    "custom.barAlignment": (("BarAlignment", "."),),
    "custom.cellOptions": (("TableCellDisplayMode", "type"),),
    "custom.displayMode": (("TableCellDisplayMode", "."),),
    "custom.drawStyle": (("GraphDrawStyle", "."),),
    "custom.gradientMode": (("GraphGradientMode", "."),),
    "custom.lineInterpolation": (("LineInterpolation", "."),),
    "custom.scaleDistribution": (("ScaleDistribution", "type"),),
    "custom.showPoints": (("VisibilityMode", "."),),
    "custom.stacking": (("StackingMode", "mode"),),
    "custom.thresholdsStyle": (("GraphThresholdsStyleMode", "mode"),),
}
"""Of a field: which of its parts is a word of which kind; a dot is the value itself."""
OPTIONS = {
    "cellHeight": (("TableCellHeight", "."),),
    "cellValues": (("units", "unit"),),
    "footer": (("reducers", "reducer"),),
    "legend": (("LegendDisplayMode", "displayMode"), ("reducers", "calcs")),
    "orientation": (("VizOrientation", "."),),
    "reduceOptions": (("reducers", "calcs"),),
    "showValue": (("VisibilityMode", "."),),
    "tooltip": (("TooltipDisplayMode", "mode"), ("SortOrder", "sort")),
    "stat.colorMode": (("BigValueColorMode", "."),),
    "stat.graphMode": (("BigValueGraphMode", "."),),
    "stat.justifyMode": (("BigValueJustifyMode", "."),),
    "stat.textMode": (("BigValueTextMode", "."),),
    "bargauge.displayMode": (("BarGaugeDisplayMode", "."),),
    "bargauge.namePlacement": (("BarGaugeNamePlacement", "."),),
    "bargauge.valueMode": (("BarGaugeValueMode", "."),),
}
"""The same of a panel's options; those that only one kind of panel has stand behind its name."""


def words_of_property(name: str, value: Any, where: str) -> Iterator[Word]:  # noqa: ANN401 - JSON
    yield from parts(PROPERTIES.get(name, ()), value, where)
    if name == "thresholds":
        yield Word("ThresholdsMode", value["mode"], where)
        yield from (Word("colours", step["color"], where) for step in value["steps"])
    for mapping in value if name == "mappings" else ():
        yield Word("MappingType", mapping["type"], where)
        if mapping["type"] == "special":
            yield Word("SpecialValueMatch", mapping["options"]["match"], where)
            yield Word("colours", mapping["options"]["result"]["color"], where)


def words_of_options(kind: str, options: Mapping[str, Any], where: str) -> Iterator[Word]:
    for name, value in options.items():
        kinds = OPTIONS.get(name) or OPTIONS.get(f"{kind}.{name}") or ()
        yield from parts(kinds, value, where)


def parts(kinds: tuple[tuple[str, str], ...], value: Any, where: str) -> Iterator[Word]:  # noqa: ANN401 - JSON
    """The words in a value; of a list each."""
    for kind, part in kinds:
        found = value if part == "." else value.get(part)
        for each in found if isinstance(found, list) else [found]:
            if each is not None:
                yield Word(kind, each, where)
