"""A lasting rise in a noisy line: told from a step, from noise and from what all peers do.

Lines are rows of a matrix, one value a cell, NaN where nothing was read.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alerts.window.columns import Flags, Floats

WINDOWS = ((8, 1.5), (12, 1.0), (18, 1.0), (24, 1.0), (36, 1.0), (48, 1.0), (72, 1.0))
"""Cells to look back, and by how many times `rise_least` a line must have risen in them: 40 minutes
to six hours of cells of five minutes. What rises fast must rise more to be believed."""
KNOWN_SHARE = 0.6
"""Of a window's cells that must have been read."""
QUARTER_SHARE = 0.12
"""Of the whole rise that each quarter must add over the one before. A straight rise adds a third;
one step, wherever it is, leaves at least one of the three at nothing."""
Z_99 = 2.576
PEERS_LEAST = 4
"""Peers that must have been read before what they do in common is known."""


class Trend(NamedTuple):
    """A lasting rise of one line."""

    first: int
    """The cell in which the window begins."""
    rise: float
    now: float
    """Median of the last quarter."""
    before: float
    """Median of the first quarter."""
    slope: float
    """A cell; and what it is at least and at most, with 99 %."""
    slope_least: float
    slope_most: float

    def cells_until(self, level: float, slope: float) -> float:
        """Cells until the line reaches a level, at this slope; 0 if it is there."""
        return max(0.0, (level - self.now) / slope) if slope > 0 else math.inf


def common_shift(lines: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """What the peers of each line did in common, cell by cell.

    The median of their distances from their own medians; NaN where fewer than PEERS_LEAST peers
    were read.
    """
    shift = np.full(lines.shape, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows and cells that were never read
        moved = lines - np.nanmedian(lines, axis=1, keepdims=True)
        for rows in groups:
            inside = moved[list(rows)]
            known = (~np.isnan(inside)).sum(axis=0)
            middle = np.nanmedian(inside, axis=0)
            shift[list(rows)] = np.where(known > PEERS_LEAST, middle, np.nan)
    return shift


def since_break(breaks: Flags, settle: int) -> Floats:
    """[lines, cells]: 0 in cells that count, NaN up to the last break and while it settles."""
    cells = breaks.shape[1]
    last = np.where(breaks.any(axis=1), cells - 1 - np.argmax(breaks[:, ::-1], axis=1), -1 - settle)
    return np.where(np.arange(cells)[None, :] > (last + settle)[:, None], 0.0, np.nan)


def find_trend(line: Floats, shift: Floats, rise_least: float) -> Trend | None:
    """The shortest window in which a line rises lastingly, by itself and against its peers."""
    cells = len(line)
    for length, factor in WINDOWS:
        if length > cells:
            break
        part = line[cells - length :]
        own = rise_in(part, rise_least * factor)
        if own is None:
            continue
        peers = shift[cells - length :]
        if not np.isnan(peers[~np.isnan(part)]).any():
            against = rise_in(part - peers, rise_least * factor)
            if against is None:
                continue
        return own._replace(first=cells - length)
    return None


def rise_in(part: Floats, rise_least: float) -> Trend | None:
    """A rise that all of the window shows; None where it is a step, noise, or not read."""
    known = np.flatnonzero(~np.isnan(part))
    if len(known) < KNOWN_SHARE * len(part):
        return None
    quarters = np.array_split(np.arange(len(part)), 4)
    values = [part[quarter][~np.isnan(part[quarter])] for quarter in quarters]
    if any(len(one) == 0 for one in values):
        return None
    middles = np.array([np.median(one) for one in values])
    rise = float(middles[-1] - middles[0])
    if rise < rise_least or np.diff(middles).min() < QUARTER_SHARE * rise:
        return None
    slope, least, most = slopes(known.astype(np.float64), part[known])
    if least <= 0:
        return None
    return Trend(0, rise, float(middles[-1]), float(middles[0]), slope, least, most)


def share_rising(lines: Floats, first: int, rise_least: float) -> tuple[int, float]:
    """How many lines have risen since this cell by half of what a trend needs, and which share."""
    quarters = np.array_split(np.arange(first, lines.shape[1]), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # lines that were not read
        rise = np.nanmedian(lines[:, quarters[-1]], axis=1) - np.nanmedian(
            lines[:, quarters[0]], axis=1
        )
    known = int((~np.isnan(rise)).sum())
    count = int((rise >= rise_least / 2).sum())
    return count, count / max(1, known)


def slopes(x: Floats, y: Floats) -> tuple[float, float, float]:
    """The median of the slopes between all pairs of points, and its interval of 99 % (Sen 1968)."""
    one, other = np.triu_indices(len(x), 1)
    found = np.sort((y[other] - y[one]) / (x[other] - x[one]))
    n, count = len(x), len(found)
    spread = Z_99 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, math.floor((count - spread) / 2))
    high = min(count - 1, math.ceil((count + spread) / 2))
    return float(np.median(found)), float(found[low]), float(found[high])
