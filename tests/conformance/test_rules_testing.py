"""`fabricscope rules test` against promtool: the same files, the same verdict on every case."""

import glob
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.oncall.rules.build import write_pack
from api.oncall.rules.cases import duration_ms, read_float
from api.oncall.rules.cli import load_test_file
from api.oncall.rules.testing import run_tests
from api.promql.values import Dialect
from collector.contract.errors import RuleFileError
from tests.tools import peers
from tests.tools.peers import ROOT

CORNERS = sorted(
    path
    for path in (ROOT / "tests/fixtures/rules_tests").glob("*.yaml")
    if not path.name.endswith(".rules.yaml")
)
PACK = sorted(path.name for path in (ROOT / "tests/rules").glob("*.yaml"))

Case = tuple[str, str, int]
"""The kind, the name and the time (ms) of a case that failed."""

WHOLE_FILE: Case = ("file", "", 0)
"""Nothing of it could be run."""

PROMTOOL_SECONDS = 300
SPOILT_TESTS = 6
"""Tests of each file that are taken: promtool needs a second for ten of them."""

FAILED_ALERT = re.compile(r"^    alertname: (?P<name>.*), time: (?P<time>\S+), $")
FAILED_EXPRESSION = re.compile(r'^    expr: "(?P<name>.*)", time: (?P<time>[^\s,]+),')
FAILED_RULE = re.compile(r"^    rule: (?P<name>.*), time: (?P<time>\S+), err: ")
GO_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?")


def promtool_says(path: Path) -> tuple[bool, list[Case]]:
    """Whether promtool is content with a file, and the cases that failed, in its order."""
    done = subprocess.run(
        [str(peers.find("promtool")), "test", "rules", str(path)],
        # Its collector of garbage runs all the time, in 60 MB; in 140 MB it takes a seventh less.
        env=os.environ | {"GOGC": "400"},
        check=False,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_SECONDS,
    )
    # Of two files of tests promtool would say all failures together; here it is given one.
    failed = list(read_failures(done.stdout + done.stderr))
    if done.returncode and not failed:
        failed = [WHOLE_FILE]
    return done.returncode == 0, failed


def read_failures(text: str) -> Iterator[Case]:
    """The cases that promtool names."""
    for line in text.splitlines():
        if found := FAILED_ALERT.match(line):
            yield "alert", found["name"], duration_ms(found["time"])
        elif found := FAILED_EXPRESSION.match(line):
            name = found["name"].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
            yield "expr", name, duration_ms(found["time"])
        elif found := FAILED_RULE.match(line):
            yield "rule", found["name"], go_duration_ms(found["time"])


def go_duration_ms(text: str) -> int:
    """`1m0s` as Go writes it."""
    found = GO_DURATION.fullmatch(text)
    assert found, text
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((hours * 3600 + minutes * 60 + seconds) * 1000)


def we_say(path: Path, dialect: Dialect) -> tuple[bool, list[Case]]:
    """The same of ours."""
    try:
        file, book, _ = load_test_file(path)
    except RuleFileError:
        return False, [WHOLE_FILE]
    failed = [
        (failure.kind, failure.name, failure.time_ms)
        for result in run_tests(file, book, dialect)
        for failure in result.failures
    ]
    return not failed, failed


@pytest.mark.peer("promtool")
@pytest.mark.parametrize("path", CORNERS, ids=[path.stem for path in CORNERS])
def test_the_formats_corners_are_judged_as_promtool_judges_them(path: Path) -> None:
    assert we_say(path, Dialect.PROMETHEUS_2) == promtool_says(path)


def test_the_corners_are_many_and_some_fail() -> None:
    verdicts = [we_say(path, Dialect.PROMETHEUS_2)[0] for path in CORNERS]

    assert len(CORNERS) >= 30
    assert min(verdicts.count(True), verdicts.count(False)) >= 10


# --- the rule pack's own tests -----------------------------------------------------------------


def sample_of(path: Path, folder: Path, count: int, seed: int) -> tuple[dict[str, Any], Path]:
    """Some tests of a file, chosen by a seed, and where to write them."""
    whole = yaml.load(path.read_text("utf-8"), yaml.CBaseLoader)  # noqa: S506 - texts only
    tests = whole["tests"]
    whole["tests"] = random.Random(seed).sample(tests, min(count, len(tests)))
    for test in whole["tests"]:
        for case in test.get("promql_expr_test") or []:
            for sample in case.get("exp_samples") or []:
                # Texts would be written in quotes, and then they are no numbers for Go.
                sample["value"] = read_float(sample["value"])
    whole["rule_files"] = [
        str(found)
        for pattern in whole["rule_files"]
        for found in sorted(Path(one) for one in glob.glob(str(path.parent / pattern)))  # noqa: PTH207
    ]
    return whole, folder / path.name


