"""The scenarios of the scoreboard: each fault, and what only looks like one, on several clusters.

The seed decides everything else: which fabric and topology, where and how hard the fault strikes,
and when. What detectors are tuned on and what they are checked with differ by the seed alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.faults import discover
from simulator.faults.model import Cluster, Fault
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario, plan
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric

QUIET_SECONDS = (120.0, 180.0)
"""How long all is well before a fault: detectors need a past to compare with."""
AFTER_SECONDS = 45.0
"""How long a run goes on after its fault has ended."""
HEALTHY_SECONDS = 600.0
FLUSH_SECONDS = 5
"""How many ticks of a second an agent gathers into a batch, as the agent's own default."""

CLUSTERS = (
    ClusterSpec(topology="rail", hosts=16, speed="NDR", fabric=Fabric.INFINIBAND, hosts_per_leaf=8),
    ClusterSpec(topology="rail", hosts=16, speed="400GbE", fabric=Fabric.ROCE, hosts_per_leaf=8),
    ClusterSpec(
        topology="fat_tree",
        hosts=16,
        speed="400GbE",
        fabric=Fabric.ROCE,
        hosts_per_leaf=4,
        oversubscription=2.0,
    ),
    ClusterSpec(
        topology="dragonfly", hosts=16, speed="NDR", fabric=Fabric.INFINIBAND, hosts_per_leaf=2
    ),
)

JOBS = (
    JobSpec(name="llama-70b", hosts=tuple(range(8)), compute_seconds=0.8),
    JobSpec(name="mixtral", hosts=tuple(range(8, 14)), pipeline=2, compute_seconds=0.6),
)
"""Two jobs; hosts 14 and 15 are idle."""

VARIANTS = {
    "healthy": {},
    "checkpoints": {"checkpoint_every_steps": 60, "checkpoint_seconds": 20.0},
    "evaluations": {"evaluation_every_steps": 80, "evaluation_seconds": 12.0},
    "uneven_sequences": {"imbalance": 0.08},
    "loader_hiccups": {"hiccup_every_steps": 60.0, "hiccup_seconds": 0.3},
}
"""What healthy jobs do that looks like trouble: changes to `JOBS`."""


def case_names() -> list[str]:
    """Every case that can be asked for: healthy ones, then the faults."""
    return [*VARIANTS, *discover()]


def make_case(name: str, seed: int) -> Scenario:
    """The scenario of this case with this seed."""
    random = np.random.default_rng([seed, *name.encode()])
    if name in VARIANTS:
        jobs = tuple(replace(job, **VARIANTS[name]) for job in JOBS)
        cluster = CLUSTERS[int(random.integers(len(CLUSTERS)))]
        return Scenario(cluster=cluster, jobs=jobs, seconds=HEALTHY_SECONDS, seed=seed)
    faults = discover()
    if name not in faults:
        raise SettingsError(unknown("case", name, case_names()))
    return faulty(faults[name], seed, random)


def faulty(fault: Fault, seed: int, random: np.random.Generator) -> Scenario:
    """A quiet stretch, the fault, and a stretch after it."""
    possible = [one for one in CLUSTERS if one.fabric in fault.fabrics]
    spec = possible[int(random.integers(len(possible)))]
    cluster = Cluster(build(spec), JOBS)
    injection = plan(fault, cluster, random, float(random.uniform(*QUIET_SECONDS)))
    return Scenario(
        cluster=spec,
        jobs=JOBS,
        injections=(injection,),
        seconds=float(np.ceil(injection.end_s + AFTER_SECONDS)),
        seed=seed,
    )
