"""`fabricscope rules`: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import fill_pack
from api.oncall.rules.notation import STALE_MARKER, NotationError, read_metric, read_values
from collector.cli import main

RULES = """
groups:
  - name: g
    rules:
      - {alert: High, expr: load > 3, for: 2m, annotations: {summary: "{{ $value }}"}}
"""
TESTS = """
rule_files: [rules.yaml]
tests:
  - name: climbs
    interval: 1m
    input_series:
      - {series: 'load{host="a"}', values: 0 5x9}
    alert_rule_test:
      - {eval_time: 2m, alertname: High}
      - eval_time: 3m
        alertname: High
        exp_alerts: [{exp_labels: {host: a}, exp_annotations: {summary: 5}}]
    promql_expr_test:
      - {expr: load, eval_time: 1m, exp_samples: [{labels: 'load{host="a"}', value: 5}]}
"""


def write_files(folder: Path, rules: str = RULES, tests: str = TESTS) -> str:
    """A rule file and its tests; where the tests are."""
    (folder / "rules.yaml").write_text(rules, "utf-8")
    (folder / "tests.yaml").write_text(tests, "utf-8")
    return str(folder / "tests.yaml")


def test_tests_that_pass_end_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "test", write_files(tmp_path)]) == 0
    assert "1 test, 3 cases" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("for: 2m", "for: 4m", "1 pending since 1m"),
        ("summary: 5", "summary: 6", "other annotations: summary"),
        ("host: a}", "host: b}", "other labels: host"),
        ("value: 5", "value: 7", 'load{host="a"} 7.0'),
        ("value: 5", "value: 5.000000000000001", "only the last digits differ"),
        ("labels: 'load{", "labels: '{", "only the metric's name is missing"),
        ("alertname: High\n        exp", "alertname: Hihg\n        exp", "did you mean High?"),
        ("expr: load,", "expr: load *,", "parse error"),
        ("0 5x9", "0 five", "'five' is not a value"),
        ("0 5x9", '"{{schema:0}}"', "native histograms"),
        ("name: climbs", "nam: climbs", "unknown field `nam`"),
        ("expr: load > 3", "expr: load >", "High: expr: parse error"),
    ],
)
def test_what_fails_is_shown_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    path = write_files(tmp_path, RULES.replace(old, new), TESTS.replace(old, new))

    assert main(["rules", "test", path]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert said in shown


def test_only_the_tests_that_were_asked_for_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_files(tmp_path, tests=TESTS.replace("value: 5", "value: 6"))

    assert main(["rules", "test", "--run", "nothing is called so", path]) == 0
    assert "0 tests" in capsys.readouterr().out


def test_the_edge_of_a_range_is_the_dialects(tmp_path: Path) -> None:
    counted = (
        "{expr: 'count_over_time(load[2m])', eval_time: 3m, exp_samples: [{labels: %s, value: 3}]}"
    )
    case = counted % "'{host=\"a\"}'"
    path = write_files(tmp_path, tests=TESTS + f"      - {case}\n")

    assert main(["rules", "test", "--dialect", "prometheus-2", path]) == 0
    assert main(["rules", "test", "--dialect", "prometheus-3", path]) == 1


def test_series_of_several_selectors_are_found_in_memory(tmp_path: Path) -> None:
    """A question to the store looks for those with labels all at once; in memory there is none."""
    rules = RULES.replace("expr: load > 3", """expr: 'load{host="a"} > 3 or load{host="b"} > 3'""")
    assert rules != RULES
    assert main(["rules", "test", write_files(tmp_path, rules=rules)]) == 0


def test_a_start_and_a_fuzzy_comparison_are_understood(tmp_path: Path) -> None:
    tests = (
        TESTS.replace("rule_files", "fuzzy_compare: true\nrule_files")
        .replace("    interval: 1m", "    interval: 1m\n    start_timestamp: 2026-01-31T12:00:00Z")
        .replace("value: 5}", "value: 5.000000000000001}")
    )
    moment = "      - {expr: 'time()', eval_time: 1m, exp_samples: [{labels: '{}', value: %d}]}\n"

    assert main(["rules", "test", write_files(tmp_path, tests=tests + moment % 1769860860)]) == 0


def test_check_counts_and_says_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path)

    assert main(["rules", "check", "--lint", "none", str(tmp_path / "rules.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 file, 1 rule: well"
    assert main(["rules", "check", "--lint", "fatal", str(tmp_path / "rules.yaml")]) == 1


def test_the_pack_is_written_and_written_again_but_over_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pack"

    assert main(["rules", "build", "--out", str(out)]) == 0
    assert {path.name: path.read_text("utf-8") for path in out.iterdir()} == fill_pack()
    base = "runbook_base=https://wiki.example.com"
    assert main(["rules", "build", "--set", base, "--out", str(out)]) == 0
    first = min(out.iterdir())
    assert "https://wiki.example.com/" in first.read_text("utf-8")
    first.write_text("groups: []\n", "utf-8")
    assert main(["rules", "build", "--out", str(out)]) == 2
    assert "was not written by" in capsys.readouterr().err
    assert first.read_text("utf-8") == "groups: []\n"


def test_knobs_come_from_a_file_and_from_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    knobs = tmp_path / "knobs.toml"
    knobs.write_text('runbook_base = "https://one.example.com"\n', "utf-8")
    out = tmp_path / "pack"

    assert main(["rules", "build", "--knobs", str(knobs), "--out", str(out)]) == 0
    assert any("https://one.example.com/" in path.read_text("utf-8") for path in out.iterdir())
    for words, said in (
        (["--set", "runbook_bas=x"], "did you mean runbook_base?"),
        (["--set", "runbook_base"], "NAME=VALUE"),
        (["--knobs", str(tmp_path / "none.toml")], "No such file"),
    ):
        assert main(["rules", "build", *words, "--out", str(out)]) == 2
        assert said in capsys.readouterr().err


def test_the_list_names_every_rule_of_the_pack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)

    names = [
        rule.name
        for file, text in fill_pack().items()
        for group in parse_rules(text, file)
        for rule in group.rules
    ]
    assert [rule["name"] for rule in listed] == names
    assert main(["rules", "list"]) == 0
    assert "recording rules" in capsys.readouterr().out


# --- the notation ------------------------------------------------------------------------------


def test_values_are_read_as_promtool_reads_them() -> None:
    assert read_values("1+2x3 _ _x2 -1 1e2 10-5x1 0x2") == [
        *(1, 3, 5, 7, None, None, None, -1, 100, 10, 5),
        *(0, 0, 0),
    ]
    assert read_values("") == []
    assert str(read_values("stale")[0]) == str(STALE_MARKER)


@pytest.mark.parametrize("text", ["x", "1x", "1+x3", "1 - 2", "--1", "0x99999999999", "1x1000000"])
def test_values_that_are_none_or_too_many_are_refused(text: str) -> None:
    with pytest.raises(NotationError):
        read_values(text)


@pytest.mark.parametrize("text", ["", "a{", 'a{b!="c"}', "a + b", "a offset 5m", "a[5m]"])
def test_series_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(NotationError):
        read_metric(text)
