"""Whether a NIC that receives too slowly sends as slowly too: by when ranks leave a ring. Pure.

A ring's ranks pass pieces on, one after the other. Behind a slow edge each rank leaves one piece's
time before the rank before it: the receiver at the slow edge leaves last, its next neighbour one
piece earlier, and so on. If the receiver's own sending is as slow, its next neighbour has to wait
for each piece as long as it did, and both leave together. Counters cannot show this: in a ring
every NIC sends what it receives.
"""

from __future__ import annotations

import numpy as np

from alerts.signals.ladder import STEPS_OF, ring_orders
from alerts.window.columns import Flags, Floats, Ints, Records
from alerts.window.model import JobWindow, Window

OPERATIONS_LEAST = 3
"""Slow collectives, and usual ones, that must have been seen."""
SLOWER_LEAST = 1.5
"""Times the usual transfer: below, exits show chance more than the NIC."""
PIECE_SHARE = 0.5
"""Of a piece's time by which the next neighbour leaves earlier: the middle between all of it, of a
NIC that only receives slowly, and nothing."""


def sends_as_slowly(window: Window, row: int, from_ns: int, to_ns: int) -> bool | None:
    """Of a NIC's port that receives slowly in this time; None where no ring shows it."""
    shares = [
        share
        for job, rank in window.users_of_port.get(row, [])
        for name in sorted(job.communicators)
        if (share := piece_share(job, name, rank, from_ns, to_ns)) is not None
    ]
    return bool(np.median(shares) < PIECE_SHARE) if shares else None


def piece_share(job: JobWindow, name: str, rank: int, from_ns: int, to_ns: int) -> float | None:
    """How much earlier than a rank the next one leaves, of a piece's time; None: not known."""
    communicator = job.communicators[name]
    places = {number: place for place, number in communicator.job_rank.items()}
    known = [job.ranks[number] for number in places if number in job.ranks]
    if rank not in places or len({one.host for one in known}) < len(known):
        return None  # its bytes do not cross NICs between all neighbours
    orders = ring_orders(communicator, communicator.ranks)
    nexts = {int(np.roll(order, -1)[order == places[rank]][0]) for order in orders}
    if len(nexts) != 1:
        return None  # channels go round differently: exits are a mixture
    return compared(job, name, (places[rank], nexts.pop()), from_ns, to_ns)


def compared(
    job: JobWindow, name: str, pair: tuple[int, int], from_ns: int, to_ns: int
) -> float | None:
    all_of = job.operations
    if name not in all_of.communicators or name not in job.records.communicators:
        return None
    rounds = np.array([STEPS_OF.get(word, 0) for word in all_of.operations] or [0])
    own: Flags = all_of.communicator == all_of.communicators.index(name)
    own &= rounds[all_of.operation] > 0
    if not own.any():
        return None
    largest = int(np.flatnonzero(own)[np.argmax(all_of.size_bytes[own])])
    own &= all_of.size_bytes == all_of.size_bytes[largest]
    own &= all_of.operation == all_of.operation[largest]
    ends, transfer = all_of.last_exit_ns, all_of.transfer_ns
    during, before = own & (ends >= from_ns) & (ends <= to_ns), own & (ends < from_ns)
    if min(during.sum(), before.sum()) < OPERATIONS_LEAST:
        return None
    slow, usual = float(np.median(transfer[during])), float(np.median(transfer[before]))
    if not slow > SLOWER_LEAST * max(usual, 1.0):
        return None
    word = all_of.operations[int(all_of.operation[largest])]
    earlier = [
        leaves_earlier(job.records, (name, word), pair, all_of.sequence[chosen])
        for chosen in (during, before)
    ]
    if min(len(one) for one in earlier) < OPERATIONS_LEAST:
        return None
    pieces = int(rounds[all_of.operation[largest]]) * max(1, int(all_of.ranks[largest]) - 1)
    return float((np.median(earlier[0]) - np.median(earlier[1])) / (slow / pieces))


def leaves_earlier(
    records: Records, kind: tuple[str, str], pair: tuple[int, int], sequences: Ints
) -> Floats:
    """For each of these operations how much earlier the second of two ranks left than the first."""
    name, word = kind
    if word not in records.operations:
        return np.zeros(0)
    own: Flags = records.communicator == records.communicators.index(name)
    own &= (records.operation == records.operations.index(word)) & records.timed()
    own &= np.isin(records.sequence, sequences)
    first, second = (records.select(own & (records.rank == one)) for one in pair)
    _, here, there = np.intersect1d(
        first.sequence, second.sequence, assume_unique=False, return_indices=True
    )
    difference: Floats = (first.exit_ns[here] - second.exit_ns[there]).astype(np.float64)
    return difference
