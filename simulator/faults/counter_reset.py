"""A host without a job that keeps crashing: its counters restart every half minute."""

from __future__ import annotations

from simulator.faults.model import Place, between
from simulator.faults.places import IdleHostEvent, reboots
from simulator.topology.world import World

DOWN_SECONDS = 6.0
"""Much faster than a server boots, so that a scenario of two minutes has several."""
PERIOD_SECONDS = (60.0, 20.0)
"""Between reboots, at strengths 0 and 1."""


class CounterReset(IdleHostEvent):
    name = "counter_reset"
    title = "A host without a job reboots again and again, and its counters start over."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        return reboots(world, place, elapsed_s, DOWN_SECONDS, between(PERIOD_SECONDS, strength))


FAULT = CounterReset()
