"""One host's way to the file server is slow: its ranks wait for data, its peers' do not."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between
from simulator.faults.places import HostFault
from simulator.topology.world import World

RESPONSE_SECONDS = (0.01, 0.1)
"""To answer a read of this host, at strengths 0 and 1: a bad route, packets lost on the way."""


class SlowMount(HostFault):
    name = "slow_mount"
    title = "The file server answers one host slowly, and all others at once."
    causes = (Cause.STRAGGLER,)
    reason = Reason.STORAGE

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_storage_seconds[place.host] = between(RESPONSE_SECONDS, strength)
        return FOREVER


FAULT = SlowMount()
