"""Watches in which nothing is wrong: 512 GPUs, jobs that come and go, and what looks like trouble.

Checkpoints, evaluation passes, uneven sequences and pauses of loaders are habits of the jobs. Jobs
end and others begin on their hosts, with a warm-up. Beside them agents are redeployed, hosts
reboot, clocks are set or drift, telemetry is lost, ports of idle hosts are maintained, an aisle is
warm, a neighbour sends for a moment. Any verdict is wrong.
"""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import numpy as np

from collector.contract.errors import FabricscopeError
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.score.cases import LINE_BYTES_PER_SECOND, SEED_END
from simulator.score.direct.play import play_directly
from simulator.score.marks import Run
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

HOSTS = 64
POD = 32
"""Hosts on one leaf of each rail: jobs stay on theirs, so that none shares a cable with another.
Jobs that do slow each other down now and then, which is congestion and no peace."""
TICK_SECONDS = 10.0
"""How often agents report: half as often as by default, which halves the cost."""
QUIET_SECONDS = 60.0
"""Between looks while all is quiet."""
CALM_SECONDS = 30.0
"""Between looks while the judge makes nothing of what is found: a verdict must stand for so long to
be seen for certain."""
BENIGN_EVERY_SECONDS = 1_200.0
BENIGN_SECONDS = (60.0, 300.0)
JOB_SECONDS = (2_400.0, 7_200.0)
BREAK_SECONDS = (30.0, 240.0)
STEP_SECONDS = (3.0, 12.0)
NETWORK_SHARES = (0.2, 0.45)
SIZES = ((24, 32), (8, 16), (4, 8), (2, 6))
"""Hosts of the jobs side by side, at least and at most; the first has a pod of its own."""

CLUSTERS = (
    ClusterSpec(
        topology="rail", hosts=HOSTS, speed="400GbE", fabric=Fabric.ROCE, hosts_per_leaf=POD
    ),
    ClusterSpec(
        topology="rail", hosts=HOSTS, speed="NDR", fabric=Fabric.INFINIBAND, hosts_per_leaf=POD
    ),
)


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Some hours in peace, by what determines them."""

    seed: int
    hours: float


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A watch that was played; every saying in it is false."""

    watch: Watch
    fabric: str
    run: Run
    gpu_days: float
    cpu_seconds: float


def make_watch(watch: Watch) -> Scenario:
    random = np.random.default_rng([watch.seed, *b"peace"])
    seconds = round(watch.hours * 3_600 / TICK_SECONDS) * TICK_SECONDS
    scenario = Scenario(
        cluster=CLUSTERS[watch.seed % len(CLUSTERS)],
        jobs=tuple(draw_jobs(seconds, random)),
        seconds=seconds,
        tick_seconds=TICK_SECONDS,
        seed=int(random.integers(SEED_END)),
    )
    return replace(scenario, injections=tuple(draw_benign(scenario, random)))


def draw_jobs(seconds: float, random: np.random.Generator) -> list[JobSpec]:
    """One job after the other on each share of the hosts."""
    jobs: list[JobSpec] = []
    first, pod_end = 0, POD
    for slot, (least, most) in enumerate(SIZES):
        size = int(random.integers(least, most + 1)) // 2 * 2
        if slot == 1:
            first, pod_end = POD, HOSTS
        hosts = tuple(range(first, min(first + size, pod_end)))
        first += size
        start = float(random.uniform(0.0, 60.0))
        number = 0
        while start < seconds - JOB_SECONDS[0] / 4 and len(hosts) > 1:
            job = draw_job(f"job-{slot}-{number}", hosts, start, random)
            jobs.append(job)
            start += float(random.uniform(*JOB_SECONDS)) + float(random.uniform(*BREAK_SECONDS))
            # It ends with a step: as many as fit before the next one begins.
            steps = int((start - job.start_s - job.startup_seconds) / (1.6 * job.compute_seconds))
            jobs[-1] = replace(job, steps=max(50, steps))
            start = max(
                start, job.start_s + job.startup_seconds + 2.2 * steps * job.compute_seconds
            )
            if number % 2:
                hosts = hosts[: max(2, len(hosts) - 2)]  # the next one is smaller: an elastic job
            number += 1
    return jobs


def draw_job(
    name: str, hosts: tuple[int, ...], start: float, random: np.random.Generator
) -> JobSpec:
    compute = float(random.uniform(*STEP_SECONDS))
    stages = 2 if len(hosts) % 2 == 0 and random.random() < 0.3 else 1  # noqa: PLR2004
    copies = max(2, len(hosts) // stages)
    network = compute * float(random.uniform(*NETWORK_SHARES))
    return JobSpec(
        name=name,
        hosts=hosts,
        pipeline=stages if len(hosts) // stages > 1 else 1,
        compute_seconds=compute,
        gradient_bytes=int(network * LINE_BYTES_PER_SECOND / (2 * (copies - 1) / copies)),
        jitter=float(random.uniform(0.002, 0.01)),
        imbalance=float(random.choice([0.0, 0.03, 0.08])),
        hiccup_every_steps=float(random.uniform(60.0, 400.0)),
        hiccup_seconds=float(random.uniform(0.05, 0.5)),
        checkpoint_every_steps=int(random.integers(40, 200)),
        checkpoint_seconds=float(random.uniform(5.0, 60.0)),
        evaluation_every_steps=int(random.integers(60, 300)),
        evaluation_seconds=float(random.uniform(10.0, 60.0)),
        is_sharded=bool(random.random() < 0.3),  # noqa: PLR2004
        start_s=start,
        startup_seconds=float(random.uniform(5.0, 60.0)),
    )


def draw_benign(scenario: Scenario, random: np.random.Generator) -> list[Injection]:
    cluster = Simulation(scenario).cluster
    kinds = [one for one in discover().values() if not one.causes and one.fits(cluster)]
    count = int(random.poisson(scenario.seconds / BENIGN_EVERY_SECONDS))
    found = []
    for _ in range(count):
        fault = kinds[int(random.integers(len(kinds)))]
        start = float(random.uniform(120.0, max(121.0, scenario.seconds - BENIGN_SECONDS[1])))
        found.append(
            Injection(
                fault=fault,
                place=fault.choose(cluster, random),
                start_s=start,
                end_s=start + float(random.uniform(*BENIGN_SECONDS)),
                strength=float(random.uniform(*fault.strengths)),
            )
        )
    return sorted(found, key=lambda one: one.start_s)


def play_watch(watch: Watch) -> Watched:
    started = time.process_time()
    scenario = make_watch(watch)
    simulation = Simulation(scenario)
    run = Run(
        case="peace",
        seed=watch.seed,
        seconds=scenario.seconds,
        truths=simulation.truths(),
        sayings=[],
    )
    try:
        sayings = play_directly(simulation, quiet_seconds=QUIET_SECONDS, calm_seconds=CALM_SECONDS)
        run = msgspec.structs.replace(run, sayings=sayings, collisions=simulation.collisions())
    except FabricscopeError as error:
        run = msgspec.structs.replace(run, error=str(error))
    return Watched(
        watch=watch,
        fabric=scenario.cluster.fabric.value,
        run=run,
        gpu_days=scenario.seconds / 86_400 * HOSTS * scenario.cluster.gpus_per_host,
        cpu_seconds=round(time.process_time() - started, 2),
    )
