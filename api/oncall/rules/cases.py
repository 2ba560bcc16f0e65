"""Files of unit tests for rules, in the format of `promtool test rules`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from alerts.rulebook.file import read_duration
from alerts.rulebook.plain_yaml import Fields, Items, Node, Problems, Scalar, read_yaml
from api.oncall.rules.notation import NotationError, Values, read_metric, read_series
from collector.contract.errors import ParseError, RuleFileError
from collector.contract.identity import printable

TEST_FILE_BYTES_MAX = 8 << 20
"""One file of tests; the largest public ones have some hundred kilobytes."""

TESTS_MAX = 10_000

NODES_MAX = 400_000
"""Words, lists and maps of one file, with those that aliases repeat."""

STEPS_MAX = 1_000_000
"""Evaluations of each rule in one test: two years of minutes."""

START_S_MAX = 4_000_000_000
"""The latest start of a test: the year 2096."""

DEFAULT_INTERVAL_S = 60.0
"""promtool's, where a file has no `evaluation_interval`."""

Read = TypeVar("Read")


class RawAlert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alert that should fire."""

    exp_labels: dict[str, str] = {}
    exp_annotations: dict[str, str] = {}


class RawAlertCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of `alert_rule_test`."""

    eval_time: str = "0s"
    alertname: str = ""
    exp_alerts: list[RawAlert] = []


class RawSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of `exp_samples`."""

    labels: str = ""
    value: str = "0"
    histogram: str = ""


class RawQueryCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of `promql_expr_test`."""

    expr: str = ""
    eval_time: str = "0s"
    exp_samples: list[RawSample] = []


class RawSeries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of `input_series`."""

    series: str = ""
    values: str = ""


class RawTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of `tests`."""

    name: str = ""
    interval: str = "0s"
    input_series: list[RawSeries] = []
    alert_rule_test: list[RawAlertCase] = []
    promql_expr_test: list[RawQueryCase] = []
    external_labels: dict[str, str] = {}
    external_url: str = ""
    start_timestamp: str = "0"


class RawFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file, as it is written."""

    rule_files: list[str] = []
    evaluation_interval: str = "0s"
    group_eval_order: list[str] = []
    tests: list[RawTest] = []
    fuzzy_compare: str = "false"


class ExpectedAlert(msgspec.Struct, frozen=True):
    """An alert that should fire; `alertname` is among its labels."""

    labels: dict[str, str]
    annotations: dict[str, str]


class AlertCase(msgspec.Struct, frozen=True, kw_only=True):
    """What should fire at a moment."""

    line: int
    time_ms: int
    alert_name: str
    expected: list[ExpectedAlert]


class ExpectedSample(msgspec.Struct, frozen=True):
    """One row that an expression should give."""

    labels: dict[str, str]
    value: float


class QueryCase(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression should give at a moment."""

    line: int
    time_ms: int
    expression: str
    expected: list[ExpectedSample]
    problem: str = ""
    """Why the expectation cannot be read; it fails, the others do not."""


class InputSeries(msgspec.Struct, frozen=True):
    """A series that exists before any rule is evaluated; None: no sample at that interval."""

    labels: dict[str, str]
    values: Values


class TestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test: series, and the expected results."""

    __test__ = False
    """Not one of pytest's."""

    number: int
    line: int
    name: str
    interval_ms: int
    start_ms: int
    series: list[InputSeries]
    alert_cases: list[AlertCase]
    query_cases: list[QueryCase]
    external_labels: dict[str, str]
    external_url: str

    @property
    def last_ms(self) -> int:
        times = [case.time_ms for case in self.alert_cases]
        times += [case.time_ms for case in self.query_cases]
        return max(times, default=0)

    @property
    def title(self) -> str:
        return f"{self.name} (test {self.number})" if self.name else f"test {self.number}"


class TestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of tests."""

    __test__ = False

    file: str
    rule_files: list[str]
    evaluation_ms: int
    group_order: list[str]
    tests: list[TestCase]
    is_fuzzy: bool
    """A value may be off by the last bit."""


def read_tests(text: str, file: str) -> TestFile:
    problems = Problems()
    root = read_yaml(text, problems, TEST_FILE_BYTES_MAX)
    if problems or root is None:
        told = problems.told or [(0, "the file is empty")]
        raise RuleFileError(file, sorted(told), problems.left_out)
    raw = to_raw(root, file)
    reader = Reader(root, problems)
    made = reader.file(raw, file)
    if problems:
        raise RuleFileError(file, sorted(problems.told), problems.left_out)
    return made


def to_raw(root: Node, file: str) -> RawFile:
    """The document in its shape; a RuleFileError names where it deviates."""
    try:
        return msgspec.convert(Plain().of(root), RawFile)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `")
        line = locate(root, path.rstrip("`"), words)
        where = f" ({path.rstrip('`').removeprefix('$.')})" if path else ""
        raise RuleFileError(file, [(line, f"{plain_words(words)}{where}")]) from error
    except ParseError as error:
        raise RuleFileError(file, [(0, error.detail)]) from error


class Plain:
    """Converts nodes to dicts, lists and texts, without nulls. Aliases are repeated."""

    def __init__(self) -> None:
        self._nodes = 0

    def of(self, node: Node) -> object:
        """The node's content; the reader of the document has bounded the depth."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise ParseError("", f"over {NODES_MAX} values, with those that aliases repeat")
        if isinstance(node, Items):
            return [self.of(each) for each in node.items]
        if isinstance(node, Fields):
            return {
                name: self.of(value)
                for name, value in node.fields.items()
                if not (isinstance(value, Scalar) and value.is_null)
            }
        return node.text


STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[\.\.\.\]")
UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>.*)`")


def locate(root: Node, path: str, words: str) -> int:
    node, line = root, 0
    for found in STEP.finditer(path):
        if isinstance(node, Fields) and found[1] in node.fields:
            line = node.lines[found[1]]
            node = node.fields[found[1]]
        elif isinstance(node, Items) and found[2] and int(found[2]) < len(node.items):
            node = node.items[int(found[2])]
            line = node.line
        else:
            break
    unknown = UNKNOWN_FIELD.search(words)
    if unknown and isinstance(node, Fields):
        return node.lines.get(unknown["name"], line)
    return line


def plain_words(words: str) -> str:
    for theirs, ours in (("`object`", "a map"), ("`array`", "a list"), ("`str`", "text")):
        words = words.replace(theirs, ours)
    return words[:1].lower() + words[1:]


class Reader:
    """Reads the texts of a file that has its shape, and collects what is wrong with them."""

    def __init__(self, root: Node, problems: Problems) -> None:
        self._root = root
        self._problems = problems

    def line(self, path: str) -> int:
        return locate(self._root, path, "")

    def read(self, path: str, text: str, read: Callable[[str], Read], otherwise: Read) -> Read:
        """The reader's result; what it refuses becomes a problem of the file."""
        try:
            return read(text)
        except (ParseError, NotationError) as error:
            self._problems.add(self.line(path), str(error))
            return otherwise

    def file(self, raw: RawFile, file: str) -> TestFile:
        evaluation_ms = self.read("$.evaluation_interval", raw.evaluation_interval, duration_ms, 0)
        if len(raw.tests) > TESTS_MAX:
            self._problems.add(self.line("$.tests"), f"over {TESTS_MAX} tests")
        repeated = {name for name in raw.group_eval_order if raw.group_eval_order.count(name) > 1}
        if repeated:
            self._problems.add(
                self.line("$.group_eval_order"),
                f"group name repeated in evaluation order: {', '.join(sorted(repeated))}",
            )
        evaluation_ms = evaluation_ms or round(DEFAULT_INTERVAL_S * 1000)
        return TestFile(
            file=file,
            rule_files=raw.rule_files,
            evaluation_ms=evaluation_ms,
            group_order=raw.group_eval_order,
            tests=[
                self.test(test, number, evaluation_ms)
                for number, test in enumerate(raw.tests[:TESTS_MAX])
            ],
            is_fuzzy=self.read("$.fuzzy_compare", raw.fuzzy_compare, read_bool, otherwise=False),
        )

    def test(self, raw: RawTest, number: int, evaluation_ms: int) -> TestCase:
        path = f"$.tests[{number}]"
        interval_ms = self.read(f"{path}.interval", raw.interval, duration_ms, 0)
        case = TestCase(
            number=number + 1,
            line=self.line(path),
            name=printable(raw.name),
            interval_ms=interval_ms or evaluation_ms,
            start_ms=self.read(f"{path}.start_timestamp", raw.start_timestamp, read_start_ms, 0),
            series=[
                self.series(one, f"{path}.input_series[{place}]")
                for place, one in enumerate(raw.input_series)
            ],
            alert_cases=[
                self.alert_case(one, f"{path}.alert_rule_test[{place}]")
                for place, one in enumerate(raw.alert_rule_test)
            ],
            query_cases=[
                self.query_case(one, f"{path}.promql_expr_test[{place}]")
                for place, one in enumerate(raw.promql_expr_test)
            ],
            external_labels=raw.external_labels,
            external_url=raw.external_url,
        )
        steps = case.last_ms // evaluation_ms
        if steps > STEPS_MAX:
            self._problems.add(
                case.line, f"{steps} evaluations up to the last eval_time; at most {STEPS_MAX}"
            )
        return case

    def series(self, raw: RawSeries, path: str) -> InputSeries:
        def read(values: str) -> InputSeries:
            return InputSeries(*read_series(raw.series, values))

        return self.read(path, raw.values, read, InputSeries({}, []))

    def alert_case(self, raw: RawAlertCase, path: str) -> AlertCase:
        if not raw.alertname:
            self._problems.add(self.line(path), "an item of alert_rule_test without alertname")
        return AlertCase(
            line=self.line(path),
            time_ms=self.read(f"{path}.eval_time", raw.eval_time, duration_ms, 0),
            alert_name=raw.alertname,
            expected=[
                ExpectedAlert({**one.exp_labels, "alertname": raw.alertname}, one.exp_annotations)
                for one in raw.exp_alerts
            ],
        )

    def query_case(self, raw: RawQueryCase, path: str) -> QueryCase:
        """Unreadable labels fail only this case: promtool reads them when it compares."""
        expected: list[ExpectedSample] = []
        problem = ""
        for place, one in enumerate(raw.exp_samples):
            if one.histogram:
                problem = "native histograms are not supported; expect classic series"
            value = self.read(f"{path}.exp_samples[{place}].value", one.value, read_float, 0.0)
            try:
                expected.append(ExpectedSample(read_metric(one.labels), value))
            except NotationError as error:
                problem = f"labels {one.labels!r}: {error}"
        return QueryCase(
            line=self.line(path),
            time_ms=self.read(f"{path}.eval_time", raw.eval_time, duration_ms, 0),
            expression=raw.expr,
            expected=expected,
            problem=problem,
        )


def duration_ms(text: str) -> int:
    return round(read_duration(text) * 1000)


def read_bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ParseError("", f"{printable(text)[:40]!r} is neither true nor false")
    return text.lower() == "true"


YAML_FLOAT = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)")
YAML_NAN = frozenset({".nan", ".NaN", ".NAN"})


def read_float(text: str) -> float:
    """A number of YAML; raises ParseError.

    >>> read_float("1e3"), read_float("-.inf")
    (1000.0, -inf)
    """
    if text in YAML_NAN:
        return float("nan")
    if YAML_FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf"))
    hint = {"nan": "; YAML writes .nan", "inf": "; YAML writes .inf"}
    word = text.lower().lstrip("+-")
    raise ParseError("", f"value {printable(text)[:40]!r} is not a number{hint.get(word, '')}")


def read_start_ms(text: str) -> int:
    """When a test begins: unix seconds or RFC 3339; raises ParseError."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = dt.datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            seconds = -1.0
    if not 0 <= seconds <= START_S_MAX:
        raise ParseError(
            "",
            f"start_timestamp {printable(text)[:40]!r} is not a time: write unix seconds, or "
            "2026-01-31T12:00:00Z",
        )
    return round(seconds * 1000)
