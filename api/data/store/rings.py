"""The last readings of many series, as rows of equal length; the next one replaces the oldest.

Series are rows of matrices, so that adding what a commit brought and reading all series of a metric
are a few operations on whole arrays. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

SLOTS = 64
"""Readings of a series: five minutes of an agent's, which reads every five seconds."""
SLOT_BYTES, HEAD_BYTES = 4 + 8, 64
"""Of a reading, and of what is kept of a series beside them."""
ROW_BYTES = SLOTS * SLOT_BYTES + HEAD_BYTES
PART_ROWS = 4_096
"""Rows that are worked on at once: their readings fit into a core's cache."""
DEAD_SHARE = 4
"""Rows are put together when one in so many is of no use any more."""

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Metrics = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.uint64]
Times = npt.NDArray[np.uint32]


IsAlive = Callable[[Metrics, Ints], Bools]
"""Says which rows are still of use, by their metrics and their latest readings (unix ms)."""


class Samples(msgspec.Struct, frozen=True):
    """Samples as equally long columns."""

    metric: Metrics
    series: Ids
    time_ms: Ints
    value: Floats

    def __len__(self) -> int:
        return len(self.series)


def joined(parts: Sequence[Samples]) -> Samples:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(msgspec.structs.astuple(part) for part in [NOTHING, *parts]), strict=True)
    return Samples(*(np.concatenate(column) for column in columns))


NOTHING = Samples(
    np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0)
)


class Held(msgspec.Struct, frozen=True):
    """Rows of series. A row is a ring in order of time, with no moment twice."""

    metric: Metrics
    series: Ids
    first: Ints
    """The slot with which each ring begins."""
    offset: Times
    """[series, slots] milliseconds after ``epoch_ms``; 0: no reading."""
    value: Floats
    moved: Times
    """The latest reading with another value than the one before it, or out of order."""
    epoch_ms: int

    def __len__(self) -> int:
        return len(self.series)

    def is_still(self, after_ms: int) -> Bools:
        """Rows of which all readings after this time are surely alike; others may be, too."""
        still: Bools = self.moved <= max(0, after_ms - self.epoch_ms)
        return still

    def within(self, after_ms: int, to_ms: int) -> Bools:
        """Which readings lie in a time, its end included."""
        first, last = max(0, after_ms - self.epoch_ms), max(0, to_ms - self.epoch_ms)
        inside: Bools = (self.offset > first) & (self.offset <= last)
        return inside

    def ends(self, after_ms: int, to_ms: int) -> tuple[Bools, Times, Times, Floats]:
        """Which rows have readings in a time; the first and last of them, and the first's value."""
        most = int(np.iinfo(np.uint32).max) - 1
        first, last = (min(max(0, one - self.epoch_ms), most) for one in (after_ms, to_ms))
        # In unsigned numbers what lies before a moment comes out as later than all else.
        since = self.offset - np.uint32(first + 1)
        until = np.uint32(last) - self.offset
        rows, slot = np.arange(len(self)), since.argmin(axis=1)
        seen: Bools = since[rows, slot] < max(0, last - first)
        value: Floats = self.value[rows, slot]
        return seen, self.offset[rows, slot], np.uint32(last) - until.min(axis=1), value

    def part(self, rows: slice | Bools | Ints) -> Held:
        return Held(
            self.metric[rows],
            self.series[rows],
            self.first[rows],
            self.offset[rows],
            self.value[rows],
            self.moved[rows],
            self.epoch_ms,
        )

    def turned(self) -> Held:
        """The same rows, each from its first slot on: in order of time."""
        slots = self.offset.shape[1]
        turn = (self.first[:, None] + np.arange(slots)) % slots
        offset = np.take_along_axis(self.offset, turn, 1)
        value = np.take_along_axis(self.value, turn, 1)
        first = np.zeros_like(self.first)
        return Held(self.metric, self.series, first, offset, value, self.moved, self.epoch_ms)

    def flat(self, after_ms: int, to_ms: int) -> Samples:
        """The samples of a time, row by row in order of time."""
        found = []
        for at in range(0, max(1, len(self)), PART_ROWS):
            part = self.part(slice(at, at + PART_ROWS)).turned()
            inside = part.within(after_ms, to_ms)
            count = np.count_nonzero(inside, axis=1)
            time_ms = part.offset[inside].astype(np.int64) + part.epoch_ms
            metric, series = np.repeat(part.metric, count), np.repeat(part.series, count)
            found.append(Samples(metric, series, time_ms, part.value[inside]))
        return joined(found)


