"""Where flows meet by chance: several on one cable while a cable beside it is as good as idle.

Switches choose a cable by a hash or by the target, and few flows do not even out. What they chose
is known here, so that a verdict about such a meeting can be held against the truth. What a fault
makes flows do is the fault's: chance is what happens while all cables are whole and all switches
choose as they were made to.
"""

from __future__ import annotations

import numpy as np

from simulator.network.congestion import Fair, Feeding
from simulator.network.model import Meeting
from simulator.pattern import Pattern
from simulator.topology.model import Floats
from simulator.topology.world import World

FLOWS_LEAST = 2
IDLE_SHARE = 0.5
"""Of the load of the cable where flows meet: one beside it that carries no more is as good as
idle."""


def find_meetings(
    world: World, patterns: tuple[Pattern, ...], fair: Fair, feeding: Feeding
) -> tuple[Meeting, ...]:
    """Links between switches that flows of these patterns feed more than they carry.

    Traffic of no job counts beside a flow of one: that a neighbour sends is a fault, and that its
    bytes lie on this cable is chance. Among itself it slows no job.
    """
    topology = world.topology
    is_inner = feeding.congested >= topology.first_fabric_link
    is_inner &= world.link_speed_share[feeding.congested] == 1.0
    if not is_inner.any() or not world.routes_as_built():
        return ()
    uses = fair.uses
    load = np.zeros(topology.links)
    load[uses.links] = feeding.load_bps
    owner = np.repeat(np.arange(len(patterns)), [len(one.flow_unit) for one in patterns])
    found = []
    for link, excess in zip(
        feeding.congested[is_inner].tolist(), feeding.excess[is_inner].tolist(), strict=True
    ):
        flows = uses.flow[uses.links[uses.link] == link]
        flows = flows[feeding.wire_bps[flows] > 0]
        of_jobs = flows[flows < len(owner)]
        if len(of_jobs) and len(flows) >= FLOWS_LEAST and has_idle_neighbour(world, link, load):
            own = tuple(patterns[place] for place in np.unique(owner[of_jobs]).tolist())
            found.append(Meeting(link, own, excess))
    return tuple(found)


def has_idle_neighbour(world: World, link: int, load: Floats) -> bool:
    """Whether another cable of the same switch and kind carries half as much, or less."""
    topology = world.topology
    is_beside = topology.source_switch == topology.source_switch[link]
    is_beside &= topology.kind == topology.kind[link]
    is_beside[link] = False
    beside = load[is_beside]
    return bool(len(beside)) and float(beside.min()) <= IDLE_SHARE * float(load[link])
