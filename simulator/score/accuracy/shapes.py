"""Jobs of other shapes, and telemetry of which parts are missing: what can be told from what.

Each shape and each part of the telemetry meets the same faults, one at a time, at a strength that
is drawn as on the scoreboard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from simulator.jobs.model import JobSpec
from simulator.pattern import Algorithm
from simulator.score.accuracy.trials import Played, Trial, play_trial
from simulator.score.handicap import Handicap

SHAPE, SIGHT = "shape", "sight"
"""Kinds of trials."""
FAULTS = (
    "slow_nic",
    "bad_cable",
    "link_flap",
    "power_throttle",
    "host_steal",
    "hang_not_launched",
)
"""One of each family: the NIC, the cable, the port, the GPU, the host, the program."""
ACCUMULATED = 4
LATE_SECONDS = 45.0
HEADS = 8
"""NICs of a host, which carry as much each as one does for a ring of one GPU of each host. Switches
that add up take and give each byte once, and a ring sends it twice."""
ALWAYS_TREES = 1 << 60
"""Bytes, below which an all-reduce goes by tree: NCCL_ALGO=Tree."""


def in_pipeline(job: JobSpec) -> JobSpec:
    stages = 4 if len(job.hosts) % 4 == 0 else 2 if len(job.hosts) % 2 == 0 else 1
    return replace(job, pipeline=stages, microbatches=8)


def reduced_by(algorithm: Algorithm) -> Callable[[JobSpec], JobSpec]:
    """Every GPU has the whole model: then gradients are added up in hosts as well as between them.

    All NICs of a host share the bytes of each all-reduce.
    """
    heads = HEADS if algorithm.is_tree else 2 * HEADS
    return lambda job: replace(
        job,
        pipeline=1,
        tensor=1,
        large_algorithm=algorithm,
        gradient_bytes=heads * job.gradient_bytes,
    )


def joined_late(job: JobSpec) -> JobSpec:
    """The second job of two begins when the first one runs."""
    return replace(job, start_s=LATE_SECONDS) if job.name == "mixtral" else job


SHAPES: Mapping[str, Callable[[JobSpec], JobSpec]] = {
    "data parallel": lambda job: replace(job, pipeline=1),
    "sharded (ZeRO, FSDP)": lambda job: replace(job, pipeline=1, is_sharded=True),
    "pipeline": in_pipeline,
    "experts": lambda job: replace(job, pipeline=1, expert=2),
    "trees": lambda job: replace(job, pipeline=1, tree_bytes_max=ALWAYS_TREES),
    "NVLS tree": reduced_by(Algorithm.NVLS_TREE),
    "NVLS": reduced_by(Algorithm.NVLS),
    "CollNet, direct": reduced_by(Algorithm.COLLNET_DIRECT),
    "CollNet, chain": reduced_by(Algorithm.COLLNET_CHAIN),
    "gathers beside the gradient": lambda job: replace(job, gather_bytes=32 << 20),
    "gradient accumulation": lambda job: replace(
        job, compute_seconds=ACCUMULATED * job.compute_seconds
    ),
    "dynamic batches": lambda job: replace(job, imbalance=0.08),
    "two hosts": lambda job: replace(job, hosts=job.hosts[:2], pipeline=1),
    "begins late": joined_late,
}
SIGHTS: Mapping[str, Handicap] = {
    "all of it": Handicap.NONE,
    "NCCL alone": Handicap.ONLY_NCCL,
    "ports alone": Handicap.ONLY_PORTS,
    "GPUs and hosts alone": Handicap.ONLY_HOSTS,
    "no ports": Handicap.NO_FABRIC,
    "no NCCL": Handicap.NO_NCCL,
    "a fifth of the hosts silent": Handicap.FIFTH_SILENT,
}


def shaped(jobs: Sequence[JobSpec], shape: str) -> tuple[JobSpec, ...]:
    """Experts are spread over pairs of data-parallel ranks: an odd number of hosts has none."""
    changed = tuple(SHAPES[shape](job) for job in jobs)
    return tuple(
        replace(job, hosts=job.hosts[:-1]) if job.expert > 1 and len(job.hosts) % 2 else job
        for job in changed
    )


def all_shapes(seeds: Sequence[int]) -> list[Trial]:
    shapes = [{"kind": SHAPE, "shape": name} for name in SHAPES]
    sights = [{"kind": SIGHT, "shape": name, "without": SIGHTS[name]} for name in SIGHTS]
    return [
        Trial(faults=(fault,), seed=seed, **given)  # type: ignore[arg-type]
        for seed in seeds
        for given in (*shapes, *sights)
        for fault in FAULTS
    ]


def play_shape(trial: Trial) -> Played:
    if trial.kind != SHAPE:
        return play_trial(trial)
    return play_trial(trial, lambda jobs: shaped(jobs, trial.shape))
