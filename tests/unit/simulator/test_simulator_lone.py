"""Units that go by themselves come out as they would in the network's mixtures."""

import numpy as np
import pytest

from simulator.faults import discover
from simulator.network.network import Network
from simulator.scenario import Scenario
from simulator.topology.model import Fabric
from tests.worlds.simulated_cluster import (
    Strike,
    Watched,
    small_cluster,
    small_job,
    small_scenario,
    strike,
)

FAULTS = discover()
SECONDS = 16.0
WHEN = Strike(begin_s=5.3, look_s=9.0, end_s=10.7, over_s=SECONDS)


def watch(scenario: Scenario, fault: str | None) -> tuple[Watched, int]:
    """What happens, and how many ticks found a phase that went by itself."""
    watched, lone = Watched.start(scenario), 0
    if fault is not None:
        strike(watched, FAULTS[fault], when=WHEN)
    while watched.simulation.now_s < SECONDS - 1e-6:
        watched.seen.append(watched.simulation.tick())
        lone += any(
            turn is not None and turn.lone is not None for turn in watched.simulation._turns
        )
    return watched, lone


def both(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, fault: str | None
) -> tuple[Watched, Watched, int]:
    alone, lone = watch(scenario, fault)
    with monkeypatch.context() as patched:
        patched.setattr(Network, "lone", lambda *_: None)
        mixed, none = watch(scenario, fault)
    assert none == 0
    return alone, mixed, lone


def exits(watched: Watched, job: str = "train") -> np.ndarray:
    blocks = watched.blocks(job)
    order = sorted(blocks, key=lambda one: (one.communicators, str(one.operation), one.sequence))
    return np.concatenate([block.exit_s.ravel() for block in order])


@pytest.mark.parametrize("fabric", [Fabric.INFINIBAND, Fabric.ROCE])
def test_a_healthy_job_is_the_same_to_the_microsecond(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, mixed, lone = both(monkeypatch, small_scenario(fabric, small_job(jitter=0.01)), None)
    assert lone > SECONDS / 2
    np.testing.assert_allclose(exits(alone), exits(mixed), rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        alone.last.links.bytes, mixed.last.links.bytes, rtol=1e-3, atol=10_000
    )


@pytest.mark.parametrize(
    "fault", ["slow_nic", "nic_dead", "link_flap", "bad_cable", "slow_loader", "spine_loss"]
)
def test_a_fault_that_strikes_a_phase_on_its_way_does_the_same(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = small_scenario(Fabric.ROCE, small_job(jitter=0.01), seconds=SECONDS)
    alone, mixed, lone = both(monkeypatch, scenario, fault)
    assert lone
    for start, end in ((1.0, WHEN.begin_s), (WHEN.begin_s, WHEN.end_s), (WHEN.end_s, SECONDS)):
        one, other = (each.step_seconds(start, end) for each in (alone, mixed))
        assert one == pytest.approx(other, rel=0.02), (start, end)
    steps, others = len(alone.steps()), len(mixed.steps())
    assert abs(steps - others) <= 1
    if steps == others:
        np.testing.assert_allclose(alone.last.links.bytes, mixed.last.links.bytes, rtol=0.02)


def test_jobs_that_share_cables_slow_each_other_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [small_job(name="one", hosts=(0, 2)), small_job(name="other", hosts=(1, 3))]
    cluster = small_cluster(Fabric.ROCE, topology="fat_tree")
    scenario = small_scenario(Fabric.ROCE, *jobs, cluster=cluster, seconds=SECONDS)
    alone, mixed, _ = both(monkeypatch, scenario, None)
    one, other = (tuple(job.patterns) for job in alone.simulation._jobs)
    assert alone.simulation._network.may_meet(alone.simulation.world, one, other)
    for name in ("one", "other"):
        np.testing.assert_allclose(exits(alone, name), exits(mixed, name), rtol=0, atol=1e-6)


def test_units_that_share_a_link_are_never_taken_for_lone_ones() -> None:
    cluster = small_cluster(Fabric.ROCE, topology="fat_tree", oversubscription=2.0)
    watched = Watched.start(small_scenario(Fabric.ROCE, cluster=cluster))
    network, world = watched.simulation._network, watched.simulation.world
    met = 0
    for pattern in watched.simulation._jobs[0].patterns:
        path = network._paths_of(world, pattern).path
        users = [pattern.flow_unit[(path == link).any(axis=1)] for link in set(path.ravel()) - {-1}]
        if any(len(set(units.tolist())) > 1 for units in users):
            met += 1
            assert network.lone(world, pattern) is None
    assert met
