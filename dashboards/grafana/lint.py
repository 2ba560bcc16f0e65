"""Finds flaws of a dashboard, ours or others', before Grafana shows an empty panel.

Works on the JSON, because that is what Grafana reads. Nothing in it is trusted: whatever is not
what it should be is a flaw, never a crash.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from collector.contract.catalog import Unit as Measured
from dashboards.grafana.classic import GRID_COLUMNS
from dashboards.grafana.jumps import UID_PREFIX
from dashboards.grafana.queries import QueryTextError, is_known, metrics_of, parse, unit_of
from dashboards.grafana.structure import Dashboard, inside, listed, objects, panels_of, text
from dashboards.grafana.substitute import substituted, variables_in

SCHEMA_VERSION_MIN = 30
"""Grafana 8: before it, panels were of other kinds and none of this holds."""
DATASOURCES = {"${datasource}", "$datasource"}
NO_UNIT = {"text", "row", "dashlist", "news", "alertlist", "nodeGraph", "logs", "annolist"}
NO_QUERY = {"text", "row", "dashlist", "news", "alertlist", "annolist"}

UNITS: dict[tuple[Measured, bool], set[str]] = {
    (Measured.BYTES, False): {"bytes", "decbytes"},
    (Measured.BYTES, True): {"Bps", "binBps"},
    (Measured.PACKETS, False): {"short", "none"},
    (Measured.PACKETS, True): {"pps"},
    (Measured.SECONDS, False): {"s", "dtdurations"},
    # Seconds per second are a share, or a number of things that are busy.
    (Measured.SECONDS, True): {"percentunit", "short", "none"},
    (Measured.BITS_PER_SECOND, False): {"bps", "binbps"},
    (Measured.BYTES_PER_SECOND, False): {"Bps", "binBps"},
    (Measured.HERTZ, False): {"hertz", "rothz"},
    (Measured.CELSIUS, False): {"celsius"},
    (Measured.WATTS, False): {"watt"},
    (Measured.JOULES, False): {"joule"},
    (Measured.JOULES, True): {"watt"},
    (Measured.AMPERES, False): {"amp"},
    (Measured.VOLTS, False): {"volt"},
    (Measured.RATIO, False): {"percentunit", "sci", "short", "none"},
}
"""What Grafana calls the catalog's units, plain and per second."""
PHYSICAL = set().union(*UNITS.values()) - {"short", "none", "sci", "percentunit", "pps"}
"""Units that a count or a state never has."""

VARIABLE_QUERY = re.compile(
    r"(?:label_values\((?:(?P<selector>.+),)?\s*(?P<label>[A-Za-z_]\w*)\s*\)"
    r"|query_result\((?P<expr>.+)\)|label_names\(.*\)|metrics\(.*\))",
    re.DOTALL,
)
LINK = re.compile(r"/d/(?P<uid>[\w-]+)")


