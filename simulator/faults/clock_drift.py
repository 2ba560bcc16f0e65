"""A host whose clock runs at a wrong speed: no time service corrects its quartz.

No job is slower. A clock alignment that was right a minute ago is wrong now.
"""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import HostFault
from simulator.topology.world import World

DRIFTS = (10e-6, 500e-6)
"""Seconds a second at strengths 0 and 1: an ordinary quartz, and the most that Linux corrects."""


class ClockDrift(HostFault):
    name = "clock_drift"
    title = "A host's clock runs too fast or too slow; no job is slower for it."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Fast on hosts of even number, slow on odd ones."""
        sign = 1.0 if place.host % 2 == 0 else -1.0
        world.host_time_service_is_lost[place.host] = True
        world.host_clock_drift[place.host] = sign * between(DRIFTS, strength)
        return FOREVER


FAULT = ClockDrift()
