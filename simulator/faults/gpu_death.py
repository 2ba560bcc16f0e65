"""A GPU that falls off the bus in a kernel: busy until the driver notices (XID 79), then gone."""

from __future__ import annotations

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Place, between
from simulator.faults.places import ROUNDING_SECONDS, GpuFault
from simulator.topology.world import World

NOTICED_SECONDS = (20.0, 2.0)
"""Until the driver's next access fails, at strengths 0 and 1."""
XID_OFF_THE_BUS = 79


class GpuDeath(GpuFault):
    name = "gpu_death"
    title = "A GPU has fallen off the bus, and all other ranks wait for it."
    causes = (Cause.HANG,)
    reason = Reason.GPU_ERROR
    seconds = (120.0, 180.0)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The GPU, or its host: a dead GPU takes it out of service."""
        host = Culprit(host=cluster.topology.host_name(place.host))
        return (*super().culprits(cluster, place), host)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Dead at once; the XID comes when the driver notices."""
        noticed_s = between(NOTICED_SECONDS, strength)
        world.gpu_is_dead[place.gpu] = True
        if elapsed_s < noticed_s - ROUNDING_SECONDS:
            return noticed_s
        world.gpu_xid[place.gpu] = XID_OFF_THE_BUS
        return FOREVER


FAULT = GpuDeath()
