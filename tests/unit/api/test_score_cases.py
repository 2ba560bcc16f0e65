"""The scoreboard's cases: repeatable, different from seed to seed, and each with a right answer."""

from dataclasses import replace

import pytest

from collector.cli import main
from collector.contract.errors import SettingsError
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection
from simulator.scenario import Scenario
from simulator.score.cases import AFTER_SECONDS, HOSTS, VARIANTS, case_names, make_case
from simulator.score.marks import GRACE_NS

FAULTS = discover()
SEEDS = (1, 2, 3)


def strikes(scenario: Scenario) -> list[tuple[object, ...]]:
    """Injections by value: a fault compares by identity."""
    return [
        (one.fault.name, one.place, one.start_s, one.end_s, one.strength)
        for one in scenario.injections
    ]


@pytest.mark.parametrize("name", case_names())
def test_the_same_seed_makes_the_same_case_and_another_seed_another(name: str) -> None:
    once, again, other = make_case(name, 1), make_case(name, 1), make_case(name, 2)
    assert strikes(once) == strikes(again)
    assert replace(once, injections=()) == replace(again, injections=())
    assert once.jobs != other.jobs
    assert once.seed != other.seed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_a_past_a_place_and_a_stretch_after_it(name: str) -> None:
    fault = FAULTS[name]
    for seed in SEEDS:
        scenario = make_case(name, seed)
        [injection] = scenario.injections
        assert isinstance(injection, Injection)
        assert injection.start_s >= 90
        assert scenario.seconds - injection.end_s >= AFTER_SECONDS
        simulation = Simulation(scenario)
        assert fault.fits(simulation.cluster)
        [truth] = simulation.truths()
        assert bool(truth.culprits) == bool(truth.causes)


def test_a_run_goes_on_for_as_long_as_a_verdict_may_take() -> None:
    assert AFTER_SECONDS * NS >= GRACE_NS


def test_jobs_share_no_host_and_leave_two_idle() -> None:
    for seed in range(20):
        hosts = [host for job in make_case("healthy", seed).jobs for host in job.hosts]
        assert len(hosts) == len(set(hosts)) <= HOSTS - 2


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_healthy_and_has_its_habit(name: str) -> None:
    healthy, variant = make_case("healthy", 1), make_case(name, 1)
    assert variant.injections == ()
    for field in VARIANTS[name]:
        assert getattr(variant.jobs[0], field) != getattr(healthy.jobs[0], field)


def test_seeds_reach_every_kind_of_cluster() -> None:
    shapes = {
        (case.cluster.topology, case.cluster.fabric)
        for case in (make_case("healthy", seed) for seed in range(40))
    }
    assert len(shapes) == 4


def test_a_typo_is_answered_with_what_was_meant() -> None:
    with pytest.raises(SettingsError, match="slow_nic"):
        make_case("slow_nick", 1)


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--list"]) == 0
    assert capsys.readouterr().out.split() == case_names()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slow_nick"], "did you mean 'slow_nic'?"),
        (["healthy", "--seeds", "0"], "--seeds 0"),
        (["healthy", "--processes", "0"], "--processes 0"),
        (["healthy", "--first-seed", "-1"], "--first-seed -1"),
        (["healthy", "slow_nic", "--folder", "x"], "--folder"),
    ],
)
def test_a_wrong_word_is_said_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
