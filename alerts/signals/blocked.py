"""Which ranks a hung job waits for, by its Flight Recorders' pending operations alone. Pure.

A group's operations are numbered in the order in which its ranks launch them, and a rank finishes
them in that order. So a rank whose first unfinished operation is number 20 has finished number 19.
Two things can be wrong with a rank:

- *It has not finished what others have.* A barrier-like collective that one rank has left was
  entered by all: a rank still in it, while its peers are at a later one, does not get on itself.
- *It has not launched what others wait in*, and waits in nothing itself. One that is missing from a
  group because it is in another group's operation is a victim: the rank missing there is next in
  the chain, and at its head are ranks that wait for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of the job that are waited for."""

    ranks: tuple[int, ...]
    reason: Reason
    communicators: tuple[str, ...]
    """Groups that wait for them."""
    operations: int
    time_ns: int


def blame(job: JobWindow) -> Blame | None:
    groups: dict[str, list[Pending]] = {}
    for pending in job.pending:
        groups.setdefault(pending.communicator, []).append(pending)
    found = unfinished(groups)
    reason = Reason.NOT_FINISHED
    if not found:
        found, reason = not_launched(groups), Reason.NOT_LAUNCHED
    ranks = sorted({rank for accused, _ in found.values() for rank in accused})
    size = max(job.size, len(job.ranks), 1)
    share = GROUP_SHARE_MAX if is_one_host(job, ranks) else ACCUSED_SHARE_MAX
    if not ranks or len(ranks) > max(1, share * size):
        return None
    entries = [pending for _, shown in found.values() for pending in shown]
    return Blame(
        ranks=tuple(ranks),
        reason=reason,
        communicators=tuple(sorted(found)),
        operations=len(entries),
        time_ns=max(pending.time_ns for pending in entries),
    )


def is_one_host(job: JobWindow, ranks: Sequence[int]) -> bool:
    """Whether these are the ranks of one known host: of a small job that may be half of them."""
    hosts = {job.ranks[rank].host if rank in job.ranks else "" for rank in ranks}
    return len(hosts) == 1 and "" not in hosts


Accusations = dict[str, tuple[list[int], list[Pending]]]
"""For each group: the job's ranks that it accuses, and the operations that show it."""


def unfinished(groups: Mapping[str, Sequence[Pending]]) -> Accusations:
    """Ranks that are still in a collective which others of its group have left."""
    found: Accusations = {}
    for name, entries in groups.items():
        own = [one for one in entries if one.operation not in PAIRWISE]
        heads = heads_of(own)
        accused: dict[int, Pending] = {}
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
        if accused:
            found[name] = sorted(accused), list(accused.values())
    return found


def not_launched(groups: Mapping[str, Sequence[Pending]]) -> Accusations:
    """Ranks that a group waits for, and that wait in nothing themselves."""
    busy = {
        one.job_rank[rank]
        for entries in groups.values()
        for one in entries
        for rank in one.states
        if rank in one.job_rank and is_open(one, rank)
    }
    found: Accusations = {}
    for name, entries in groups.items():
        for one in first_waits(entries):
            missing = [
                number
                for rank, number in one.job_rank.items()
                if rank not in one.states and number not in busy
            ]
            if missing and len(missing) <= GROUP_SHARE_MAX * max(one.ranks, len(one.job_rank)):
                accused, shown = found.setdefault(name, ([], []))
                accused.extend(missing)
                shown.append(one)
    return found


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
