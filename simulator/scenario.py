"""A scenario: a cluster, its jobs, its faults and their times; and the ground truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from collector.contract.verdict import Cause, Culprit, Reason
from simulator.faults.model import Cluster, Fault, Injection
from simulator.jobs.model import JobSpec
from simulator.topology.build import ClusterSpec

START_UNIX_NS = 1_800_000_000_000_000_000
"""Default start of scenarios: fixed, so that runs can be compared."""

LATEST_SECONDS = 1e9
"""End of a fault that lasts for ever: thirty years."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that determines a run: the same scenario gives the same bytes."""

    cluster: ClusterSpec
    jobs: tuple[JobSpec, ...]
    injections: tuple[Injection, ...] = ()
    seconds: float = 600.0
    tick_seconds: float = 1.0
    """How often agents read. Collectives do not align with ticks."""
    seed: int = 1
    start_unix_ns: int = field(default=START_UNIX_NS)


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The ground truth that verdicts are compared with. Times are unix nanoseconds."""

    fault: str
    title: str
    causes: tuple[Cause, ...]
    """Right answers, the best first. Empty: a verdict must blame no culprit."""
    reason: Reason
    culprits: tuple[Culprit, ...]
    """Right names, the most exact first."""
    strength: float
    start_ns: int
    end_ns: int


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """Flows that met by chance on one cable between switches while one beside it was idle.

    No fault, and yet the truth: who says that this port is congested is right.
    """

    culprits: tuple[Culprit, ...]
    """The port where the flows met, and the other end of its cable."""
    jobs: tuple[str, ...]
    """Whose flows these were."""
    start_ns: int
    end_ns: int
    lost_share: float
    """Of what the flows would have brought in this time, as a mean over all of it."""


def truth_of(injection: Injection, cluster: Cluster, start_unix_ns: int) -> Truth:
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
    place = fault.choose(cluster, random)
    strength = float(random.uniform(*fault.strengths))
    seconds = float(random.uniform(*fault.seconds))
    return Injection(
        fault=fault, place=place, start_s=start_s, end_s=start_s + seconds, strength=strength
    )
