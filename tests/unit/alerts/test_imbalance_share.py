"""What explains a slow job without anyone being at fault: unequal work, and much to transfer."""

import msgspec
import numpy as np

from alerts.detectors import imbalance, network_share, straggler
from alerts.window.columns import Records
from alerts.window.model import Window
from alerts.window.split import split
from collector.contract.verdict import Culprit, Reason
from tests.worlds.late_jobs import make_job, make_window

STEPS, RANKS = 40, 8


def test_a_little_more_work_for_ever_is_context() -> None:
    extra = np.zeros((STEPS, RANKS))
    extra[:, 5] = 14.0
    window = make_window(make_job(extra_ms=extra))
    (finding,) = imbalance.detect(window)
    assert finding.is_context
    assert finding.reason is Reason.IMBALANCE
    assert finding.culprit.rank == 5
    assert not straggler.detect(window)


def test_a_fault_is_not_called_unequal_work() -> None:
    extra = np.zeros((STEPS, RANKS))
    extra[20:, 5] = 40.0
    assert not imbalance.detect(make_window(make_job(extra_ms=extra)))


def test_another_slow_rank_at_each_step_is_context_about_the_job() -> None:
    random = np.random.default_rng(3)
    uneven = np.abs(random.normal(0.0, 30.0, (STEPS, RANKS)))
    (finding,) = imbalance.detect(make_window(make_job(extra_ms=uneven)))
    assert finding.is_context
    assert finding.culprit == Culprit(job="training")
    assert 0.05 < finding.evidence[0].value < 0.5


def test_even_work_and_no_work_are_not_worth_a_word() -> None:
    assert not imbalance.detect(make_window(make_job()))
    job = make_job()
    empty: Records = job.records.select(slice(0))
    nothing = msgspec.structs.replace(job, records=empty, operations=split(empty))
    assert not imbalance.detect(make_window(nothing))


def with_transfer(share: float, steps: int = 20) -> Window:
    """A job that waits for bytes for this share of each step."""
    job = make_job(steps=steps)
    marked = [
        msgspec.structs.replace(step, transfer_ns=round(share * (step.end_ns - step.start_ns)))
        for step in job.steps
    ]
    return make_window(msgspec.structs.replace(job, steps=marked))


def test_a_share_above_the_goal_is_context_with_both_figures() -> None:
    (finding,) = network_share.detect(with_transfer(0.4))
    assert finding.is_context
    assert abs(finding.evidence[0].value - 0.4) < 1e-6
    assert finding.evidence[0].baseline == network_share.SHARE_MAX


def test_a_share_below_the_goal_or_too_few_steps_find_nothing() -> None:
    assert not network_share.detect(with_transfer(0.2))
    assert not network_share.detect(with_transfer(0.4, steps=3))
    job = make_job(steps=20)
    assert not network_share.detect(make_window(msgspec.structs.replace(job, steps=())))
