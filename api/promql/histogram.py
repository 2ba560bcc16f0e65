"""Quantiles and shares of classic histograms: series that count what is at most their `le`.

Histograms that have equally many buckets are computed at once: an array of histograms x buckets x
steps. Every operation is done in Prometheus' order, so that results differ by rounding at most
(Prometheus on ARM fuses some multiplications with additions).
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence

import msgspec
import numpy as np

from api.promql.grouping import keys_of, other_names
from api.promql.label_functions import drop_names, with_label
from api.promql.texts import general_text
from api.promql.values import (
    Bools,
    Dialect,
    Floats,
    Grid,
    Ints,
    Labels,
    Notes,
    Scalar,
    Vector,
    empty_vector,
    merge_rows,
)
from collector.contract.identity import METRIC_LABEL

BUCKET_LABEL = "le"
PIECE_CELLS = 1 << 18
"""About as many counts are worked on at once: they and what is made of them fit into caches."""
SMALL_DELTA = 1e-12
"""Counts that differ by less than this share are the same number, rounded differently."""
_SMALLEST_NORMAL = float(np.finfo(np.float64).smallest_normal)
_LARGEST = float(np.finfo(np.float64).max)
_DIGITS = "[0-9](?:_?[0-9])*"
_DECIMAL = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_MONOTONICITY = (
    "input to histogram_quantile needed to be fixed for monotonicity (see "
    "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
)

QUANTILE_RANGE = "quantile value should be between 0 and 1, got {}"


class Histogram(msgspec.Struct, frozen=True):
    """The rows of each upper bound, in order; several if it is written as both `1` and `1.0`."""

    labels: Labels
    rows_of: dict[float, list[int]]


class Buckets(msgspec.Struct, frozen=True):
    """Some histograms that have equally many bounds.

    ``bounds`` and ``counts`` have the shape (histograms, buckets, steps), lowest bucket first. A
    bucket may be absent at single steps: ``lengths`` (histograms, steps) counts those present,
    which come first.
    """

    labels: list[Labels]
    bounds: Floats
    counts: Floats
    lengths: Ints

    @property
    def present(self) -> Bools:
        return self.lengths > 0

    @property
    def complete(self) -> Bools:
        """Where a histogram has the bucket that counts everything."""
        return self.present & np.isposinf(pick(self.bounds, self.lengths - 1))


def histogram_quantile(
    quantile: Scalar, vector: Vector, grid: Grid, notes: Notes, dialect: Dialect
) -> Vector:
    """The value below which a share ``quantile`` of the observations lies, by interpolation.

    Within a bucket observations are taken to be spread evenly. In the highest bucket the answer is
    its lower bound, in the lowest one its upper bound if that is not positive. NaN without the
    bucket `+Inf`, with no other bucket, without observations; a quantile below 0 gives -Inf, one
    above 1 +Inf.
    """
    warn_of_quantiles(quantile.values, notes)
    usable = (quantile.values >= 0) & (quantile.values <= 1)
    repairs: list[Repair] = []

    def quantiles(buckets: Buckets) -> Floats:
        repair = force_monotonic(buckets, buckets.complete & usable, dialect)
        repairs.append(repair)
        return interpolate(quantile.values, buckets, repair.counts)

    result = by_histogram(vector, notes, quantiles)
    if dialect is Dialect.PROMETHEUS_3:
        inform_of_repairs(repairs, grid, notes)
    return result


def histogram_quantiles(
    vector: Vector, label: str, quantiles: Sequence[Scalar], grid: Grid, notes: Notes
) -> Vector:
    """Several quantiles at once, each with its number in a label. New in Prometheus 3."""
    labels: list[Labels] = []
    values: list[Floats] = []
    present: list[Bools] = []
    for quantile in quantiles:
        result = histogram_quantile(quantile, vector, grid, notes, Dialect.PROMETHEUS_3)
        for one in np.unique(quantile.values).tolist():
            at = np.isnan(quantile.values) if math.isnan(one) else quantile.values == one
            labels += [with_label(row, label, bound_text(one)) for row in result.labels]
            values.append(result.values)
            present.append(result.present & at)
    return merge_rows(labels, np.concatenate(values), np.concatenate(present))


def histogram_fraction(lower: Scalar, upper: Scalar, vector: Vector, notes: Notes) -> Vector:
    """NaN without the bucket `+Inf`, without observations, or if a value is NaN."""

    def fractions(buckets: Buckets) -> Floats:
        total = pick(buckets.counts, buckets.lengths - 1)
        low, high = (rank_of(value.values, buckets, total) for value in (lower, upper))
        share = np.where(lower.values >= upper.values, 0.0, (high - low) / total)
        nothing = np.isnan(lower.values) | np.isnan(upper.values) | (total == 0)
        return np.where(nothing | ~buckets.complete, np.nan, share)

    return by_histogram(vector, notes, fractions)


def by_histogram(vector: Vector, notes: Notes, compute: Callable[[Buckets], Floats]) -> Vector:
    """A row for each histogram in the vector: ``compute`` of its buckets."""
    labels: list[Labels] = []
    values: list[Floats] = []
    present: list[Bools] = []
    with np.errstate(all="ignore"):
        for buckets in pieces(vector, group_buckets(vector, notes)):
            labels += buckets.labels
            values.append(compute(buckets))
            present.append(buckets.present)
    if not labels:
        return empty_vector(vector.steps)
    return drop_names(labels, np.concatenate(values), np.concatenate(present))


def group_buckets(vector: Vector, notes: Notes) -> list[Histogram]:
    found: dict[Hashable, Histogram] = {}
    bounds: dict[str, float | None] = {}
    ever = np.asarray(vector.present.any(axis=1)).tolist()
    keys = keys_of(vector.labels, other_names(vector.labels, [BUCKET_LABEL]))
    for row, (labels, key) in enumerate(zip(vector.labels, keys, strict=True)):
        text = labels.get(BUCKET_LABEL, "")
        if text not in bounds:
            bounds[text] = parse_bound(text)
        bound = bounds[text]
        if bound is None:
            if ever[row]:
                warn_of_bucket(text, labels, notes)
            continue
        if key not in found:
            found[key] = Histogram(with_label(labels, BUCKET_LABEL, ""), {})
        found[key].rows_of.setdefault(bound, []).append(row)
    return list(found.values())


def pieces(vector: Vector, histograms: Sequence[Histogram]) -> Iterator[Buckets]:
    by_size: dict[int, list[Histogram]] = {}
    for histogram in histograms:
        by_size.setdefault(len(histogram.rows_of), []).append(histogram)
    for size, alike in by_size.items():
        length = max(1, PIECE_CELLS // (size * vector.steps))
        for start in range(0, len(alike), length):
            yield gather(vector, alike[start : start + length])


def gather(vector: Vector, histograms: Sequence[Histogram]) -> Buckets:
    """The buckets of histograms that have equally many bounds; equal bounds are added up."""
    # A NaN among the bounds goes to the end, where it hides the bucket +Inf.
    ordered = [
        sorted(one.rows_of, key=lambda bound: (math.isnan(bound), bound)) for one in histograms
    ]
    rows = np.array(
        [
            [one.rows_of[bound][0] for bound in bounds]
            for one, bounds in zip(histograms, ordered, strict=True)
        ]
    )
    counts, present = vector.values[rows], vector.present[rows]
    for place, (one, bounds) in enumerate(zip(histograms, ordered, strict=True)):
        for bucket, bound in enumerate(bounds):
            for row in one.rows_of[bound][1:]:
                here, more = counts[place, bucket], vector.values[row]
                sums = np.where(present[place, bucket], here + more, more)
                counts[place, bucket] = np.where(vector.present[row], sums, here)
                present[place, bucket] |= vector.present[row]
    uppers = np.array(ordered)[:, :, np.newaxis]
    if not present.all():
        order = np.argsort(~present, axis=1, kind="stable")
        counts = np.take_along_axis(counts, order, axis=1)
        uppers = np.take_along_axis(uppers, order, axis=1)
    labels = [one.labels for one in histograms]
    return Buckets(labels, uppers, counts, present.sum(axis=1))


def pick(array: Floats, index: Ints) -> Floats:
    """The element of each histogram and step at an index of its own; too low ones are the first."""
    return np.take_along_axis(array, np.maximum(index, 0)[:, np.newaxis], axis=1)[:, 0]


class Repair(msgspec.Struct, frozen=True):
    """Counts that never fall, and which of them were raised for that.

    ``steps``: those of each histogram that had one. The three numbers: the lowest and the highest
    bound that was concerned, and by how much a count was raised at most.
    """

    counts: Floats
    steps: Ints
    lowest: float
    highest: float
    largest: float


def force_monotonic(buckets: Buckets, asked: Bools, dialect: Dialect) -> Repair:
    """Raise counts that are lower than the bucket below has.

    Buckets are not read at the very same moment, and sums are rounded. Prometheus 3 treats counts
    within SMALL_DELTA as equal without a note; Prometheus 2 does not.
    """
    counts = buckets.counts.copy()
    fallen = np.zeros(counts.shape, dtype=np.bool_)
    before = counts[:, 0]
    for place in range(1, counts.shape[1]):
        here, there = counts[:, place], place < buckets.lengths
        if dialect is Dialect.PROMETHEUS_2:
            fallen[:, place] = there & (here < before)
            same = fallen[:, place]
            rises = here > before
        else:
            same = almost_equal(before, here)
            fallen[:, place] = there & ~same & (here < before)
            same |= fallen[:, place]
            rises = ~same
        counts[:, place] = np.where(there & same, before, here)
        before = np.where(there & rises, here, before)
    fallen &= asked[:, np.newaxis]
    if not fallen.any():
        return Repair(counts, np.zeros(0, dtype=np.int64), np.inf, -np.inf, 0.0)
    bounds = np.broadcast_to(buckets.bounds, counts.shape)[fallen]
    raised = (counts - buckets.counts)[fallen]
    steps = np.nonzero(fallen.any(axis=1))[1]
    return Repair(counts, steps, float(bounds.min()), float(bounds.max()), float(raised.max()))


def almost_equal(left: Floats, right: Floats) -> Bools:
    """Whether numbers differ by less than SMALL_DELTA of their sum; two NaN are equal."""
    total = np.abs(left) + np.abs(right)
    apart = np.abs(left - right)
    tiny = (left == 0) | (right == 0) | (total < _SMALLEST_NORMAL)
    most = np.where(tiny, _SMALLEST_NORMAL, np.minimum(total, _LARGEST))
    near: Bools = apart / most < SMALL_DELTA
    equal: Bools = near | (left == right) | (np.isnan(left) & np.isnan(right))
    return equal


def interpolate(quantile: Floats, buckets: Buckets, counts: Floats) -> Floats:
    bounds, last = buckets.bounds, buckets.lengths - 1
    total = pick(counts, last)
    rank = quantile * total
    found = first_not_below(counts, last, rank)
    upper = pick(bounds, found)
    lower = np.where(found > 0, pick(bounds, found - 1), 0.0)
    below = np.where(found > 0, pick(counts, found - 1), 0.0)
    inside = (rank - below) / (pick(counts, found) - below)
    value = lower + (upper - lower) * inside
    value = np.where((found == 0) & (upper <= 0), upper, value)
    value = np.where(found == last, pick(bounds, last - 1), value)
    value = np.where(~buckets.complete | (last < 1) | (total == 0), np.nan, value)
    value = np.where(quantile < 0, -np.inf, np.where(quantile > 1, np.inf, value))
    return np.where(np.isnan(quantile), np.nan, value)


def first_not_below(counts: Floats, end: Ints, rank: Floats) -> Ints:
    """By bisection as in Go's ``sort.Search``: with NaN among the counts the way decides."""
    low, high = np.zeros_like(end), np.maximum(end, 0)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        enough = pick(counts, middle) >= rank
        high = np.where(open_ & enough, middle, high)
        low = np.where(open_ & ~enough, middle + 1, low)
    return low


