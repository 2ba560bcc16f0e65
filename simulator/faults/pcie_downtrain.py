"""A NIC whose PCIe slot came up with fewer lanes, or a generation lower.

Nothing is wrong with the network: the port negotiates its full rate, but the slot behind it cannot
carry that. Data piles up in the NIC, which pauses its switch (or gives no credit).
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Place
from simulator.faults.places import NicFault
from simulator.topology.world import World

SHARES = ((0.75, 0.125), (0.5, 0.25), (0.0, 0.5))
"""Strength from which on, and the share left then: x2, x4, x8 of x16 (or as many generations down).
Half a slot is still more than half of a NIC's line rate, so only a quarter or less hurts."""


class PcieDowntrain(NicFault):
    name = "pcie_downtrain"
    title = "A NIC's PCIe slot has lost lanes or speed."
    causes = (Cause.SLOW_LINK, Cause.PAUSE_STORM, Cause.STRAGGLER)
    reason = Reason.PCIE

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The NIC's port, or the host: the slot is part of it."""
        host = Culprit(host=cluster.topology.host_name(place.host))
        return (*super().culprits(cluster, place), host)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Both directions, in the steps that PCIe has."""
        world.nic_pcie_share[place.nic] = next(
            share for least, share in SHARES if strength >= least
        )
        return FOREVER


FAULT = PcieDowntrain()
