"""Steady traffic of other hosts through a port that a job needs: storage servers, a restore.

Nothing is broken. The port carries all that it can, and the job gets only its fair share of it.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

LOADS = (0.3, 0.95)
"""Of line rate that the neighbours send in all, at strengths 0 and 1."""


class StorageNeighbour(NeighbourFault):
    name = "storage_neighbour"
    title = "Other hosts' traffic fills a port that a job needs."
    causes = (Cause.CONGESTION,)
    reason = Reason.NEIGHBOUR
    strengths = (0.8, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        send_background(world, place, between(LOADS, strength))
        return FOREVER


FAULT = StorageNeighbour()
