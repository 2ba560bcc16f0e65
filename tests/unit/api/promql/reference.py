"""Prometheus' functions on ranges, one window at a time in plain Python: slow, and easy to check.

Written from the definitions, to compare with. Each function gives a number, or None for no
result.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import msgspec

from api.promql.values import Dialect


class Window(msgspec.Struct, frozen=True):
    """The samples (milliseconds, value) of a window and all that a function may want to know."""

    samples: list[tuple[int, float]]
    start_ms: int
    end_ms: int
    at_ms: int
    parameters: list[float]
    dialect: Dialect

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.samples]


def divide(a: float, b: float) -> float:
    """Division that knows infinities, as everywhere but in Python."""
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)


def add(addend: float, total: float, lost: float) -> tuple[float, float]:
    """One step of Neumaier's sum."""
    added = total + addend
    if math.isinf(added):
        return added, 0.0
    if abs(total) >= abs(addend):
        return added, lost + ((total - added) + addend)
    return added, lost + ((addend - added) + total)


def kahan(numbers: list[float]) -> float:
    total = lost = 0.0
    for number in numbers:
        total, lost = add(number, total, lost)
    return total + lost


def extrapolated(w: Window, *, counter: bool, per_second: bool) -> float | None:
    if len(w.samples) < 2:
        return None
    (first_ms, first), (last_ms, last) = w.samples[0], w.samples[-1]
    result = last - first
    if counter:
        for before, now in pairwise(w.values):
            if now < before:
                result += before
    to_start, to_end = (first_ms - w.start_ms) / 1000, (w.end_ms - last_ms) / 1000
    sampled = (last_ms - first_ms) / 1000
    interval = sampled / (len(w.samples) - 1)
    to_zero = math.inf
    if counter and result > 0 and first >= 0:
        to_zero = sampled * (first / result)
    if w.dialect is Dialect.PROMETHEUS_2 and to_zero < to_start:
        to_start = to_zero
    if to_start >= interval * 1.1:
        to_start = interval / 2
    if w.dialect is Dialect.PROMETHEUS_3 and to_zero < to_start:
        to_start = to_zero
    if to_end >= interval * 1.1:
        to_end = interval / 2
    factor = (sampled + to_start + to_end) / sampled
    if per_second:
        factor /= (w.end_ms - w.start_ms) / 1000
    return result * factor


def last_two(w: Window, *, counter: bool) -> float | None:
    if len(w.samples) < 2:
        return None
    (then_ms, before), (now_ms, now) = w.samples[-2:]
    if not counter:
        return now - before
    return (now if now < before else now - before) / ((now_ms - then_ms) / 1000)


def line(w: Window, origin_ms: int) -> tuple[float, float]:
    if all(value == w.values[0] for value in w.values):
        return (math.nan, math.nan) if math.isinf(w.values[0]) else (0.0, w.values[0])
    seconds = [(t - origin_ms) / 1000 for t, _ in w.samples]
    count = len(seconds)
    sum_x, sum_y = kahan(seconds), kahan(w.values)
    covariance = (
        kahan([x * y for x, y in zip(seconds, w.values, strict=True)]) - sum_x * sum_y / count
    )
    variance = kahan([x * x for x in seconds]) - sum_x * sum_x / count
    slope = divide(covariance, variance)
    return slope, sum_y / count - slope * sum_x / count


def deriv(w: Window) -> float | None:
    return line(w, w.samples[0][0])[0] if len(w.samples) > 1 else None


def predict_linear(w: Window) -> float | None:
    if len(w.samples) < 2:
        return None
    slope, intercept = line(w, w.at_ms)
    return slope * w.parameters[0] + intercept


def mean(w: Window) -> float | None:
    if not w.samples:
        return None
    total, lost, by_sum = w.values[0], 0.0, True
    for count, value in enumerate(w.values[1:], start=2):
        if by_sum:
            added, added_lost = add(value, total, lost)
            if not math.isinf(added):
                total, lost = added, added_lost
                continue
            by_sum = False
            total, lost = total / (count - 1), lost / (count - 1)
        share = (count - 1) / count
        total, lost = add(value / count, share * total, share * lost)
    count = len(w.values)
    return total / count + lost / count if by_sum else total + lost


