"""A NIC that sends less than its port could: a hot chip, bad firmware, a rate limit left behind.

Its link is up at full rate and loses nothing, and it pauses nobody: it just does not fill the wire.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NicFault
from simulator.world import World

WORST_LOSS = 0.92
"""Of line rate that is gone at strength 1. A job hides some of its communication behind computing,
and a ring whose flows collide anywhere is slow already: a NIC at half of its rate may not be felt
at all."""


class SlowNic(NicFault):
    """A NIC sends only a part of what its link could carry."""

    name = "slow_nic"
    title = "A NIC sends only a part of what its link could carry."
    causes = (Cause.SLOW_LINK,)
    reason = Reason.NIC
    strengths = (0.75, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Sending only."""
        world.nic_send_share[place.nic] = 1.0 - WORST_LOSS * strength
        return FOREVER


FAULT = SlowNic()
