"""Functions on ranges: against a slow and simple reference, and against numbers done by hand."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.promql import over_time, pieces
from api.promql.errors import ErrorKind, QueryError
from api.promql.pieces import RangeCall
from api.promql.range_functions import RANGE_FUNCTIONS
from api.promql.values import Dialect
from api.promql.windows import cut_windows
from tests.tools.cut import CUT
from tests.unit.api.promql.reference import REFERENCE, Window

Samples = list[tuple[int, float]]

NAN, INF = math.nan, math.inf
PARAMETERS = {"quantile_over_time": 1, "predict_linear": 1, "double_exponential_smoothing": 2}


def call(
    series: list[Samples],
    ends: list[int],
    range_ms: int,
    *,
    parameters: list[list[float]] | None = None,
    ahead_ms: int = 0,
    dialect: Dialect = Dialect.PROMETHEUS_3,
) -> RangeCall:
    """A call whose windows end ``ahead_ms`` before the moment of evaluation, as under an offset."""
    flat = [(row, t, v) for row, samples in enumerate(series) for t, v in samples]
    windows = cut_windows(
        [{"n": str(row)} for row in range(len(series))],
        np.array([row for row, _, _ in flat], dtype=np.int64),
        np.array([t for _, t, _ in flat], dtype=np.int64),
        np.array([v for _, _, v in flat], dtype=np.float64),
        np.array(ends, dtype=np.int64),
        range_ms,
        dialect,
    )
    arrays = [np.array(one, dtype=np.float64) for one in parameters or []]
    return RangeCall(windows, windows.end_ms + ahead_ms, arrays, dialect)


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))


gaps = st.sampled_from([1, 1_000, 5_000, 10_000, 10_000, 10_000, 11_000, 35_000, 70_000])
odd = st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1e308, -1e308, 1e16, 5e-324])
gauges = st.one_of(st.integers(-50, 50).map(float), st.floats(-1e6, 1e6), odd)
counters = st.lists(st.integers(-300, 100), max_size=25).map(
    lambda steps: [float(abs(sum(steps[: n + 1]))) for n in range(len(steps))]
)
constants = st.builds(lambda value, count: [value] * count, gauges, st.integers(0, 12))
runs = st.one_of(
    st.lists(gauges, max_size=25), st.lists(st.floats(-99, 99), max_size=25), counters, constants
)


@st.composite
def some_samples(draw: st.DrawFn) -> Samples:
    moment, samples = draw(st.integers(-3, 6)) * 10_000, []
    for value in draw(runs):
        moment += draw(gaps)
        samples.append((moment, value))
    return samples


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Samples], list[int], int]:
    series = draw(st.lists(some_samples(), max_size=4))
    steps = draw(st.integers(1, 5))
    step_ms = draw(st.sampled_from([0, 1, 10_000, 15_000, 60_000]))
    start_ms = draw(st.integers(0, 12)) * 10_000
    range_ms = draw(st.sampled_from([1, 1_500, 10_000, 30_000, 60_000, 300_000]))
    return series, [start_ms + step_ms * n for n in range(steps)], range_ms


@settings(max_examples=CUT.examples(300))
@given(
    cases(),
    st.sampled_from(Dialect),
    st.sampled_from([0, 60_000, -5_000]),
    st.lists(st.sampled_from([0.01, 0.25, 0.5, 0.9, NAN]), min_size=10, max_size=10),
)
@example(([], [0], 1), Dialect.PROMETHEUS_3, 0, [0.5] * 10)
@example(([[]], [0, 0], 1), Dialect.PROMETHEUS_2, 0, [0.5] * 10)
def test_all_functions_agree_with_the_reference(
    case: tuple[list[Samples], list[int], int],
    dialect: Dialect,
    ahead_ms: int,
    factors: list[float],
) -> None:
    for name in RANGE_FUNCTIONS:
        compare(name, case, dialect, ahead_ms, factors)


@given(cases(), st.sampled_from(sorted(RANGE_FUNCTIONS)))
def test_small_pieces_give_the_same(case: tuple[list[Samples], list[int], int], name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_CELLS", 1)
        compare(name, case, Dialect.PROMETHEUS_3, 0, [0.5] * 10)


def compare(
    name: str,
    case: tuple[list[Samples], list[int], int],
    dialect: Dialect,
    ahead_ms: int,
    factors: list[float],
) -> None:
    series, ends, range_ms = case
    parameters = [factors[n * 5 : n * 5 + len(ends)] for n in range(PARAMETERS.get(name, 0))]
    asked = call(series, ends, range_ms, parameters=parameters, ahead_ms=ahead_ms, dialect=dialect)
    values, present = RANGE_FUNCTIONS[name](asked)
    assert values.shape == present.shape == (len(series), len(ends))
    oldest = range_ms if dialect is Dialect.PROMETHEUS_2 else range_ms - 1
    for row, samples in enumerate(series):
        for step, end in enumerate(ends):
            window = Window(
                [one for one in samples if end - oldest <= one[0] <= end],
                end - range_ms,
                end,
                end + ahead_ms,
                [one[step] for one in parameters],
                dialect,
            )
            wanted = REFERENCE[name](window)
            assert present[row, step] == (wanted is not None)
            if wanted is not None:
                assert close(float(values[row, step]), wanted), (name, window)


def test_every_function_has_a_reference() -> None:
    assert sorted(RANGE_FUNCTIONS) == sorted(REFERENCE)


def ask(
    name: str,
    values: list[float | None],
    *parameters: float,
    range_s: int = 60,
    ahead_s: int = 0,
    dialect: Dialect = Dialect.PROMETHEUS_3,
) -> float | None:
    """The function over samples 10 s apart (None: none), the last one at the window's end."""
    every = [(n * 10_000, v) for n, v in enumerate(values) if v is not None]
    asked = call(
        [every],
        [10_000 * (len(values) - 1)],
        1000 * range_s,
        parameters=[[one] for one in parameters],
        ahead_ms=1000 * ahead_s,
        dialect=dialect,
    )
    result, present = RANGE_FUNCTIONS[name](asked)
    return float(result[0, 0]) if present[0, 0] else None


