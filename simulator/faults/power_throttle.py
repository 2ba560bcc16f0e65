"""A GPU with a lower power limit than its peers: it lowers its clock, and is no hotter."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import GpuFault
from simulator.topology.world import World

LIMIT_SHARES = (0.9, 0.4)
"""Of the normal limit, at strengths 0 and 1. Power goes with the clock to about 2.5, so half of it
still gives three quarters of the clock."""


class PowerThrottle(GpuFault):
    name = "power_throttle"
    title = "A GPU may draw less power than its peers and slows itself down."
    causes = (Cause.STRAGGLER,)
    reason = Reason.GPU_THROTTLED

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.gpu_power_limit_share[place.gpu] = between(LIMIT_SHARES, strength)
        return FOREVER


FAULT = PowerThrottle()
