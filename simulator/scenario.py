"""A scenario: a cluster, its jobs, what goes wrong and when; and the truth that comes with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import Cluster, Fault, Injection
from simulator.jobs.model import JobSpec
from simulator.topology.build import ClusterSpec

START_UNIX_NS = 1_800_000_000_000_000_000
"""When scenarios begin unless somebody says otherwise: fixed, so that runs can be compared."""

LATEST_SECONDS = 1e9
"""What a fault that lasts for ever has for an end: thirty years."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that determines a run: the same scenario gives the same bytes."""

    cluster: ClusterSpec
    jobs: tuple[JobSpec, ...]
    injections: tuple[Injection, ...] = ()
    seconds: float = 600.0
    tick_seconds: float = 1.0
    """How often agents read. Ticks bound nothing else: collectives happen when they happen."""
    seed: int = 1
    start_unix_ns: int = field(default=START_UNIX_NS)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What was really wrong: what a verdict is held against. Times are unix nanoseconds."""

    fault: str
    title: str
    causes: tuple[Cause, ...]
    """Right answers, the best first; none: nobody should be blamed."""
    reason: Reason
    culprits: tuple[Culprit, ...]
    """Right names, the most exact first."""
    strength: float
    start_ns: int
    end_ns: int


def truth_of(injection: Injection, cluster: Cluster, start_unix_ns: int) -> Truth:
    """The truth of one injection."""
    fault = injection.fault
    return Truth(
        fault=fault.name,
        title=fault.title,
        causes=fault.causes,
        reason=fault.reason,
        culprits=fault.culprits(cluster, injection.place),
        strength=injection.strength,
        start_ns=start_unix_ns + round(injection.start_s * 1e9),
        end_ns=start_unix_ns + round(min(injection.end_s, LATEST_SECONDS) * 1e9),
    )


def plan(fault: Fault, cluster: Cluster, random: np.random.Generator, start_s: float) -> Injection:
    """An injection of this fault at a place, of a strength and for a time drawn by chance."""
    place = fault.choose(cluster, random)
    strength = float(random.uniform(*fault.strengths))
    seconds = float(random.uniform(*fault.seconds))
    return Injection(
        fault=fault, place=place, start_s=start_s, end_s=start_s + seconds, strength=strength
    )
