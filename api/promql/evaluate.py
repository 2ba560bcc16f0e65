"""Evaluates a plan: every node becomes a value at all steps at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
import numpy as np

from api.base.limits import QUERY_POINTS_MAX, QUERY_SUBQUERY_STEPS_MAX
from api.data.selectors import STORE_MS_MAX, Selector
from api.promql import plan
from api.promql.aggregate import aggregate
from api.promql.aliases import strands_of
from api.promql.binary import binary, negate
from api.promql.errors import QueryError, failed
from api.promql.fetch import Reader, is_stale
from api.promql.find import IDS_INLINE_MAX, Found
from api.promql.fixed import is_fixed
from api.promql.functions import FUNCTIONS, Scope, absent, timestamps
from api.promql.histogram import warn_of_quantiles
from api.promql.label_functions import absent_labels
from api.promql.narrow import is_chosen_by_right, is_named_by_right, left_for, right_for
from api.promql.pieces import RangeCall
from api.promql.quiet import COUNTER_SUFFIXES, is_decided_by_empty_left
from api.promql.range_functions import RANGE_FUNCTIONS, from_edges
from api.promql.repeats import repeats_of
from api.promql.rolled import ASSUMED_INTERVAL_MS, RolledAnswers, aligned
from api.promql.rollup_rows import SUMMED_MAX, SUMS
from api.promql.together import find_named, read_narrowed
from api.promql.values import (
    Dialect,
    Floats,
    Grid,
    Ints,
    Labels,
    Notes,
    Scalar,
    Text,
    Vector,
    Windows,
    distinct_rows,
    drop_absent,
    empty_vector,
    metric_names,
    without_names,
)
from api.promql.windows import clamp_ms, cut_grid, cut_windows, latest, span_of
from collector.contract.catalog import Catalog
from collector.contract.identity import METRIC_LABEL

Value = Vector | Scalar | Text
Result = TypeVar("Result")

SUBQUERY_STEP_MS = 60_000
"""The step of a subquery that names none: Prometheus' default evaluation interval."""

REDUCED_BY_ENGINE = {
    "avg_over_time": "timeSeriesAvgToGrid",
    "changes": "timeSeriesChangesToGrid",
    "count_over_time": "timeSeriesCountToGrid",
    "idelta": "timeSeriesInstantDeltaToGrid",
    "irate": "timeSeriesInstantRateToGrid",
    "last_over_time": "timeSeriesLastToGrid",
    "max_over_time": "timeSeriesMaxToGrid",
    "min_over_time": "timeSeriesMinToGrid",
    "resets": "timeSeriesResetsToGrid",
    "sum_over_time": "timeSeriesSumToGrid",
}
"""Range functions that the engine answers with the same numbers as Prometheus.

Not `rate`, `increase` and `delta`: it rounds the extrapolation's threshold otherwise, which shows
where a gap is exactly 1.1 intervals long, and an infinity spoils the windows after it. See
FROM_EDGES.
"""

FROM_EDGES = frozenset({"delta", "increase", "rate"})
"""Range functions of the first and the last sample. Of one window the engine gives these two, and
tells which counters were reset: their samples are read."""

EDGES_FROM = 5_000_000
"""Samples, at ASSUMED_INTERVAL_MS, from which on that is done: it takes 270 ns of a core a sample
instead of 170, and loads two samples a series instead of all."""

UNSCALED = frozenset({"changes", "count_over_time", "resets"})
"""Functions whose result does not grow with the samples' unit."""

REDUCE_FROM = 3.0
"""From this many samples a step on, the engine reduces them faster than they are read."""

REDUCE_SAMPLES_FROM = 40_000
"""Fewer samples than this are read and reduced here: the engine takes 6 ms to make repeated samples
one before it reduces them, in which as many are read. Rules run hundreds of small queries."""

NARROW_SAMPLES_FROM = 20_000
"""Fewer samples than this are read of all series, even if some of these are of no use: what is
derived from the same rows again and again is cached, and they are read in a few milliseconds."""

FEW_SERIES = 1_000
"""Series of a right side that names them: as many are read first, whatever the left side has."""

