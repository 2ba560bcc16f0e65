"""A grey link: a host's cable or port loses packets without counting them, while no job uses it.

Its lights are on, its counters are still and nothing waits for it. The next job that is placed
there is slow from its first step. Only traffic shows it, so only probes find it before.
"""

from __future__ import annotations

import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Fault, Place, between_logs
from simulator.faults.places import idle_hosts, nic_names, nic_place
from simulator.topology.world import World

LOSSES = (0.01, 0.2)
"""Of packets at strengths 0 and 1, on a logarithmic scale: from what go-back-N hardly survives, a
tenth of a link's rate, to what is taken for a cable pulled halfway. R-Pingmesh (SIGCOMM 2024) found
such before jobs did."""


class GreyLink(Fault):
    """The cable of a host without a job loses packets silently, in one direction."""

    name = "grey_link"
    title = "The cable of an idle host loses packets without counting them."
    causes = (Cause.LOSSY_LINK,)
    reason = Reason.UNKNOWN
    strengths = (0.5, 1.0)

    def fits(self, cluster: Cluster) -> bool:
        return super().fits(cluster) and bool(idle_hosts(cluster))

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        topology, hosts = cluster.topology, idle_hosts(cluster)
        host = hosts[int(random.integers(len(hosts)))]
        nic = host * topology.nics_per_host + int(random.integers(topology.nics_per_host))
        link = topology.up(nic) if random.random() < 0.5 else topology.down(nic)  # noqa: PLR2004
        return nic_place(topology, nic)._replace(link=link)

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.link_loss[place.link] = between_logs(LOSSES, strength)
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The port, either end; or the host: probes know an end and not which side of its cable."""
        topology = cluster.topology
        return (*nic_names(topology, place.nic), Culprit(host=topology.host_name(place.host)))


FAULT = GreyLink()
