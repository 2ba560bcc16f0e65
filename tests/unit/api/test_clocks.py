"""`align` finds clock offsets from collectives, and leaves synchronous clocks alone."""

import msgspec
import numpy as np
import pytest

from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import TIMES, correct, host_clocks, move
from collector.contract.records import ABSENT
from collector.contract.units import NS
from tests.worlds.collectives import clock_errors, make_records, shift_clocks

MS = 1_000_000


def random_clocks(hosts: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.uniform(-250 * MS, 250 * MS, hosts), random.uniform(-5e-5, 5e-5, hosts)


@pytest.mark.parametrize("seed", range(5))
def test_offsets_and_drifts_are_recovered(seed: int) -> None:
    truth = make_records(seed=seed)
    shifted = shift_clocks(truth, *random_clocks(8, seed))
    fits = align(shifted)
    errors = clock_errors(correct(shifted, fits), truth)
    assert errors.max() < MS
    residuals = np.array([clock.residual_ns for clock in fits[0].clocks])
    assert (errors <= residuals).mean() > 0.7
    assert residuals.max() < 2 * MS


def test_each_clock_says_how_far_it_is_ahead_of_the_median() -> None:
    offsets = np.array([0.0, 0.0, 40.0, 0.0, 0.0, -90.0, 0.0, 0.0]) * MS
    fit = align(shift_clocks(make_records(), offsets, np.zeros(8)))[0]
    assert [clock.host for clock in fit.clocks] == [f"node{n}" for n in range(8)]
    found = np.array([clock.offset_ns for clock in fit.clocks])
    assert np.abs(found - offsets).max() < MS
    assert all(clock.bound_ns is not None and clock.bound_ns < 2 * MS for clock in fit.clocks)


def test_clocks_in_step_are_left_alone_to_the_nanosecond() -> None:
    records = make_records()
    fits = align(records)
    assert not any(clock.is_corrected for fit in fits for clock in fit.clocks)
    assert (correct(records, fits).exit_ns == records.exit_ns).all()


def test_a_late_rank_is_not_a_wrong_clock() -> None:
    records = make_records(late={3: 0.030})
    assert not any(clock.is_corrected for clock in align(records)[0].clocks)


def test_ranks_that_leave_a_long_transfer_seconds_apart_have_no_wrong_clock() -> None:
    """Large buckets behind a slow link: ranks leave one by one, and enter the next one so."""
    records = make_records(steps=40, step_seconds=20.0, transfer_seconds=12.0)
    ladder = (np.arange(8) * 0.2 * NS).astype(np.int64)[records.host]
    is_second = records.operation == records.operations.index("all_gather")
    slow = msgspec.structs.replace(
        records,
        entry_ns=records.entry_ns + np.where(is_second, ladder, 0),
        exit_ns=records.exit_ns + ladder,
    )
    hour = np.array([0, 0, 3_600, 0, 0, 0, 0, 0]) * 1_000.0 * MS
    for offsets in (np.zeros(8), hour):
        shifted = shift_clocks(slow, offsets, np.zeros(8))
        fits = align(shifted)
        assert [clock for fit in fits for clock in fit.clocks if not clock.is_known] == []
        assert clock_errors(correct(shifted, fits), slow).max() < NS


def test_several_ranks_of_a_host_share_its_clock() -> None:
    truth = make_records(hosts=4, ranks_per_host=4)
    shifted = shift_clocks(truth, *random_clocks(4, 3))
    fits = align(shifted)
    assert len(fits[0].clocks) == 4
    assert clock_errors(correct(shifted, fits), truth).max() < MS


def test_a_clock_that_bends_is_followed_in_stretches() -> None:
    """Over ten minutes a drift changes; each stretch of two minutes has its own fit."""
    truth = make_records(steps=1200, step_seconds=0.5)
    seconds = (truth.exit_ns - truth.exit_ns.min()) / 1e9
    bend = np.rint(30 * MS * np.sin(seconds / 400)).astype(np.int64) * (truth.host == 2)
    shifted = msgspec.structs.replace(
        truth, entry_ns=truth.entry_ns + bend, exit_ns=truth.exit_ns + bend
    )
    fits = align(shifted)
    assert len(fits) == 5
    assert clock_errors(correct(shifted, fits), truth).max() < 2 * MS


def test_hosts_that_never_meet_are_not_compared() -> None:
    one, other = make_records(hosts=2, seed=1), make_records(hosts=2, seed=2)
    both = Records(
        communicators=["a", "b"],
        operations=one.operations,
        hosts=["node0", "node1", "node2", "node3"],
        **{
            name: np.concatenate([column, other.arrays()[name]])
            for name, column in one.arrays().items()
            if name not in {"communicator", "host"}
        },
        communicator=np.repeat([0, 1], [len(one), len(other)]).astype(np.int32),
        host=np.concatenate([one.host, other.host + 2]).astype(np.int32),
    )
    # Both hosts of the second job are a minute ahead: no collective shows that offset.
    apart = shift_clocks(both, np.array([0, 0, 60_000 * MS, 60_000 * MS]), np.zeros(4))
    clocks = [clock for fit in align(apart) for clock in fit.clocks]
    assert not any(clock.is_corrected for clock in clocks)


def test_a_tree_that_lets_ranks_go_early_does_not_bend_the_clocks() -> None:
    records = make_records()
    early = (records.operation == 1) & (records.rank == 6)
    gone = np.where(early, records.entry_ns + MS, records.exit_ns)
    truth = msgspec.structs.replace(records, exit_ns=np.maximum(gone, records.entry_ns + 1))
    shifted = shift_clocks(truth, *random_clocks(8, 5))
    assert clock_errors(correct(shifted, align(shifted)), truth).max() < MS


def test_nothing_to_compare_says_nothing() -> None:
    records = make_records(hosts=1, ranks_per_host=8)
    (fit,) = align(records)
    assert (fit.operations, fit.clocks) == (0, [])
    untimed = msgspec.structs.replace(
        make_records(), entry_ns=np.full(len(make_records()), ABSENT, dtype=np.int64)
    )
    assert align(untimed)[0].operations == 0
    empty = records.select(slice(0))
    assert align(empty)[0].operations == 0
    assert len(correct(empty, align(empty))) == 0


def test_of_one_operation_little_is_known_and_that_is_said() -> None:
    """Its ranks may have left at any time during the transfer."""
    truth = make_records(steps=1)
    one = truth.select(truth.operation == 1)
    assert not any(clock.is_corrected for clock in align(one)[0].clocks)
    shifted = shift_clocks(one, *random_clocks(8, 6))
    (fit,) = align(shifted)
    assert all(clock.is_corrected for clock in fit.clocks)
    errors = clock_errors(correct(shifted, [fit]), one)
    residuals = np.array([clock.residual_ns for clock in fit.clocks])
    assert (errors <= residuals).all()
    assert residuals.min() > 5 * MS


def test_clocks_of_one_line_are_put_right_at_once_as_one_by_one() -> None:
    """Also where a clock is not known or right, and where times are missing."""
    shifted = shift_clocks(make_records(), *random_clocks(8, 5))
    rng = np.random.default_rng(2)
    entry, leave = (
        np.where(rng.random(len(shifted)) < 0.1, ABSENT, column)
        for column in (shifted.entry_ns, shifted.exit_ns)
    )
    (fit,) = align(shifted)
    clocks = list(fit.clocks)
    assert len(clocks) == 8
    clocks[1] = msgspec.structs.replace(clocks[1], is_known=False)
    del clocks[4]
    fits = [msgspec.structs.replace(fit, clocks=clocks)]
    records = msgspec.structs.replace(shifted, entry_ns=entry, exit_ns=leave, enqueue_ns=entry)
    expected = {name: getattr(records, name).copy() for name in TIMES}
    seen = np.maximum(entry, leave) != ABSENT
    for code, host in enumerate(records.hosts):
        rows = np.flatnonzero((records.host == code) & seen)
        clock = host_clocks(fits).get(host)
        if clock is not None:
            move(expected, clock, rows, clock.line_of(np.maximum(entry, leave)[rows]))
    found = correct(records, fits)
    for name, column in expected.items():
        np.testing.assert_array_equal(getattr(found, name), column)
    assert (found.exit_ns != records.exit_ns).any()
