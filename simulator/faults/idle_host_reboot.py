"""A host without a job that reboots once: its links go down and its counters restart at zero."""

from __future__ import annotations

from simulator.faults.model import Place, between
from simulator.faults.places import IdleHostEvent, reboots
from simulator.topology.world import World

DOWN_SECONDS = (15.0, 60.0)
"""At strengths 0 and 1. A real server takes minutes; more downtime adds no information."""
ONCE_SECONDS = 1e9
"""Longer than any scenario: the reboot happens once."""


class IdleHostReboot(IdleHostEvent):
    name = "idle_host_reboot"
    title = "A host without a job is rebooted."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        return reboots(world, place, elapsed_s, between(DOWN_SECONDS, strength), ONCE_SECONDS)


FAULT = IdleHostReboot()
