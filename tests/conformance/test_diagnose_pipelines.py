"""`diagnose` on real pipelines: eight NCCL ranks on one GPU, with and without a fault.

Recorded by `tests.tools.gpu_ranks` (tests/fixtures/pipelines/ORIGIN). No test of a detector was
tuned on these: they were recorded after it, and other strengths and stages than here were tried.
"""

import json
from pathlib import Path

import pytest

from collector.contract.verdict import Cause, Reason
from tests.stands.diagnosing import ROOT, report_of

RUNS = sorted((ROOT / "tests/fixtures/pipelines").glob("*/truth.json"))
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
