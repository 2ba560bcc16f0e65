"""Two ranks show the pace of a job: what costs all of them time is heard, and chance is not."""

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Records
from alerts.window.model import JobWindow
from alerts.window.pace import Beat, find_beats, keeps_pace
from collector.contract.units import NS
from tests.worlds.late_jobs import START_NS, make_job

STEPS = 160
LEARNED = 120
RANKS = 8


def part(job: JobWindow, first: int, end: int) -> JobWindow:
    """The job as a window of these steps has it."""
    records = job.records
    chosen = (records.sequence >= first) & (records.sequence < end)
    kept: Records = records.select(chosen)
    inside = (job.operations.sequence >= first) & (job.operations.sequence < end)
    return msgspec.structs.replace(
        job,
        records=kept,
        operations=job.operations.select(inside),
        steps=list(job.steps)[first:end],
    )


def beats_of(job: JobWindow, lag_s: float = 2.0) -> tuple[Beat, ...]:
    return find_beats(job, int(job.records.entry_ns.max()) + round(lag_s * NS))


def heard_after(job: JobWindow, end: int) -> bool:
    """Whether the job keeps its pace by what was heard until the end of a step."""
    beats = beats_of(part(job, 0, LEARNED))
    assert beats
    until = part(job, 0, end)
    return keeps_pace(beats, until.records, int(until.records.exit_ns.max()) + 2 * NS)


def slowed(share: float, **given: float) -> JobWindow:
    extra = np.zeros((STEPS, RANKS))
    extra[LEARNED:, 3] = share * 1_000.0
    return make_job(steps=STEPS, compute_ms=1_000.0, extra_ms=extra, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_job_keeps_its_pace(seed: int) -> None:
    job = slowed(0.0, seed=seed)
    assert all(heard_after(job, end) for end in range(LEARNED + 5, STEPS, 5))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.02, 0.03, 0.1, 0.5])
def test_any_rank_that_costs_the_others_time_is_heard_within_ten_steps(
    seed: int, share: float
) -> None:
    assert not heard_after(slowed(share, seed=seed), LEARNED + 10)


def test_a_job_that_became_faster_is_heard_too() -> None:
    extra = np.zeros((STEPS, RANKS))
    extra[:LEARNED, 3] = 50.0
    job = make_job(steps=STEPS, compute_ms=1_000.0, extra_ms=extra)
    assert not heard_after(job, LEARNED + 10)


@pytest.mark.parametrize("lag_s", [0.5, 8.0])
def test_a_job_that_stands_is_heard_soon_after_its_records_should_have_come(lag_s: float) -> None:
    job = slowed(0.0)
    beats = beats_of(part(job, 0, LEARNED), lag_s)
    last = int(job.records.entry_ns.max())
    assert keeps_pace(beats, job.records, last + round(lag_s * NS))
    assert not keeps_pace(beats, job.records, last + round((lag_s + 3) * NS))
    assert not keeps_pace(beats, job.records.select(slice(0)), last)


def test_a_hiccup_within_what_is_usual_is_no_change_and_a_long_pause_is_one() -> None:
    extra = np.zeros((STEPS, RANKS))
    extra[::17, 5] = 300.0
    job = make_job(steps=STEPS, compute_ms=1_000.0, extra_ms=extra)
    assert all(heard_after(job, end) for end in range(LEARNED + 5, STEPS, 5))
    extra[LEARNED + 3, 1] = 1_200.0
    paused = make_job(steps=STEPS, compute_ms=1_000.0, extra_ms=extra)
    assert not heard_after(paused, LEARNED + 5)


def test_lost_records_change_no_pace() -> None:
    job = slowed(0.0)
    random = np.random.default_rng(5)
    kept: Records = job.records.select(random.random(len(job.records)) > 0.05)
    lossy = msgspec.structs.replace(job, records=kept)
    assert all(heard_after(lossy, end) for end in range(LEARNED + 5, STEPS, 5))


def test_a_job_without_a_rhythm_has_no_pace() -> None:
    random = np.random.default_rng(3)
    uneven = make_job(steps=60, compute_ms=1_000.0, extra_ms=random.exponential(400.0, (60, RANKS)))
    assert beats_of(uneven) == ()
    assert beats_of(make_job(steps=6)) == ()
    assert beats_of(make_job(steps=30, compute_ms=25_000.0)) == ()
    assert not keeps_pace((), uneven.records, int(uneven.records.exit_ns.max()))
    assert find_beats(uneven.at_rest(), START_NS) == ()
