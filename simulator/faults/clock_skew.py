"""A host whose clock is off by much more than its peers': its time server is gone, or wrong.

No job is slower. A detector that compares times of hosts without aligning clocks accuses a wrong
one.
"""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

OFFSET_SECONDS = (0.005, 2.0)
"""At strengths 0 and 1, on a logarithmic scale: from what a good time service would never leave to
what a host without any has after a few days."""


class ClockSkew(HostFault):
    """A host's clock is wrong; no job is slower for it."""

    name = "clock_skew"
    title = "A host's clock is wrong; no job is slower for it."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Ahead on hosts of even number, behind on odd ones: detectors must handle both."""
        least, most = OFFSET_SECONDS
        sign = 1.0 if place.host % 2 == 0 else -1.0
        world.host_clock_offset_s[place.host] = sign * least * (most / least) ** strength
        return FOREVER


FAULT = ClockSkew()
