"""Trend functions: linear regression, and double exponential smoothing."""

from __future__ import annotations

import numpy as np

from api.data.export import number_text
from api.promql.errors import failed
from api.promql.pieces import Piece, RangeCall, RangeResult, by_pieces, compensated_sums, filled
from api.promql.values import Floats, Ints, Windows


def deriv(call: RangeCall) -> RangeResult:
    windows = filled(call.windows, minimum=2)

    def compute(piece: Piece) -> Floats:
        # From the first sample on: seconds since 1970 would cost digits.
        slopes, _ = _lines(call.windows, piece, call.windows.times_ms[piece.first])
        return slopes

    return by_pieces(windows, compute)


def predict_linear(call: RangeCall) -> RangeResult:
    """Counted from the evaluation time, which the offset of the range does not move."""
    windows = filled(call.windows, minimum=2)
    now_ms = call.at_ms[windows.steps]
    ahead = call.parameters[0][windows.steps]

    def compute(piece: Piece) -> Floats:
        slopes, intercepts = _lines(call.windows, piece, now_ms[piece.chosen])
        return slopes * ahead[piece.chosen] + intercepts

    return by_pieces(windows, compute)


def _lines(windows: Windows, piece: Piece, origins_ms: Ints) -> tuple[Floats, Floats]:
    """The least-squares line of each window: its slope per second and its value at the origin."""
    values = piece.lay_out(windows.values, 0.0)
    times_ms = piece.lay_out(windows.times_ms, 0.0)
    seconds = (times_ms - origins_ms[:, np.newaxis]) / 1e3
    piece.pad(seconds, 0.0)
    counts = piece.counts.astype(np.float64)
    time_sum, value_sum = compensated_sums(seconds), compensated_sums(values)
    covariances = compensated_sums(seconds * values) - time_sum * value_sum / counts
    variances = compensated_sums(seconds * seconds) - time_sum * time_sum / counts
    slopes = covariances / variances
    intercepts = value_sum / counts - slopes * time_sum / counts
    # One number again and again: the line is exact, unless the number is infinite.
    same = values == values[:, :1]
    piece.pad(same, True)
    constant = np.all(same, axis=1)
    level = np.where(np.isinf(values[:, 0]), np.nan, values[:, 0])
    flat = np.where(np.isnan(level), np.nan, 0.0)
    return np.where(constant, flat, slopes), np.where(constant, level, intercepts)


def double_exponential_smoothing(call: RangeCall) -> RangeResult:
    """The smoothed value at the window's end. The parameters: smoothing factor, trend factor."""
    _check_factors(call)
    windows = filled(call.windows, minimum=2)
    smoothing, trend = (parameter[windows.steps] for parameter in call.parameters)

    def compute(piece: Piece) -> Floats:
        rows = piece.lay_out(call.windows.values, 0.0)
        smooth, follow = smoothing[piece.chosen], trend[piece.chosen]
        level, before, slope = rows[:, 0].copy(), rows[:, 0].copy(), rows[:, 1] - rows[:, 0]
        for place, column in piece.columns(rows):
            if place == 0:
                continue
            now = slice(len(column))
            if place > 1:
                change = follow[now] * (level[now] - before[now])
                slope[now] = change + (1 - follow[now]) * slope[now]
            smoothed = smooth[now] * column + (1 - smooth[now]) * (level[now] + slope[now])
            before[now], level[now] = level[now], smoothed
        return level

    return by_pieces(windows, compute)


def _check_factors(call: RangeCall) -> None:
    """Raise for the first factor out of range that meets a sample; NaN is not out of range."""
    outside = [(factors <= 0) | (factors >= 1) for factors in call.parameters]
    met = (call.windows.last > call.windows.first) & (outside[0] | outside[1])
    if not met.any():
        return
    step = int(met.argmax()) % met.shape[1]
    kinds = (("smoothing", "sf"), ("trend", "tf"))
    for (kind, short), factors, wrong in zip(kinds, call.parameters, outside, strict=True):
        if wrong[step]:
            seen = float(factors[step])
            text = f"{seen:f}" if np.isfinite(seen) else number_text(seen)
            raise failed(f"invalid {kind} factor. Expected: 0 < {short} < 1, got: {text}")
