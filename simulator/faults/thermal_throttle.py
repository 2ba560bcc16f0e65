"""A GPU whose cooling fails: a dead fan, a clogged filter, dry paste, air in the loop.

It heats up within a minute, and its firmware lowers the clock until temperature holds.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import GpuFault
from simulator.topology.world import World

COOLING_SHARES = (0.6, 0.22)
"""Share of healthy cooling left, at strengths 0 and 1: at 0.6 a busy GPU just reaches the
temperature at which it slows down, at 0.22 it loses a third of its clock."""


class ThermalThrottle(GpuFault):
    """A GPU is badly cooled and slows itself down."""

    name = "thermal_throttle"
    title = "A GPU is badly cooled and slows itself down."
    causes = (Cause.STRAGGLER,)
    reason = Reason.GPU_THROTTLED

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Relative to how well this GPU was cooled before."""
        most, least = COOLING_SHARES
        world.gpu_cooling_share[place.gpu] *= most + (least - most) * strength
        return FOREVER


FAULT = ThermalThrottle()
