"""A file server that answers slowly: all ranks of all jobs wait for data, and none is late."""

from __future__ import annotations

import numpy as np

from collector.contract.verdict import Cause, Culprit
from simulator.faults.model import FOREVER, Cluster, Fault, Place, between
from simulator.faults.places import HOSTS_MIN
from simulator.topology.world import STORAGE, World

RESPONSE_SECONDS = (0.01, 0.15)
"""To answer a read, at strengths 0 and 1: a cold cache, and a server that rebuilds a disk."""


class SlowFileServer(Fault):
    name = "slow_file_server"
    title = "The file server that all hosts mount answers slowly."
    causes = (Cause.SLOW_STORAGE,)

    def fits(self, cluster: Cluster) -> bool:
        """Needs a job of several hosts: with one, its own way may be slow as well."""
        is_wide = any(len(job.hosts) >= HOSTS_MIN for job in cluster.jobs)
        return super().fits(cluster) and is_wide

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        return Place()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_storage_seconds[:] = between(RESPONSE_SECONDS, strength)
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return (Culprit(storage=STORAGE),)


FAULT = SlowFileServer()
