"""A neighbour's short, small transfer: links have room, counters show it, no job is slower."""

from __future__ import annotations

import numpy as np

from collector.contract.verdict import Culprit
from simulator.faults.model import FOREVER, Cluster, Fault, Place
from simulator.faults.places import (
    choose_nic,
    choose_senders,
    idle_hosts,
    nic_place,
    send_background,
)
from simulator.topology.world import World

LOAD_MOST = 0.2
"""Of line rate at strength 1."""


class ShortNeighbour(Fault):
    name = "short_neighbour"
    title = "A neighbour sends a little for a little while, and no job is slower for it."
    causes = ()
    seconds = (10.0, 20.0)

    def fits(self, cluster: Cluster) -> bool:
        """Needs two hosts without a job, so that no job's own port is shared."""
        return super().fits(cluster) and len(idle_hosts(cluster)) > 1

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """From one host without a job to another; into a job's NIC only if there are no two."""
        topology = cluster.topology
        idle = idle_hosts(cluster)
        if len(idle) > 1:
            host = idle[int(random.integers(len(idle)))]
            nic = host * topology.nics_per_host + int(random.integers(topology.nics_per_host))
        else:
            nic = choose_nic(cluster, random)
        senders = choose_senders(cluster, nic, random)[:1]
        return nic_place(topology, nic)._replace(peers=senders)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        send_background(world, place, LOAD_MOST * strength)
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()


FAULT = ShortNeighbour()
