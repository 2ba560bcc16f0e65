"""A GPU whose memory fails bit by bit: hundreds of corrected errors, then the driver remaps rows.

Each corrected error costs a little time (`simulator.machines`), so a storm of them makes the GPU
late. XID 63 reports a remapped row; a strong one also has an uncorrectable error, contained by the
driver (XID 48, then 94). A real framework would restart there; here the job goes on, late.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import ROUNDING_SECONDS, GpuFault
from simulator.topology.world import World

ERRORS_PER_SECOND = (20.0, 600.0)
"""Corrected, at strengths 0 and 1: from a storm to what stops a GPU for a third of the time."""
XID_SECONDS = ((10.0, 63), (25.0, 48), (27.0, 94))
"""When the driver reports what, after the start: a row is remapped once its errors repeat."""
UNCORRECTABLE_FROM = 0.75
"""Of strength, from which on there is an uncorrectable error too."""


class GpuEcc(GpuFault):
    name = "gpu_ecc"
    title = "A GPU's memory has errors, and correcting them slows the GPU down."
    causes = (Cause.STRAGGLER,)
    reason = Reason.GPU_ERROR

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Corrected errors all the time, and the last XID that is due."""
        world.gpu_correctable_per_second[place.gpu] = between(ERRORS_PER_SECOND, strength)
        reports = XID_SECONDS if strength >= UNCORRECTABLE_FROM else XID_SECONDS[:1]
        for due_s, xid in reports:
            if elapsed_s < due_s - ROUNDING_SECONDS:
                return due_s
            world.gpu_xid[place.gpu] = xid
        return FOREVER


FAULT = GpuEcc()
