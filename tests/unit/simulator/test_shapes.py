"""Jobs of other shapes can be simulated, and what a handicap takes away is away."""

import msgspec
import numpy as np
import pytest

from simulator.engine import Simulation
from simulator.score.accuracy.cli import sampled
from simulator.score.accuracy.shapes import FAULTS, SHAPES, SIGHTS, all_shapes, shaped
from simulator.score.accuracy.table import markdown, told
from simulator.score.accuracy.trials import (
    HOSTS_LARGE,
    HOSTS_MEDIUM,
    HOSTS_SMALL,
    Played,
    beside,
    ladder,
    make_trial,
    several,
)
from simulator.score.cases import clusters, draw_jobs
from simulator.score.handicap import Handicap, is_silent, seen
from simulator.score.marks import Run
from simulator.topology.build import build
from tests.worlds.late_jobs import make_job, make_window


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_every_shape_is_a_job_that_runs(shape: str, seed: int) -> None:
    jobs = draw_jobs(np.random.default_rng(seed))
    changed = shaped(jobs, shape)
    assert [job.name for job in changed] == [job.name for job in jobs]
    assert changed != jobs or shape in ("data parallel", "pipeline")
    trial = next(one for one in all_shapes([seed]) if one.shape == shape)
    simulation = Simulation(make_trial(trial, lambda drawn: shaped(drawn, shape)))
    assert simulation.truths()


def test_all_shapes_and_sights_meet_all_faults() -> None:
    trials = all_shapes([5])
    assert len({one.name for one in trials}) == len(trials)
    assert len(trials) == (len(SHAPES) + len(SIGHTS)) * len(FAULTS)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_nic_beside_a_checkpoint_is_one_nic_with_both(seed: int) -> None:
    trials = beside([seed])
    assert [one.faults for one in trials] == [
        ("slow_nic", "storage_writes"),
        ("storage_writes", "slow_nic"),
    ]
    for trial in trials:
        first, second = make_trial(trial).injections
        assert first.place == second.place
        assert first.place.peers, "the file servers"
        assert first.start_s < second.start_s < first.end_s


def test_a_sample_is_drawn_once_and_grows_by_what_was_not_in_it() -> None:
    trials = ladder([5])
    assert sampled(trials, 0, 5) == trials
    few, more = sampled(trials, 20, 5), sampled(trials, 40, 5)
    assert len({one.name for one in more}) == 40
    assert more[:20] == few, "a run that goes on plays no trial twice"
    assert len({one.faults for one in few}) > 10, "of many faults"
    assert sampled(trials, 20, 6) != few


def test_only_trials_of_the_largest_clusters_are_short() -> None:
    assert all(one.is_short for one in ladder([5], HOSTS_LARGE))
    assert not any(one.is_short for one in [*ladder([5]), *ladder([5], HOSTS_MEDIUM)])


def test_a_handicap_leaves_what_its_name_says() -> None:
    levels = {"temperature_celsius": (50.0, 50.0)}
    window = make_window(make_job(), gpu_levels=levels, host_levels={"tasks_blocked": (0.0, {})})
    times = seen(window, Handicap.ONLY_NCCL)
    assert times.jobs
    assert not times.gpus.readings
    assert not times.hosts.readings
    machines = seen(window, Handicap.ONLY_HOSTS)
    assert not machines.jobs
    assert machines.gpus.readings
    assert machines.hosts.readings
    ports = seen(window, Handicap.ONLY_PORTS)
    assert not ports.jobs
    assert not ports.gpus.readings
    assert ports.ports is window.ports
    assert seen(window, Handicap.FIFTH_SILENT) is window


def test_a_fifth_of_the_agents_is_silent_and_always_the_same() -> None:
    agents = [f"node{number:04}" for number in range(1_000)]
    away = [one for one in agents if is_silent(one, Handicap.FIFTH_SILENT)]
    assert len(away) == pytest.approx(200, abs=40)
    assert not any(is_silent(one, Handicap.NONE) for one in agents)


def test_the_table_says_what_was_not_played_and_what_had_no_place() -> None:
    trial = all_shapes([5])[0]
    run = Run(case="x", seed=5, seconds=0.0, truths=[], sayings=[], error="no place")
    lines = told([Played(trial=trial, run=run)], trial.kind, SHAPES, "shape")
    assert len(lines) == 2 + len(SHAPES)
    assert lines[2] == f"| {trial.shape} | no place |{'  |' * (len(FAULTS) - 1)}"


def test_a_trial_without_a_place_is_none_of_those_that_accused_nobody() -> None:
    """It was counted, so "0 verdicts in 45 such trials" could be of 41 that were played."""
    played, without_place = several([4], ("together", "overlapping"))
    run = Run(case="x", seed=4, seconds=60.0, truths=[], sayings=[])
    trials = [
        Played(trial=played, run=run),
        Played(trial=without_place, run=msgspec.structs.replace(run, error="no place")),
    ]
    said = markdown(trials, [])
    assert "0 verdicts in 1 such trials accused a part that had no fault." in said
    assert "1 trials had no place for their faults and were left out." in said


@pytest.mark.parametrize("hosts", [HOSTS_SMALL, HOSTS_MEDIUM])
@pytest.mark.parametrize("number", range(4))
def test_a_cluster_of_each_shape_can_be_cabled_at_each_size(hosts: int, number: int) -> None:
    assert build(clusters(hosts)[number]).hosts == hosts
