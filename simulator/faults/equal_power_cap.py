"""An operator lowers the power limit of all GPUs alike: every step is a little longer.

All ranks slow down together. No rank is late, and no culprit exists.
"""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import EverywhereEvent
from simulator.topology.world import World

LIMIT_SHARES = (0.95, 0.75)
"""Of the normal limit at strengths 0 and 1: what sites do in summer."""


class EqualPowerCap(EverywhereEvent):
    """All GPUs have the same lower power limit, so no rank is late."""

    name = "equal_power_cap"
    title = "All GPUs have the same lower power limit, so no rank is late."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        most, least = LIMIT_SHARES
        world.gpu_power_limit_share[:] = most + (least - most) * strength
        return FOREVER


FAULT = EqualPowerCap()
