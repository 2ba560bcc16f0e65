"""Which ranks pass work on to each other by messages, and which do the same work. Pure.

A pipeline cuts a model into stages, and a stage sends what it has computed to the next one. Stages
need not do equal work, and a rank that waits for a message waits for another stage. Copies of one
stage do the same work: they reduce gradients together, and no message goes between them, but for
ranks that pass equal blocks round a ring (context parallelism), which do the same work, too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.window.columns import Codes, Ints, Records
from alerts.window.messages import PAIR, is_pairwise, partners, peers_of
from alerts.window.model import Communicator, JobWindow
from alerts.window.split import distinct, members_in, split, starts_of
from collector.contract.collective import Operation

MESSAGE = "message"
"""What sends and receives are called where they stand for operations."""

NEIGHBOURS_MAX = 2
"""Of a typical rank in one communicator: a stage has the one before and the one after. Ranks that
write to more do an all-to-all by messages, and meet as in a collective."""
RING_MIN, RING_EVEN = 3, 1.1
"""Ranks of a ring at least, and how much larger its largest block may be than its smallest."""


def message_edges(job: JobWindow) -> Ints:
    """[edges, 2]: the job's ranks between which messages go; each pair once, the lower one first.

    Communicators in which a typical rank has more than NEIGHBOURS_MAX others are left out, and
    rings in which all pass on the same: there ranks meet as in a collective. Of messages whose
    other end is not known any two ranks may be the ends: all are connected.
    """
    records = job.records
    rows: Records = records.select(is_pairwise(records))
    peer = peers_of(rows)
    edges: set[tuple[int, int]] = set()
    rings = exchanged(job, rows, peer)
    first, _ = distinct(rows.communicator, rows.rank, peer)
    for code in np.unique(rows.communicator).tolist():
        known = job.communicators.get(rows.communicators[code])
        if known is None:
            continue
        own = first[rows.communicator[first] == code]
        pairs = {(int(rows.rank[row]), int(peer[row])) for row in own.tolist()}
        for ends in neighbours_in(pairs):
            ranks = sorted({known.job_rank.get(end, -1) for end in ends})
            if len(ranks) == PAIR and ranks[0] >= 0 and (code, *ranks) not in rings:
                edges.add((ranks[0], ranks[1]))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, PAIR)


def exchanged(job: JobWindow, rows: Records, peer: Codes) -> set[tuple[int, int, int]]:
    """Communicators (by code) with two of the job's ranks, the lower first, that rings pass over.

    A ring is within one communicator, or over communicators of two ranks, all of them together.
    """
    send = [code for code, name in enumerate(rows.operations) if name == Operation.SEND]
    sends = np.flatnonzero(np.isin(rows.operation, send) & (peer >= 0))
    firsts, way = distinct(rows.communicator[sends], rows.rank[sends], peer[sends])
    edges: dict[int, list[tuple[int, int, int, float]]] = {}
    for number, place in enumerate(firsts.tolist()):
        row = sends[place]
        code = int(rows.communicator[row])
        known = job.communicators.get(rows.communicators[code])
        ends = (int(rows.rank[row]), int(peer[row]))
        if known is None or not all(end in known.job_rank for end in ends):
            continue
        source, target = (known.job_rank[end] for end in ends)
        size = float(np.median(rows.size_bytes[sends[way == number]]))
        among = -1 if known.ranks == PAIR else code
        edges.setdefault(among, []).append((code, source, target, size))
    found: set[tuple[int, int, int]] = set()
    for own in edges.values():
        members = in_rings([one[1:] for one in own])
        found |= {
            (code, min(source, target), max(source, target))
            for code, source, target, _ in own
            if source in members
        }
    return found


def in_rings(sends: Sequence[tuple[int, int, float]]) -> set[int]:
    """Ranks of these (from, to, bytes) that pass equal blocks one way round a ring.

    In a pipeline what is sent forward comes back, and of two ranks both send in any case.
    """
    sent = Counter(source for source, _, _ in sends)
    heard = Counter(target for _, target, _ in sends)
    after = {
        source: (target, size)
        for source, target, size in sends
        if sent[source] == heard[source] == sent[target] == heard[target] == 1
    }
    found: set[int] = set()
    while after:
        first = rank = next(iter(after))
        members, sizes = [], []
        while rank in after:
            members.append(rank)
            rank, size = after.pop(rank)
            sizes.append(size)
        if rank == first and len(members) >= RING_MIN and max(sizes) <= RING_EVEN * min(sizes):
            found.update(members)
    return found


def neighbours_in(pairs: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs of one communicator; none if ranks have too many, a chain of all if one is -1.

    Or if one names a rank that was seen, too, and does not name it: then they do not mean the same
    by their numbers.
    """
    ranks = sorted({rank for rank, _ in pairs})
    is_one_sided = any(peer in ranks and (peer, rank) not in pairs for rank, peer in pairs)
    if is_one_sided or any(peer < 0 for _, peer in pairs):
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


