"""Which samples an expression sees at a step, checked against a filter that a child could read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql.values import Dialect, Ints, Vector
from api.promql.windows import cut_grid, cut_windows, latest

Series = list[dict[int, float]]

moments = st.integers(-20, 120)
some_series: st.SearchStrategy[Series] = st.lists(
    st.dictionaries(moments, st.floats(-9, 9), max_size=30), max_size=5
)
grids = st.one_of(
    st.builds(
        lambda start, step, steps: [start + step * n for n in range(steps)],
        moments,
        st.integers(1, 40),
        st.integers(1, 8),
    ),
    st.builds(lambda moment, steps: [moment] * steps, moments, st.integers(1, 4)),
    st.lists(moments, min_size=1, max_size=6).map(sorted),
)
ranges = st.integers(1, 60)
dialects = st.sampled_from(Dialect)


def arrays(series: Series) -> tuple[Ints, Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    flat = [(row, t, v) for row, samples in enumerate(series) for t, v in sorted(samples.items())]
    return (
        np.array([row for row, _, _ in flat], dtype=np.int64),
        np.array([t for _, t, _ in flat], dtype=np.int64),
        np.array([v for _, _, v in flat], dtype=np.float64),
    )


def inside(t: int, end: int, length: int, dialect: Dialect) -> bool:
    """The rule: the left edge is open in Prometheus 3 and closed in Prometheus 2."""
    age = end - t
    return 0 <= age < length or (age == length and dialect is Dialect.PROMETHEUS_2)


def named(series: Series) -> list[dict[str, str]]:
    return [{"n": str(row)} for row in range(len(series))]


@given(some_series, grids, ranges, dialects)
def test_a_window_holds_what_is_inside(
    series: Series, ends: list[int], length: int, dialect: Dialect
) -> None:
    windows = cut_windows(named(series), *arrays(series), np.array(ends), length, dialect)
    assert windows.first.shape == windows.last.shape == (len(series), len(ends))
    for row, samples in enumerate(series):
        for step, end in enumerate(ends):
            seen = slice(windows.first[row, step], windows.last[row, step])
            wanted = sorted(t for t in samples if inside(t, end, length, dialect))
            assert windows.times_ms[seen].tolist() == wanted
            assert windows.values[seen].tolist() == [samples[t] for t in wanted]


@given(some_series, grids, ranges, dialects)
def test_a_subquery_sees_the_points_that_are_present(
    series: Series, ends: list[int], length: int, dialect: Dialect
) -> None:
    inner = np.arange(-20, 121)
    values = np.zeros((len(series), len(inner)))
    present = np.zeros(values.shape, dtype=np.bool_)
    for row, samples in enumerate(series):
        for t, v in samples.items():
            values[row, t + 20], present[row, t + 20] = v, True
    vector = Vector(named(series), values, present)
    grid = cut_grid(vector, inner, np.array(ends), length, dialect)
    plain = cut_windows(named(series), *arrays(series), np.array(ends), length, dialect)
    for name in ("times_ms", "values", "first", "last"):
        np.testing.assert_array_equal(getattr(grid, name), getattr(plain, name))


@given(some_series, st.sets(moments), grids, ranges, dialects)
def test_the_latest_sample_counts_unless_it_is_stale(
    series: Series, stale_at: set[int], ends: list[int], lookback: int, dialect: Dialect
) -> None:
    rows, times_ms, values = arrays(series)
    stale = np.isin(times_ms, list(stale_at))
    end_ms = np.array(ends)
    vector, taken_ms = latest(
        named(series), rows, times_ms, values, stale, end_ms, lookback, dialect
    )
    assert vector.values.shape == vector.present.shape == taken_ms.shape == (len(series), len(ends))
    for row, samples in enumerate(series):
        for step, end in enumerate(ends):
            newest = max((t for t in samples if t <= end), default=None)
            if newest is None or newest in stale_at or not inside(newest, end, lookback, dialect):
                assert not vector.present[row, step]
            else:
                assert vector.present[row, step]
                assert vector.values[row, step] == samples[newest]
                assert taken_ms[row, step] == newest


@pytest.mark.parametrize(
    ("dialect", "count"), [(Dialect.PROMETHEUS_3, 6), (Dialect.PROMETHEUS_2, 7)]
)
def test_seven_samples_on_both_edges(dialect: Dialect, count: int) -> None:
    times_ms = np.arange(7) * 10_000
    rows = np.zeros(7, dtype=np.int64)
    windows = cut_windows([{}], rows, times_ms, times_ms / 1, np.array([60_000]), 60_000, dialect)
    assert (windows.last - windows.first).tolist() == [[count]]
