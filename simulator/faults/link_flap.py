"""A link that goes down and comes back by itself, again and again.

Training a link of 100 Gb/s a lane takes one to several seconds. Connections survive that: a NIC
with NCCL's defaults retries for about half a minute before it gives up. The job stops for that time
and then goes on.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import Place
from simulator.faults.places import CableFault, flaps
from simulator.topology.world import World

DOWN_SECONDS = (1.0, 5.0)
"""From a mere retraining to a port that is brought up from scratch; well below the half minute
after which connections break."""
PERIOD_SECONDS = 15.0
"""Between two flaps, about."""


class LinkFlap(CableFault):
    """A link goes down and comes back, again and again."""

    name = "link_flap"
    title = "A link goes down and comes back, again and again."
    causes = (Cause.LINK_FLAP,)
    reason = Reason.CABLE

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        least, most = DOWN_SECONDS
        down_seconds = least + (most - least) * strength
        return flaps(world, place, elapsed_s, down_seconds, PERIOD_SECONDS)


FAULT = LinkFlap()
