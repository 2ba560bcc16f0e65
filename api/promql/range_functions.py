"""Functions on range vectors, by name; here are those of counters and of neighbouring samples.

Each gives one number a window, or nothing where the window holds too few samples. The evaluation
handles names and labels.
"""

from __future__ import annotations

import msgspec
import numpy as np

from api.promql import over_time, regression
from api.promql.pieces import RangeCall, RangeFunction, RangeResult, filled, in_blocks, pieces
from api.promql.values import Bools, Dialect, Floats, Ints, Windows

NEAR = 1.1
"""A window whose edge is nearer to its samples than this many intervals counts as full."""


def rate(call: RangeCall) -> RangeResult:
    """How much a counter grows, per second."""
    return increase(call, per_second=True)


def increase(call: RangeCall, *, per_second: bool = False) -> RangeResult:
    """A counter's growth over the range, corrected for resets and extrapolated to the edges."""
    resets_seen = ResetsSeen.of(call.windows.values)
    function = "rate" if per_second else "increase"

    def compute(block: RangeCall) -> RangeResult:
        return extrapolated(function, block, Edges.of(block.windows), resets_seen)

    return in_blocks(call, compute)


def delta(call: RangeCall) -> RangeResult:
    """How much a gauge changes over the range, extrapolated to its edges."""

    def compute(block: RangeCall) -> RangeResult:
        return extrapolated("delta", block, Edges.of(block.windows), None)

    return in_blocks(call, compute)


def extrapolated(
    function: str, call: RangeCall, edges: Edges, resets_seen: ResetsSeen | None
) -> RangeResult:
    """`rate`, `increase` or `delta` of windows whose edges and resets are known."""
    with np.errstate(all="ignore"):
        grown = edges.change(call.windows.values)
        if resets_seen is not None and function != "delta":
            resets_seen.correct(grown, edges)
        stretch = edges.stretch(call, grown, counter=function != "delta")
        if function == "rate":
            stretch /= _seconds(call.windows.range_ms)
        return np.multiply(grown, stretch, out=grown), edges.present


class Edges(msgspec.Struct, frozen=True):
    """The first and the last sample of every window with two or more, all of them (series, steps).

    Other windows have some sample's place, and what is computed for them means nothing. To leave
    them out would cost more than to compute them.
    """

    first: Ints
    newest: Ints
    counts: Ints
    present: Bools

    @classmethod
    def of(cls, windows: Windows) -> Edges:
        counts = windows.last - windows.first
        present = counts >= 2  # noqa: PLR2004 - a change needs two
        first, newest = windows.first, windows.last - 1
        if not bool(present.all()):
            first, newest = np.where(present, first, 0), np.where(present, newest, 0)
        return cls(first, newest, counts, present)

    def change(self, values: Floats) -> Floats:
        if not len(values):
            return np.zeros(self.first.shape)
        last_values: Floats = values[self.newest]
        last_values -= values[self.first]
        return last_values

    def stretch(self, call: RangeCall, grown: Floats, *, counter: bool) -> Floats:
        """The factor that extrapolates the observed change to the whole window.

        Up to the edge, if it is about as near as the next sample would be; otherwise by half an
        interval. A counter cannot have been below zero: it is not stretched beyond where it was
        zero. The order of operations is Prometheus'.
        """
        source = call.windows
        if not len(source.times_ms):
            return np.zeros(self.first.shape)
        first_ms, last_ms = source.times_ms[self.first], source.times_ms[self.newest]
        to_start = (first_ms - (source.end_ms - source.range_ms)) / 1000
        to_end = (source.end_ms - last_ms) / 1000
        sampled = (last_ms - first_ms) / 1000
        half = sampled / (self.counts - 1)
        threshold = half * NEAR
        half /= 2
        if counter:
            first_value = source.values[self.first]
            to_zero = sampled * (first_value / grown)
            rising = (grown > 0) & (first_value >= 0)
            if call.dialect is Dialect.PROMETHEUS_2:
                np.copyto(to_start, to_zero, where=rising & (to_zero < to_start))
        np.copyto(to_start, half, where=to_start >= threshold)
        if counter and call.dialect is Dialect.PROMETHEUS_3:
            np.copyto(to_start, to_zero, where=rising & (to_zero < to_start))
        np.copyto(to_end, half, where=to_end >= threshold)
        to_start += sampled
        to_start += to_end
        to_start /= sampled
        return to_start


def from_edges(function: str, call: RangeCall, counts: Ints) -> RangeResult:
    """`rate`, `increase` or `delta` of windows of which only the edges are known.

    ``call.windows`` has two samples a series, of one window with as many as ``counts`` says, in
    which no counter was reset.
    """
    firsts = 2 * np.arange(len(counts))[:, np.newaxis]
    present = counts[:, np.newaxis] >= 2  # noqa: PLR2004 - a change needs two
    edges = Edges(firsts, firsts + 1, counts[:, np.newaxis], present)
    return extrapolated(function, call, edges, None)


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

    def correct(self, grown: Floats, edges: Edges) -> None:
        """Add what the resets inside each window took away, one after the other."""
        earlier = self.seen[edges.first]
        inside = np.where(edges.present, self.seen[edges.newest] - earlier, 0)
        interrupted = np.flatnonzero(inside)
        flat = grown.ravel()
        for piece in pieces(earlier.ravel()[interrupted], inside.ravel()[interrupted]):
            places = interrupted[piece.chosen]
            steps = np.column_stack((flat[places], piece.lay_out(self.lost, 0.0)))
            flat[places] = np.add.accumulate(steps, axis=1)[:, -1]


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
