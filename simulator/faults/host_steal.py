"""A host that loses CPU time to a hypervisor or stray process: kernels are launched late."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

STEAL_MOST = 0.6
"""Of CPU time at strength 1; from about a tenth on, launching cannot keep ahead of the GPU."""


class HostSteal(HostFault):
    name = "host_steal"
    title = "A hypervisor or another process takes CPU time from a host's training processes."
    causes = (Cause.STRAGGLER,)
    reason = Reason.HOST_STALL

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_steal_share[place.host] = STEAL_MOST * strength
        return FOREVER


FAULT = HostSteal()
