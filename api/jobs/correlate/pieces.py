"""The pieces that heat maps and timelines of jobs are put together from, kept while there is room.

Only what is new is computed: a piece is made anew when records of its time were written since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from alerts.window.columns import Clock, Step
from api.base.kept import Kept
from api.data.store.store import Store
from api.data.store.touched import group_of
from api.jobs.correlate.heat import HeatMap, Quantity, fewer_ranks, put_together
from api.jobs.correlate.near import AFTER_NS, BEFORE_NS, PIECE_NS, Near
from api.jobs.correlate.piece import Buckets, Piece, Span, Wanted, make_piece
from api.jobs.correlate.window import JobRanks
from collector.contract.units import NS

PIECES_BYTES_MAX = 64 << 20
"""Of all jobs: half an hour of 256 ranks takes 5 MB. Least recently used go."""
PIECED_NS_MAX = 3_600 * NS
"""A longer time is looked at as a whole, with fewer of its records: all of them would take minutes
the first time."""
GRIDS_NOTED_MAX = 64
"""Jobs of which it is noted how timelines cut their time, so that who asks for a heat map first
does not make pieces twice."""
PROBES = 4
"""Pieces, evenly spread, that show whether pieces are long enough to find steps."""
PAGE_STRETCHES_NS = frozenset({7_500_000_000, PIECE_NS})
"""Of the page's timelines, which show half an hour in 240 stretches, and in 60 below a matrix; made
with every piece: who asks for a heat map asks for a timeline next, and then for the matrix."""


class Pieced(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a stretch of time, in pieces in order of time; the first and last may reach out."""

    span: Span
    job_rank: JobRanks
    starts: list[int]
    pieces: list[Piece]

    @property
    def source(self) -> str:
        return next((one.source for one in self.pieces if one.records), self.pieces[0].source)

    @property
    def kept_one_in(self) -> int:
        return max(one.kept_one_in for one in self.pieces)

    @property
    def clocks(self) -> Sequence[Clock]:
        """As they were last."""
        return next((one.clocks for one in reversed(self.pieces) if one.clocks), ())

    @property
    def steps(self) -> list[Step]:
        """The whole ones, in order."""
        found = [step for piece in self.pieces for step in piece.steps]
        return [one for one in found if self._has(one.start_ns, one.end_ns)]

    def _has(self, start_ns: int, end_ns: int) -> bool:
        return start_ns >= self.span[0] and end_ns < self.span[1]

    def heat(self, quantity: Quantity, *, steps_max: int, ranks_max: int) -> HeatMap | None:
        """The matrix, as `heat_of` has it; None if there are no steps."""
        found = [piece for piece in self.pieces if len(piece.start_ns)]
        if not found:
            return None
        is_late = quantity is Quantity.LATE
        own = [piece.ranks if is_late else piece.spent_ranks for piece in found]
        ranks = np.unique(np.concatenate(own))
        start_ns, end_ns = (
            np.concatenate([getattr(piece, name) for piece in found])
            for name in ("start_ns", "end_ns")
        )
        values = np.full((len(ranks), len(start_ns)), np.nan)
        first = 0
        for piece, rows in zip(found, own, strict=True):
            last = first + len(piece.start_ns)
            values[np.searchsorted(ranks, rows), first:last] = piece.values[quantity]
            first = last
        inside = (start_ns >= self.span[0]) & (end_ns < self.span[1])
        if not inside.any():
            return None
        whole = HeatMap(
            ranks=ranks,
            # The first step of a range is cut off, as a rule.
            number=np.arange(1, int(inside.sum()) + 1),
            start_ns=start_ns[inside],
            end_ns=np.maximum.accumulate(end_ns[inside]),
            values=values[:, inside] / NS,
        )
        together = -(-len(whole.number) // steps_max)
        if is_late:
            together = max(together, *(piece.steps_in_one for piece in found))
        return fewer_ranks(put_together(whole, together), ranks_max)

    def buckets(self, length_ns: int) -> Buckets:
        """All stretches of this length in the span."""
        whole = [piece.buckets[length_ns] for piece in self.pieces]
        ranks = np.unique(np.concatenate([each.ranks for each in whole]))
        each_ns = np.concatenate([np.arange(at, at + PIECE_NS, length_ns) for at in self.starts])
        late = np.full((len(ranks), len(each_ns)), np.nan)
        per = PIECE_NS // length_ns
        for place, each in enumerate(whole):
            rows = np.searchsorted(ranks, each.ranks)
            late[rows, place * per : (place + 1) * per] = each.late_ns
        inside = (each_ns >= self.span[0]) & (each_ns < self.span[1])
        operations, skew, transfer = (
            np.concatenate([getattr(one, name) for one in whole])[inside]
            for name in ("operations", "skew_ns", "transfer_ns")
        )
        seen = ~np.isnan(late[:, inside]).all(axis=1)
        return Buckets(
            operations=operations,
            skew_ns=skew,
            transfer_ns=transfer,
            ranks=ranks[seen],
            late_ns=late[seen][:, inside],
        )


def even_stretches(span: Span, buckets: int) -> tuple[Span, int] | None:
    """The time of a timeline and the length of its stretches, if pieces have whole ones.

    They begin at multiples of their length, so that who asks a moment later is shown the same ones:
    the time begins and ends up to a stretch later than was asked for.

    >>> even_stretches((31 * NS, 1831 * NS), 240)
    ((37500000000, 1837500000000), 7500000000)
    >>> even_stretches((31 * NS, 1831 * NS), 239)
    """
    length_ns, rest = divmod(span[1] - span[0], buckets)
    if rest or length_ns <= 0 or PIECE_NS % length_ns or span[1] - span[0] > PIECED_NS_MAX:
        return None
    begin = -(-span[0] // length_ns) * length_ns
    return (begin, begin + buckets * length_ns), length_ns


class JobPieces:
    """One a service; for any thread, best one at a time: two may make the same piece."""

    def __init__(self, store: Store, bytes_max: int = PIECES_BYTES_MAX) -> None:
        self._store = store
        self.kept: Kept[Piece] = Kept(bytes_max)
        self._grids: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def want(self, job: str, stretch_ns: int) -> None:
        """Timelines of this job are asked for with stretches of this length."""
        with self._lock:
            self._grids[job] = stretch_ns
            self._grids.move_to_end(job)
            while len(self._grids) > GRIDS_NOTED_MAX:
                self._grids.popitem(last=False)

    def look(
        self,
        job: str,
        job_rank: JobRanks,
        span: Span,
        *,
        spent: bool = False,
        stretch_ns: int | None = None,
    ) -> Pieced | None:
        """The job in this time; None: it has to be looked at as a whole.

        So where it is too long, and where pieces show no steps: a longer time may.
        """
        if not job_rank or not 0 < span[1] - span[0] <= PIECED_NS_MAX:
            return None
        wanted = self._wanted(job, spent=spent, stretch_ns=stretch_ns)
        starts = starts_in(span)
        make, near = self._maker(job, job_rank, wanted, starts)
        last = len(starts) - 1
        places = {round(share * last / (PROBES - 1)) for share in range(PROBES)}
        # Each by itself: what is read for many that follow each other would be gone at the next.
        alone = Near(self._store, job_rank)
        if not show_steps([make(starts[place], alone) for place in places]):
            return None
        pieces = [make(start, near) for start in starts]
        if not show_steps(pieces):
            return None
        return Pieced(span=span, job_rank=job_rank, starts=starts, pieces=pieces)

    @property
    def number(self) -> int | None:
        """Of the latest insert of records; None: others insert as well, and no piece is kept."""
        touched = self._store.touched_records
        return touched.number if touched.is_complete else None

    def missing(
        self, job: str, job_rank: JobRanks, starts: Sequence[int], *, spent: bool = False
    ) -> list[int]:
        """Of these pieces those that a look at the job would make."""
        wanted, is_valid = self._wanted(job, spent=spent), self._validity(job_rank)
        members = members_key(job_rank)

        def is_missing(start: int) -> bool:
            known = self.kept.peek((job, members, start))
            return known is None or not is_valid(known) or not wanted.is_in(known)

        return [start for start in starts if is_missing(start)]

    def has(self, job: str, job_rank: JobRanks, start: int) -> bool:
        """Whether this piece is kept, as it may have been at another time."""
        return self.kept.peek((job, members_key(job_rank), start)) is not None

    def written(self, job_rank: JobRanks, start: int) -> int:
        """The latest insert of records that this piece is made of, as a rule."""
        read = (start - BEFORE_NS, start + PIECE_NS + AFTER_NS)
        return self._store.touched_records.latest(*read, groups_of(job_rank))

    def make(
        self, job: str, job_rank: JobRanks, starts: Sequence[int], *, spent: bool = False
    ) -> Iterator[Piece]:
        """These pieces one by one, as a look at the job makes them."""
        make, near = self._maker(job, job_rank, self._wanted(job, spent=spent), starts)
        for start in starts:
            yield make(start, near)

    def _wanted(self, job: str, *, spent: bool, stretch_ns: int | None = None) -> Wanted:
        lengths = (stretch_ns, self._grids.get(job), *PAGE_STRETCHES_NS)
        stretches = frozenset(length for length in lengths if length is not None)
        return Wanted(spent=spent, stretches_ns=stretches)

    def _validity(self, job_rank: JobRanks) -> Callable[[Piece], bool]:
        groups, touched = groups_of(job_rank), self._store.touched_records

        def is_valid(piece: Piece) -> bool:
            is_known = touched.is_complete  # that is, what others write is noted, too
            return is_known and touched.latest(*piece.read, groups) <= piece.number

        return is_valid

    def _maker(
        self, job: str, job_rank: JobRanks, wanted: Wanted, starts: Sequence[int]
    ) -> tuple[Callable[[int, Near], Piece], Near]:
        """Makes a piece or takes the kept one; and what reads those that are missing."""
        members, is_valid = members_key(job_rank), self._validity(job_rank)
        # Before anything is read: what is written meanwhile may not be in it.
        number = self._store.touched_records.number

        def known_at(start: int) -> Piece | None:
            return self.kept.get((job, members, start), is_valid)

        def is_missing(start: int) -> bool:
            known = known_at(start)
            return known is None or not wanted.is_in(known)

        near = Near(self._store, job_rank, [start for start in starts if is_missing(start)])

        def make(start: int, near: Near) -> Piece:
            known, more = known_at(start), wanted
            if known is not None and wanted.is_in(known):
                self.kept.note("kept")
                return known
            if known is not None:
                more = wanted.beside(known)
            piece = make_piece(near, (start, start + PIECE_NS), more, number)
            self.kept.put((job, members, start), piece, piece.size)
            self.kept.note("made")
            return piece

        return make, near


def starts_in(span: Span) -> list[int]:
    """Where the pieces begin that have a part of this time."""
    return list(range(span[0] // PIECE_NS * PIECE_NS, span[1], PIECE_NS))


def members_key(job_rank: JobRanks) -> int:
    return hash(frozenset(job_rank.items()))


def groups_of(job_rank: JobRanks) -> set[int]:
    """What the job's records are told from others' by, when they are written."""
    return {group_of(communicator) for communicator, _ in job_rank}


def show_steps(pieces: Sequence[Piece]) -> bool:
    """Whether most pieces with records show steps; also where there are no records."""
    seen = [piece.has_rhythm for piece in pieces if piece.records]
    return 2 * sum(seen) >= len(seen)
