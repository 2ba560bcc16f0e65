"""Gaps in an agent's numbered batches."""

from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from api.data.inventory.batches import GAPS_MAX, SEQUENCE_MAX, BatchRun

START = datetime(2026, 1, 1, tzinfo=UTC)


def one(sequence: int, boot: str = "boot-1", second: int = 0) -> BatchRun:
    received_at = START + timedelta(seconds=second)
    return BatchRun.of_one(agent="a", boot=boot, sequence=sequence, received_at=received_at)


def test_numbers_in_order_miss_nothing() -> None:
    run = one(7).followed_by(one(8, second=1))
    assert (run.first, run.last, run.missing) == (7, 8, 0)
    assert run.received_at == START + timedelta(seconds=1)


def test_a_jump_counts_what_it_left_out() -> None:
    assert one(7).followed_by(one(11)).missing == 3


def test_a_resend_changes_nothing() -> None:
    run = one(7).followed_by(one(8))
    assert run.followed_by(one(8, second=60)) is run
    assert run.followed_by(one(3, second=60)) is run


def test_a_new_boot_starts_anew() -> None:
    run = one(7).followed_by(one(11)).succeeded_by(one(0, "boot-2", second=9))
    assert (run.boot, run.last, run.missing) == ("boot-2", 0, 0)


def test_late_news_of_an_old_boot_is_ignored() -> None:
    run = one(0, "boot-2", second=9)
    assert run.succeeded_by(one(12, "boot-1", second=8)) is run


def test_the_count_cannot_outgrow_the_databases() -> None:
    run = one(0).followed_by(one(SEQUENCE_MAX))
    assert run.missing == SEQUENCE_MAX - 1
    assert (run.last, run.missing + 1) == (SEQUENCE_MAX, SEQUENCE_MAX)


def test_many_gaps_are_counted_without_their_places() -> None:
    run = reduce(BatchRun.followed_by, (one(2 * number) for number in range(3 * GAPS_MAX)))
    assert run.missing == 3 * GAPS_MAX - 1
    assert len(run.gaps) <= GAPS_MAX


@given(st.sets(st.integers(0, 40), min_size=1).map(sorted), st.data())
def test_missing_is_what_never_came(came: list[int], data: st.DataObject) -> None:
    """An agent sends in order; now and then it goes back and sends again from there.

    However the arrivals are divided into runs, the gaps are counted once.
    """
    arrivals: list[int] = []
    position = 0
    for goes_back in data.draw(st.lists(st.integers(0, 10), max_size=8)):
        stop = data.draw(st.integers(position, len(came)))
        arrivals += came[position:stop]
        position = max(0, stop - goes_back)
    arrivals += came[position:]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(arrivals)), max_size=4)))
    bounds = pairwise([0, *cuts, len(arrivals)])
    parts = [arrivals[start:end] for start, end in bounds if start < end]
    runs = [reduce(BatchRun.followed_by, map(one, part)) for part in parts]
    run = reduce(BatchRun.followed_by, runs)
    assert (run.first, run.last) == (came[0], came[-1])
    assert run.missing == came[-1] - came[0] + 1 - len(came)
