"""Runs unit tests of rules: series go in, rules are evaluated, alerts are compared.

The results are promtool's. As there, every rule of every group is evaluated at each
`evaluation_interval` from the start of a test to its last `eval_time`, one after the other, and
rules see what earlier rules write. Where the order cannot be seen, a rule is evaluated at
all moments with one question (`api.oncall.rules.reads.blocks_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from alerts.rulebook.life import advance, alert_samples
from alerts.rulebook.model import Alert, AlertState, Found, Group, Rule
from alerts.rulebook.template import TemplateData, TemplateError, expand_or_say
from api.oncall.rules import hints
from api.oncall.rules.cases import AlertCase, ExpectedAlert, QueryCase, TestCase, TestFile
from api.oncall.rules.hints import show_alert, show_row
from api.oncall.rules.memory import MemoryEngine, MemoryStore
from api.oncall.rules.notation import STALE_MARKER
from api.oncall.rules.reads import blocks_of
from api.promql.errors import QueryError
from api.promql.values import Dialect, Grid, Vector
from collector.contract.errors import RuleError
from collector.contract.identity import METRIC_LABEL, Labels
from collector.contract.units import NS_PER_MS

SAME_LABELS = "vector contains metrics with the same labelset after applying rule labels"

Row = tuple[Mapping[str, str], float]
LabelKey = frozenset[tuple[str, str]]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed expectation. Rows are formatted for the terminal."""

    line: int
    """In the test file; 0: it is about the whole test."""
    kind: str
    """``alert`` and ``expr`` are cases; ``rule`` could not be evaluated."""
    name: str
    """Of the alert, the rule; the expression."""
    time_ms: int
    """Since the start of the test: when it was asked about, or when the rule failed."""
    error: str = ""
    expected: list[str] = []
    got: list[str] = []
    hint: str = ""


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test."""

    __test__ = False

    case: TestCase
    failures: list[Failure]


class Book:
    """The rules of a test file in order of evaluation, and which can be evaluated at once."""

    def __init__(self, groups: Iterable[Group], order: Sequence[str]) -> None:
        places = {name: place for place, name in enumerate(order)}
        # As promtool: a group that the order does not name is among the first.
        self.groups = sorted(groups, key=lambda group: places.get(group.name, 0))
        self.rules = [(group, rule) for group in self.groups for rule in group.rules]
        self.blocks = blocks_of([rule for _, rule in self.rules])

    def names(self) -> set[str]:
        return {rule.name for _, rule in self.rules if rule.is_alert}


@dataclass
class RuleState:
    """A rule's state during a test."""

    group: Group
    rule: Rule
    standing: dict[Labels, Alert] = field(default_factory=dict)
    written: dict[LabelKey, Mapping[str, str]] = field(default_factory=dict)
    """The series of the evaluation before, by their labels."""
    has_failed: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.standing and not self.written

    @property
    def offset_ms(self) -> int:
        """How far in the past the expression is evaluated."""
        return round((self.group.query_offset_s or 0.0) * 1000)


def run_tests(file: TestFile, book: Book, dialect: Dialect) -> Iterable[TestResult]:
    for case in file.tests:
        run = Run(case, book, dialect, file.evaluation_ms)
        run.evaluate()
        yield TestResult(case=case, failures=run.failures(is_fuzzy=file.is_fuzzy))


