"""Which ranks a job waits for, by what NCCL's RAS says of all its ranks. Pure.

RAS counts what each rank has *launched*. In a job that stands still, ranks that wait in a
collective have launched one more than the rank that they wait for. So:

- *A rank that is gone* (its process does not answer, or is dead) is waited for. It is the one that
  is absent, not those that report it.
- *A rank that is behind*, and that waits in no other communicator, is waited for. One that is
  behind because it waits elsewhere is a victim; the agent that has the whole answer says so.
- *All alike* names no rank: an evaluation looks like this, and so does a kernel that never ends.

A rank that is behind is alive, and may be at work: rank 0 writes a checkpoint while all others wait
in a barrier. So it needs more time than one that is gone, and rank 0 by itself needs two minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from alerts.signals.blocked import is_one_host, is_plausible
from alerts.window.model import JobWindow, Window
from collector.contract.communicator import COMMUNICATOR
from collector.contract.ras import RAS, OddRank, Presence, RasReport, decode_report
from collector.contract.units import NS

FRESH_NS = 30 * NS
"""Older words of RAS are of the past: while a job stands, agents ask every five seconds."""
CONFIRM_NS = 8 * NS
"""So long nothing must have moved, over two answers at least."""
BEHIND_NS_MIN = 14 * NS
"""The same before a rank that is behind, and alive, is named: three questions of five seconds."""
ALONE_NS_MIN = 120 * NS
"""The same of rank 0 by itself, which writes checkpoints and evaluates while all others wait."""
PAUSES_MIN = 2.0
"""And so many times the longest standstill of this job that went over by itself."""
DEAD_SHARE_MAX = 1 / 3
"""Of a job's ranks that may be dead: where more are, the job has ended."""
GONE = frozenset({Presence.UNRESPONSIVE, Presence.DEAD})


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """The latest report of one communicator."""

    communicator: str
    report: RasReport
    time_ns: int
    standing_ns: int
    """By this report and by earlier ones that say the same."""
    answers: int


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of the job that are waited for, by RAS alone."""

    ranks: tuple[int, ...]
    """Empty: nothing moves, and RAS names no rank."""
    are_gone: bool
    is_one_place: bool
    """Whether it is one rank, or ranks of one host: else no part can be accused."""
    communicators: tuple[str, ...]
    time_ns: int
    standing_ns: int
    text: str

    @property
    def since_ns(self) -> int:
        return self.time_ns - self.standing_ns


def words_of(window: Window, job: JobWindow) -> list[Word]:
    """What RAS said last of each of the job's communicators, as far as it is fresh."""
    told: dict[str, list[tuple[int, RasReport]]] = {}
    for event in window.events:
        name = event.labels.get(COMMUNICATOR, "")
        if event.kind == RAS and name in job.communicators:
            report = decode_report(event)
            if report is not None:
                told.setdefault(name, []).append((event.time_ns, report))
    last_ns = max((time_ns for own in told.values() for time_ns, _ in own), default=0)
    fresh_ns = (window.to_ns if window.is_live else last_ns) - FRESH_NS
    found = [to_word(name, sorted(own, key=by_time)) for name, own in sorted(told.items())]
    return [one for one in found if one.time_ns >= fresh_ns]


def by_time(told: tuple[int, RasReport]) -> int:
    return told[0]


def to_word(name: str, told: Sequence[tuple[int, RasReport]]) -> Word:
    """The last report; its standstill goes back over all before it that say the same."""
    time_ns, last = told[-1]
    standing, answers = last.standing_ns, last.answers
    for earlier_ns, report in reversed(told[:-1]):
        if content_of(report) != content_of(last):
            break
        standing = max(standing, time_ns - earlier_ns + report.standing_ns)
        answers += 1
    return Word(
        communicator=name, report=last, time_ns=time_ns, standing_ns=standing, answers=answers
    )


def content_of(report: RasReport) -> object:
    """What stays while nothing moves: one that is unresponsive becomes dead after a minute."""
    odd = [(one.rank, one.presence in GONE, one.launched) for one in report.odd]
    return report.size, report.launched, report.alike, odd


