"""Pieces of drawings as SVG text: a scale with round ticks, places, and text from outside."""

from __future__ import annotations

import math
from html import escape

import msgspec

from collector.contract.identity import printable

TICKS = 6


def safe(text: str) -> str:
    """Text from outside, as it may stand in a page.

    >>> safe('<b> "a"')
    '&lt;b&gt; &quot;a&quot;'
    """
    return escape(printable(text))


class Scale(msgspec.Struct, frozen=True):
    """From numbers to places along an axis."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a number stands."""
        wide = self.high - self.low
        share = (value - self.low) / wide if wide > 0 else 0.5
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the scale."""
        step = round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


def round_step(step: float) -> float:
    """The next 1, 2 or 5 times a power of ten.

    >>> round_step(0.7), round_step(13)
    (1.0, 20.0)
    """
    if not step > 0 or not math.isfinite(step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)


def at(**places: float) -> str:
    """Attributes with one decimal.

    >>> at(x=1.25, y=3.0)
    'x="1.2" y="3"'
    """
    return " ".join(f'{name}="{short(value)}"' for name, value in places.items())


def short(number: float) -> str:
    """A place in the drawing, to a tenth of its unit."""
    return f"{number:.1f}".removesuffix(".0")
