"""Makes roll-ups: hours that are over, some metrics at a time, in the process that leads.

First each hour that ended, then those that got late samples, then the past of a store that is older
than its roll-ups, backwards. What lies further back lies in large parts, in order of series, of
which a statement reads nearly all whatever its hours are: so it takes hours of a day together. Each
statement is bounded, and a rest follows it. What a killed process had done is done again, which
writes the same rows.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from api.base.metrics import ServiceMetrics
from api.base.rollup_limits import (
    LATE_QUIET_SECONDS,
    LATE_ROUND_SECONDS,
    ROLLUP_IDLE_SECONDS,
    ROLLUP_REST,
    ROLLUP_ROWS_MAX,
    ROLLUP_SETTLE_SECONDS,
    ROLLUP_STATEMENT_SECONDS,
)
from api.base.steady import Steady
from api.data.store.rollups import (
    COUNTS_SQL,
    FILL_SQL,
    MS_PER_HOUR,
    OLDEST_SQL,
    SERIES_MAX,
    Late,
    Span,
    hour_after,
    late_rows,
    read_late,
    read_span,
    span_rows,
)
from api.data.store.store import Store
from collector.contract.errors import StoreError

MS_PER_DAY = 24 * MS_PER_HOUR
STATEMENT_SETTINGS = {
    # Roll-ups are never urgent: the other cores are for ingest, verdicts and answers.
    "max_threads": "1",
    "max_execution_time": str(ROLLUP_STATEMENT_SECONDS),
}

log = logging.getLogger(__name__)


class Hours(StrEnum):
    """Why an hour is rolled up."""

    NEW = "new"
    LATE = "late"
    OLD = "old"


class Piece(msgspec.Struct, frozen=True):
    """Series of one statement: all of some metrics, or a range of ids of one."""

    metrics: list[int]
    samples: int
    lowest: int = 0
    highest: int = SERIES_MAX


class Stretch(msgspec.Struct, frozen=True):
    """Hours of one day that are being rolled up; ``pieces`` are still to be done."""

    why: Hours
    after_ms: int
    end_ms: int
    pieces: list[Piece]
    notes: list[Late]
    """Of late samples that it takes in."""


def in_pieces(counts: Sequence[tuple[int, int]], most: int) -> Iterator[Piece]:
    """Metrics with their numbers of samples, put together up to ``most``; larger ones are cut.

    >>> [(piece.metrics, piece.samples) for piece in in_pieces([(1, 3), (2, 4), (3, 9)], 8)]
    [([1, 2], 7), ([3], 5), ([3], 5)]
    """
    waiting: list[int] = []
    held = 0
    for metric, samples in counts:
        if waiting and held + samples > most:
            yield Piece(waiting, held)
            waiting, held = [], 0
        if samples <= most:
            waiting.append(metric)
            held += samples
            continue
        cuts = -(-samples // most)
        # Ids are digests: equal ranges of them have about equally many series.
        edges = [(SERIES_MAX + 1) * cut // cuts for cut in range(cuts + 1)]
        for low, high in itertools.pairwise(edges):
            yield Piece([metric], -(-samples // cuts), low, high - 1)
    if waiting:
        yield Piece(waiting, held)


def day_before(end_ms: int) -> int:
    """The midnight before a moment, or a day before one.

    >>> day_before(MS_PER_DAY), day_before(MS_PER_DAY + 1)
    (0, 86400000)
    """
    return (end_ms - 1) // MS_PER_DAY * MS_PER_DAY


class Roller:
    """Rolls up step by step; each step blocks for two statements. For one thread at a time."""

    def __init__(self, store: Store, metrics: ServiceMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._span: Span | None = None
        self._stretch: Stretch | None = None
        self._late_ms = 0
        self._has_all_past = False
        self._is_known = False
        metrics.watch("fabric_service_rollup_until_time_seconds", self._until_s)
        for why in Hours:
            metrics.rollup_samples.labels(why.value)
        for outcome in ("rolled", "left_out"):
            metrics.rollup_late_hours.labels(outcome)

    def _until_s(self) -> float:
        return float("nan") if self._span is None else self._span.until_ms / 1000

    @property
    def behind_hours(self) -> int:
        """Whole hours that are due and not rolled up."""
        return 0 if self._span is None else (self._due_ms() - self._span.until_ms) // MS_PER_HOUR

    def forget(self) -> None:
        """Another process leads, or the store failed: what is known is read again."""
        self._span, self._stretch, self._is_known, self._has_all_past = None, None, False, False

    def step(self) -> bool:
        """Do the next piece of work; whether there was any. Raises StoreError."""
        if self._stretch is None:
            self._stretch = self._next()
        if self._stretch is None:
            return False
        if self._stretch.pieces:
            self._roll(self._stretch, self._stretch.pieces[0])
            del self._stretch.pieces[0]
        if not self._stretch.pieces:
            self._finish(self._stretch)
            self._stretch = None
        return True

    def _due_ms(self) -> int:
        """The end of the last hour whose samples must have come."""
        settled_ms = self._store.now_ms() - ROLLUP_SETTLE_SECONDS * 1000
        return settled_ms // MS_PER_HOUR * MS_PER_HOUR

    def _floor_ms(self) -> int | None:
        """The earliest end of an hour of which all samples are here; None: there are no samples."""
        [row] = self._store.query(OLDEST_SQL).to_pylist()
        if not row["n"]:
            return None
        kept_ms = self._store.kept_days("samples") * MS_PER_DAY
        return hour_after(max(row["oldest_ms"], self._store.now_ms() - kept_ms + MS_PER_HOUR))

    def _next(self) -> Stretch | None:
        if not self._is_known:
            self._span = read_span(self._store.query)
            self._is_known = True
        due_ms = self._due_ms()
        if self._span is None:
            floor_ms = self._floor_ms()
            if floor_ms is None or floor_ms > due_ms:
                return None
            self._span = Span(due_ms - MS_PER_HOUR, due_ms - MS_PER_HOUR)
        if self._span.until_ms < due_ms:
            end_ms = self._span.until_ms + MS_PER_HOUR
            if self.behind_hours > 1:
                # After a long rest: what is past retention has no samples any more.
                end_ms = min(max(end_ms, self._floor_ms() or due_ms), due_ms)
            after_ms = end_ms - MS_PER_HOUR
            return self._begin(Hours.NEW, after_ms, end_ms, self._late_in(after_ms, end_ms))
        return self._next_late(self._span) or self._next_old(self._span)

    def _late_in(self, after_ms: int, end_ms: int) -> list[Late]:
        return [note for note in self._quiet_notes() if after_ms < note.hour_ms <= end_ms]

    def _quiet_notes(self) -> list[Late]:
        quiet_ms = self._store.now_ms() - LATE_QUIET_SECONDS * 1000
        return [note for note in read_late(self._store.query) if note.noted_ms <= quiet_ms]

    def _next_late(self, span: Span) -> Stretch | None:
        """The newest day first, as questions are mostly about it; all of one look, then a rest."""
        now_ms = self._store.now_ms()
        if now_ms - self._late_ms < LATE_ROUND_SECONDS * 1000:
            return None
        notes = [note for note in self._quiet_notes() if note.hour_ms <= span.until_ms]
        gone_ms = (self._floor_ms() or now_ms) if notes else 0
        if gone := [note for note in notes if note.hour_ms < gone_ms]:
            self._settle(gone, "left_out")
        inside = [note for note in notes if note.hour_ms > max(span.since_ms, gone_ms - 1)]
        if not inside:
            self._late_ms = now_ms
            return None
        end_ms = max(note.hour_ms for note in inside)
        day = [note for note in inside if note.hour_ms > day_before(end_ms)]
        after_ms = min(note.hour_ms for note in day) - MS_PER_HOUR
        return self._begin(Hours.LATE, after_ms, end_ms, day)

    def _next_old(self, span: Span) -> Stretch | None:
        """The day before all that is rolled up, as long as there are samples of it."""
        if self._has_all_past:
            return None
        floor_ms = self._floor_ms()
        if floor_ms is None or span.since_ms < floor_ms:
            self._has_all_past = True
            return None
        after_ms = max(day_before(span.since_ms), floor_ms - MS_PER_HOUR)
        notes = self._late_in(after_ms, span.since_ms)
        return self._begin(Hours.OLD, after_ms, span.since_ms, notes)

    def _begin(self, why: Hours, after_ms: int, end_ms: int, notes: list[Late]) -> Stretch:
        only, asked = "", dict[str, object](after_ms=after_ms, to_ms=end_ms)
        if why is Hours.LATE:
            only = "AND metric IN {metrics:Array(UInt32)}"
            asked["metrics"] = sorted({note.metric for note in notes})
        rows = self._store.query(COUNTS_SQL.replace("{only}", only), asked)
        counts = zip(rows["metric"].to_pylist(), rows["samples"].to_pylist(), strict=True)
        pieces = list(in_pieces(list(counts), ROLLUP_ROWS_MAX))
        return Stretch(why, after_ms, end_ms, pieces, notes)

    def _roll(self, stretch: Stretch, piece: Piece) -> None:
        parameters = {
            "after_ms": stretch.after_ms,
            "to_ms": stretch.end_ms,
            "metrics": piece.metrics,
            "lowest": piece.lowest,
            "highest": piece.highest,
        }
        for sql in FILL_SQL:
            self._store.execute(sql, parameters, STATEMENT_SETTINGS)
        self._metrics.rollup_samples.labels(stretch.why.value).inc(piece.samples)

    def _finish(self, stretch: Stretch) -> None:
        """Say what is done, after it is: who reads it finds the rows."""
        assert self._span is not None
        if stretch.notes:
            self._settle(stretch.notes, "rolled")
        if stretch.why is Hours.NEW:
            self._span = Span(self._span.since_ms, stretch.end_ms)
        elif stretch.why is Hours.OLD:
            self._span = Span(stretch.after_ms, self._span.until_ms)
        else:
            return
        self._store.insert_arrow("rollup_span", span_rows(self._span))

    def _settle(self, notes: list[Late], outcome: str) -> None:
        self._store.insert_arrow("rollup_late", late_rows(notes, is_rolled=True))
        self._metrics.rollup_late_hours.labels(outcome).inc(len(notes))


class RollupTask:
    """Rolls up while this process leads."""

    def __init__(self, store: Store, metrics: ServiceMetrics, leads: Callable[[], bool]) -> None:
        self.roller = Roller(store, metrics)
        self._leads = leads
        self._is_failing = False

    async def run(self, steady: Steady) -> None:
        while True:
            rest_s = ROLLUP_IDLE_SECONDS
            with steady.round():
                rest_s = await self.once()
            await asyncio.sleep(rest_s)

    async def once(self) -> float:
        """One step; returns the seconds until the next."""
        if not self._leads():
            self.roller.forget()
            return ROLLUP_IDLE_SECONDS
        started = time.monotonic()
        try:
            has_done = await asyncio.to_thread(self.roller.step)
        except StoreError as error:
            self.roller.forget()
            if not self._is_failing:
                log.warning("samples cannot be rolled up: %s", error)
            self._is_failing = True
            return ROLLUP_IDLE_SECONDS
        self._is_failing = False
        if not has_done:
            return ROLLUP_IDLE_SECONDS
        rest = 1.0 if self.roller.behind_hours > 1 else ROLLUP_REST
        return rest * (time.monotonic() - started)
