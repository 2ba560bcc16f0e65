"""A host whose batches come late: its shard lies on a slow server, its workers decode too slowly.

Its ranks begin every step late and are fast from then on.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

WAIT_SECONDS = (0.05, 0.6)
"""Added to each step's wait, at strengths 0 and 1: prefetching hides less than that."""


class SlowLoader(HostFault):
    """One host waits for its training data at every step."""

    name = "slow_loader"
    title = "One host waits for its training data at every step."
    causes = (Cause.STRAGGLER,)
    reason = Reason.DATA_LOADING

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """The same at every step; the job adds its own hiccups."""
        least, most = WAIT_SECONDS
        world.host_loader_seconds[place.host] = least + (most - least) * strength
        return FOREVER


FAULT = SlowLoader()
