"""All GPUs are a little hotter than usual and none slows down: temperature is no throttling."""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import EverywhereEvent
from simulator.topology.world import World

COOLING_LOSS_MOST = 0.12
"""Of healthy cooling at strength 1: some eight degrees more, and still ten below any limit."""


class WarmAisle(EverywhereEvent):
    name = "warm_aisle"
    title = "All GPUs are a little hotter than usual, and none slows down."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.gpu_cooling_share *= 1.0 - COOLING_LOSS_MOST * strength
        return FOREVER


FAULT = WarmAisle()
