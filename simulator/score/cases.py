"""The scenarios of the scoreboard: each fault, and what only looks like one, on several clusters.

The seed decides everything else: the fabric and its shape, which hosts a job has, its sizes and the
length of its steps, where and how hard the fault strikes, and when. So a detector cannot learn one
cluster by heart, and what it is tuned on and what it is checked with differ by the seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Fault
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario, plan
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

QUIET_SECONDS = (90.0, 120.0)
"""How long all is well before a fault: detectors need a past to compare with."""
AFTER_SECONDS = 35.0
"""How long a run goes on after its fault has ended: for a little longer than a verdict may take,
see `simulator.score.marks.GRACE_NS`."""
HEALTHY_SECONDS = 300.0
"""Several checkpoints; more seeds show how rare false incidents are."""
TICK_SECONDS = 5.0
"""How often agents read, and send: the default of nearly all sources. What jobs record is exact to
the nanosecond all the same."""
SEED_END = 1 << 31

HOSTS = 16
LINE_BYTES_PER_SECOND = 50e9
"""Of every cluster here: 400 Gb/s."""

CLUSTERS = (
    ClusterSpec(
        topology="rail", hosts=HOSTS, speed="NDR", fabric=Fabric.INFINIBAND, hosts_per_leaf=8
    ),
    ClusterSpec(topology="rail", hosts=HOSTS, speed="400GbE", fabric=Fabric.ROCE, hosts_per_leaf=8),
    ClusterSpec(
        topology="fat_tree", hosts=HOSTS, speed="400GbE", fabric=Fabric.ROCE, hosts_per_leaf=4
    ),
    ClusterSpec(
        topology="dragonfly", hosts=HOSTS, speed="NDR", fabric=Fabric.INFINIBAND, hosts_per_leaf=2
    ),
)

LARGE_HOSTS = 64
LEAF_FACTOR = 4
"""From so many hosts on leaves of rails have so many times the hosts. In the other shapes all NICs
of a host are on one switch, which is full."""


def clusters(hosts: int) -> list[ClusterSpec]:
    """The same shapes with so many hosts."""
    factor = LEAF_FACTOR if hosts >= LARGE_HOSTS else 1
    factors = {"rail": factor}
    return [
        replace(
            spec,
            hosts=hosts,
            hosts_per_leaf=(spec.hosts_per_leaf or 1) * factors.get(spec.topology, 1),
        )
        for spec in CLUSTERS
    ]


COMPUTE_SECONDS = (0.7, 1.0)
"""Of a step: with its communication it lasts about a second."""
PACES = ((512, 6.0), (64, 3.0), (0, 1.0))
"""From so many hosts on steps take so many times as long: large jobs have large batches."""
JITTERS = (0.003, 0.007)
DENSE_HOSTS = (6, 7, 8)
DENSE_NETWORK_SHARES = (0.36, 0.48)
"""What reducing the gradient takes on an idle network, of a step's compute. Backward hides about
0.24 of it, so a healthy step waits for the network for 10 to 20 % of its time: a job on which the
network is neither everything nor nothing."""
PIPELINE_HOSTS = (4, 6)
PIPELINE_STAGES = 2
PIPELINE_NETWORK_SHARES = (0.24, 0.36)
"""The same. Only the last wave of backward makes gradients, so less of it is hidden."""

VARIANTS: dict[str, dict[str, tuple[int, int] | tuple[float, float]]] = {
    "healthy": {},
    "checkpoints": {"checkpoint_every_steps": (40, 90), "checkpoint_seconds": (10.0, 25.0)},
    "evaluations": {"evaluation_every_steps": (60, 120), "evaluation_seconds": (8.0, 16.0)},
    "uneven_sequences": {"imbalance": (0.05, 0.1)},
    "loader_hiccups": {"hiccup_every_steps": (40.0, 100.0), "hiccup_seconds": (0.2, 0.4)},
}
"""What healthy jobs do that looks like trouble: ranges for fields of `JobSpec`."""


def case_names() -> list[str]:
    """Every case that can be asked for: healthy ones, then the faults."""
    return [*VARIANTS, *discover()]


def make_case(name: str, seed: int) -> Scenario:
    random = np.random.default_rng([seed, *name.encode()])
    jobs = draw_jobs(random)
    if name in VARIANTS:
        jobs = tuple(replace(job, **draw_habits(name, random)) for job in jobs)
        return Scenario(
            cluster=CLUSTERS[int(random.integers(len(CLUSTERS)))],
            jobs=jobs,
            seconds=HEALTHY_SECONDS,
            tick_seconds=TICK_SECONDS,
            seed=int(random.integers(SEED_END)),
        )
    faults = discover()
    if name not in faults:
        raise SettingsError(unknown("case", name, case_names()))
    return make_faulty(faults[name], jobs, random)


def make_faulty(
    fault: Fault,
    jobs: tuple[JobSpec, ...],
    random: np.random.Generator,
    clusters: Sequence[ClusterSpec] = CLUSTERS,
) -> Scenario:
    """A quiet stretch, the fault where some job feels it, and a stretch after it."""
    seed = int(random.integers(SEED_END))
    for choice in random.permutation(len(clusters)):
        scenario = Scenario(
            cluster=clusters[choice], jobs=jobs, seed=seed, tick_seconds=TICK_SECONDS
        )
        # Which links a job uses is known to a simulation alone: its switches hash by its seed.
        cluster = Simulation(scenario).cluster
        if fault.fits(cluster):
            break
    else:
        raise SettingsError(f"{fault.name}: no cluster of the scoreboard has a place for it")
    injection = plan(fault, cluster, random, float(random.uniform(*QUIET_SECONDS)))
    ticks = np.ceil((injection.end_s + AFTER_SECONDS) / TICK_SECONDS)
    return replace(scenario, injections=(injection,), seconds=float(ticks * TICK_SECONDS))


def draw_jobs(random: np.random.Generator, hosts: int = HOSTS) -> tuple[JobSpec, ...]:
    """Two jobs side by side, anywhere in the cluster, and two idle hosts or more.

    Neighbouring hosts, as schedulers that know the fabric give them out; a job's ranks follow its
    hosts in ascending order, as workload managers sort them.
    """
    dense, piped = int(random.choice(DENSE_HOSTS)), int(random.choice(PIPELINE_HOSTS))
    dense, piped = dense * hosts // HOSTS, piped * hosts // HOSTS
    pace = next(pace for least, pace in PACES if hosts >= least)
    order = np.roll(np.arange(hosts), int(random.integers(hosts))).tolist()
    return (
        draw_job("llama-70b", order[:dense], 1, random, pace),
        draw_job("mixtral", order[dense : dense + piped], PIPELINE_STAGES, random, pace),
    )


def draw_job(
    name: str, hosts: list[int], stages: int, random: np.random.Generator, pace: float = 1.0
) -> JobSpec:
    """A job whose gradient is of a size that its network needs a while for."""
    compute_seconds = pace * float(random.uniform(*COMPUTE_SECONDS))
    shares = PIPELINE_NETWORK_SHARES if stages > 1 else DENSE_NETWORK_SHARES
    network_seconds = compute_seconds * float(random.uniform(*shares))
    copies = len(hosts) // stages
    times_sent = 2 * (copies - 1) / copies
    return JobSpec(
        name=name,
        hosts=tuple(sorted(hosts)),
        pipeline=stages,
        compute_seconds=compute_seconds,
        gradient_bytes=int(network_seconds * LINE_BYTES_PER_SECOND / times_sent),
        jitter=float(random.uniform(*JITTERS)),
    )


def draw_habits(variant: str, random: np.random.Generator) -> dict[str, Any]:
    return {
        field: type(low)(random.uniform(low, high))
        for field, (low, high) in VARIANTS[variant].items()
    }