class Run:
    """One test being run, with state of its own."""

    def __init__(self, case: TestCase, book: Book, dialect: Dialect, evaluation_ms: int) -> None:
        self._case = case
        self._book = book
        self._evaluation_ms = evaluation_ms
        self._store = MemoryStore()
        self._engine = MemoryEngine(self._store, dialect, evaluation_ms)
        self._steps = case.last_ms // evaluation_ms + 1
        """Shorter once a rule has failed: a test ends there."""
        self._errors: dict[int, list[Failure]] = {}
        self._states = [RuleState(group, rule) for group, rule in book.rules]
        self._seen: dict[tuple[int, str], list[Alert]] = {
            (self._step_of(one), one.alert_name): [] for one in case.alert_cases
        }
        """Alerts at the moments that are asked about."""

    def _step_of(self, case: AlertCase) -> int:
        return case.time_ms // self._evaluation_ms

    def _time_ms(self, step: int) -> int:
        return self._case.start_ms + step * self._evaluation_ms

    # --- evaluation ----------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Load the series and evaluate all rules at all moments."""
        latest: dict[LabelKey, int] = {}
        for place, series in enumerate(self._case.series):
            latest[frozenset(series.labels.items())] = place
        for place in latest.values():
            self._load(place)
        for first, last, step_by_step in self._book.blocks:
            states = self._states[first : last + 1]
            if step_by_step:
                self._step_by_step(states)
            else:
                self._at_once(states[0])

    def _load(self, place: int) -> None:
        given = self._case.series[place]
        series = self._store.series(given.labels)
        for number, value in enumerate(given.values):
            if value is not None:
                series.add(self._case.start_ms + number * self._case.interval_ms, value)

    def _at_once(self, state: RuleState) -> None:
        """One query for all moments; where it fails, one for each."""
        start_ms = self._time_ms(0) - state.offset_ms
        try:
            vector = self._engine.ask(
                state.rule.expression, Grid(start_ms, self._evaluation_ms, self._steps)
            )
        except QueryError:
            self._step_by_step([state])
            return
        labels = [labels_of(state.rule, one) for one in vector.labels]
        found = np.asarray(vector.present.any(axis=0))
        for step in range(self._steps):
            if not found[step] and state.is_idle:
                continue
            rows = np.flatnonzero(vector.present[:, step]).tolist()
            self._take(
                state, step, [(labels[row], float(vector.values[row, step])) for row in rows]
            )
            if state.has_failed:
                break

    def _step_by_step(self, states: Sequence[RuleState]) -> None:
        """All of these rules at one moment, then all of them at the next."""
        step = 0
        while step < self._steps:
            for state in states:
                try:
                    rows = self._ask(state.rule.expression, step, state.offset_ms)
                except QueryError as error:
                    self._fail(state, step, str(error))
                    continue
                self._take(
                    state, step, [(labels_of(state.rule, labels), value) for labels, value in rows]
                )
            step += 1

    def _ask(self, text: str, step: int, offset_ms: int = 0) -> list[Row]:
        """The result at the moment of a step, of samples that exist by then."""
        now_ms = self._time_ms(step)
        vector = self._engine.ask(text, Grid(now_ms - offset_ms, 1, 1), until_ms=now_ms)
        return rows_of(vector)

    def _take(self, state: RuleState, step: int, rows: Sequence[Row]) -> None:
        samples = rows
        try:
            if state.rule.is_alert:
                samples = self._alert(state, step, rows)
            else:
                check_recorded(rows, state.group.limit)
        except RuleError as error:
            self._fail(state, step, str(error))
            return
        self._write(state, step, samples)

    def _alert(self, state: RuleState, step: int, rows: Sequence[Row]) -> list[Row]:
        """Advance a rule's alerts; returns their `ALERTS` series."""
        found = [Found(labels, value) for labels, value in rows]
        now_ns = self._time_ms(step) * NS_PER_MS

        def ask(text: str) -> list[Found]:
            try:
                return [Found(labels, value) for labels, value in self._ask(text, step)]
            except QueryError as error:
                raise TemplateError(str(error)) from error

        def expand(text: str, labels: Mapping[str, str], value: float) -> str:
            data = TemplateData(
                labels=labels,
                value=value,
                external_labels=self._case.external_labels,
                external_url=self._case.external_url,
                query=ask,
                now_s=self._time_ms(step) / 1000,
                name=f"__alert_{state.rule.name}",
            )
            return expand_or_say(text, data)

        state.standing = advance(
            state.rule, state.standing, found, now_ns, expand, state.group.limit
        )
        active = [one for one in state.standing.values() if one.state is not AlertState.INACTIVE]
        asked = self._seen.get((step, state.rule.name))
        if asked is not None:
            asked.extend(active)
        return [
            ({METRIC_LABEL: one.series.metric, **dict(one.series.labels)}, one.value)
            for one in alert_samples(active, now_ns)
        ]

    def _write(self, state: RuleState, step: int, samples: Sequence[Row]) -> None:
        now_ms = self._time_ms(step)
        written: dict[LabelKey, Mapping[str, str]] = {}
        for labels, value in samples:
            if not self._store.series(labels).add(now_ms, value):
                self._fail(state, step, "duplicate sample for timestamp")
            written[frozenset(labels.items())] = labels
        for key, labels in state.written.items():
            if key not in written:
                # Another rule may have written it: then it has not ended.
                self._store.series(labels).add(now_ms, STALE_MARKER)
        state.written = written

    def _fail(self, state: RuleState, step: int, why: str) -> None:
        """A rule could not be evaluated: the test ends after this moment."""
        if not state.has_failed:
            self._errors.setdefault(step, []).append(
                Failure(
                    line=0,
                    kind="rule",
                    name=state.rule.name,
                    time_ms=step * self._evaluation_ms,
                    error=why,
                    hint=f"it is in {state.group.file}:{state.rule.line}",
                )
            )
        state.has_failed = True
        self._steps = min(self._steps, step + 1)

    # --- comparison ----------------------------------------------------------------------------

    def failures(self, *, is_fuzzy: bool) -> list[Failure]:
        """Failed expectations, in promtool's order."""
        ended = min(self._errors, default=None)
        cases = sorted(self._case.alert_cases, key=lambda one: one.time_ms)
        found = [
            self._compare_alerts(one)
            for one in cases
            if ended is None or self._step_of(one) < ended
        ]
        failures = [one for one in found if one is not None]
        if ended is not None:
            return failures + self._errors[ended]
        compared = [self._compare_query(one, is_fuzzy=is_fuzzy) for one in self._case.query_cases]
        return failures + [one for one in compared if one is not None]

    def _compare_alerts(self, case: AlertCase) -> Failure | None:
        seen = self._seen[self._step_of(case), case.alert_name]
        firing = [
            ExpectedAlert(dict(one.labels), one.annotations)
            for one in seen
            if one.state is AlertState.FIRING
        ]
        if Counter(map(alert_key, firing)) == Counter(map(alert_key, case.expected)):
            return None
        return Failure(
            line=case.line,
            kind="alert",
            name=case.alert_name,
            time_ms=case.time_ms,
            expected=sorted(map(show_alert, case.expected)),
            got=sorted(map(show_alert, firing)),
            hint=hints.about_alerts(case, firing, seen, self._book.names()),
        )

    def _compare_query(self, case: QueryCase, *, is_fuzzy: bool) -> Failure | None:
        asked_ms = self._case.start_ms + case.time_ms
        failure = Failure(line=case.line, kind="expr", name=case.expression, time_ms=case.time_ms)
        try:
            # promtool loads samples up to the last evaluation, and no further.
            vector = self._engine.ask(
                case.expression, Grid(asked_ms, 1, 1), until_ms=self._time_ms(self._steps - 1)
            )
        except QueryError as error:
            return msgspec.structs.replace(failure, error=str(error))
        if case.problem:
            return msgspec.structs.replace(failure, error=case.problem)
        got = sorted(rows_of(vector), key=row_order)
        expected = sorted(((one.labels, one.value) for one in case.expected), key=row_order)
        if is_same(expected, got, is_fuzzy=is_fuzzy):
            return None
        return msgspec.structs.replace(
            failure,
            expected=[show_row(*one) for one in expected],
            got=[show_row(*one) for one in got],
            hint=hints.about_rows(expected, got),
        )


