"""Which series are known: from label sets to ids, and what has yet to be written about them.

A series is written to the store once for each day on which it has samples, before the samples
are. The memory here only saves writing it again: a process that knows nothing (just started, or
one of several) writes a few rows twice, and the store makes them one. In the last hours of a day
series are written for the next one, each at its own moment: else all would be at midnight.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from api.base.host_names import HOST, Hosts, hosts_named
from api.base.limits import (
    CACHED_BYTES_MAX,
    REMOTE_LABELS_CACHED_MAX,
    REMOTE_SERIES_CACHED_MAX,
    TABLE_BYTES_CACHED_MAX,
    TABLE_IDLE_SECONDS,
    WRITTEN_SERIES_CACHED_MAX,
)
from api.data.ingest.columns import (
    MS_PER_DAY,
    Bools,
    Float64s,
    Int32s,
    Int64s,
    UInt8s,
    UInt32s,
    UInt64s,
)
from api.data.ingest.door import (
    BAD_LABELS,
    FOREIGN_HOST,
    NAMES,
    OPEN,
    RESERVED_NAME,
    Door,
    Names,
)
from api.data.ingest.forgotten import Forgotten
from api.data.ingest.identities import BAD_IDENTITY, odd_series
from api.data.ingest.labels import LabelBytes
from api.data.ingest.runs import Runs
from api.data.inventory.sightings import Sighting
from api.data.store.shards import place_of_series
from collector.contract.errors import IdentityError, WireError
from collector.contract.identity import METRIC_LABEL, LabelFrame, Labels, metric_id
from collector.contract.wire import SERIES_MAX, Batch
from collector.parsing.dcgm_blanks import BLANKS, FIELD_PREFIX, IMPOSSIBLE_MIN

NO_SERIES: UInt64s = np.empty(0, dtype=np.uint64)
BLANK_VALUES: Float64s = np.array(sorted(BLANKS), dtype=np.float64)

ROW_RULES = ("", BAD_LABELS, BAD_IDENTITY, RESERVED_NAME, FOREIGN_HOST)
"""By the number in `NativeTable.rule`: why samples of a row are refused; empty: they are not."""


NO_DAYS = (0, -1)
AHEAD_MS = 6 * 3_600_000
"""How long before midnight the first series are written for the next day."""
DAYS_REMEMBERED = 2
"""Of an agent's series: today and, before midnight, tomorrow."""
IDLE_SECONDS = 600.0
"""A remote-write series that had no sample for as long is idle; Prometheus scrapes every minute at
the latest."""
ALIVE_SHARE_MAX = 0.9
"""Of cached series, above which idle ones are not worth the work of evicting them."""
UNREAD = -1
"""In place of a number: the hosts of a row were not read yet."""
ROW_BYTES = 100
"""What a row of remote write takes beside its labels, about."""
TABLE_BYTES, TABLE_ROW_BYTES, THING_BYTES = 1_000, 14, 8
"""What a native table takes, each of its rows, and each thing that it shows (tables share them)."""


def metric_of(labels: Labels) -> str:
    """The metric's name: the first label nearly always, as `_` comes before small letters."""
    label, value = labels[0]
    return value if label == METRIC_LABEL else dict(labels)[METRIC_LABEL]


class NewSeries(msgspec.Struct, frozen=True):
    """A row of the `series` table: the day is counted from 1970."""

    day: int
    series: int
    labels: Labels


def ids_of(series: Iterable[NewSeries]) -> Iterator[int]:
    return (each.series for each in series)


class Ahead(msgspec.Struct, frozen=True):
    """Today, and the share of all series that are written for tomorrow by now."""

    today: int
    share: float

    @classmethod
    def at(cls, now_ms: int) -> Ahead:
        today, passed_ms = divmod(now_ms, MS_PER_DAY)
        return cls(today, max(0.0, 1 - (MS_PER_DAY - passed_ms) / AHEAD_MS))

    def days(self, agent: str, days: Collection[int]) -> list[int]:
        """Tomorrow, if an agent that sends samples of these days is among them; else nothing."""
        is_due = self.share and self.today in days and crc32(agent.encode()) < self.share * 2**32
        return [self.today + 1] if is_due else []

    def rows(self, series: UInt64s, days: Int64s) -> Bools:
        """Which of these series, with samples of these days, are among them."""
        is_due: Bools = ((series >> np.uint64(32)) < self.share * 2**32) & (days == self.today)
        return is_due


