"""Does it grow? The end of a soak compared with its middle, figure by figure."""

from __future__ import annotations

import statistics

import msgspec

from tests.bench.report import Table
from tests.soak.figures import Moment, names_of, shown, values_of

GROWTH_MAX = 0.05
"""More than so much between the middle and the end of a run is growth; the run fails."""
WINDOW_SHARE = 1 / 12
"""The figures of the middle are medians of so much of the run before it, those of the end of so
much before that: ten minutes of two hours, which hold several rounds of everything."""

SLACK = {
    "rss_bytes": 0.0,
    "anonymous_bytes": 0.0,
    "descriptors": 16.0,
    "threads": 8.0,
    "parts": 30.0,
    "parts_inactive": 60.0,
}
"""The figures that must be flat, and by how much small ones may differ whatever their share: eight
readers open files when they read, and merges come in waves. All other figures are shown only:
the share of pages that other processes map too (PSS) changes when those end, and rows and bytes on
disk grow by nature until retention removes the first day."""


class Growth(msgspec.Struct, frozen=True):
    """One figure at the middle and at the end of a run."""

    name: str
    middle: float
    end: float

    @property
    def share(self) -> float:
        """Relative to the middle; 0 if there was and is nothing."""
        if self.middle == 0:
            return 0.0 if self.end == 0 else float("inf")
        return self.end / self.middle - 1

    @property
    def is_judged(self) -> bool:
        return self.name in SLACK

    @property
    def is_too_much(self) -> bool:
        grown = self.end - self.middle
        return self.is_judged and self.share > GROWTH_MAX and grown > SLACK[self.name]

    @property
    def verdict(self) -> str:
        if not self.is_judged:
            return ""
        return "grows" if self.is_too_much else "flat"


def growths(moments: list[Moment]) -> list[Growth]:
    """Of every figure that both windows have."""
    end_s = moments[-1].seconds
    window_s = end_s * WINDOW_SHARE
    found = []
    for name in names_of(moments):
        values = values_of(moments, name)
        middle = [value for at, value in values if end_s / 2 - window_s <= at <= end_s / 2]
        end = [value for at, value in values if at >= end_s - window_s]
        if middle and end:
            found.append(Growth(name, statistics.median(middle), statistics.median(end)))
    # What is judged first, in the order in which it is listed.
    order = {name: place for place, name in enumerate(SLACK)}
    return sorted(found, key=lambda one: order.get(one.name, len(order)))


def table_of(found: list[Growth], seconds: float) -> Table:
    rows = [
        [
            one.name,
            shown(one.name, one.middle),
            shown(one.name, one.end),
            f"{one.share:+.1%}".replace("%", " %"),
            one.verdict,
        ]
        for one in found
    ]
    return Table(
        title=f"A soak of {seconds / 3600:.2f} h; growth of more than {GROWTH_MAX:.0%} fails",
        columns=["figure", "middle", "end", "growth", ""],
        rows=rows,
    )