def rank_of(value: Floats, buckets: Buckets, total: Floats) -> Floats:
    """Interpolated; a lowest bucket whose bound is not positive begins at -Inf and counts whole."""
    rank = np.where(np.isnan(value), np.nan, np.full(total.shape, np.inf))
    open_ = np.ones(total.shape, dtype=np.bool_)
    below = np.zeros(total.shape)
    lower = np.where(buckets.bounds[:, 0] <= 0, -np.inf, 0.0)
    for place in range(buckets.counts.shape[1]):
        there = open_ & (place < buckets.lengths)
        upper, count = buckets.bounds[:, place], buckets.counts[:, place]
        outside = there & (lower >= value)
        inside = there & (lower < value) & (upper > value)
        part = below + (count - below) * (value - lower) / (upper - lower)
        rank = np.where(outside, below, rank)
        rank = np.where(inside, np.where(lower == -np.inf, count, part), rank)
        open_ &= ~(outside | inside)
        lower, below = upper, count
    return np.where(open_ | (rank > total), total, rank)


def parse_bound(text: str) -> float | None:
    """What Go's ``ParseFloat`` reads, save hexadecimal numbers, which no exporter writes there."""
    if _DECIMAL.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else None
    return float(text) if _INFINITE.fullmatch(text) or text.lower() == "nan" else None


