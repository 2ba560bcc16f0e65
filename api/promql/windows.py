"""Cuts samples into what an expression reads at every step: the latest, or all of a range.

A sample enters the window of a step and leaves it again some steps later. Which steps these are is
arithmetic on its time alone; counting how many samples of a series have entered, and how many have
left, gives both edges of every window in one pass over the samples and one over the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.data.selectors import STORE_MS_MAX
from api.promql.values import Bools, Dialect, Floats, Ints, Labels, Vector, Windows


def cut_windows(
    labels: Sequence[Labels],
    series_rows: Ints,
    times_ms: Ints,
    values: Floats,
    end_ms: Ints,
    range_ms: int,
    dialect: Dialect,
) -> Windows:
    """The samples of ``range_ms`` before each of ``end_ms``, for every series.

    ``series_rows`` indexes ``labels`` for each sample. The samples are in order of
    series, then of time; stale markers are not among them. ``end_ms`` never decreases: it is the
    grid moved by the offset, or one moment again and again for `@`.
    """
    shift = _whole_steps(end_ms, range_ms) if dialect is Dialect.PROMETHEUS_3 else None
    if shift is not None:
        # A sample leaves a fixed number of steps after it has entered: one count gives both edges.
        ahead = np.concatenate((end_ms[:1] - range_ms + _step(end_ms) * np.arange(shift), end_ms))
        entered = _entered(series_rows, times_ms, len(labels), ahead)
        first, last = entered[:, : len(end_ms)], entered[:, shift:]
        return Windows(labels, times_ms, values, first, last, end_ms, range_ms)
    late = range_ms if dialect is Dialect.PROMETHEUS_3 else range_ms + 1
    leaves = _first_step_from(end_ms, times_ms + late)
    first = _count_until(series_rows, leaves, len(labels), len(end_ms))
    last = _entered(series_rows, times_ms, len(labels), end_ms)
    return Windows(labels, times_ms, values, first, last, end_ms, range_ms)


def cut_grid(
    vector: Vector, inner_times_ms: Ints, end_ms: Ints, range_ms: int, dialect: Dialect
) -> Windows:
    """A subquery's samples are the vector's points; ``inner_times_ms`` are its columns' moments."""
    rows, columns = np.nonzero(vector.present)
    times_ms = inner_times_ms[columns]
    points = vector.values[rows, columns]
    return cut_windows(vector.labels, rows, times_ms, points, end_ms, range_ms, dialect)


def latest(
    labels: Sequence[Labels],
    series_rows: Ints,
    times_ms: Ints,
    values: Floats,
    stale: Bools,
    end_ms: Ints,
    lookback_ms: int,
    dialect: Dialect,
) -> tuple[Vector, Ints]:
    """The newest sample of each series at each of ``end_ms``, and the times of these samples.

    A series is absent where it has no sample in the look-back, and where the newest is a stale
    marker: ``stale`` marks those. Its time there means as little as its value. The other arguments
    are those of `cut_windows`.
    """
    shape = (len(labels), len(end_ms))
    if not len(times_ms):
        return Vector(labels, np.zeros(shape), np.zeros(shape, np.bool_)), np.zeros(shape, np.int64)
    newest = _entered(series_rows, times_ms, len(labels), end_ms) - 1
    starts = np.searchsorted(series_rows, np.arange(len(labels)))
    found = newest >= starts[:, np.newaxis]
    newest = np.maximum(newest, 0)
    taken_ms = times_ms[newest]
    oldest_ms = end_ms - lookback_ms
    recent = taken_ms > oldest_ms if dialect is Dialect.PROMETHEUS_3 else taken_ms >= oldest_ms
    present = found & recent
    if bool(stale.any()):
        present &= ~stale[newest]
    return Vector(labels, values[newest], present), taken_ms


def clamp_ms(moment_ms: int) -> int:
    """A moment that the store has a date for. There are no samples before and after."""
    return min(max(0, moment_ms), STORE_MS_MAX)


def span_of(end_ms: Ints, window_ms: int) -> tuple[int, int]:
    """The time that windows with these ends look at."""
    return clamp_ms(int(end_ms[0]) - window_ms), clamp_ms(int(end_ms[-1]))


def _entered(series_rows: Ints, times_ms: Ints, series: int, end_ms: Ints) -> Ints:
    """How many samples stand before the end of each window, those of the series above included."""
    return _count_until(series_rows, _first_step_from(end_ms, times_ms), series, len(end_ms))


def _step(end_ms: Ints) -> int:
    """How far apart the steps are; 0 if there are fewer than two, or they are not even."""
    gaps = np.diff(end_ms)
    return int(gaps[0]) if len(gaps) and not bool(np.any(gaps != gaps[0])) else 0


def _whole_steps(end_ms: Ints, range_ms: int) -> int | None:
    """How many steps a range is, if it is a whole number of them and not more than there are."""
    step_ms = _step(end_ms)
    if not step_ms or range_ms % step_ms or range_ms // step_ms > len(end_ms):
        return None
    return range_ms // step_ms


def _first_step_from(end_ms: Ints, moments_ms: Ints) -> Ints:
    """The first step that ends at each moment or later; the number of steps if none does."""
    steps = len(end_ms)
    step_ms = _step(end_ms)
    if not step_ms:
        return np.searchsorted(end_ms, moments_ms)
    # Division is several times faster than the search, and a grid is nearly always regular.
    first = (moments_ms - (int(end_ms[0]) - step_ms + 1)) // step_ms
    return np.clip(first, 0, steps, out=first)


def _count_until(series_rows: Ints, steps_of: Ints, series: int, steps: int) -> Ints:
    """For each series and step: how many samples come before it or meet it, in order of both."""
    cells = series_rows * (steps + 1) + steps_of
    counts = np.bincount(cells, minlength=series * (steps + 1))
    until: Ints = np.cumsum(counts).reshape(series, steps + 1)[:, :steps]
    return np.ascontiguousarray(until)
