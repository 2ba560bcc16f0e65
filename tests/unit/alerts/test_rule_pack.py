"""The rule pack as a whole: every alert is labelled, explained, tested, and has a runbook."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from alerts.rulebook.file import parse_rules
from alerts.rulebook.inhibit import (
    JOB_THEMES,
    MACHINE_THEMES,
    NETWORK_THEMES,
    STORAGE_THEMES,
)
from alerts.rulebook.knobs import default_knobs, fill, fill_pack, pack_templates, turn, used_in
from alerts.rulebook.model import Rule
from api.promql.parse import parse_query
from collector.contract.catalog import load_catalog
from collector.contract.errors import SettingsError
from tests.conftest import Golden

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "runbooks"
THEMES = {
    *(*NETWORK_THEMES, *MACHINE_THEMES, *JOB_THEMES, *STORAGE_THEMES),
    *("clocks", "engines", "infiniband", "incidents", "probes", "self"),
}
SEVERITIES = {"critical", "warning", "info", "none"}
OWNERS = {"network", "compute", "platform"}
SCOPES = {"port", "nic", "switch", "host", "gpu", "rank", "job", "service", "incident", "storage"}
KINDS = ("fires", "not just below", "resolves", "counter reset", "missing scrapes")
SECTIONS = ("## What it means", "## Confirm it by hand", "## What to do", "## Silence it")


def rules() -> Iterator[tuple[str, Rule]]:
    """Every rule of the pack with its file."""
    for name, text in fill_pack().items():
        for group in parse_rules(text, name):
            for rule in group.rules:
                yield name, rule


ALERTS = [(file, rule) for file, rule in rules() if rule.is_alert]
NAMES = [rule.name for _, rule in ALERTS]


def test_a_rule_file_is_its_template_with_the_defaults(golden: Golden) -> None:
    golden(ROOT / "tests/fixtures/rules_pack/stragglers.yaml", fill_pack()["stragglers.yaml"])


def test_there_is_a_file_for_every_theme_and_no_name_twice() -> None:
    assert {name.removesuffix(".yaml") for name in pack_templates()} == THEMES
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []


@pytest.mark.parametrize(("file", "rule"), ALERTS, ids=NAMES)
def test_an_alert_says_how_bad_it_is_whose_it_is_and_what_to_do(file: str, rule: Rule) -> None:
    labels, notes = rule.labels, rule.annotations
    assert rule.name.startswith("Fabric")
    assert labels["theme"] == file.removesuffix(".yaml")
    assert labels["severity"] in SEVERITIES
    assert labels["owner"] in OWNERS or "{{" in labels["owner"]
    # Whose victim it is says what scope it has.
    assert labels.get("scope") in SCOPES or rule.name == "FabricIncidentVictim"
    assert {"summary", "description", "threshold_source", "runbook_url"} <= notes.keys()
    page = notes["runbook_url"].rpartition("/")[2]
    text = (RUNBOOKS / f"{page}.md").read_text("utf-8")
    assert rule.name in text, "its runbook does not know it"


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_says_what_it_means_how_to_confirm_it_what_to_do_and_how_to_silence_it(
    path: Path,
) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    places = [text.find(section) for section in SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    named = set(re.findall(r"\bFabric[A-Z]\w+", text))
    assert named & set(NAMES), "no alert leads here"
    assert named <= set(NAMES), "it names alerts that do not exist"


def test_every_alert_has_all_kinds_of_tests() -> None:
    names = {
        str(test.get("name", ""))
        for path in sorted((ROOT / "tests" / "rules").glob("*.yaml"))
        for test in yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)["tests"]
    }
    wanted = {f"{alert}: {kind}" for alert in NAMES for kind in KINDS}
    assert wanted - names == set()


def test_expressions_read_what_the_catalog_has_or_their_own_file_records() -> None:
    catalog = load_catalog()
    known = {metric.name for metric in catalog.metrics} | {"ALERTS"}
    for file, text in fill_pack().items():
        groups = parse_rules(text, file)
        recorded = {rule.name for group in groups for rule in group.rules if not rule.is_alert}
        for rule in (rule for group in groups for rule in group.rules):
            for name in names_in(rule.expression):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                assert {name, base} & (known | recorded), f"{file}: {rule.name} reads {name}"


def names_in(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    parse_query(expression)
    words = re.sub(
        r"\"[^\"]*\"|\b(by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)", "", expression
    )
    return set(re.findall(r"\b(?:[a-z]+:)?fabric_\w+(?::\w+)?|\bALERTS\b", words))


def test_every_knob_is_used_and_says_where_its_value_comes_from() -> None:
    used = {name for text in pack_templates().values() for name in used_in(text)}
    knobs = default_knobs()
    assert used == knobs.keys()
    for name, knob in knobs.items():
        assert knob.meaning.endswith((".", ")")), name
        assert len(knob.source) > 10, name


def test_a_knob_that_is_turned_is_in_the_file() -> None:
    assert "> 0.5" in fill("x > ${loss_ratio}", turn({"loss_ratio": 0.5}, default_knobs()))
    assert fill_pack({"runbook_base": "https://runbooks.example"}) != fill_pack()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss_ration": 1.0}, "did you mean loss_ratio?"),
        ({"loss_ratio": "much"}, "it must be a number"),
        ({"loss_for": 5}, "it must be text"),
        ({"loss_ratio": True}, "it must be a number"),
        ({"runbook_base": "x\ny"}, "on one line"),
        ({"runbook_base": "x" * 1_000}, "at most"),
    ],
)
def test_a_knob_that_cannot_be_turned_so_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        fill_pack(given)
