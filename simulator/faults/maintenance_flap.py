"""A technician works on the cable of a host that has no job: its link goes down and up.

The counters look exactly like a flapping link's, and no job uses the link.
"""

from __future__ import annotations

from simulator.faults.model import Place
from simulator.faults.places import IdleHostEvent, flaps
from simulator.topology.world import World

DOWN_SECONDS = (2.0, 8.0)
"""At strengths 0 and 1."""
PERIOD_SECONDS = 25.0
"""Plug, look, plug again."""


class MaintenanceFlap(IdleHostEvent):
    """A link of a host without a job goes down and up during maintenance."""

    name = "maintenance_flap"
    title = "A link of a host without a job goes down and up during maintenance."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        least, most = DOWN_SECONDS
        down_seconds = least + (most - least) * strength
        return flaps(world, place, elapsed_s, down_seconds, PERIOD_SECONDS)


FAULT = MaintenanceFlap()
