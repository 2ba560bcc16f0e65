"""A cable with more bit errors than forward error correction can correct.

Links of 100 Gb/s a lane run with RS(544,514): it corrects 15 wrong symbols of 10 bits in each
block. Up to a raw error rate of about 2.4e-4 hardly a block is lost; from 4e-4 on losses can be
counted, and at 1.2e-3 about one packet in a hundred is damaged. Each one costs a retransmission of
all that was in flight behind it.
"""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place, between_logs
from simulator.faults.places import CableFault
from simulator.topology.world import World

RAW_BER_LEAST = 4e-4
"""Where correction begins to fail: a lost block every ten seconds at 400 Gb/s."""
RAW_BER_MOST = 1.2e-3
"""Worse cables do not stay up: the port's own monitor takes the link down."""


class BadCable(CableFault):
    name = "bad_cable"
    title = "A cable damages packets, and they are sent again."
    causes = (Cause.LOSSY_LINK,)
    reason = Reason.CABLE
    strengths = (0.9, 1.0)
    fabric_share = 0.3

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """One direction: a dirty end face or a weak laser spoils what is sent through it."""
        world.link_raw_ber[place.link] = between_logs((RAW_BER_LEAST, RAW_BER_MOST), strength)
        return FOREVER


FAULT = BadCable()
