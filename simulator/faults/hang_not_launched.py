"""A host whose training processes no longer run (stopped, deadlocked): all other ranks wait."""

from __future__ import annotations

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Place
from simulator.faults.places import HostFault, gpu_names
from simulator.topology.world import World


class HangNotLaunched(HostFault):
    name = "hang_not_launched"
    title = "The processes of one host have stopped, and all other ranks wait for them."
    causes = (Cause.HANG,)
    reason = Reason.NOT_LAUNCHED
    seconds = (120.0, 180.0)

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The host, or any of its ranks: they have all stopped."""
        per_host = cluster.topology.gpus_per_host
        gpus = range(place.host * per_host, (place.host + 1) * per_host)
        ranks = [name for gpu in gpus for name in gpu_names(cluster, gpu)]
        return (*super().culprits(cluster, place), *ranks)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Strength does not matter: nothing is launched."""
        world.host_process_is_stopped[place.host] = True
        return FOREVER


FAULT = HangNotLaunched()
