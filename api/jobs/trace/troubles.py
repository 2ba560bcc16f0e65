"""Incidents as slices and moments, and arrows from the culprit to the ranks that wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.window.columns import Floats, Operations
from alerts.window.model import JobWindow
from api.jobs.trace.collectives import Drawn, last_in_of
from api.jobs.trace.event import Event, Frame, Place, about, arrow, clean, moment, stretch
from api.jobs.trace.stream import Account
from api.jobs.trace.subject import Subject, Trouble
from api.jobs.trace.tracks import Track, Tracks
from collector.contract.verdict import Culprit, Layer, Verdict

ARROW_OPERATIONS_MAX = 8
"""Operations of one trouble that arrows are drawn in, those that suffered most: a viewer with all
of them shows nothing but arrows."""
ARROW_VICTIMS_MAX = 32
"""Arrows in one operation: victims that a verdict names first, then the ranks that waited longest.
The others are counted."""
ARROWS_HELD_MAX = 100_000
"""Parts of operations that are remembered until all of their ranks were drawn, about 40 MB."""
EVIDENCE_MAX = 8
"""Sentences of evidence in a slice's details."""


class DrawnTrouble(NamedTuple):
    """A trouble that is drawn: where, and when."""

    trouble: Trouble
    place: Place
    start_ns: int
    end_ns: int


def span_of(trouble: Trouble, frame: Frame) -> tuple[int, int] | None:
    """When a trouble lasted within the frame; None: not in it."""
    verdict = trouble.verdict
    end_ns = frame.to_ns if verdict.until_ns is None else verdict.until_ns
    start_ns, end_ns = max(verdict.since_ns, frame.from_ns), min(end_ns, frame.to_ns)
    return (start_ns, end_ns) if start_ns <= end_ns else None


def tell_troubles(
    troubles: Sequence[Trouble],
    frame: Frame,
    tracks: Tracks,
    track: Track,
    shown: list[DrawnTrouble],
) -> Iterator[Event]:
    """A slice for each, on lanes of one track, its turns as moments; appends each to ``shown``."""
    spans = [(span, trouble) for trouble in troubles if (span := span_of(trouble, frame))]
    for (start_ns, end_ns), trouble in sorted(spans, key=lambda each: each[0]):
        turns = [turn for turn in trouble.history if frame.holds(turn.time_ns)]
        # Its turns may come after its end; until then the lane is its own.
        last_turn_ns = max((turn.time_ns for turn in turns), default=end_ns)
        place = tracks.place(track, start_ns, max(end_ns, last_turn_ns))
        yield from tracks.news()
        if place is None:
            continue
        shown.append(DrawnTrouble(trouble, place, start_ns, end_ns))
        title = title_of(trouble.verdict)
        yield stretch(frame, place, title, (start_ns, end_ns), words_of(trouble))
        if frame.holds(trouble.verdict.since_ns):
            words = {"what": title}
            yield moment(frame, place, "begins", trouble.verdict.since_ns, words)
        for turn in turns:
            summary = clean(f"{turn.cause}: {name_of(turn.culprit)}")
            words = {"says": summary, "confidence": f"{turn.confidence:.2f}"}
            yield moment(frame, place, f"incident {turn.news}", turn.time_ns, words)


def title_of(verdict: Verdict) -> str:
    return clean(f"{verdict.cause}: {name_of(verdict.culprit)}")


def name_of(culprit: Culprit) -> str:
    if culprit.switch and culprit.switch_port and not culprit.device:
        return f"{culprit.switch} port {culprit.switch_port}"
    parts = [culprit.host or culprit.switch]
    if culprit.rank is not None:
        parts.insert(0, f"rank {culprit.rank}")
    if culprit.device:
        parts.append(f"{culprit.device} {culprit.port}".strip())
    elif culprit.gpu is not None:
        parts.append(f"GPU {culprit.gpu}")
    return ", ".join(part for part in parts if part) or "unknown"


