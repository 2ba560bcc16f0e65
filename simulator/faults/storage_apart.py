"""A job's host loads a checkpoint over a network for storage: its collectives never notice."""

from __future__ import annotations

from collector.contract.verdict import Culprit
from simulator.faults.model import FOREVER, Cluster, Place, between
from simulator.faults.places import HostFault
from simulator.topology.world import World

RATES = (2e9, 20e9)
"""Bytes a second, at strengths 0 and 1: one NIC for storage, and several."""


class StorageApart(HostFault):
    name = "storage_apart"
    title = "A job's host reads a checkpoint over a network of its own."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_storage_bytes_per_second[place.host] = between(RATES, strength)
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()


FAULT = StorageApart()
