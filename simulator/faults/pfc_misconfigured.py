"""A port whose lossless priority is not set up: where others pause, it drops.

It stays hidden until queues fill, so it shows together with bursts that a port with flow control
would absorb.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

PERIOD_SECONDS = 0.05
"""Bursts come twenty times a second, as from a checkpoint or a shuffle."""
LOADS = (0.1, 0.5)
"""Mean load of the bursts, of line rate, at strengths 0 and 1."""


class PfcMisconfigured(NeighbourFault):
    """A port drops packets because its flow control is set up wrongly."""

    name = "pfc_misconfigured"
    title = "A port drops packets because its flow control is set up wrongly."
    causes = (Cause.LOSSY_LINK, Cause.CONGESTION)
    reason = Reason.CONFIGURATION
    fabrics = ("roce",)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Flow control is off at the NIC's port, and bursts come in."""
        least, most = LOADS
        world.nic_pfc_ok[place.nic] = False
        send_background(world, place, least + (most - least) * strength, PERIOD_SECONDS)
        return FOREVER


FAULT = PfcMisconfigured()
