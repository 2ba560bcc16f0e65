"""A host whose processes block on its disks for a part of every second: dirty pages, swapping."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

STALL_MOST = 0.5
"""Of time at strength 1: with more, a host does not answer at all."""


class PageCacheStall(HostFault):
    name = "page_cache_stall"
    title = "A host's processes keep waiting for memory and disks."
    causes = (Cause.STRAGGLER,)
    reason = Reason.HOST_STALL

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_io_stall_share[place.host] = STALL_MOST * strength
        return FOREVER


FAULT = PageCacheStall()
