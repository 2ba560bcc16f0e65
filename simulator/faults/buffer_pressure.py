"""A switch with little packet memory left for the jobs, while other traffic passes through it.

Shared memory absorbs collisions. When the queues of other traffic hold it, each small queue of a
job is marked, paused or dropped at once.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Place, between, between_logs
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

BUFFER_SHARES = (0.5, 0.02)
"""Of the switch's packet memory that is left, at strengths 0 and 1."""
LOADS = (0.3, 0.85)
"""Of line rate that passes through the same port."""


class BufferPressure(NeighbourFault):
    name = "buffer_pressure"
    title = "A switch has hardly any buffer left, and every collision costs."
    causes = (Cause.CONGESTION, Cause.MICROBURST)
    reason = Reason.NEIGHBOUR
    strengths = (0.8, 1.0)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        switch = Culprit(switch=cluster.topology.switches[place.switch].name)
        return (*super().culprits(cluster, place), switch)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.switch_buffer_share[place.switch] = between_logs(BUFFER_SHARES, strength)
        send_background(world, place, between(LOADS, strength))
        return FOREVER


FAULT = BufferPressure()