class Flaw(msgspec.Struct, frozen=True):
    """Something wrong, where, and what to do about it."""

    where: str
    """The panel or variable; empty for the dashboard itself."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where + ': ' if self.where else ''}{self.problem}; {self.remedy}"


def check(
    dashboard: Dashboard, boards: Collection[str] = (), other_metrics: Sequence[str] = ()
) -> list[Flaw]:
    """All flaws of the dashboard.

    ``boards`` are the uids of ours, which links may point to; none given: links are not followed.
    ``other_metrics`` are beginnings of names that are known although we do not know them.
    """
    if "panels" not in dashboard and "spec" in dashboard:
        return [
            Flaw("", "this is no Classic JSON", "export it as Classic from Grafana's share menu")
        ]
    panels = list(panels_of(dashboard))
    return [
        *check_head(dashboard),
        *check_ids(panels),
        *check_places(dashboard),
        *check_variables(dashboard, panels),
        *(flaw for panel in panels for flaw in check_panel(panel, other_metrics)),
        *check_variable_queries(dashboard, other_metrics),
        *check_annotations(dashboard, other_metrics),
        *(check_links(panels, boards) if boards else ()),
    ]


def title_of(panel: Dashboard) -> str:
    return f"panel {text(panel.get('title'))!r} (id {panel.get('id')})"


# --- the whole -----------------------------------------------------------------------------------


def check_head(dashboard: Dashboard) -> Iterator[Flaw]:
    if not text(dashboard.get("title")):
        yield Flaw("", "it has no title", "give it one")
    if not text(dashboard.get("uid")):
        yield Flaw("", "it has no uid", "give it one: links and updates find it by its uid")
    version = dashboard.get("schemaVersion")
    if not isinstance(version, int) or version < SCHEMA_VERSION_MIN:
        yield Flaw(
            "",
            f"schemaVersion is {version}, and at least {SCHEMA_VERSION_MIN} is wanted",
            "open and save it in a newer Grafana, which brings it up to date",
        )
    if not list(panels_of(dashboard)):
        yield Flaw("", "it has no panels", "add one")


def check_ids(panels: Sequence[Dashboard]) -> Iterator[Flaw]:
    """Each panel has an id of its own: Grafana links to panels by it."""
    counted = Counter(
        panel["id"] for panel in panels if isinstance(panel.get("id"), int) and panel["id"]
    )
    for panel in panels:
        number = panel.get("id")
        if not isinstance(number, int) or number <= 0:
            yield Flaw(title_of(panel), "it has no id", "number the panels from 1")
        elif counted[number] > 1:
            yield Flaw(title_of(panel), f"id {number} is used twice", "number the panels from 1")


def check_places(dashboard: Dashboard) -> Iterator[Flaw]:
    """No panel lies on another or beyond the grid; a folded row is a grid of its own."""
    top = objects(dashboard.get("panels"))
    folded = [objects(panel.get("panels")) for panel in top if panel.get("type") == "row"]
    for group in (top, *folded):
        taken: dict[tuple[int, int], Dashboard] = {}
        for panel in group:
            place = [
                value for key in "xywh" if isinstance(value := inside(panel, "gridPos", key), int)
            ]
            if len(place) != len("xywh"):
                yield Flaw(title_of(panel), "it has no gridPos", "give it x, y, w and h")
                continue
            yield from take_place(panel, place, taken)


PLACE_MAX = 100_000
"""No board is that long; a larger value would make the check run for ever."""


def take_place(
    panel: Dashboard, place: Sequence[int], taken: dict[tuple[int, int], Dashboard]
) -> Iterator[Flaw]:
    left, top, width, height = place
    if left < 0 or top < 0 or width < 1 or height < 1 or left + width > GRID_COLUMNS:
        yield Flaw(title_of(panel), f"gridPos {place} is beyond the grid", "it has 24 columns")
        return
    if top + height > PLACE_MAX:
        yield Flaw(title_of(panel), f"gridPos {place} is too far down", "move it up")
        return
    others: dict[int, Dashboard] = {}
    for column in range(left, left + width):
        for line in range(top, top + height):
            other = taken.setdefault((column, line), panel)
            if other is not panel:
                others[id(other)] = other
    for other in others.values():
        yield Flaw(title_of(panel), f"it lies over {title_of(other)}", "move one of them")


def check_variables(dashboard: Dashboard, panels: Sequence[Dashboard]) -> Iterator[Flaw]:
    """What is used is defined, and what is defined is used: by more than links that carry it."""
    variables = {text(each.get("name")): each for each in listed(dashboard, "templating")}
    outside = {key: value for key, value in dashboard.items() if key != "templating"}
    used = used_in(outside, but=("links",)) | {text(panel.get("repeat")) for panel in panels}
    for name, variable in variables.items():
        used |= used_in({key: variable.get(key) for key in ("query", "datasource", "regex")})
        if not name:
            yield Flaw("", "a variable has no name", "give it one")
    for name in sorted((used | used_in(outside)) - set(variables) - {""}):
        yield Flaw("", f"${name} is used and not defined", "add the variable")
    for name in sorted(set(variables) - used - {""}):
        yield Flaw(f"variable {name}", "nothing uses it", "use it in a query, or take it out")


def used_in(value: object, but: Sequence[str] = ()) -> set[str]:
    """The variables in all texts of a piece of JSON, those that people read left out."""
    names: set[str] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            left_out = {"description", "content", *but}
            # An override of links has them under `value`, beside its id.
            if text(one.get("id")) not in left_out:
                waiting.extend(each for key, each in one.items() if key not in left_out)
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, str):
            names |= variables_in(one)
    return names


# --- panels --------------------------------------------------------------------------------------


def check_panel(panel: Dashboard, other_metrics: Sequence[str]) -> Iterator[Flaw]:
    where, kind = title_of(panel), text(panel.get("type"))
    if kind == "row":
        return
    if not kind:
        yield Flaw(where, "it has no type", "set how to draw it: timeseries, stat, table, …")
    if not text(panel.get("title")) and kind not in NO_UNIT:
        yield Flaw(where, "it has no title", "write what it shows")
    if not text(panel.get("description")):
        yield Flaw(where, "it has no description", "write what it shows and what is usual")
    unit = text(inside(panel, "fieldConfig", "defaults", "unit"))
    if not unit and kind not in NO_UNIT:
        yield Flaw(where, "it has no unit", "set one; `short` for a bare number")
    if kind in NO_QUERY:
        return
    yield from check_datasource(where, panel.get("datasource"))
    targets = objects(panel.get("targets"))
    if not targets:
        yield Flaw(where, "it asks nothing", "give it a query")
    references = Counter(text(target.get("refId")) for target in targets)
    for reference, times in references.items():
        if not reference or times > 1:
            yield Flaw(where, f"refId {reference!r} of {times} queries", "use A, B, … once each")
    for target in targets:
        if "datasource" in target:
            yield from check_datasource(where, target["datasource"])
        yield from check_expr(where, text(target.get("expr")), other_metrics)
        yield from check_unit(where, panel, target)


def check_datasource(where: str, datasource: object) -> Iterator[Flaw]:
    """A data source is named by the variable, so that a board works in every Grafana."""
    if text(inside(datasource, "uid")) not in DATASOURCES:
        yield Flaw(
            where,
            f"its data source is {datasource!r}",
            'use {"type": "prometheus", "uid": "${datasource}"}',
        )


def check_expr(where: str, expr: str, other_metrics: Sequence[str]) -> Iterator[Flaw]:
    if not expr.strip():
        yield Flaw(where, "an empty query", "write one, or take it out")
        return
    try:
        expression = parse(filled(expr))
    except QueryTextError as error:
        yield Flaw(where, f"cannot be parsed: {error} in {expr!r}", "mend the query")
        return
    for metric in sorted(metrics_of(expression)):
        if not is_known(metric) and not metric.startswith(tuple(other_metrics)):
            yield Flaw(
                where,
                f"no source writes {metric}",
                "see docs/reference/metrics.md and rules.md, or use --other-metrics PREFIX",
            )


def filled(expr: str) -> str:
    """The query with something in place of every variable, good enough to be parsed."""
    return substituted(expr, dict.fromkeys(variables_in(expr), "1"))


def check_unit(where: str, panel: Dashboard, target: Dashboard) -> Iterator[Flaw]:
    """A panel that shows a metric of the catalog as it is has the unit of the catalog."""
    try:
        found = unit_of(parse(filled(text(target.get("expr")))))
    except QueryTextError:
        return  # reported already
    unit = unit_for(panel, target)
    if found is None or not unit:
        return
    allowed = UNITS.get(found)
    if (allowed is None and unit in PHYSICAL) or (allowed is not None and unit not in allowed):
        measured, is_rate = found
        name = f"{measured or 'a count'}{' per second' if is_rate else ''}"
        wanted = ", ".join(sorted(allowed or {"short"}))
        yield Flaw(
            where,
            f"query {target.get('refId')} gives {name} and is shown as {unit}",
            f"use {wanted}",
        )


def unit_for(panel: Dashboard, target: Dashboard) -> str:
    """The unit in which the panel shows this query: a table's column has its own."""
    unit = text(inside(panel, "fieldConfig", "defaults", "unit"))
    if panel.get("type") != "table":
        return unit
    reference = text(target.get("refId"))
    names = {f"Value #{reference}", *(["Value"] if reference == "A" else [])}
    for step in objects(panel.get("transformations")):
        renamed = inside(step, "options", "renameByName")
        if isinstance(renamed, dict):
            names |= {text(title) for name, title in renamed.items() if name in names}
    return next((text(value) for name, value in overrides(panel, "unit") if name in names), unit)


