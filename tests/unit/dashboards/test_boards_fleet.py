"""Boards show the rule pack's limits and alerts, and no panel is green without data."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import default_knobs, fill_pack
from dashboards.grafana.boards import alerts, capacity, fleet, itself
from dashboards.grafana.model import Draw, Panel

BOARDS = {"fleet": fleet, "alerts": alerts, "capacity": capacity, "itself": itself}
KNOBS = {name: knob.value for name, knob in default_knobs().items()}
THEMES = {name.split("_")[0] for name in KNOBS} - {"runbook"}
KNOB = re.compile(rf"\b(?:{'|'.join(sorted(THEMES))})_[a-z0-9_]+\b")
METRIC = re.compile(r"\bfabric_[a-z0-9_]+")
ALERT_NAME = re.compile(r'alertname=~?"([^"]+)"')
ALERT_WORD = re.compile(r"\balert (Fabric\w+)")
MINUTE_SECONDS = 60


def panels() -> Iterator[tuple[str, Panel]]:
    """Every panel of these boards, with a name for it."""
    for name, module in BOARDS.items():
        for row in module.BOARD.rows:
            for panel in row.panels:
                yield f"{name}: {panel.title}", panel


PANELS = list(panels())
ALERTS = {
    rule.name
    for name, text in fill_pack().items()
    for group in parse_rules(text, name)
    for rule in group.rules
    if rule.is_alert
}


def knobs_named(panel: Panel) -> list[str]:
    """Knobs that the panel's text names."""
    return KNOB.findall(METRIC.sub("", panel.text))


def limits_drawn(panel: Panel) -> set[float]:
    """The values at which the panel's colours change."""
    steps = [*panel.steps, *(step for column in panel.columns for step in column.steps)]
    return {step.value for step in steps if step.value is not None}


def numbers_written(panel: Panel) -> set[float]:
    """Numbers in the text; percent as ratios, times in seconds."""
    words = panel.text.replace(",", "")
    found = {float(each) / 100 for each in re.findall(r"([\d.]+) %", words)}
    found |= {float(each) for each in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", words)}
    found |= {float(each) * MINUTE_SECONDS for each in re.findall(r"(\d+) minutes", words)}
    found |= {float(each) * 1e6 for each in re.findall(r"(\d+) million", words)}
    spoken = {"a tenth": 0.1, "One in ten": 0.1, "one in a hundred": 0.01, "a second": 1.0}
    return found | {value for word, value in spoken.items() if word in words}


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_limits_are_the_rule_packs(name: str, panel: Panel) -> None:
    """Each knob that a panel names exists, and the panel shows the knob's value."""
    for knob in knobs_named(panel):
        if panel.text.count(f"{knob}…") or knob.endswith("_"):
            assert any(each.startswith(knob) for each in KNOBS), f"{name}: no knobs {knob}…"
            continue
        assert knob in KNOBS, f"{name}: there is no knob {knob}"
        value = KNOBS[knob]
        if isinstance(value, int | float) and value:
            shown = numbers_written(panel)
            assert value in shown, f"{name}: {knob} is {value}, the panel says {sorted(shown)}"


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_a_limit_that_is_drawn_is_explained(name: str, panel: Panel) -> None:
    """The text names each limit of a colour, except a count of one and values shown as words."""
    limits = {round(limit, 2) if limit > 1 else limit for limit in limits_drawn(panel)}
    unsaid = limits - numbers_written(panel) - {1.0} - {float(each) for each in panel.values}
    assert not unsaid, f"{name}: the text does not name {sorted(unsaid)}"


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_alerts_that_are_named_exist(name: str, panel: Panel) -> None:
    for query in panel.queries:
        for pattern in ALERT_NAME.findall(query.expr):
            fits = [alert for alert in ALERTS if re.fullmatch(pattern, alert)]
            assert len(fits) == pattern.count("|") + 1, f"{name}: {pattern} fits {fits}"
    for word in ALERT_WORD.findall(panel.text):
        assert word in ALERTS, f"{name}: there is no alert {word}"


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_nothing_measured_is_not_nought(name: str, panel: Panel) -> None:
    """`or vector(0)` is green without data; a number panel must show its empty text instead."""
    if panel.draw is Draw.NUMBER:
        assert all("vector(" not in query.expr for query in panel.queries), name
        assert panel.empty_text, name
