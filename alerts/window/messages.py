"""The two ends of messages between ranks: which receive belongs to which send. Pure.

A receive ends when its bytes have come. Until the other rank has begun to send, it waits for that
rank, and only after that for the network. The ends need not number a message alike, and records of
one may begin later: the order of messages and their times decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alerts.window.columns import Codes, Flags, Ints, Records
from alerts.window.split import PAIRWISE, distinct, starts_of
from alerts.window.statistics import middle
from collector.contract.collective import Operation
from collector.contract.records import ABSENT

PAIR = 2
"""Ranks of a communicator in which the other end of a message is clear without its name."""
AS_NEAR = 1.5
"""Of the nearest order's distance, that is as near: a wrong one is off by whole messages."""
SHIFT_MORE, SHIFT_MAX = 2, 64
"""Messages by which the records of two ranks may be out of step, beside their difference in number;
and in all: of more no order is looked for."""


def is_pairwise(records: Records) -> Flags:
    """Rows that are messages between two ranks."""
    names: Flags = np.array([name in PAIRWISE for name in records.operations], dtype=bool)
    found: Flags = names[records.operation] if len(names) else np.zeros(len(records), dtype=bool)
    return found


def peers_of(records: Records) -> Codes:
    """The other end of each message, within the communicator; -1: not known, or no message."""
    messages = is_pairwise(records)
    lone = messages & (records.peer < 0) & (records.ranks == PAIR)
    peer: Codes = np.where(lone, 1 - records.rank, np.where(messages, records.peer, -1))
    return peer.astype(np.int32)


def partners(records: Records) -> Ints:
    """For each row the row of the message's other end; -1 where there is none, or it is unclear."""
    found = np.full(len(records), -1, dtype=np.int64)
    peer = peers_of(records)
    names = [Operation.SEND, Operation.RECV, Operation.SEND_RECV]
    kind = np.array(
        [names.index(Operation(one)) if one in names else -1 for one in records.operations]
    )
    kind = kind[records.operation] if len(kind) else np.zeros(0, dtype=np.int64)
    for pairs in (kind == 2, (kind >= 0) & (kind < 2)):  # noqa: PLR2004 - places in `names`
        rows = np.flatnonzero(pairs & (peer >= 0))
        if len(rows):
            match_ends(records, rows, peer[rows], kind[rows], found)
    return found


def met_ns(messages: Records) -> Ints:
    """When both ends of each of these had come: until then it is waiting, afterwards transfer.

    Where the other end was not seen, when it ended: a message on its own takes microseconds.
    """
    other = partners(messages)
    both = np.maximum(messages.entry_ns, messages.entry_ns[other])
    return np.where(other >= 0, both, messages.exit_ns)


def match_ends(records: Records, rows: Ints, peer: Codes, kind: Ints, found: Ints) -> None:
    """Write into ``found`` which of these rows belong together."""
    rank = records.rank[rows]
    # Both ends of an exchange send: then the lower rank's side comes first.
    is_first = np.where(kind == 2, rank < peer, kind == 0)  # noqa: PLR2004 - as above
    source, target = np.where(is_first, rank, peer), np.where(is_first, peer, rank)
    _, way = distinct(records.communicator[rows], source, target)
    order = np.lexsort((records.entry_ns[rows], records.sequence[rows], ~is_first, way))
    begins = starts_of(way[order])
    for start, end in zip(begins, np.append(begins[1:], len(order)), strict=True):
        own = rows[order[start:end]]
        side = is_first[order[start:end]]
        senders, receivers = best_match(records, own[side], own[~side])
        found[senders], found[receivers] = receivers, senders


def best_match(records: Records, senders: Ints, receivers: Ints) -> tuple[Ints, Ints]:
    """Which of these sends and receives, in their order, belong together.

    By their numbers, or one by one with some left out at an end of either: files of two ranks need
    not begin at the same message. The right one is that whose ends are nearest in time; of those
    that are as near, the one that leaves fewest out: some numbers may be alike by chance.
    """
    _, one, other = np.intersect1d(
        records.sequence[senders], records.sequence[receivers], return_indices=True
    )
    options: list[tuple[Ints | slice, Ints | slice]] = [(one, other)]
    lengths = [len(one)]
    most = abs(len(senders) - len(receivers)) + SHIFT_MORE
    for shift in sorted(range(-most, most + 1), key=abs) if most <= SHIFT_MAX else ():
        sent, come = max(0, shift), max(0, -shift)
        count = max(0, min(len(senders) - sent, len(receivers) - come))
        options.append((slice(sent, sent + count), slice(come, come + count)))
        lengths.append(count)
    sends, receives = Ends.of(records, senders), Ends.of(records, receivers)
    fits = [misfit(sends.part(first), receives.part(second)) for first, second in options]
    near = [
        (-length, fit, place)
        for place, (length, fit) in enumerate(zip(lengths, fits, strict=True))
        if fit <= AS_NEAR * min(fits)
    ]
    first, second = options[min(near)[2]]
    return senders[first], receivers[second]


class Ends(NamedTuple):
    """One side of some messages: when each was entered and left, and whether both are known."""

    entry_ns: Ints
    exit_ns: Ints
    is_timed: Flags

    @classmethod
    def of(cls, records: Records, rows: Ints) -> Ends:
        entry_ns, exit_ns = records.entry_ns[rows], records.exit_ns[rows]
        return cls(entry_ns, exit_ns, (entry_ns != ABSENT) & (exit_ns != ABSENT))

    def part(self, rows: Ints | slice) -> Ends:
        return Ends(self.entry_ns[rows], self.exit_ns[rows], self.is_timed[rows])


def misfit(sends: Ends, receives: Ends) -> float:
    """How far receives typically end from when both ends had come, and from the sends' ends.

    The first is large if a receive ended before its send began, the second if a send is far older.
    Messages without a time at both ends tell nothing.
    """
    known = sends.is_timed & receives.is_timed
    if not known.any():
        return float("inf")
    ended = receives.exit_ns
    apart = np.abs(ended - np.maximum(sends.entry_ns, receives.entry_ns))
    apart += np.abs(ended - sends.exit_ns)
    return middle(apart if known.all() else apart[known])