KEPT_POINTS_MAX = 1_000_000
"""Of parts that a query has more than once, at all steps: 9 MB. Past it each is evaluated again."""

KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of a whole query: `@ start()` means its start, inside a subquery too."""

    grid: Grid
    lookback_ms: int
    dialect: Dialect
    catalog: Catalog | None
    """The source of aliases; None if they are switched off."""


class Evaluation:
    """The evaluation of one query."""

    def __init__(
        self,
        reader: Reader,
        frame: Frame,
        notes: Notes,
        helpers: Executor,
        rolled: RolledAnswers | None = None,
    ) -> None:
        """``rolled``: answers from roll-ups; None: samples are all that there is."""
        self._reader = reader
        self._rolled = rolled or RolledAnswers(None, frame.dialect, notes)
        self._helpers = helpers
        self._frame = frame
        self._notes = notes
        self._found: dict[tuple[plan.Select, int, int], Found] = {}
        self._repeats: Mapping[int, int] = {}
        self._kept: dict[tuple[int, Grid], Value] = {}
        self._kept_points = 0

    def whole(self, query: plan.Node, grid: Grid) -> Value:
        """The value of a query; what it says more than once is evaluated once.

        The caller must hold the query until then.
        """
        self._repeats = repeats_of(query)
        find_named(self, self._reader, self._frame.catalog, query, grid)
        return self.value(query, grid)

    def value(self, node: plan.Node, grid: Grid) -> Value:
        """The node's value at every step."""
        number = self._repeats.get(id(node))
        if number is None:
            return self._fresh(node, grid)
        value = self._kept.get((number, grid))
        if value is None:
            value = self._fresh(node, grid)
            points = len(value.labels) * grid.steps if isinstance(value, Vector) else grid.steps
            if self._kept_points + points <= KEPT_POINTS_MAX:
                self._kept_points += points
                self._kept[number, grid] = value
        return value

    def _fresh(self, node: plan.Node, grid: Grid) -> Value:
        """A long chain of operators is a loop, not a recursion."""
        node, chain = plan.chain_of(node)
        chosen = [place for place, link in enumerate(chain) if self._is_chosen(link, grid)]
        if chosen:
            result: Value = self._chosen(chain[chosen[-1]], grid)
            chain = chain[chosen[-1] + 1 :]
        else:
            result = self._one(node, grid)
        for link in chain:
            if is_empty(result) and is_decided_by_empty_left(link):
                result = empty_vector(grid.steps)
                continue
            right = right_for(link, result) if isinstance(result, Vector) else link.right
            if right is not link.right:
                read_narrowed(self, self._reader, right, grid)
            result = self._binary(link, result, self.value(right, grid), grid)
        return result

    def _is_chosen(self, node: plan.Binary, grid: Grid) -> bool:
        """Whether a right side has few series, and those of the left one that it meets suffice.

        At one moment (rules) the left side is cheap, and mostly empty: then the right is not read.
        """
        if is_chosen_by_right(node):
            return True
        if grid.steps == 1 or not is_named_by_right(node):
            return False
        series = self._series_in(node.right, grid)
        return series <= FEW_SERIES or 2 * series <= self._series_in(node.left, grid)

    def _series_in(self, node: plan.Node, grid: Grid) -> float:
        """How many series its selectors find; infinite where these are too many to be read."""
        found, windows = 0, dict[int, int]()
        for one in plan.nodes_of(node):
            if isinstance(one, plan.RangeSelect):
                windows[id(one.select)] = one.range_ms
            if not isinstance(one, plan.Select):
                continue
            ends = self.ends(grid, one.offset_ms, one.at)
            window_ms = windows.get(id(one), self._frame.lookback_ms)
            try:
                found += len(self.find(one, ends, window_ms, grid).labels)
            except QueryError as error:
                if not error.rule:
                    raise
                return math.inf
        return found

    def _chosen(self, node: plan.Binary, grid: Grid) -> Value:
        """Series that a right side with few of them chooses: it is evaluated first."""
        right = self.vector(node.right, grid)
        if is_empty(right):
            return empty_vector(grid.steps)
        left = left_for(node, right)
        read_narrowed(self, self._reader, left, grid)
        return self._binary(node, self.value(left, grid), right, grid)

    def vector(self, node: plan.Node, grid: Grid) -> Vector:
        """The value of a node that gives a vector; the parser has checked that it does."""
        value = self.value(node, grid)
        if not isinstance(value, Vector):
            raise failed(f"expected an instant vector, got {type(value).__name__.lower()}")
        return value

    def _one(self, node: plan.Node, grid: Grid) -> Value:  # noqa: PLR0911 - a table
        """The value of anything but a binary operator."""
        self._reader.check()
        if grid.steps > 1 and is_fixed(node):
            return repeated(self._one(node, Grid(grid.start_ms, grid.step_ms, 1)), grid)
        match node:
            case plan.Number():
                return Scalar(np.full(grid.steps, node.value))
            case plan.String():
                return Text(node.value)
            case plan.Paren():
                return self.value(node.expression, grid)
            case plan.Negate():
                inner = self.value(node.expression, grid)
                return Scalar(-inner.values) if isinstance(inner, Scalar) else self._negate(inner)
            case plan.Select():
                return self.latest(node, grid)
            case plan.Call():
                return self._call(node, grid)
            case plan.Aggregate():
                return self._aggregate(node, grid)
        raise failed(f"{type(node).__name__} has no value of its own here")

    @staticmethod
    def _negate(inner: Value) -> Value:
        if not isinstance(inner, Vector):
            raise failed("a string has no negative")
        return negate(inner)

    def _binary(self, node: plan.Binary, left: Value, right: Value, grid: Grid) -> Value:
        if isinstance(left, Text) or isinstance(right, Text):
            raise failed(f"operator {node.operator} does not take strings")
        result = binary(node, left, right, self._frame.dialect)
        if isinstance(result, Vector):
            check_size(len(result.labels), grid)
        return result

    def _aggregate(self, node: plan.Aggregate, grid: Grid) -> Vector:
        inner = self.vector(node.expression, grid)
        parameter = None if node.parameter is None else self.value(node.parameter, grid)
        if isinstance(parameter, Vector):
            raise failed(f"the parameter of {node.operator} is a scalar or a string")
        return aggregate(node.operator, node.labels, node.without, inner, parameter, self._notes)

    # --- selectors -----------------------------------------------------------------------------

    def window_ms(self, range_ms: int) -> int:
        """How far a selector looks back; ``range_ms`` 0: for the latest sample."""
        return range_ms or self._frame.lookback_ms

    def ends(self, grid: Grid, offset_ms: int, at: plan.At | None) -> Ints:
        """The moment that a selector reads at each step."""
        if at is None:
            return grid.times_ms() - offset_ms
        moments = {
            "start": self._frame.grid.start_ms,
            "end": self._frame.grid.asked_end_ms,
            "time": at.time_ms,
        }
        return np.full(grid.steps, moments[at.anchor] - offset_ms, dtype=np.int64)

    def find(self, select: plan.Select, ends: Ints, window_ms: int, grid: Grid) -> Found:
        """The series that a selector may see; looked up once, however often it is written."""
        from_ms, to_ms = span_of(ends, window_ms)
        key = (select, from_ms, to_ms)
        found = self._found.get(key)
        if found is None:
            found = self._look(select, ends, window_ms)
            samples = len(found.labels) * (to_ms - from_ms) / ASSUMED_INTERVAL_MS
            if select.among and samples >= NARROW_SAMPLES_FROM:
                found = self._reader.among(found, select.among)
            self._found[key] = found
        check_size(len(found.labels), grid)
        return found

    def _look(self, select: plan.Select, ends: Ints, window_ms: int) -> Found:
        strands = strands_of(select.selector, self._frame.catalog)
        after_ms, to_ms = self._after(ends, window_ms), clamp_ms(int(ends[-1]))
        # Labels find few series at once; which of all have moved is read from their samples.
        moved = select.moved and not select.among
        found = self._reader.moved(strands, after_ms, to_ms) if moved else None
        if found is not None:
            return found
        from_ms = clamp_ms(int(ends[0]) - window_ms)
        try:
            return self._reader.find(strands, from_ms, to_ms, select.among)
        except QueryError as error:
            # Now it is known that there are very many.
            if not moved or error.rule != "QUERY_SERIES_MAX":
                raise
            found = self._reader.moved(strands, after_ms, to_ms)
            if found is None:
                raise
            return found

    def latest(self, node: plan.Select, grid: Grid) -> Vector:
        """An instant selector: the newest sample of each series."""
        ends = self.ends(grid, node.offset_ms, node.at)
        window_ms = self._frame.lookback_ms
        found = self.find(node, ends, window_ms, grid)
        if not found.labels:
            return empty_vector(grid.steps)
        old = self._rolled.steps_gone(ends, window_ms)
        if old:
            past = found.shade(self._rolled.newest_past(found, ends[:old], window_ms))
            if old == len(ends):
                return drop_absent(past)
            return drop_absent(beside(past, self._newest_kept(found, ends[old:]), found))
        return drop_absent(self._newest_kept(found, ends))

    def _newest_kept(self, found: Found, ends: Ints) -> Vector:
        """Of samples that are kept."""
        window_ms = self._frame.lookback_ms
        rolled = self._rolled.newest(found, ends, window_ms)
        if rolled is not None:
            return found.shade(rolled)
        if self._worth_reducing(found, ends, window_ms):
            reduced = self._reader.reduced(
                found, "timeSeriesLastToGrid", as_grid(ends), window_ms, skip_stale=False
            )
            values, present = reduced.values, reduced.present & ~is_stale(reduced.values)
            if found.factors is not None:
                values = values * found.factors[:, np.newaxis]
            return found.shade(Vector(found.labels, values, present))
        return self.newest(found, ends)[0]

    def newest(self, found: Found, ends: Ints) -> tuple[Vector, Ints]:
        """The newest sample of each series and its time, from the samples themselves."""
        window_ms = self._frame.lookback_ms
        after_ms, to_ms = self._after(ends, window_ms), clamp_ms(int(ends[-1]))

        def read(part: Found) -> tuple[Vector, Ints]:
            samples = self._reader.raw(part, after_ms, to_ms)
            return latest(
                samples.labels,
                samples.rows,
                samples.times_ms,
                samples.values,
                samples.stale,
                ends,
                window_ms,
                self._frame.dialect,
            )

        results = self._side_by_side(read, self._reader.parts(found, after_ms, to_ms))
        vector = found.shade(stacked([vector for vector, _ in results], found))
        times = [times_ms for _, times_ms in results]
        return vector, times[0] if len(times) == 1 else np.concatenate(times)

    def _side_by_side(
        self, work: Callable[[Found], Result], parts: Sequence[Found]
    ) -> list[Result]:
        """The work on every part; helpers take what they can, this thread does the rest."""
        waiting = [self._helpers.submit(work, part) for part in parts[1:]]
        try:
            results = [work(parts[0])]
            for part, future in zip(parts[1:], waiting, strict=True):
                results.append(work(part) if future.cancel() else future.result())
        finally:
            for future in waiting:
                future.cancel()
        return results

    def windows(self, node: plan.Node, grid: Grid) -> Windows:
        while isinstance(node, plan.Paren):
            node = node.expression
        if isinstance(node, plan.Subquery):
            return self._subquery(node, grid)
        if not isinstance(node, plan.RangeSelect):
            raise failed("expected a range vector")
        select = node.select
        ends = self.ends(grid, select.offset_ms, select.at)
        found = self.find(select, ends, node.range_ms, grid)
        return self._cut(found, ends, node.range_ms)

    def _cut(self, found: Found, ends: Ints, range_ms: int) -> Windows:
        samples = self._reader.raw(found, self._after(ends, range_ms), clamp_ms(int(ends[-1])))
        rows, times_ms, values = samples.rows, samples.times_ms, samples.values
        if bool(samples.stale.any()):
            fresh = ~samples.stale
            rows, times_ms, values = rows[fresh], times_ms[fresh], values[fresh]
        return cut_windows(
            samples.labels, rows, times_ms, values, ends, range_ms, self._frame.dialect
        )

    def _subquery(self, node: plan.Subquery, grid: Grid) -> Windows:
        """Evaluate at all multiples of the step that any window needs, then cut into windows."""
        ends = self.ends(grid, node.offset_ms, node.at)
        step_ms = node.step_ms or SUBQUERY_STEP_MS
        after_ms = int(ends[0]) - node.range_ms
        start_ms = truncated_multiple(after_ms, step_ms)
        open_left = self._frame.dialect is Dialect.PROMETHEUS_3
        if start_ms < after_ms or (open_left and start_ms == after_ms):
            start_ms += step_ms
        steps = (int(ends[-1]) - start_ms) // step_ms + 1
        if steps > QUERY_SUBQUERY_STEPS_MAX:
            raise failed(
                f"a subquery would be asked {steps} times; "
                f"QUERY_SUBQUERY_STEPS_MAX is {QUERY_SUBQUERY_STEPS_MAX}",
                rule="QUERY_SUBQUERY_STEPS_MAX",
            )
        inner = Grid(start_ms, step_ms, max(0, steps))
        vector = self.vector(node.expression, inner) if inner.steps else empty_vector(0)
        return cut_grid(vector, inner.times_ms(), ends, node.range_ms, self._frame.dialect)

    def _after(self, ends: Ints, window_ms: int) -> int:
        """Samples after this moment are read; Prometheus 2 takes in the edge itself."""
        edge = 1 if self._frame.dialect is Dialect.PROMETHEUS_2 else 0
        return clamp_ms(int(ends[0]) - window_ms - edge)

    def _worth_reducing(self, found: Found, ends: Ints, window_ms: int) -> bool:
        """Whether the engine should reduce the samples: it knows Prometheus 3's rules only."""
        if self._frame.dialect is not Dialect.PROMETHEUS_3:
            return False
        if int(ends[0]) <= window_ms or int(ends[-1]) >= STORE_MS_MAX:
            return False
        fixed = len(ends) > 1 and ends[0] == ends[-1]
        span_ms = int(ends[-1] - ends[0]) + window_ms
        samples = span_ms / ASSUMED_INTERVAL_MS
        is_large = len(found.labels) * samples >= REDUCE_SAMPLES_FROM
        is_worth = not fixed and is_large and samples >= REDUCE_FROM * len(ends)
        after_ms, to_ms = self._after(ends, window_ms), clamp_ms(int(ends[-1]))
        return is_worth and not self._reader.is_at_hand(found, after_ms, to_ms)

    # --- functions -----------------------------------------------------------------------------

    def _call(self, node: plan.Call, grid: Grid) -> Value:
        if node.function in {"absent", "absent_over_time"}:
            return self._absent(node, grid)
        if node.function == "timestamp":
            argument = unwrapped(node.arguments[0])
            if isinstance(argument, plan.Select):
                return self._timestamp(argument, grid)
        if node.function in RANGE_FUNCTIONS:
            return self._range_call(node, grid)
        arguments = [self.value(argument, grid) for argument in node.arguments]
        return FUNCTIONS[node.function](arguments, self._scope(grid))

    def _scope(self, grid: Grid) -> Scope:
        return Scope(
            grid=grid, notes=self._notes, dialect=self._frame.dialect, question=self._frame.grid
        )

    def _absent(self, node: plan.Call, grid: Grid) -> Vector:
        """1 at steps without any series, labelled by the selector's `=` matchers."""
        argument = unwrapped(node.arguments[0])
        selector: Selector | None = None
        if isinstance(argument, plan.Select):
            selector = argument.selector
        elif isinstance(argument, plan.RangeSelect):
            selector = argument.select.selector
        labels: Labels = {} if selector is None else absent_labels(selector.matchers)
        if node.function == "absent":
            return absent(self.vector(argument, grid), labels, self._scope(grid))
        windows = self.windows(argument, grid)
        there = windows.last > windows.first
        missing = ~np.asarray(there.any(axis=0, keepdims=True))
        return drop_absent(Vector([labels], np.ones((1, grid.steps)), missing))

    def _timestamp(self, node: plan.Select, grid: Grid) -> Vector:
        """When the newest samples were taken, in seconds."""
        ends = self.ends(grid, node.offset_ms, node.at)
        found = self.find(node, ends, self._frame.lookback_ms, grid)
        if not found.labels:
            return empty_vector(grid.steps)
        vector, times_ms = self.newest(found, ends)
        return timestamps(vector, times_ms)

    def _range_call(self, node: plan.Call, grid: Grid) -> Vector:
        scalars = [one for one in node.arguments if not is_range(one)]
        parameters = [self._parameter(one, grid) for one in scalars]
        argument = unwrapped(next(one for one in node.arguments if is_range(one)))
        result = self._apply(node.function, argument, parameters, grid)
        if node.function == "quantile_over_time":
            warn_of_quantiles(parameters[0][result.present.any(axis=0)], self._notes)
        self._note_counters(node.function, result)
        if node.function in KEEPS_NAME:
            return drop_absent(result)
        bare = without_names(result.labels)
        if len(metric_names(result.labels)) <= 1:
            return drop_absent(Vector(bare, result.values, result.present))
        return distinct_rows(bare, result.values, result.present)

    def _apply(
        self, function: str, argument: plan.Node, parameters: Sequence[Floats], grid: Grid
    ) -> Vector:
        """The function's results, reduced by the engine where that is the better way.

        The labels still carry the metric's name, and rows may be absent throughout.
        """
        if not isinstance(argument, plan.RangeSelect):
            return self._computed(function, self.windows(argument, grid), parameters, grid)
        select, range_ms = argument.select, argument.range_ms
        ends = self.ends(grid, select.offset_ms, select.at)
        found = self.find(select, ends, range_ms, grid)
        if not found.labels:
            return empty_vector(grid.steps)
        old = self._rolled.steps_gone(ends, range_ms)
        if not old:
            return self._apply_kept(function, found, ends, range_ms, parameters, grid)
        past = found.shade(self._rolled.results_past(function, found, ends[:old], range_ms))
        if old == grid.steps:
            return past
        rest = Grid(grid.start_ms + old * grid.step_ms, grid.step_ms, grid.steps - old)
        later = [each[old:] for each in parameters]
        kept = self._apply_kept(function, found, ends[old:], range_ms, later, rest)
        return beside(past, kept, found)

    def _apply_kept(
        self,
        function: str,
        found: Found,
        ends: Ints,
        range_ms: int,
        parameters: Sequence[Floats],
        grid: Grid,
    ) -> Vector:
        """The function's results over samples that are kept."""
        rolled = self._rolled.results(function, found, ends, range_ms)
        if rolled is not None:
            return found.shade(rolled)
        if function in REDUCED_BY_ENGINE and self._worth_reducing(found, ends, range_ms):
            reduced = self._reader.reduced(
                found, REDUCED_BY_ENGINE[function], as_grid(ends), range_ms, skip_stale=True
            )
            if function not in SUMS or reduced.largest <= SUMMED_MAX:
                values = reduced.values
                if found.factors is not None and function not in UNSCALED:
                    values = values * found.factors[:, np.newaxis]
                return found.shade(Vector(found.labels, values, reduced.present))
        if (
            function in FROM_EDGES
            and len(ends) == 1
            and self._worth_reducing(found, ends, range_ms)
        ):
            return found.shade(self._from_edges(function, found, ends, range_ms, grid))
        parts = self._reader.parts(found, self._after(ends, range_ms), clamp_ms(int(ends[-1])))

        def compute(part: Found) -> Vector:
            return self._computed(function, self._cut(part, ends, range_ms), parameters, grid)

        return found.shade(stacked(self._side_by_side(compute, parts), found))

    def _from_edges(
        self, function: str, found: Found, ends: Ints, range_ms: int, grid: Grid
    ) -> Vector:
        edges = self._reader.edges(found, int(ends[0]), range_ms)
        values = edges.values
        if found.factors is not None:
            values = values * np.repeat(found.factors, 2)
        size = np.zeros((len(found.labels), 1), np.int64)
        windows = Windows(found.labels, edges.times_ms, values, size, size, ends, range_ms)
        call = RangeCall(windows, grid.times_ms(), (), self._frame.dialect)
        results, present = from_edges(function, call, edges.counts)
        reset = np.flatnonzero(edges.resets) if function != "delta" else np.zeros(0, np.int64)
        for first in range(0, len(reset), IDS_INLINE_MAX):
            rows = reset[first : first + IDS_INLINE_MAX]
            some = found.of_rows(rows)
            again = self._computed(function, self._cut(some, ends, range_ms), (), grid)
            results[rows], present[rows] = again.values, again.present
        return Vector(found.labels, results, present)

    def _computed(
        self, function: str, windows: Windows, parameters: Sequence[Floats], grid: Grid
    ) -> Vector:
        call = RangeCall(windows, grid.times_ms(), parameters, self._frame.dialect)
        return Vector(windows.labels, *RANGE_FUNCTIONS[function](call))

    def _parameter(self, node: plan.Node, grid: Grid) -> Floats:
        value = self.value(node, grid)
        if not isinstance(value, Scalar):
            raise failed("expected a scalar")
        return value.values

    def _note_counters(self, function: str, result: Vector) -> None:
        """Add a note when a rate is taken of a metric that is not named like a counter."""
        if function not in {"rate", "increase"}:
            return
        for name in sorted(name for name in metric_names(result.labels) if name):
            if name.endswith(COUNTER_SUFFIXES):
                continue
            rows = [r for r, one in enumerate(result.labels) if one.get(METRIC_LABEL) == name]
            if bool(result.present[rows].any()):
                self._notes.inform(
                    "metric might not be a counter, name does not end in "
                    f'_total/_sum/_count/_bucket: "{name}"'
                )


