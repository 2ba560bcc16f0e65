"""Max-min fair shares of links, by progressive filling.

All rates grow alike until a link is full; the variables that cross it stop there, the others go on.
A *variable* is a flow by itself, or all flows of a ring at once, because they advance together; a
variable uses a link as often as its flows cross it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.network.columns import add_up
from simulator.topology.model import Bools, Floats, Ints

TIE = 1e-9
"""Shares closer than this, relative, are equal: rounding must not split a tie into rounds."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """Rates of variables, and the link that limits each of them."""

    rate: Floats
    """Of each variable; infinite for one that neither a link nor its own limit bounds."""
    is_held: Bools
    """For each use: this link limits this variable."""


def share(variable: Ints, link: Ints, usage: Floats, capacity: Floats, limit: Floats) -> Sharing:
    """Max-min rates of ``len(limit)`` variables over ``len(capacity)`` links.

    Variable ``variable[i]`` at rate r takes ``usage[i] * r`` of link ``link[i]``; it never gets
    more than its ``limit``. A round finishes every link whose share is the least for all its
    variables, so the number of rounds is the depth of dependent bottlenecks, not their number.
    """
    rate = np.full(len(limit), np.nan)
    is_held = np.zeros(len(variable), dtype=np.bool_)
    slack = capacity.astype(np.float64)
    open_use = np.flatnonzero(usage > 0)
    while True:
        users, links, uses = variable[open_use], link[open_use], usage[open_use]
        load = add_up(links, uses, len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(load > 0, np.maximum(slack, 0.0) / load, np.inf)
        reach = np.where(np.isnan(rate), limit, np.inf)
        np.minimum.at(reach, users, fair[links])
        least = np.full(len(capacity), np.inf)
        np.minimum.at(least, links, reach[users])
        is_full = least >= fair * (1 - TIE)
        holds = is_full[links]
        is_done = np.isnan(rate) & (reach >= limit * (1 - TIE))
        is_done[users[holds]] = True
        rate[is_done] = reach[is_done]
        is_held[open_use[holds]] = True
        ends = is_done[users]
        slack = slack - add_up(links[ends], uses[ends] * rate[users[ends]], len(capacity))
        open_use = open_use[~ends]
        if not len(open_use):
            break
    # A variable that uses no link has only its own limit.
    return Sharing(rate=np.where(np.isnan(rate), limit, rate), is_held=is_held)