def variance(w: Window) -> float | None:
    if not w.samples:
        return None
    centre = centre_lost = squares = squares_lost = 0.0
    for count, value in enumerate(w.values, start=1):
        off = value - (centre + centre_lost)
        centre, centre_lost = add(off / count, centre, centre_lost)
        squares, squares_lost = add(off * (value - (centre + centre_lost)), squares, squares_lost)
    return (squares + squares_lost) / len(w.values)


def deviation(w: Window) -> float | None:
    found = variance(w)
    if found is None:
        return None
    return math.sqrt(found) if found >= 0 else math.nan


def quantile(share: float, values: list[float]) -> float:
    if math.isnan(share):
        return math.nan
    if not 0 <= share <= 1:
        return math.copysign(math.inf, share)
    ordered = [v for v in values if math.isnan(v)] + sorted(v for v in values if not math.isnan(v))
    rank = share * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(len(ordered) - 1, lower + 1)
    weight = rank - lower
    return ordered[lower] * (1 - weight) + ordered[upper] * weight


def mad(w: Window) -> float | None:
    if not w.samples:
        return None
    middle = quantile(0.5, w.values)
    return quantile(0.5, [abs(value - middle) for value in w.values])


def smoothing(w: Window) -> float | None:
    if len(w.samples) < 2:
        return None
    smooth, follow = w.parameters
    before, level, slope = 0.0, w.values[0], w.values[1] - w.values[0]
    for place, value in enumerate(w.values[1:]):
        if place:
            slope = follow * (level - before) + (1 - follow) * slope
        before, level = level, smooth * value + (1 - smooth) * (level + slope)
    return level


def extreme(w: Window, better: Callable[[float, float], bool]) -> tuple[int, float] | None:
    """The sample that is better than all before it; anything is better than NaN."""
    if not w.samples:
        return None
    best = w.samples[0]
    for sample in w.samples:
        if better(sample[1], best[1]) or math.isnan(best[1]):
            best = sample
    return best


def value_of(sample: tuple[int, float] | None) -> float | None:
    return sample[1] if sample else None


def seconds_of(sample: tuple[int, float] | None) -> float | None:
    return sample[0] / 1000 if sample else None


def changes(w: Window) -> float | None:
    if not w.samples:
        return None
    return sum(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairwise(w.values))


REFERENCE: dict[str, Callable[[Window], float | None]] = {
    "avg_over_time": mean,
    "changes": changes,
    "count_over_time": lambda w: len(w.samples) or None,
    "delta": lambda w: extrapolated(w, counter=False, per_second=False),
    "deriv": deriv,
    "double_exponential_smoothing": smoothing,
    "first_over_time": lambda w: w.values[0] if w.samples else None,
    "idelta": lambda w: last_two(w, counter=False),
    "increase": lambda w: extrapolated(w, counter=True, per_second=False),
    "irate": lambda w: last_two(w, counter=True),
    "last_over_time": lambda w: w.values[-1] if w.samples else None,
    "mad_over_time": mad,
    "max_over_time": lambda w: value_of(extreme(w, lambda a, b: a > b)),
    "min_over_time": lambda w: value_of(extreme(w, lambda a, b: a < b)),
    "predict_linear": predict_linear,
    "present_over_time": lambda w: 1.0 if w.samples else None,
    "quantile_over_time": lambda w: quantile(w.parameters[0], w.values) if w.samples else None,
    "rate": lambda w: extrapolated(w, counter=True, per_second=True),
    "resets": lambda w: sum(b < a for a, b in pairwise(w.values)) if w.samples else None,
    "stddev_over_time": deviation,
    "stdvar_over_time": variance,
    "sum_over_time": lambda w: kahan(w.values) if w.samples else None,
    "ts_of_first_over_time": lambda w: seconds_of(w.samples[0] if w.samples else None),
    "ts_of_last_over_time": lambda w: seconds_of(w.samples[-1] if w.samples else None),
    "ts_of_max_over_time": lambda w: seconds_of(extreme(w, lambda a, b: a >= b)),
    "ts_of_min_over_time": lambda w: seconds_of(extreme(w, lambda a, b: a <= b)),
}
