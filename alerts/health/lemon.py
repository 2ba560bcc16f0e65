"""The lemon score: hosts that are in trouble again and again, over weeks. Pure.

Meta (Revisiting Reliability, HPCA 2025) found that a percent of the hosts causes a tenth of the
failures of large jobs, that weeks of history name them, and that taking them out lowered the
failures of large jobs from 14 to 4 %. Theirs is a classifier over tickets and exclusions that we do
not have; ours counts distinct incidents, each by how much it speaks against the host.

A host is held against the fleet's median, and little history is shrunk towards it: days on which a
host was not known count as usual days, and every host starts with one usual month.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection

from collector.contract.units import NS

WINDOW_DAYS = 28
"""Four weeks: long enough for three strokes of a fault that comes weekly, short enough that a host
which was repaired is itself again next month."""
WINDOW_NS = WINDOW_DAYS * 86_400 * NS
USUAL_MIN = 0.5
"""Incidents in four weeks that are usual where the median host has none, as in most fleets: with
it, one incident scores 0.33, three score 0.71, and the fourth week in a row 0.78."""
LEMON_FROM = 0.7
"""A lemon: three certain incidents in four weeks where the usual host has none."""
DIGITS = 2


def usual_count(counts: Collection[float], hosts: int) -> float:
    """What a usual host has in the window: the median over all hosts, also those without any.

    >>> usual_count([3.0, 1.0], hosts=100), usual_count([4.0, 2.0, 3.0], hosts=3)
    (0.5, 3.0)
    """
    zeros = [0.0] * max(0, hosts - len(counts))
    return max(USUAL_MIN, statistics.median([*counts, *zeros])) if counts else USUAL_MIN


def lemon_score(count: float, usual: float, known_share: float) -> float:
    """How much worse than usual a host is, 0 to 1: 1 - usual / shrunk count.

    ``count`` is the sum over its distinct incidents in the window, each as much as it speaks
    against the host; ``known_share`` the part of the window in which the host was known.

    >>> [lemon_score(count, 0.5, 1.0) for count in (0, 1, 3, 10)]
    [0.0, 0.33, 0.71, 0.9]
    >>> lemon_score(0, 0.5, 0.0), lemon_score(2, 2.0, 1.0)
    (0.0, 0.0)
    """
    unknown_days = (1.0 - min(1.0, max(0.0, known_share))) * usual
    shrunk = (count + unknown_days + usual) / 2
    return round(max(0.0, 1.0 - usual / shrunk), DIGITS)