TABLE: list[tuple[str, list[float | None], list[float], float | None]] = [
    # A rise of 10 every 10 s, the window from 0 s (open) to 60 s: 6 samples, 50 s, stretched to 60.
    ("increase", [0, 10, 20, 30, 40, 50, 60], [], 60),
    ("rate", [0, 10, 20, 30, 40, 50, 60], [], 1),
    ("delta", [0, 10, 20, 30, 40, 50, 60], [], 60),
    # It grows by 10 + 5 + 10 in 30 s. The start is far: half an interval. The end is near: all.
    ("increase", [None, None, 10, 20, 5, 15, None], [], 25 * (30 + 5 + 10) / 30),
    ("delta", [None, None, 10, 20, 5, 15, None], [], 5 * (30 + 5 + 10) / 30),
    # Growing from 1 by 1 in 10 s: it was zero 10 s before, which half an interval does not reach.
    ("increase", [None, None, None, 1, 2, 3, 4], [], 3 * (30 + 5) / 30),
    ("increase", [None, None, None, 1, 7, 13, 19], [], 18 * (30 + 30 / 18) / 30),
    ("rate", [0, None, None, None, None, None, 5], [], None),
    ("increase", [0, 1, NAN, 3, 4, 5, 6], [], 6),
    ("increase", [0, INF, 1, 3, 4, 5, 6], [], NAN),
    ("irate", [0, 0, 0, 0, 0, 10, 30], [], 2),
    ("irate", [0, 0, 0, 0, 0, 30, 10], [], 1),
    ("irate", [0, 0, 0, 0, 0, NAN, 10], [], NAN),
    ("irate", [None, None, None, None, None, None, 10], [], None),
    ("idelta", [0, 0, 0, 0, 0, 30, 10], [], -20),
    ("deriv", [0, 10, 20, 30, 40, 50, 60], [], 1),
    ("deriv", [7, 7, 7, 7, 7, 7, 7], [], 0),
    ("deriv", [INF, INF, INF, INF, INF, INF, INF], [], NAN),
    ("deriv", [None, None, None, None, 1, 3, 2], [], 0.05),
    ("predict_linear", [0, 10, 20, 30, 40, 50, 60], [100], 160),
    ("predict_linear", [7, 7, 7, 7, 7, 7, 7], [INF], NAN),
    ("changes", [0, 1, 1, NAN, NAN, 2, -0.0], [], 3),
    ("changes", [None, None, None, None, None, 0.0, -0.0], [], 0),
    ("resets", [9, 5, 4, NAN, 3, 2, 1], [], 3),
    ("avg_over_time", [9, 1, 2, 3, 4, 5, 6], [], 3.5),
    ("avg_over_time", [9, 1e308, 1e308, 1e308, 1e308, 1e308, 1e308], [], 1e308),
    ("avg_over_time", [9, 1, INF, 2, 3, 4, 5], [], INF),
    ("avg_over_time", [9, 1, INF, 2, -INF, 4, 5], [], NAN),
    ("avg_over_time", [None, None, None, None, None, None, -INF], [], -INF),
    ("sum_over_time", [9, 1, 1e100, 1, -1e100, None, None], [], 2),
    ("sum_over_time", [9, 1, 2, INF, 3, 4, 5], [], INF),
    ("sum_over_time", [9, 1, 2, INF, 3, -INF, 5], [], NAN),
    ("sum_over_time", [9, 1e308, 1e308, -1e308, None, None, None], [], INF),
    ("count_over_time", [9, 1, NAN, 3, None, 5, 6], [], 5),
    ("count_over_time", [9, None, None, None, None, None, None], [], None),
    ("min_over_time", [0, NAN, 3, 2, NAN, 5, 6], [], 2),
    ("max_over_time", [9, NAN, 3, 2, NAN, 5, 4], [], 5),
    ("max_over_time", [9, NAN, NAN, NAN, NAN, NAN, NAN], [], NAN),
    ("max_over_time", [9, NAN, NAN, NAN, NAN, NAN, -INF], [], -INF),
    ("stdvar_over_time", [9, None, None, 2, 4, 4, 6], [], 2),
    ("stddev_over_time", [9, None, None, 1, 1, 5, 5], [], 2),
    ("stddev_over_time", [9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], [], 0),
    ("stddev_over_time", [9, 0.1, 0.1, 0.1, 0.1, 0.1, INF], [], NAN),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [0.5], 3),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [0.9], 4.6),
    ("quantile_over_time", [9, None, 5, NAN, 4, NAN, 3], [0.5], 3),
    ("quantile_over_time", [9, None, 5, NAN, 4, NAN, 3], [0.3], NAN),
    ("quantile_over_time", [9, None, None, None, None, 1, INF], [0], NAN),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [0], 1),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [1], 5),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [-0.1], -INF),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [1.1], INF),
    ("quantile_over_time", [9, None, 5, 1, 4, 2, 3], [NAN], NAN),
    ("mad_over_time", [9, None, 1, 1, 2, 4, 99], [], 1),
    ("first_over_time", [9, None, 5, 1, 4, 2, 3], [], 5),
    ("last_over_time", [9, None, 5, 1, 4, 2, None], [], 2),
    ("present_over_time", [9, None, None, NAN, None, None, None], [], 1),
    ("present_over_time", [9, None, None, None, None, None, None], [], None),
    ("ts_of_first_over_time", [9, None, 5, 1, 4, 2, 3], [], 20),
    ("ts_of_last_over_time", [9, None, 5, 1, 4, 2, None], [], 50),
    ("ts_of_max_over_time", [9, NAN, 5, 1, 5, 2, NAN], [], 40),
    ("ts_of_min_over_time", [0, 3, 1, 2, 1, 2, 3], [], 40),
    ("ts_of_min_over_time", [0, NAN, NAN, NAN, None, None, None], [], 30),
    # On a straight line it stays on the line.
    ("double_exponential_smoothing", [0, 10, 20, 30, 40, 50, 60], [0.01, 0.1], 60),
    # 1, then 0.5 * 3 + 0.5 * (1 + 2) = 3, then the trend stays 2: 0.5 * 2 + 0.5 * (3 + 2) = 3.5.
    ("double_exponential_smoothing", [9, None, None, None, 1, 3, 2], [0.5, 0.5], 3.5),
    ("double_exponential_smoothing", [9, None, None, None, None, None, 2], [0.5, 0.5], None),
]


