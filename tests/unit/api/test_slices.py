"""Which slices of a long time are read, and what their clocks say of the time between."""

import numpy as np
import pytest

from alerts.window.columns import Clock, ClockFit
from alerts.window.slices import (
    SLICE_NS_MIN,
    SLICE_STEPS,
    SLICES_MAX,
    align_slices,
    bridged,
    choose_slices,
    records_in_slices,
    shrunk,
    some_operations,
)
from api.jobs.correlate.window import some_members
from collector.contract.units import NS
from tests.worlds.collectives import START_NS, make_records, shift_clocks

PIECES = 3_600
EDGES = np.arange(PIECES + 1, dtype=np.int64) * NS


def test_slices_are_spread_evenly_and_the_last_ends_where_records_do() -> None:
    counts = np.full(PIECES, 1_000, dtype=np.int64)
    slices = choose_slices(counts, EDGES, 160_000)
    assert len(slices) == SLICES_MAX
    assert slices[-1][1] == EDGES[-1] - 1
    assert [round((end - begin) / NS) for begin, end in slices] == [20] * SLICES_MAX
    assert np.ptp(np.diff([end for _, end in slices])) <= NS


def test_fewer_slices_rather_than_shorter_ones() -> None:
    counts = np.full(PIECES, 1_000, dtype=np.int64)
    for seconds, expected in ((5, 1), (30, 2), (50, 4)):
        slices = choose_slices(counts, EDGES, seconds * 1_000)
        assert len(slices) == expected
        assert sum(end - begin for begin, end in slices) == pytest.approx(seconds * NS, rel=0.1)
    assert SLICE_NS_MIN == 12 * NS


def test_each_slice_has_room_for_several_steps() -> None:
    """A job of 3,500 ranks whose steps take six seconds: slices of twelve showed no whole step."""
    window = EDGES[:181]
    counts = np.full(180, 5_300, dtype=np.int64)
    for step_s, expected in ((0, 6), (1, 6), (6, 1)):
        read = records_in_slices(counts, window, step_s * NS, 400_000, 800_000)
        assert read == 400_000
        slices = choose_slices(counts, window, read, step_s * NS)
        assert len(slices) == expected
        assert min(end - begin for begin, end in slices) >= SLICE_STEPS * step_s * NS
        assert sum(end - begin for begin, end in slices) == pytest.approx(75 * NS, rel=0.1)


def test_more_is_read_where_so_many_steps_need_it() -> None:
    window = EDGES[:181]
    counts = np.full(180, 9_800, dtype=np.int64)
    assert records_in_slices(counts, window, 7 * NS, 400_000, 800_000) == 8 * 7 * 9_800
    assert records_in_slices(counts, window, 60 * NS, 400_000, 800_000) == 800_000
    assert records_in_slices(counts * 0, window, 7 * NS, 400_000, 800_000) == 400_000


def test_a_burst_does_not_make_a_slice_too_large_and_silence_none_at_all() -> None:
    counts = np.full(PIECES, 1_000, dtype=np.int64)
    counts[:1_000] = 0
    counts[-1] = 10_000_000
    slices = choose_slices(counts, EDGES, 160_000)
    held = sum(int(counts[begin // NS : end // NS + 1].sum()) for begin, end in slices)
    assert held <= 2 * 160_000
    assert all(begin >= 1_000 * NS for begin, _ in slices)
    assert choose_slices(counts * 0, EDGES, 160_000) == []


def fit(from_s: int, to_s: int, offset_ns: int, *, is_corrected: bool = True) -> ClockFit:
    """One host's clock, for some seconds."""
    clock = Clock(
        host="node0",
        offset_ns=offset_ns,
        drift=0.0,
        residual_ns=10,
        bound_ns=None,
        is_corrected=is_corrected,
    )
    middle = (from_s + to_s) * NS // 2
    return ClockFit(
        from_ns=from_s * NS, to_ns=to_s * NS, middle_ns=middle, clocks=[clock], operations=5
    )


def test_between_two_slices_a_clock_goes_from_one_offset_to_the_other() -> None:
    before, first, between, last = bridged([fit(0, 10, 1_000), fit(110, 120, 5_000)])
    (clock,) = between.clocks
    assert (before.to_ns, before.clocks[0].drift) == (first.from_ns - 1, clock.drift)
    assert (first.from_ns, last.to_ns) == (0, 120 * NS)
    assert (between.from_ns, between.to_ns) == (10 * NS + 1, 110 * NS - 1)
    assert clock.offset_ns == pytest.approx(3_000, abs=1)
    assert clock.drift * 100 * NS == pytest.approx(4_000, rel=0.01)
    assert bridged([]) == []


def test_what_clocks_differ_by_is_cut_off_both_ends() -> None:
    slices = [(0, 10 * NS), (20 * NS, 21 * NS)]
    assert shrunk(slices, [fit(0, 10, -2 * NS)]) == [(2 * NS, 8 * NS)]
    assert shrunk(slices, [fit(0, 10, -2 * NS, is_corrected=False)]) == slices


def test_clocks_of_slices_are_found_from_some_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = np.linspace(-200e6, 200e6, 8)
    records = shift_clocks(make_records(steps=400, step_seconds=1.0), offsets, np.zeros(8))
    monkeypatch.setattr("alerts.window.slices.CLOCK_ROWS_MAX", 200)
    assert 0 < len(some_operations(records, 200)) < 400
    slices = [(START_NS + begin * NS, START_NS + (begin + 20) * NS) for begin in (80, 180, 360)]
    fits = align_slices(records, slices)
    assert len(fits) == 6
    for one in fits:
        found = np.array([clock.offset_ns for clock in one.clocks])
        assert np.abs(found - found.mean() - offsets).max() < 1e6


def test_of_a_job_whose_ranks_nobody_knows_no_member_is_chosen() -> None:
    assert some_members({}, 0.5) == []
    assert some_members({("c", 0): 0, ("c", 1): 1}, 0.1) == [("c", 0)]
