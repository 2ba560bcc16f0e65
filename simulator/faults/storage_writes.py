"""A job's own host writes a checkpoint over the NIC that its collectives use.

Steady traffic out of the port, to several file servers. The queue stands inside of the host: no
switch shows it, and the NIC looks slow to its ring, though it sends all that its line carries.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Place, between
from simulator.faults.places import NeighbourFault, nic_names
from simulator.topology.world import Background, World

LOADS = (0.3, 0.95)
"""Of line rate that it writes, at strengths 0 and 1."""
BITS_PER_BYTE = 8.0


class StorageWrites(NeighbourFault):
    name = "storage_writes"
    title = "A job's host writes a checkpoint over the NIC of its collectives."
    causes = (Cause.CONGESTION,)
    reason = Reason.STORAGE_TRAFFIC
    strengths = (0.0, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        load, line = between(LOADS, strength), world.topology.speed.bits_per_second
        for peer in place.peers:
            world.background.append(Background(place.nic, peer, load * line / len(place.peers)))
        world.nic_storage_written_bytes_per_second[place.nic] = load * line / BITS_PER_BYTE
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The port, and not those that it writes to."""
        return nic_names(cluster.topology, place.nic)


FAULT = StorageWrites()
