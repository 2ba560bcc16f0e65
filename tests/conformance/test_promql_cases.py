"""Behaviour of Prometheus 3 that 2.42 cannot verify: cases in files, each with its answer.

The notation is close to that of Prometheus' own tests, because people know it:

    load 30s                          series with a sample every 30 s, from time 0 on
      errors_total{host="a"} 0+5x3 _ stale      0 5 10 15, nothing, a stale marker

    eval instant at 2m  EXPRESSION    or: eval range from 0 to 10m step 1m  EXPRESSION
      expect warn TEXT                also: info, fail (TEXT is part of the message),
                                      `quiet` (no warning, no info), `ordered`
      errors_total{host="a"} 15       for a range: a value for each step, `_` where there is none

Every `load` has a day of its own. `@ 60` in an expression and `t60` among the expected values are
seconds since the start of that day.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.oncall.rules import notation
from tests.oracles import promql_oracle
from tests.oracles.promql_oracle import Key, Reply, read_reply, show_time
from tests.oracles.promql_random import START_MS
from tests.stands.service import ROOT, ServiceProcess
from tests.worlds.remote_write import TimeSeries

FOLDER = ROOT / "tests/fixtures/promql"
DAY_MS = 86_400_000
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "": 1000}

SERIES = re.compile(r"(?P<series>[\w:]*(?:\{[^}]*\})?)\s+(?P<values>.+)")
INSTANT = re.compile(r"eval instant at (?P<start>\S+) +(?P<query>.+)")
RANGE = re.compile(
    r"eval range from (?P<start>\S+) to (?P<end>\S+) step (?P<step>\S+) +(?P<query>.+)"
)

SMALL = 1e-12


@dataclass
class Case:
    """One question with its answer."""

    where: str
    day_ms: int
    query: str
    start_ms: int
    end_ms: int
    step_ms: int
    expected: list[tuple[Key, dict[int, float]]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    """Expected messages by kind: fail, warn, info; and flags without a text: quiet, ordered."""

    def parameters(self) -> dict[str, str]:
        """What is sent to the service."""
        moved = re.sub(
            r"@ (\d+)", lambda found: f"@ {self.day_ms // 1000 + int(found[1])}", self.query
        )
        if not self.step_ms:
            return {"query": moved, "time": show_time(self.day_ms + self.start_ms)}
        return {
            "query": moved,
            "start": show_time(self.day_ms + self.start_ms),
            "end": show_time(self.day_ms + self.end_ms),
            "step": show_time(self.step_ms),
        }

    def expect(self, line: str) -> None:
        """Take in a line below the question."""
        if line.startswith("expect "):
            kind, _, text = line.removeprefix("expect ").partition(" ")
            assert kind in {"fail", "warn", "info", "quiet", "ordered"}, f"{self.where}: {line}"
            self.notes[kind] = text
            return
        key, values = read_series(line, self.day_ms // 1000)
        step_ms = self.step_ms or 1
        self.expected.append(
            (
                key,
                {
                    self.day_ms + self.start_ms + step_ms * number: value
                    for number, value in enumerate(values)
                    if value is not None
                },
            )
        )


@dataclass
class Script:
    """A file: what to load, and the cases."""

    series: list[TimeSeries] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)


def read_scripts() -> Script:
    """All files as one: each `load` begins the next day."""
    whole = Script()
    day_ms = START_MS
    for path in sorted(FOLDER.glob("*.test")):
        interval_ms = 0
        case: Case | None = None
        for number, raw in enumerate(path.read_text("utf-8").splitlines(), start=1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("load "):
                day_ms += DAY_MS
                interval_ms, case = duration_ms(line.removeprefix("load ")), None
            elif line.startswith("eval "):
                case = read_question(f"{path.name}:{number}", line, day_ms)
                whole.cases.append(case)
            elif case is not None:
                case.expect(line)
            else:
                whole.series.append(loaded_series(line, interval_ms, day_ms))
    return whole


def read_question(where: str, line: str, day_ms: int) -> Case:
    """A line that begins with `eval`."""
    if found := INSTANT.fullmatch(line):
        at = duration_ms(found["start"])
        return Case(where, day_ms, found["query"], at, at, 0)
    found = RANGE.fullmatch(line)
    assert found, f"{where}: cannot read {line!r}"
    start, end, step = (duration_ms(found[name]) for name in ("start", "end", "step"))
    return Case(where, day_ms, found["query"], start, end, step)


def duration_ms(text: str) -> int:
    """`90`, `1m30s` or `250ms` in milliseconds."""
    parts = re.findall(r"(\d+)(ms|s|m|h|)", text)
    assert "".join(number + unit for number, unit in parts) == text, f"no duration: {text!r}"
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts if number)


def read_series(line: str, day: int = 0) -> tuple[Key, list[float | None]]:
    """Labels and values; None where there is no value. `t60` is a moment of the day."""
    found = SERIES.fullmatch(line)
    assert found, f"cannot read the series {line!r}"

    def read_moment(word: str) -> float:
        assert word.startswith("t"), f"cannot read the value {word!r}"
        return day + float(word[1:])

    labels = notation.read_metric(found["series"])
    return tuple(sorted(labels.items())), notation.read_values(found["values"], read_moment)


def loaded_series(line: str, interval_ms: int, day_ms: int) -> TimeSeries:
    """A series with a sample at every interval."""
    key, values = read_series(line)
    samples = [
        (value, day_ms + number * interval_ms)
        for number, value in enumerate(values)
        if value is not None
    ]
    return TimeSeries(key, samples)


SCRIPT = read_scripts()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("cases")
    with promql_oracle.running_service(folder, "prometheus-3") as running:
        promql_oracle.our_side(running).load(SCRIPT.series)
        yield running


@pytest.mark.parametrize("case", SCRIPT.cases, ids=[case.where for case in SCRIPT.cases])
def test_case(service: ServiceProcess, case: Case) -> None:
    path = "/api/v1/query_range" if case.step_ms else "/api/v1/query"
    answer = service.client.get(path, params=case.parameters())
    ours = read_reply(answer)
    if "fail" in case.notes:
        assert ours.error, f"{case.query}: an answer, not a refusal"
        assert case.notes["fail"] in ours.error
        return
    expected = Reply(kind=ours.kind, series=case.expected)
    ordered = "ordered" in case.notes
    difference = promql_oracle.compare(expected, ours, absolute=SMALL, ordered=ordered)
    assert difference is None, f"{case.query}: {difference.text} (theirs: what the file says)"
    check_notes(case, answer.json())


def check_notes(case: Case, body: dict[str, Any]) -> None:
    """Compare warnings and infos, where a case expects them."""
    said = {"warn": body.get("warnings", []), "info": body.get("infos", [])}
    for kind, texts in said.items():
        if kind in case.notes:
            assert any(case.notes[kind] in text for text in texts), (case.query, kind, texts)
        elif "quiet" in case.notes:
            assert not texts, (case.query, texts)


def test_the_notation_reads_what_it_says() -> None:
    assert read_series('a{b="c"} 1 2+3x2 _ _x2 5-1x1 NaN') == (
        (("__name__", "a"), ("b", "c")),
        [1, 2, 5, 8, None, None, None, 5, 4, pytest.approx(float("nan"), nan_ok=True)],
    )
    assert read_series("{} t60", 1000) == ((), [1060])
    assert duration_ms("1m30s") == 90_000
    assert duration_ms("250ms") == 250
    assert duration_ms("0") == 0
