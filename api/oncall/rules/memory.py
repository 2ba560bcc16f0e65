"""PromQL over series that are held in memory: unit tests of rules evaluate on them.

The evaluation is the service's own; only where samples come from differs. A store on disk would
ask its engine some milliseconds for each selector, and a test file has thousands of them, most of
which find nothing.
"""

from __future__ import annotations

import bisect
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from api.base.limits import QUERY_SECONDS_DEFAULT
from api.data.selectors import Matcher, Selector
from api.promql.aliases import Strand
from api.promql.engine import LOOKBACK_MS_DEFAULT
from api.promql.errors import bad_data, failed
from api.promql.evaluate import Evaluation, Frame
from api.promql.fetch import Reader, Samples, is_stale
from api.promql.find import Among, Found
from api.promql.parse import kind_of, parse_query
from api.promql.plan import Kind, Node, Subquery
from api.promql.values import (
    Dialect,
    Floats,
    Grid,
    Ints,
    LabelRows,
    Labels,
    Notes,
    Scalar,
    Vector,
    Windows,
)
from collector.contract.identity import METRIC_LABEL

PARSED_MAX = 4_096
"""Expressions whose plan is remembered: every test of a file asks the same ones."""

MATCHED_MAX = 65_536
"""Answers of patterns about values that are remembered."""

END_MS = 1 << 62
"""Later than every sample."""

LabelKey = frozenset[tuple[str, str]]


