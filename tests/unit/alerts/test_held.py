"""A rank that all-to-alls gave more to work on is unequal work; one that is slow is a straggler."""

import numpy as np
import pytest

from alerts.detectors import imbalance, straggler
from alerts.finding import Finding
from alerts.signals.gaps import own_time
from alerts.signals.held import held_share
from alerts.signals.step_times import MEASURED_SHARE
from alerts.window.model import JobWindow
from collector.contract.verdict import Reason
from tests.worlds.expert_jobs import RANKS, STEPS, Table, experts
from tests.worlds.late_jobs import make_window

FIRST = 20
"""The step at which another stretch begins."""


def of_straggler(job: JobWindow) -> list[Finding]:
    return straggler.detect(make_window(job, is_live=False))


def of_imbalance(job: JobWindow, *, is_live: bool = False) -> list[Finding]:
    return imbalance.detect(make_window(job, is_live=is_live))


def five(value: float, otherwise: float, first: int = 0) -> Table:
    return lambda rank, step: value if rank == 5 and step >= first else otherwise


@pytest.mark.parametrize("first", [0, 20])
def test_a_rank_that_holds_more_tokens_is_unequal_work_with_its_share(first: int) -> None:
    job = experts(five(1.5, 1.0, first))
    assert of_straggler(job) == []
    (finding,) = of_imbalance(job)
    assert (finding.culprit.rank, finding.reason) == (5, Reason.IMBALANCE)
    assert not finding.is_context
    (share,) = [one for one in finding.evidence if one.metric == "all_to_all_share"]
    assert share.value == pytest.approx(1.5, abs=0.02)
    assert "rank 5 sent 1.50 times" in share.text
    assert finding.cost is not None
    assert finding.cost.lost_share == pytest.approx(50 / 212, abs=0.05)


def test_unequal_work_costs_no_more_than_steps_became_longer_by() -> None:
    """Before, another rank held as much more at each step: steps are as long as they were."""

    def table(rank: int, step: int) -> float:
        most = 5 if step >= FIRST else step % 4
        return 1.5 if rank == most else 1.0

    (finding,) = of_imbalance(experts(table))
    assert finding.culprit.rank == 5
    assert finding.cost is not None
    assert 0.0 < finding.cost.lost_share <= 2 * MEASURED_SHARE


def test_in_a_running_job_it_wakes_no_one() -> None:
    (finding,) = of_imbalance(experts(five(1.5, 1.0)), is_live=True)
    assert finding.is_context


@pytest.mark.parametrize("first", [0, 20])
def test_a_slow_rank_with_as_many_tokens_as_others_is_a_straggler(first: int) -> None:
    job = experts(slow_ms=five(50.0, 0.0, first))
    (finding,) = of_straggler(job)
    assert finding.culprit.rank == 5
    assert of_imbalance(job) == []


def test_a_share_that_is_too_small_for_the_lateness_explains_nothing() -> None:
    (finding,) = of_straggler(experts(five(1.1, 1.0), five(60.0, 0.0)))
    assert finding.culprit.rank == 5


@pytest.mark.parametrize("share", [1.02, 1.3])
def test_a_rank_that_held_more_all_along_and_becomes_slow_is_a_straggler(share: float) -> None:
    (finding,) = of_straggler(experts(five(share, 1.0), five(120.0, 0.0, 20)))
    assert finding.culprit.rank == 5


def test_fewer_tokens_than_others_are_no_excuse() -> None:
    (finding,) = of_straggler(experts(five(0.7, 1.0), five(80.0, 0.0)))
    assert finding.culprit.rank == 5


def test_tokens_that_vary_by_chance_accuse_no_rank() -> None:
    random = np.random.default_rng(7)
    table = random.normal(1.0, 0.15, (RANKS, STEPS)).clip(0.5)
    job = experts(lambda rank, step: float(table[rank, step]))
    assert of_straggler(job) == []
    own = own_time(job)
    assert own is not None
    share = held_share(own)
    assert share is not None
    known = ~np.isnan(share)
    assert known.mean() > 0.9
    middle = np.sort(table, axis=0)[(RANKS - 1) // 2]
    assert np.allclose(share[known], (table / middle)[known], rtol=1e-3)


def test_even_all_to_alls_tell_nothing() -> None:
    own = own_time(experts())
    assert own is not None
    assert held_share(own) is None
