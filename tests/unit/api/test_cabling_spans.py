"""A port's reports of neighbours become spans: which neighbour, from when, until when."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from api.data.inventory.cabling_spans import (
    NOBODY,
    REPLACED_SECONDS,
    SPANS_MAX,
    UNPLUGGED_SECONDS,
    Span,
    join_seen,
)
from api.data.inventory.sightings import Peer

START = datetime(2026, 3, 1, tzinfo=UTC)
PEERS = {name: (name, "1", "", "", "") for name in "ABC"} | {"-": NOBODY}
NAMES: dict[Peer, str] = {peer: name for name, peer in PEERS.items()}
Row = tuple[str, int, int, bool]
"""Neighbour, since, last seen, whether it has ended."""


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def history(*observations: tuple[str, int] | tuple[str, int, int]) -> list[Row]:
    """The spans after these sightings: a neighbour with one time, or with first and last time."""
    spans: list[Span] = []
    for name, first, *last in observations:
        join_seen(spans, PEERS[name], at(first), at(last[0] if last else first))
    return rows(spans)


def rows(spans: list[Span]) -> list[Row]:
    found = []
    for span in sorted(spans, key=lambda span: (span.since, span.number)):
        assert span.until in {None, span.last_seen}
        since, last = ((moment - START).seconds for moment in (span.since, span.last_seen))
        found.append((NAMES[span.peer], since, last, span.until is not None))
    return found


def test_a_neighbour_that_is_named_again_and_again_is_one_span() -> None:
    assert history(("A", 0), ("A", 60), ("A", 5_000)) == [("A", 0, 5_000, False)]


def test_another_neighbour_ends_the_one_before() -> None:
    assert history(("A", 0), ("A", 60), ("B", 120), ("B", 180)) == [
        ("A", 0, 60, True),
        ("B", 120, 180, False),
    ]


def test_a_neighbour_that_comes_back_begins_anew() -> None:
    seen = [("A", 0), ("A", 60), ("B", 120), ("B", 180), ("A", 240), ("A", 300)]
    assert history(*seen) == [("A", 0, 60, True), ("B", 120, 180, True), ("A", 240, 300, False)]


def test_two_neighbours_side_by_side_are_two_spans_and_no_more() -> None:
    seen = [(name, second) for second in range(0, 3_600, 60) for name in "AB"]
    assert history(*seen) == [("A", 0, 3_540, False), ("B", 0, 3_540, False)]
    out_of_step = [("A" if second % 60 else "B", second) for second in range(0, 3_600, 30)]
    assert history(*out_of_step) == [("B", 0, 3_540, False), ("A", 30, 3_570, False)]


def test_a_late_word_on_the_past_does_not_bring_it_back() -> None:
    before = [("A", 0), ("A", 100), ("B", 200), ("B", 1_000)]
    ended = [("A", 0, 100, True), ("B", 200, 1_000, False)]
    assert history(*before, ("A", 50)) == ended
    assert history(*before, ("A", 0), ("A", 100), ("B", 700)) == ended


def test_a_late_word_on_a_time_in_which_nothing_speaks_against_it_makes_its_span_longer() -> None:
    assert history(("A", 0), ("A", 100), ("B", 120), ("B", 1_000), ("A", 150)) == [
        ("A", 0, 150, True),
        ("B", 120, 1_000, False),
    ]
    assert history(("A", 0), ("A", 100), ("B", 500), ("B", 1_000), ("A", 300)) == [
        ("A", 0, 300, True),
        ("B", 500, 1_000, False),
    ]


def test_a_neighbour_of_which_only_a_late_word_tells_stands_in_the_past() -> None:
    assert history(("B", 1_000), ("B", 1_060), ("A", 500)) == [
        ("A", 500, 500, True),
        ("B", 1_000, 1_060, False),
    ]


def test_a_late_word_makes_one_span_longer_towards_its_beginning() -> None:
    assert history(("A", 500), ("A", 100)) == [("A", 100, 500, False)]


def test_a_port_that_has_nobody_ends_its_neighbour_and_the_same_one_begins_anew() -> None:
    gone = 100 + UNPLUGGED_SECONDS
    assert history(("A", 0), ("A", 100), ("-", gone)) == [
        ("A", 0, 100, True),
        ("-", gone, gone, False),
    ]
    assert history(("A", 0), ("A", 100), ("-", gone), ("A", gone + 200)) == [
        ("A", 0, 100, True),
        ("-", gone, gone, True),
        ("A", gone + 200, gone + 200, False),
    ]


def test_nobody_is_not_believed_while_somebody_was_named_just_before() -> None:
    assert history(("A", 100), ("-", 100 + UNPLUGGED_SECONDS - 1)) == [("A", 100, 100, False)]


def test_a_port_that_names_a_new_neighbour_at_each_look_keeps_the_latest() -> None:
    spans: list[Span] = []
    for number in range(SPANS_MAX + 10):
        moment = at(1_000 * number)
        join_seen(spans, (f"peer-{number}", "", "", "", ""), moment, moment)
    assert len(spans) == SPANS_MAX
    assert {span.peer[0] for span in spans} == {
        f"peer-{number}" for number in range(10, SPANS_MAX + 10)
    }
    assert len({span.number for span in spans}) == SPANS_MAX


STEADY = st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 5)), min_size=1, max_size=6)
"""Neighbours one after the other, each with how often it is seen."""


@given(STEADY, st.randoms(use_true_random=False))
def test_neither_order_within_a_neighbour_nor_repetition_makes_a_difference(
    parts: list[tuple[str, int]], random: Random
) -> None:
    moment, blocks = 0, []
    for name, count in parts:
        block = []
        for _ in range(count):
            block.append((name, moment))
            moment += 2 * REPLACED_SECONDS
        blocks.append(block)
    expected = history(*(each for block in blocks for each in block))
    shuffled = []
    for block in blocks:
        doubled = block * 2
        random.shuffle(doubled)
        shuffled += doubled
    assert history(*shuffled) == expected


@given(st.lists(st.tuples(st.sampled_from("ABC-"), st.integers(0, 3_000)), max_size=40))
def test_whatever_is_seen_the_spans_of_a_neighbour_never_overlap(
    seen: list[tuple[str, int]],
) -> None:
    found = history(*seen)
    for name in "ABC-":
        mine = [row for row in found if row[0] == name]
        for one, other in pairwise(mine):
            assert one[2] < other[1]
            assert one[3]
    if any(name != "-" for name, _ in seen):
        assert not all(is_over for *_, is_over in found)
