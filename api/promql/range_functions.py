"""Functions on range vectors, by name; here are those of counters and of neighbouring samples.

Each gives one number a window, or nothing where the window holds too few samples. Names and labels
are not their business.
"""

from __future__ import annotations

import msgspec
import numpy as np

from api.promql import over_time, regression
from api.promql.pieces import (
    Filled,
    RangeCall,
    RangeFunction,
    RangeResult,
    filled,
    in_blocks,
    pieces,
)
from api.promql.values import Bools, Dialect, Floats, Ints

NEAR = 1.1
"""A window whose edge is nearer to its samples than so many intervals is thought to be full."""


def rate(call: RangeCall) -> RangeResult:
    """How much a counter grows, per second."""
    return increase(call, per_second=True)


def increase(call: RangeCall, *, per_second: bool = False) -> RangeResult:
    """How much a counter grows over the range: resets are seen through, the edges extrapolated."""
    values = call.windows.values
    resets_seen = ResetsSeen.of(values)

    def compute(block: RangeCall) -> RangeResult:
        windows = filled(block.windows, minimum=2)
        grown = _grown(values, windows, resets_seen)
        return _extrapolated(block, windows, grown, counter=True, per_second=per_second)

    return in_blocks(call, compute)


def delta(call: RangeCall) -> RangeResult:
    """How much a gauge changes over the range, extrapolated to its edges."""
    values = call.windows.values

    def compute(block: RangeCall) -> RangeResult:
        windows = filled(block.windows, minimum=2)
        with np.errstate(all="ignore"):
            changed = values[windows.newest] - values[windows.first]
        return _extrapolated(block, windows, changed, counter=False, per_second=False)

    return in_blocks(call, compute)


class ResetsSeen(msgspec.Struct, frozen=True):
    """The resets among all samples: how many up to each sample, and what each took away."""

    seen: Ints
    lost: Floats

    @classmethod
    def of(cls, values: Floats) -> ResetsSeen | None:
        """None if there are none: most counters never fall."""
        less = _resets(values)
        places = np.flatnonzero(less)
        return cls(np.cumsum(less), values[places - 1]) if len(places) else None


def _grown(values: Floats, windows: Filled, resets_seen: ResetsSeen | None) -> Floats:
    """The last value less the first, and what each reset on the way took away, added in order."""
    with np.errstate(all="ignore"):
        grown = values[windows.newest] - values[windows.first]
        if resets_seen is None:
            return grown
        earlier = resets_seen.seen[windows.first]
        inside = resets_seen.seen[windows.newest] - earlier
        interrupted = np.flatnonzero(inside)
        for piece in pieces(earlier[interrupted], inside[interrupted]):
            places = interrupted[piece.chosen]
            steps = np.column_stack((grown[places], piece.lay_out(resets_seen.lost, 0.0)))
            grown[places] = np.add.accumulate(steps, axis=1)[:, -1]
    return grown


def _extrapolated(
    call: RangeCall, windows: Filled, grown: Floats, *, counter: bool, per_second: bool
) -> RangeResult:
    """What was seen between the first and the last sample, stretched towards the window's edges.

    Up to the edge, if it is about as near as the next sample would be; otherwise by half an
    interval. A counter cannot have been below zero: it is not stretched beyond where it was zero.
    """
    source = call.windows
    first_ms, last_ms = source.times_ms[windows.first], source.times_ms[windows.newest]
    end_ms = source.end_ms[windows.steps]
    to_start = (first_ms - (end_ms - source.range_ms)) / 1000
    to_end = (end_ms - last_ms) / 1000
    sampled = (last_ms - first_ms) / 1000
    interval = sampled / (windows.counts - 1)
    threshold, half = interval * NEAR, interval / 2
    first_value = source.values[windows.first]
    with np.errstate(all="ignore"):
        to_zero = np.full(len(grown), np.inf)
        if counter:
            rising = (grown > 0) & (first_value >= 0)
            to_zero = np.where(rising, sampled * (first_value / grown), np.inf)
        if call.dialect is Dialect.PROMETHEUS_2:
            to_start = np.where(to_zero < to_start, to_zero, to_start)
        to_start = np.where(to_start >= threshold, half, to_start)
        if call.dialect is Dialect.PROMETHEUS_3:
            to_start = np.where(to_zero < to_start, to_zero, to_start)
        to_end = np.where(to_end >= threshold, half, to_end)
        factor = (sampled + to_start + to_end) / sampled
        if per_second:
            factor /= _seconds(source.range_ms)
        return windows.spread(grown * factor)


