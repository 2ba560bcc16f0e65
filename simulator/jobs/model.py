"""A job's specification, and the seam between a job and the network."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.pattern import Algorithm, Pattern
from simulator.topology.model import Bools, Floats


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A training job as its owner would describe it.

    Sizes multiply to the number of GPUs: ``tensor * data * pipeline`` is hosts x GPUs per host, and
    ``expert`` divides ``data`` (experts are spread over data-parallel ranks). Ranks are laid out
    tensor first, then data, then pipeline.
    """

    name: str
    hosts: tuple[int, ...]
    tensor: int = 8
    pipeline: int = 1
    expert: int = 1
    gradient_bytes: int = 1 << 30
    """Of one rank, reduced over its data-parallel group at every step."""
    buckets: int = 4
    """Pieces that the gradient is reduced in, each as soon as backward has produced it."""
    activation_bytes: int = 64 << 20
    """Of one microbatch, between stages, or in one tensor-parallel all-reduce."""
    expert_bytes: int = 128 << 20
    """That one rank contributes to an all-to-all."""
    gather_bytes: int = 0
    """Bytes that each rank sends to all others of its data-parallel group at every step, after the
    gradient: inputs of a contrastive loss, statistics of experts. 0: nothing."""
    tree_bytes_max: int = 4 << 20
    """Smaller all-reduces between hosts go by tree: there latency counts, and a tree's grows with
    the logarithm of the hosts. NCCL's tuning model crosses over between 1 and 16 MiB."""
    large_algorithm: Algorithm = Algorithm.RING
    """How larger all-reduces between hosts go (NCCL_ALGO); not ``tree``, which is a question of
    ``tree_bytes_max``, nor ``direct``."""
    shares_loss: bool = True
    """Ranks all-reduce their loss at the end of a step, which aligns them for the next."""
    microbatches: int = 4
    compute_seconds: float = 0.8
    """Of one step on one GPU at its top clock, without any communication."""
    is_sharded: bool = False
    """Reduce-scatter and all-gather (ZeRO, FSDP) in place of all-reduce."""
    jitter: float = 0.004
    """Standard deviation of a rank's compute time from step to step, relative."""
    imbalance: float = 0.0
    """The same for sequence length: which rank gets the long ones changes at every step."""
    hiccup_every_steps: float = 400.0
    """Mean distance between a rank's small data-loading hiccups (0: none)."""
    hiccup_seconds: float = 0.05
    checkpoint_every_steps: int = 0
    checkpoint_seconds: float = 20.0
    evaluation_every_steps: int = 0
    evaluation_seconds: float = 15.0
    start_s: float = 0.0
    startup_seconds: float = 5.0
    """Between the start and the first step: loading, compiling, building communicators."""
    steps: int = 0
    """0: until the scenario ends."""
    watchdog_seconds: float = 60.0
    """How long a collective may hang before every rank writes a Flight Recorder dump."""

    def rank_of_gpu(self, gpu: int, gpus_per_host: int) -> int:
        """The rank on this GPU of the cluster: hosts in their order, then the GPUs of each."""
        host, index = divmod(gpu, gpus_per_host)
        return self.hosts.index(host) * gpus_per_host + index


@dataclass(eq=False)
class Phase:
    """A collective of all units of a pattern that is about to use the network.

    The job makes it with the ranks' entries; the engine starts each unit at ``start_s`` and calls
    `Job.finish` when the last one has ended. An entry of infinity: that rank cannot launch it now;
    the engine calls `Job.revise` when the world changes.
    """

    pattern: Pattern
    entry_s: Floats
    """[units, ranks of a unit]"""
    start_s: Floats
    """For each unit: when its last rank has entered."""
    is_stuck: Bools
    """For each unit: all ranks have entered, and a dead GPU keeps it from ever ending."""
    floor_seconds: Floats
    """For each unit: its least duration, with what is left of NVLink in its hosts."""
