"""A switch above the leaves that loses packets without counting them: a broken chip or its memory.

No port reports an error. The only trace is that flows over this switch are sent again, and that all
slow ones have it in common.
"""

from __future__ import annotations

import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import FOREVER, Cluster, Fault, Place, between_logs
from simulator.faults.places import (
    choose_nic,
    crossed_links,
    nic_names,
    nic_place,
    switch_port_names,
)
from simulator.topology.world import World

LOSSES = (1e-4, 1e-2)
"""Of packets at strengths 0 and 1, on a logarithmic scale. A loss repeats all that is in flight, or
waits for a timer, so one in a thousand halves a flow's rate and one in a hundred leaves a tenth."""


class SpineLoss(Fault):
    """A switch loses packets silently, on all its links to other switches."""

    name = "spine_loss"
    title = "A switch loses packets without counting them."
    causes = (Cause.LOSSY_LINK,)
    reason = Reason.SWITCH
    strengths = (0.6, 1.0)

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """A switch that ring neighbours' traffic passes; one NIC's leaf port where none does."""
        topology = cluster.topology
        links = crossed_links(cluster)
        if len(links):
            link = int(links[random.integers(len(links))])
            return Place(link=link, switch=int(topology.target_switch[link]))
        nic = choose_nic(cluster, random)
        return nic_place(topology, nic)._replace(link=topology.down(nic))

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        topology = world.topology
        loss = between_logs(LOSSES, strength)
        if place.switch < 0:
            world.link_loss[place.link] = loss
            return FOREVER
        # Half on the way in and half on the way out: a packet that passes meets both.
        is_fabric = np.arange(topology.links) >= topology.first_fabric_link
        touches = (topology.source_switch == place.switch) | (
            topology.target_switch == place.switch
        )
        world.link_loss[is_fabric & touches] = loss / 2
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        topology = cluster.topology
        if place.switch < 0:
            return nic_names(topology, place.nic)
        is_fabric = np.arange(topology.links) >= topology.first_fabric_link
        own = np.flatnonzero(is_fabric & (topology.source_switch == place.switch))
        ports = switch_port_names(topology, *own, *topology.reverse[own])
        return (Culprit(switch=topology.switches[place.switch].name), *ports)


FAULT = SpineLoss()
