"""Own time that has grown: lateness that the difference from peers does not show. Pure.

Copies of one work need not spend the same time outside: of two copies of a pipeline the one whose
stages are further apart waits for messages behind which the other one works. A host may then be
slower by as much as it had been faster, and its peers show nothing. Held against its own past, less
what the job's other hosts have grown by, a change is plain.

Time outside may also grow where a rank leaves a collective earlier. So the same ranks must have
come later to collectives by it, and the job's steps must have become longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.signals.gaps import OwnTime, low_quantile
from alerts.signals.late import CONSISTENCY_MIN
from alerts.signals.slight import (
    CLIP_SHARE,
    DEVIATIONS_MIN,
    FLOOR_SHARE,
    NOISE_DEVIATIONS,
    SHARE_MIN,
    Slight,
    lower_median,
    typical_of,
)
from alerts.window.columns import Floats, Ints
from alerts.window.statistics import median_known

BEFORE_MIN = 12
"""Steps that must show what was usual: in fewer a hiccup is a part of it."""
SINCE_MIN = 6
"""Steps that must show the change, nearly all of them: sequences are long for one, or for two."""
FELT_SHARE = 0.5
"""Of what ranks have grown by, which they must be later by, and a step longer."""
CANDIDATES_MAX = 64
"""Of a job, those that have grown most: where more have, the work has changed for all."""


def grown(own: OwnTime, groups: Sequence[Ints]) -> list[Slight | None]:
    """Of each group of ranks, usually a host, since when it has been slower than it was, and is.

    None: it has not become slower, or all have. ``groups`` are rows of the table.
    """
    found: list[Slight | None] = [None] * len(groups)
    if len(groups) == 1 or own.outside_ns.shape[1] < BEFORE_MIN + SINCE_MIN:
        return found  # without others, or without a past
    length = max(1.0, float(np.median(own.length_ns)))
    beyond = beyond_usual(own, groups, length)
    newest = lower_median(beyond[:, -SINCE_MIN:].T)
    places = np.flatnonzero(newest >= SHARE_MIN * length)
    order = places[np.argsort(-newest[places], kind="stable")][:CANDIDATES_MAX]
    for place in order.tolist():
        one = change_in(beyond[place], length)
        if one is not None and is_felt(own, groups[place], one):
            found[place] = one
    return found


def beyond_usual(own: OwnTime, groups: Sequence[Ints], length: float) -> Floats:
    """[groups, steps]: how far each is outside for longer than usual, and than others are.

    What most groups have grown by they share (longer sequences are longer for all). Where others
    have become faster, because they wait inside, no group is slower by that.
    """
    typical = typical_of(own.outside_ns, groups)
    most = CLIP_SHARE * length
    longer = np.clip(typical - low_quantile(typical)[:, None], -most, most)
    shared = np.maximum(np.nan_to_num(lower_median(longer)), 0.0)
    return longer - shared


def change_in(beyond: Floats, length: float) -> Slight | None:
    """The step since which the mean is another, if chance does not explain it."""
    steps = np.flatnonzero(~np.isnan(beyond))
    values = beyond[steps]
    before = np.arange(BEFORE_MIN, len(values) - SINCE_MIN + 1)
    if not len(before):
        return None
    since = len(values) - before
    total = np.cumsum(values)
    usual, now = total[before - 1] / before, (total[-1] - total[before - 1]) / since
    # Least squares: the split after which the two means leave least.
    best = int(np.argmax((now - usual) * np.sqrt(before * since / len(values))))
    count, mean = int(before[best]), float(now[best] - usual[best])
    noise = max(float(np.std(values[:count])), FLOOR_SHARE * length)
    deviations = mean / noise / float(np.sqrt(1.0 / count + 1.0 / (len(values) - count)))
    is_late = values[count:] > usual[best] + NOISE_DEVIATIONS * noise
    if mean < SHARE_MIN * length or deviations < DEVIATIONS_MIN:
        return None
    if float(is_late.mean()) < CONSISTENCY_MIN:
        return None
    return Slight(
        first=int(steps[count]),
        last=int(steps[-1]),
        known=len(values) - count,
        mean_ns=mean,
        deviations=deviations,
        is_change=True,
    )


def is_felt(own: OwnTime, rows: Ints, one: Slight) -> bool:
    """Whether these came later to collectives since, and the job's steps became longer.

    Kernels that compute wait for no other rank: nothing has to show that they made it late.
    """
    least = FELT_SHARE * one.mean_ns
    steps = own.length_ns.astype(np.float64)
    return growth_in(steps, one) >= least and (
        own.is_computing or growth_in(lower_median(own.late_ns[rows]), one) >= least
    )


def growth_in(values: Floats, one: Slight) -> float:
    return median_known(values[one.first : one.last + 1]) - median_known(values[: one.first])
