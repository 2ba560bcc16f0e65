"""Random alerts that come and go, judged by the real promtool.

Our `advance` says at every evaluation which alerts are pending and which fire, since when, with
which labels and annotations. All of it goes into a test file for `promtool test rules`, which
evaluates the same rules on the same series with Prometheus' own code, and says whether it is so.
"""

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from alerts.rulebook.file import parse_rules, write_duration
from alerts.rulebook.life import FOR_STATE_METRIC, advance, alert_samples
from alerts.rulebook.model import ALERT_NAME, Alert, AlertState, Found, Group, Rule
from collector.contract.identity import Labels
from collector.contract.units import NS
from tests.tools import peers

PROMTOOL_SECONDS = 120
SEED = 20261115
SCENARIOS = 40
FEW = 5
EVALUATIONS = 60
STEP_S = 30
PORTS = ("1", "2", "3")

Json = dict[str, Any]

RULE_TEXT = {
    "expr": "errors > 0",
    "labels": {
        "severity": "page",
        # Overrides the series' own label, takes one away, and is made of two.
        "team": "network",
        "rack": "",
        "where": "{{ $labels.host }}/{{ $labels.port }}",
    },
    "annotations": {"summary": "{{ $value }} errors on {{ $labels.port }}", "fixed": "words"},
}


def expand(text: str, labels: Mapping[str, str], value: float) -> str:
    """The templates of this file."""
    text = text.replace("{{ $value }}", f"{value:g}")
    for name, each in labels.items():
        text = text.replace(f"{{{{ $labels.{name} }}}}", each)
    return text


def series_labels(port: str) -> dict[str, str]:
    return {"__name__": "errors", "host": "h", "port": port, "team": "other", "rack": "r1"}


def random_values(chance: random.Random) -> list[float | None]:
    """What a series says at each evaluation; None: it is not there. It stays for a while."""
    stay = chance.choice((0.3, 0.6, 0.85, 0.96))
    values: list[float | None] = [chance.choice((0.0, 3.0, None))]
    while len(values) < EVALUATIONS:
        before = values[-1]
        values.append(before if chance.random() < stay else chance.choice((0.0, 3.0, 7.0, None)))
    return values


def notation(values: list[float | None]) -> str:
    return " ".join("stale" if value is None else f"{value:g}" for value in values)


def random_scenario(
    chance: random.Random, number: int
) -> tuple[Json, dict[str, list[float | None]]]:
    """One group of two rules that wait differently, and the series that they watch."""
    rules: list[Json] = []
    for name in ("First", "Second"):
        rule: Json = {"alert": f"{name}{number}", **RULE_TEXT}
        # Also what is not a multiple of the interval.
        if wait := chance.choice((0, 1, STEP_S, 45, 60, 95, 240)):
            rule["for"] = write_duration(wait)
        if keep := chance.choice((0, 0, 1, STEP_S, 45, 60, 150)):
            rule["keep_firing_for"] = write_duration(keep)
        rules.append(rule)
    ports = PORTS[: chance.randint(1, len(PORTS))]
    return {"name": f"g{number}", "rules": rules}, {port: random_values(chance) for port in ports}


def our_rounds(
    rule: Rule, values: dict[str, list[float | None]]
) -> Iterator[tuple[int, dict[Labels, Alert]]]:
    """The alerts of a rule after each evaluation, by our own code; the moments in seconds."""
    standing: dict[Labels, Alert] = {}
    for number in range(EVALUATIONS):
        found = [
            Found(series_labels(port), value)
            for port, all_values in values.items()
            if (value := all_values[number]) is not None and value > 0
        ]
        moment = number * STEP_S
        standing = advance(rule, standing, found, moment * NS, expand)
        yield moment, standing


def expected_firing(rule: Rule, moment: int, alerts: dict[Labels, Alert]) -> Json:
    """An `alert_rule_test`: what fires, with its words."""
    firing = [alert for alert in alerts.values() if alert.state is AlertState.FIRING]
    return {
        "eval_time": f"{moment}s",
        "alertname": rule.name,
        "exp_alerts": [
            {
                "exp_labels": {name: value for name, value in alert.labels if name != ALERT_NAME},
                "exp_annotations": alert.annotations,
            }
            for alert in firing
        ],
    }


