"""Each rank's part in each collective as slices: waiting for others, transfer, and between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from alerts.window.columns import Ints, Operations, Records
from alerts.window.split import joinable
from alerts.window.steps import job_ranks_of_rows, place_in
from api.jobs.trace.event import Event, Frame, Place, about, clean, stretch
from api.jobs.trace.stream import Account
from api.jobs.trace.subject import Subject
from api.jobs.trace.tracks import Track, Tracks
from collector.contract.records import ABSENT

ORDER_STEPS, ORDER_PHASES, ORDER_COMPUTE, ORDER_OPERATIONS = 0, 1, 2, 3
ORDERS = 4
"""A rank's tracks from top to bottom."""
NS_PER_MS = 1e6


class Part(NamedTuple):
    """One rank's part in one operation; ``turn_ns`` is when the last rank had come.

    Sorted by entry. ``operation`` is the row of the joined operations; -1: it is not joined.
    """

    entry_ns: int
    exit_ns: int
    turn_ns: int
    rank: int
    operation: int
    sequence: int
    size_bytes: int
    communicator: str
    kind: str


class Drawn(NamedTuple):
    """Where a part was drawn, and the time outside of collectives before it, if any was."""

    part: Part
    place: Place
    outside: Place | None
    outside_from_ns: int


OnDrawn = Callable[[Drawn], None]
"""Called for every part of an operation that arrows lead to."""


class Collectives:
    """Draws the collectives of one job. ``arrows`` are rows of operations that it reports."""

    def __init__(
        self, subject: Subject, frame: Frame, tracks: Tracks, names: Callable[[int], Track]
    ) -> None:
        self._subject = subject
        self._frame = frame
        self._tracks = tracks
        self._track_of = names
        self._ended_ns: dict[int, int] = {}
        operations = subject.job.operations
        self._skew_ns, self._transfer_ns = operations.skew_ns, operations.transfer_ns
        self._bandwidth = operations.bus_bandwidth
        self._last_in = last_in_of(subject, operations)
        self._communicators: dict[tuple[int, str], Track] = {}

    def events(
        self, account: Account, arrows: frozenset[int], on_drawn: OnDrawn
    ) -> Iterator[Event]:
        for parts in by_entry(self._pieces(account)):
            for part in parts:
                yield from self._draw(part, arrows, on_drawn)

    def _pieces(self, account: Account) -> Iterator[list[Part]]:
        for records in self._subject.records():
            yield parts_of(records, self._subject, account)

    def _draw(self, part: Part, arrows: frozenset[int], on_drawn: OnDrawn) -> Iterator[Event]:
        outside, since_ns = self._outside(part)
        place = self._tracks.place(self._lane_of(part), part.entry_ns, part.exit_ns)
        yield from self._tracks.news()
        if outside is not None:
            yield stretch(self._frame, outside, "compute", (since_ns, part.entry_ns))
        if place is None:
            return
        span = (part.entry_ns, part.exit_ns)
        yield stretch(self._frame, place, part.kind, span, self._words(part))
        if part.operation >= 0 and part.exit_ns > self._frame.from_ns:
            if part.turn_ns > max(part.entry_ns, self._frame.from_ns):
                yield stretch(self._frame, place, "waiting", (part.entry_ns, part.turn_ns))
            if part.exit_ns > part.turn_ns:
                yield stretch(self._frame, place, "transfer", (part.turn_ns, part.exit_ns))
        if part.operation in arrows:
            on_drawn(Drawn(part, place, outside, since_ns))

    def _outside(self, part: Part) -> tuple[Place | None, int]:
        ended_ns = self._ended_ns.get(part.rank)
        self._ended_ns[part.rank] = max(part.exit_ns, ended_ns or part.exit_ns)
        if ended_ns is None or ended_ns >= part.entry_ns or part.entry_ns <= self._frame.from_ns:
            return None, 0
        base = self._track_of(part.rank)
        track = Track(base.process, f"{base.name} compute", base.order + ORDER_COMPUTE)
        return self._tracks.place(track, ended_ns, part.entry_ns), ended_ns

    def _lane_of(self, part: Part) -> Track:
        track = self._communicators.get((part.rank, part.communicator))
        if track is None:
            base = self._track_of(part.rank)
            name = f"{base.name} {part.communicator}"
            track = Track(base.process, name, base.order + ORDER_OPERATIONS)
            self._communicators[part.rank, part.communicator] = track
        return track

    def _words(self, part: Part) -> Event:
        row = part.operation
        size = None if part.size_bytes == ABSENT else part.size_bytes
        began = part.entry_ns - self._frame.from_ns
        words: Event = {
            "communicator": part.communicator,
            "sequence": part.sequence,
            "size_bytes": size,
            "began_before_ms": -began / NS_PER_MS if began < 0 else None,
        }
        if row >= 0:
            bandwidth = float(self._bandwidth[row])
            words |= {
                "entry_skew_ms": int(self._skew_ns[row]) / NS_PER_MS,
                "transfer_ms": int(self._transfer_ns[row]) / NS_PER_MS,
                "bus_bandwidth_gb_per_second": round(bandwidth / 1e9, 3) if bandwidth else None,
                "last_in": int(self._last_in[row]) == part.rank,
                "last_in_rank": int(self._last_in[row]),
            }
        return about(words)


