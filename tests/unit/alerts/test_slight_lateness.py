"""Ranks that lose a little in every step: what is no chance, and what is."""

import msgspec
import numpy as np
import pytest

from alerts.detectors.slight_lateness import STRENGTH, detect
from alerts.finding import Finding
from alerts.judge.explains import STRENGTH_MIN
from alerts.judge.verdict import judge
from alerts.window.model import JobWindow
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.unit.alerts.test_straggler import extra
from tests.worlds.late_jobs import make_job, make_window

STEPS, RANKS = 40, 8


def test_two_percent_of_each_step_is_seen_and_accuses_no_rank_by_itself() -> None:
    job = make_job(extra_ms=extra({5: 4.0}))
    (finding,) = detect(make_window(job))
    assert finding.culprit == Culprit(job="training", rank=5, host="node2", gpu=1)
    assert finding.strength == STRENGTH < STRENGTH_MIN
    assert job.steps[18].start_ns <= finding.since_ns <= job.steps[24].start_ns
    assert judge(make_window(job), [finding]) == []


def test_much_in_some_steps_is_seen_as_well() -> None:
    table = np.zeros((STEPS, RANKS))
    table[20::3, 4:6] = 25.0
    (finding,) = detect(make_window(make_job(extra_ms=table)))
    assert finding.culprit == Culprit(job="training", host="node2")


@pytest.mark.parametrize("seed", range(8))
def test_work_that_is_unequal_at_random_is_chance(seed: int) -> None:
    uneven = np.abs(np.random.default_rng(seed).normal(0, 15.0, (STEPS, RANKS)))
    assert detect(make_window(make_job(extra_ms=uneven, seed=seed))) == []


def test_one_long_wait_is_no_mean() -> None:
    assert detect(make_window(make_job(extra_ms=extra({5: 400.0}, first=30, last=31)))) == []


def test_a_machine_that_says_why_is_the_second_witness() -> None:
    window = make_window(job := make_job(extra_ms=extra({4: 4.0, 5: 4.0})))
    (finding,) = detect(window)
    assert finding.culprit == Culprit(job="training", host="node2")
    verdicts = judge(window, [finding, stalled(finding, "node2")])
    assert [(one.cause, one.culprit.host, one.reason) for one in verdicts] == [
        (Cause.STRAGGLER, "node2", Reason.HOST_STALL)
    ]
    assert 0.5 < verdicts[0].confidence < 0.9
    assert judge(window, [finding, stalled(finding, "node1")]) == []
    assert judge(window, [finding, stalled(finding, "node2", earlier_ns=span_of(job))]) == []


@pytest.mark.parametrize(("share", "is_said"), [(0.05, False), (0.6, True)])
def test_a_machine_that_said_why_for_a_moment_explains_no_minutes(
    share: float, *, is_said: bool
) -> None:
    """A loader paused once, and uneven sequences made its host late for two minutes after that."""
    window = make_window(make_job(extra_ms=extra({4: 4.0, 5: 4.0})))
    (late,) = detect(window)
    late = msgspec.structs.replace(late, since_ns=late.last_ns - 120 * NS)
    paused = stalled(late, "node2")
    ended_ns = late.since_ns + round(share * 120 * NS)
    paused = msgspec.structs.replace(paused, last_ns=ended_ns, until_ns=ended_ns)
    assert bool(judge(window, [late, paused])) == is_said


def test_steps_on_time_are_its_end_however_few_they_are() -> None:
    """A host whose disks stalled until its job hung was late "until now" once the job went on."""
    table = np.zeros((60, RANKS))
    table[20:33, 4:6] = 20.0
    window = make_window(job := make_job(extra_ms=table, steps=60), silent_ns=10 * NS)
    (finding,) = detect(window)
    assert finding.culprit == Culprit(job="training", host="node2")
    assert finding.last_ns == finding.until_ns == job.steps[32].end_ns


def test_seldom_lateness_has_not_ended_after_a_few_steps_on_time() -> None:
    table = np.zeros((STEPS, RANKS))
    table[10:36:5, 4:6] = 25.0
    (finding,) = detect(make_window(job := make_job(extra_ms=table)))
    assert finding.last_ns == job.steps[-1].end_ns
    assert finding.until_ns is None


def test_a_host_that_is_very_late_hides_no_other() -> None:
    table = extra({1: 4.0, 4: 30.0, 5: 30.0})
    window = make_window(make_job(extra_ms=table))
    worst, other = detect(window)
    assert worst.culprit.host == "node2"
    assert other.culprit == Culprit(job="training", rank=1, host="node0", gpu=1)
    hot = msgspec.structs.replace(
        stalled(other, ""),
        culprit=Culprit(host="node0", gpu=1),
        reason=Reason.GPU_THROTTLED,
        strength=0.94,
    )
    verdicts = judge(window, [worst, other, hot, stalled(worst, "node2")])
    assert {(one.culprit.host, one.reason) for one in verdicts} == {
        ("node0", Reason.GPU_THROTTLED),
        ("node2", Reason.HOST_STALL),
    }


def faster_and_then_slower() -> np.ndarray:
    """Milliseconds: a rank that is always late, and beside it one as fast as it is then slower."""
    table = np.zeros((60, RANKS))
    table[:, 4:6] = 80.0, -90.0
    table[30:, 4:6] += 80.0
    return table


def test_a_host_that_was_late_before_became_slower_when_its_machine_was_short() -> None:
    job = make_job(extra_ms=faster_and_then_slower(), steps=60, compute_ms=2_000.0)
    (finding,) = detect(window := make_window(job))
    assert finding.culprit == Culprit(job="training", host="node2")
    assert finding.since_ns == job.steps[30].start_ns
    (verdict,) = judge(window, [finding, stalled(finding, "node2")])
    assert (verdict.culprit.host, verdict.reason) == ("node2", Reason.HOST_STALL)


def test_what_all_hosts_grow_by_makes_none_of_them_slower() -> None:
    table = faster_and_then_slower()
    table[30:, [0, 1, 2, 3, 6, 7]] += 80.0
    job = make_job(extra_ms=table, steps=60, compute_ms=2_000.0)
    (finding,) = detect(make_window(job))
    assert (finding.culprit.rank, finding.since_ns) == (4, job.steps[1].start_ns)


def test_a_host_that_others_overtake_has_not_become_slower() -> None:
    table = faster_and_then_slower()
    table[:, 4:6] = table[0, 4:6]
    table[30:, [0, 1, 2, 3, 6, 7]] -= 80.0
    job = make_job(extra_ms=table, steps=60, compute_ms=2_000.0)
    assert all(one.since_ns < job.steps[20].start_ns for one in detect(make_window(job)))


def span_of(job: JobWindow) -> int:
    return 10 * (job.steps[-1].end_ns - job.steps[0].start_ns)


def stalled(finding: Finding, host: str, earlier_ns: int = 0) -> Finding:
    """A host that is short of something, since the same time or earlier."""
    return msgspec.structs.replace(
        finding,
        detector="host_stall",
        culprit=Culprit(host=host),
        strength=0.85,
        job="",
        reason=Reason.HOST_STALL,
        since_ns=finding.since_ns - earlier_ns,
        last_ns=finding.last_ns - earlier_ns,
        until_ns=finding.last_ns - earlier_ns,
    )
