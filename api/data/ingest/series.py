"""Which series are known: from label sets to ids, and what has yet to be written about them.

A series is written to the store once for each day on which it has samples, before the samples
are. The memory here only saves writing it again: a process that knows nothing (just started, or
one of several) writes a few rows twice, and the store makes them one.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec
import numpy as np

from api.base.limits import REMOTE_LABELS_CACHED_MAX, REMOTE_SERIES_CACHED_MAX, TABLES_CACHED_MAX
from api.data.ingest.columns import Bools, Int64s, UInt32s, UInt64s
from api.data.ingest.identities import BAD_IDENTITY, odd_series
from api.data.ingest.labels import LabelBytes
from api.data.ingest.runs import Runs
from api.data.inventory.sightings import Sighting
from collector.contract.errors import IdentityError, WireError
from collector.contract.identity import METRIC_LABEL, LabelFrame, Labels, metric_id
from collector.contract.wire import SERIES_MAX, Batch

BAD_LABELS = "bad_labels"
"""The rule of labels that no series can have."""
NO_SERIES: UInt64s = np.empty(0, dtype=np.uint64)


class NewSeries(msgspec.Struct, frozen=True):
    """A row of the `series` table: the day is counted from 1970."""

    day: int
    series: int
    labels: Labels


class NativeTable(msgspec.Struct):
    """A native batch's series table, recognised: row number → id."""

    series: UInt64s
    metric: UInt32s
    valid: Bools
    """False for a label set that a rule refuses."""
    refused: dict[int, tuple[str, str]]
    """For each row that is not valid, the rule that refuses it and why."""
    labels: list[Labels]
    days: set[int]
    """Days for which the store knows all rows."""
    things: tuple[Sighting, ...] | None = None
    """The things that the labels name; None until they are read."""
    sighted: float = 0.0
    """When these things were last noted for the inventory (unix seconds)."""


class NativeTables:
    """Series tables of native batches by digest; the least recently used goes first.

    An agent's tables resemble each other: a source that is read once a minute, or was late, makes
    another one. So what the store knows is remembered by agent as well, and a new table makes it
    write only what is new in it.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[bytes, NativeTable] = OrderedDict()
        self._written: OrderedDict[str, tuple[int, UInt64s]] = OrderedDict()
        """By agent: the last day, and the series that the store knows for it, in order."""

    def __len__(self) -> int:
        return len(self._tables)

    def recognise(self, batch: Batch) -> NativeTable:
        """The batch's table, parsed only if it has not been seen before."""
        digest = batch.table_digest()
        table = self._tables.get(digest)
        if table is None:
            table = read_table(batch)
            self._tables[digest] = table
            if len(self._tables) > TABLES_CACHED_MAX:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(digest)
        return table

    def unwritten(self, agent: str, table: NativeTable, days: list[int]) -> list[NewSeries]:
        return [
            NewSeries(day, int(table.series[row]), table.labels[row])
            for day in days
            if day not in table.days
            for row in np.flatnonzero(table.valid & ~self._knows(agent, day, table.series)).tolist()
        ]

    def _knows(self, agent: str, day: int, series: UInt64s) -> Bools:
        """Which of these series the store knows for this day, as far as is remembered."""
        last, known = self._written.get(agent, (day, NO_SERIES))
        return np.isin(series, known if last == day else NO_SERIES)

    def written(self, agent: str, table: NativeTable, days: list[int]) -> None:
        if table.days.issuperset(days):
            return
        table.days.update(days)
        day = max(days)
        last, known = self._written.pop(agent, (day, NO_SERIES))
        if last <= day:
            new = table.series[table.valid]
            known = np.union1d(known if last == day else NO_SERIES, new)
            # Past the bound it is cleared: an agent that names ever new series fills no memory.
            last, known = day, known if len(known) <= SERIES_MAX else np.unique(new)
        self._written[agent] = last, known
        if len(self._written) > TABLES_CACHED_MAX:
            self._written.popitem(last=False)


