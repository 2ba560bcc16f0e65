"""Which ranks a hung job waits for, by its Flight Recorders' pending operations alone. Pure.

A group's operations are numbered in the order in which its ranks launch them, and a rank finishes
them in that order. So a rank whose first unfinished operation is number 20 has finished number 19.
Two things can be wrong with a rank:

- *It has not finished what others have.* A barrier-like collective that one rank has left was
  entered by all: a rank still in it, while its peers are at a later one, does not get on itself.
- *It has not launched what others wait in*, and waits in nothing itself. One that is missing from a
  group because it is in another group's operation is a victim: the rank missing there is next in
  the chain, and at its head are ranks that wait for none.

A rank without a dump, or with one that is cut off, is in neither list: it may wait in anything. It
is a suspect where it is missing, and it takes the certainty from an accusation where it may be what
the accused waits for, or one of many that do the same as the accused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from alerts.window.clocks import BARRIER_LIKE
from alerts.window.model import JobWindow, Pending
from alerts.window.split import PAIRWISE
from collector.contract.collective import State
from collector.contract.verdict import Reason

ACCUSED_SHARE_MAX = 1 / 3
"""Of a job's ranks: where more seem guilty, dumps are missing, or were taken while it ran."""
PAIR = 2
"""Members of a group in which the other end of a message is known without asking."""
GROUP_SHARE_MAX = 0.5
"""Of a group's members: a rank alone against most others is the wrong one, not they."""


WAITING_MIN = 2
"""Ranks that must wait where some were not read: a dump may be written at any time, and a single
rank is often inside of something."""


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of the job that are waited for."""

    ranks: tuple[int, ...]
    reason: Reason
    communicators: tuple[str, ...]
    """Groups that wait for them."""
    operations: int
    time_ns: int
    unread: tuple[int, ...] = ()
    """Ranks without a dump that may be waited for as well, or instead."""
    is_certain: bool = True
    """Whether the ranks are at fault whatever the dumps that are missing would show."""


def blame(job: JobWindow) -> Blame | None:
    """Ranks at fault; without certainty also those that nothing was read of; None: no sign."""
    groups: dict[str, list[Pending]] = {}
    for pending in job.pending:
        groups.setdefault(pending.communicator, []).append(pending)
    found, reason = unfinished(job, groups), Reason.NOT_FINISHED
    if not found:
        found, reason = not_launched(job, groups), Reason.NOT_LAUNCHED
    absent = unread_waits(job, groups)
    certain = [one for one in found if one.is_certain]
    if certain and is_plausible(job, ranks_of(certain)):
        return to_blame(certain, reason, ranks_of(absent))
    if not absent and all(one.is_certain for one in found):
        return None
    if len(waiting_in(job.pending)) < WAITING_MIN:
        return None
    rest = {*ranks_of(absent), *(rank for one in found for rank in one.unread)}
    named = ranks_of(found) if is_plausible(job, ranks_of(found)) else []
    if not found and len(rest) == 1:
        named = list(rest)
    both = to_blame([*found, *absent], reason if found else Reason.UNKNOWN, rest - {*named})
    return msgspec.structs.replace(both, ranks=tuple(named), is_certain=False)


def waiting_in(pending: Iterable[Pending]) -> set[int]:
    """The job's ranks that wait in any of these."""
    return {
        one.job_rank[rank]
        for one in pending
        for rank in one.states
        if rank in one.job_rank and is_open(one, rank)
    }


def to_blame(found: Sequence[Accusation], reason: Reason, unread: Iterable[int]) -> Blame:
    entries = [pending for one in found for pending in one.shown]
    return Blame(
        ranks=tuple(ranks_of(found)),
        reason=reason,
        communicators=tuple(sorted({one.communicator for one in found})),
        operations=len(entries),
        time_ns=max(pending.time_ns for pending in entries),
        unread=tuple(sorted({*unread})),
    )


def is_plausible(job: JobWindow, ranks: Sequence[int]) -> bool:
    """Whether so few can be at fault: of a small job the ranks of one host may be half of it."""
    size = max(job.size, len(job.ranks), 1)
    share = GROUP_SHARE_MAX if is_one_host(job, ranks) else ACCUSED_SHARE_MAX
    return 0 < len(ranks) <= max(1, share * size)


def is_one_host(job: JobWindow, ranks: Sequence[int]) -> bool:
    """Whether these are the ranks of one known host."""
    hosts = {job.ranks[rank].host if rank in job.ranks else "" for rank in ranks}
    return len(hosts) == 1 and "" not in hosts