def write_yaml(path: Path, content: object) -> Path:
    """A file with this content."""
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, width=10_000), "utf-8")
    return path


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pack's tests, with the rule files in the place that they name."""
    folder = tmp_path_factory.mktemp("pack")
    write_pack(folder / "build/release/rules", {})
    return Path(shutil.copytree(ROOT / "tests/rules", folder / "tests/rules"))


@pytest.mark.rotating(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", PACK)
def test_all_tests_of_the_pack_pass_here(name: str, pack: Path) -> None:
    assert we_say(pack / name, Dialect.PROMETHEUS_3) == (True, [])


# In turn: the other generation differs in corners, and promtool takes a minute or two for all.
@pytest.mark.rotating(10)
@pytest.mark.parametrize("name", PACK)
def test_all_tests_of_the_pack_pass_as_in_prometheus_2(name: str, pack: Path) -> None:
    assert we_say(pack / name, Dialect.PROMETHEUS_2) == (True, [])


@pytest.mark.rotating(10)
@pytest.mark.peer("promtool")
@pytest.mark.parametrize("name", PACK)
def test_all_tests_of_the_pack_pass_in_promtool(name: str, pack: Path) -> None:
    assert promtool_says(pack / name) == (True, [])


@pytest.mark.rotating(10)
@pytest.mark.peer("promtool")
@pytest.mark.parametrize("name", PACK)
def test_spoilt_tests_of_the_pack_fail_in_the_same_cases(
    name: str, pack: Path, tmp_path: Path
) -> None:
    content, target = sample_of(pack / name, tmp_path, SPOILT_TESTS, seed=2)
    Spoiler(seed=3).spoil(content, tmp_path)
    write_yaml(target, content)

    is_well, failed = promtool_says(target)

    assert not is_well
    assert we_say(target, Dialect.PROMETHEUS_2) == (is_well, failed)


class Spoiler:
    """Changes a test file here and there, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, share: float) -> bool:
        """Whether something happens that happens in this share of the cases."""
        return self._random.random() < share

    def spoil(self, whole: dict[str, Any], folder: Path) -> None:
        """Rules with other thresholds, cases with other expectations, series that are missing."""
        whole["rule_files"] = [
            str(self.spoil_rules(Path(path), folder)) for path in whole["rule_files"]
        ]
        for test in whole["tests"]:
            self.spoil_test(test)
        # At least one that cannot come true.
        whole["tests"].append(
            {"promql_expr_test": [{"expr": "vector(1)", "eval_time": "1m", "exp_samples": []}]}
        )

    def spoil_rules(self, path: Path, folder: Path) -> Path:
        """A copy of a rule file in which some alerts wait longer, and some comparisons turn."""
        rules = yaml.load(path.read_text("utf-8"), yaml.CBaseLoader)  # noqa: S506 - texts only
        for group in rules["groups"]:
            if "limit" in group:
                group["limit"] = int(group["limit"])
            for rule in group["rules"]:
                if "alert" in rule and self.chance(0.1):
                    rule["for"] = "7m"
                elif "alert" in rule and self.chance(0.1):
                    rule["expr"] = rule["expr"].replace(">", "<=", 1)
        return write_yaml(folder / f"rules-{path.name}", rules)

    def spoil_test(self, test: dict[str, Any]) -> None:
        """One test."""
        if len(test.get("input_series", [])) > 1 and self.chance(0.1):
            test["input_series"].pop(self._random.randrange(len(test["input_series"])))
        for case in test.get("alert_rule_test") or []:
            if self.chance(0.2):
                case["eval_time"] = self._random.choice(["0s", "3m", "11m", "25m"])
            for alert in case.get("exp_alerts") or []:
                if alert.get("exp_labels") and self.chance(0.1):
                    alert["exp_labels"]["severity"] = "nobody"
                if alert.get("exp_annotations") and self.chance(0.1):
                    alert["exp_annotations"]["summary"] = "something else"
        for case in test.get("promql_expr_test") or []:
            for sample in case.get("exp_samples") or []:
                if self.chance(0.2):
                    sample["value"] = 12345.0