def repeated(value: Value, grid: Grid) -> Value:
    """A value of one step, at every step."""
    if isinstance(value, Text):
        return value
    if isinstance(value, Scalar):
        return Scalar(np.repeat(value.values, grid.steps))
    check_size(len(value.labels), grid)
    values = np.repeat(value.values, grid.steps, axis=1)
    return Vector(value.labels, values, np.repeat(value.present, grid.steps, axis=1))


def unwrapped(node: plan.Node) -> plan.Node:
    while isinstance(node, plan.Paren):
        node = node.expression
    return node


def is_empty(value: Value) -> bool:
    """Whether it is a vector without a series at any step."""
    return isinstance(value, Vector) and not len(value.labels)


def is_range(node: plan.Node) -> bool:
    return isinstance(unwrapped(node), plan.RangeSelect | plan.Subquery)


def as_grid(ends: Ints) -> Grid:
    """The moments of a selector as a grid; they are in even steps."""
    step_ms = int(ends[1] - ends[0]) if len(ends) > 1 else 1
    return Grid(int(ends[0]), step_ms, len(ends))


def truncated_multiple(value: int, step: int) -> int:
    """The multiple of a step next to a value in the direction of zero, as Go divides.

    >>> truncated_multiple(7, 5), truncated_multiple(-7, 5)
    (5, -5)
    """
    return value // step * step if value >= 0 else -(-value // step * step)


def stacked(vectors: Sequence[Vector], found: Found) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    labels: Sequence[Labels] = found.labels
    if not found.in_order:
        labels = [one for vector in vectors for one in vector.labels]
    return Vector(
        labels,
        np.concatenate([vector.values for vector in vectors]),
        np.concatenate([vector.present for vector in vectors]),
    )


def beside(past: Vector, later: Vector, found: Found) -> Vector:
    """Two stretches of steps of the same series, the first in the order of ``found``."""
    rest = aligned(later, found)
    return Vector(
        found.labels,
        np.hstack((past.values, rest.values)),
        np.hstack((past.present, rest.present)),
    )


def check_size(series: int, grid: Grid) -> None:
    """Raise if a matrix would be too large to hold."""
    if series * grid.steps > QUERY_POINTS_MAX:
        raise failed(
            f"{series} series at {grid.steps} steps are too many points; "
            f"QUERY_POINTS_MAX is {QUERY_POINTS_MAX}. Narrow the selector, or take a longer step",
            rule="QUERY_POINTS_MAX",
        )
