"""Units whose flows meet no other flow: their ends are known when they start.

On a rail-optimised network that is nearly every unit of every phase. Each goes at its own speed
until it ends, whatever starts and ends beside it, so that the engine needs no event for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.network.flows import Paths
from simulator.network.model import Solution
from simulator.pattern import Pattern
from simulator.topology.model import NO_LINK, Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Lone:
    """The units of a pattern that share no link with each other, each by itself."""

    seconds: Floats
    """For each unit: how long it sends."""
    speed: Floats
    flow_bps: Floats
    links: Ints
    """Each once; a row of ``link_table`` each (columns: SUMMED)."""
    link_unit: Ints
    link_table: Floats
    link_bursts: Floats
    nics: Ints
    nic_unit: Ints
    nic_table: Floats

    @classmethod
    def of(cls, pattern: Pattern, paths: Paths, solution: Solution) -> Lone | None:
        """By the solution for all units at once; None where one waits for another, or for ever."""
        speed, rates, nics = solution.speed[0], solution.links, solution.nics
        if (speed <= 0).any() or rates.has_queues:
            return None
        link_unit = owners(paths.path, pattern.flow_unit)
        ends = np.stack([paths.source, paths.target], axis=1)
        nic_unit = owners(ends, pattern.flow_unit)
        if link_unit is None or nic_unit is None:
            return None
        own, own_nics = rates.links < len(link_unit), nics.nics < len(nic_unit)
        own[own] = link_unit[rates.links[own]] >= 0
        own_nics[own_nics] = nic_unit[nics.nics[own_nics]] >= 0
        return cls(
            seconds=1.0 / speed,
            speed=speed,
            flow_bps=solution.flow_bps[0],
            links=rates.links[own],
            link_unit=link_unit[rates.links[own]],
            link_table=rates.table[own],
            link_bursts=rates.burst_bytes[own],
            nics=nics.nics[own_nics],
            nic_unit=nic_unit[nics.nics[own_nics]],
            nic_table=nics.table[own_nics],
        )


def owners(places: Ints, flow_unit: Ints) -> Ints | None:
    """By place: the unit whose flows use it, -1 for none; None where two units share a place.

    ``places`` has a row for each flow, NO_LINK where there is none.
    """
    flow, column = np.nonzero(places != NO_LINK)
    place, unit = places[flow, column], flow_unit[flow]
    owner = np.full(int(place.max(initial=-1)) + 1, -1, dtype=np.int32)
    owner[place] = unit
    return None if (owner[place] != unit).any() else owner


def used(paths: list[Paths], links_total: int) -> Bools:
    """Which links any of these flows crosses."""
    is_used = np.zeros(links_total, dtype=np.bool_)
    for one in paths:
        is_used[one.path[one.path != NO_LINK]] = True
    return is_used
