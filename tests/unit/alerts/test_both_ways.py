"""A NIC that receives slowly: whether it sends as slowly, by who leaves its ring when."""

import pytest

from alerts.signals.both_ways import sends_as_slowly
from alerts.window.model import Window
from collector.contract.units import NS
from tests.worlds.ring_jobs import START_NS, Group, make_job, make_window

SLOW = range(40, 60)
STRETCH = (START_NS + 8 * NS, START_NS + 20 * NS)
CHUNK = 0.005


def window_of(ranks: int, slow_edges: dict[int, float]) -> Window:
    """A ring of one rank a host, some of whose edges are slow for twenty operations."""
    return make_window(make_job([Group(range(ranks), slow_edges, SLOW)]))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_next_rank_leaves_earlier_behind_a_nic_that_only_receives_slowly(ranks: int) -> None:
    window = window_of(ranks, {0: CHUNK})
    assert sends_as_slowly(window, 1, *STRETCH) is False


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_next_rank_waits_as_long_behind_a_nic_that_is_slow_both_ways(ranks: int) -> None:
    window = window_of(ranks, {0: CHUNK, 1: CHUNK})
    assert sends_as_slowly(window, 1, *STRETCH) is True


def test_no_answer_for_rings_that_are_as_fast_as_ever() -> None:
    assert sends_as_slowly(window_of(4, {}), 1, *STRETCH) is None


def test_no_answer_without_a_time_before() -> None:
    window = window_of(4, {0: CHUNK})
    assert sends_as_slowly(window, 1, START_NS, START_NS + 20 * NS) is None
