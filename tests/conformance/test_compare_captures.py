"""Slow steps of real runs against normal ones: the excess lands at the true culprit.

The captures lie beside the checkout; without them the tests are skipped. Runs that are cut short
are in every clone.
"""

import json
from pathlib import Path

import pytest

from alerts.compare.model import Role, StepsCompared
from alerts.compare.sides import side_of
from alerts.compare.stand_out import Differences, divide, what_stands_out
from alerts.compare.steps import Asked, blamed_of, compare_steps
from alerts.judge.verdict import judge
from alerts.signals.gaps import own_time
from alerts.window.model import JobWindow, Window
from api.diagnose.verdicts import judge_window
from tests.tools.captures import CAPTURES, RINGS
from tests.worlds.windows import capture_window

FIXTURES = Path(__file__).parents[1] / "fixtures" / "diagnose"
PIPELINES = CAPTURES / "h200-pipeline"
LATE = ("compute5", "cpu2", "groups_cpu6")
SLOW = ("net3", "half4", "groups_net3", "tree_net2")
INNOCENT = ("healthy", "noisy", "ckpt")
NS = 1_000_000_000

each_capture = pytest.mark.skipif(
    not (RINGS / "net3").is_dir(), reason="no captures beside the repository"
)


def truth_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "truth.json").read_text())
    return found


def job_in(folder: Path) -> tuple[Window, JobWindow]:
    window = capture_window(folder)
    return window, max(window.jobs, key=lambda one: len(one.records))


def compared(folder: Path, asked: Asked | None = None) -> StepsCompared:
    """The time of the fault, or the second half of a run without one, against what was before."""
    window, job = job_in(folder)
    if asked is None:
        truth = truth_of(folder)
        middle = job.steps[len(job.steps) // 2].start_ns
        begin = int(truth.get("fault_on_ns", middle))  # type: ignore[call-overload]
        end = int(truth.get("fault_off_ns", job.steps[-1].end_ns))  # type: ignore[call-overload]
        asked = Asked(slow=(begin, end))
    verdicts = judge_window(window, judged_by=judge).verdicts
    return compare_steps(window, job, asked, blamed_of(verdicts, job.job))


def differences(folder: Path) -> Differences:
    window, job = job_in(folder)
    table = own_time(job)
    assert table is not None
    slow, normal = divide(table)
    if not len(slow) or not len(normal):
        return Differences(
            found=[], candidates=0, slow_steps=0, normal_steps=0, left_out=0, why_nothing="no"
        )
    return what_stands_out(window, side_of(job, slow), side_of(job, normal))


@each_capture
@pytest.mark.parametrize("run", LATE)
def test_lateness_lands_at_the_rank_that_was_slowed_down(run: str) -> None:
    answer = compared(RINGS / run)
    rank = truth_of(RINGS / run)["rank"]
    assert [one.ranks for one in answer.accused] == [[rank]]
    first = answer.ranks[0]
    assert (first.rank, first.role, first.is_accused) == (rank, Role.LATE, True)
    assert [one.rank for one in answer.ranks if one.role is Role.LATE] == [rank]
    others = [one.beyond_peers_ns or 0 for one in answer.ranks[1:]]
    assert (first.beyond_peers_ns or 0) > 3 * max(others)
    assert f"rank {rank} (node{rank})" in answer.sentence
    # Replayed without it the steps lose most of what it was late by, and no more.
    without = answer.without[0]
    assert without.ranks == [rank]
    own_ns = first.excess.own_ns or 0
    assert 0.4 * own_ns < without.saved_ns < 1.2 * own_ns


@each_capture
@pytest.mark.parametrize("run", SLOW)
def test_a_slow_nic_makes_transfers_long_and_no_rank_late(run: str) -> None:
    answer = compared(RINGS / run)
    rank = truth_of(RINGS / run)["rank"]
    assert [one.ranks for one in answer.accused] == [[rank]]
    assert not [one for one in answer.ranks if one.role is Role.LATE]
    assert answer.kinds[0].slow_ns > 1.5 * answer.kinds[0].normal_ns
    assert "no rank came late by itself" in answer.sentence
    without = answer.without[0]
    assert (without.what, without.ranks) == ("network", [rank])
    assert answer.excess_ns is not None
    assert 0.5 * answer.excess_ns < without.saved_ns < 1.3 * answer.excess_ns


@each_capture
@pytest.mark.parametrize("run", INNOCENT)
def test_runs_without_a_fault_accuse_no_rank_at_any_time(run: str) -> None:
    _, job = job_in(RINGS / run)
    steps = sorted(job.steps, key=lambda one: one.end_ns - one.start_ns)
    asked = [None, *(Asked(slow=(one.start_ns, one.end_ns)) for one in steps[-3:])]
    for each in asked:
        answer = compared(RINGS / run, each)
        assert not answer.accused
        assert not [one for one in answer.ranks if one.is_accused]
        assert "Without that" not in answer.sentence


@pytest.mark.skipif(not PIPELINES.is_dir(), reason="no captures beside the repository")
@pytest.mark.parametrize(("run", "late"), [("late0", [0]), ("healthy", []), ("uneven", [])])
def test_in_a_pipeline_lateness_lands_at_its_stage(run: str, late: list[int]) -> None:
    answer = compared(PIPELINES / run)
    assert [rank for one in answer.accused for rank in one.ranks] == late
    assert [one.rank for one in answer.ranks if one.role is Role.LATE] == late
    if late:
        assert {one.role for one in answer.ranks[1:]} == {Role.WAITED}
        assert 0 < answer.without[0].saved_ns < (answer.excess_ns or 0)


@each_capture
def test_the_ring_is_the_one_that_nccl_logged() -> None:
    answer = compared(RINGS / "net3")
    assert answer.order is not None
    assert sorted(answer.order.ring) == list(range(8))
    assert not answer.order.is_assumed


@each_capture
@pytest.mark.parametrize("run", ["compute5", "cpu2"])
def test_the_late_rank_is_the_first_rank_that_stands_out(run: str) -> None:
    """Not in groups_cpu6: there the longest steps are not those of the fault."""
    ranks = [one.rank for one in differences(RINGS / run).found if one.kind == "rank"]
    assert ranks[:1] == [truth_of(RINGS / run)["rank"]]


@each_capture
@pytest.mark.parametrize("run", INNOCENT)
def test_no_rank_stands_out_in_runs_without_a_fault(run: str) -> None:
    assert not [one for one in differences(RINGS / run).found if one.kind == "rank"]


@each_capture
@pytest.mark.parametrize("run", SLOW)
def test_behind_a_slow_nic_transfers_stand_out(run: str) -> None:
    found = differences(RINGS / run).found
    assert "transfer" in {one.what for one in found if one.kind == "operation"}


@pytest.mark.parametrize(("run", "role"), [("compute5", Role.LATE), ("healthy", Role.AS_USUAL)])
def test_a_clone_without_captures_has_runs_to_compare(run: str, role: Role) -> None:
    answer = compared(FIXTURES / run)
    rank = truth_of(FIXTURES / run).get("rank")
    assert [one.ranks for one in answer.accused] == ([[rank]] if rank is not None else [])
    if rank is not None:
        assert (answer.ranks[0].rank, answer.ranks[0].role) == (rank, role)