def overrides(panel: Dashboard, key: str) -> Iterator[tuple[str, object]]:
    """The overrides of this property: the column's name and the value."""
    for override in objects(inside(panel, "fieldConfig", "overrides")):
        for each in objects(override.get("properties")):
            if each.get("id") == key:
                yield text(inside(override, "matcher", "options")), each.get("value")


# --- variables, annotations, links ---------------------------------------------------------------


def check_variable_queries(dashboard: Dashboard, other_metrics: Sequence[str]) -> Iterator[Flaw]:
    for variable in listed(dashboard, "templating"):
        if variable.get("type") != "query":
            continue
        where = f"variable {text(variable.get('name'))}"
        yield from check_datasource(where, variable.get("datasource"))
        query = variable.get("query")
        asked = query if isinstance(query, str) else text(inside(query, "query"))
        found = VARIABLE_QUERY.fullmatch(asked.strip())
        if not found:
            yield Flaw(where, f"cannot read {asked!r}", "write label_values(METRIC{…}, LABEL)")
        elif expr := found["selector"] or found["expr"]:
            yield from check_expr(where, expr, other_metrics)


def check_annotations(dashboard: Dashboard, other_metrics: Sequence[str]) -> Iterator[Flaw]:
    """Annotations of a Prometheus ask the chosen data source too; Grafana's own are its own."""
    for annotation in listed(dashboard, "annotations"):
        if inside(annotation, "datasource", "type") != "prometheus":
            continue
        where = f"annotation {text(annotation.get('name'))!r}"
        yield from check_datasource(where, annotation.get("datasource"))
        expr = text(annotation.get("expr")) or text(inside(annotation, "target", "expr"))
        yield from check_expr(where, expr, other_metrics)


def check_links(panels: Sequence[Dashboard], boards: Collection[str]) -> Iterator[Flaw]:
    for panel in panels:
        links = objects(panel.get("links")) + objects(
            inside(panel, "fieldConfig", "defaults", "links")
        )
        links += [link for _, value in overrides(panel, "links") for link in objects(value)]
        for link in links:
            found = LINK.search(text(link.get("url")))
            uid = found["uid"] if found else ""
            if uid.startswith(UID_PREFIX) and uid not in boards:
                yield Flaw(
                    title_of(panel),
                    f"link {text(link.get('title'))!r} leads to {uid}, which there is not",
                    f"there are {', '.join(sorted(boards))}",
                )
