"""The other ends of messages that no trace names: ranks whose messages end together. Pure.

A message ends when its bytes have come, at both of its ends. One may end by chance as another does,
but the messages of two ranks do so again and again only if they are the same.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from alerts.signals.pipelines import NEIGHBOURS_MAX, connected
from alerts.window.columns import Ints, Records
from alerts.window.messages import PAIR, is_pairwise, peers_of
from collector.contract.collective import Operation

TOGETHER_NS = 100_000
"""Within which both ends of a message end, by aligned clocks."""
VOTES_SHARE = 0.25
"""Of the messages of the rank with fewer, that two neighbours share: a stage has two of them."""
MATCHED_SHARE_MIN = 0.95
"""Of messages that must have another end: else times do not tell."""
MESSAGES_MAX = 50_000
"""Of one communicator that are compared one by one: a second. Of more no ends are looked for."""
CANDIDATES_MAX = 16
"""Messages at one moment that are looked at."""


def with_ends(records: Records) -> Records:
    """The records with the peers of messages, where these are clear for a whole communicator.

    Clear: nearly every message ends together with one of another rank, and these form pipelines of
    one length, in which no rank has more than two neighbours.
    """
    rows = np.flatnonzero(is_pairwise(records) & records.timed() & (peers_of(records) < 0))
    if not len(rows):
        return records
    peer = records.peer.copy()
    for code in np.unique(records.communicator[rows]).tolist():
        own = rows[records.communicator[rows] == code]
        found = ends_of(records, own) if len(own) <= MESSAGES_MAX else None
        if found is not None:
            peer[own] = found
    changed: Records = msgspec.structs.replace(records, peer=peer)
    return changed


def ends_of(records: Records, rows: Ints) -> Ints | None:
    """The peer of each of these messages of one communicator; None if it is not clear.

    Two ranks that wait for one get its messages at one time. So the ranks with most in common are
    taken first, and a message that has its other end has no more.
    """
    rank = records.rank[rows].astype(np.int64)
    shared: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for one, other, apart in pairs_of(records, rows):
        shared.setdefault((int(rank[one]), int(rank[other])), []).append((apart, one, other))
    counts = np.bincount(rank)
    found = np.full(len(rows), -1, dtype=np.int64)
    edges = set()
    for pair in sorted(shared, key=lambda each: (-len(shared[each]), each)):
        taken: dict[int, int] = {}
        for _, one, other in sorted(shared[pair]):
            if found[one] < 0 and found[other] < 0 and one not in taken and other not in taken:
                taken |= {one: other, other: one}
        if len(taken) // PAIR >= VOTES_SHARE * min(counts[pair[0]], counts[pair[1]]):
            edges.add(pair)
            found[list(taken)] = rank[list(taken.values())]
    if not are_pipelines(edges, rank) or (found >= 0).mean() < MATCHED_SHARE_MIN:
        return None
    likely = {int(one): int(found[rank == one].max()) for one in np.unique(rank)}
    missing = np.flatnonzero(found < 0)
    found[missing] = [likely[int(rank[row])] for row in missing.tolist()]
    return found


def pairs_of(records: Records, rows: Ints) -> list[tuple[int, int, int]]:
    """Places of messages of two ranks, the lower rank's first, that end together; how far apart."""
    other_of = {
        Operation.SEND: Operation.RECV,
        Operation.RECV: Operation.SEND,
        Operation.SEND_RECV: Operation.SEND_RECV,
    }
    kinds = [Operation(name) for name in records.operations]
    leave, rank = records.exit_ns[rows], records.rank[rows]
    kind = records.operation[rows]
    order = np.argsort(leave, kind="stable").tolist()
    found = []
    for place, one in enumerate(order):
        for other in order[place + 1 : place + 1 + CANDIDATES_MAX]:
            apart = int(leave[other] - leave[one])
            if apart > TOGETHER_NS:
                break
            if rank[one] != rank[other] and other_of[kinds[kind[one]]] is kinds[kind[other]]:
                low, high = (one, other) if rank[one] < rank[other] else (other, one)
                found.append((low, high, apart))
    return found


def are_pipelines(edges: set[tuple[int, int]], rank: Ints) -> bool:
    """Whether these pairs join all of these ranks into chains of one length."""
    ranks = np.unique(rank)
    degree = Counter(end for pair in edges for end in pair)
    if not edges or any(not 1 <= degree[int(one)] <= NEIGHBOURS_MAX for one in ranks):
        return False
    ends = np.searchsorted(ranks, np.array(sorted(edges), dtype=np.int64).reshape(-1, PAIR))
    _, lengths = np.unique(connected(ends, len(ranks)), return_counts=True)
    # Three ranks that all write to each other have two neighbours, too: a chain has an end.
    return len(set(lengths.tolist())) == 1 and len(edges) == len(ranks) - len(lengths)
