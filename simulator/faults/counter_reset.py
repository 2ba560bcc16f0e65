"""A host without a job that keeps crashing: its counters restart at zero every half minute.

A detector that subtracts two readings without a check for resets sees billions of errors or bytes.
"""

from __future__ import annotations

from simulator.faults.model import Place
from simulator.faults.places import IdleHostEvent, reboots
from simulator.topology.world import World

DOWN_SECONDS = 6.0
"""Much faster than a server boots, so that a scenario of two minutes has several."""
PERIOD_SECONDS = (60.0, 20.0)
"""Between reboots, at strengths 0 and 1."""


class CounterReset(IdleHostEvent):
    """A host without a job reboots again and again, and its counters start over."""

    name = "counter_reset"
    title = "A host without a job reboots again and again, and its counters start over."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        slow, fast = PERIOD_SECONDS
        period_s = slow + (fast - slow) * strength
        return reboots(world, place, elapsed_s, DOWN_SECONDS, period_s)


FAULT = CounterReset()
