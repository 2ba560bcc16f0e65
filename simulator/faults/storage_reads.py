"""A job's own host reads from the file server over the NIC that its collectives use.

A checkpoint that is loaded, or data that nobody has put on another network: steady traffic into the
port, as a neighbour's, but the host itself has asked for it and its mount counts it.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

LOADS = (0.3, 0.95)
"""Of line rate that it reads, at strengths 0 and 1."""
BITS_PER_BYTE = 8.0


class StorageReads(NeighbourFault):
    name = "storage_reads"
    title = "A job's host reads from storage over the NIC of its collectives."
    causes = (Cause.CONGESTION,)
    reason = Reason.STORAGE_TRAFFIC
    strengths = (0.8, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        load = between(LOADS, strength)
        send_background(world, place, load)
        line = world.topology.speed.bits_per_second / BITS_PER_BYTE
        world.host_storage_bytes_per_second[place.host] = load * line
        return FOREVER


FAULT = StorageReads()
