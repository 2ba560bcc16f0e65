"""Maintenance of a host without a job: it is down for a while and comes back once.

Its links go down with it, and its counters restart at zero.
"""

from __future__ import annotations

from simulator.faults.model import Place
from simulator.faults.places import IdleHostEvent, reboots
from simulator.topology.world import World

DOWN_SECONDS = (15.0, 60.0)
"""At strengths 0 and 1. A real server takes minutes; more downtime adds no information."""
ONCE_SECONDS = 1e9
"""Longer than any scenario: the reboot happens once."""


class IdleHostReboot(IdleHostEvent):
    """A host without a job is rebooted."""

    name = "idle_host_reboot"
    title = "A host without a job is rebooted."

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        least, most = DOWN_SECONDS
        return reboots(world, place, elapsed_s, least + (most - least) * strength, ONCE_SECONDS)


FAULT = IdleHostReboot()