def labels_of(rule: Rule, found: Mapping[str, str]) -> Mapping[str, str]:
    if rule.is_alert:
        return found
    labels = {**found, METRIC_LABEL: rule.name, **rule.labels}
    return {name: value for name, value in labels.items() if value}


def check_recorded(rows: Sequence[Row], limit: int) -> None:
    """Raise RuleError for rows that have become the same series, or are more than allowed."""
    if len({frozenset(labels.items()) for labels, _ in rows}) < len(rows):
        raise RuleError(SAME_LABELS)
    if 0 < limit < len(rows):
        raise RuleError(f"exceeded limit of {limit} with {len(rows)} series")


def rows_of(vector: Vector) -> list[Row]:
    present = np.flatnonzero(vector.present[:, 0]).tolist()
    return [(vector.labels[row], float(vector.values[row, 0])) for row in present]


def row_order(row: Row) -> list[tuple[str, str]]:
    """Rows are compared in the order of their labels."""
    return sorted(row[0].items())


def alert_key(alert: ExpectedAlert) -> tuple[LabelKey, LabelKey]:
    return frozenset(alert.labels.items()), frozenset(alert.annotations.items())


def is_same(expected: Sequence[Row], got: Sequence[Row], *, is_fuzzy: bool) -> bool:
    """Whether two answers, both in order, agree. NaN agrees with nothing, as in promtool."""
    if len(expected) != len(got):
        return False
    return all(
        dict(one) == dict(other) and is_near(value, found, is_fuzzy=is_fuzzy)
        for (one, value), (other, found) in zip(expected, got, strict=True)
    )


def is_near(expected: float, got: float, *, is_fuzzy: bool) -> bool:
    """Whether two values agree: exactly, or to the neighbouring number."""
    if expected == got:
        return True
    neighbours = (np.nextafter(expected, -np.inf), np.nextafter(expected, np.inf))
    return is_fuzzy and got in neighbours