def warn_of_bucket(bound: str, labels: Labels, notes: Notes) -> None:
    text = f'bucket label "{BUCKET_LABEL}" is missing or has a malformed value of {quoted(bound)}'
    name = labels.get(METRIC_LABEL)
    notes.warn(f"{text} for metric name {quoted(name)}" if name else text)


def warn_of_quantiles(quantiles: Floats, notes: Notes) -> None:
    for one in np.unique(quantiles[~((quantiles >= 0) & (quantiles <= 1))]).tolist():
        notes.warn(QUANTILE_RANGE.format(general_text(one)))


def inform_of_repairs(repairs: Sequence[Repair], grid: Grid, notes: Notes) -> None:
    """Note where counts fell from one bucket to the next, once for all histograms."""
    steps = np.concatenate([np.zeros(0, dtype=np.int64), *(repair.steps for repair in repairs)])
    if not steps.size:
        return
    first, last = (
        dt.datetime.fromtimestamp((grid.start_ms + grid.step_ms * int(step)) // 1000, dt.UTC)
        for step in (steps.min(), steps.max())
    )
    lowest = general_text(min(repair.lowest for repair in repairs))
    highest = general_text(max(repair.highest for repair in repairs))
    largest = max(repair.largest for repair in repairs)
    difference = f"{largest:.2g}" if math.isfinite(largest) else general_text(largest)
    notes.inform(
        f"{_MONOTONICITY}, from buckets {lowest} to {highest}, with a max diff of {difference}, "
        f"over {steps.size} samples from {first:%Y-%m-%dT%H:%M:%SZ} to {last:%Y-%m-%dT%H:%M:%SZ}"
    )


def quoted(text: str) -> str:
    """The text in double quotes, as Go writes it (control characters apart)."""
    return json.dumps(text, ensure_ascii=False)


def bound_text(value: float) -> str:
    """A number as OpenMetrics wants it in a label: never without a point or an exponent."""
    text = general_text(value)
    return text if not math.isfinite(value) or "e" in text or "." in text else f"{text}.0"