def words_of(trouble: Trouble) -> Event:
    verdict = trouble.verdict
    lost = sum(cost.lost_seconds for cost in verdict.costs)
    return about(
        {
            "incident": trouble.id or None,
            "summary": clean(verdict.summary) or None,
            "do": clean(verdict.action) or None,
            "reason": str(verdict.reason),
            "layer": str(verdict.layer),
            "confidence": round(verdict.confidence, 3),
            "culprit": msgspec.to_builtins(verdict.culprit),
            "victims": len(verdict.victims) or None,
            "jobs": [clean(job) for job in verdict.jobs],
            "lost_seconds": round(lost, 3) or None,
            "evidence": [clean(one.text) for one in verdict.evidence[:EVIDENCE_MAX]] or None,
            "is_over": verdict.until_ns is not None,
        }
    )


# Arrows ------------------------------------------------------------------------------------------


class Aim(NamedTuple):
    """An operation that arrows are drawn in, and for which trouble."""

    shown: DrawnTrouble
    guilty: frozenset[int]
    """The job's ranks that are accused; empty: none of them is."""
    named: frozenset[int]
    """The ranks that the verdict names as victims."""


class Arrows:
    """Arrows of one job: chosen before its operations are drawn, written when they have been."""

    def __init__(
        self, subject: Subject, frame: Frame, shown: Sequence[DrawnTrouble], account: Account
    ) -> None:
        self._frame = frame
        self._account = account
        self._seen = subject.job.operations.ranks_seen
        self._aims: dict[int, list[Aim]] = {}
        self._drawn: dict[int, list[Drawn]] = {}
        self._held = 0
        self.whole: list[int] = []
        """Operations whose ranks were all drawn, and whose arrows are not written yet."""
        for one in shown:
            for row in chosen_operations(subject, frame, one):
                job, verdict = subject.job, one.trouble.verdict
                guilty = ranks_of(job, (verdict.culprit, *verdict.accomplices))
                self._aims.setdefault(row, []).append(
                    Aim(one, guilty, ranks_of(job, verdict.victims) - guilty)
                )

    @property
    def operations(self) -> frozenset[int]:
        return frozenset(self._aims)

    def note(self, drawn: Drawn) -> None:
        """Remember where a part of one of them was drawn."""
        if self._held >= ARROWS_HELD_MAX:
            self._account.leave_out("ARROWS_HELD_MAX")
            return
        self._held += 1
        row = drawn.part.operation
        parts = self._drawn.setdefault(row, [])
        parts.append(drawn)
        if len(parts) >= int(self._seen[row]):
            self.whole.append(row)

    def ready(self, numbers: Iterator[int]) -> Iterator[Event]:
        while self.whole:
            yield from self._write(self.whole.pop(0), numbers)

    def rest(self, numbers: Iterator[int]) -> Iterator[Event]:
        for row in sorted(self._drawn):
            yield from self._write(row, numbers)

    def _write(self, row: int, numbers: Iterator[int]) -> Iterator[Event]:
        parts = self._drawn.pop(row, [])
        self._held -= len(parts)
        for aim in self._aims[row]:
            yield from self._aimed(aim, parts, numbers)

    def _aimed(self, aim: Aim, parts: Sequence[Drawn], numbers: Iterator[int]) -> Iterator[Event]:
        is_compute = aim.shown.trouble.verdict.layer is not Layer.NETWORK
        guilty = [each for each in parts if each.part.rank in aim.guilty]
        victims = [each for each in parts if each.part.rank not in aim.guilty]
        victims.sort(key=lambda each: (each.part.rank not in aim.named, -harm(each, is_compute)))
        drawn = 0
        for victim in victims:
            ends = late_arrow if is_compute else slow_arrow
            found = ends(guilty, victim) or trouble_arrow(aim.shown, victim, is_compute=is_compute)
            if found is None:
                continue
            if drawn >= ARROW_VICTIMS_MAX:
                self._account.leave_out("ARROW_VICTIMS_MAX")
                continue
            drawn += 1
            name = "is waited for" if is_compute else "slows down"
            yield from arrow(self._frame, next(numbers), name, *found)


Ends = tuple[tuple[Place, int], tuple[Place, int]]
"""Where and when an arrow begins and ends."""


