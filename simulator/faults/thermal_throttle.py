"""A GPU whose cooling fails: it heats up in a minute, and firmware lowers its clock."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import GpuFault
from simulator.topology.world import World

COOLING_SHARES = (0.6, 0.22)
"""Share of healthy cooling left, at strengths 0 and 1: at 0.6 a busy GPU just reaches the
temperature at which it slows down, at 0.22 it loses a third of its clock."""


class ThermalThrottle(GpuFault):
    name = "thermal_throttle"
    title = "A GPU is badly cooled and slows itself down."
    causes = (Cause.STRAGGLER,)
    reason = Reason.GPU_THROTTLED

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Relative to how well this GPU was cooled before."""
        world.gpu_cooling_share[place.gpu] *= between(COOLING_SHARES, strength)
        return FOREVER


FAULT = ThermalThrottle()
