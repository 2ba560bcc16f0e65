"""From OTLP data points to samples: sums, gauges, histograms and summaries; delta and cumulative.

A *part* is what becomes one series: a suffix for the name, labels beside the point's own, a value.
A gauge is one part, a histogram one for each bucket and two more.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from api.base.limits import OTLP_BUCKETS_MAX, OTLP_DELTAS_MAX

(STALE,) = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))
"""Prometheus' marker of a series that has ended: one certain NaN."""
NO_RECORDED_VALUE: Final = 1
"""Flag of a point: there is no value any more."""


class Part(NamedTuple):
    """One series' share of a point."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


NO_LABELS: Final[tuple[tuple[str, str], ...]] = ()


def number_parts(point: Any) -> list[Part]:  # noqa: ANN401 - a NumberDataPoint
    is_whole = point.WhichOneof("value") == "as_int"
    return [Part("", NO_LABELS, float(point.as_int) if is_whole else point.as_double)]


def histogram_parts(point: Any) -> list[Part]:  # noqa: ANN401 - a HistogramDataPoint
    """Prometheus' classic form: buckets that hold all below their bound, the sum, the count."""
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if len(counts) > OTLP_BUCKETS_MAX or (counts and len(counts) != len(bounds) + 1):
        raise ValueError(f"{len(counts)} buckets for {len(bounds)} bounds")
    if not all(math.isfinite(bound) for bound in bounds):
        raise ValueError("a bound that is no number; the last bucket's is left out")
    if any(later <= earlier for earlier, later in pairwise(bounds)):
        raise ValueError("bounds that do not rise")
    return [*bucket_parts(bounds, counts), *total_parts(point)]


def exponential_parts(point: Any) -> list[Part]:  # noqa: ANN401 - an ExponentialHistogramDataPoint
    """The same; its buckets are joined to powers of two.

    The store holds no native histograms. Powers of two are the one grid into which every scale of
    an exponential histogram fits exactly, so that the bounds stay the same when a sender changes
    its scale, which it does whenever its range grows.
    """
    below: dict[float, int] = {}
    for bound, count in power_buckets(point.negative, point.scale):
        # (-2^(k+1), -2^k] is counted under its upper bound.
        below[-bound / 2] = below.get(-bound / 2, 0) + count
    if point.zero_count:
        below[point.zero_threshold] = below.get(point.zero_threshold, 0) + point.zero_count
    for bound, count in power_buckets(point.positive, point.scale):
        below[bound] = below.get(bound, 0) + count
    if len(below) > OTLP_BUCKETS_MAX:
        raise ValueError(f"{len(below)} powers of two; OTLP_BUCKETS_MAX is {OTLP_BUCKETS_MAX}")
    bounds = sorted(below)
    return [*bucket_parts(bounds, [*(below[bound] for bound in bounds), 0]), *total_parts(point)]


def power_buckets(buckets: Any, scale: int) -> Iterator[tuple[float, int]]:  # noqa: ANN401
    """The counts of each power of two: its upper bound, and how many lie below it and above half.

    Bucket i of scale s holds (base^i, base^(i+1)] with base = 2^(2^-s).
    """
    if len(buckets.bucket_counts) > OTLP_BUCKETS_MAX:
        raise ValueError(f"{len(buckets.bucket_counts)} buckets")
    for place, count in enumerate(buckets.bucket_counts):
        if count:
            index = buckets.offset + place
            exponent = (index >> scale) + 1 if scale >= 0 else (index + 1) << min(-scale, 32)
            yield math.ldexp(1.0, max(-1070, min(exponent, 1023))), count


def summary_parts(point: Any) -> list[Part]:  # noqa: ANN401 - a SummaryDataPoint
    if len(point.quantile_values) > OTLP_BUCKETS_MAX:
        raise ValueError(f"{len(point.quantile_values)} quantiles")
    quantiles = [
        Part("", (("quantile", number_text(each.quantile)),), each.value)
        for each in point.quantile_values
    ]
    return [
        *quantiles,
        Part("_sum", NO_LABELS, point.sum),
        Part("_count", NO_LABELS, float(point.count)),
    ]


def bucket_parts(bounds: list[float], counts: list[int]) -> Iterator[Part]:
    """Buckets, each with all that is below it; the last one's bound is `+Inf` by `total_parts`."""
    for bound, below in zip(bounds, accumulate(counts), strict=False):
        yield Part("_bucket", (("le", number_text(bound)),), float(below))


def total_parts(point: Any) -> Iterator[Part]:  # noqa: ANN401 - any histogram's point
    yield Part("_bucket", (("le", "+Inf"),), float(point.count))
    yield Part("_count", NO_LABELS, float(point.count))
    if point.HasField("sum"):
        yield Part("_sum", NO_LABELS, point.sum)


def number_text(number: float) -> str:
    """A bound as Prometheus' receiver writes it: the shortest digits, no exponent.

    >>> number_text(5.0), number_text(0.25), number_text(1e-7)
    ('5', '0.25', '0.0000001')
    """
    return format(Decimal(repr(number)), "f").removesuffix(".0")


class Deltas:
    """Sums of deltas by series: senders report increments, the store keeps totals.

    The totals live in this process: after a restart they begin at zero, which PromQL takes for a
    counter reset. A balancer over several processes must route each sender to the same one.
    """

    def __init__(self) -> None:
        self._totals: OrderedDict[int, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._totals)

    def last_ns(self, series: int) -> int:
        """The time of the last point that was added to this series; 0 if there was none."""
        return self._totals.get(series, (0.0, 0))[1]

    def add(self, series: int, time_ns: int, value: float) -> float:
        """The series' total with this added; the series that was quiet longest is forgotten."""
        total, _ = self._totals.get(series, (0.0, 0))
        total += value
        self._totals[series] = total, time_ns
        self._totals.move_to_end(series)
        if len(self._totals) > OTLP_DELTAS_MAX:
            self._totals.popitem(last=False)
        return total

    def forget(self, series: list[int]) -> None:
        """Reset these totals: the last increment could not be stored, and will be sent again."""
        for each in series:
            self._totals.pop(each, None)
