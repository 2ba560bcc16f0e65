"""A link that came up with fewer lanes or at a lower rate than its ports can.

After a retraining on a marginal cable ports agree on what works: half the lanes, or the signalling
of the generation before. Everything looks clean afterwards, only slower.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import CableFault
from simulator.topology.world import World

QUARTER_FROM = 0.75
"""Strength from which on a quarter of the rate is left (1x of 4x, EDR for NDR) and not a half."""


class RateDowngrade(CableFault):
    name = "rate_downgrade"
    title = "A link runs at a fraction of its rate."
    causes = (Cause.SLOW_LINK,)
    reason = Reason.RATE_DOWNGRADE
    strengths = (0.75, 1.0)
    fabric_share = 0.25

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Both directions: ports agree on one width and one rate."""
        share = 0.25 if strength >= QUARTER_FROM else 0.5
        world.link_speed_share[place.link] = share
        world.link_speed_share[world.topology.reverse[place.link]] = share
        return FOREVER


FAULT = RateDowngrade()
