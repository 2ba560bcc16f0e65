"""Answers from roll-ups: one row for the samples of five minutes, or of an hour, of a series.

Where windows are whole buckets, roll-ups hold all that some functions ask of samples, and the
answer is the same: exactly, but for sums, which are added in another order. Where samples are past
their retention, roll-ups are what is left: windows are then widened to whole buckets, and the
answer says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from api.data.store.rollups import FIVE_MINUTES, MS_PER_HOUR, Stride
from api.promql.find import Found
from api.promql.pieces import Piece, RangeCall, RangeResult, by_pieces, filled, running_sums
from api.promql.range_functions import RANGE_FUNCTIONS, Edges, ResetsSeen, extrapolated
from api.promql.rollup_rows import CHANGES, OF_VALUES, Buckets, RollupReader, stride_of
from api.promql.values import Dialect, Floats, Ints, Labels, Notes, Vector, Windows

ROLLED: Final = OF_VALUES | {
    "count_over_time",
    "first_over_time",
    "last_over_time",
    "present_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
}
"""Functions that roll-ups answer."""

TOTALS: Final = frozenset({"count_over_time", "delta", "increase", "sum_over_time"})
"""Functions whose result grows with the range: a widened window's is scaled back."""

ASSUMED_INTERVAL_MS: Final = 10_000
"""How far apart samples usually are; only the choice between two right ways depends on it."""

ROLLED_SAMPLES_FROM: Final = 40_000
"""Fewer samples are read as fast as it is asked whether roll-ups have them."""

SPAN_MS_MIN: Final = 4 * MS_PER_HOUR
"""Shorter times are read as samples: the last hours have no roll-ups yet."""


def evaluate(
    function: str, buckets: Buckets, ends: Ints, range_ms: int, dialect: Dialect
) -> RangeResult:
    """One of ROLLED over windows of whole buckets."""
    if function in CHANGES:
        return changed(function, buckets, ends, range_ms, dialect)
    if function in {"count_over_time", "avg_over_time"}:
        windows = buckets.cut(buckets.total, ends, range_ms)
        counts = counted(buckets, windows)
        if function == "count_over_time":
            return counts.astype(np.float64), counts > 0
        return averages(windows, counts)
    values = {
        "first_over_time": buckets.first,
        "last_over_time": buckets.last,
        "max_over_time": buckets.high,
        "min_over_time": buckets.low,
        "present_over_time": buckets.total,
        "sum_over_time": buckets.total,
        "ts_of_first_over_time": buckets.first_ms / 1000,
        "ts_of_last_over_time": buckets.last_ms / 1000,
    }[function]
    # A bucket's first sample has a value and a time, and so has its last.
    of_values = RANGE_FUNCTIONS[function.removeprefix("ts_of_")]
    return of_values(RangeCall(buckets.cut(values, ends, range_ms), ends))


