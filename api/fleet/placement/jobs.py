"""What running jobs put on the fabric: rings by rank that send all the time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from api.data.inventory.placing import RunningPlace
from api.fabric.spread import Bools, Doubles, Longs
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.ways import Ways


@dataclass(frozen=True, eq=False)
class RunningJob:
    """A job and where it sends."""

    job: str
    title: str
    hosts: Longs
    leaves: Bools
    """[switch] some NIC of it hangs there."""
    crossed: Longs
    """Directed links between switches."""
    load: Doubles
    """Bits a second on each of these."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """All running jobs, and their total load on links."""

    jobs: tuple[RunningJob, ...]
    loads: Doubles
    """[directed link]"""
    is_busy: Bools
    """[host]"""


def traffic_of(floor: Floor, ways: Ways, places: Sequence[RunningPlace]) -> Traffic:
    size = 2 * len(floor.graph.links)
    total = np.zeros(size)
    is_busy = np.zeros(len(floor.hosts), dtype=bool)
    jobs: list[RunningJob] = []
    for (job, title), some in groupby(places, key=lambda place: (place.job, place.title)):
        ring = ring_of(floor, list(some))
        flows = ways.flows(ring)
        loads = flows.loads(size)
        total += loads
        is_busy[ring] = True
        crossed = np.flatnonzero(flows.crossed(size))
        jobs.append(RunningJob(job, title, ring, leaves_of(floor, ring), crossed, loads[crossed]))
    return Traffic(tuple(jobs), total, is_busy)


def ring_of(floor: Floor, places: Sequence[RunningPlace]) -> Longs:
    """A job's hosts in the order of their lowest ranks; those without one last, by name."""
    known = [
        (place.first_rank is None, place.first_rank or 0, floor.number[place.host])
        for place in places
        if place.host in floor.number
    ]
    return np.array([number for *_, number in sorted(known)], dtype=np.int64)


def leaves_of(floor: Floor, hosts: Longs) -> Bools:
    """The switches that any live NIC of these hosts hangs on."""
    found = np.zeros(len(floor.graph.switches), dtype=bool)
    leaf = floor.nic_leaf[hosts]
    found[leaf[leaf != NOWHERE]] = True
    return found
