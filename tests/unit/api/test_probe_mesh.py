"""The choice of probe targets: what is covered, how long lists get, and how little changes."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.fabric.probe_mesh import (
    FLOWS,
    HOPS,
    LEAVES_AROUND,
    PAIRS_LEAST,
    PAIRS_MOST,
    PEERS_MOST,
    End,
    make_mesh,
    pairs_between,
)

LEAVES = st.lists(st.integers(1, 9), min_size=1, max_size=7)
"""Hosts of each leaf."""


def ends_of(leaves: Sequence[int], rails: int = 1, *, are_known: bool = True) -> list[End]:
    return [
        End(
            f"host-{leaf}-{host}",
            f"rail{rail}",
            f"10.{rail}.{leaf}.{host + 1}",
            f"leaf-{rail}-{leaf}" if are_known else "",
        )
        for rail in range(rails)
        for leaf, hosts in enumerate(leaves)
        for host in range(hosts)
    ]


def pairs_of(ends: Sequence[End], uplinks: int = 0) -> set[tuple[str, str, str]]:
    """Directed pairs of hosts, with their rail."""
    mesh = make_mesh(ends, {end.leaf: uplinks for end in ends})
    return {(one.rail, one.host, other.host) for one, own in mesh.items() for other in own}


@settings(max_examples=60, deadline=None)
@given(leaves=LEAVES, rails=st.integers(1, 3), are_known=st.booleans())
def test_lists_are_bounded_and_name_only_other_hosts_of_the_rail(
    leaves: list[int], rails: int, *, are_known: bool
) -> None:
    ends = ends_of(leaves, rails, are_known=are_known)
    mesh = make_mesh(ends, {})
    assert set(mesh) == set(ends)
    for end, own in mesh.items():
        assert len(own) <= PEERS_MOST
        assert len(set(own)) == len(own)
        assert all(other.rail == end.rail and other.host != end.host for other in own)
        others = sum(one.rail == end.rail and one.leaf == end.leaf for one in ends) - 1
        near = sum(other.leaf == end.leaf for other in own)
        assert near >= min(others, 2 * HOPS)


@settings(max_examples=60, deadline=None)
@given(LEAVES, st.integers(0, 16))
def test_a_few_pairs_of_hosts_cross_between_any_two_leaves_both_ways(
    leaves: list[int], uplinks: int
) -> None:
    ends = ends_of(leaves)
    pairs = pairs_of(ends, uplinks)
    leaf = {end.host: end.leaf for end in ends}
    crossing = Counter((leaf[one], leaf[other]) for _, one, other in pairs)
    for (a, size_a), (b, size_b) in itertools.permutations(enumerate(leaves), 2):
        least = min(PAIRS_LEAST, size_a, size_b)
        assert crossing[f"leaf-0-{a}", f"leaf-0-{b}"] >= least, (a, b)
        ends_used = {
            one
            for _, one, other in pairs
            if (leaf[one], leaf[other]) == (f"leaf-0-{a}", f"leaf-0-{b}")
        }
        assert len(ends_used) >= least, "hosts of their own: one that is down is not all of them"
    assert {(rail, other, one) for rail, one, other in pairs} == pairs


@pytest.mark.parametrize(("leaves", "uplinks"), [(2, 8), (4, 32), (16, 16)])
def test_every_uplink_is_crossed_where_leaves_spread_by_hash(leaves: int, uplinks: int) -> None:
    """As many flows as ECMP needs to leave hardly one uplink out, each way."""
    ends = ends_of([32] * leaves)
    mesh = make_mesh(ends, {end.leaf: uplinks for end in ends})
    random = np.random.default_rng(1)
    crossed = set()
    for end, own in mesh.items():
        for _ in range(FLOWS * sum(other.leaf != end.leaf for other in own)):
            crossed.add((end.leaf, int(random.integers(uplinks))))
    assert len(crossed) >= 0.9 * leaves * uplinks
    assert pairs_between(uplinks, leaves - 1) < PAIRS_MOST


@settings(max_examples=60, deadline=None)
@given(LEAVES, st.data())
def test_a_host_that_goes_changes_few_lists_and_its_return_undoes_it(
    leaves: list[int], data: st.DataObject
) -> None:
    ends = ends_of(leaves)
    gone = data.draw(st.sampled_from(ends))
    before = pairs_of(ends)
    left = [end for end in ends if end != gone]
    if gone.leaf not in {end.leaf for end in left}:
        return  # another number of leaves: other pairs of leaves, and more of them
    after = pairs_of(left)
    own = {pair for pair in before if gone.host in pair}
    assert not any(gone.host in pair for pair in after)
    # Its leaf's ring closes, and of each other leaf's pairs those that it was chosen for go on.
    changed = (before - own) ^ after
    assert len(changed) <= 2 * (2 * HOPS + 2 * PAIRS_LEAST * (len(leaves) - 1)) + 4 * HOPS
    assert pairs_of([*left, gone]) == before == pairs_of(ends[::-1])


def test_in_a_large_fleet_one_host_changes_next_to_nothing() -> None:
    ends = ends_of([32] * 32)
    before, after = pairs_of(ends), pairs_of(ends[1:])
    own = {pair for pair in before if ends[0].host in pair}
    assert 4 <= len(own) <= 2 * PEERS_MOST
    assert len((before - own) ^ after) <= 0.01 * len(before)
    peers = Counter(one for _, one, _ in before)
    assert max(peers.values()) <= 24


def test_more_leaves_than_fit_are_probed_around_a_ring() -> None:
    leaves = 2 * LEAVES_AROUND + 40
    ends = ends_of([1] * leaves)
    mesh = make_mesh(ends, {})
    assert all(len(own) == PEERS_MOST for own in mesh.values()), "one host cannot probe them all"
