"""A link that goes down and comes back by itself, again and again.

Training a link of 100 Gb/s a lane takes one to several seconds. Connections survive that: a NIC
with NCCL's defaults retries for about half a minute before it gives up. The job stops for that time
and then goes on.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import Place, between
from simulator.faults.places import CableFault, flaps
from simulator.topology.world import World

DOWN_SECONDS = (1.0, 5.0)
"""From a retraining to a port brought up from scratch; connections break after 30 s."""
PERIOD_SECONDS = 15.0


class LinkFlap(CableFault):
    name = "link_flap"
    title = "A link goes down and comes back, again and again."
    causes = (Cause.LINK_FLAP,)
    reason = Reason.CABLE

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        down_seconds = between(DOWN_SECONDS, strength)
        return flaps(world, place, elapsed_s, down_seconds, PERIOD_SECONDS)


FAULT = LinkFlap()