class Series:
    """One series: its labels, and samples in order of time."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times_ms: list[int] = []
        self.values: list[float] = []
        self._arrays: tuple[Ints, Floats] | None = None

    def add(self, time_ms: int, value: float) -> bool:
        place = len(self.times_ms)
        if place and time_ms <= self.times_ms[-1]:
            place = bisect.bisect_left(self.times_ms, time_ms)
            if self.times_ms[place] == time_ms:
                return np.float64(self.values[place]).tobytes() == np.float64(value).tobytes()
        self.times_ms.insert(place, time_ms)
        self.values.insert(place, value)
        self._arrays = None
        return True

    def arrays(self) -> tuple[Ints, Floats]:
        if self._arrays is None:
            self._arrays = (np.array(self.times_ms, np.int64), np.array(self.values, np.float64))
        return self._arrays


class MemoryStore:
    """Series by their labels. Not thread-safe."""

    def __init__(self) -> None:
        self._series: dict[LabelKey, Series] = {}
        self._of_metric: dict[str, list[Series]] = {}
        self._found: dict[Selector, tuple[int, list[Series]]] = {}

    def series(self, labels: Mapping[str, str]) -> Series:
        key = frozenset(labels.items())
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = Series(dict(sorted(labels.items())))
            self._of_metric.setdefault(labels.get(METRIC_LABEL, ""), []).append(known)
        return known

    def find(self, selector: Selector) -> list[Series]:
        """The series that match. No series ever goes away: their number is a version."""
        known = self._found.get(selector)
        if known is None or known[0] != len(self._series):
            of_name = self._of_metric.get(selector.metric or "", [])
            candidates = of_name if selector.metric is not None else self._series.values()
            chosen = [one for one in candidates if meets(one.labels, selector)]
            known = self._found[selector] = (len(self._series), chosen)
        return known[1]


def meets(labels: Labels, selector: Selector) -> bool:
    """Whether labels meet every matcher of a selector; an absent label is the empty string."""
    return all(agrees(each, labels.get(each.label, "")) for each in selector.matchers)


def agrees(matcher: Matcher, value: str) -> bool:
    match matcher.operator:
        case "=":
            return value == matcher.value
        case "!=":
            return value != matcher.value
    return pattern_meets(matcher.value, value) == (matcher.operator == "=~")


@lru_cache(MATCHED_MAX)
def pattern_meets(pattern: str, value: str) -> bool:
    """Whether a pattern, anchored at both ends, meets a value. RE2, as in Prometheus and the store.

    >>> pattern_meets("mlx5_[0-3]", "mlx5_2"), pattern_meets("mlx5", "mlx5_2")
    (True, False)
    """
    if re.fullmatch(r"\w*", pattern, re.ASCII):
        return pattern == value
    try:
        met = pc.match_substring_regex(pa.array([value]), pattern=f"^(?s:{pattern})$")
    except pa.ArrowInvalid as error:
        raise bad_data(f"invalid regular expression: {error}") from error
    return bool(met[0].as_py())


class SeriesRows(LabelRows):
    """The labels of some series, and the series themselves."""

    def __init__(self, series: list[Series]) -> None:
        super().__init__(one.labels for one in series)
        self.series = series


class MemoryReader(Reader):
    """Reads for one question from series in memory, those samples that are visible yet."""

    def __init__(self, store: MemoryStore, until_ms: int, deadline: float) -> None:
        # Nothing of the store on disk: every method that would query it is overridden.
        self._memory_store = store
        self._until_ms = until_ms
        self._deadline = deadline
        self._stopped = threading.Event()
        self._counting = threading.Lock()
        self.samples = 0
        self.peak_samples = 0
        self._loaded = 0

    def stop(self) -> None:
        self._stopped.set()

    def find(
        self,
        strands: list[Strand],
        from_ms: int,  # noqa: ARG002 - no days here
        to_ms: int,  # noqa: ARG002
        among: Among = (),  # noqa: ARG002 - all are at hand
    ) -> Found:
        """There are no aliases, so there is one strand."""
        rows = SeriesRows(self._memory_store.find(strands[0].selector))
        return Found(rows, {}, None, "", {}, in_order=True)

    def find_all(self, sought: Iterable[tuple[list[Strand], int, int]]) -> None:
        """There is nothing to look for ahead: `find` finds each at hand."""

    def read_together(self, found: Sequence[Found], after_ms: int, to_ms: int) -> None:
        """There is nothing to read."""

    def moved(self, strands: list[Strand], after_ms: int, to_ms: int) -> Found | None:  # noqa: ARG002
        """All are looked at: they are at hand."""
        return None

    @staticmethod
    def among(found: Found, among: Among) -> Found:  # noqa: ARG004
        """All: to leave some out saves nothing here."""
        return found

    def parts(self, found: Found, after_ms: int, to_ms: int) -> list[Found]:  # noqa: ARG002 - all fits
        """All in one part."""
        return [found]

    def raw(self, found: Found, after_ms: int, to_ms: int) -> Samples:
        """The first moment of all is 0; queries about it ask for what comes after."""
        until_ms = min(to_ms, self._until_ms)
        rows, times, values = [], [], []
        for row, one in enumerate(cast("SeriesRows", found.labels).series):
            times_ms, numbers = one.arrays()
            first = 0 if after_ms <= 0 else int(np.searchsorted(times_ms, after_ms, "right"))
            last = int(np.searchsorted(times_ms, until_ms, "right"))
            if last > first:
                rows.append(np.full(last - first, row, np.int64))
                times.append(times_ms[first:last])
                values.append(numbers[first:last])
        if not rows:
            none = np.zeros(0, np.int64)
            return Samples(found.labels, none, none, np.zeros(0), np.zeros(0, np.bool_))
        together = np.concatenate(values)
        self.touch(len(together))
        return Samples(
            found.labels, np.concatenate(rows), np.concatenate(times), together, is_stale(together)
        )


class MemoryEvaluation(Evaluation):
    """An evaluation without an engine that could reduce samples where they lie."""

    def __init__(self, reader: Reader, frame: Frame, subquery_step_ms: int) -> None:
        # The base class reads parts in parallel; in memory all is one part.
        super().__init__(reader, frame, Notes(), ThreadPoolExecutor(1))
        self._subquery_step_ms = subquery_step_ms

    def _worth_reducing(self, found: Found, ends: Ints, window_ms: int) -> bool:  # noqa: ARG002 - never
        return False

    def _subquery(self, node: Subquery, grid: Grid) -> Windows:
        """A subquery without a step is evaluated at every evaluation, as promtool does."""
        if node.step_ms is None:
            node = msgspec.structs.replace(node, step_ms=self._subquery_step_ms)
        return super()._subquery(node, grid)


parse_once = lru_cache(PARSED_MAX)(parse_query)


class MemoryEngine:
    """Evaluates rules' expressions: they give vectors, or a scalar, which becomes one."""

    def __init__(self, store: MemoryStore, dialect: Dialect, subquery_step_ms: int) -> None:
        self._store = store
        self._dialect = dialect
        self._subquery_step_ms = subquery_step_ms

    def ask(self, text: str, grid: Grid, until_ms: int = END_MS) -> Vector:
        """The result at every step; samples after ``until_ms`` do not exist yet."""
        plan = plan_of_rule(text)
        frame = Frame(
            grid=grid, lookback_ms=LOOKBACK_MS_DEFAULT, dialect=self._dialect, catalog=None
        )
        reader = MemoryReader(self._store, until_ms, time.monotonic() + QUERY_SECONDS_DEFAULT)
        value = MemoryEvaluation(reader, frame, self._subquery_step_ms).whole(plan, grid)
        if isinstance(value, Scalar):
            numbers = np.broadcast_to(value.values, (1, grid.steps))
            return Vector([{}], numbers, np.ones((1, grid.steps), np.bool_))
        if not isinstance(value, Vector):
            raise failed(NOT_FOR_RULES)
        return value


NOT_FOR_RULES = "rule result is not a vector or scalar"


def plan_of_rule(text: str) -> Node:
    """A QueryError also for expressions that no rule can use."""
    plan = parse_once(text)
    if (kind := kind_of(plan)) not in {Kind.VECTOR, Kind.SCALAR}:
        raise bad_data(f"{NOT_FOR_RULES}: the expression gives a {kind}")
    return plan
