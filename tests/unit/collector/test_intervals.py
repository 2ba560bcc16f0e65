"""Sets of stretches beside the plain sets of moments that they stand for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.parsing import intervals
from collector.parsing.intervals import (
    Interval,
    Intervals,
    clip,
    coarsen,
    gaps,
    length,
    merge,
    overlap,
)

stretches = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=20,
)


def moments(some: list[Interval]) -> set[int]:
    return {moment for start, end in some for moment in range(start, end)}


@given(one=stretches, other=stretches)
def test_merged_stretches_cover_the_same_moments(
    one: list[Interval], other: list[Interval]
) -> None:
    merged = merge(one)
    assert moments(merged) == moments(one)
    assert all(before[1] < after[0] for before, after in pairwise(merged))
    assert length(merged) == len(moments(one))
    assert overlap(merged, merge(other)) == len(moments(one) & moments(other))


@given(some=stretches, start=st.integers(0, 70), size=st.integers(0, 30))
def test_what_is_inside_and_the_gaps_make_up_a_window(
    some: list[Interval], start: int, size: int
) -> None:
    window = set(range(start, start + size))
    merged = merge(some)
    assert moments(clip(merged, start, start + size)) == moments(some) & window
    assert moments(gaps(merged, start, start + size)) == window - moments(some)


@given(some=stretches, count=st.integers(1, 5))
def test_coarser_stretches_cover_more_and_are_few(some: list[Interval], count: int) -> None:
    coarse, _ = coarsen(some, count, 0)
    assert len(coarse) <= count
    assert moments(coarse) >= moments(some)


def test_a_set_is_exact_until_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "INTERVALS_MAX", 10)
    some = Intervals()
    for at in (5, 3, 1, 4, 2, 2):
        some.add(at * 10_000, at * 10_000 + 100)
    assert some.all() == [(at * 10_000, at * 10_000 + 100) for at in range(1, 6)]
    assert some.resolution_ns == 0
    for at in range(100):
        some.add(at * 10_000, at * 10_000 + 100)
    assert len(some.all()) <= 10
    assert some.resolution_ns >= 9_900
    assert (some.all()[0][0], some.all()[-1][1]) == (0, 990_100)