def waited_for(window: Window, job: JobWindow, stopped_ns: int = 0) -> Waited | None:
    """Who is waited for; None while the job moves, or too little is known of it.

    ``stopped_ns``: for how long it has stood by its records. A text of RAS has no counts of a job
    whose ranks are alike, and cannot show by itself that it stands.
    """
    words = words_of(window, job)
    if not words:
        return None
    last = max(words, key=lambda one: (one.time_ns, one.standing_ns))
    standing = max(one.standing_ns for one in words if one.time_ns == last.time_ns)
    gone = dict(gone_in(job, words))
    if gone and max(standing, stopped_ns) >= CONFIRM_NS:
        return to_waited(job, gone, last.time_ns, max(standing, stopped_ns), are_gone=True)
    if standing < CONFIRM_NS or last.answers <= 1:
        return None
    longest = max(one.report.longest_ns for one in words)
    behind = dict(behind_in(job, words))
    if not behind or any(one.report.odd_left_out for one in words):
        return nothing_named(words, last.time_ns, standing)
    is_first = list(behind) == [0] or list(behind) == [min(job.ranks, default=0)]
    patience = max(ALONE_NS_MIN if is_first else BEHIND_NS_MIN, PAUSES_MIN * longest)
    if standing < patience:
        return None
    return to_waited(job, behind, last.time_ns, standing, are_gone=False)


def gone_in(job: JobWindow, words: Sequence[Word]) -> Iterator[tuple[int, tuple[Word, OddRank]]]:
    """Ranks that have not answered for long enough."""
    for word in words:
        for one in word.report.odd:
            rank = job_rank_of(job, word, one)
            absent_ns = max(one.absent_ns, word.standing_ns if word.answers > 1 else 0)
            if one.presence in GONE and rank is not None and absent_ns >= CONFIRM_NS:
                yield rank, (word, one)


def behind_in(job: JobWindow, words: Sequence[Word]) -> Iterator[tuple[int, tuple[Word, OddRank]]]:
    """Ranks that have launched less than most, and that wait in nothing else."""
    for word in words:
        for one in word.report.odd:
            rank = job_rank_of(job, word, one)
            if rank is None or one.presence is not Presence.ANSWERS or one.waits_in:
                continue
            own = one.launched or {}
            if any(own.get(each, 0) < count for each, count in word.report.launched.items()):
                yield rank, (word, one)


def job_rank_of(job: JobWindow, word: Word, one: OddRank) -> int | None:
    """The job's rank of a communicator's; where its place is not known, that in the largest one."""
    known = job.communicators[word.communicator].job_rank.get(one.rank)
    return one.world if known is None else known


def to_waited(
    job: JobWindow,
    found: dict[int, tuple[Word, OddRank]],
    time_ns: int,
    standing_ns: int,
    *,
    are_gone: bool,
) -> Waited | None:
    ranks = tuple(sorted(found))
    dead = [rank for rank, (_, one) in found.items() if one.presence is Presence.DEAD]
    size = max(job.size, len(job.ranks), 1)
    if not is_plausible(job, ranks) or len(dead) > DEAD_SHARE_MAX * size:
        return None
    return Waited(
        ranks=ranks,
        are_gone=are_gone,
        is_one_place=len(ranks) == 1 or is_one_host(job, ranks),
        communicators=tuple(sorted({word.communicator for word, _ in found.values()})),
        time_ns=time_ns,
        standing_ns=standing_ns,
        text=waited_text(found, standing_ns),
    )


def nothing_named(words: Sequence[Word], time_ns: int, standing_ns: int) -> Waited:
    differs = next((one.report for one in words if one.report.odd), None)
    if differs is not None:
        one = differs.odd[0]
        why = (
            f"{differs.alike} of {differs.size} ranks have launched the same, rank {one.rank} of "
            "the communicator has not, and none is surely waited for"
        )
    else:
        why = "all ranks have launched the same operations, and none is missing"
    seconds = standing_ns / NS
    return Waited(
        ranks=(),
        are_gone=False,
        is_one_place=False,
        communicators=(),
        time_ns=time_ns,
        standing_ns=standing_ns,
        text=f"by NCCL's RAS nothing was launched for {seconds:.0f} s: {why}",
    )


def waited_text(found: dict[int, tuple[Word, OddRank]], standing_ns: int) -> str:
    """What RAS says of the first of them, in words."""
    rank = min(found)
    word, one = found[rank]
    rest = len(found) - 1
    more = f" (and {rest} more rank{'s' if rest > 1 else ''})" if rest else ""
    where = f" (process {one.pid} at {one.address})" if one.address and one.pid else ""
    seconds = standing_ns / NS
    if one.presence is Presence.DEAD:
        said = "is dead"
    elif one.presence is Presence.UNRESPONSIVE:
        said = "does not answer"
    else:
        said = behind_words(word.report, one)
    return (
        f"by NCCL's RAS rank {rank}{where}{more} {said}; nothing was launched for {seconds:.0f} s"
    )


def behind_words(report: RasReport, one: OddRank) -> str:
    """`launched 41 all_reduce, 7 of 8 ranks 42`."""
    own = one.launched or {}
    operation = next(
        each for each, count in sorted(report.launched.items()) if own.get(each, 0) < count
    )
    most = report.launched[operation]
    others = f"{report.alike} of {report.size} ranks {most}"
    return f"launched {own.get(operation, 0)} {operation}, {others}"
