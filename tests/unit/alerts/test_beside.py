"""Troubles of a job that follow each other: their costs are against the healthy steps."""

import msgspec
import numpy as np
import pytest

from alerts.judge.beside import TURN_NS, costs_apart
from alerts.signals.step_times import cost_by_steps
from alerts.window.model import Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.worlds.late_jobs import make_job, make_window

HEALTHY, FIRST, SECOND = 1.0, 1.6, 1.4
"""A step in seconds: before, in the first trouble, in the second."""
STEPS = 12


def played(*kinds: float) -> Window:
    """Steps of these lengths; if not said, healthy ones, slow ones by a trouble and by the next."""
    lengths = np.repeat(kinds or [HEALTHY, FIRST, SECOND], STEPS)
    job = make_job()
    begin_ns = job.steps[0].start_ns
    ends = begin_ns + np.rint(np.cumsum(lengths) * NS).astype(np.int64)
    steps = [
        msgspec.structs.replace(job.steps[0], start_ns=int(end - round(one * NS)), end_ns=int(end))
        for end, one in zip(ends, lengths, strict=True)
    ]
    window = make_window(job)
    changed = msgspec.structs.replace(job, steps=steps)
    return msgspec.structs.replace(window, jobs=[changed], to_ns=int(ends[-1]))


def said(
    window: Window, device: str, first: int, last: int | None, cause: Cause = Cause.LOSSY_LINK
) -> Verdict:
    """A verdict from one of these steps until before another; None: it lasts."""
    [job] = window.jobs
    since_ns = job.steps[first].start_ns
    until_ns = None if last is None else job.steps[last].start_ns
    return Verdict(
        cause=cause,
        culprit=Culprit(host="a", device=device),
        since_ns=since_ns,
        until_ns=until_ns,
        jobs=(job.job,),
        costs=(cost_by_steps(job, since_ns, until_ns or window.to_ns, 0.0),),
        summary="as it was",
    )


def test_steps_of_the_trouble_before_are_not_usual() -> None:
    window = played()
    first, second = (
        said(window, "mlx5_0", STEPS, 2 * STEPS),
        said(window, "mlx5_1", 2 * STEPS, None),
    )
    [was] = second.costs
    assert was.step_seconds_without == pytest.approx(FIRST), "it seemed to cost nothing"
    _, changed = costs_apart(window, [first, second])
    [cost] = changed.costs
    assert cost.step_seconds_without == pytest.approx(HEALTHY)
    assert cost.lost_seconds == pytest.approx(STEPS * (SECOND - HEALTHY))
    assert cost.lost_share == pytest.approx((SECOND - HEALTHY) / SECOND)
    assert "1.40 s instead of 1.00 s" in changed.summary
    assert msgspec.structs.replace(changed, costs=second.costs, summary=second.summary) == second, (
        "nothing else is different"
    )


def test_steps_of_the_trouble_after_are_not_usual() -> None:
    """Seen live: 1.18 s instead of 1.12 s, while the job took 0.94 s before both."""
    window = played(FIRST, SECOND, HEALTHY)
    first, second = (
        said(window, "mlx5_0", 0, STEPS),
        said(window, "mlx5_1", STEPS, 2 * STEPS),
    )
    [was] = first.costs
    assert was.step_seconds_without == pytest.approx(SECOND)
    [cost] = costs_apart(window, [first, second])[0].costs
    assert cost.step_seconds_without == pytest.approx(HEALTHY)
    assert cost.lost_seconds == pytest.approx(STEPS * (FIRST - HEALTHY))


def test_what_goes_on_beside_it_is_no_turn() -> None:
    window = played()
    other = said(window, "mlx5_0", STEPS, 3 * STEPS - 1)
    assert other.until_ns is not None
    second = said(window, "mlx5_1", 2 * STEPS, None)
    assert other.until_ns > second.since_ns + TURN_NS
    assert costs_apart(window, [other, second]) == [other, second]


def test_what_is_played_stays_and_is_at_least_that() -> None:
    """It was held against steps that the trouble before made longer."""
    window = played(HEALTHY, SECOND, FIRST)
    first = said(window, "mlx5_0", STEPS, 2 * STEPS)
    late = said(window, "mlx5_1", 2 * STEPS, None, Cause.STRAGGLER)
    changed = costs_apart(window, [first, late])[1]
    [was], [cost] = late.costs, changed.costs
    assert (was.is_at_least, cost.is_at_least) == (False, True)
    assert msgspec.structs.replace(cost, is_at_least=False) == was
    assert "1.60 s instead of 1.40 s or less" in changed.summary
    assert msgspec.structs.replace(changed, costs=late.costs, summary=late.summary) == late, (
        "nothing else is different"
    )


@pytest.mark.parametrize("cause", [Cause.STRAGGLER, Cause.LOSSY_LINK])
def test_without_a_calm_step_it_cost_at_least_that(cause: Cause) -> None:
    window = played(SECOND, FIRST)
    first = said(window, "mlx5_0", 0, STEPS)
    second = said(window, "mlx5_1", STEPS, None, cause)
    [cost] = costs_apart(window, [first, second])[1].costs
    assert cost == msgspec.structs.replace(second.costs[0], is_at_least=True)


def test_beside_calm_steps_a_late_rank_cost_what_was_played() -> None:
    """The trouble before ended long ago: most of the steps beside are calm."""
    window = played(FIRST, *[HEALTHY] * 3, SECOND)
    first = said(window, "mlx5_0", 0, STEPS)
    late = said(window, "mlx5_1", 4 * STEPS, None, Cause.STRAGGLER)
    assert costs_apart(window, [first, late])[1] == late


def test_another_job_s_trouble_changes_nothing() -> None:
    window = played()
    first = said(window, "mlx5_0", STEPS, 2 * STEPS)
    first = msgspec.structs.replace(first, jobs=("other",), costs=())
    second = said(window, "mlx5_1", 2 * STEPS, None)
    assert costs_apart(window, [first, second]) == [first, second]
