"""A host that follows a time server that is wrong: its daemon says that all is well.

No job is slower. Only the host's collectives show that its clock is not where the daemon sees it.
"""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place, between_logs
from simulator.faults.places import HostFault
from simulator.topology.world import World

OFF_SECONDS = (0.02, 2.0)
"""At strengths 0 and 1, on a logarithmic scale: a server behind an uneven path, and one whose own
clock nothing keeps."""


class WrongTimeServer(HostFault):
    name = "wrong_time_server"
    title = "A host's time server is wrong, and the host follows it; no job is slower for it."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Ahead on hosts of even number, behind on odd ones."""
        sign = 1.0 if place.host % 2 == 0 else -1.0
        off_s = sign * between_logs(OFF_SECONDS, strength)
        world.host_time_server_off_s[place.host] = off_s
        world.host_clock_offset_s[place.host] = off_s
        return FOREVER


FAULT = WrongTimeServer()
