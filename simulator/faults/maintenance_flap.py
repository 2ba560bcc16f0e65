"""A technician works on the cable of a host without a job: counters look like a flapping link's."""

from __future__ import annotations

from simulator.faults.model import Place, between
from simulator.faults.places import IdleHostEvent, flaps
from simulator.topology.world import World

DOWN_SECONDS = (2.0, 8.0)
"""At strengths 0 and 1."""
PERIOD_SECONDS = 25.0
"""Plug, look, plug again."""


class MaintenanceFlap(IdleHostEvent):
    name = "maintenance_flap"
    title = "A link of a host without a job goes down and up during maintenance."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        down_seconds = between(DOWN_SECONDS, strength)
        return flaps(world, place, elapsed_s, down_seconds, PERIOD_SECONDS)


FAULT = MaintenanceFlap()
