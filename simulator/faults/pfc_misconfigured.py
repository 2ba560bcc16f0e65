"""A port that drops where others pause: hidden until bursts fill its queue."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import NeighbourFault, send_background
from simulator.topology.world import World

PERIOD_SECONDS = 0.05
"""Bursts come twenty times a second, as from a checkpoint or a shuffle."""
LOADS = (0.1, 0.5)
"""Mean load of the bursts, of line rate, at strengths 0 and 1."""


class PfcMisconfigured(NeighbourFault):
    name = "pfc_misconfigured"
    title = "A port drops packets because its flow control is set up wrongly."
    causes = (Cause.LOSSY_LINK, Cause.CONGESTION)
    reason = Reason.CONFIGURATION
    fabrics = ("roce",)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.nic_pfc_ok[place.nic] = False
        send_background(world, place, between(LOADS, strength), PERIOD_SECONDS)
        return FOREVER


FAULT = PfcMisconfigured()
