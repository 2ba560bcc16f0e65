"""A NIC whose firmware stops: the port stays up, nothing passes, and only the kernel says why."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NicFault
from simulator.topology.world import World


class NicFirmware(NicFault):
    name = "nic_firmware"
    title = "A NIC's firmware has stopped; its port is up and carries nothing."
    causes = (Cause.HANG,)
    reason = Reason.NIC_FAILED
    seconds = (120.0, 180.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Strength does not matter: dead is dead."""
        world.nic_is_dead[place.nic] = True
        return FOREVER


FAULT = NicFirmware()