class NativeTable(msgspec.Struct):
    """A native batch's series table, recognised for one sender: row number → id.

    Without the labels, which are nine tenths of it: every batch brings them, and they are needed
    for a new day or a new table only (`read_labels`).
    """

    series: UInt64s
    metric: UInt32s
    rule: UInt8s
    """By row: 0, or the number of the rule in ROW_RULES that it breaks."""
    valid: Bools
    """Where `rule` is 0."""
    complaints: dict[str, str]
    """Why the first row that a rule refuses was refused, by the rule."""
    hosts: tuple[str, ...]
    """Hosts that the inventory learns from it, the batch's own among them."""
    days: set[int]
    """Days for which the store knows all rows."""
    are_hosts_counted: bool = False
    """Whether the hosts were counted as new, once."""
    things: tuple[Sighting, ...] | None = None
    """The things that the labels name; None until they are read."""
    used_s: float = 0.0
    """When a batch last had it (monotonic seconds)."""
    sighted: float = 0.0
    """When these things were last noted for the inventory (unix seconds)."""
    counted_bytes: int = 0
    """What the cache counts for it; 0: it is not cached."""
    place: UInt32s | None = None
    """By row: where the series stands on a cluster; None: there are no shards."""


class NativeTables:
    """Series tables of native batches by digest and sender's hosts; the least recently used goes.

    An agent's tables resemble each other: a source that is read once a minute, or was late, makes
    another one. So what the store knows is remembered by agent as well, and a new table makes it
    write only what is new in it.
    """

    def __init__(
        self,
        names: Names = NAMES,
        *,
        ticks: Callable[[], float] = time.monotonic,
        is_placed: bool = False,
    ) -> None:
        """``is_placed``: rows are placed on shards."""
        self._names = names
        self._ticks = ticks
        self._is_placed = is_placed
        self._tables: OrderedDict[tuple[bytes, Hosts], NativeTable] = OrderedDict()
        self.bytes = 0
        """What the tables take, about."""
        self._written: OrderedDict[str, dict[int, UInt64s]] = OrderedDict()
        """By agent, for its last days: the series that the store knows, in order."""
        self._written_series = 0

    def __len__(self) -> int:
        return len(self._tables)

    def recognise(self, batch: Batch, door: Door = OPEN) -> NativeTable:
        """The batch's table, parsed only if it has not been seen before; Over if it may not be."""
        key = batch.table_digest(), door.hosts
        table = self._tables.get(key)
        if table is None:
            is_past_day = door.is_past_day(1)
            if not is_past_day:
                door.check_series(1)
            table = read_table(batch, door.hosts, self._names)
            if self._is_placed:
                table.place = read_places(batch, table)
            if is_past_day:
                door.charge(len(table.series))
            table.used_s = self._ticks()
            self._tables[key] = table
            self._count(table, TABLE_BYTES + TABLE_ROW_BYTES * len(table.series))
            self._evict()
        else:
            self._tables.move_to_end(key)
            table.used_s = self._ticks()
        if not table.are_hosts_counted:
            door.check_hosts(table.hosts)
        return table

    def show(self, table: NativeTable, things: tuple[Sighting, ...]) -> None:
        """Remember the things that a table's labels name."""
        table.things = things
        if table.counted_bytes:
            self._count(table, THING_BYTES * len(things))

    def _count(self, table: NativeTable, size: int) -> None:
        table.counted_bytes += size
        self.bytes += size

    def _evict(self) -> None:
        """The tables used longest ago, while there are too many bytes or they are idle."""
        idle_s = self._ticks() - TABLE_IDLE_SECONDS
        while len(self._tables) > 1:
            oldest = next(iter(self._tables.values()))
            if self.bytes <= TABLE_BYTES_CACHED_MAX and oldest.used_s >= idle_s:
                return
            self._tables.popitem(last=False)
            self._count(oldest, -oldest.counted_bytes)

    def unwritten(self, batch: Batch, table: NativeTable, days: list[int]) -> list[NewSeries]:
        """What the store does not know yet of this batch's table, for each of these days."""
        found = [
            (day, row)
            for day in days
            if day not in table.days
            for row in np.flatnonzero(
                table.valid & ~self._knows(batch.agent, day, table.series)
            ).tolist()
        ]
        labels = read_labels(batch, {row for _, row in found})
        return [NewSeries(day, int(table.series[row]), labels[row]) for day, row in found]

    def _knows(self, agent: str, day: int, series: UInt64s) -> Bools:
        """Which of these series the store knows for this day, as far as is remembered."""
        return np.isin(series, self._written.get(agent, {}).get(day, NO_SERIES))

    def written(self, agent: str, table: NativeTable, days: list[int]) -> None:
        if table.days.issuperset(days):
            return
        table.days.update(days)
        new = table.series[table.valid]
        by_day = self._written.pop(agent, {})
        self._written_series -= count_series(by_day)
        for day in days:
            known = np.union1d(by_day.get(day, NO_SERIES), new)
            # Past the bound it is cleared: an agent that names ever new series fills no memory.
            by_day[day] = known if len(known) <= SERIES_MAX else np.unique(new)
        # Of days before this batch's nothing more comes but a backlog.
        kept = [day for day in by_day if day >= min(days) or day == max(by_day)]
        by_day = {day: by_day[day] for day in sorted(kept)[-DAYS_REMEMBERED:]}
        self._written[agent] = by_day
        self._written_series += count_series(by_day)
        while self._written_series > WRITTEN_SERIES_CACHED_MAX and len(self._written) > 1:
            _, forgotten = self._written.popitem(last=False)
            self._written_series -= count_series(forgotten)


