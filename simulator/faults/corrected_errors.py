"""A cable with many corrected bit errors; correction fails only at ten times more. No loss."""

from __future__ import annotations

from collector.contract.verdict import Culprit
from simulator.faults.model import FOREVER, Cluster, Place, between_logs
from simulator.faults.places import CableFault
from simulator.topology.world import World

RAW_BER_LEAST = 1e-6
"""A thousand times a good cable's."""
RAW_BER_MOST = 3e-5
"""A tenth of where losses begin."""


class CorrectedErrors(CableFault):
    name = "corrected_errors"
    title = "A cable makes bit errors, and all of them are corrected."
    causes = ()
    fabric_share = 0.3

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.link_raw_ber[place.link] = between_logs((RAW_BER_LEAST, RAW_BER_MOST), strength)
        return FOREVER


FAULT = CorrectedErrors()
