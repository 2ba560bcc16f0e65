"""`diagnose` on traces of played pipelines, as different tools would write them.

The faults last from the first step to the last, so that no healthy time tells what is usual.
"""

from pathlib import Path

import pytest

from collector.contract.verdict import Reason
from tests.stands.diagnosing import report_of
from tests.worlds.expert_jobs import played, write_traces
from tests.worlds.pipeline_cases import Case, Fault, Outcome
from tests.worlds.pipeline_play import Shape
from tests.worlds.pipeline_traces import Style

SMALL = Shape(stages=4, copies=2, steps=3, batches=6)
WIDE = Shape(stages=2, copies=8, steps=4)
CASES = [
    Case(fault=Fault.SLOW_WORKER, shape=SMALL, style=Style.FULL, has_steps=False),
    Case(fault=Fault.SLOW_WORKER, shape=SMALL, style=Style.TRANSFERS),
    Case(fault=Fault.LAST_STAGE, shape=SMALL, style=Style.ANNOTATED, has_steps=False),
    Case(fault=Fault.SEQUENCES, shape=WIDE, style=Style.RANGES, seed=2),
    Case(fault=Fault.HEALTHY, shape=SMALL, style=Style.ANNOTATED),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_slow_worker_or_stage_is_named_and_nobody_for_uneven_work(
    case: Case, tmp_path: Path
) -> None:
    case.write(tmp_path)
    assert case.outcome(report_of(tmp_path)) is Outcome.RIGHT


@pytest.mark.slow
@pytest.mark.parametrize(("held", "slow_ms"), [(1.5, 0.0), (1.0, 50.0)])
def test_traces_tell_a_rank_that_holds_more_tokens_from_one_that_is_slow(
    held: float, slow_ms: float, tmp_path: Path
) -> None:
    """Both are late by as much: only the sizes of their all-to-alls differ."""
    records, _ = played(
        lambda rank, _: held if rank == 5 else 1.0, lambda rank, _: slow_ms if rank == 5 else 0.0
    )
    write_traces(records, tmp_path)
    (verdict,) = report_of(tmp_path).verdicts
    assert verdict.culprit.rank == 5
    assert (verdict.reason is Reason.IMBALANCE) == (held > 1)
    shares = [one.value for one in verdict.evidence if one.metric == "all_to_all_share"]
    assert shares == ([pytest.approx(held, abs=0.02)] if held > 1 else [])