def counted(buckets: Buckets, windows: Windows) -> Ints:
    """How many samples each window has."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(buckets.count)))
    counts: Ints = before[windows.last] - before[windows.first]
    return counts


def averages(windows: Windows, counts: Ints) -> RangeResult:
    used = filled(windows)
    samples = counts.ravel()[used.chosen]

    def compute(piece: Piece) -> Floats:
        totals, lost = running_sums(piece.lay_out(windows.values, 0.0))
        of_piece = samples[piece.chosen]
        means: Floats = totals / of_piece + lost / of_piece
        return means

    return by_pieces(used, compute)


def changed(
    function: str, buckets: Buckets, ends: Ints, range_ms: int, dialect: Dialect
) -> RangeResult:
    """`rate`, `increase` or `delta`: a bucket is its first and its last sample, with what it lost.

    A counter that fell from one bucket to the next lost what the first of them ended with.
    """
    windows = buckets.cut(buckets.total, ends, range_ms)
    counts = counted(buckets, windows)
    present = counts >= 2  # noqa: PLR2004 - a change needs two
    both = msgspec.structs.replace(
        windows,
        times_ms=np.column_stack((buckets.first_ms, buckets.last_ms)).ravel(),
        values=np.column_stack((buckets.first, buckets.last)).ravel(),
        first=2 * windows.first,
        last=2 * windows.last,
    )
    first = np.where(present, both.first, 0)
    edges = Edges(first, np.where(present, both.last - 1, 0), counts, present)
    fell = np.zeros(len(buckets.rows))
    is_next = buckets.rows[1:] == buckets.rows[:-1]
    is_less = is_next & (buckets.first[1:] < buckets.last[:-1])
    fell[1:] = np.where(is_less, buckets.last[:-1], 0.0)
    losses = np.column_stack((fell, buckets.lost)).ravel()
    resets = ResetsSeen(np.cumsum(losses != 0), losses[losses != 0])
    call = RangeCall(both, ends, (), dialect)
    return extrapolated(function, call, edges, resets if len(resets.lost) else None)


def widened(ends: Ints, range_ms: int, stride: Stride) -> tuple[Ints, int]:
    """Windows as whole buckets: the last that has ended, and as many as the range needs."""
    whole_ms = max(1, -(-range_ms // stride.ms)) * stride.ms
    return ends // stride.ms * stride.ms, whole_ms


def words_of(stride: Stride, gone_ms: int) -> str:
    """The warning of an answer that is coarser than asked."""
    gone = dt.datetime.fromtimestamp(gone_ms // 1000, tz=dt.UTC)
    return (
        f"samples before {gone:%Y-%m-%dT%H:%M:%SZ} are past retention: {stride.words} roll-ups "
        f"answer in their place, and windows before it are widened to whole {stride.words} buckets"
    )


def computed(
    rollups: RollupReader,
    found: Found,
    stride: Stride,
    asked: tuple[int, int],
    stored: tuple[int, int],
    compute: Callable[[Buckets], RangeResult | None],
) -> Vector | None:
    """The results of all series, read in parts; None: the buckets of some do not serve."""
    results = []
    labels: list[Labels] = []
    for part in rollups.in_parts(found, stride, asked[1] - asked[0]):
        result = compute(rollups.read(part, stride, *asked, stored))
        if result is None:
            return None
        results.append(result)
        labels += part.labels
    return Vector(
        found.labels if found.in_order or len(results) == 1 else labels,
        np.concatenate([values for values, _ in results]),
        np.concatenate([present for _, present in results]),
    )


class RolledAnswers:
    """What one query gets from roll-ups: the same as from samples, or what is left of these."""

    def __init__(self, rollups: RollupReader | None, dialect: Dialect, notes: Notes) -> None:
        """``rollups``: None: there are none, and nothing is answered."""
        self._rollups = rollups
        self._dialect = dialect
        self._notes = notes

    def results(self, function: str, found: Found, ends: Ints, range_ms: int) -> Vector | None:
        """A range function's; None: samples must be read, or are read as fast."""
        if function not in ROLLED:
            return None

        def compute(buckets: Buckets) -> RangeResult | None:
            if not buckets.serves(function):
                return None
            return evaluate(function, buckets, ends, range_ms, self._dialect)

        return self._exact(found, ends, range_ms, compute)

    def newest(self, found: Found, ends: Ints, lookback_ms: int) -> Vector | None:
        """An instant selector's; None: as above. An hour's last bucket may not be its newest."""
        if lookback_ms != FIVE_MINUTES.ms:
            return None
        return self._exact(found, ends, lookback_ms, lambda one: newest_of(one, ends, lookback_ms))

    def _exact(
        self,
        found: Found,
        ends: Ints,
        range_ms: int,
        compute: Callable[[Buckets], RangeResult | None],
    ) -> Vector | None:
        after_ms, to_ms = int(ends[0]) - range_ms, int(ends[-1])
        stride = stride_of(ends, range_ms)
        samples = len(found.labels) * (to_ms - after_ms) / ASSUMED_INTERVAL_MS
        rollups = self._rollups
        if (
            rollups is None
            or self._dialect is not Dialect.PROMETHEUS_3
            or stride is None
            or after_ms < 0
            or to_ms - after_ms < SPAN_MS_MIN
            or samples < ROLLED_SAMPLES_FROM
            or "metrics" not in found.parameters
        ):
            return None
        stored = rollups.covered(found, stride, after_ms, to_ms)
        if stored is None:
            return None
        return computed(rollups, found, stride, (after_ms, to_ms), stored, compute)

    def steps_gone(self, ends: Ints, window_ms: int) -> int:
        """Of how many steps, the first ones, samples are past retention."""
        if self._rollups is None:
            return 0
        gone = self._rollups.gone_before(int(ends[0]) - window_ms)
        return 0 if gone is None else int(np.count_nonzero(ends - window_ms < gone[0]))

    def results_past(self, function: str, found: Found, ends: Ints, range_ms: int) -> Vector:
        """A range function's where samples are past retention."""

        def compute(buckets: Buckets, whole: Ints, whole_ms: int) -> RangeResult:
            if function not in ROLLED:
                return absent(buckets, whole)
            values, present = evaluate(function, buckets, whole, whole_ms, self._dialect)
            if function in TOTALS:
                values = values * (range_ms / whole_ms)
            return values, present

        vector = self._past(found, ends, range_ms, compute, is_exact=function in ROLLED)
        if function not in ROLLED:
            self._notes.warn(f"{function} needs samples, and those of this time are past retention")
        return vector

    def newest_past(self, found: Found, ends: Ints, lookback_ms: int) -> Vector:
        """An instant selector's where samples are past retention."""
        is_exact = lookback_ms == FIVE_MINUTES.ms
        return self._past(found, ends, lookback_ms, newest_of, is_exact=is_exact)

    def _past(
        self,
        found: Found,
        ends: Ints,
        range_ms: int,
        compute: Callable[[Buckets, Ints, int], RangeResult],
        *,
        is_exact: bool,
    ) -> Vector:
        """``is_exact``: where windows are whole buckets, nothing is lost, and nothing is said."""
        assert self._rollups is not None
        gone = self._rollups.gone_before(int(ends[0]) - range_ms)
        assert gone is not None, "steps_gone has said that there are some"
        stride = gone[1]
        whole, whole_ms = widened(ends, range_ms, stride)
        after_ms, to_ms = int(whole[0]) - whole_ms, int(whole[-1])
        vector = computed(
            self._rollups,
            found,
            stride,
            (after_ms, to_ms),
            (after_ms, to_ms),
            lambda buckets: compute(buckets, whole, whole_ms),
        )
        assert vector is not None
        is_whole = is_exact and whole_ms == range_ms and bool(np.array_equal(whole, ends))
        if not is_whole and bool(vector.present.any()):
            self._notes.warn(words_of(stride, gone[0]))
        return aligned(vector, found)


def newest_of(buckets: Buckets, ends: Ints, lookback_ms: int) -> RangeResult:
    """The last sample of each window, unless a stale marker follows it there."""
    windows = buckets.cut(buckets.last, ends, lookback_ms)
    present = windows.last > windows.first
    place = np.where(present, windows.last - 1, 0)
    if not len(buckets.rows):
        return np.zeros(present.shape), present
    return buckets.last[place], present & ~buckets.ends_stale[place]


def absent(buckets: Buckets, ends: Ints) -> RangeResult:
    shape = (len(buckets.labels), len(ends))
    return np.zeros(shape), np.zeros(shape, np.bool_)


def aligned(vector: Vector, found: Found) -> Vector:
    """The rows in the order of ``found``."""
    if vector.labels is found.labels:
        return vector
    row_of = {id(labels): row for row, labels in enumerate(vector.labels)}
    return vector.take([row_of[id(labels)] for labels in found.labels])