def count_series(by_day: Mapping[int, UInt64s]) -> int:
    return sum(map(len, by_day.values()))


def read_labels(batch: Batch, wanted: Collection[int]) -> dict[int, Labels]:
    """The labels of these rows of the batch's table, by row; each must be a valid one."""
    if not wanted:
        return {}
    rows = batch.series_rows()
    frames: dict[tuple[tuple[str, str], ...], LabelFrame] = {}
    found: dict[int, Labels] = {}
    for row in wanted:
        name, own = rows[row]
        key = tuple(own.items())
        frame = frames.get(key)
        if frame is None:
            frame = frames[key] = LabelFrame({**batch.common, **own})
        found[row] = frame.labels(name)
    return found


def read_table(batch: Batch, hosts: Hosts = OPEN.hosts, names: Names = NAMES) -> NativeTable:
    """The batch's series table with ids; label sets that break a rule are marked, not fatal."""
    rows = batch.series_rows()
    series = np.zeros(len(rows), dtype=np.uint64)
    metric = np.zeros(len(rows), dtype=np.uint32)
    rule = np.zeros(len(rows), dtype=np.uint8)
    complaints: dict[str, str] = {}
    frames: dict[tuple[tuple[str, str], ...], tuple[LabelFrame, tuple[str, ...], bool]] = {}
    own_host = batch.common.get(HOST, "")
    shown = dict.fromkeys([own_host] if own_host and hosts.allow([own_host]) else [])
    for row, (name, own) in enumerate(rows):
        key = tuple(own.items())
        try:
            found = frames.get(key)
            if found is None:
                whole = {**batch.common, **own}
                named = hosts_named(whole)
                found = frames[key] = LabelFrame(whole), named, hosts.allow(named)
            frame, named, is_allowed = found
            labels, identity = frame.named(name)
            broken, why = broken_rule(name, labels, names, is_allowed=is_allowed)
        except IdentityError as error:
            broken, why = BAD_LABELS, str(error)
        if broken:
            rule[row] = ROW_RULES.index(broken)
            complaints.setdefault(broken, why)
            continue
        series[row], metric[row] = identity, metric_id(name)
        if names.show_hosts(name):
            shown.update(dict.fromkeys(named))
    return NativeTable(series, metric, rule, rule == 0, complaints, tuple(shown), set())


def read_places(batch: Batch, table: NativeTable) -> UInt32s:
    """By row: where its series stands; 0 where it is refused."""
    place = np.zeros(len(table.series), dtype=np.uint32)
    rows = batch.series_rows()
    for row in np.flatnonzero(table.valid).tolist():
        _, own = rows[row]
        place[row] = place_of_series({**batch.common, **own}, int(table.series[row]))
    return place


