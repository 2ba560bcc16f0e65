"""A GPU with a lower power limit than its peers: a forgotten setting, a weak supply, a brake.

It lowers its clock until it keeps the limit. Its temperature is not above its peers'.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import GpuFault
from simulator.topology.world import World

LIMIT_SHARES = (0.9, 0.4)
"""Of the normal limit, at strengths 0 and 1. Power goes with the clock to about 2.5, so half of it
still gives three quarters of the clock."""


class PowerThrottle(GpuFault):
    """A GPU may draw less power than its peers and slows itself down."""

    name = "power_throttle"
    title = "A GPU may draw less power than its peers and slows itself down."
    causes = (Cause.STRAGGLER,)
    reason = Reason.GPU_THROTTLED

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        most, least = LIMIT_SHARES
        world.gpu_power_limit_share[place.gpu] = most + (least - most) * strength
        return FOREVER


FAULT = PowerThrottle()
