"""A NIC that sends less than its port could: a hot chip, bad firmware, a rate limit left behind.

Its link is up at full rate and loses nothing, and it sends no pause frames: it does not fill the
wire.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NicFault
from simulator.topology.world import World

WORST_LOSS = 0.92
"""Of line rate lost at strength 1. A job hides some of its communication behind computing, and a
ring whose flows collide anywhere is slow already: a NIC at half of its rate may slow down no
job."""


class SlowNic(NicFault):
    name = "slow_nic"
    title = "A NIC sends only a part of what its link could carry."
    causes = (Cause.SLOW_LINK,)
    reason = Reason.NIC
    strengths = (0.75, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.nic_send_share[place.nic] = 1.0 - WORST_LOSS * strength
        return FOREVER


FAULT = SlowNic()
