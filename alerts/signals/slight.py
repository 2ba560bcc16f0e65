"""Lateness that is too small or too irregular to accuse by itself, and no chance either. Pure.

A host that stands still for a moment in every fifth step, or that loses two percent of each, is
late by less than a step's noise in most of them. Over many steps the mean tells: by chance it falls
with their number. It says that something is different, not that it costs much, so that another
witness must say what.

It lasts as long as that mean does: steps on time that follow it are its end, also where a job
stood still in between and few steps have passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.signals.gaps import OwnTime
from alerts.signals.late import GAP_STEPS
from alerts.window.columns import Flags, Floats, Ints

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
ENDED_DEVIATIONS = 4.0
"""Standard errors by which the mean of the newest steps must be below that of those before: then it
is over. Errors are those of the late steps, which scatter widely where few of them are late."""
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
    is_change: bool = False
    """Whether it is held against what was usual before, and not against peers."""


def slightly_late(
    own: OwnTime, groups: Sequence[Ints], excess_ns: Floats, apart: Flags | None = None
) -> list[Slight | None]:
    """Of each group of ranks the newest steps in which they are late on average; None: never.

    ``groups`` are rows of the table; ``excess_ns`` [groups, steps] is a typical one's of each.
    Ranks that are ``apart`` have trouble of their own: their lateness is no scatter of the others.
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
            late = late_in(own, own_groups, excess_ns[places][:, steps], steps, apart)
            for place, one in zip(places, late, strict=True):
                found[place] = one
    return found


def late_in(
    own: OwnTime,
    groups: Sequence[Ints],
    excess_ns: Floats,
    steps: Ints,
    apart: Flags | None = None,
) -> list[Slight | None]:
    """The same for groups that are known in the same ``steps``, which ``excess_ns`` is of."""
    length = max(1.0, float(np.median(own.length_ns[steps])))
    usual, noise = others_of(own, groups, length, apart)
    taken = np.clip(excess_ns, -CLIP_SHARE * length, CLIP_SHARE * length) - usual[:, None]
    found = newest_late(taken, noise, steps, length)
    for row, one in enumerate(found):
        count = 0 if one is None else without_end(taken[row], steps, one, float(noise[row]))
        if one is not None and count < len(steps):
            before = newest_late(taken[[row], :count], noise[[row]], steps[:count], length)
            found[row] = before[0]
    return found


def newest_late(taken: Floats, noise: Floats, steps: Ints, length: float) -> list[Slight | None]:
    """Of each row the number of newest steps whose mean chance explains least; None: it may."""
    # The newest first: each column is the mean over so many of them.
    newest = taken[:, ::-1]
    late = np.cumsum(newest > NOISE_DEVIATIONS * noise[:, None], axis=1)
    count = np.arange(1, len(steps) + 1)
    mean = np.cumsum(newest, axis=1) / count
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


def without_end(taken: Floats, steps: Ints, one: Slight, noise: float) -> int:
    """How many of the steps there are until its lateness was over; all, while it lasts.

    The newest steps are held against those before them by what these scatter: of lateness in every
    fifth step a few on time are no end, of lateness in each step they are.
    """
    first = int(np.searchsorted(steps, one.first))
    inside = taken[first:]
    before = np.arange(LATE_MIN, len(inside) - GAP_STEPS)
    if not len(before):
        return len(steps)
    total, squares = np.cumsum(inside), np.cumsum(inside**2)
    mean = total[before - 1] / before
    scatter = np.sqrt(np.maximum(squares[before - 1] / before - mean**2, noise**2))
    after = len(inside) - before
    rest = (total[-1] - total[before - 1]) / after
    drop = (mean - rest) * np.sqrt(after) / scatter
    # Less lateness is no end: it is over where hardly any is left.
    drop = np.where(rest <= noise, drop, -np.inf)
    best = int(np.argmax(drop))
    return first + int(before[best]) if drop[best] >= ENDED_DEVIATIONS else len(steps)


def others_of(
    own: OwnTime, groups: Sequence[Ints], length: float, apart: Flags | None = None
) -> tuple[Floats, Floats]:
    """The mean and the scatter of the excess of all ranks but each group's; NaN: there are none."""
    most = CLIP_SHARE * length
    clipped = np.clip(own.excess_ns, -most, most)
    is_known = ~np.isnan(clipped)
    if apart is not None:
        is_known &= ~apart[:, None]
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


def typical_of(values: Floats, groups: Sequence[Ints]) -> Floats:
    """[groups, steps]: of each group of rows the lower median in each step."""
    if len({len(one) for one in groups}) > 1:
        return np.stack([lower_median(values[one]) for one in groups])
    return lower_median(values[np.stack(groups)].transpose(1, 0, 2))


def lower_median(values: Floats) -> Floats:
    """Over the first axis, without NaNs; NaN where there is nothing else."""
    ordered = np.sort(values, axis=0)
    count = (~np.isnan(values)).sum(axis=0)
    place = np.maximum(count - 1, 0) // 2
    found: Floats = np.take_along_axis(ordered, place[None], axis=0)[0]
    return found
