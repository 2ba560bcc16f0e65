"""Who probes whom: a short list of targets for each end of a rail, by hash. Pure.

Within a leaf each end probes its next two neighbours on a ring in order of a hash. Between two
leaves a few pairs of hosts probe each other, as many as it takes that each uplink is crossed a few
times, and hosts of their own as long as there are enough; where a rail has more leaves than fit,
each probes those that are next to it on a ring. An end whose leaf is not known probes its
neighbours on two rings of all such. Everything depends on names alone: whoever computes it gets the
same, and a host that comes or goes changes the lists of a few others and no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

FLOWS: Final = 4
"""Ways that an agent tries to each target, if it is not told otherwise (`probes.flows`)."""
HOPS: Final = 2
"""Next neighbours on a ring, to each side: four peers of an end; three are needed to name one."""
RINGS_UNKNOWN: Final = 2
"""Rings of those whose leaf is not known."""
PAIRS_LEAST: Final = 3
"""Pairs of hosts between two leaves: one host that is down leaves two."""
PAIRS_MOST: Final = 16
CROSSINGS: Final = 3
"""Flows over each uplink of a leaf, on average. ECMP spreads by hash, not evenly."""
LEAVES_AROUND: Final = 128
"""Leaves on each side on the ring of a rail's leaves, which have pairs with a leaf."""
PEERS_MOST: Final = 64
"""Targets of one end. With four flows every five seconds 51 probes a second, 41 kb/s."""

Hashes = npt.NDArray[np.uint64]
Picks = npt.NDArray[np.int64]


class End(NamedTuple):
    """A rail of a host."""

    host: str
    rail: str
    address: str
    leaf: str
    """The switch that it hangs on; empty: not known."""


Mesh = Mapping[End, Sequence[End]]


def make_mesh(
    ends: Iterable[End], uplinks: Mapping[str, int], peers_most: int = PEERS_MOST
) -> dict[End, list[End]]:
    """The targets of each end. ``uplinks``: of leaves, where known."""
    by_rail: dict[str, list[End]] = {}
    for end in sorted(set(ends)):
        by_rail.setdefault(end.rail, []).append(end)
    found: dict[End, list[End]] = {}
    for own in by_rail.values():
        found |= mesh_of_rail(own, uplinks, peers_most)
    return found


def mesh_of_rail(
    ends: Sequence[End], uplinks: Mapping[str, int], peers_most: int
) -> dict[End, list[End]]:
    by_leaf: dict[str, list[End]] = {}
    for end in ends:
        by_leaf.setdefault(end.leaf, []).append(end)
    near: dict[End, set[End]] = {end: set() for end in ends}
    for leaf, own in by_leaf.items():
        for ring in range(1 if leaf else RINGS_UNKNOWN):
            for one, other in ring_pairs(own, f"ring {ring}"):
                near[one].add(other)
                near[other].add(one)
    far: dict[End, set[End]] = {end: set() for end in ends}
    for one, other in leaf_pairs({leaf: own for leaf, own in by_leaf.items() if leaf}, uplinks):
        far[one].add(other)
        far[other].add(one)
    return {
        # What is cut is cut by hash: a newcomer drives out one other at most.
        end: sorted([*by_hash(end, near[end]), *by_hash(end, far[end] - near[end])][:peers_most])
        for end in ends
    }


def ring_pairs(ends: Sequence[End], salt: str) -> Iterable[tuple[End, End]]:
    """Each with its next HOPS on the ring."""
    order = sorted(ends, key=lambda end: (hashed(f"{salt} {end.host}"), end))
    for hop in range(1, HOPS + 1):
        for place, one in enumerate(order):
            other = order[(place + hop) % len(order)]
            if other.host != one.host:
                yield one, other


def by_hash(end: End, others: Iterable[End]) -> list[End]:
    return sorted(others, key=lambda other: (hashed(f"{end.host} {other.host}"), other))


# Between leaves ----------------------------------------------------------------------------------


def leaf_pairs(
    by_leaf: Mapping[str, Sequence[End]], uplinks: Mapping[str, int]
) -> Iterable[tuple[End, End]]:
    """The pairs of hosts between the leaves of a rail."""
    leaves = sorted(by_leaf, key=lambda leaf: (hashed(leaf), leaf))
    around = partners(len(leaves))
    if not around.shape[1]:
        return
    slots = pairs_between(max(uplinks.get(leaf, 0) for leaf in leaves), around.shape[1])
    names = np.array([hashed(leaf) for leaf in leaves], dtype=np.uint64)
    hosts = [
        np.array([hashed(end.host) for end in by_leaf[leaf]], dtype=np.uint64) for leaf in leaves
    ]
    chosen = [
        # Of both leaves alike, whichever looks: the sum has no order.
        pick(hosts[place], mixed(names[place] + names[around[place]]), slots)
        for place in range(len(leaves))
    ]
    for place, row in enumerate(around.tolist()):
        for column, other in enumerate(row):
            if other < place:
                continue
            back = int(np.flatnonzero(around[other] == place)[0])
            for one, two in zip(
                chosen[place][column].tolist(), chosen[other][back].tolist(), strict=True
            ):
                yield by_leaf[leaves[place]][one], by_leaf[leaves[other]][two]


def partners(leaves: int) -> Picks:
    """For each leaf on the ring those around it, each once.

    >>> partners(3).tolist()
    [[1, 2], [2, 0], [0, 1]]
    """
    steps = [*range(1, min(leaves - 1, LEAVES_AROUND) + 1)]
    steps = sorted({*steps, *(leaves - step for step in steps)})
    return (np.arange(leaves)[:, None] + np.array(steps, dtype=np.int64)[None, :]) % leaves


def pairs_between(uplinks: int, others: int) -> int:
    """How many pairs of hosts two leaves get, if each has so many uplinks and other leaves.

    >>> pairs_between(32, 1), pairs_between(32, 3), pairs_between(8, 15), pairs_between(0, 1)
    (16, 8, 3, 3)
    """
    needed = math.ceil(CROSSINGS * uplinks / (FLOWS * others))
    return min(max(needed, PAIRS_LEAST), PAIRS_MOST)


def pick(hosts: Hashes, keys: Hashes, slots: int) -> Picks:
    """[keys, slots] places of hosts: for each key first its first one by hash, then its next."""
    taken = np.zeros((len(hosts), len(keys)), dtype=np.bool_)
    found = np.zeros((len(keys), slots), dtype=np.int64)
    for slot in range(slots):
        if slot % len(hosts) == 0:
            taken[:] = False  # all have their turn again
        score = mixed(hosts[:, None] ^ mixed(keys + np.uint64(slot))[None, :])
        score[taken] = np.iinfo(np.uint64).max
        found[:, slot] = score.argmin(axis=0)
        taken[found[:, slot], np.arange(len(keys))] = True
    return found


def mixed(values: Hashes) -> Hashes:
    """Well-mixed bits of each (splitmix64's last step; Steele and others, OOPSLA 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def hashed(name: str) -> int:
    """64 bits of a name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
