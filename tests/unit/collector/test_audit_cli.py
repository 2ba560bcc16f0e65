"""`fabricscope audit`: what it prints, and what it exits with."""

import json
from pathlib import Path

import pytest

from collector import cli
from tests.fixtures.trees import tree_of
from tests.worlds.audit_cases import CASES

GOOD, BAD, UNPRIVILEGED = (
    str(tree_of(CASES / name)) for name in ("good_h100", "bad_roce", "infiniband_unprivileged")
)


def test_a_good_host_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "--root", GOOD]) == 0
    assert "findings: none" in capsys.readouterr().out


def test_a_bad_host_exits_with_1_and_prints_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "--root", BAD]) == 1
    page = capsys.readouterr().out
    assert page.startswith("node-1: 4 GPUs (NVIDIA H100 80GB HBM3), 4 training NICs")
    for word in ("read ", "expected ", "why ", "fix ", "cost ", "sure ", "could not be read:"):
        assert f"  {word}" in page or page.count(word)
    assert "proc/4203/environ" in page
    assert "never-shown" not in page
    assert max(len(line) for line in page.splitlines() if " " in line.strip()) <= 120


def test_what_is_only_worth_knowing_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "site.toml"
    text = '[[expect]]\nsetting = "kernel"\nvalues = ["7.0"]\nseverity = "info"\n'
    file.write_text(text, encoding="utf-8")
    assert cli.main(["audit", "--root", GOOD, "--expect", str(file)]) == 0
    assert "info: kernel of the host is 6.8.0-60-generic" in capsys.readouterr().out


def test_json_holds_findings_facts_and_what_could_not_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["audit", "--root", UNPRIVILEGED, "--json"]) == 0
    text = capsys.readouterr().out
    report = json.loads(text)
    assert (report["host"], report["findings"]) == ("node-2", [])
    unread = {each["setting"]: each["reason"] for each in report["unread"]}
    assert unread["acs_redirecting_bridges"] == "unreadable"
    assert {"device", "setting", "value", "origin"} == set(report["facts"][0])
    assert "never-shown" not in text


def test_a_machine_without_training_hardware_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proc").mkdir()
    assert cli.main(["audit", "--root", str(tmp_path)]) == 0
    assert "nothing here is for training" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--expect", "/nowhere.toml"], ["--root", "/nowhere"]])
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", *words]) == 2
    assert "nowhere" in capsys.readouterr().err
