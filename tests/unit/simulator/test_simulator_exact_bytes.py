"""Counters count what collectives move, exactly, however the engine groups their units."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from simulator.engine import Simulation
from simulator.jobs.model import JobSpec, Phase
from simulator.network.losses import wire_efficiency
from simulator.pattern import Pattern
from simulator.scenario import Scenario
from simulator.topology.model import Fabric, Floats
from simulator.topology.spec import ClusterSpec
from simulator.topology.world import Background, World

CROWDED = ClusterSpec(
    topology="fat_tree",
    hosts=16,
    speed="400GbE",
    fabric=Fabric.ROCE,
    hosts_per_leaf=4,
    oversubscription=2.0,
)
JOBS = (
    JobSpec(name="dense", hosts=tuple(range(8)), compute_seconds=0.3, startup_seconds=0.1, steps=4),
    JobSpec(
        name="piped",
        hosts=tuple(range(8, 14)),
        pipeline=2,
        compute_seconds=0.2,
        startup_seconds=0.1,
        imbalance=0.1,
        steps=4,
    ),
)
SECONDS = 8

Finish = Callable[[Phase, Floats, Floats, World], None]


class Watched(Simulation):
    """Notes what happens to units."""

    def __init__(self, scenario: Scenario) -> None:
        self.ended: Counter[Pattern] = Counter()
        self.caught_up = 0
        super().__init__(scenario)
        for job in self._jobs:
            job.finish = self._noting(job.finish)  # type: ignore[method-assign, assignment]

    def _noting(self, finish: Finish) -> Finish:
        def note(phase: Phase, end_s: Floats, flow_bps: Floats, world: World) -> None:
            self.ended[phase.pattern] += 1
            finish(phase, end_s, flow_bps, world)

        return note

    def _catch_up(self, *turn_and_units: object) -> None:
        self.caught_up += 1
        super()._catch_up(*turn_and_units)  # type: ignore[arg-type]


@pytest.mark.parametrize("background", [[], [Background(14 * 8, 15 * 8, 1e9)]])
def test_every_nic_sends_what_its_collectives_ask_for(background: list[Background]) -> None:
    simulation = Watched(Scenario(cluster=CROWDED, jobs=JOBS, seconds=SECONDS))
    simulation.world.background = background
    simulation.world.version += 1
    snapshots = list(simulation.run())
    assert not any(job.is_running for job in snapshots[-1].jobs)
    assert simulation.caught_up > 0
    topology = simulation.topology
    expected = np.zeros(topology.nics)
    for pattern, times in simulation.ended.items():
        np.add.at(expected, pattern.flow_source, times * pattern.flow_bytes)
    for one in background:
        expected[one.source_nic] += one.bits_per_second / 8 * SECONDS
    expected /= wire_efficiency(Fabric.ROCE)
    up = topology.up(np.arange(topology.nics, dtype=np.int32))
    assert simulation._tallies.bytes_sent[up] == pytest.approx(expected, rel=1e-9)
    for before, after in pairwise(snapshots):
        assert (after.links.bytes >= before.links.bytes).all()
        assert (after.links.packets >= before.links.packets).all()
