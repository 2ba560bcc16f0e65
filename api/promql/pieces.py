"""Lays out the samples of range functions: many windows at once, in pieces of bounded size.

Windows of about the same length are laid side by side, one row a window. What stands behind the end
of a shorter one is padding. Prefix sums over all samples would be faster still, and wrong: they
lose digits, and one infinity spoils every window after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from api.promql.values import Bools, Dialect, Floats, Ints, Windows

PIECE_CELLS = 1 << 17
"""About as many samples are laid out at once: 1 MB, so that a piece stays in the processor's cache.

A single window may be longer: then it is a piece of its own.
"""


BLOCK_WINDOWS = 1 << 16
"""About as many windows are computed at once: 512 kB an array."""


class RangeCall(msgspec.Struct, frozen=True):
    """The arguments of a function on a range vector.

    ``at_ms`` is when each step is evaluated. It is not the end of the window under an offset or
    `@`, and `predict_linear` counts from it. ``parameters`` are the scalars among the arguments, in
    order, each an array over the steps.
    """

    windows: Windows
    at_ms: Ints
    parameters: Sequence[Floats] = ()
    dialect: Dialect = Dialect.PROMETHEUS_3


RangeResult = tuple[Floats, Bools]
"""Values and presence, each of the shape (series, steps)."""

RangeFunction = Callable[[RangeCall], RangeResult]


class Filled(msgspec.Struct, frozen=True):
    """The windows with enough samples in them, one after the other."""

    present: Bools
    chosen: Ints
    """The same as places in that, row by row."""
    steps: Ints
    first: Ints
    counts: Ints

    @property
    def newest(self) -> Ints:
        """Where the last sample of each window stands."""
        return self.first + (self.counts - 1)

    def spread(self, results: Floats) -> RangeResult:
        """One result a window, put back into the places of these windows."""
        values = np.zeros(self.present.shape)
        values.ravel()[self.chosen] = results
        return values, self.present


def filled(windows: Windows, minimum: int = 1) -> Filled:
    counts = windows.last - windows.first
    present = counts >= minimum
    chosen = np.flatnonzero(present)
    steps = chosen % present.shape[1]
    return Filled(present, chosen, steps, windows.first.ravel()[chosen], counts.ravel()[chosen])


def in_blocks(call: RangeCall, compute: RangeFunction) -> RangeResult:
    """For some series at a time: what it makes stays in the processor's cache, twice as fast."""
    windows = call.windows
    series, steps = windows.first.shape
    rows = max(1, BLOCK_WINDOWS // max(1, steps))
    values, present = np.zeros((series, steps)), np.zeros((series, steps), dtype=np.bool_)
    for start in range(0, series, rows):
        some = slice(start, start + rows)
        block = msgspec.structs.replace(
            windows,
            labels=windows.labels[some],
            # Both may be parts of a wider matrix; what follows is faster if they are not.
            first=np.ascontiguousarray(windows.first[some]),
            last=np.ascontiguousarray(windows.last[some]),
        )
        values[some], present[some] = compute(msgspec.structs.replace(call, windows=block))
    return values, present


class Piece(msgspec.Struct, frozen=True):
    """Some windows, the longest first."""

    chosen: Ints
    """Their places in the list of windows."""
    first: Ints
    counts: Ints

    @property
    def width(self) -> int:
        return int(self.counts[0])

    def lay_out(self, samples: npt.NDArray[np.generic], padding: float) -> Floats:
        """The samples as floats, one row a window."""
        index = self.first[:, np.newaxis] + np.arange(self.width)
        rows: Floats = samples.take(index, mode="clip").astype(np.float64, copy=False)
        self.pad(rows, padding)
        return rows

    def pad(self, rows: npt.NDArray[Any], padding: float) -> None:
        """Overwrite what stands behind the ends of the shorter windows."""
        if self.counts[-1] < self.width:
            rows[np.arange(self.width) >= self.counts[:, np.newaxis]] = padding

    def columns(self, rows: Floats) -> Iterator[tuple[int, Floats]]:
        """Each place with its samples, of the windows that are long enough: the first ones."""
        reaching = np.searchsorted(-self.counts, -np.arange(self.width)).tolist()
        for place, windows in enumerate(reaching):
            yield place, rows[:windows, place]


def pieces(first: Ints, counts: Ints) -> Iterator[Piece]:
    """All windows, given by their first sample and their length (at least 1), in bounded pieces."""
    if not len(counts):
        return
    # In a narrow type, numpy sorts by counting.
    shorter_by = (counts.max() - counts).astype(np.min_scalar_type(int(counts.max())))
    order = np.argsort(shorter_by, kind="stable")
    start = 0
    while start < len(order):
        width = int(counts[order[start]])
        chosen = order[start : start + max(1, PIECE_CELLS // width)]
        yield Piece(chosen, first[chosen], counts[chosen])
        start += len(chosen)


def by_pieces(windows: Filled, compute: Callable[[Piece], Floats]) -> RangeResult:
    """``compute`` of each window that ``windows`` holds; absent elsewhere."""
    results = np.zeros(len(windows.first))
    with np.errstate(all="ignore"):
        for piece in pieces(windows.first, windows.counts):
            results[piece.chosen] = compute(piece)
    return windows.spread(results)


def add_compensated(addend: Floats, total: Floats, lost: Floats) -> tuple[Floats, Floats]:
    """One step of a sum that keeps what rounding took away (Neumaier): the total, and what it lost.

    The final sum is their sum. Once the total is infinite nothing counts as lost any more.
    """
    added = total + addend
    return added, np.where(np.isinf(added), 0.0, lost + rounding_error(total, addend, added))


def rounding_error(left: Floats, right: Floats, added: Floats) -> Floats:
    """``left + right - added``, exactly: Knuth's way, without a comparison of the two."""
    right_seen = added - left
    return (left - (added - right_seen)) + (right - right_seen)


def running_sums(rows: Floats) -> tuple[Floats, Floats]:
    """Left to right, and what rounding took; whole columns at once where rows are more."""
    if rows.shape[0] > rows.shape[1]:
        total, lost = rows[:, 0], np.zeros(len(rows))
        for column in rows.T[1:]:
            added = total + column
            lost += rounding_error(total, column, added)
            total = added
        return total, lost
    totals = np.add.accumulate(rows, axis=1)
    errors = np.zeros(rows.shape)
    errors[:, 1:] = rounding_error(totals[:, :-1], rows[:, 1:], totals[:, 1:])
    return totals[:, -1], np.add.accumulate(errors, axis=1)[:, -1]


def compensated_sums(rows: Floats) -> Floats:
    """The sum of each row as Prometheus makes it; the padding of the rows must be zero."""
    totals, lost = running_sums(rows)
    return np.where(np.isinf(totals), totals, totals + lost)
