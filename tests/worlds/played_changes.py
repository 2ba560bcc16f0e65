"""Clusters played before and after a change, and what a service would have seen of them before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from alerts.traffic.flows import messages_of, sums_of
from alerts.window.model import JobWindow, Window
from api.fabric.tiers import with_tiers
from api.fleet.what_if.change import changed_topology
from api.fleet.what_if.load import Fabric
from api.fleet.what_if.model import Ask, JobSeen, Outlook
from api.fleet.what_if.predict import predict
from collector.contract.identity import LinkId
from collector.contract.units import NS
from collector.contract.verdict import Cause
from simulator.engine import Simulation
from simulator.faults.model import FOREVER, Cluster, Fault, Injection, Place
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario
from simulator.score.direct.windows import DirectWindows
from simulator.topology import model as simulated
from simulator.topology.world import World
from tests.worlds.topologies import port_of, topology_of

STARTED_S = 8.0
"""By then every job has built its communicators and has made a first step."""


class Altered(Fault):
    """No fault: the cluster as it would be with the change."""

    name = "altered"
    title = "The cluster is another one."
    causes: ClassVar[tuple[Cause, ...]] = ()

    def __init__(self, alter: Callable[[World], object]) -> None:
        self._alter = alter

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """Nowhere in particular."""
        del cluster, random
        return Place()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Change it for good."""
        del place, strength, elapsed_s
        self._alter(world)
        return FOREVER

    def culprits(self, cluster: Cluster, place: Place) -> tuple[()]:
        """None."""
        del cluster, place
        return ()


class Seen(NamedTuple):
    """What a service has read of a played cluster, and how long steps truly took."""

    topology: simulated.Topology
    jobs: list[JobSeen]
    step_seconds: dict[str, float]


def play(scenario: Scenario, alter: Callable[[World], object] | None = None) -> Seen:
    """Play it all; with a change, it is there from the beginning."""
    simulation = Simulation(scenario)
    if alter is not None:
        simulation.inject(Injection(Altered(alter), Place(), 0.0, scenario.seconds * 2, 1.0))
    start_ns = scenario.start_unix_ns
    windows = DirectWindows(simulation.topology, start_ns)
    reporter = Reporter(simulation.topology, "lab", start_ns, seed=1, wanted=windows.wanted)
    lengths: dict[str, list[float]] = {}
    for snapshot in simulation.run():
        now_ns = start_ns + round(snapshot.time_s * NS)
        windows.take(snapshot, list(reporter.unpacked(snapshot)), now_ns)
        for step in snapshot.steps:
            if float(step.start_s.min()) > STARTED_S:
                lengths.setdefault(step.job, []).append(float(np.median(step.end_s - step.start_s)))
    end_ns = start_ns + round(scenario.seconds * NS)
    window = windows.read(start_ns + round(STARTED_S * NS), end_ns)
    truth = {job: float(np.median(found)) for job, found in lengths.items()}
    return Seen(simulation.topology, jobs_of(window, scenario.seconds - STARTED_S), truth)


def jobs_of(window: Window, seconds: float) -> list[JobSeen]:
    """The jobs of a window as they are read from a store."""
    return [job_of(job, seconds) for job in window.jobs]


def job_of(job: JobWindow, seconds: float) -> JobSeen:
    """Its operations added up; its step is the median of those that were inferred."""
    lengths = [one.end_ns - one.start_ns for one in job.steps]
    return JobSeen(
        job=job.job,
        title=job.job,
        ranks=job.ranks,
        communicators=job.communicators,
        sums=[sums_of(job.operations)],
        messages=messages_of(job.records),
        seconds=seconds,
        step_seconds=float(np.median(lengths)) / NS if lengths else None,
    )


def outlooks(seen: Seen, ask: Ask) -> dict[str, Outlook]:
    """The answer to a question, by job."""
    topology = with_tiers(topology_of(seen.topology))
    after = changed_topology(topology, ask)
    found = predict(Fabric.of(topology), Fabric.of(after), seen.jobs, ask)
    return {one.job: one for one in found}


def link_id(cluster: simulated.Topology, link: int) -> LinkId:
    """The name of a simulated cable."""
    return LinkId.between(port_of(cluster, link), port_of(cluster, int(cluster.reverse[link])))


def both_ways(cluster: simulated.Topology, links: Sequence[int]) -> list[int]:
    """With the other direction of each cable."""
    return [way for link in links for way in (link, int(cluster.reverse[link]))]
