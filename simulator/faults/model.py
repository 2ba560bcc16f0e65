"""A fault: where it strikes, which knobs it turns, and the verdicts that are right."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.jobs.model import JobSpec
from simulator.topology.model import Ints, Topology
from simulator.topology.world import World

FOREVER = math.inf


def between(ends: tuple[float, float], strength: float) -> float:
    """The value at ``strength``, given those at strengths 0 and 1."""
    return ends[0] + (ends[1] - ends[0]) * strength


def between_logs(ends: tuple[float, float], strength: float) -> float:
    """As `between`, on a logarithmic scale."""
    return ends[0] * math.pow(ends[1] / ends[0], strength)


class Place(NamedTuple):
    """Where a fault strikes; -1 where it does not apply. Numbers as in `Topology`."""

    host: int = -1
    nic: int = -1
    gpu: int = -1
    link: int = -1
    switch: int = -1
    peers: tuple[int, ...] = ()
    """NICs of other hosts that take part: the senders of neighbour traffic."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """What a fault may read to choose its place: it must hit a job that becomes slower."""

    topology: Topology
    jobs: tuple[JobSpec, ...]
    used_links: Ints | None = None
    """Directed links that the jobs' flows take, where the caller has computed them; without it the
    choice of a link between switches is a guess from the cabling."""


class Fault(abc.ABC):
    """One kind of fault. A file in this folder holds one subclass and ``FAULT = ThatClass()``.

    A fault changes knobs of the world and nothing else: no counter, no job, no verdict. The models
    decide what the counters then show.
    """

    name: ClassVar[str]
    """As on the command line: `slow_nic`."""
    title: ClassVar[str]
    """One plain sentence: what has happened."""
    causes: ClassVar[tuple[Cause, ...]]
    """Verdicts that are right, the best first. Empty: not a fault, though it looks like one."""
    reason: ClassVar[Reason] = Reason.UNKNOWN
    strengths: ClassVar[tuple[float, float]] = (0.5, 1.0)
    """The range that scenarios draw from: 0 is nothing, 1 is the worst."""
    seconds: ClassVar[tuple[float, float]] = (60.0, 120.0)
    """Range of its duration, unless a scenario sets one."""
    fabrics: ClassVar[tuple[str, ...]] = ("infiniband", "roce")

    def fits(self, cluster: Cluster) -> bool:
        """Whether this cluster has a place for it: an idle host, a second tier."""
        return cluster.topology.fabric.value in self.fabrics

    @abc.abstractmethod
    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place: ...

    @abc.abstractmethod
    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Set the knobs on a world just reset; returns when they change again, or FOREVER."""

    @abc.abstractmethod
    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """The culprits that a right verdict may name, the most exact first."""


@dataclass(frozen=True, eq=False)
class Injection:
    """A fault at a place and a time: one line of a scenario, and its ground truth."""

    fault: Fault
    place: Place
    start_s: float
    end_s: float
    strength: float