def _seconds(range_ms: int) -> float:
    """A range in seconds, rounded as Go rounds it."""
    return range_ms // 1000 + range_ms % 1000 / 1000


def irate(call: RangeCall) -> RangeResult:
    """How much a counter grows per second, by the last two samples; after a reset, from zero."""
    windows = filled(call.windows, minimum=2)
    values, times_ms, newest = call.windows.values, call.windows.times_ms, windows.newest
    with np.errstate(all="ignore"):
        now, before = values[newest], values[newest - 1]
        grown = np.where(now < before, now, now - before)
        return windows.spread(grown / ((times_ms[newest] - times_ms[newest - 1]) / 1000))


def idelta(call: RangeCall) -> RangeResult:
    """The difference of the last two samples."""
    windows = filled(call.windows, minimum=2)
    values, newest = call.windows.values, windows.newest
    with np.errstate(all="ignore"):
        return windows.spread(values[newest] - values[newest - 1])


def resets(call: RangeCall) -> RangeResult:
    """How often a value is less than the one before it."""
    return _count_events(call, _resets(call.windows.values))


def changes(call: RangeCall) -> RangeResult:
    """How often a value is not the one before it. NaN after NaN is no change."""
    values = call.windows.values
    nans = np.isnan(values)
    differs = np.zeros(len(values), dtype=np.bool_)
    differs[1:] = (values[1:] != values[:-1]) & ~(nans[1:] & nans[:-1])
    return _count_events(call, differs)


def _resets(values: Floats) -> Bools:
    """Which samples are less than the one before. Where a series begins it means nothing."""
    less = np.zeros(len(values), dtype=np.bool_)
    less[1:] = values[1:] < values[:-1]
    return less


def _count_events(call: RangeCall, events: Bools) -> RangeResult:
    """How many of these samples are in each window, its first not counted."""
    windows = filled(call.windows)
    seen: Ints = np.cumsum(events)
    return windows.spread((seen[windows.newest] - seen[windows.first]).astype(np.float64))


RANGE_FUNCTIONS: dict[str, RangeFunction] = {
    "avg_over_time": over_time.avg_over_time,
    "changes": changes,
    "count_over_time": over_time.count_over_time,
    "delta": delta,
    "deriv": regression.deriv,
    "double_exponential_smoothing": regression.double_exponential_smoothing,
    "first_over_time": over_time.first_over_time,
    "idelta": idelta,
    "increase": increase,
    "irate": irate,
    "last_over_time": over_time.last_over_time,
    "mad_over_time": over_time.mad_over_time,
    "max_over_time": over_time.max_over_time,
    "min_over_time": over_time.min_over_time,
    "predict_linear": regression.predict_linear,
    "present_over_time": over_time.present_over_time,
    "quantile_over_time": over_time.quantile_over_time,
    "rate": rate,
    "resets": resets,
    "stddev_over_time": over_time.stddev_over_time,
    "stdvar_over_time": over_time.stdvar_over_time,
    "sum_over_time": over_time.sum_over_time,
    "ts_of_first_over_time": over_time.ts_of_first_over_time,
    "ts_of_last_over_time": over_time.ts_of_last_over_time,
    "ts_of_max_over_time": over_time.ts_of_max_over_time,
    "ts_of_min_over_time": over_time.ts_of_min_over_time,
}
"""All of them but `absent_over_time`, which looks at all series together."""
