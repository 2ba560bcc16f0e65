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


def backlog(first: int, sequence: int, boot: str = "boot-1", second: int = 0) -> BatchRun:
    received_at = START + timedelta(seconds=second)
    return BatchRun.of_one(
        agent="a", boot=boot, sequence=sequence, received_at=received_at, first=first
    )


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


def test_a_backlog_that_comes_late_fills_the_gap() -> None:
    run = one(7).followed_by(one(30, second=1))
    assert run.missing == 22
    run = run.followed_by(backlog(20, 29, second=2)).followed_by(one(31, second=3))
    assert (run.gaps, run.missing) == (((8, 19),), 12)
    run = run.followed_by(backlog(10, 19)).followed_by(backlog(8, 9))
    assert (run.first, run.last, run.missing) == (7, 31, 0)
    assert run.received_at == START + timedelta(seconds=3)


def test_a_backlog_of_a_run_that_has_just_begun_extends_it() -> None:
    run = one(30).followed_by(backlog(20, 29)).followed_by(backlog(9, 19))
    assert (run.first, run.last, run.missing) == (9, 30, 0)


def test_a_backlog_of_another_boot_is_no_new_boot() -> None:
    run = one(9, "boot-2")
    assert run.succeeded_by(backlog(0, 8, "boot-1", second=60)) is run


def test_of_many_gaps_the_latest_can_still_be_filled() -> None:
    run = reduce(BatchRun.followed_by, (one(2 * number) for number in range(3 * GAPS_MAX)))
    last = 6 * GAPS_MAX - 3
    assert run.followed_by(backlog(last, last)).missing == run.missing - 1
    assert run.followed_by(backlog(1, 1)).missing == run.missing, "its place is not known"


def test_many_gaps_are_counted_without_their_places() -> None:
    run = reduce(BatchRun.followed_by, (one(2 * number) for number in range(3 * GAPS_MAX)))
    assert run.missing == 3 * GAPS_MAX - 1
    assert len(run.gaps) <= GAPS_MAX


@given(st.permutations(list(range(30))), st.data())
def test_missing_is_what_never_came(numbers: list[int], data: st.DataObject) -> None:
    """Any order, any repeats, several as one; however the arrivals are divided into runs.

    The first and the last of all come first, so that none lies apart from and before what came.
    """
    came = data.draw(st.lists(st.sampled_from(numbers), min_size=1))
    arrivals = [one(0), one(40)]
    held = {0, 40}
    for number in came:
        first = max(0, number - data.draw(st.integers(0, 3)))
        held.update(range(first, number + 1))
        arrivals.append(backlog(first, number))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(arrivals)), max_size=4)))
    bounds = pairwise([0, *cuts, len(arrivals)])
    parts = [arrivals[start:end] for start, end in bounds if start < end]
    runs = [reduce(BatchRun.followed_by, [one(0), one(40), *part]) for part in parts]
    run = reduce(BatchRun.followed_by, runs)
    assert {
        number for number in range(41) if not any(start <= number <= end for start, end in run.gaps)
    } == held
    assert (run.first, run.last, run.missing) == (0, 40, 41 - len(held))
