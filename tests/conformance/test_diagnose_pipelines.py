"""`diagnose` on real pipelines: eight NCCL ranks on one GPU, with and without a fault.

Recorded by `tests.tools.gpu_ranks` (tests/fixtures/pipelines/ORIGIN). No test of a detector was
tuned on these: they were recorded after it, and other strengths and stages than here were tried.
"""

import json
from pathlib import Path

import pytest

from alerts.judge.words import UNSURE_MAX
from collector.contract.verdict import Cause, Reason
from tests.stands.diagnosing import ROOT, report_of

NIC = "context_net4"
"""The run in which a NIC is slow, and no rank."""
RUNS = [
    path
    for path in sorted((ROOT / "tests/fixtures/pipelines").glob("*/truth.json"))
    if path.parent.name != NIC
]
STAGE = "stage"
"""The fault of a run in which one stage has more work than the others."""


@pytest.mark.slow
@pytest.mark.parametrize("truth_file", RUNS, ids=lambda path: path.parent.name)
def test_the_slow_ranks_of_a_real_pipeline_are_named_and_no_others(truth_file: Path) -> None:
    truth = json.loads(truth_file.read_text("utf-8"))
    verdicts = report_of(truth_file.parent).verdicts
    assert {verdict.cause for verdict in verdicts} <= {Cause.STRAGGLER}
    named = [one.rank for verdict in verdicts for one in (verdict.culprit, *verdict.accomplices)]
    assert sorted(rank or 0 for rank in named) == truth.get("ranks", [])
    is_stage = truth.get("fault") == STAGE
    assert all((verdict.reason is Reason.IMBALANCE) == is_stage for verdict in verdicts)
    assert len(verdicts) == (1 if is_stage else len(named))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "pace", "most"),
    [("pipeline_healthy", None, None), ("pipeline_stage3", 3, None), ("pipeline_late3", 3, 3)],
)
def test_the_stages_of_a_real_pipeline_are_told_and_which_sets_the_pace(
    run: str, pace: int | None, most: int | None
) -> None:
    """A slow rank sets the pace of its stage, and is far above its copy; a heavy stage is not."""
    (job,) = report_of(ROOT / "tests/fixtures/pipelines" / run).jobs
    assert job.stages is not None
    assert [one.ranks for one in job.stages.stages] == [[k, k + 4] for k in range(4)]
    assert (job.stages.pace, job.stages.unknown) == (pace, [])
    apart = [one.own_most_rank for one in job.stages.stages if one.own_most_ns > 2 * one.own_ns]
    assert apart == ([] if most is None else [most])


@pytest.mark.slow
def test_what_it_costs_is_what_the_steps_took_longer() -> None:
    """Played again without the slow rank, a step takes about what the healthy ones took."""
    run = ROOT / "tests/fixtures/pipelines/pipeline_late3"
    took = json.loads((run / "truth.json").read_text("utf-8"))["step_ms"]
    healthy = sorted([*took[5:15], *took[30:]])[len(took[5:15] + took[30:]) // 2] / 1000
    (verdict,) = report_of(run).verdicts
    (cost,) = verdict.costs
    assert cost.step_seconds is not None
    assert cost.step_seconds_without is not None
    assert cost.step_seconds > 2 * healthy
    assert healthy / 2 < cost.step_seconds_without < 2 * healthy


@pytest.mark.slow
def test_a_slow_nic_in_a_group_of_two_makes_both_ends_suspects_and_accuses_neither() -> None:
    """The gradients of ranks 0 and 4 take 30 times as long; small operations of all hardly do."""
    (verdict,) = report_of(ROOT / "tests/fixtures/pipelines" / NIC).verdicts
    assert verdict.cause is Cause.SLOW_LINK
    assert verdict.confidence <= UNSURE_MAX
    assert verdict.undecided is not None
    assert sorted(one.culprit.rank or 0 for one in verdict.undecided.suspects) == [0, 4]
    assert "rank 0" in verdict.summary.lower()
    assert " or rank 4" in verdict.summary


@pytest.mark.parametrize(("run", "rank"), [("batched_stopped1", 1), ("interleaved_stopped5", 5)])
def test_who_holds_up_a_pipeline_of_batched_messages_is_named_by_dumps_alone(
    run: str, rank: int
) -> None:
    """Members of batches stay scheduled for ever: those that ended must not look pending."""
    (verdict,) = report_of(ROOT / "tests/fixtures/pipelines" / run).verdicts
    assert (verdict.cause, verdict.culprit.rank) == (Cause.HANG, rank)
    assert verdict.confidence > UNSURE_MAX
    assert not any("coalesced" in one.text for one in verdict.evidence)