def harm(victim: Drawn, is_compute: bool) -> int:  # noqa: FBT001 - which of two times counts
    """How long a rank waited, or how long its transfer took."""
    part = victim.part
    return part.turn_ns - part.entry_ns if is_compute else part.exit_ns - part.turn_ns


def late_arrow(guilty: Sequence[Drawn], victim: Drawn) -> Ends | None:
    wait_from, wait_to = victim.part.entry_ns, victim.part.turn_ns
    for late in sorted(guilty, key=lambda each: -each.part.entry_ns):
        start_ns = max(late.outside_from_ns, wait_from)
        if late.outside is not None and start_ns < min(late.part.entry_ns, wait_to):
            return (late.outside, start_ns), (victim.place, (start_ns + wait_to) // 2)
    return None


def slow_arrow(guilty: Sequence[Drawn], victim: Drawn) -> Ends | None:
    """From the transfer of a rank behind a slow link to the transfers that it holds up."""
    for slow in guilty:
        start_ns = slow.part.turn_ns
        if slow.part.exit_ns > start_ns >= victim.part.turn_ns and victim.part.exit_ns > start_ns:
            return (slow.place, start_ns), (victim.place, (start_ns + victim.part.exit_ns) // 2)
    return None


def trouble_arrow(shown: DrawnTrouble, victim: Drawn, *, is_compute: bool) -> Ends | None:
    part = victim.part
    span = (part.entry_ns, part.turn_ns) if is_compute else (part.turn_ns, part.exit_ns)
    start_ns, end_ns = max(span[0], shown.start_ns), min(span[1], shown.end_ns)
    if start_ns >= end_ns:
        return None
    middle_ns = (start_ns + end_ns) // 2
    return (shown.place, middle_ns), (victim.place, middle_ns)


def chosen_operations(subject: Subject, frame: Frame, shown: DrawnTrouble) -> list[int]:
    job, verdict = subject.job, shown.trouble.verdict
    operations = job.operations
    if not len(operations) or (verdict.jobs and job.job not in verdict.jobs):
        return []
    inside = (operations.first_entry_ns > frame.from_ns) & (operations.last_exit_ns <= frame.to_ns)
    inside &= operations.last_exit_ns >= shown.start_ns
    inside &= operations.first_entry_ns <= shown.end_ns
    guilty = ranks_of(job, (verdict.culprit, *verdict.accomplices))
    score = np.where(inside, suffering(subject, operations, verdict, guilty), 0.0)
    order = np.argsort(-score, kind="stable")[:ARROW_OPERATIONS_MAX]
    return sorted(row for row in order.tolist() if score[row] > 0)


def suffering(
    subject: Subject, operations: Operations, verdict: Verdict, guilty: frozenset[int]
) -> Floats:
    """Each operation's loss by a trouble: waiting for a late rank, or the time of its transfer."""
    if verdict.layer is Layer.NETWORK:
        transfer = operations.transfer_ns.astype(np.float64)
        if not guilty:
            return transfer
        members = {name for (name, _), rank in subject.job_rank.items() if rank in guilty}
        takes_part = np.array([name in members for name in operations.communicators], dtype=bool)
        return np.where(takes_part[operations.communicator], transfer, 0.0)
    skew = operations.skew_ns.astype(np.float64)
    if not guilty:
        return skew
    return np.where(np.isin(last_in_of(subject, operations), list(guilty)), skew, 0.0)


def ranks_of(job: JobWindow, culprits: Sequence[Culprit]) -> frozenset[int]:
    """The job's ranks that these names stand for: their own, or those on a host, GPU or NIC."""
    found: set[int] = set()
    for culprit in culprits:
        if culprit.rank is not None and culprit.job in {"", job.job}:
            found.add(culprit.rank)
        elif culprit.host:
            found |= {
                rank.rank
                for rank in job.ranks.values()
                if rank.host == culprit.host
                and (culprit.gpu is None or rank.gpu in {None, culprit.gpu})
                and (not culprit.device or not rank.devices or culprit.device in rank.devices)
            }
    return frozenset(found)
