"""Leaf switches that put many flows on few uplinks: all hash alike, over too little of a packet.

Training has few and large flows, so a bad hash does not even out. Some uplinks are full, with
queues, marks and pauses, and others next to them idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Fault, Place
from simulator.faults.places import leaves_left, switch_port_names
from simulator.topology.model import Ints, LinkKind
from simulator.topology.world import World

HASH_BITS = (3, 2, 1, 0)
"""Bits left of a flow's identity, from strength 0 to 1: 8, 4, 2 and 1 different answers."""
COMMON_SEED = 1
"""Hash seed of every switch: the maker's default."""


class EcmpPolarised(Fault):
    """All switches hash alike, and one leaf's flows collide for sure."""

    name = "ecmp_polarised"
    title = "Flows are spread badly: some uplinks are full while others idle."
    causes = (Cause.CONGESTION,)
    reason = Reason.ROUTING
    fabrics = ("roce",)

    def fits(self, cluster: Cluster) -> bool:
        """It takes a leaf from which several NICs send up: one flow cannot collide."""
        return super().fits(cluster) and len(self._leaves(cluster)) > 0

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        leaves = self._leaves(cluster)
        if not len(leaves):
            return Place()
        return Place(switch=int(leaves[random.integers(len(leaves))]))

    @staticmethod
    def _leaves(cluster: Cluster) -> Ints:
        """Leaves with a choice of uplinks, and two or more NICs of a job with neighbours elsewhere.

        Of one job's rings: flows of two jobs seldom meet, because each sends for a part of its step
        only, and what pipeline stages send each other is small.
        """
        topology = cluster.topology
        crowded: list[Ints] = [np.zeros(0, dtype=np.int32)]
        for job in cluster.jobs:
            leaves, nics = leaves_left(replace(cluster, jobs=(job,)), rings_only=True)
            crowded.append(leaves[nics > 1])
        candidates = np.unique(np.concatenate(crowded))
        is_uplink = topology.kind >= LinkKind.FABRIC_UP
        uplinks = np.bincount(topology.source_switch[is_uplink], minlength=len(topology.switches))
        chosen: Ints = candidates[uplinks[candidates] > 1]
        return chosen

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        if place.switch < 0:
            return FOREVER
        world.switch_hash_seed[:] = COMMON_SEED
        step = min(int(strength * len(HASH_BITS)), len(HASH_BITS) - 1)
        world.switch_hash_bits[place.switch] = HASH_BITS[step]
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The leaf, or any of its uplinks: which of them are full is the hash's choice."""
        if place.switch < 0:
            return ()
        topology = cluster.topology
        is_uplink = (topology.kind >= LinkKind.FABRIC_UP) & (topology.source_switch == place.switch)
        ports = switch_port_names(topology, *np.flatnonzero(is_uplink))
        return (Culprit(switch=topology.switches[place.switch].name), *ports)


FAULT = EcmpPolarised()
