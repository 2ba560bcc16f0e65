"""A host whose CPUs belong to somebody else for a part of the time: a hypervisor, a stray process.

The loop that launches kernels runs late, and so does every rank of the host.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.world import World

STEAL_MOST = 0.6
"""Of CPU time at strength 1; from about a tenth on, launching cannot keep ahead of the GPU."""


class HostSteal(HostFault):
    """Somebody takes CPU time away from a host's training processes."""

    name = "host_steal"
    title = "Somebody takes CPU time away from a host's training processes."
    causes = (Cause.STRAGGLER,)
    reason = Reason.HOST_STALL

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """All CPUs of the host alike."""
        world.host_steal_share[place.host] = STEAL_MOST * strength
        return FOREVER


FAULT = HostSteal()
