"""A NIC whose link is down for good (cable, module, NIC): its jobs hang until a repair."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NicFault, set_cable_down
from simulator.topology.world import World


class NicDead(NicFault):
    name = "nic_dead"
    title = "A NIC's link is down and stays down."
    causes = (Cause.HANG, Cause.LINK_FLAP)
    reason = Reason.LINK_DOWN
    seconds = (120.0, 180.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Strength does not matter: down is down."""
        set_cable_down(world, place.link)
        return FOREVER


FAULT = NicDead()
