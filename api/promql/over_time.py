"""The `_over_time` functions, in Prometheus' order of operations, so that the last digit is its."""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np

from api.promql.pieces import (
    Piece,
    RangeCall,
    RangeResult,
    add_compensated,
    by_pieces,
    compensated_sums,
    filled,
    running_sums,
)
from api.promql.values import Floats, Ints

MEDIAN = 0.5

LONG_WINDOW = 1_000
"""Samples in a window from which on a loop over them would be felt."""


class Extreme(Protocol):
    """`np.fmin` or `np.fmax`: of two numbers the smaller or the larger, and any rather than NaN."""

    def reduce(self, array: Floats, /, axis: int) -> Floats:
        """The extreme of each row (axis 1)."""


def count_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(windows.counts.astype(np.float64))


def present_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(np.ones(len(windows.first)))


def first_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(call.windows.values[windows.first])


def last_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(call.windows.values[windows.newest])


def ts_of_first_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(call.windows.times_ms[windows.first] / 1000)


def ts_of_last_over_time(call: RangeCall) -> RangeResult:
    windows = filled(call.windows)
    return windows.spread(call.windows.times_ms[windows.newest] / 1000)


def extreme_over_time(call: RangeCall, extreme: Extreme) -> RangeResult:
    """The smallest or largest value; NaN only if there is nothing else."""

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, np.nan)
        # Not the extreme itself: of zeros with different signs Prometheus keeps the first.
        places = (rows == extreme.reduce(rows, axis=1)[:, np.newaxis]).argmax(axis=1)
        found: Floats = rows[np.arange(len(rows)), places]
        return found

    return by_pieces(filled(call.windows), compute)


def ts_of_extreme_over_time(call: RangeCall, extreme: Extreme) -> RangeResult:
    """The last time, in seconds; a window of nothing but NaN has its last sample's."""

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, np.nan)
        equal = rows == extreme.reduce(rows, axis=1)[:, np.newaxis]
        from_behind = equal[:, ::-1].argmax(axis=1)
        places = np.where(equal.any(axis=1), piece.width - 1 - from_behind, piece.counts - 1)
        times_ms: Ints = call.windows.times_ms[piece.first + places]
        return times_ms / 1000

    return by_pieces(filled(call.windows), compute)


def sum_over_time(call: RangeCall) -> RangeResult:
    def compute(piece: Piece) -> Floats:
        return compensated_sums(piece.lay_out(call.windows.values, 0.0))

    return by_pieces(filled(call.windows), compute)


def avg_over_time(call: RangeCall) -> RangeResult:
    """The mean of the values: the sum by the count, unless the sum is too large for a float."""

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, 0.0)
        totals, lost = running_sums(rows)
        means = totals / piece.counts + lost / piece.counts
        odd = np.flatnonzero(~np.isfinite(totals))
        if len(odd):
            some = Piece(odd, piece.first[odd], piece.counts[odd])
            means[odd] = _means_step_by_step(some, rows[odd])
        return means

    return by_pieces(filled(call.windows), compute)


def _means_step_by_step(piece: Piece, rows: Floats) -> Floats:
    """Where the sum would overflow (``carried``), ``total`` is the mean so far, else the sum."""
    total, lost = rows[:, 0].copy(), np.zeros(len(rows))
    carried = np.zeros(len(rows), dtype=np.bool_)
    for place, column in piece.columns(rows):
        if place == 0:
            continue
        now, count = slice(len(column)), place + 1
        summed, summed_lost = add_compensated(column, total[now], lost[now])
        begins = ~carried[now] & np.isinf(summed)
        carried[now] |= begins
        before = np.where(begins, total[now] / place, total[now])
        before_lost = np.where(begins, lost[now] / place, lost[now])
        share = place / count
        mean, mean_lost = add_compensated(column / count, share * before, share * before_lost)
        total[now] = np.where(carried[now], mean, summed)
        lost[now] = np.where(carried[now], mean_lost, summed_lost)
    return np.where(carried, total + lost, total / piece.counts + lost / piece.counts)


def stdvar_over_time(call: RangeCall) -> RangeResult:
    """The variance of all values (not of a sample of them), by Welford's method, compensated.

    Welford's goes sample by sample; for long windows the textbook's two passes are much faster, and
    the same but for the last digits.
    """

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, 0.0)
        if piece.width > LONG_WINDOW:
            off = rows - (compensated_sums(rows) / piece.counts)[:, np.newaxis]
            piece.pad(off, 0.0)
            return compensated_sums(off * off) / piece.counts
        mean, mean_lost, squares, squares_lost = np.zeros((4, len(rows)))
        for place, column in piece.columns(rows):
            now = slice(len(column))
            off = column - (mean[now] + mean_lost[now])
            mean[now], mean_lost[now] = add_compensated(
                off / (place + 1), mean[now], mean_lost[now]
            )
            squares[now], squares_lost[now] = add_compensated(
                off * (column - (mean[now] + mean_lost[now])), squares[now], squares_lost[now]
            )
        return (squares + squares_lost) / piece.counts

    return by_pieces(filled(call.windows), compute)


def stddev_over_time(call: RangeCall) -> RangeResult:
    variances, present = stdvar_over_time(call)
    with np.errstate(invalid="ignore"):
        return np.sqrt(variances), present


def quantile_over_time(call: RangeCall) -> RangeResult:
    """The quantile of the one parameter. The caller warns if it is outside 0…1."""
    windows = filled(call.windows)
    shares = call.parameters[0][windows.steps]

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, np.nan)
        return quantiles(rows, piece.counts, shares[piece.chosen])

    return by_pieces(windows, compute)


def mad_over_time(call: RangeCall) -> RangeResult:
    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, np.nan)
        halves = np.full(len(rows), MEDIAN)
        medians = quantiles(rows, piece.counts, halves)
        return quantiles(np.abs(rows - medians[:, np.newaxis]), piece.counts, halves)

    return by_pieces(filled(call.windows), compute)


def quantiles(rows: Floats, counts: Ints, shares: Floats) -> Floats:
    """Between two values if need be; padding must be NaN, values that are NaN count as smallest."""
    ordered = np.sort(rows, axis=1)
    numbers = (ordered == ordered).sum(axis=1)  # noqa: PLR0124 - all but NaN
    nans = counts - numbers
    ranks = np.clip(np.nan_to_num(shares), 0.0, 1.0) * (counts - 1)
    lower = np.floor(ranks)
    weights = ranks - lower
    below = _ranked(ordered, nans, lower.astype(np.int64))
    above = _ranked(ordered, nans, np.minimum(counts - 1, lower.astype(np.int64) + 1))
    found = below * (1 - weights) + above * weights
    found = np.where(shares < 0, -np.inf, np.where(shares > 1, np.inf, found))
    return np.where(np.isnan(shares), np.nan, found)


def _ranked(ordered: Floats, nans: Ints, ranks: Ints) -> Floats:
    """The value at each row's rank, if NaNs, which numpy puts last, came first."""
    places = np.maximum(ranks - nans, 0)
    return np.where(ranks < nans, np.nan, ordered[np.arange(len(ordered)), places])


min_over_time = functools.partial(extreme_over_time, extreme=np.fmin)
max_over_time = functools.partial(extreme_over_time, extreme=np.fmax)
ts_of_min_over_time = functools.partial(ts_of_extreme_over_time, extreme=np.fmin)
ts_of_max_over_time = functools.partial(ts_of_extreme_over_time, extreme=np.fmax)
