"""An optic that dies over six hours: its eye closes, and correction hides it until the last one.

Light goes at an even pace. For five hours every wrong bit is corrected and no job feels anything;
then codewords are lost and packets are sent again, and at last the port's own monitor takes the
link down again and again. Scenarios draw minutes of its early life, in which no verdict is right:
an optic that loses nothing slows no job. `simulator.network.optics` has the same physics for hours
of readings without a cluster around them.
"""

from __future__ import annotations

from collector.contract.verdict import Culprit
from simulator.faults.bad_cable import RAW_BER_MOST
from simulator.faults.model import Cluster, Place
from simulator.faults.places import CableFault, flaps
from simulator.network.optics import closing_eye
from simulator.topology.world import World

LIFE_SECONDS = 6 * 3_600.0
STEP_SECONDS = 60.0
"""How often its error rate is set anew."""
DOWN_SECONDS, PERIOD_SECONDS = 4.0, 90.0
"""Of a link that is beyond correction: down while it trains, then up until its monitor gives up."""


class DyingOptic(CableFault):
    name = "dying_optic"
    title = "An optic is dying, and all of its bit errors are still corrected."
    causes = ()
    fabric_share = 0.3

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        return ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """A strength below 1 stops that far on the way: an optic that is replaced in time."""
        share = strength * (elapsed_s + STEP_SECONDS) / LIFE_SECONDS
        healthy = float(world.link_raw_ber[place.link])
        world.link_raw_ber[place.link] = closing_eye(healthy, RAW_BER_MOST, share)
        if share < 1.0:
            return elapsed_s + STEP_SECONDS
        return flaps(world, place, elapsed_s, DOWN_SECONDS, PERIOD_SECONDS)


FAULT = DyingOptic()
