"""Stretches of steps in which a rank is late, as far as chance does not explain them. Pure."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from alerts.window.columns import Flags, Floats
from alerts.window.statistics import runs

GAP_STEPS = 3
"""So many steps on time do not end a stretch."""
WARM_UP_STEPS = 5
"""What lies within the first steps that are known may be compiling and connecting. In a window that
slides along, it has been looked at before."""
CONSISTENCY_MIN = 0.7
"""Of a stretch's steps that must be late: uneven work, checkpoints and hiccups strike seldom, or
another rank each time."""
CHANCE_MIN = 0.003
"""How often a rank is late by chance, at least: a hiccup in hundreds of steps."""
CLEAR_STEPS_MIN = 3
"""Steps that prove anything: fewer may be one odd batch."""
FALSE_MAX = 1e-4
"""Stretches that may be found by chance in a capture, all ranks together."""
FALSE_LIVE_MAX = 1e-5
"""The same in a window of a running service. A day has 480 windows that do not overlap, and 512
GPUs have a handful of jobs: a false one in a month, if noise were independent. Measured on noise,
see the tests, and in peace (docs/accuracy.md)."""


class LateStretch(msgspec.Struct, frozen=True, kw_only=True):
    """From one step to another, both late."""

    STEPS_MIN: ClassVar[int] = 4
    """Fewer late steps accuse no rank."""

    first: int
    last: int
    late: int
    known: int
    """Steps of which anything is known."""

    @property
    def steps(self) -> slice:
        return slice(self.first, self.last + 1)

    @property
    def consistency(self) -> float:
        return self.late / max(1, self.known)


def find_clear(late: Flags, clear: Flags, known: Flags, trials: int) -> LateStretch | None:
    """All steps of a short window, if the rank is clearly late in each that is known.

    Of what is so far beyond chance a few steps prove as much as many that are barely late. Only
    for what no warm-up can explain.
    """
    places = np.flatnonzero(known)
    if len(places) < CLEAR_STEPS_MIN or not (late & clear)[places].all():
        return None
    if trials * len(places) * CHANCE_MIN ** len(places) > FALSE_MAX:
        return None
    count = len(places)
    return LateStretch(first=int(places[0]), last=int(places[-1]), late=count, known=count)


def find_stretch(
    late: Flags,
    known: Flags,
    chance: float,
    trials: int,
    size: Floats,
    false_max: float = FALSE_MAX,
) -> LateStretch | None:
    """The stretch that matters: the newest if it reaches the end, else the one that cost most.

    ``chance`` is how often others are late like that, ``trials`` how many ranks were looked at.
    """
    found = []
    for first, last in runs(late, gap=GAP_STEPS, least=LateStretch.STEPS_MIN):
        inside = slice(first, last + 1)
        one = LateStretch(
            first=first, last=last, late=int(late[inside].sum()), known=int(known[inside].sum())
        )
        expected = trials * len(late) * max(chance, CHANCE_MIN) ** one.late
        is_over = one.last >= WARM_UP_STEPS
        if is_over and one.consistency >= CONSISTENCY_MIN and expected <= false_max:
            found.append(one)
    if not found:
        return None
    newest = found[-1]
    if newest.last >= len(late) - 1 - GAP_STEPS:
        return newest
    return max(found, key=lambda one: float(np.nansum(size[one.steps])))