def broken_rule(name: str, labels: Labels, names: Names, *, is_allowed: bool) -> tuple[str, str]:
    """The rule that a series breaks, and why; two empty texts if none."""
    if names.is_reserved(name):
        return RESERVED_NAME, f"{name} is a name that only the service writes"
    if odd := odd_series(labels):
        return BAD_IDENTITY, odd
    if not is_allowed:
        return FOREIGN_HOST, f"{name} of {', '.join(hosts_named(dict(labels)))}"
    return "", ""


def check_index(index: UInt32s, table: NativeTable) -> None:
    if len(index) and int(index.max()) >= len(table.series):
        msg = f"a sample refers to series row {int(index.max())}; the table has {len(table.series)}"
        raise WireError(msg)


class RemoteSeries:
    """Remote-write series by the exact bytes of their labels, as rows of growing arrays.

    The bytes are what the sender wrote, so the usual request costs one dictionary look-up a
    series and no parsing. An entry is made only from bytes that were parsed in full.
    """

    def __init__(
        self,
        names: Names = NAMES,
        *,
        ticks: Callable[[], float] = time.monotonic,
        is_placed: bool = False,
    ) -> None:
        """``is_placed``: rows are placed on shards."""
        self.names = names
        self._ticks = ticks
        self.is_placed = is_placed
        self._forgotten = Forgotten()
        self._confirmed: deque[list[NewSeries]] = deque()
        """What the store has by now, from another thread; not yet noted here."""
        self._symbols: dict[bytes, int] = {}
        self._symbols_numbered = 0
        self._symbol_bytes = 0
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[bytes, int] = {}
        self.labels: list[Labels] = []
        self._names: list[str] = []
        self._series = np.empty(1024, dtype=np.uint64)
        self._metric = np.empty(1024, dtype=np.uint32)
        self._written_from = np.empty(1024, dtype=np.int64)
        self._written_to = np.empty(1024, dtype=np.int64)
        """By row: the first and the last of successive days for which the store knows it."""
        self._used = np.zeros(1024, dtype=np.bool_)
        self._is_alive = np.zeros(1024, dtype=np.bool_)
        """By row: whether it had samples since idle ones were last looked for."""
        self._looked_s = self._ticks()
        self._rows_kept = self._keys_kept = self._bytes_kept = 0
        """What there was before the last request: rows, their keys, and what they take."""
        self._host = np.zeros(1024, dtype=np.int32)
        self._place = np.zeros(1024, dtype=np.int64)
        self._is_reserved = np.zeros(1024, dtype=np.bool_)
        self._has_reserved = False
        self._may_be_blank = np.zeros(1024, dtype=np.bool_)
        """By row: whether it is of a field of DCGM, which may print numbers that are none."""
        self._hosts: list[tuple[str, ...]] = []
        """What rows name as their hosts, each once; `_host` has its number."""
        self._host_numbers: dict[tuple[str, ...], int] = {}
        self._row_of_series: dict[int, int] = {}
        self.bytes = 0
        """What the cache takes, about."""
        self.things: list[tuple[Sighting, ...] | None] = []
        """By row: the things that its labels name; None until they are read."""
        self.runs = Runs()
        self.label_bytes = LabelBytes()

    def make_room(self) -> None:
        """Evict idle rows when full, and what the last request added if that does not help.

        Called between requests, since row numbers may change. To clear everything would make all
        series new at once; those of a sender that are left out cost more than those that are in.
        """
        self._note_confirmed()
        self.runs.end_request(self._rows_kept if self._is_full else len(self.labels))
        if self._is_full:
            self._forget_last()
            if self._ticks() - self._looked_s > IDLE_SECONDS:
                self._evict_idle()
        self._rows_kept, self._keys_kept = len(self.labels), len(self.rows)
        self._bytes_kept = self.bytes

    @property
    def _is_full(self) -> bool:
        rows = max(len(self.rows), len(self.labels))
        return rows > REMOTE_SERIES_CACHED_MAX or self.bytes > CACHED_BYTES_MAX

    def _forget_last(self) -> None:
        """Rows and keys that the last request added."""
        kept, count = self._rows_kept, len(self.labels)
        self._forgotten.put(
            self._series[kept:count],
            self._written_from[kept:count],
            self._written_to[kept:count],
        )
        for _ in range(len(self.rows) - self._keys_kept):
            self.rows.popitem()  # dictionaries keep the order in which they grew
        for _ in range(count - kept):
            self._row_of_series.popitem()
        del self.labels[kept:], self._names[kept:], self.things[kept:]
        self._used[kept:] = False
        self._is_reserved[kept:] = self._may_be_blank[kept:] = False
        self.bytes = self._bytes_kept

    def _evict_idle(self) -> None:
        """Start anew with the rows that were in use; not if there are hardly others."""
        count = len(self.labels)
        alive = self._is_alive[:count].copy()
        self._is_alive[:] = False
        self._looked_s = self._ticks()
        if alive.sum() >= ALIVE_SHARE_MAX * count:
            return
        series, labels, used = self._series, self.labels, self._used
        first, last = self._written_from, self._written_to
        idle = np.flatnonzero(~alive)
        self._forgotten.put(series[idle], first[idle], last[idle])
        keys = [(key, row) for key, row in self.rows.items() if alive[row]]
        keyless = set(np.flatnonzero(alive).tolist()) - {row for _, row in keys}
        self._clear()
        for key, row in (*keys, *((None, row) for row in keyless)):
            new = self.add(key, labels[row], int(series[row]))
            self._written_from[new], self._written_to[new] = first[row], last[row]
            self._used[new] = used[row]

    def add(self, key: bytes | None, labels: Labels, identity: int) -> int:
        """The row of this label set, which must have been checked; remembered by ``key``."""
        row = self._row_of_series.get(identity)
        if row is None:
            row = len(self.labels)
            if row == len(self._series):
                self._grow()
            self._series[row] = identity
            name = metric_of(labels)
            self._host[row] = self._place[row] = UNREAD
            if self.names.is_reserved(name):
                self._is_reserved[row] = self._has_reserved = True
            self._may_be_blank[row] = name.startswith(FIELD_PREFIX)
            self._names.append(name)
            self._metric[row] = metric_id(name)
            span = self._forgotten.span_of(identity) or NO_DAYS
            self._written_from[row], self._written_to[row] = span
            self._row_of_series[identity] = row
            self.labels.append(labels)
            self.things.append(None)
            self.bytes += ROW_BYTES
        if key is not None:
            self.rows[key] = row
            # The labels are as long as their key, or shorter; they are kept beside it.
            self.bytes += 2 * len(key)
        else:
            self.bytes += sum(len(label) + len(value) for label, value in labels)
        return row

    def _grow(self) -> None:
        def doubled(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([column, np.zeros_like(column)])

        self._series, self._metric = doubled(self._series), doubled(self._metric)
        self._written_from = doubled(self._written_from)
        self._written_to, self._used = doubled(self._written_to), doubled(self._used)
        self._is_alive, self._place = doubled(self._is_alive), doubled(self._place)
        self._host, self._is_reserved = doubled(self._host), doubled(self._is_reserved)
        self._may_be_blank = doubled(self._may_be_blank)

    @property
    def uncached(self) -> int:
        """Series that are not new and not cached, about."""
        return len(self._forgotten)

    def knows(self, identity: int) -> bool:
        """Whether the series is not new, cached or not."""
        is_cached = identity in self._row_of_series
        return is_cached or self._forgotten.span_of(identity) is not None

    def refused(self, rows: Int64s, hosts: Hosts) -> dict[str, Bools]:
        """Which samples of these rows a sender may not send, by the rule; no work for most."""
        found: dict[str, Bools] = {}
        if self._has_reserved:
            found[RESERVED_NAME] = self._is_reserved[rows]
        if not hosts.is_any:
            named = self._hosts_of(rows)
            foreign = [
                number
                for number in np.unique(named).tolist()
                if not hosts.allow(self._hosts[number])
            ]
            is_reserved = found.get(RESERVED_NAME, np.bool_(False))
            found[FOREIGN_HOST] = np.isin(named, foreign) & ~is_reserved
        return {rule: broken for rule, broken in found.items() if broken.any()}

    def blank(self, rows: Int64s, values: Float64s) -> Bools:
        """Which samples are no number, but what DCGM writes in the place of one."""
        found = self._may_be_blank[rows]
        if found.any():
            found &= np.isin(values, BLANK_VALUES) | (values >= IMPOSSIBLE_MIN)
        return found

    def _hosts_of(self, rows: Int64s) -> Int32s:
        """The numbers of what rows name as their hosts; read once, and only for bound senders."""
        unread = rows[self._host[rows] == UNREAD]
        for row in np.unique(unread).tolist():
            named = hosts_named(dict(self.labels[row]))
            number = self._host_numbers.setdefault(named, len(self._hosts))
            if number == len(self._hosts):
                self._hosts.append(named)
            self._host[row] = number
        return self._host[rows]

    def places(self, rows: Int64s) -> UInt32s | None:
        """Where the series of these rows stand on a cluster; None: there are no shards."""
        if not self.is_placed:
            return None
        unread = rows[self._place[rows] == UNREAD]
        for row in np.unique(unread).tolist():
            self._place[row] = place_of_series(dict(self.labels[row]), int(self._series[row]))
        return self._place[rows].astype(np.uint32)

    def number_symbols(self, texts: list[bytes]) -> UInt32s:
        """Numbers of these symbols that stay the same over requests; none is ever used again."""
        is_full = len(self._symbols) > REMOTE_LABELS_CACHED_MAX
        if is_full or self._symbol_bytes > CACHED_BYTES_MAX:
            self._symbols, self._symbol_bytes = {}, 0
        numbers = self._symbols
        found = []
        for text in texts:
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = self._symbols_numbered
                self._symbols_numbered += 1
                self._symbol_bytes += len(text)
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
        """Only the last days of a series are remembered: an old sample writes its row again."""
        self._note_confirmed()
        self._used[rows] = True
        self._is_alive[rows] = True
        fresh = (days < self._written_from[rows]) | (days > self._written_to[rows])
        if not fresh.any():
            return []
        pairs = sorted(set(zip(rows[fresh].tolist(), days[fresh].tolist(), strict=True)))
        return [NewSeries(day, int(self._series[row]), self.labels[row]) for row, day in pairs]

    def unwritten_ahead(self, rows: Int64s, days: Int64s, ahead: Ahead) -> list[NewSeries]:
        """What is now written for tomorrow, of series with samples of these days."""
        if not ahead.share:
            return []
        soon = ahead.rows(self._series[rows], days) & (self._written_to[rows] <= ahead.today)
        return [
            NewSeries(ahead.today + 1, int(self._series[row]), self.labels[row])
            for row in np.unique(rows[soon]).tolist()
        ]

    def take_used(self) -> list[int]:
        """Rows of the series that had samples since the last call."""
        used: list[int] = np.flatnonzero(self._used).tolist()
        self._used[:] = False
        return used

    def written(self, new: list[NewSeries]) -> None:
        """The store has these. From any thread: rows may change in the one that decodes."""
        if new:
            self._confirmed.append(new)

    def _note_confirmed(self) -> None:
        while self._confirmed:
            self._note(self._confirmed.popleft())

    def _note(self, new: list[NewSeries]) -> None:
        for day in sorted({entry.day for entry in new}):
            ids = [entry.series for entry in new if entry.day == day]
            found = [self._row_of_series.get(series) for series in ids]
            rows = np.array([row for row in found if row is not None], dtype=np.int64)
            self._written_from[rows], self._written_to[rows] = extended(
                self._written_from[rows], self._written_to[rows], day
            )
            gone = [series for series, row in zip(ids, found, strict=True) if row is None]
            spans = [self._forgotten.span_of(series) or NO_DAYS for series in gone]
            first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
            self._forgotten.put(np.array(gone, dtype=np.uint64), *extended(first, last, day))


def extended(first: Int64s, last: Int64s, day: int) -> tuple[Int64s, Int64s]:
    """Successive days with one more; where it is not next to them, the later ones alone."""
    is_apart = (day > last + 1) | (last < first)
    return (
        np.where(is_apart | (day == first - 1), day, first),
        np.where(is_apart, day, np.maximum(last, day)),
    )
