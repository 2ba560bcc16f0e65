"""From answers of NCCL's RAS to reports: who differs from most, how long nothing moves. Pure.

One answer is a moment: ranks of a healthy job differ in it by an operation or two, because each is
asked a little later than the other. Only over several answers can be told that nothing moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from collector.contract.collective import Operation
from collector.contract.ras import ODD_MAX, OddRank, Presence, RasReport, total
from collector.parsing.nccl_ras import Launched, Member, RasAnswer, RasCommunicator

REPORTS_MAX: Final = 8
"""Communicators of an answer that are reported: those with the ranks that others wait for first,
then the largest. Where more are in trouble, one trouble is at the root of all."""
GONE: Final = frozenset({Presence.UNRESPONSIVE, Presence.DEAD})

Place = tuple[str, int]
"""Communicator, and rank within it."""
Process = tuple[str, int, int | None]
"""Address, process id and CUDA device: one process may have several ranks."""
Counts = tuple[tuple[Operation, int], ...]


class JobMemory(msgspec.Struct):
    """What earlier answers of one job showed. Times are of a monotonic clock, in nanoseconds."""

    launched: dict[Place, Launched] = {}
    """The latest of every rank that ever answered; -1 stands for those that a text does not
    list."""
    answered: frozenset[Place] = frozenset()
    absent_since: dict[Place, int] = {}
    since_ns: int = 0
    seen_ns: int = 0
    answers: int = 0
    longest_ns: int = 0

    @property
    def standing_ns(self) -> int:
        """For how long no count has changed, up to the last answer."""
        return self.seen_ns - self.since_ns

    def take(self, answer: RasAnswer, now_ns: int) -> None:
        """Compare an answer with the one before, and remember it."""
        counts = dict(counts_of(answer))
        if self._is_same(counts, is_whole=answer.is_whole):
            self.answers += 1
        else:
            if self.answers > 1:
                self.longest_ns = max(self.longest_ns, self.standing_ns)
            self.since_ns, self.answers = now_ns, 1
        self.seen_ns = now_ns
        absent = {
            (one.name, member.rank)
            for one in answer.communicators
            for member in one.members
            if member.presence in GONE
        }
        self.absent_since = {place: self.absent_since.get(place, now_ns) for place in absent}
        kept = {place: self.launched[place] for place in absent if place in self.launched}
        self.launched = kept | counts
        self.answered = frozenset(counts)

    def _is_same(self, counts: dict[Place, Launched], *, is_whole: bool) -> bool:
        """Whether no rank that both answers have, and no communicator, differs."""
        both = counts.keys() & self.answered
        if not both or any(counts[place] != self.launched[place] for place in both):
            return False
        if not is_whole:
            return counts.keys() == self.answered
        return {name for name, _ in counts} == {name for name, _ in self.answered}


def counts_of(answer: RasAnswer) -> Iterator[tuple[Place, Launched]]:
    for one in answer.communicators:
        for member in one.members:
            if member.launched is not None:
                yield (one.name, member.rank), member.launched
        if one.others:
            yield (one.name, -1), one.others


def largest(answer: RasAnswer) -> RasCommunicator | None:
    """The communicator that a job is known by, and that numbers its processes."""
    return min(answer.communicators, key=lambda one: (-one.size, one.name), default=None)


def process_of(member: Member) -> Process | None:
    if not member.address or not member.pid:
        return None
    return member.address, member.pid, member.cuda_device


# Reports -----------------------------------------------------------------------------------------


def reports_of(answer: RasAnswer, memory: JobMemory) -> list[tuple[str, RasReport]]:
    """Reports of up to REPORTS_MAX communicators, after the memory has taken the answer."""
    world = largest(answer)
    if world is None:
        return []
    ranks = {process_of(member): member.rank for member in world.members}
    waits = waits_of(answer.communicators)
    made = [
        (one.name, report_of(one, answer, memory, ranks, waits)) for one in answer.communicators
    ]
    made.sort(key=lambda pair: (-weight(pair[1]), -pair[1].size, pair[0]))
    told = [(name, report) for name, report in made if weight(report) or name == world.name]
    return told[:REPORTS_MAX]


def has_gone(report: RasReport) -> bool:
    return any(one.presence in GONE for one in report.odd)


def weight(report: RasReport) -> int:
    """How much a report can say: of ranks that are gone, behind, different; else nothing."""
    if has_gone(report):
        return 3
    if any(not one.waits_in for one in behind_of(report)):
        return 2
    return 1 if report.odd or report.odd_left_out else 0


def report_of(
    one: RasCommunicator,
    answer: RasAnswer,
    memory: JobMemory,
    ranks: dict[Process | None, int],
    waits: dict[Process, list[str]],
) -> RasReport:
    common, alike = most_common(one)
    odd = [member for member in one.members if is_odd(member, common)]
    odd.sort(
        key=lambda member: (member.presence not in GONE, total(member.launched or {}), member.rank)
    )
    return RasReport(
        size=one.size,
        launched=common,
        alike=alike,
        odd=tuple(odd_rank(one.name, member, memory, ranks, waits) for member in odd[:ODD_MAX]),
        odd_left_out=len(odd[ODD_MAX:]) + one.unlisted_odd,
        standing_ns=memory.standing_ns,
        answers=memory.answers,
        longest_ns=memory.longest_ns,
        nccl=answer.version,
    )


def is_odd(member: Member, common: Launched) -> bool:
    return member.presence is not Presence.ANSWERS or member.launched != common


def most_common(one: RasCommunicator) -> tuple[Launched, int]:
    """What most ranks have launched, and how many have; of two as common, what is more."""
    seen: Counter[Counts] = Counter(
        tuple(sorted(member.launched.items()))
        for member in one.members
        if member.launched is not None
    )
    unlisted = one.size - len(one.members) - one.unlisted_odd
    if one.others and unlisted > 0:
        seen[tuple(sorted(one.others.items()))] += unlisted
    if not seen:
        return {}, 0
    counts = max(seen, key=lambda each: (seen[each], total(dict(each)), each))
    return dict(counts), seen[counts]


def odd_rank(
    name: str,
    member: Member,
    memory: JobMemory,
    ranks: dict[Process | None, int],
    waits: dict[Process, list[str]],
) -> OddRank:
    place, process = (name, member.rank), process_of(member)
    since_ns = memory.absent_since.get(place)
    elsewhere = [other for other in waits.get(process, ()) if other != name] if process else []
    return OddRank(
        rank=member.rank,
        world=ranks.get(process) if process else None,
        presence=member.presence,
        launched=member.launched if member.launched is not None else memory.launched.get(place),
        absent_ns=0 if since_ns is None else memory.seen_ns - since_ns,
        waits_in=elsewhere[0] if elsewhere else "",
        address=member.address,
        pid=member.pid,
    )


def waits_of(communicators: Iterable[RasCommunicator]) -> dict[Process, list[str]]:
    """By process the communicators in which it has launched what others there have not."""
    found: dict[Process, list[str]] = {}
    for one in communicators:
        for member in waiting_in(one):
            if process := process_of(member):
                found.setdefault(process, []).append(one.name)
    return found


def waiting_in(one: RasCommunicator) -> list[Member]:
    """Members that wait for others: these are behind in an operation, or gone."""
    there = [member for member in one.members if member.launched is not None]
    counts = [member.launched or {} for member in there] + ([one.others] if one.others else [])
    behind = [
        operation
        for operation in {each for some in counts for each in some}
        if len({some.get(operation, 0) for some in counts}) > 1
    ]
    if behind:
        most = {each: max(some.get(each, 0) for some in counts) for each in behind}
        return [
            member
            for member in there
            if any((member.launched or {}).get(each, 0) == most[each] for each in behind)
        ]
    return there if any(member.presence in GONE for member in one.members) else []


def behind_of(report: RasReport) -> list[OddRank]:
    """Listed ranks that answer and have launched less of something than most have."""
    return [
        one
        for one in report.odd
        if one.presence is Presence.ANSWERS and is_behind(one.launched or {}, report.launched)
    ]


def is_behind(launched: Launched, common: Launched) -> bool:
    return any(launched.get(operation, 0) < count for operation, count in common.items())