def expected_series(rule: Rule, moment: int, alerts: dict[Labels, Alert]) -> list[Json]:
    """Two `promql_expr_test`: `ALERTS` and `ALERTS_FOR_STATE` of the rule."""
    samples = alert_samples(alerts.values(), moment * NS)
    return [
        {
            "expr": f'{metric}{{alertname="{rule.name}"}}',
            "eval_time": f"{moment}s",
            "exp_samples": [
                {"labels": selector(each.series.metric, each.series.labels), "value": each.value}
                for each in samples
                if each.series.metric == metric
            ],
        }
        for metric in ("ALERTS", FOR_STATE_METRIC)
    ]


def selector(metric: str, labels: Labels) -> str:
    return f"{metric}{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels)}}}"


def promtool_test(group: Group, values: dict[str, list[float | None]]) -> Json:
    """One test of a test file."""
    test: Json = {
        "interval": f"{STEP_S}s",
        "input_series": [
            {
                "series": selector(
                    "errors",
                    tuple(
                        (name, value)
                        for name, value in series_labels(port).items()
                        if name != "__name__"
                    ),
                ),
                "values": notation(each),
            }
            for port, each in values.items()
        ],
        "alert_rule_test": [],
        "promql_expr_test": [],
    }
    for rule in group.rules:
        for moment, alerts in our_rounds(rule, values):
            test["alert_rule_test"].append(expected_firing(rule, moment, alerts))
            test["promql_expr_test"] += expected_series(rule, moment, alerts)
    return test


def write_scenarios(folder: Path, count: int, **changes: float) -> list[Path]:
    """Rules and tests of many scenarios; `changes` make our own rules other than promtool's.

    A test file each, because promtool evaluates all rules of a file in each of its tests.
    """
    chance = random.Random(SEED)
    tests = []
    for number in range(count):
        group_text, values = random_scenario(chance, number)
        rules = folder / f"rules{number}.json"
        rules.write_text(json.dumps({"groups": [group_text]}))
        [group] = parse_rules(rules.read_text(), rules.name)
        ours = tuple(msgspec.structs.replace(rule, **changes) for rule in group.rules)
        test = promtool_test(msgspec.structs.replace(group, rules=ours), values)
        head = {"rule_files": [rules.name], "evaluation_interval": f"{STEP_S}s"}
        tests.append(folder / f"test{number}.json")
        tests[-1].write_text(json.dumps({**head, "tests": [test]}))
    return tests


def judge(test_files: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(peers.find("promtool")), "test", "rules", *map(str, test_files)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_SECONDS,
    )


@pytest.mark.peer("promtool")
def test_promtool_sees_the_same_alerts_at_every_evaluation(tmp_path: Path) -> None:
    judged = judge(write_scenarios(tmp_path, SCENARIOS))
    assert judged.returncode == 0, (judged.stdout + judged.stderr)[:3000]
    assert judged.stdout.count("SUCCESS") == SCENARIOS


@pytest.mark.peer("promtool")
@pytest.mark.parametrize("change", ["for_s", "keep_firing_for_s"])
def test_promtool_would_see_a_wrong_wait(tmp_path: Path, change: str) -> None:
    """The judge is awake: rules of ours that wait differently are found out."""
    judged = judge(write_scenarios(tmp_path, FEW, **{change: 2.0 * STEP_S}))
    assert judged.returncode == 1
    assert "FAILED" in judged.stdout + judged.stderr


def test_the_scenarios_have_every_state_and_every_turn() -> None:
    chance = random.Random(SEED)
    turns: set[object] = set()
    for number in range(SCENARIOS):
        group_text, values = random_scenario(chance, number)
        [group] = parse_rules(json.dumps({"groups": [group_text]}), "rules.json")
        for rule in group.rules:
            before: dict[Labels, Alert] = {}
            for _, after in our_rounds(rule, values):
                for labels in before.keys() | after.keys():
                    old, new = before.get(labels), after.get(labels)
                    turns.add((old.state if old else None, new.state if new else None))
                    turns.update({"kept firing"} if new and new.keep_firing_since_ns else ())
                before = after
    states = AlertState
    assert turns >= {
        (None, states.PENDING),
        (None, states.FIRING),
        (states.PENDING, states.FIRING),
        (states.PENDING, None),
        (states.FIRING, states.INACTIVE),
        (states.INACTIVE, states.PENDING),
        (states.INACTIVE, states.FIRING),
        (states.INACTIVE, None),
        "kept firing",
    }
