"""Plots as SVG text: axes, areas, dots, lines, heat maps. No scripts, no fonts, no network.

Colours are CSS classes, so that the page's light and dark style apply. Whatever comes from outside
is escaped here; numbers are written with few figures, since a page has many of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

import msgspec
import numpy as np

from alerts.columns import Floats, Ints
from api.diagnose import units
from collector.contract.identity import printable

WIDTH = 1240
"""In units of the drawing; the page scales it to the window."""
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 10, 30
TICKS = 6
POINTS_MAX = 6_000
"""Dots of a plot: more make a page of many megabytes, and dots that cover each other."""


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
    is_log: bool = False

    def at(self, value: float) -> float:
        """Where a number stands."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log10(max(each, 1e-9)) for each in (value, low, high))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the scale."""
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            powers = [10.0**power for power in range(first, last + 1)]
            return [power for power in powers if self.low <= power <= self.high]
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


class Plot:
    """A drawing over seconds from the start of the job, or over steps."""

    def __init__(
        self,
        across: tuple[float, float],
        top: float,
        *,
        height: int = 240,
        low: float = 0.0,
        is_log: bool = False,
        unit: str = "",
        across_unit: str = "s",
        left: int = LEFT,
    ) -> None:
        self.height = height
        self._unit = unit
        self._across_unit = across_unit
        self.left = left
        self.x = Scale(across[0], max(across[1], across[0] + 1e-6), left, WIDTH - RIGHT)
        self.y = Scale(low, max(top, low + 1e-9), height - BOTTOM, TOP, is_log)
        self._parts: list[str] = []

    def add(self, part: str) -> None:
        """Put a piece of SVG on top."""
        self._parts.append(part)

    def axes(self, *, has_lower: bool = True) -> None:
        """Lines and numbers of both axes; drawn first, below everything."""
        for tick in self.y.ticks():
            y = self.y.at(tick)
            self.add(f'<line class="grid" x1="{self.left}" x2="{WIDTH - RIGHT}" {at(y1=y, y2=y)}/>')
            label = f"{tick:,.10g}{' ' + self._unit if self._unit else ''}"
            self.add(f'<text class="tick" x="{self.left - 8}" {at(y=y + 4)} '
                     f'text-anchor="end">{safe(label)}</text>')  # fmt: skip
        if has_lower:
            self.lower_axis()

    def lower_axis(self) -> None:
        """The numbers below the plot."""
        base = self.height - BOTTOM
        for tick in self.x.ticks():
            x = self.x.at(tick)
            self.add(f'<line class="grid" {at(x1=x, x2=x)} y1="{base}" y2="{base + 4}"/>')
            self.add(f'<text class="tick" {at(x=x)} y="{base + 18}" text-anchor="middle">'
                     f"{tick:,.10g} {self._across_unit}</text>")  # fmt: skip

    def svg(self, label: str) -> str:
        """The whole drawing."""
        body = "".join(self._parts)
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" '
            f'aria-label="{safe(label)}">{body}</svg>'
        )


def at(**places: float) -> str:
    """Attributes with one decimal.

    >>> at(x=1.25, y=3.0)
    'x="1.2" y="3"'
    """
    return " ".join(f'{name}="{short(value)}"' for name, value in places.items())


def short(number: float) -> str:
    """A place in the drawing, to a tenth of its unit."""
    return f"{number:.1f}".removesuffix(".0")


def titled(shape: str, title: str) -> str:
    """A shape that tells more when the pointer rests on it; ``shape`` ends with `/>`."""
    name = shape[1 : shape.index(" ")]
    return f"{shape.removesuffix('/>')}><title>{safe(title)}</title></{name}>"


def stacked_bars(
    plot: Plot,
    spans: Sequence[tuple[float, float]],
    layers: Sequence[tuple[str, Sequence[float]]],
    titles: Sequence[str],
) -> None:
    """Bars from start to end, made of one piece for each layer (class and heights)."""
    base = [0.0] * len(spans)
    for kind, heights in layers:
        for place, ((start, end), height) in enumerate(zip(spans, heights, strict=True)):
            if height <= 0:
                continue
            x1, x2 = plot.x.at(start), plot.x.at(end)
            low, high = plot.y.at(base[place]), plot.y.at(base[place] + height)
            width = max(0.6, x2 - x1 - (0.5 if x2 - x1 > 3 else 0))  # noqa: PLR2004 - a hairline
            rest = at(x=x1, y=high, width=width, height=max(0.0, low - high))
            plot.add(titled(f'<rect class="{kind}" {rest}/>', titles[place]))
            base[place] += height


def dots(
    plot: Plot, kind: str, points: Sequence[tuple[float, float]], titles: Sequence[str]
) -> None:
    """A dot for each point."""
    for (x, y), title in zip(points, titles, strict=True):
        shape = f'<circle class="{kind}" {at(cx=plot.x.at(x), cy=plot.y.at(y))} r="2.6"/>'
        plot.add(titled(shape, title))


def line(plot: Plot, kind: str, x: Floats, y: Floats, title: str) -> None:
    """A line that is broken where there is no number."""
    moves: list[str] = []
    is_down = False
    for seconds, value in zip(x.tolist(), y.tolist(), strict=True):
        if not math.isfinite(value):
            is_down = False
            continue
        order = "L" if is_down else "M"
        moves.append(f"{order}{short(plot.x.at(seconds))} {short(plot.y.at(value))}")
        is_down = True
    plot.add(titled(f'<path class="{kind}" d="{" ".join(moves)}"/>', title))


def heat_map(
    plot: Plot,
    edges: Sequence[float],
    rows: Sequence[str],
    cells: Floats,
    titles: Sequence[str],
    *,
    top: float,
) -> None:
    """Columns between the edges, a row for each name; the fuller the colour the higher, in ns."""
    height = (plot.height - BOTTOM - TOP) / max(1, len(rows))
    for row, name in enumerate(rows):
        y = TOP + row * height
        plot.add(f'<text class="tick" x="{plot.left - 8}" {at(y=y + height / 2 + 4)} '
                 f'text-anchor="end">{safe(name[:24])}</text>')  # fmt: skip
        for column in range(len(edges) - 1):
            value = float(cells[row, column])
            if not math.isfinite(value):
                continue
            x1, x2 = plot.x.at(edges[column]), plot.x.at(edges[column + 1])
            share = min(1.0, max(0.0, value / top)) if top > 0 else 0.0
            place = at(x=x1, y=y, width=max(0.6, x2 - x1), height=max(1.0, height - 1))
            shape = f'<rect class="heat" {place} fill-opacity="{share**0.7:.2f}"/>'
            plot.add(titled(shape, f"{name}, {titles[column]}: {units.duration(value)} late"))


def thinned(values: Floats | Ints, keep: int) -> Ints:
    """The places of so many values at most: every nth, and the highest of those between."""
    if len(values) <= keep:
        return np.arange(len(values), dtype=np.int64)
    edges = np.linspace(0, len(values), keep + 1).astype(int)
    return np.array(
        [a + int(np.argmax(values[a:b])) for a, b in pairwise(edges.tolist())],
        dtype=np.int64,
    )
