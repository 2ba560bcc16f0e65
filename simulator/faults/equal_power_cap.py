"""All GPUs get the same lower power limit: all ranks slow down together, and none is late."""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import EverywhereEvent
from simulator.topology.world import World

LIMIT_SHARES = (0.95, 0.75)
"""Of the normal limit at strengths 0 and 1: what sites do in summer."""


class EqualPowerCap(EverywhereEvent):
    name = "equal_power_cap"
    title = "All GPUs have the same lower power limit, so no rank is late."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.gpu_power_limit_share[:] = between(LIMIT_SHARES, strength)
        return FOREVER


FAULT = EqualPowerCap()
