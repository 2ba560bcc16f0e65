"""Congestion of a whole phase when only some of its units are active.

The fluid is expensive, and units of a phase start and end one after the other: hundreds of
mixtures, few of which last. So it runs only for mixtures with all their units. While some are
missing, the active ones get fair shares of the links, and each keeps its part of the congestion of
the whole:

* a flow moves the same share of its fair rate, and as many of its packets are marked or dropped;

* a link queues, pauses and waits in proportion to the share of its traffic that is active, and not
at all where it carries all that it is fed.

That is exact for a link that is as full as before, and in between a straight line between full and
idle. A link that is congested in a part only, where flows go faster than in the whole, shares its
capacity but neither marks nor queues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.network.congestion import Fair, Feeding, Scene, Settled, reach_of
from simulator.network.dcqcn import NOTIFICATION_SECONDS
from simulator.network.flows import Crowd
from simulator.network.fluid import Totals
from simulator.topology.model import Bools, Floats

ALL_TRAFFIC = 0.99
"""Share of a link's traffic in the whole from which on all of it counts as active."""
_NOTHING = 1e-300
"""Replaces 0 in divisors."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Flows of a crowd that are active together, and their congestion."""

    crowd: Crowd
    fair: Fair
    feeding: Feeding
    fluid: tuple[Scene, Settled] | None
    """None where nothing is congested."""


def scale(whole: Mixture, feeding: Feeding, links_total: int) -> tuple[Scene, Settled] | None:
    """Congestion in a part of a mixture; None if the whole is not congested.

    The scene is the whole's: its flows that are not active, or that congestion does not reach any
    more, count as alone.
    """
    if whole.fluid is None:
        return None
    scene, settled = whole.fluid
    fair = (feeding.wire_bps / whole.crowd.flows.paths.wire_per_payload)[scene.flows]
    is_reached = np.zeros(len(fair), dtype=np.bool_)
    here = np.flatnonzero(fair > 0)
    is_reached[here], reached = reach_of(scene.paths.path[here], feeding.congested, links_total)
    due = np.maximum(scene.fair_bps, _NOTHING)
    shares = _traffic_shares(whole, feeding, reached)
    # The sender that pushes hardest gets more than its fair share, but only from active others.
    at_most = np.where(_all_there(whole, shares, links_total), np.inf, 1.0)
    kept = np.where(is_reached, np.minimum(settled.payload_bps / due, at_most), 1.0)
    return scene, Settled(
        links=settled.links,
        totals=_scaled(settled.totals, shares, np.where(is_reached, fair / due, 0.0)),
        payload_bps=fair * kept,
        drop_share=np.where(is_reached, settled.drop_share, 0.0),
        drops_at=np.where(is_reached[:, None], settled.drops_at, 0.0),
    )


def _traffic_shares(whole: Mixture, feeding: Feeding, reached: Bools) -> Floats:
    """For each link of the fluid, the active share of its traffic; 0 if not congested now."""
    assert whole.fluid is not None
    links = whole.fluid[1].links
    at = np.searchsorted(whole.crowd.uses.links, links)
    shares = np.minimum(feeding.load_bps[at] / np.maximum(whole.feeding.load_bps[at], _NOTHING), 1)
    now, before = np.zeros((2, len(reached)), dtype=np.bool_)
    now[feeding.congested] = True
    before[whole.feeding.congested] = True
    is_over = ~reached[links] | (before & ~now)[links]
    return np.where(is_over, 0.0, shares)


def _all_there(whole: Mixture, shares: Floats, links_total: int) -> Bools:
    """For each flow of the scene, whether congested links on its way carry as much as before."""
    assert whole.fluid is not None
    scene, settled = whole.fluid
    is_less = np.zeros(links_total + 1, dtype=np.bool_)
    is_less[settled.links] = shares < ALL_TRAFFIC
    is_congested = np.zeros(links_total + 1, dtype=np.bool_)
    is_congested[whole.feeding.congested] = True
    crossed: Bools = (is_less & is_congested)[scene.paths.path]
    return np.logical_not(crossed.any(axis=1))


def _scaled(whole: Totals, shares: Floats, traffic: Floats) -> Totals:
    """Sums of links times their shares, sums of flows times their present traffic."""
    totals = Totals(0, 0)
    totals.seconds = whole.seconds
    for name, column in vars(whole).items():
        if name != "seconds":
            setattr(totals, name, column * (traffic if name.startswith("flow_") else shares))
    totals.flow_notified = np.minimum(totals.flow_notified, whole.seconds / NOTIFICATION_SECONDS)
    return totals
