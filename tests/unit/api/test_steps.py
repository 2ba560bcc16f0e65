"""A step is what repeats, wherever records are lost; its time is split and its culprit named."""

import msgspec
import numpy as np

from alerts.window.columns import Records
from alerts.window.steps import find_period, infer_bounds, infer_steps, measure_steps, to_work
from tests.worlds.collectives import make_records

MS = 1_000_000
JOB_RANK = {("0xabc", rank): rank for rank in range(8)}


def test_every_step_is_found_and_adds_up() -> None:
    steps = infer_steps(make_records(), JOB_RANK)
    assert [step.number for step in steps] == list(range(100))
    for step in steps[1:]:
        lasted = step.end_ns - step.start_ns
        assert abs(lasted - 50 * MS) < 5 * MS
        assert abs(step.compute_ns + step.wait_ns + step.transfer_ns - lasted) < 2 * MS
        assert abs(step.transfer_ns - 9 * MS) < 3 * MS
        assert step.ranks == 8


def test_waiting_for_a_late_rank_is_waiting() -> None:
    steps = infer_steps(make_records(late={3: 0.02}), JOB_RANK)[1:]
    assert {step.last_rank for step in steps} == {3}
    assert all(18 * MS < step.wait_ns < 26 * MS for step in steps)
    assert all(abs(step.transfer_ns - 9 * MS) < 3 * MS for step in steps)


def test_lost_records_shift_no_step() -> None:
    whole = make_records()
    random = np.random.default_rng(4)
    kept: Records = whole.select(random.random(len(whole)) > 0.05)
    lengths = np.array([step.end_ns - step.start_ns for step in infer_steps(kept, JOB_RANK)])
    assert len(lengths) == 100
    assert abs(np.median(lengths) - 50 * MS) < 5 * MS


def test_an_evaluation_in_between_is_no_step() -> None:
    records = make_records()
    pause = np.where(records.sequence >= 50, 3_000 * MS, 0)
    paused = msgspec.structs.replace(
        records, entry_ns=records.entry_ns + pause, exit_ns=records.exit_ns + pause
    )
    steps = infer_steps(paused, JOB_RANK)
    assert len(steps) == 100
    assert steps[50].end_ns - steps[50].start_ns > 3_000 * MS
    assert steps[50].compute_ns > 2_900 * MS


def test_steps_of_slices_that_cut_them_anywhere_are_found() -> None:
    """Of a job with too many records a window holds slices of time: their phases differ."""
    whole = make_records(steps=400)
    order = np.argsort(whole.entry_ns, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    for cut in range(1, 16, 3):
        # Slices of about 30 steps, each begun some operations later in its step.
        kept: Records = whole.select((place + cut) % (100 * 16 + cut) < 30 * 16)
        steps = infer_steps(kept, JOB_RANK)
        lengths = np.array([step.end_ns - step.start_ns for step in steps])
        assert len(steps) >= 4 * 28, cut
        assert abs(np.median(lengths) - 50 * MS) < 5 * MS


def test_ranks_whose_place_is_unknown_are_left_out() -> None:
    steps = infer_steps(make_records(), {("0xabc", 0): 0, ("0xabc", 1): 1})
    assert {step.ranks for step in steps} == {2}
    assert infer_steps(make_records(), {}) == []
    assert infer_steps(make_records(steps=1), JOB_RANK) == []


def test_the_shortest_period_that_explains_all_is_the_step() -> None:
    assert find_period(np.array([1, 2] * 20)) == 2
    assert find_period(np.array([1, 1, 1, 1, 2] * 20)) == 5
    assert find_period(np.array([7] * 20)) == 1
    assert find_period(np.array([7])) is None
    # A layer repeats within the step, nearly; the whole step explains more.
    layers = ([1, 2] * 30 + [3]) * 6
    assert find_period(np.array(layers)) == 61
    assert find_period(np.random.default_rng(1).integers(0, 50, 500)) is None


def test_numbers_that_count_all_kinds_together_count_steps_too() -> None:
    """As Flight Recorder does: an all-reduce, an all-gather, an all-reduce…: 0, 1, 2."""
    records = make_records()
    together = records.sequence * 2 + (records.operation == 0)
    steps = infer_steps(msgspec.structs.replace(records, sequence=together), JOB_RANK)
    assert [step.number for step in steps] == list(range(100))


def test_the_program_s_order_counts_where_kernels_overlap() -> None:
    """An all-gather on another stream is launched first and enters now before, now after."""
    records = make_records()
    launched = records.entry_ns.min() + records.sequence * 50 * MS + (records.operation == 1)
    random = np.random.default_rng(3)
    swapped = random.random(100)[records.sequence] < 0.5
    moved = np.where(swapped & (records.operation == 0), -15 * MS, 0)
    overlapping = msgspec.structs.replace(
        records,
        enqueue_ns=launched,
        entry_ns=records.entry_ns + moved,
        exit_ns=records.exit_ns + moved,
    )
    assert len(infer_steps(overlapping, JOB_RANK)) == 100


def test_of_no_steps_none_is_measured() -> None:
    """A piece of time in which no step ends."""
    work = to_work(make_records(), JOB_RANK)
    bounds = infer_bounds(work)
    assert bounds is not None
    assert len(measure_steps(work, bounds)) == len(np.unique(bounds.number))
    assert measure_steps(work, bounds.select(slice(0))) == []
