"""What `lint` finds in a dashboard, and that nothing in one makes it stumble."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from dashboards.grafana.classic import to_classic
from dashboards.grafana.lint import Flaw, check
from dashboards.grafana.model import (
    Board,
    Column,
    Draw,
    Jump,
    Panel,
    Query,
    Row,
    Unit,
    Variable,
)

BOARD = Board(
    title="Good",
    question="Is it?",
    variables=(
        Variable(name="cluster", title="Cluster", query="label_values(fabric_port_state, cluster)"),
    ),
    rows=(
        Row(
            title="Row",
            panels=(
                Panel(
                    title="Bytes",
                    text="What goes out.",
                    unit=Unit.BYTES_PER_SECOND,
                    queries=(
                        Query(
                            expr="sum by (host) (rate(fabric_port_transmit_bytes_total"
                            '{cluster=~"$cluster"}[$__rate_interval]))'
                        ),
                    ),
                    jump=Jump(title="The host", to="host", variables={"host": "host"}),
                ),
                Panel(
                    title="Hot",
                    text="The hottest.",
                    draw=Draw.TABLE,
                    queries=(
                        Query(expr="topk(3, fabric_gpu_temperature_celsius)"),
                        Query(expr="rate(fabric_port_transmit_bytes_total[5m])"),
                    ),
                    columns=(
                        Column(label="Value", title="Heat", unit=Unit.CELSIUS),
                        Column(label="Value #B", title="Rate", unit=Unit.BYTES_PER_SECOND),
                    ),
                ),
            ),
        ),
    ),
)
BOARDS = ("fabricscope-host",)


def good() -> dict[str, Any]:
    """A dashboard without flaws; panel 1 draws lines, panel 2 is a table."""
    return dict(json.loads(json.dumps(to_classic("good", BOARD))))


def flaws(change: Callable[[dict[str, Any]], object]) -> list[Flaw]:
    dashboard = good()
    change(dashboard)
    return check(dashboard, BOARDS)


def test_a_good_dashboard_has_no_flaws() -> None:
    assert check(good(), BOARDS) == []


def put(*way: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """A change that sets what stands at the end of the way."""

    def change(dashboard: dict[str, Any]) -> None:
        place: Any = dashboard
        for step in way[:-1]:
            place = place[step]
        place[way[-1]] = value

    return change


EXPR = ("panels", 1, "targets", 0, "expr")
SELECTOR = '{cluster=~"$cluster"}'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("title", value=""), "no title"),
        (put("uid", value=None), "no uid"),
        (put("schemaVersion", value=16), "schemaVersion is 16"),
        (put("panels", 1, "id", value=1), "id 1 is used twice"),
        (put("panels", 1, "id", value=None), "no id"),
        (put("panels", 1, "gridPos", value={"x": 6, "y": 1, "w": 12, "h": 8}), "it lies over"),
        (put("panels", 1, "gridPos", "w", value=25), "beyond the grid"),
        (put("panels", 1, "gridPos", "h", value=10**9), "too far down"),
        (put("panels", 1, "gridPos", value=None), "no gridPos"),
        (put("panels", 2, "targets", 1, "refId", value="A"), "refId 'A' of 2 queries"),
        (put("panels", 1, "datasource", value="Prometheus"), "data source is 'Prometheus'"),
        (put("panels", 1, "targets", 0, "datasource", "uid", value="x"), "'uid': 'x'"),
        (put("templating", "list", 1, "datasource", value=None), "data source is None"),
        (put("annotations", "list", 0, "datasource", "uid", value="x"), "annotation 'Incidents'"),
        (put(*EXPR, value=f"sum(fabric_port_state{SELECTOR}"), "cannot be parsed"),
        (put(*EXPR, value=""), "an empty query"),
        (put(*EXPR, value="(" * 100 + "1" + ")" * 100), "NESTING_MAX"),
        (put(*EXPR, value="1" + "+1" * 3_000), "OPERATORS_MAX"),
        (put(*EXPR, value="1" * 70_000), "QUERY_BYTES_MAX"),
        (put(*EXPR, value=f"fabric_port_stat{SELECTOR}"), "no source writes fabric_port_stat;"),
        (put(*EXPR, value=f"up{SELECTOR} * on (host) up{{a=~'$b'}}"), "$b is used and not defined"),
        (put(*EXPR, value="up"), "variable cluster: nothing uses it"),
        (put("templating", "list", 1, "query", value="hosts()"), "cannot read 'hosts()'"),
        (
            put("templating", "list", 1, "query", value="label_values(fabric_no, host)"),
            "no source writes fabric_no;",
        ),
        (put("panels", 1, "description", value=""), "no description"),
        (put("panels", 1, "targets", value=[]), "asks nothing"),
        (put("panels", 1, "fieldConfig", "defaults", "unit", value=None), "no unit"),
        (put("panels", 1, "fieldConfig", "defaults", "unit", value="bps"), "is shown as bps"),
        (
            put(
                "panels", 1, "fieldConfig", "defaults", "links", 0, "url", value="/d/fabricscope-x"
            ),
            "fabricscope-x, which there is not",
        ),
    ],
)
def test_a_flaw_is_found(change: Callable[[dict[str, Any]], object], said: str) -> None:
    found = [str(flaw) for flaw in flaws(change)]
    assert [each for each in found if said in each], found


def test_a_column_has_the_unit_of_its_own_query() -> None:
    def swap(dashboard: dict[str, Any]) -> None:
        _, heat, _ = dashboard["panels"][2]["fieldConfig"]["overrides"]
        heat["properties"][0]["value"] = "watt"

    (flaw,) = flaws(swap)
    assert "query A gives celsius and is shown as watt" in flaw.problem
    assert "celsius" in flaw.remedy


@pytest.mark.parametrize(
    ("expr", "unit", "is_well"),
    [
        ("fabric_port_state", "short", True),
        ("fabric_port_state", "celsius", False),
        ("rate(fabric_port_transmit_packets_total[5m])", "pps", True),
        ("rate(fabric_port_transmit_packets_total[5m])", "Bps", False),
        ("increase(fabric_port_transmit_bytes_total[5m])", "bytes", True),
        ("max(max_over_time(fabric_gpu_power_watts[5m])) > 5", "watt", True),
        ("max(max_over_time(fabric_gpu_power_watts[5m])) > 5", "s", False),
        ("count(fabric_gpu_power_watts)", "short", True),
        ("rate(fabric_port_transmit_bytes_total[5m]) * 8", "bps", True),
        ("fabric_gpu_power_watts > bool 5", "short", True),
    ],
)
def test_units_agree_with_the_catalog_where_they_are_plain(
    expr: str,
    unit: str,
    is_well: bool,  # noqa: FBT001 - one of a table's columns
) -> None:
    dashboard = good()
    put(*EXPR, value=expr)(dashboard)
    put("panels", 1, "fieldConfig", "defaults", "unit", value=unit)(dashboard)
    shown = [flaw for flaw in check(dashboard, BOARDS) if "is shown as" in flaw.problem]
    assert (shown == []) is is_well


def test_names_of_other_exporters_and_of_rules_are_known() -> None:
    for name in ("node_load1", "ALERTS", "port:fabric_burst_bursts_received:rate5m"):
        found = flaws(put(*EXPR, value=f"{name}{SELECTOR}"))
        assert [flaw for flaw in found if "no source writes" in flaw.problem] == []


def test_more_names_can_be_allowed() -> None:
    dashboard = good()
    put(*EXPR, value=f"slurm_jobs{SELECTOR}")(dashboard)
    assert [flaw for flaw in check(dashboard) if "no source writes slurm_jobs" in flaw.problem]
    assert check(dashboard, other_metrics=["slurm_"]) == []


def test_panels_of_a_folded_row_are_looked_at_and_lie_over_nothing() -> None:
    dashboard = good()
    row, one, two = dashboard["panels"]
    row.update(collapsed=True, panels=[one])
    two["gridPos"]["y"] = one["gridPos"]["y"]
    two["gridPos"]["x"] = one["gridPos"]["x"]
    dashboard["panels"] = [row, two]
    assert check(dashboard, BOARDS) == []
    one["description"] = ""
    assert [flaw.problem for flaw in check(dashboard, BOARDS)] == ["it has no description"]


def test_a_dashboard_of_the_new_kind_is_named() -> None:
    (flaw,) = check({"apiVersion": "dashboard.grafana.app/v2", "spec": {"elements": {}}})
    assert "Classic" in flaw.remedy


@pytest.mark.parametrize("odd", [None, 7, "text", [], {}, [None], {"list": 3}, True])
def test_nothing_in_a_dashboard_makes_it_stumble(odd: object) -> None:
    """Every value, at every place, replaced by something of another kind."""
    ways: list[tuple[Any, ...]] = []

    def walk(value: object, way: tuple[Any, ...]) -> None:
        if way:
            ways.append(way)
        if isinstance(value, dict):
            for key, each in value.items():
                walk(each, (*way, key))
        elif isinstance(value, list):
            for place, each in enumerate(value):
                walk(each, (*way, place))

    whole = good()
    walk(whole, ())
    for way in ways:
        dashboard = copy.deepcopy(whole)
        put(*way, value=odd)(dashboard)
        for flaw in check(dashboard, BOARDS):
            assert flaw.problem
