"""`fabricscope rules check`: errors and warnings in rule files."""

from pathlib import Path

import pytest

from alerts.rulebook.model import Rule
from api.oncall.rules.check import Checked, Lint, check_files
from api.oncall.rules.reads import blocks_of
from collector.contract.errors import SettingsError

GOOD = """
groups:
  - name: g
    rules:
      - alert: PortDown
        expr: fabric_port_state == 0
        for: 1m
        labels: {severity: page}
        annotations: {summary: "{{ $labels.host }}", runbook_url: http://127.0.0.1/x}
"""


def check(folder: Path, text: str, lint: Lint = Lint.WARN) -> Checked:
    """The problems and warnings of a file with this text."""
    path = folder / "rules.yaml"
    path.write_text(text, "utf-8")
    return check_files([str(path)], lint)


def rule_with(expression: str) -> str:
    """A rule file with one recording rule."""
    return f"groups:\n  - name: g\n    rules:\n      - record: x\n        expr: {expression}\n"


def test_a_good_file_has_nothing_against_it(tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD)

    assert (checked.files, checked.rules) == (1, 1)
    assert not checked.problems
    assert not checked.warnings


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("expr: fabric_port_state == 0", "expr: sum(", 5, "parse error"),
        ("expr: fabric_port_state == 0", "expr: fabric_port_state[5m]", 5, "vector or scalar"),
        ("expr: fabric_port_state == 0", "expr: '\"text\"'", 5, "vector or scalar"),
        ("{{ $labels.host }}", "{{ $labels.host", 5, "annotation summary"),
        ("for: 1m", "four: 1m", 7, "four"),
    ],
)
def test_what_prometheus_would_refuse_is_an_error_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    checked = check(tmp_path, GOOD.replace(old, new))

    assert checked.is_bad
    assert any(problem.line == line and said in problem.text for problem in checked.problems)


def test_all_errors_of_all_files_are_told(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml"):
        (tmp_path / name).write_text(GOOD.replace("fabric_port_state == 0", "sum(") * 1, "utf-8")
    (tmp_path / "notes.txt").write_text("no rules", "utf-8")

    checked = check_files([str(tmp_path)], Lint.WARN)

    assert checked.files == 2
    assert len({problem.file for problem in checked.problems}) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{severity: page}", "{owner: me}", "no label severity"),
        ('summary: "{{ $labels.host }}", ', "", "no annotation summary"),
        (", runbook_url: http://127.0.0.1/x", "", "no annotation runbook_url"),
        ("  - name: g", "  - name: g\n    interval: 5m", "shorter than the group's interval"),
        ("fabric_port_state ==", "fabric_port_stat ==", "did you mean fabric_port_state?"),
        ("fabric_port_state ==", "host:nobody:rate5m ==", "recorded by no rule"),
    ],
)
def test_what_is_probably_wrong_is_a_warning(tmp_path: Path, old: str, new: str, said: str) -> None:
    checked = check(tmp_path, GOOD.replace(old, new))

    assert not checked.is_bad
    assert [said in warning.text for warning in checked.warnings] == [True]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("rate(fabric_port_state[5m])", "a gauge"),
        ("sum by (hostt) (fabric_port_state)", "did you mean host?"),
        ("sum by (rank) (fabric_port_state)", "by (rank): fabric_port_state has no such label"),
        ("fabric_port_state * on (rank) fabric_port_state", "on (rank)"),
        ("sum by (port) (sum by (host) (fabric_port_state))", "by (port)"),
    ],
)
def test_labels_and_kinds_are_held_against_the_catalog(
    tmp_path: Path, expression: str, said: str
) -> None:
    warnings = check(tmp_path, rule_with(expression)).warnings

    assert warnings
    assert all(said in warning.text for warning in warnings)


@pytest.mark.parametrize(
    "expression",
    [
        "sum by (anything) (somebody_elses_metric)",
        "sum by (host, port) (rate(fabric_port_receive_bytes_total[5m]))",
        'sum by (rank) (label_replace(fabric_port_state, "rank", "1", "", ""))',
        "sum by (instance) (fabric_port_state)",
        "fabric_port_state * on (host) group_left () max by (host) (fabric_port_state)",
    ],
)
def test_what_is_right_or_unknown_is_not_warned_of(tmp_path: Path, expression: str) -> None:
    assert check(tmp_path, rule_with(expression)).warnings == []


def test_lint_can_be_switched_off_and_made_fatal(tmp_path: Path) -> None:
    text = rule_with("fabric_nobody_has_this")

    assert not check(tmp_path, text, Lint.NONE).warnings
    assert not check(tmp_path, text, Lint.NONE).is_bad
    assert check(tmp_path, text, Lint.FATAL).is_bad


def test_a_rule_that_is_there_twice_is_warned_of(tmp_path: Path) -> None:
    again = "\n".join(GOOD.splitlines()[4:]) + "\n"

    warnings = check(tmp_path, GOOD + again).warnings

    assert [warning.line for warning in warnings] == [5]
    assert "2 rules have this name" in warnings[0].text


def test_a_path_that_is_not_there_is_an_error_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        check_files([str(tmp_path / "nothing.yaml")], Lint.WARN)
    with pytest.raises(SettingsError, match="no rule files"):
        check_files([str(tmp_path)], Lint.WARN)


def records(**expressions: str) -> list[Rule]:
    """Recording rules by name."""
    return [Rule(name=name, is_alert=False, expression=text) for name, text in expressions.items()]


def test_rules_that_read_only_what_came_before_are_asked_at_once() -> None:
    assert blocks_of(records(a="x", b="a", c="a + b")) == [
        (0, 0, False),
        (1, 1, False),
        (2, 2, False),
    ]


def test_rules_that_read_later_ones_take_their_steps_together() -> None:
    assert blocks_of(records(a="x", b="d", c="x", d="x", e="a")) == [
        (0, 0, False),
        (1, 3, True),
        (4, 4, False),
    ]
    assert blocks_of(records(a="a", b="x")) == [(0, 0, True), (1, 1, False)]


def test_rules_that_look_ahead_and_templates_that_ask_go_step_by_step() -> None:
    assert blocks_of(records(a="x @ 3", b="x offset -1m", c="x offset 1m")) == [
        (0, 0, True),
        (1, 1, True),
        (2, 2, False),
    ]
    asks = Rule(
        name="A",
        is_alert=True,
        expression="x",
        annotations={"a": '{{ query "b" | first | value }}'},
    )
    assert blocks_of([asks, *records(b="x", c="x")]) == [(0, 2, True)]
