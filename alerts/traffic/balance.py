"""How evenly bytes are spread over rails, NICs, hosts or ranks, and which stand out. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.statistics import spread

THINGS_MIN = 8
"""Of fewer none can stand out: the median of seven rests on three on either side."""
FAR_SIGMAS = 5.0
"""Robust standard deviations from the median. 3.5 is the usual bound (Iglewicz and Hoaglin, 1993);
of 10,000 healthy things that are nearly normal four would be beyond it, and none beyond five."""
FAR_SHARE = 0.05
"""Of the median, at least: counters that are read at different moments differ by a few percent."""
STANDING_OUT_SHARE = 0.125
"""If more of them are far from the median they are a group of their own (a pipeline's last stage),
and none stands out. One of eight may."""


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly something is spread."""

    things: int
    mean: float
    highest_by_mean: float
    """1 if all are equal."""
    variation: float
    gini: float
    """0 if all are equal, near 1 if one has everything."""
    standing_out: Ints
    """Those far from the others, the farthest first; none where they are too few to compare."""


def balance_of(values: Floats) -> Balance | None:
    """The balance of these amounts; NaNs are left out. None if there is nothing to compare."""
    known = np.flatnonzero(np.isfinite(values) & (values >= 0))
    amounts = values[known]
    total = float(amounts.sum())
    if len(known) < 2 or total <= 0:  # noqa: PLR2004 - one is always even
        return None
    mean = total / len(known)
    return Balance(
        things=len(known),
        mean=mean,
        highest_by_mean=float(amounts.max()) / mean,
        variation=float(amounts.std()) / mean,
        gini=gini_of(amounts),
        standing_out=known[standing_out(amounts)],
    )


def gini_of(amounts: Floats) -> float:
    """Half the mean difference of two of them, by the mean.

    >>> gini_of(np.array([1.0, 1.0, 1.0])), gini_of(np.array([0.0, 0.0, 0.0, 4.0]))
    (0.0, 0.75)
    """
    count, total = len(amounts), float(amounts.sum())
    if not count or total <= 0:
        return 0.0
    place = 2.0 * np.arange(1, count + 1) - count - 1
    return max(0.0, float((place * np.sort(amounts)).sum()) / (count * total))


def standing_out(amounts: Floats) -> Ints:
    """Places of those that are far from the median, the farthest first."""
    none = np.zeros(0, dtype=np.int64)
    if len(amounts) < THINGS_MIN:
        return none
    middle = float(np.median(amounts))
    away = np.abs(amounts - middle)
    far = np.flatnonzero((away > FAR_SIGMAS * spread(amounts)) & (away > FAR_SHARE * middle))
    if len(far) > STANDING_OUT_SHARE * len(amounts):
        return none
    return far[np.lexsort((far, -away[far]))].astype(np.int64)
