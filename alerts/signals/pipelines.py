"""Which ranks pass work on to each other by messages, and which do the same work. Pure.

A pipeline cuts a model into stages, and a stage sends what it has computed to the next one. Stages
need not do equal work, and a rank that waits for a message waits for another stage. Copies of one
stage do the same work: they reduce gradients together, and no message goes between them.
"""

from __future__ import annotations

import numpy as np

from alerts.window.columns import Flags, Ints, Records
from alerts.window.model import JobWindow
from alerts.window.split import PAIRWISE, distinct

PAIR = 2
"""Ranks of a communicator in which the other end of a message is clear without its name."""
NEIGHBOURS_MAX = 2
"""Of a typical rank in one communicator: a stage has the one before and the one after. Ranks that
write to more do an all-to-all by messages, and meet as in a collective."""


def is_pairwise(records: Records) -> Flags:
    """Rows that are messages between two ranks."""
    names: Flags = np.array([name in PAIRWISE for name in records.operations], dtype=bool)
    found: Flags = names[records.operation] if len(names) else np.zeros(len(records), dtype=bool)
    return found


def message_edges(job: JobWindow) -> Ints:
    """[edges, 2]: the job's ranks between which messages go; each pair once, the lower one first.

    Communicators in which a typical rank has more than NEIGHBOURS_MAX others are left out, and so
    are messages whose other end is not known.
    """
    records = job.records
    rows: Records = records.select(is_pairwise(records))
    peer = np.where((rows.peer < 0) & (rows.ranks == PAIR), 1 - rows.rank, rows.peer)
    rows, peer = rows.select(peer >= 0), peer[peer >= 0]
    edges: set[tuple[int, int]] = set()
    first, _ = distinct(rows.communicator, rows.rank, peer)
    for code in np.unique(rows.communicator).tolist():
        known = job.communicators.get(rows.communicators[code])
        own = first[rows.communicator[first] == code]
        ends = {frozenset((int(rows.rank[row]), int(peer[row]))) for row in own.tolist()}
        counts = np.unique([end for pair in ends for end in pair], return_counts=True)[1]
        if known is None or np.median(counts) > NEIGHBOURS_MAX:
            continue
        for pair in ends:
            ranks = sorted(known.job_rank.get(end, -1) for end in pair)
            if len(ranks) == PAIR and ranks[0] >= 0:
                edges.add((ranks[0], ranks[1]))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, PAIR)


def pipelines_of(edges: Ints, ranks: Ints) -> Ints:
    """The pipeline of each of ``ranks`` (sorted), as the place of its lowest rank.

    Ranks that messages connect, directly or not, are one. -1: no message reaches the rank.
    """
    chosen = edges[np.isin(edges, ranks).all(axis=1)]
    ends = np.searchsorted(ranks, chosen)
    lowest = np.arange(len(ranks), dtype=np.int64)
    while True:
        before = lowest.copy()
        both = lowest[ends].min(axis=1) if len(ends) else lowest[:0]
        for side in (0, 1):
            np.minimum.at(lowest, ends[:, side], both)
        if (lowest == before).all():
            break
    reached = np.zeros(len(ranks), dtype=bool)
    reached[ends.reshape(-1)] = True
    return np.where(reached, lowest, -1)


def are_copies(pipeline: Ints) -> bool:
    """Whether no two of these ranks, by their pipelines, pass work on to each other."""
    known = pipeline[pipeline >= 0]
    return len(np.unique(known)) == len(known)
