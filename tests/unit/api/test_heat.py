"""Ranks times steps: who is late is seen in his row, whatever is put together or left out."""

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Records
from alerts.window.split import split
from api.jobs.correlate.heat import HeatMap, Quantity, fewer_ranks, heat_of
from api.jobs.correlate.window import JobCollectives, JobRanks, JobWork
from tests.worlds.collectives import make_records

RANKS, STEPS, LATE = 8, 60, 3
STEP_S, TRANSFER_S, LATE_S = 0.05, 0.0088, 0.02
"""As `make_records` has them; the transfer is that of both collectives of a step."""
JOB_RANK: JobRanks = {("0xabc", rank): rank for rank in range(RANKS)}


def make_window(records: Records, kept_one_in: int = 1) -> JobCollectives:
    """A window of these records; thinned ones have the whole of two ranks beside them."""
    kept, members = records, records
    if kept_one_in > 1:
        kept = records.select(records.sequence % kept_one_in == 0)
        members = records.select(records.rank < 2)
    return JobCollectives(
        source="nccl_inspector",
        kept_one_in=kept_one_in,
        records=kept,
        members=members,
        clocks=[],
        operations=split(records),
    )


def draw(
    window: JobCollectives, quantity: Quantity, steps_max: int = 500, ranks_max: int = 100
) -> HeatMap:
    work = JobWork(window, JOB_RANK)
    found = heat_of(work, quantity, steps_max=steps_max, ranks_max=ranks_max)
    assert found is not None
    assert found.values.shape == (len(found.ranks), len(found.number))
    assert (np.diff(found.start_ns) > 0).all()
    assert (found.start_ns < found.end_ns).all()
    return found


@pytest.fixture(scope="module")
def late() -> JobCollectives:
    return make_window(make_records(steps=STEPS, late={LATE: LATE_S}))


def test_who_is_late_is_late_in_every_step(late: JobCollectives) -> None:
    heat = draw(late, Quantity.LATE)
    assert heat.ranks.tolist() == list(range(RANKS))
    # The first and the last step may be cut off, and are not shown.
    assert heat.number.tolist() == list(range(1, STEPS - 1))
    assert heat.steps_in_one == 1
    assert heat.values[LATE] == pytest.approx(np.full(STEPS - 2, LATE_S), abs=0.004)
    assert np.delete(heat.values, LATE, axis=0).max() < 0.005


def test_the_others_wait_for_whom_computes_longer(late: JobCollectives) -> None:
    values = {one: draw(late, one).values for one in Quantity}
    others = np.arange(RANKS) != LATE
    assert values[Quantity.WAIT][others].min() > LATE_S - 0.006
    assert values[Quantity.WAIT][LATE].max() < 0.004
    more = values[Quantity.COMPUTE][LATE] - np.median(values[Quantity.COMPUTE][others], axis=0)
    assert more == pytest.approx(np.full(STEPS - 2, LATE_S), abs=0.004)
    assert values[Quantity.NETWORK] == pytest.approx(
        np.full((RANKS, STEPS - 2), TRANSFER_S), abs=0.003
    )
    assert np.median(values[Quantity.STEP]) == pytest.approx(STEP_S, rel=0.05)
    parts = [values[one] for one in (Quantity.COMPUTE, Quantity.WAIT, Quantity.NETWORK)]
    assert np.sum(parts, axis=0) == pytest.approx(values[Quantity.STEP], abs=1e-4)


def test_one_slow_step_is_seen_in_the_column_that_it_is_put_into() -> None:
    records = make_records(steps=STEPS)
    slow = (records.sequence == 33) & (records.rank == LATE) & (records.operation == 1)
    entry = np.where(slow, records.entry_ns + 5_000_000, records.entry_ns)
    window = make_window(msgspec.structs.replace(records, entry_ns=entry))
    whole = draw(window, Quantity.LATE)
    heat = draw(window, Quantity.LATE, steps_max=10)
    assert heat.steps_in_one == 6
    assert heat.number.tolist() == list(range(1, STEPS - 1, 6))
    assert heat.end_ns[-1] == whole.end_ns[-1]
    row, column = divmod(int(np.argmax(heat.values)), heat.values.shape[1])
    assert (row, int(heat.number[column])) == (LATE, 31)
    assert heat.values[row, column] == whole.values.max() > 0.004


def test_a_rank_that_was_not_seen_is_no_zero() -> None:
    records = make_records(steps=STEPS)
    gone = (records.rank == 5) & (records.sequence >= 20) & (records.sequence < 30)
    heat = draw(make_window(records.select(~gone)), Quantity.LATE)
    assert np.isnan(heat.values[5, 20:28]).all()
    assert not np.isnan(np.delete(heat.values, 5, axis=0)).any()


def test_thinned_records_still_show_everybody_who_is_late() -> None:
    window = make_window(make_records(steps=STEPS, late={LATE: LATE_S}), kept_one_in=8)
    heat = draw(window, Quantity.LATE)
    # One operation of each kind a step, and every eighth was kept: eight steps hold one.
    assert heat.steps_in_one == 8
    assert heat.ranks.tolist() == list(range(RANKS))
    whole = heat.values[:, :-1]  # the last column has the two steps that are left
    assert not np.isnan(whole).any()
    assert whole[LATE].min() > LATE_S - 0.002
    # What needs all operations is known of the ranks of which all were read.
    assert draw(window, Quantity.WAIT).ranks.tolist() == [0, 1]


def test_of_many_ranks_those_that_stand_out_stay() -> None:
    values = np.random.default_rng(1).uniform(0, 0.1, (1000, 7))
    values[[17, 801, 802]] += 1.0
    values[5] = np.nan
    none = np.arange(7)
    heat = HeatMap(ranks=np.arange(1000), number=none, start_ns=none, end_ns=none, values=values)
    fewer = fewer_ranks(heat, 64)
    assert len(fewer.ranks) == 64
    assert {17, 801, 802} <= set(fewer.ranks.tolist())
    assert (np.diff(fewer.ranks) > 0).all()
    assert np.diff(fewer.ranks).max() < 50, "the others are all over the job"
    assert np.array_equal(fewer.values, values[fewer.ranks], equal_nan=True)
    assert fewer_ranks(heat, 1000) is heat


def test_what_does_not_repeat_has_no_steps() -> None:
    for records in (make_records(steps=1), make_records(steps=2)):
        work = JobWork(make_window(records), JOB_RANK)
        found = heat_of(work, Quantity.LATE, steps_max=500, ranks_max=100)
        assert found is None
