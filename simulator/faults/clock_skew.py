"""A host whose clock is far off: comparing times without aligning clocks accuses a wrong host."""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place, between_logs
from simulator.faults.places import HostFault
from simulator.topology.world import World

OFFSET_SECONDS = (0.005, 2.0)
"""At strengths 0 and 1, on a logarithmic scale: from what a good time service would never leave to
what a host without any has after a few days."""


class ClockSkew(HostFault):
    name = "clock_skew"
    title = "A host's clock is wrong; no job is slower for it."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Ahead on hosts of even number, behind on odd ones: detectors must handle both."""
        sign = 1.0 if place.host % 2 == 0 else -1.0
        world.host_clock_offset_s[place.host] = sign * between_logs(OFFSET_SECONDS, strength)
        return FOREVER


FAULT = ClockSkew()
