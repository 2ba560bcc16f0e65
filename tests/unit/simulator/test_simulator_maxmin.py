"""Max-min sharing against its definition, and against an oracle that fills drop by drop."""

import numpy as np
import pytest

from simulator.network.maxmin import share
from simulator.topology.model import Floats, Ints


def fill_drop_by_drop(usage: Floats, capacity: Floats, limit: Floats, drop: float) -> Floats:
    """The slow way: all variables that can grow by one drop, again and again. ``usage``: dense."""
    rate = np.zeros(len(limit))
    while True:
        grew = False
        for one in range(len(limit)):
            more = rate.copy()
            more[one] += drop
            if more[one] <= limit[one] and (usage @ more <= capacity).all():
                rate, grew = more, True
        if not grew:
            return rate


def random_network(
    random: np.random.Generator,
) -> tuple[Ints, Ints, Floats, Floats, Floats, Floats]:
    """Up to five variables on up to four links, as lists of uses and as a matrix."""
    variables, links = int(random.integers(2, 6)), int(random.integers(1, 5))
    matrix = random.integers(0, 3, (links, variables)).astype(np.float64)
    matrix[0, matrix.sum(axis=0) == 0] = 1.0
    capacity = random.integers(5, 30, links).astype(np.float64)
    limit = np.where(random.random(variables) < 0.3, random.integers(1, 6, variables), np.inf)
    link, variable = (index.astype(np.int32) for index in np.nonzero(matrix))
    return variable, link, matrix[link, variable], capacity, limit, matrix


@pytest.mark.parametrize("seed", range(25))
def test_random_networks_are_shared_as_drops_would(seed: int) -> None:
    random = np.random.default_rng(seed)
    variable, link, usage, capacity, limit, matrix = random_network(random)
    rate = share(variable, link, usage, capacity, limit).rate
    drops = fill_drop_by_drop(matrix, capacity, limit, 0.01)
    assert rate == pytest.approx(drops, abs=0.05)


@pytest.mark.parametrize("seed", range(200))
def test_nobody_could_have_more_without_a_poorer_one_having_less(seed: int) -> None:
    random = np.random.default_rng(1000 + seed)
    variable, link, usage, capacity, limit, matrix = random_network(random)
    result = share(variable, link, usage, capacity, limit)
    load = matrix @ result.rate
    assert (load <= capacity * (1 + 1e-9)).all()
    for one, rate in enumerate(result.rate):
        if rate >= limit[one] * (1 - 1e-9):
            continue
        full = (matrix[:, one] > 0) & (load >= capacity * (1 - 1e-9))
        richest = [result.rate[matrix[at] > 0].max() for at in np.flatnonzero(full)]
        assert any(rate >= other * (1 - 1e-9) for other in richest)


def test_who_is_held_is_said() -> None:
    # Two cross link 0; the first also crosses link 1, which has room to spare.
    variable = np.array([0, 0, 1], dtype=np.int32)
    link = np.array([0, 1, 0], dtype=np.int32)
    result = share(variable, link, np.ones(3), np.array([10.0, 100.0]), np.full(2, np.inf))
    assert result.rate.tolist() == [5.0, 5.0]
    assert result.is_held.tolist() == [True, False, True]


def test_who_limits_himself_leaves_the_rest_to_others() -> None:
    both = np.zeros(2, dtype=np.int32)
    variable = np.arange(2, dtype=np.int32)
    result = share(variable, both, np.ones(2), np.array([10.0]), np.array([2.0, np.inf]))
    assert result.rate.tolist() == [2.0, 8.0]
    assert result.is_held.tolist() == [False, True]


def test_a_link_without_capacity_stops_only_those_who_need_it() -> None:
    variable = np.array([0, 1], dtype=np.int32)
    link = np.array([0, 1], dtype=np.int32)
    result = share(variable, link, np.ones(2), np.array([0.0, 3.0]), np.full(2, np.inf))
    assert result.rate.tolist() == [0.0, 3.0]


def test_who_uses_nothing_is_held_by_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int32)
    result = share(nothing, nothing, np.zeros(0), np.array([1.0]), np.array([np.inf, 4.0]))
    assert result.rate.tolist() == [np.inf, 4.0]