class Accusation(msgspec.Struct, frozen=True, kw_only=True):
    """Of one group: the job's ranks that it accuses, and the operations that show it."""

    communicator: str
    ranks: tuple[int, ...]
    shown: tuple[Pending, ...]
    unread: tuple[int, ...] = ()
    """Members without a dump."""
    is_certain: bool = True


def ranks_of(found: Iterable[Accusation]) -> list[int]:
    return sorted({rank for one in found for rank in one.ranks})


def is_unread(job: JobWindow, rank: int) -> bool:
    return job.dumped is not None and rank not in job.dumped


def unfinished(job: JobWindow, groups: Mapping[str, Sequence[Pending]]) -> list[Accusation]:
    """Ranks that are still in a collective which others of its group have left.

    Certain where all of the group were read: one that was not may be the reason why they are in it.
    """
    found = []
    for name, entries in groups.items():
        own = [one for one in entries if one.operation not in PAIRWISE]
        heads = heads_of(own)
        accused: dict[int, Pending] = {}
        unread: set[int] = set()
        for one in own:
            if one.operation not in BARRIER_LIKE:
                continue
            left = {
                rank
                for rank in one.job_rank
                if one.states.get(rank) is State.COMPLETED
                or (rank not in one.states and heads.get(rank, -1) > one.sequence)
            }
            inside = [rank for rank in one.states if is_open(one, rank)]
            if left and len(inside) <= GROUP_SHARE_MAX * max(one.ranks, len(one.states)):
                accused |= {one.job_rank[rank]: one for rank in inside if rank in one.job_rank}
                unread |= {
                    number
                    for rank, number in one.job_rank.items()
                    if is_unread(job, number) and rank not in left and rank not in inside
                }
        if accused:
            found.append(
                Accusation(
                    communicator=name,
                    ranks=tuple(sorted(accused)),
                    shown=tuple(accused.values()),
                    unread=tuple(sorted(unread)),
                    is_certain=not unread,
                )
            )
    return found


def not_launched(job: JobWindow, groups: Mapping[str, Sequence[Pending]]) -> list[Accusation]:
    """Ranks that a group waits for, and whose own dumps show that they wait in nothing."""
    found = []
    for name, one, missing in missing_in(groups):
        read = [rank for rank in missing if not is_unread(job, rank)]
        limit = GROUP_SHARE_MAX * max(one.ranks, len(one.job_rank))
        if read and len(read) <= limit:
            found.append(
                Accusation(
                    communicator=name,
                    ranks=tuple(read),
                    shown=(one,),
                    unread=tuple(rank for rank in missing if rank not in read),
                    # Those without a dump may be as idle: then most of the group is, and those
                    # that wait are the odd ones.
                    is_certain=len(missing) <= limit,
                )
            )
    return found


def unread_waits(job: JobWindow, groups: Mapping[str, Sequence[Pending]]) -> list[Accusation]:
    """Ranks without a dump that a group waits for, unless another's dump shows where they are."""
    found = []
    for name, one, missing in missing_in(groups):
        unread = tuple(rank for rank in missing if is_unread(job, rank))
        if unread:
            found.append(Accusation(communicator=name, ranks=unread, shown=(one,)))
    return found


def missing_in(
    groups: Mapping[str, Sequence[Pending]],
) -> Iterator[tuple[str, Pending, list[int]]]:
    """What each group waits in, and its members that are neither there nor wait elsewhere."""
    busy = waiting_in(one for entries in groups.values() for one in entries)
    for name, entries in groups.items():
        for one in first_waits(entries):
            missing = [
                number
                for rank, number in one.job_rank.items()
                if rank not in one.states and number not in busy
            ]
            if missing:
                yield name, one, missing


def first_waits(entries: Sequence[Pending]) -> list[Pending]:
    """A group's first pending collective, and its first message if it is a pair."""
    waits = []
    group = [one for one in entries if one.operation not in PAIRWISE]
    if group:
        waits.append(min(group, key=lambda one: (one.sequence, one.operation)))
    messages = [one for one in entries if one.operation in PAIRWISE and one.ranks == PAIR]
    if messages:
        first = min(one.sequence for one in messages)
        both = [one for one in messages if one.sequence == first]
        states = {rank: state for one in both for rank, state in one.states.items()}
        waits.append(msgspec.structs.replace(both[0], states=states))
    return waits


def heads_of(entries: Sequence[Pending]) -> dict[int, int]:
    """For each member the number of its first operation that it has not finished."""
    heads: dict[int, int] = {}
    for one in entries:
        for rank in one.states:
            if is_open(one, rank):
                heads[rank] = min(heads.get(rank, one.sequence), one.sequence)
    return heads


def is_open(pending: Pending, rank: int) -> bool:
    return pending.states[rank] is not State.COMPLETED