# Messages as operations --------------------------------------------------------------------------


def by_messages(job: JobWindow) -> JobWindow | None:
    """The job with its messages in place of its collectives; None where it has none.

    Each direction between two ranks is a communicator of its own, its rank 0 sends. Both ends leave
    when the receiver does: a send ends early where it is buffered, which tells nothing.
    """
    rows, receivers = sends_of(job)
    if not len(rows) or job.kept_one_in > 1:
        return None
    source = job_ranks(job, job.records.select(rows))
    target = job_ranks(job, job.records.select(receivers))
    first, way = distinct(source, target)
    names = [f"{source[row]}>{target[row]}" for row in first.tolist()]
    order = np.lexsort((job.records.entry_ns[rows], way))
    starts = starts_of(way[order])
    place = np.arange(len(order)) - starts[way[order]]
    rows, receivers, way = rows[order], receivers[order], way[order]
    both = job.records.select(np.stack([rows, receivers], axis=1).reshape(-1))
    exits = np.maximum(job.records.exit_ns[receivers], job.records.entry_ns[rows])
    records = msgspec.structs.replace(
        both,
        communicators=names,
        operations=[MESSAGE],
        communicator=np.repeat(way, PAIR).astype(np.int32),
        operation=np.zeros(len(both), dtype=np.int32),
        sequence=np.repeat(place, PAIR),
        rank=np.tile([0, 1], len(rows)).astype(np.int32),
        ranks=np.full(len(both), PAIR, dtype=np.int32),
        exit_ns=np.repeat(exits, PAIR),
    )
    joined = split(msgspec.structs.replace(records, operations=[Operation.OTHER.value]))
    communicators = {
        name: Communicator(
            name=name,
            ranks=PAIR,
            job_rank={0: int(source[row]), 1: int(target[row])},
            is_one_way=True,
        )
        for name, row in zip(names, first.tolist(), strict=True)
    }
    return msgspec.structs.replace(
        job,
        communicators=communicators,
        records=records,
        operations=msgspec.structs.replace(joined, operations=[MESSAGE]),
        past={},
        baselines={},
    )


def sends_of(job: JobWindow) -> tuple[Ints, Ints]:
    """Rows of sends between known ranks, and the rows of their receives."""
    records = job.records
    other = partners(records)
    rows = np.flatnonzero((other >= 0) & records.timed())
    kind = np.array([name == Operation.SEND for name in records.operations], dtype=bool)
    rows = rows[kind[records.operation[rows]]] if len(kind) else rows[:0]
    rows = rows[records.timed()[other[rows]]]
    known = (job_ranks(job, records.select(rows)) >= 0) & (
        job_ranks(job, records.select(other[rows])) >= 0
    )
    return rows[known], other[rows[known]]


def job_ranks(job: JobWindow, records: Records) -> Ints:
    """The job's rank of each row; -1 where it is not known."""
    members, which = members_in(records)
    known = np.full(len(members), -1, dtype=np.int64)
    for place, (name, rank) in enumerate(members):
        communicator = job.communicators.get(name)
        known[place] = communicator.job_rank.get(rank, -1) if communicator is not None else -1
    return known[which]