class Columns:
    """A row for each series."""

    def __init__(self, rows: int, slots: int) -> None:
        self.metric: Metrics = np.zeros(rows, np.uint32)
        self.series: Ids = np.zeros(rows, np.uint64)
        self.next: Ints = np.zeros(rows, np.int64)
        """The slot that is written next: the one of the oldest reading."""
        self.last: Times = np.zeros(rows, np.uint32)
        """The latest reading."""
        self.lost: Times = np.zeros(rows, np.uint32)
        """The latest reading that was replaced."""
        self.moved: Times = np.zeros(rows, np.uint32)
        """The latest reading that differs from the one before it, or that came out of order."""
        self.is_mixed: Bools = np.zeros(rows, np.bool_)
        """Whether readings are out of order, or a moment is there twice."""
        self.offset: Times = np.zeros((rows, slots), np.uint32)
        self.value: Floats = np.zeros((rows, slots))

    def __len__(self) -> int:
        return len(self.series)

    def take(self, other: Columns, rows: Any) -> None:  # noqa: ANN401 - any index
        """Begin with these rows of another."""
        for name, column in vars(other).items():
            chosen = column[rows]
            getattr(self, name)[: len(chosen)] = chosen


class Rings:
    """Rows that are found by series and by metric. Times are milliseconds after ``epoch_ms``."""

    def __init__(self, rows_max: int, epoch_ms: int, slots: int = SLOTS) -> None:
        self.rows_max = rows_max
        self.epoch_ms = epoch_ms
        self.slots = slots
        """Readings of a series."""
        self._rows = 0
        self._columns = Columns(0, slots)
        self._ids: Ids = np.zeros(0, np.uint64)
        self._row_of_id: Ints = np.zeros(0, np.int64)
        self._of_metric: dict[int, Ints] | None = None

    @property
    def bytes_used(self) -> int:
        return len(self._columns) * (self.slots * SLOT_BYTES + HEAD_BYTES)

    # --- finding -------------------------------------------------------------------------------

    def find(self, series: Ids) -> Ints:
        """The rows of these series; -1 where there is none."""
        if not len(self._ids):
            return np.full(len(series), -1, np.int64)
        place = np.minimum(np.searchsorted(self._ids, series), len(self._ids) - 1)
        return np.where(self._ids[place] == series, self._row_of_id[place], -1)

    def of_metric(self, metric: int) -> Ints:
        """The rows of a metric, in order of their series."""
        if self._of_metric is None:
            of_row = self._columns.metric[self._row_of_id]
            order = np.argsort(of_row, kind="stable")
            found, begins = np.unique(of_row[order], return_index=True)
            parts = np.split(self._row_of_id[order], begins[1:])
            self._of_metric = dict(zip(found.tolist(), parts, strict=False))
        return self._of_metric.get(metric, np.zeros(0, np.int64))

    def is_whole(self, rows: Ints, after_ms: int) -> bool:
        """Whether no reading after this time was replaced."""
        return not bool((self._columns.lost[rows] > max(0, after_ms - self.epoch_ms)).any())

    def copy(self, rows: Ints) -> Held:
        columns = self._columns
        mixed = rows[columns.is_mixed[rows]]
        if len(mixed):
            self._sort(mixed)
        return Held(
            columns.metric[rows],
            columns.series[rows],
            columns.next[rows],
            columns.offset[rows],
            columns.value[rows],
            columns.moved[rows],
            self.epoch_ms,
        )

    # --- adding --------------------------------------------------------------------------------

    def add(self, samples: Samples, is_alive: IsAlive) -> Metrics:
        """Add readings; returns the metrics of series for which there is no room."""
        rows = self.find(samples.series)
        left_out: Metrics = np.zeros(0, np.uint32)
        if (rows < 0).any():
            new = len(np.unique(samples.series[rows < 0]))
            if self._rows + new > len(self._columns):
                self._make_room(new, is_alive)
                rows = self.find(samples.series)  # a series that comes back may have lost its row
            left_out = self._begin(samples, rows < 0)
            rows = self.find(samples.series)
        there = rows >= 0
        offset = (samples.time_ms[there] - self.epoch_ms).astype(np.uint32)
        if len(offset):
            self._put(rows[there], offset, samples.value[there])
        return left_out

    def _begin(self, samples: Samples, is_new: Bools) -> Metrics:
        """Begin rows, as far as there is room; returns the metrics of those that have none."""
        series, first = np.unique(samples.series[is_new], return_index=True)
        metric = samples.metric[is_new][first]
        room = len(self._columns) - self._rows
        own = slice(self._rows, self._rows + len(series[:room]))
        self._columns.metric[own], self._columns.series[own] = metric[:room], series[:room]
        self._rows = own.stop
        self._index()
        return np.unique(metric[room:])

    def _make_room(self, count: int, is_alive: IsAlive) -> None:
        """For so many further rows, if they may be: those of no use go first."""
        before, used = self._columns, slice(0, self._rows)
        alive = is_alive(before.metric[used], before.last[used].astype(np.int64) + self.epoch_ms)
        kept: Any = used
        if (self._rows - int(alive.sum())) * DEAD_SHARE > self._rows:
            kept = np.flatnonzero(alive)
            self._rows = len(kept)
        elif len(before) >= self.rows_max:
            return
        wanted = max(self._rows + count, self._rows * 5 // 4)
        self._columns = Columns(min(self.rows_max, wanted), self.slots)
        self._columns.take(before, kept)
        self._index()

    def _index(self) -> None:
        series = self._columns.series[: self._rows]
        order = np.argsort(series, kind="stable")
        self._ids, self._row_of_id = series[order], order
        self._of_metric = None

    def _put(self, rows: Ints, offset: Times, value: Floats) -> None:
        """Append readings, those of one row in order of time."""
        columns = self._columns
        if not (rows[1:] > rows[:-1]).all():
            # Agents send their series in one order each time: long runs, which this sort likes.
            order = np.argsort(rows, kind="stable")
            rows, offset, value = rows[order], offset[order], value[order]
        if not (rows[1:] == rows[:-1]).any():
            for at in range(0, len(rows), PART_ROWS):
                part = slice(at, at + PART_ROWS)
                self._put_once(rows[part], offset[part], value[part])
            return
        if ((rows[1:] == rows[:-1]) & (offset[1:] < offset[:-1])).any():
            order = np.lexsort((offset, rows))
            rows, offset, value = rows[order], offset[order], value[order]
        begins = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        count = np.diff(np.append(begins, len(rows)))
        own = rows[begins]
        twice = (rows[1:] == rows[:-1]) & (offset[1:] == offset[:-1])
        columns.is_mixed[rows[1:][twice]] = True
        columns.is_mixed[own] |= offset[begins] <= columns.last[own]
        self._note_moves(rows, begins, offset, value)
        columns.last[own] = np.maximum(columns.last[own], offset[begins + count - 1])
        nth = np.arange(len(rows)) - np.repeat(begins, count)
        # Of more than a row has room for, the earlier ones are replaced at once.
        fits = nth >= np.repeat(count, count) - self.slots
        if not fits.all():
            np.maximum.at(columns.lost, rows[~fits], offset[~fits])
        slot = (columns.next[rows] + nth) % self.slots
        place = rows[fits], slot[fits]
        np.maximum.at(columns.lost, rows[fits], columns.offset[place])
        columns.offset[place], columns.value[place] = offset[fits], value[fits]
        columns.next[own] = (columns.next[own] + count) % self.slots

    def _put_once(self, rows: Ints, offset: Times, value: Floats) -> None:
        """Append one reading to each of these rows: `_put` without what several need."""
        columns = self._columns
        slot, last = columns.next[rows], columns.last[rows]
        # Places in the flat columns: found in half of the time that pairs of indices take.
        offsets, values = columns.offset.reshape(-1), columns.value.reshape(-1)
        place = rows * self.slots + slot
        before = values[np.where(slot > 0, place - 1, place + (self.slots - 1))]
        is_mixed = columns.is_mixed[rows] | (offset <= last)
        columns.is_mixed[rows] = is_mixed
        changes = (value != before) | ~np.isfinite(value) | (last == 0) | is_mixed
        latest = np.where(changes, offset, np.uint32(0))
        latest = np.where(is_mixed, np.maximum(latest, last), latest)
        columns.moved[rows] = np.maximum(columns.moved[rows], latest)
        columns.last[rows] = np.maximum(last, offset)
        columns.lost[rows] = np.maximum(columns.lost[rows], offsets[place])
        offsets[place], values[place] = offset, value
        columns.next[rows] = np.where(slot + 1 < self.slots, slot + 1, 0)

    def _note_moves(self, rows: Ints, begins: Ints, offset: Times, value: Floats) -> None:
        """Of readings that are about to be appended, by row and time: where a value changes.

        A row whose readings are out of order has moved with its latest one: what stood before that
        is not looked at. So has one with a value that is no number.
        """
        columns, own = self._columns, rows[begins]
        before = np.empty(len(value))
        before[1:] = value[:-1]
        before[begins] = columns.value[own, (columns.next[own] - 1) % self.slots]
        changes = (value != before) | ~np.isfinite(value)
        changes[begins] |= columns.last[own] == 0
        changes |= columns.is_mixed[rows]
        latest = np.maximum.reduceat(np.where(changes, offset, 0), begins)
        latest = np.where(columns.is_mixed[own], np.maximum(latest, columns.last[own]), latest)
        columns.moved[own] = np.maximum(columns.moved[own], latest)

    def _sort(self, rows: Ints) -> None:
        """Put rows in order of time; of two readings of one moment the later to come stays."""
        columns = self._columns
        turn = (columns.next[rows, None] + np.arange(self.slots)) % self.slots
        offset, value = columns.offset[rows[:, None], turn], columns.value[rows[:, None], turn]
        for _ in range(2):  # readings that are taken out are empty slots, which come first
            order = np.argsort(offset, axis=1, kind="stable")
            offset, value = (np.take_along_axis(each, order, 1) for each in (offset, value))
            offset[:, :-1][offset[:, :-1] == offset[:, 1:]] = 0
        columns.offset[rows], columns.value[rows] = offset, value
        columns.next[rows] = 0
        columns.is_mixed[rows] = False
