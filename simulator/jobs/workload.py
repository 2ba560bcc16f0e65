"""How long a rank works by itself: loading data, computing, and delays of its host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.jobs.layout import Layout
from simulator.jobs.model import JobSpec
from simulator.topology.model import Floats, Ints
from simulator.topology.world import STORAGE_SECONDS, World

OPTIMIZER_SHARE = 0.04
"""Of a step's compute: Adam's update is bound by memory and short."""
FORWARD_SHARE = (1.0 - OPTIMIZER_SHARE) / 3.0
"""Backward computes two products for each one of forward."""
BACKWARD_SHARE = 2.0 * FORWARD_SHARE
LOADER_SECONDS = 0.002
"""The wait for a batch that has been prefetched."""
LOADER_SPREAD_SECONDS = 0.0005
READS_EXPOSED = 8.0
"""Reads of a batch, one after the other, that prefetching does not hide."""
STORAGE_SHAPE = 100.0
"""Of the gamma distribution of that wait: the mean of many reads spreads by a tenth."""
CPU_BOUND_SHARE = 0.05
"""Of compute that waits for the host: launches that the GPU's queue does not hide."""
STALL_SECONDS = 0.03
"""Mean length of one stall that a busy host causes: a few scheduler slices, a page from disk."""
STALL_EXPOSED_SHARE = 0.25
"""Of a host's stalls that reach the GPU: its queue of launches hides the rest."""
SHARE_LEFT_MIN = 0.02
"""No host or GPU is taken away entirely; a stopped or dead one is another fault."""
FACTOR_MIN = 0.5
"""The least that a random factor leaves of a duration."""
STARTUP_SPREAD = 0.05
"""Ranks' start-up differs by up to this share: they load files and compile by themselves."""
PAUSE_SPREAD = 0.03
"""The same for checkpoints and evaluations."""


@dataclass(frozen=True, eq=False)
class StepWork:
    """What is drawn once for a step; one value for each rank."""

    data_seconds: Floats
    factor: Floats
    """Of compute time: this step's jitter, and how long the rank's sequences are."""


class Workload:
    """Draws durations. Each rank's clock is its own; waiting between ranks is decided elsewhere."""

    def __init__(self, spec: JobSpec, layout: Layout, random: np.random.Generator) -> None:
        self._spec = spec
        self._layout = layout
        self._random = random

    def startup_seconds(self) -> Floats:
        spread = self._random.uniform(0.0, STARTUP_SPREAD, self._layout.ranks)
        seconds: Floats = self._spec.startup_seconds * (1.0 + spread)
        return seconds

    def step(self, world: World) -> StepWork:
        spec, ranks, random = self._spec, self._layout.ranks, self._random
        host = self._layout.rank_host
        data = LOADER_SECONDS + random.exponential(LOADER_SPREAD_SECONDS, ranks)
        if spec.hiccup_every_steps > 0:
            has_hiccup = random.random(ranks) < 1.0 / spec.hiccup_every_steps
            data += np.where(has_hiccup, random.exponential(spec.hiccup_seconds, ranks), 0.0)
        data = data / _left(world.host_io_stall_share)[host] + world.host_loader_seconds[host]
        data += self._storage_wait(world)
        # All ranks of a copy of the model work on the same sequences.
        long = random.normal(0.0, spec.imbalance, self._layout.data)[self._layout.rank_copy]
        jitter = random.normal(0.0, spec.jitter, ranks)
        return StepWork(data, np.maximum((1.0 + long) * (1.0 + jitter), FACTOR_MIN))

    def _storage_wait(self, world: World) -> Floats:
        """What prefetching does not hide where the file server answers slower than it can."""
        slower = np.maximum(world.host_storage_seconds - STORAGE_SECONDS, 0.0)
        if not slower.any():
            return np.zeros(self._layout.ranks)
        each = slower[self._layout.rank_host] * READS_EXPOSED
        spread = self._random.gamma(STORAGE_SHAPE, 1.0 / STORAGE_SHAPE, self._layout.ranks)
        waited: Floats = each * spread
        return waited

    def compute_seconds(
        self, base_seconds: float, work: StepWork, ranks: Ints, world: World
    ) -> Floats:
        """Seconds of these ranks for work that takes ``base_seconds`` on a healthy GPU and host."""
        host, gpu = self._layout.rank_host[ranks], self._layout.rank_gpu[ranks]
        steal, stalled = world.host_steal_share[host], world.host_io_stall_share[host]
        clock = np.maximum(world.gpu_clock_share[gpu], SHARE_LEFT_MIN)
        on_gpu = (1.0 - CPU_BOUND_SHARE) * work.factor[ranks] / clock
        on_host = CPU_BOUND_SHARE / (_left(steal) * _left(stalled))
        seconds: Floats = base_seconds * (on_gpu + on_host)
        lost = np.minimum(steal + stalled, 1.0) * STALL_EXPOSED_SHARE * base_seconds
        if lost.any():
            seconds += self._random.gamma(lost / STALL_SECONDS, STALL_SECONDS)
        return seconds

    def pause_seconds(self, base_seconds: float, world: World) -> Floats:
        """Of a checkpoint or an evaluation, for each rank: a busy disk makes it longer."""
        spread = self._random.uniform(0.0, PAUSE_SPREAD, self._layout.ranks)
        stalled = world.host_io_stall_share[self._layout.rank_host]
        seconds: Floats = base_seconds * (1.0 + spread) / _left(stalled)
        return seconds


def _left(taken_share: Floats) -> Floats:
    left: Floats = np.maximum(1.0 - taken_share, SHARE_LEFT_MIN)
    return left
