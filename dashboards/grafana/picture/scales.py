"""Axes: where their marks stand, and what they say."""

from __future__ import annotations

import datetime as dt
import math
from typing import NamedTuple

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Of a decade: what people count in."""
TIME_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
BINARY_UNITS = {"bytes"}
SECONDS_BELOW_S = 300.0
"""Ranges that are shorter say seconds."""
DAYS_ABOVE_S = 2 * 86_400.0
"""Ranges that are longer say days."""
TICKS_MAX = 50
"""Marks on one axis; a picture has room for ten."""


class Axis(NamedTuple):
    """Values from ``low`` to ``high`` over pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; values beyond the ends stand at the ends."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def nice_step(span: float, count: int, *, is_binary: bool = False) -> float:
    """A round distance that gives about ``count`` marks.

    >>> nice_step(0.93, 4), nice_step(100, 4)
    (0.25, 25.0)
    """
    rough = span / max(1, count)
    if not math.isfinite(rough) or rough <= 0:
        return 1.0
    if is_binary and rough > 1:
        return float(2 ** math.ceil(math.log2(rough)))
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(decade * step for step in STEPS if decade * step >= rough * (1 - 1e-9))


def ticks(low: float, high: float, count: int, unit: str = "") -> list[float]:
    """Round values within the ends."""
    step = nice_step(high - low, count, is_binary=unit in BINARY_UNITS)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, min(last, first + TICKS_MAX) + 1)]


def ends(values: list[float], least: float | None, most: float | None) -> tuple[float, float]:
    """The ends of an axis: as set, or around the values with some room above."""
    low = min(values, default=0.0) if least is None else least
    high = max(values, default=1.0) if most is None else most
    if most is None:
        high += 0.06 * (high - low)
    if least is None:
        low -= 0.06 * (high - low)
    if high <= low:
        high = low + (abs(low) or 1.0)
    return low, high


def time_ticks(start_s: float, end_s: float, count: int) -> list[float]:
    """Round moments within a range."""
    rough = (end_s - start_s) / max(1, count)
    step = next((one for one in TIME_STEPS_S if one >= rough), TIME_STEPS_S[-1])
    first = math.ceil(start_s / step)
    last = min(math.floor(end_s / step), first + TICKS_MAX)
    return [float(number * step) for number in range(first, last + 1)]


def clock(time_s: float, span_s: float) -> str:
    """What a mark on a time axis says (UTC)."""
    at = dt.datetime.fromtimestamp(time_s, tz=dt.UTC)
    if span_s > DAYS_ABOVE_S:
        return at.strftime("%m-%d")
    return at.strftime("%H:%M:%S" if span_s < SECONDS_BELOW_S else "%H:%M")