@pytest.mark.parametrize(("name", "values", "parameters", "wanted"), TABLE)
def test_by_hand(
    name: str, values: list[float | None], parameters: list[float], wanted: float | None
) -> None:
    found = ask(name, values, *parameters)
    if wanted is None:
        assert found is None
    else:
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-300, nan_ok=True)


def test_every_function_was_done_by_hand() -> None:
    assert {name for name, *_ in TABLE} == set(RANGE_FUNCTIONS)


def test_zeros_keep_the_sign_of_the_first() -> None:
    assert str(ask("max_over_time", [-0.0, 0.0, -3.0])) == "-0.0"
    assert str(ask("min_over_time", [0.0, -0.0, 3.0])) == "0.0"


@pytest.mark.parametrize(
    ("dialect", "count", "increase"),
    [
        # The first sample at 0 s belongs to the range in Prometheus 2 only.
        (Dialect.PROMETHEUS_3, 6, 60),
        (Dialect.PROMETHEUS_2, 7, 60),
    ],
)
def test_generations_differ_at_the_left_edge(dialect: Dialect, count: int, increase: float) -> None:
    rising: list[float | None] = [100, 110, 120, 130, 140, 150, 160]
    assert ask("count_over_time", rising, dialect=dialect) == count
    assert ask("increase", rising, dialect=dialect) == pytest.approx(increase)


