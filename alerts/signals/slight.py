"""Lateness that is too small or too irregular to accuse by itself, and no chance either. Pure.

A host that stands still for a moment in every fifth step, or that loses two percent of each, is
late by less than a step's noise in most of them. Over many steps the mean tells: by chance it falls
with their number. It says that something is different, not that it costs much, so that another
witness must say what.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def slightly_late(own: OwnTime, groups: Sequence[Ints], excess_ns: Floats) -> list[Slight | None]:
    """Of each group of ranks the newest steps in which they are late on average; None: never.

    ``groups`` are rows of the table; ``excess_ns`` [groups, steps] is a typical one's of each.
    """
    found: list[Slight | None] = [None] * len(groups)
    known = ~np.isnan(excess_ns)
    alike: dict[bytes, list[int]] = {}
    for place, one in enumerate(known):
        alike.setdefault(one.tobytes(), []).append(place)
    for places in alike.values():
        steps = np.flatnonzero(known[places[0]])
        if len(steps) >= STEPS_MIN:
            own_groups = [groups[place] for place in places]
            late = late_in(own, own_groups, excess_ns[places][:, steps], steps)
            for place, one in zip(places, late, strict=True):
                found[place] = one
    return found


def late_in(
    own: OwnTime, groups: Sequence[Ints], excess_ns: Floats, steps: Ints
) -> list[Slight | None]:
    """The same for groups that are known in the same ``steps``, which ``excess_ns`` is of."""
    length = max(1.0, float(np.median(own.length_ns[steps])))
    usual, noise = others_of(own, groups, length)
    # The newest first: each column is the mean over so many of them.
    taken = np.clip(excess_ns, -CLIP_SHARE * length, CLIP_SHARE * length)[:, ::-1] - usual[:, None]
    late = np.cumsum(taken > NOISE_DEVIATIONS * noise[:, None], axis=1)
    count = np.arange(1, len(steps) + 1)
    mean = np.cumsum(taken, axis=1) / count
    deviations = mean * np.sqrt(count) / noise[:, None]
    good = (count >= STEPS_MIN) & (late >= LATE_MIN) & (mean >= SHARE_MIN * length)
    good &= deviations >= DEVIATIONS_MIN
    best = np.argmax(np.where(good, deviations, -np.inf), axis=1)
    return [
        Slight(
            first=int(steps[len(steps) - 1 - column]),
            last=int(steps[-1]),
            known=int(column) + 1,
            mean_ns=float(mean[row, column]),
            deviations=float(deviations[row, column]),
        )
        if good[row, column]
        else None
        for row, column in enumerate(best)
    ]


def others_of(own: OwnTime, groups: Sequence[Ints], length: float) -> tuple[Floats, Floats]:
    """The mean and the scatter of the excess of all ranks but each group's; NaN: there are none."""
    most = CLIP_SHARE * length
    clipped = np.clip(own.excess_ns, -most, most)
    is_known = ~np.isnan(clipped)
    shares = np.where(is_known, clipped, 0.0) / length
    rows = np.stack([is_known.sum(axis=1), shares.sum(axis=1), (shares**2).sum(axis=1)])
    sizes = [len(group) for group in groups]
    firsts = np.cumsum([0, *sizes[:-1]])
    count, total, squares = rows.sum(axis=1)[:, None] - np.add.reduceat(
        rows[:, np.concatenate(groups)], firsts, axis=1
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / np.where(count > 0, count, np.nan)
        scatter = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return mean * length, np.maximum(scatter, FLOOR_SHARE) * length
