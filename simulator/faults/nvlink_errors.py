"""A GPU whose NVLinks damage so many packets that most of their time goes into sending again.

Nothing is wrong with the network, and nothing with what the GPU computes: what its host's GPUs
exchange among themselves takes longer, and so do rings that pass through the host once NVLink is
slower than the NICs are.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between_logs
from simulator.faults.places import GpuFault
from simulator.topology.world import World

SHARES = (0.1, 0.005)
"""Of NVLink's speed that is left, at strengths 0 and 1. A simulated step has a few exchanges inside
hosts for the hundreds of a real one, so that they must be slower to cost as much of it."""


class NvlinkErrors(GpuFault):
    name = "nvlink_errors"
    title = "A GPU's NVLinks send most of their packets again."
    causes = (Cause.STRAGGLER,)
    reason = Reason.SCALE_UP

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """To and from this GPU."""
        world.gpu_nvlink_share[place.gpu] = between_logs(SHARES, strength)
        return FOREVER


FAULT = NvlinkErrors()
