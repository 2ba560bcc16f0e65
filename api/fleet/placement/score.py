"""The score of a set of hosts: bandwidth beside running jobs, and risk. Pure.

*Expected bandwidth* of a set is that of the worst edge of its ring (`api.fleet.placement.ways`),
all slots together, when every running job sends too. *Score* is that as a share of what the best
candidate's NICs carry, times the chance that no host makes trouble, as independent risks combine.
Without a topology the score is that chance alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from api.fabric.graph import Ints
from api.fabric.spread import Doubles, Longs
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.jobs import Traffic
from api.fleet.placement.ways import Flows, Ways, ring_order

KEY_DIGITS = 6
"""Scores are ranked by their logarithm to so many digits: sums of floats must not decide who is
first, and the risks of a thousand hosts must not drown in zeros."""

WORTHLESS = 1e-300
"""A score below counts as this."""

FAINT = 1e-9
"""Of a set in which some hosts cannot reach each other: what its other edges count. It ranks such
sets behind all others, and shows the search which of them is nearer to a whole one."""

CERTAIN = 0.999
"""A risk above counts as this: certain trouble would make all sets alike."""

Key = tuple[float, int, int, int, float, tuple[int, ...]]
"""What sets are ranked by; the least is the best."""


@dataclass(frozen=True, eq=False)
class Pool:
    """The hosts that may be placed, with their risks, past and traffic."""

    floor: Floor
    traffic: Traffic
    hosts: Longs
    """Ascending."""
    risk: Doubles
    """[host of the floor]; of those that may not be placed it means nothing."""
    lemon: Doubles
    part: float
    """Of its NICs that a job uses which does not take all of a host's GPUs."""
    usable_in: Mapping[int, int]
    """How many hosts of each group may be placed."""

    def nic_sums(self) -> Doubles:
        """Bits a second that the live NICs of each usable host carry for the job."""
        link = self.floor.nic_link[self.hosts]
        sums: Doubles = np.where(link != NOWHERE, carried(self.floor, link), 0.0).sum(axis=1)
        return self.part * sums


def carried(floor: Floor, link: Ints) -> Doubles:
    """What links carry; NOWHERE carries nothing."""
    capacity: Doubles = np.append(floor.capacity, 0.0)
    return capacity[link]


@dataclass(frozen=True, eq=False)
class Scored:
    """A set and its score."""

    ring: Longs
    flows: Flows
    edges: Doubles
    share: float | None
    """None: the topology is not known, or one host sends nothing."""
    chance: float
    score: float
    key: Key

    @property
    def bandwidth(self) -> float | None:
        """Of the worst edge."""
        return float(self.edges.min()) if len(self.edges) else None

    @property
    def is_torn(self) -> bool:
        return self.bandwidth == 0

    @property
    def is_perfect(self) -> bool:
        """Whether no set could be faster, less at risk, or more isolated."""
        return self.key[0] <= 0 and self.key[2] == 0

    @property
    def is_crossing(self) -> bool:
        return bool(self.flows.is_crossing.any())


class Scale:
    """Weighs sets of one pool."""

    def __init__(self, pool: Pool, ways: Ways) -> None:
        self.pool = pool
        self._ways = ways
        self.best = float(pool.nic_sums().max(initial=0.0))
        """Bits a second that the best candidate's NICs carry for the job."""
        self._size = 2 * len(pool.floor.graph.links)
        self._is_loaded = pool.traffic.loads > 0
        self._wellness = np.log1p(-np.minimum(pool.risk, CERTAIN))
        self.links_followed = 0
        """Of all flows so far: what weighing has cost."""

    def weigh(self, hosts: Longs) -> Scored:
        pool, floor = self.pool, self.pool.floor
        ring = ring_order(floor, hosts)
        flows = self._ways.flows(ring, pool.part)
        self.links_followed += len(flows.way)
        edges = np.zeros(0)
        share = None
        if floor.is_known and len(ring) > 1:
            loads = pool.traffic.loads + flows.loads(self._size)
            rates = flows.rates(loads, floor.capacity)
            edges = np.bincount(flows.edge, rates, len(ring)).astype(np.float64)
            share = float(edges.min()) / self.best if self.best else 0.0
        chance = self.chance(ring)
        score = chance if share is None else share * chance
        faint = FAINT * chance * float(edges.mean()) / self.best if share == 0 and self.best else 0
        key = self.key(score or faint, ring, self._shared(flows))
        return Scored(ring, flows, edges, share, chance, score, key)

    def _shared(self, flows: Flows) -> int:
        if not flows.is_crossing.any():
            return 0
        return int((flows.crossed(self._size) & self._is_loaded).sum())

    def chance(self, hosts: Longs) -> float:
        """That none of the hosts makes trouble."""
        return float(np.exp(self._wellness[hosts].sum()))

    def key(self, score: float, hosts: Longs, shared: int = 0) -> Key:
        """Score, few groups, few ``shared`` links, little left of broken groups, past, names."""
        pool = self.pool
        group = pool.floor.group[hosts]
        used, counts = (each.tolist() for each in np.unique(group, return_counts=True))
        left = sum(pool.usable_in.get(number, 0) for number in used) - sum(counts)
        worth = round(math.log(max(score, WORTHLESS)), KEY_DIGITS)
        past = round(float(pool.lemon[hosts].sum()), KEY_DIGITS)
        return (-worth, len(used), shared, left, past, tuple(np.sort(hosts).tolist()))
