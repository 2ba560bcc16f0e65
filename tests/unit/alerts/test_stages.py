"""Stages of a pipeline: bubbles as the schedule has them, the stage that sets the pace, silence."""

import msgspec
import pytest

from alerts.compare.stages import Basis, Stages, pace_of, stages_in
from collector.contract.collective import Operation
from tests.worlds.late_jobs import make_job, shuffled
from tests.worlds.pipeline_jobs import COMPUTE_MS, Pipelines, Slow, to_job

STEPS = 20
MS = 1_000_000


def stages_of(pipelines: Pipelines, slow: Slow = lambda *_: 0.0) -> Stages:
    return stages_in(to_job(pipelines.play(STEPS, slow)))


@pytest.mark.parametrize(("stages", "batches"), [(4, 4), (4, 16), (2, 8)])
def test_the_bubble_is_that_of_the_schedule(stages: int, batches: int) -> None:
    """Of a pipeline that fills and drains it is (stages - 1) in (batches + stages - 1)."""
    answer = stages_of(Pipelines(stages, 2, batches=batches))
    assert answer.unknown == []
    assert answer.basis is Basis.OUTSIDE
    assert (answer.pipelines, answer.steps) == (2, STEPS)
    assert [one.ranks for one in answer.stages] == [[k, k + stages] for k in range(stages)]
    expected = (stages - 1) / (batches + stages - 1)
    assert answer.bubble_share == pytest.approx(expected, abs=0.06)
    for one in answer.stages:
        assert one.own_ns == pytest.approx(2 * batches * COMPUTE_MS * MS, rel=0.02)
    assert answer.pace is None


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_stage_with_more_work_sets_the_pace_and_waits_least(stage: int) -> None:
    answer = stages_of(
        Pipelines(4, 2), lambda rank, _: 2 * COMPUTE_MS if rank % 4 == stage else 0.0
    )
    assert answer.pace == stage
    heavy = answer.stages[stage]
    assert heavy.bubble_share == min(one.bubble_share for one in answer.stages)
    assert heavy.own_most_ns == pytest.approx(heavy.own_ns, rel=0.05)  # all copies alike
    assert heavy.saved_share is not None
    assert heavy.saved_share > 0.05


def test_one_slow_rank_is_seen_beside_its_stage_and_not_as_it() -> None:
    answer = stages_of(Pipelines(4, 2), lambda rank, _: 4.0 if rank == 5 else 0.0)
    assert answer.pace == 1
    stage = answer.stages[1]
    assert stage.own_most_rank == 5
    assert stage.own_most_ns > 1.5 * stage.own_ns
    assert stage.own_ns == pytest.approx(answer.stages[0].own_ns, rel=0.02)


def test_stages_stand_in_the_order_of_the_work_and_not_of_ranks() -> None:
    """Ranks are numbered from the last stage to the first."""
    job = to_job(Pipelines(4, 2).play(STEPS))
    communicators = {
        name: msgspec.structs.replace(one, job_rank={k: 7 - v for k, v in one.job_rank.items()})
        for name, one in job.communicators.items()
    }
    answer = stages_in(msgspec.structs.replace(job, communicators=communicators))
    assert [one.ranks for one in answer.stages] == [[3, 7], [2, 6], [1, 5], [0, 4]]


def test_rows_in_another_order_say_the_same() -> None:
    job = to_job(Pipelines(4, 2).play(STEPS))
    assert stages_in(shuffled(job, 3)) == stages_in(job)


def test_without_messages_there_is_no_stage_and_a_reason() -> None:
    answer = stages_in(make_job())
    assert (answer.stages, answer.pipelines, answer.bubble_share) == ([], 0, None)
    assert "no sends and receives" in answer.unknown[0]


def test_messages_whose_ends_no_source_names_are_no_stages() -> None:
    """As PyTorch's traces have batches: kernels of sends and receives without a peer."""
    records = [
        msgspec.structs.replace(one, communicator="all", ranks=8, rank=one.pid - 1, peer=None)
        if one.operation in (Operation.SEND, Operation.RECV)
        else one
        for one in Pipelines(4, 2).play(STEPS)
    ]
    answer = stages_in(to_job(records))
    assert answer.stages == []
    assert "the other end is not known" in answer.unknown[0]


def test_thinned_records_give_no_figures() -> None:
    job = msgspec.structs.replace(to_job(Pipelines(4, 2).play(STEPS)), kept_one_in=4)
    answer = stages_in(job)
    assert answer.stages == []
    assert "one operation in 4" in answer.unknown[0]


def test_steps_that_were_cut_wrongly_give_no_figures() -> None:
    job = to_job(Pipelines(4, 2).play(STEPS))
    steps = [
        msgspec.structs.replace(one, end_ns=(one.start_ns + one.end_ns) // 2) for one in job.steps
    ]
    answer = stages_in(msgspec.structs.replace(job, steps=steps))
    assert answer.stages == []
    assert "does not add up" in answer.unknown[0]


@pytest.mark.parametrize(
    ("saved", "pace"),
    [
        ([0.01, 0.08, 0.01], 1),
        ([0.06, 0.05, 0.01], None),
        ([0.02, 0.005], None),
        ([0.08], None),
        ([], None),
    ],
)
def test_the_pace_is_set_by_one_stage_or_by_none(saved: list[float], pace: int | None) -> None:
    assert pace_of(saved) == pace
