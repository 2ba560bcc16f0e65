"""Stretches of time, in sets: sorted, apart from each other, and never too many to hold. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]
"""Start and end in nanoseconds; the end is not part of it."""

INTERVALS_MAX = 32_768
"""Stretches that one set holds, and as many again before they are put in order: 8 MB. Over it the
set grows coarser (`resolution_ns`)."""
COARSER_NS = 1000
"""The first gap that is given up: less than the time to launch a kernel."""


class Intervals:
    """The union of stretches that come in any order.

    Exact while there are at most INTERVALS_MAX gaps in it. With more, the smallest gaps are taken
    as covered: gaps below ``resolution_ns``, which doubles until half of them fit.
    """

    def __init__(self) -> None:
        self.resolution_ns = 0
        self._merged: list[Interval] = []
        self._new: list[Interval] = []

    def add(self, start: int, end: int) -> None:
        self._new.append((start, end))
        if len(self._new) >= INTERVALS_MAX:
            self._merge()

    def all(self) -> list[Interval]:
        """Every stretch, in order; between two of them is a gap."""
        if self._new:
            self._merge()
        return self._merged

    def _merge(self) -> None:
        merged = merge([*self._merged, *self._new], self.resolution_ns)
        self._new = []
        if len(merged) > INTERVALS_MAX:
            merged, self.resolution_ns = coarsen(merged, INTERVALS_MAX // 2, self.resolution_ns)
        self._merged = merged


def merge(intervals: Iterable[Interval], gap: int = 0) -> list[Interval]:
    """The union, in order; gaps of at most ``gap`` are taken as covered.

    >>> merge([(5, 9), (0, 2), (8, 12), (14, 15)], gap=2)
    [(0, 2), (5, 15)]
    """
    merged: list[Interval] = []
    last_start = last_end = None
    for start, end in sorted(intervals):
        if last_start is None or last_end is None:
            last_start, last_end = start, end
        elif start <= last_end + gap:
            last_end = max(last_end, end)
        else:
            merged.append((last_start, last_end))
            last_start, last_end = start, end
    if last_start is not None and last_end is not None:
        merged.append((last_start, last_end))
    return merged


def coarsen(intervals: Sequence[Interval], count_max: int, gap: int) -> tuple[list[Interval], int]:
    """At most ``count_max`` stretches that cover all of these, and the gap that was closed for it.

    ``gap`` is tried first, then COARSER_NS or twice the gap, and so on.

    >>> coarsen([(0, 1000), (3000, 4000), (20000, 21000)], 2, 0)
    ([(0, 4000), (20000, 21000)], 2000)
    """
    merged = merge(intervals, gap)
    while len(merged) > count_max:
        gap = max(COARSER_NS, gap * 2)
        merged = merge(merged, gap)
    return merged, gap


def clip(intervals: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What of these lies between start and end; they are in order and apart.

    >>> clip([(0, 4), (6, 9)], 2, 7)
    [(2, 4), (6, 7)]
    """
    first = max(0, bisect_left(intervals, (start, start)) - 1)
    last = bisect_left(intervals, (end, end))
    return [
        (max(each_start, start), min(each_end, end))
        for each_start, each_end in intervals[first:last]
        if each_end > start
    ]


def gaps(intervals: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What between start and end none of these covers; they are in order and apart.

    >>> gaps([(0, 4), (6, 9)], 2, 12)
    [(4, 6), (9, 12)]
    """
    found = []
    at = start
    for each_start, each_end in clip(intervals, start, end):
        if each_start > at:
            found.append((at, each_start))
        at = each_end
    if at < end:
        found.append((at, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def overlap(one: Sequence[Interval], other: Sequence[Interval]) -> int:
    """How much time both cover.

    >>> overlap([(0, 4), (6, 9)], [(2, 7)])
    3
    """
    return length(one) + length(other) - length(merge([*one, *other]))
