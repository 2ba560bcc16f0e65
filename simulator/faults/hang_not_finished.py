"""A rank whose kernel never ends, without XID or broken link: a deadlock, a lost doorbell."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import GpuFault
from simulator.topology.world import World


class HangNotFinished(GpuFault):
    name = "hang_not_finished"
    title = "A rank has entered a collective and never finishes it."
    causes = (Cause.HANG,)
    reason = Reason.NOT_FINISHED
    seconds = (120.0, 180.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.gpu_is_dead[place.gpu] = True
        return FOREVER


FAULT = HangNotFinished()
