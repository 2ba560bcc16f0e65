"""From an alert's labels to the board about whom it names, at that time."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.rulebook.model import Alert, AlertState
from alerts.rulebook.notices import Line, Notice, Status, Why
from api.http.settings import load_service_settings
from api.oncall.notify.message import pagerduty_event, plain_text, slack_message, webhook_body
from api.oncall.rules.explain import with_dashboards
from collector.contract.errors import SettingsError
from collector.contract.identity import canonical_labels
from dashboards.grafana.boards import discover
from dashboards.grafana.links import LEAD_MS, TRAIL_MS, VALUE_CHARS_MAX, board_link

BASE = "https://grafana.example/sub"
BEGAN_NS = 1_763_000_000 * 10**9


@pytest.mark.parametrize(
    ("labels", "board", "variables"),
    [
        (
            {"host": "node7", "device": "mlx5_0", "port": "1"},
            "port",
            {"host": "node7", "device": "mlx5_0", "port": "1"},
        ),
        (
            {"host": "node7", "device": "ib0", "gpu": "3", "rank": "12"},
            "port",
            {"host": "node7", "device": "ib0"},
        ),
        (
            {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet4"},
            "port",
            {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet4"},
        ),
        (
            {"switch": "leaf-1", "switch_port": "Ethernet4", "job": "llm"},
            "port",
            {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet4"},
        ),
        ({"switch": "leaf-1"}, "switch", {"switch": "leaf-1"}),
        ({"host": "leaf-1", "device": "leaf-1"}, "switch", {"switch": "leaf-1"}),
        ({"host": "leaf-1", "scope": "switch"}, "switch", {"switch": "leaf-1"}),
        ({"host": "node7", "gpu": "3", "job": "llm"}, "host", {"host": "node7"}),
        ({"job": "llm", "rank": "12", "host": ""}, "job", {"job": "llm"}),
        ({"host": "node7", "theme": "self"}, "itself", {}),
        ({"alertname": "Anything", "cluster": "north"}, "alerts", {"cluster": "north"}),
        ({}, "alerts", {}),
    ],
)
def test_labels_lead_to_the_board_about_whom_they_name(
    labels: dict[str, str], board: str, variables: dict[str, str]
) -> None:
    link = urlsplit(board_link(BASE, labels, BEGAN_NS, None))
    assert link.path == f"/sub/d/fabricscope-{board}/{board}"
    asked = {key: value[0] for key, value in parse_qs(link.query).items()}
    given = {key.removeprefix("var-"): asked[key] for key in asked if key.startswith("var-")}
    assert given == variables
    known = {variable.name for variable in discover()[board].variables}
    assert set(given) <= known, "the board has no such variable"


def test_the_span_is_that_of_the_alert_with_a_margin() -> None:
    link = board_link(BASE, {}, BEGAN_NS, BEGAN_NS + 60 * 10**9)
    asked = parse_qs(urlsplit(link).query)
    assert asked["from"] == [str(BEGAN_NS // 10**6 - LEAD_MS)]
    assert asked["to"] == [str(BEGAN_NS // 10**6 + 60_000 + TRAIL_MS)]


def test_hostile_names_stay_names() -> None:
    name = "a&var-host=b#<script>|\n %00"
    link = board_link(BASE, {"host": name}, BEGAN_NS, None)
    assert parse_qs(urlsplit(link).query)["var-host"] == [name]
    assert not set(link) & set("<>|# \n")
    long = board_link(BASE, {"host": "x" * (VALUE_CHARS_MAX + 1)}, BEGAN_NS, None)
    assert "var-host" not in long


def alert(**annotations: str) -> Alert:
    return Alert(
        labels=canonical_labels({"alertname": "FabricPortDown", "host": "node7", "device": "ib0"}),
        annotations=annotations,
        value=1.0,
        state=AlertState.FIRING,
        active_ns=BEGAN_NS,
    )


def test_alerts_get_the_address_of_their_board_and_its_end_when_they_end() -> None:
    explain = with_dashboards(lambda alerts: alerts, BASE)
    (first,) = explain([alert(summary="down")])
    link = first.annotations["dashboard"]
    assert link.startswith(f"{BASE}/d/fabricscope-port/port?")
    assert "to=now" in link
    assert first.annotations["summary"] == "down"
    (again,) = explain([first])
    assert again is first
    over = Alert(
        labels=first.labels,
        annotations=first.annotations,
        value=0.0,
        state=AlertState.INACTIVE,
        active_ns=BEGAN_NS,
        resolved_ns=BEGAN_NS + 10**9,
    )
    (ended,) = explain([over])
    assert "to=now" not in ended.annotations["dashboard"]


def test_a_notice_shows_the_address_to_everybody_who_is_told() -> None:
    (linked,) = with_dashboards(lambda alerts: alerts, BASE)([alert()])
    link = linked.annotations["dashboard"]
    line = Line(labels=linked.labels, annotations=linked.annotations, starts_ns=BEGAN_NS)
    notice = Notice(
        id="1",
        group="g",
        receiver="oncall",
        group_labels=(),
        number=1,
        status=Status.FIRING,
        why=Why.FIRST,
        planned_ns=BEGAN_NS,
        lines=(line,),
    )
    fabric = "https://fabric.example"
    assert f"Dashboard: {link}" in plain_text(notice, fabric)
    assert "|Dashboard>" in json.dumps(slack_message(notice, fabric))
    assert {"href": link, "text": "Dashboard"} in pagerduty_event(notice, "k", fabric)["links"]
    body = webhook_body(notice, fabric)
    assert body["alerts"][0]["annotations"]["dashboard"] == link


def test_the_setting_wants_an_address() -> None:
    assert load_service_settings(None, {"grafana_url": BASE}, {}).grafana_url == BASE
    with pytest.raises(SettingsError, match="grafana_url is 'grafana'"):
        load_service_settings(None, {"grafana_url": "grafana"}, {})


def test_an_address_that_the_rule_gives_stands_and_none_is_made_without_grafana() -> None:
    own = alert(dashboard="https://elsewhere.example/d/x")
    assert with_dashboards(lambda alerts: alerts, BASE)([own]) == [own]
    plain = alert()
    assert with_dashboards(lambda alerts: alerts, "")([plain]) == [plain]
