"""A NIC that cannot write to memory what arrives: address translation misses, a slow host bridge.

Its receive buffer fills and it pauses its switch; that port's queue fills, and the switch pauses
the senders. The root sends pause frames and receives none. On InfiniBand the same happens with
credits that do not come back.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import NicFault
from simulator.topology.world import World

WORST_LOSS = 0.92
"""Of line rate that the NIC cannot take at strength 1."""


class SlowReceiver(NicFault):
    name = "slow_receiver"
    title = "A NIC cannot take what arrives and makes its senders stop."
    causes = (Cause.PAUSE_STORM, Cause.SLOW_LINK)
    reason = Reason.NIC
    strengths = (0.75, 1.0)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.nic_receive_share[place.nic] = 1.0 - WORST_LOSS * strength
        return FOREVER


FAULT = SlowReceiver()