def last_in_of(subject: Subject, operations: Operations) -> Ints:
    """The job's rank that came last to each operation; -1 where it is not known."""
    known = subject.job_rank
    names = operations.communicators
    pairs = zip(operations.communicator.tolist(), operations.last_in.tolist(), strict=True)
    found = (known.get((names[code], rank), -1) for code, rank in pairs)
    return np.fromiter(found, dtype=np.int64, count=len(operations))


def parts_of(records: Records, subject: Subject, account: Account) -> list[Part]:
    rank = job_ranks_of_rows(records, subject.job_rank) if len(records) else np.zeros(0, np.int32)
    shown = records.timed() & (rank >= 0)
    account.leave_out("records of ranks that nobody knows", int((rank < 0).sum()))
    account.leave_out("records without both times", int(((rank >= 0) & ~shown).sum()))
    rows: Records = records.select(shown)
    if not len(rows):
        return []
    rank = rank[shown]
    exits = np.maximum(rows.entry_ns, rows.exit_ns)
    place = operation_rows(rows, subject.job.operations)
    turn = np.where(place >= 0, subject_turns(subject, place), rows.entry_ns)
    turn = np.clip(turn, rows.entry_ns, exits)
    order = np.lexsort((rank, rows.entry_ns))
    columns = (rows.entry_ns, exits, turn, rank, place, rows.sequence, rows.size_bytes)
    numbers = zip(*(column[order].tolist() for column in columns), strict=True)
    communicators = [clean(name) for name in rows.communicators]
    kinds = [clean(name) for name in rows.operations]
    names = zip(rows.communicator[order].tolist(), rows.operation[order].tolist(), strict=True)
    return [
        Part._make((*each, communicators[communicator], kinds[kind]))
        for each, (communicator, kind) in zip(numbers, names, strict=True)
    ]


def subject_turns(subject: Subject, place: Ints) -> Ints:
    last = subject.job.operations.last_entry_ns
    turns: Ints = last[place] if len(last) else np.zeros(len(place), dtype=np.int64)
    return turns


def operation_rows(rows: Records, operations: Operations) -> Ints:
    """-1 for sends and receives, and for what came to the store after the join was made."""
    place = np.full(len(rows), -1, dtype=np.int64)
    group = np.flatnonzero(joinable(rows))
    if not len(group) or not len(operations):
        return place
    own: Records = rows.select(group)
    found = place_in(operations, own)
    same = operations.sequence[found] == own.sequence
    for codes, names, theirs, their_names in (
        (own.communicator, own.communicators, operations.communicator, operations.communicators),
        (own.operation, own.operations, operations.operation, operations.operations),
    ):
        mine = np.array(names, dtype=object)[codes]
        same &= mine == np.array(their_names, dtype=object)[theirs[found]]
    place[group[same]] = found[same]
    return place


def by_entry(pieces: Iterator[list[Part]]) -> Iterator[list[Part]]:
    """The parts in order of entry, though pieces are in order of exit.

    What began before the piece before had ended is drawn with that: a rank inside a long operation
    must not look idle. One piece is looked ahead, no more.
    """
    held: list[Part] = []
    for piece in pieces:
        edge_ns = max((part.exit_ns for part in held), default=-(1 << 63))
        cut = next(
            (place for place, part in enumerate(piece) if part.entry_ns > edge_ns), len(piece)
        )
        if held:
            yield sorted(held + piece[:cut])
            held = piece[cut:]
        else:
            held = piece
    if held:
        yield held
