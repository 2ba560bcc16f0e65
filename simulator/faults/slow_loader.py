"""A host whose batches come late: its ranks begin every step late and are fast from then on."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import HostFault
from simulator.topology.world import World

WAIT_SECONDS = (0.05, 0.6)
"""Added to each step's wait, at strengths 0 and 1: prefetching hides less than that."""


class SlowLoader(HostFault):
    name = "slow_loader"
    title = "One host waits for its training data at every step."
    causes = (Cause.STRAGGLER,)
    reason = Reason.DATA_LOADING

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """The same at every step; the job adds its own hiccups."""
        world.host_loader_seconds[place.host] = between(WAIT_SECONDS, strength)
        return FOREVER


FAULT = SlowLoader()
