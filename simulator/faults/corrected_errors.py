"""A cable with many bit errors, all of which are corrected: no packet is lost.

Raw error rates of 1e-6 to 3e-5 are ordinary for long optical links; correction fails only at ten
times more.
"""

from __future__ import annotations

from collector.contract.verdict import Culprit
from simulator.faults.model import FOREVER, Cluster, Place
from simulator.faults.places import CableFault
from simulator.topology.world import World

RAW_BER_LEAST = 1e-6
"""A thousand times a good cable's."""
RAW_BER_MOST = 3e-5
"""A tenth of where losses begin."""


class CorrectedErrors(CableFault):
    """A cable makes bit errors, and all of them are corrected."""

    name = "corrected_errors"
    title = "A cable makes bit errors, and all of them are corrected."
    causes = ()
    fabric_share = 0.3

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        ratio = RAW_BER_MOST / RAW_BER_LEAST
        world.link_raw_ber[place.link] = RAW_BER_LEAST * ratio**strength
        return FOREVER


FAULT = CorrectedErrors()
