"""Attributes of communicator events: what is written is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract import communicator as words
from collector.contract.model import Event

ranks = st.integers(0, words.RANKS_MAX)


def event(rank: int, attributes: dict[str, str], communicator: str = "0xa") -> Event:
    return words.communicator_event(communicator, rank, 1, attributes)


@given(before=ranks, after=ranks)
def test_neighbours(before: int, after: int) -> None:
    assert words.decode_neighbours(words.encode_neighbours(before, after)) == (before, after)


@given(parent=st.none() | ranks, children=st.lists(ranks, max_size=words.TREE_CHILDREN_MAX))
def test_branches(parent: int | None, children: list[int]) -> None:
    assert words.decode_branch(words.encode_branch(parent, children)) == (parent, children)


@given(ring=st.integers(1, 100).flatmap(lambda n: st.permutations(range(n))))
def test_rings(ring: list[int]) -> None:
    assert words.decode_rings(words.encode_rings([ring, ring])) == [ring, ring]
    after = dict(zip(ring, [*ring[1:], ring[0]], strict=True))
    start = ring.index(0)
    assert words.walk_ring(after) == ring[start:] + ring[:start]


@given(text=st.text())
def test_any_text_is_read_or_is_nothing(text: str) -> None:
    words.decode_neighbours(text)
    words.decode_branch(text)
    words.decode_rings(text)
    events = [event(0, {"ring_00": text, "tree_00": text, "rings": text, text: text})]
    words.communicator_rings(events)
    words.communicator_trees(events)


@pytest.mark.parametrize("text", ["[" * 100_000, "[[0, 0]]", "[[0, 2]]", "[[]]", "[[-1]]", "0"])
def test_what_is_no_ring_is_none(text: str) -> None:
    assert words.decode_rings(text) == []


def test_a_long_list_of_rings_is_left_out() -> None:
    assert words.encode_rings([list(range(100_000))]) == ""


def test_rings_come_from_the_rank_that_printed_them_or_from_neighbours() -> None:
    printed = event(0, {words.RINGS: "[[0,2,1]]", "ring_00": "1,2"})
    assert words.communicator_rings([printed]) == {"0xa": [[0, 2, 1]]}
    neighbours = [event(0, {"ring_00": "1,2"}), event(1, {"ring_00": "2,0"})]
    assert words.communicator_rings(neighbours) == {}, "rank 2 has not spoken"
    neighbours.append(event(2, {"ring_00": "0,1", "ring_99": "0,1"}))
    assert words.communicator_rings(neighbours) == {"0xa": [[0, 2, 1]]}


def test_trees_are_parents_by_channel() -> None:
    events = [
        event(0, {"tree_00": ";1", "tree_01": "1;"}),
        event(1, {"tree_00": "0;", "tree_01": ";0"}),
        event(1, {"tree_00": "x;"}, communicator="0xb"),
    ]
    assert words.communicator_trees(events) == {"0xa": [{0: None, 1: 0}, {0: 1, 1: None}]}


def test_other_events_are_passed_over() -> None:
    strange = [
        Event(kind="xid", time_ns=1, labels={}),
        Event(kind="communicator", time_ns=1, labels={"rank": "0"}),
        Event(kind="communicator", time_ns=1, labels={"communicator": "0xa", "rank": "one"}),
    ]
    assert words.communicator_rings(strange) == {}
    assert words.communicator_trees(strange) == {}
