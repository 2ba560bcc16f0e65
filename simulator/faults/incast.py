"""Many senders at once into one port, for a millisecond or two: averages look harmless.

Each burst is several times what the port can carry, so its queue grows by megabytes and drains for
longer than the burst lasted. The job's packets wait behind it, or are paused, marked or dropped.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

PERIOD_SECONDS = 0.02
"""Between bursts: fifty a second, so that every collective of a large job meets some."""
LOADS = (0.1, 0.55)
"""Mean share of line rate at strengths 0 and 1; a burst of eight senders lasts a millisecond."""


class Incast(NeighbourFault):
    name = "incast"
    title = "Bursts of many senders hit one port, too short for averages to show."
    causes = (Cause.MICROBURST,)
    reason = Reason.NEIGHBOUR
    strengths = (0.7, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        send_background(world, place, between(LOADS, strength), PERIOD_SECONDS)
        return FOREVER


FAULT = Incast()
