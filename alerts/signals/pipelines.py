"""Which ranks pass work on to each other by messages, and which do the same work. Pure.

A pipeline cuts a model into stages, and a stage sends what it has computed to the next one. Stages
need not do equal work, and a rank that waits for a message waits for another stage. Copies of one
stage do the same work: they reduce gradients together, and no message goes between them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from alerts.window.columns import Ints, Records
from alerts.window.messages import PAIR, is_pairwise, peers_of
from alerts.window.model import JobWindow
from alerts.window.split import distinct

NEIGHBOURS_MAX = 2
"""Of a typical rank in one communicator: a stage has the one before and the one after. Ranks that
write to more do an all-to-all by messages, and meet as in a collective."""


def message_edges(job: JobWindow) -> Ints:
    """[edges, 2]: the job's ranks between which messages go; each pair once, the lower one first.

    Communicators in which a typical rank has more than NEIGHBOURS_MAX others are left out. Of
    messages whose other end is not known any two ranks may be the ends: all are connected.
    """
    records = job.records
    rows: Records = records.select(is_pairwise(records))
    peer = peers_of(rows)
    edges: set[tuple[int, int]] = set()
    first, _ = distinct(rows.communicator, rows.rank, peer)
    for code in np.unique(rows.communicator).tolist():
        known = job.communicators.get(rows.communicators[code])
        if known is None:
            continue
        own = first[rows.communicator[first] == code]
        pairs = {(int(rows.rank[row]), int(peer[row])) for row in own.tolist()}
        for ends in neighbours_in(pairs):
            ranks = sorted({known.job_rank.get(end, -1) for end in ends})
            if len(ranks) == PAIR and ranks[0] >= 0:
                edges.add((ranks[0], ranks[1]))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, PAIR)


def neighbours_in(pairs: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs of one communicator; none if ranks have too many, a chain of all if one is -1."""
    ranks = sorted({rank for rank, _ in pairs})
    if any(peer < 0 for _, peer in pairs):
        return list(itertools.pairwise(ranks))
    counts = Counter(end for pair in {frozenset(pair) for pair in pairs} for end in pair)
    return [] if np.median([*counts.values()]) > NEIGHBOURS_MAX else sorted(pairs)


def pipelines_of(edges: Ints, ranks: Ints) -> Ints:
    """The pipeline of each of ``ranks`` (sorted), as the place of its lowest rank.

    Ranks that messages connect, directly or not, are one. -1: no message reaches the rank.
    """
    chosen = edges[np.isin(edges, ranks).all(axis=1)]
    ends = np.searchsorted(ranks, chosen)
    reached = np.zeros(len(ranks), dtype=bool)
    reached[ends.reshape(-1)] = True
    return np.where(reached, connected(ends, len(ranks)), -1)


def stages_of(copies: Sequence[Ints], ranks: int) -> Ints:
    """The stage of each rank, as the place of its lowest copy; a rank without copies is alone."""
    pairs = [pair for group in copies for pair in itertools.pairwise(group.tolist())]
    return connected(np.array(pairs, dtype=np.int64).reshape(-1, PAIR), ranks)


def connected(ends: Ints, count: int) -> Ints:
    """For each of so many places the lowest that these pairs connect it with."""
    lowest = np.arange(count, dtype=np.int64)
    while len(ends):
        before = lowest.copy()
        both = lowest[ends].min(axis=1)
        for side in (0, 1):
            np.minimum.at(lowest, ends[:, side], both)
        if (lowest == before).all():
            break
    return lowest


def are_copies(pipeline: Ints) -> bool:
    """Whether no two of these ranks, by their pipelines, pass work on to each other."""
    known = pipeline[pipeline >= 0]
    return len(np.unique(known)) == len(known)
