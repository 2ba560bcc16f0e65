"""Ranks that counted from different beginnings are joined in the right operations."""

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Records
from alerts.window.counted import with_common_numbers
from tests.worlds.collectives import make_records, shift_clocks

MS = 1_000_000
HOUR_NS = 3_600 * 1_000_000_000


def uneven(records: Records, seed: int) -> Records:
    """The records with steps of different lengths, by up to a tenth."""
    extra = np.random.default_rng(seed).uniform(0, 5 * MS, int(records.sequence.max()) + 1)
    later = np.cumsum(extra).astype(np.int64)[records.sequence]
    return msgspec.structs.replace(
        records, entry_ns=records.entry_ns + later, exit_ns=records.exit_ns + later
    )


def counted(records: Records, lost: dict[int, int]) -> Records:
    """As the ranks would count whose traces begin so many steps late."""
    missing = np.zeros(int(records.rank.max()) + 1, dtype=np.int64)
    for rank, steps in lost.items():
        missing[rank] = steps
    kept: Records = records.select(records.sequence >= missing[records.rank])
    moved = msgspec.structs.replace(kept, sequence=kept.sequence - missing[kept.rank])
    order = np.lexsort((moved.rank, moved.sequence, moved.operation, moved.communicator))
    found: Records = moved.select(order)
    return found


def numbers_are_true(found: Records, steps: int) -> bool:
    """Whether each rank's last operation has the others' number."""
    lasts = {int(found.sequence[found.rank == rank].max()) for rank in range(8)}
    return len(lasts) == 1 and int(found.sequence.min()) == 0 and lasts == {steps - 1}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lost", [{2: 1}, {0: 3}, {1: 1, 6: 2}, {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}])
def test_traces_that_begin_later_are_joined_where_ranks_left_together(
    lost: dict[int, int], seed: int
) -> None:
    records = counted(uneven(make_records(steps=30, seed=seed), seed), lost)
    assert numbers_are_true(with_common_numbers(records), 30)


@pytest.mark.parametrize("ahead_ns", [MS, 300 * MS, HOUR_NS])
def test_clocks_do_not_matter_where_steps_differ(ahead_ns: int) -> None:
    offsets = np.zeros(8)
    offsets[5] = ahead_ns
    records = shift_clocks(uneven(make_records(steps=30), 1), offsets, np.zeros(8))
    lost = {5: 2}
    assert numbers_are_true(with_common_numbers(counted(records, lost)), 30)


def test_of_even_steps_the_numbers_at_which_clocks_agree_are_taken() -> None:
    lost = {4: 1}
    found = with_common_numbers(counted(make_records(steps=30), lost))
    assert numbers_are_true(found, 30)


def test_numbers_that_are_right_stay_and_so_do_those_that_nothing_tells_of() -> None:
    records = make_records(steps=30, late={3: 0.04})
    assert with_common_numbers(records) is records
    offsets = np.zeros(8)
    offsets[5] = HOUR_NS
    far = shift_clocks(records, offsets, np.zeros(8))
    assert with_common_numbers(far) is far
    few = records.select(records.sequence < 3)
    assert with_common_numbers(few) is few
