"""Lateness that is too small or too irregular to accuse by itself, and no chance either. Pure.

A host that stands still for a moment in every fifth step, or that loses two percent of each, is
late by less than a step's noise in most of them. Over many steps the mean tells: by chance it falls
with their number. It says that something is different, not that it costs much, so that another
witness must say what.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.gaps import OwnTime
from alerts.window.columns import Floats, Ints

STEPS_MIN = 12
"""Of the newest steps that must show it: in fewer a single hiccup is a mean."""
LATE_MIN = 4
"""Of these that must be late beyond noise: a few hiccups are no trouble that lasts."""
SHARE_MIN = 0.008
"""Of a step: what a host loses at least. Less costs less than a hundredth."""
CLIP_SHARE = 0.15
"""Of a step: a step counts as late by no more, so that one long wait is not a mean."""
DEVIATIONS_MIN = 8.0
"""Standard errors by which the mean must be above what peers have."""
NOISE_DEVIATIONS = 3.0
FLOOR_SHARE = 0.002
"""Of a step: what clocks and timers make uncertain."""


class Slight(msgspec.Struct, frozen=True, kw_only=True):
    """From which step on ranks are a little late, and by how much."""

    first: int
    last: int
    known: int
    mean_ns: float
    deviations: float
    """Standard errors of that mean."""


def slightly_late(own: OwnTime, rows: Ints, excess_ns: Floats) -> Slight | None:
    """The newest steps in which these ranks are late on average; None: they are not.

    ``excess_ns`` is that of a typical one of them, for each step.
    """
    others = np.ones(len(own.ranks), dtype=bool)
    others[rows] = False
    usual = own.excess_ns[others]
    usual = usual[~np.isnan(usual)]
    steps = np.flatnonzero(~np.isnan(excess_ns))
    if len(steps) < STEPS_MIN or not len(usual):
        return None
    length = float(np.median(own.length_ns[steps]))
    most = CLIP_SHARE * length
    usual = np.clip(usual, -most, most)
    noise = max(float(usual.std()), FLOOR_SHARE * length)
    taken = np.clip(excess_ns[steps], -most, most) - float(usual.mean())
    late = np.cumsum((taken > NOISE_DEVIATIONS * noise)[::-1])
    count = np.arange(1, len(steps) + 1)
    mean = np.cumsum(taken[::-1]) / count
    deviations = mean * np.sqrt(count) / noise
    good = (count >= STEPS_MIN) & (late >= LATE_MIN) & (mean >= SHARE_MIN * length)
    good &= deviations >= DEVIATIONS_MIN
    if not good.any():
        return None
    best = int(np.argmax(np.where(good, deviations, -np.inf)))
    return Slight(
        first=int(steps[len(steps) - 1 - best]),
        last=int(steps[-1]),
        known=best + 1,
        mean_ns=float(mean[best]),
        deviations=float(deviations[best]),
    )