def read_table(batch: Batch) -> NativeTable:
    """The batch's series table with ids; label sets that break a rule are marked, not fatal."""
    rows = batch.series_rows()
    series = np.zeros(len(rows), dtype=np.uint64)
    metric = np.zeros(len(rows), dtype=np.uint32)
    valid = np.zeros(len(rows), dtype=np.bool_)
    all_labels: list[Labels] = []
    refused: dict[int, tuple[str, str]] = {}
    frames: dict[tuple[tuple[str, str], ...], LabelFrame] = {}
    for row, (name, own) in enumerate(rows):
        key = tuple(own.items())
        try:
            frame = frames.get(key)
            if frame is None:
                frame = frames[key] = LabelFrame({**batch.common, **own})
            labels, identity = frame.named(name)
        except IdentityError as error:
            all_labels.append(())
            refused[row] = BAD_LABELS, str(error)
            continue
        if odd := odd_series(labels):
            all_labels.append(())
            refused[row] = BAD_IDENTITY, odd
            continue
        all_labels.append(labels)
        series[row], metric[row], valid[row] = identity, metric_id(name), True
    return NativeTable(series, metric, valid, refused, all_labels, set())


def check_index(index: UInt32s, table: NativeTable) -> None:
    if len(index) and int(index.max()) >= len(table.series):
        msg = f"a sample refers to series row {int(index.max())}; the table has {len(table.series)}"
        raise WireError(msg)


class RemoteSeries:
    """Remote-write series by the exact bytes of their labels, as rows of growing arrays.

    The bytes are what the sender wrote, so the usual request costs one dictionary look-up a
    series and no parsing. An entry is made only from bytes that were parsed in full.
    """

    def __init__(self) -> None:
        self._symbols: dict[bytes, int] = {}
        self._symbols_numbered = 0
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[bytes, int] = {}
        self.labels: list[Labels] = []
        self._names: list[str] = []
        self._series = np.empty(1024, dtype=np.uint64)
        self._metric = np.empty(1024, dtype=np.uint32)
        self._written_day = np.empty(1024, dtype=np.int64)
        self._used = np.zeros(1024, dtype=np.bool_)
        self._row_of_series: dict[int, int] = {}
        self.runs = Runs()
        self.label_bytes = LabelBytes()

    def make_room(self) -> None:
        """Clear the cache when full; called between requests, since it forgets every row number."""
        if len(self.rows) >= REMOTE_SERIES_CACHED_MAX:
            self._clear()

    def add(self, key: bytes | None, labels: Labels, identity: int) -> int:
        """The row of this label set, which must have been checked; remembered by ``key``."""
        row = self._row_of_series.get(identity)
        if row is None:
            row = len(self.labels)
            if row == len(self._series):
                self._series, self._metric, self._written_day, self._used = (
                    np.concatenate([column, np.zeros_like(column)])
                    for column in (self._series, self._metric, self._written_day, self._used)
                )
            self._series[row] = identity
            name = dict(labels)[METRIC_LABEL]
            self._names.append(name)
            self._metric[row] = metric_id(name)
            self._written_day[row] = -1
            self._row_of_series[identity] = row
            self.labels.append(labels)
        if key is not None:
            self.rows[key] = row
        return row

    def number_symbols(self, texts: list[bytes]) -> UInt32s:
        """Numbers of these symbols that stay the same over requests; none is ever used again."""
        if len(self._symbols) > REMOTE_LABELS_CACHED_MAX:
            self._symbols = {}
        numbers = self._symbols
        found = []
        for text in texts:
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = self._symbols_numbered
                self._symbols_numbered += 1
            found.append(number)
        return np.array(found, dtype=np.uint32)

    def id_of(self, row: int) -> int:
        return int(self._series[row])

    def metric_name(self, row: int) -> str:
        return self._names[row]

    def series(self, rows: Int64s) -> UInt64s:
        return self._series[rows]

    def metric(self, rows: Int64s) -> UInt32s:
        return self._metric[rows]

    def unwritten(self, rows: Int64s, days: Int64s) -> list[NewSeries]:
        """Only the last day of a series is remembered: an old sample writes its row again."""
        self._used[rows] = True
        fresh = self._written_day[rows] != days
        if not fresh.any():
            return []
        pairs = sorted(set(zip(rows[fresh].tolist(), days[fresh].tolist(), strict=True)))
        return [NewSeries(day, int(self._series[row]), self.labels[row]) for row, day in pairs]

    def take_used(self) -> list[Labels]:
        """Labels of the series that had samples since the last call."""
        used = np.flatnonzero(self._used)
        self._used[:] = False
        return [self.labels[row] for row in used.tolist()]

    def written(self, new: list[NewSeries]) -> None:
        found = [(self._row_of_series.get(entry.series, -1), entry.day) for entry in new]
        pairs = np.array([pair for pair in found if pair[0] >= 0], dtype=np.int64).reshape(-1, 2)
        np.maximum.at(self._written_day, pairs[:, 0], pairs[:, 1])