@pytest.mark.parametrize(
    ("dialect", "stretched"),
    # It was zero 8 s before its first sample: nearer than 1.1 intervals, farther than half of one.
    [(Dialect.PROMETHEUS_3, 20 + 5), (Dialect.PROMETHEUS_2, 20 + 8)],
)
def test_generations_differ_where_a_counter_begins(dialect: Dialect, stretched: float) -> None:
    values: list[float | None] = [None, None, None, None, 8, 18, 28]
    assert ask("increase", values, dialect=dialect) == pytest.approx(20 * stretched / 20)


def test_a_prediction_counts_from_the_moment_of_evaluation() -> None:
    rising: list[float | None] = [0, 10, 20, 30, 40, 50, 60]
    assert ask("predict_linear", rising, 100, ahead_s=40) == pytest.approx(200)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ((0, 0.5), "invalid smoothing factor. Expected: 0 < sf < 1, got: 0.000000"),
        ((1, 7), "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.000000"),
        ((0.5, -0.25), "invalid trend factor. Expected: 0 < tf < 1, got: -0.250000"),
        ((0.5, INF), "invalid trend factor. Expected: 0 < tf < 1, got: +Inf"),
    ],
)
def test_factors_out_of_range_are_refused(factors: tuple[float, float], message: str) -> None:
    with pytest.raises(QueryError) as caught:
        ask("double_exponential_smoothing", [1.0], *factors)
    assert (caught.value.kind, str(caught.value)) == (ErrorKind.EXECUTION, message)


def test_factors_that_meet_no_sample_are_not_looked_at() -> None:
    assert ask("double_exponential_smoothing", [1.0, None, None], 5, 5, range_s=10) is None


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_variance_of_a_long_window_is_that_of_its_samples(offset: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(offset, 3.0, over_time.LONG_WINDOW + 500)
    times_ms = np.arange(len(values)) * 1000
    ends = np.array([times_ms[-1]])
    rows = np.zeros(len(values), dtype=np.int64)
    windows = cut_windows([{}], rows, times_ms, values, ends, 10**9, Dialect.PROMETHEUS_3)
    found, _ = RANGE_FUNCTIONS["stdvar_over_time"](RangeCall(windows, ends))
    assert found[0, 0] == pytest.approx(statistics.pvariance(values.tolist()), rel=1e-9)
    values[7] = np.inf
    found, _ = RANGE_FUNCTIONS["stddev_over_time"](RangeCall(windows, ends))
    assert np.isnan(found[0, 0])
