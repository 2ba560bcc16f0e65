"""Trials without a service say what the service says, verdict for verdict."""

from dataclasses import replace

import msgspec
import pytest

from simulator.engine import Simulation
from simulator.jobs.model import JobSpec
from simulator.score.accuracy.shapes import SHAPE, play_shape
from simulator.score.accuracy.trials import Trial, play_trial
from simulator.score.cases import make_case
from simulator.score.direct.play import play_directly
from simulator.score.handicap import Handicap
from simulator.score.marks import Saying, is_right, judge
from simulator.score.run import run_all
from tests.tools.cut import CUT

SEED = 4211
CASES = CUT.choose(["slow_nic", "host_steal", "bad_cable", "hang_not_launched", "checkpoints"], 5)

pytestmark = [pytest.mark.slow, pytest.mark.rotating(5, "direct")]


def words(sayings: list[Saying]) -> list[tuple[object, ...]]:
    return [
        (one.said_ns, one.verdict.cause, one.verdict.culprit, one.verdict.summary)
        for one in sayings
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_judged_as_the_service_judges_it(name: str) -> None:
    """The same words at the same time, also where quiet moments are left out."""
    (served,) = run_all([(name, SEED)], processes=1)
    assert served.error == ""
    whole = play_directly(Simulation(make_case(name, SEED)), quiet_seconds=0.0)
    sparse = play_directly(Simulation(make_case(name, SEED)))
    assert words(whole) == words(served.sayings)
    assert words(sparse) == words(whole)
    if name != "checkpoints":
        assert whole, "a fault of the scoreboard is named"


def test_processes_that_stopped_are_found_by_ras_alone() -> None:
    """Without a record, a dump or a reading of any machine."""
    case = make_case("hang_not_launched", SEED)
    simulation = Simulation(case)
    sayings = play_directly(simulation, handicap=Handicap.ONLY_RAS)
    assert sayings
    truths = simulation.truths()
    assert all(any(is_right(one.verdict, truth) for truth in truths) for one in sayings)


LONGER = 6
"""Steps of a job of thousands of ranks, in times of those of 16 hosts (`PACES`)."""
RECORDS_FEW = 6_000
"""Of 64 ranks as many as RECORDS_MAX has of eight thousand."""


def test_a_slow_gpu_is_named_where_steps_take_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trial of 1,024 hosts missed: slices without a whole step, and clocks taken for wrong.

    Buckets take a second and more there, and what a window has room for is less than half of it.
    """
    monkeypatch.setattr("simulator.score.direct.windows.RECORDS_MAX", RECORDS_FEW)
    trial = Trial(kind="ladder", faults=("power_throttle",), seed=19501, strength=1.0)
    played = play_trial(trial, lambda jobs: tuple(map(lengthened, jobs)))
    (found,) = judge(played.run)
    (cost,) = played.costs
    assert cost is not None
    assert cost > 0.1
    assert (found.is_found, found.is_first_right) == (True, True)
    assert len(played.run.sayings) == 1


def test_clocks_over_an_nvls_tree_are_aligned_and_the_host_is_named() -> None:
    """A clock seemed to be set before its first operation: its own part had no row, and no number.

    Nothing was said of the job then.
    """
    trial = Trial(kind=SHAPE, shape="NVLS tree", faults=("host_steal",), seed=22001)
    played = play_shape(trial)
    (found,) = judge(played.run)
    assert played.run.error == ""
    assert (found.is_found, found.is_first_right) == (True, True)


def lengthened(job: JobSpec) -> JobSpec:
    return replace(
        job,
        compute_seconds=LONGER * job.compute_seconds,
        gradient_bytes=LONGER * job.gradient_bytes,
    )


LOUD, SLIGHT = 1.0, 0.2
SHORT = CUT.choose(
    [
        ("slow_nic", LOUD),
        ("bad_cable", LOUD),
        ("power_throttle", LOUD),
        ("host_steal", LOUD),
        ("hang_not_launched", LOUD),
        ("slow_nic", SLIGHT),
    ],
    5,
)


@pytest.mark.parametrize(("fault", "strength"), SHORT)
def test_a_short_trial_says_the_same_until_it_ends(fault: str, strength: float) -> None:
    """As those of 1,024 hosts are played, where both ways can be."""
    whole = Trial(kind="ladder", faults=(fault,), seed=SEED, strength=strength)
    full = play_trial(whole)
    short = play_trial(msgspec.structs.replace(whole, is_short=True))
    assert (full.run.error, short.run.error) == ("", "")
    assert short.run.truths == full.run.truths
    assert short.costs == full.costs, "the cluster is played to its end"
    assert short.run.collisions == full.run.collisions
    (found,), (cut,) = judge(full.run), judge(short.run)
    assert (cut.delay_s, cut.is_first_right) == (found.delay_s, found.is_first_right)
    said = words(short.run.sayings)
    assert said == words(full.run.sayings)[: len(said)]
    if strength == LOUD:
        assert found.is_found
