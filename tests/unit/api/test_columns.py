"""Samples as columns: whole numbers and others, days, and the rules of time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.data.ingest.columns import MS_PER_DAY, Acceptance, SampleColumns, merge_counts


def columns(times: list[int], values: list[float] | None = None) -> SampleColumns:
    size = len(times)
    return SampleColumns(
        np.arange(size, dtype=np.uint32),
        np.arange(size, dtype=np.uint64),
        np.array(times, dtype=np.int64),
        np.array(values or [0.0] * size, dtype=np.float64),
    )


@given(st.lists(st.floats() | st.integers(-(2**60), 2**60).map(float), min_size=1, max_size=20))
def test_a_value_is_whole_or_a_fraction_and_never_changes(values: list[float]) -> None:
    block = {column.name: column.values for column in columns([0] * len(values), values).to_block()}
    fractions = block.get("fraction", np.zeros(len(values)))
    for whole, fraction, value in zip(block["whole"], fractions, values, strict=True):
        # As the table's `value` puts them together again.
        again = float(whole) if fraction.tobytes() == bytes(8) else float(fraction)
        assert np.float64(again).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize(
    ("times", "days"),
    [
        ([], []),
        ([0, MS_PER_DAY - 1], [0]),
        ([MS_PER_DAY, 0, MS_PER_DAY + 1], [0, 1]),
        ([-1, 0], [-1, 0]),
        ([5 * MS_PER_DAY, 0], [0, 5]),
    ],
)
def test_days(times: list[int], days: list[int]) -> None:
    assert columns(times).days() == days


def test_the_edges_of_time_are_accepted_and_what_is_beyond_is_refused_by_name() -> None:
    now = 1_800_000_000_000
    acceptance = Acceptance.at(now, retention_days=7)
    earliest, latest = now - 7 * MS_PER_DAY, now + 600_000
    kept, refused = acceptance.apply(columns([earliest - 1, earliest, latest, latest + 1, -1]))
    assert kept.time_ms.tolist() == [earliest, latest]
    assert kept.series.tolist() == [1, 2]
    assert refused == {"too_old": 2, "too_far_in_future": 1}
    whole = columns([earliest, latest])
    assert acceptance.apply(whole) == (whole, {})
    nothing, none = acceptance.apply(columns([]))
    assert (len(nothing), none) == (0, {})


def test_columns_are_joined_in_order() -> None:
    joined = SampleColumns.concatenate([columns([1, 2]), columns([]), columns([3])])
    assert joined.time_ms.tolist() == [1, 2, 3]


def test_counts_are_added_by_rule() -> None:
    assert merge_counts({"a": 1}, {}, {"a": 2, "b": 3}) == {"a": 3, "b": 3}
