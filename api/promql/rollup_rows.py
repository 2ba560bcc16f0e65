"""Reads roll-ups: those that are stored, and for a time that has none yet, made of samples."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from api.data.store.rollups import BUCKET_RANGE, MS_PER_HOUR, STRIDES, Stride, buckets_sql
from api.data.store.store import Store
from api.promql.fetch import PART_SAMPLES, Reader
from api.promql.find import Found
from api.promql.values import Bools, Dialect, Floats, Ints, LabelRows, Windows
from api.promql.windows import cut_windows

SUMS: Final = frozenset({"avg_over_time", "sum_over_time"})
SUMMED_MAX: Final = 1e15
"""Larger numbers show in which order they were added, and how the sum was compensated."""

CHANGES: Final = frozenset({"delta", "increase", "rate"})
OF_VALUES: Final = SUMS | CHANGES | {"max_over_time", "min_over_time"}
"""Functions for which infinities, NaN and -0 are samples like others: a bucket does not tell."""

HORIZON_SECONDS: Final = 60.0
"""How long what is known of the oldest rows holds; they go by days."""

COVER_SQL: Final = (
    "SELECT toInt64(toUnixTimestamp(since)) * 1000 AS since_ms, "
    "toInt64(toUnixTimestamp(until)) * 1000 AS until_ms, "
    "(SELECT toInt64(toUnixTimestamp(min(time))) * 1000 FROM {table}) AS oldest_ms, "
    "(SELECT count() FROM rollup_late FINAL WHERE NOT is_rolled "
    "AND metric IN {metrics:Array(UInt32)} "
    "AND hour > toDateTime(intDiv({after_ms:Int64}, 1000), 'UTC') "
    "AND hour < toDateTime(intDiv({to_ms:Int64}, 1000) + 3600, 'UTC')) AS late "
    "FROM rollup_span FINAL"
)
HORIZON_SQL: Final = (
    "SELECT (SELECT if(count() = 0, 0, toUnixTimestamp64Milli(min(time))) FROM samples) "
    "AS samples_ms, "
    "(SELECT toInt64(toUnixTimestamp(min(time))) * 1000 FROM rollup_5m) AS rollup_5m_ms, "
    "(SELECT toInt64(toUnixTimestamp(min(time))) * 1000 FROM rollup_1h) AS rollup_1h_ms"
)
BUCKET_COLUMNS: Final = (
    "count, first, last, low, high, total, lost, first_ms, last_ms, is_odd, ends_stale"
)


class Buckets(msgspec.Struct, frozen=True):
    """Rows of roll-ups, in order of series (``rows`` indexes the labels) and time."""

    labels: LabelRows
    rows: Ints
    end_ms: Ints
    count: Ints
    first: Floats
    last: Floats
    low: Floats
    high: Floats
    total: Floats
    lost: Floats
    first_ms: Ints
    """Unix milliseconds of the first sample, and of the last."""
    last_ms: Ints
    is_odd: Bools
    ends_stale: Bools

    def serves(self, function: str) -> bool:
        """Whether the function's results are those that the samples would give."""
        if function in OF_VALUES and bool(self.is_odd.any()):
            return False
        if function not in SUMS or not len(self.rows):
            return True
        return bool(max(self.high.max(), -self.low.min()) <= SUMMED_MAX)

    def cut(self, values: Floats, ends: Ints, range_ms: int) -> Windows:
        """The buckets of each window, with one number of each."""
        return cut_windows(
            self.labels, self.rows, self.end_ms, values, ends, range_ms, Dialect.PROMETHEUS_3
        )


class Horizon(msgspec.Struct, frozen=True):
    """Where kept rows begin, in unix milliseconds; 0: there are none."""

    samples_ms: int
    rollup_5m_ms: int
    rollup_1h_ms: int

    def oldest(self, stride: Stride) -> int:
        """The beginning of the first bucket."""
        found: int = getattr(self, f"{stride.table}_ms")
        return found - stride.ms if found else 0


class Horizons:
    """Remembers where kept rows begin. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Horizon | None = None
        self._until = -math.inf

    def look(self, ask: Callable[[str, dict[str, Any]], pa.Table]) -> Horizon:
        with self._lock:
            if self._known is not None and time.monotonic() < self._until:
                return self._known
        [row] = ask(HORIZON_SQL, {}).to_pylist()
        found = Horizon(row["samples_ms"], row["rollup_5m_ms"], row["rollup_1h_ms"])
        with self._lock:
            self._known, self._until = found, time.monotonic() + HORIZON_SECONDS
        return found


def stride_of(ends: Ints, range_ms: int) -> Stride | None:
    """The longest buckets of which all windows are made."""
    for stride in STRIDES:
        if range_ms % stride.ms == 0 and not bool(np.any(ends % stride.ms)):
            return stride
    return None


class RollupReader:
    """Reads roll-ups for one query."""

    def __init__(self, reader: Reader, store: Store, horizons: Horizons) -> None:
        self._reader = reader
        self._store = store
        self._horizons = horizons

    def gone_before(self, first_ms: int) -> tuple[int, Stride] | None:
        """Samples before this moment are past retention, and roll-ups have them; None: none are.

        ``first_ms``: the first moment that is asked about. The finest buckets that reach as far
        back, or those that reach furthest.
        """
        now_ms = self._store.now_ms()
        if first_ms > now_ms - 24 * MS_PER_HOUR:
            return None
        horizon = self._horizons.look(self._reader.ask)
        samples_ms = horizon.samples_ms or now_ms
        kept_ms = self._store.kept_days("samples") * 24 * MS_PER_HOUR
        gone_ms = max(samples_ms, now_ms - kept_ms)
        reaching = [(horizon.oldest(stride), stride) for stride in STRIDES]
        # Where samples begin in the hour in which roll-ups do, they are not gone: none came before.
        older = [each for each in reaching if 0 < each[0] < gone_ms // MS_PER_HOUR * MS_PER_HOUR]
        if first_ms >= gone_ms or not older:
            return None
        far = [stride for oldest_ms, stride in older if oldest_ms <= first_ms]
        chosen = far[-1] if far else min(older, key=lambda each: (each[0], each[1].ms))[1]
        return gone_ms, chosen

    def covered(
        self, found: Found, stride: Stride, after_ms: int, to_ms: int
    ) -> tuple[int, int] | None:
        """The part of a time that is rolled up and complete; None: too little of it."""
        asked = {"metrics": found.parameters["metrics"], "after_ms": after_ms, "to_ms": to_ms}
        rows = self._reader.ask(COVER_SQL.replace("{table}", stride.table), asked).to_pylist()
        if not rows or rows[0]["late"] or not rows[0]["oldest_ms"]:
            return None
        kept_ms = self._store.kept_days(stride.table) * 24 * MS_PER_HOUR
        expired_ms = -(-(self._store.now_ms() - kept_ms) // MS_PER_HOUR) * MS_PER_HOUR
        oldest_ms = rows[0]["oldest_ms"] // MS_PER_HOUR * MS_PER_HOUR
        since_ms = max(after_ms, rows[0]["since_ms"], oldest_ms, expired_ms)
        until_ms = min(to_ms, rows[0]["until_ms"])
        is_worth = 2 * (until_ms - since_ms) >= to_ms - after_ms
        return (since_ms, until_ms) if is_worth else None

    def read(
        self, found: Found, stride: Stride, after_ms: int, to_ms: int, stored: tuple[int, int]
    ) -> Buckets:
        """Buckets that end after one moment and up to another; all are multiples of the stride.

        ``stored``: what is rolled up of it. Before and after that, samples are rolled up here.
        """
        since_ms, until_ms = stored
        parts = []
        if after_ms < since_ms:
            parts.append(self._made(found, stride, after_ms, since_ms))
        if since_ms < until_ms:
            parts.append(self._stored(found, stride, since_ms, until_ms))
        if until_ms < to_ms:
            parts.append(self._made(found, stride, max(after_ms, until_ms), to_ms))
        return arranged(found, stride, pa.concat_tables(parts))

    def in_parts(self, found: Found, stride: Stride, span_ms: int) -> list[Found]:
        """Series whose buckets are held at once."""
        if found.shaded:
            return [found]
        rows = len(found.labels) * (span_ms // stride.ms)
        return found.split(max(1, math.ceil(rows / PART_SAMPLES)))

    def _stored(self, found: Found, stride: Stride, after_ms: int, to_ms: int) -> pa.Table:
        return self._ask(
            f"SELECT series, toInt64(toUnixTimestamp(time)) * 1000 AS end_ms, {BUCKET_COLUMNS} "  # noqa: S608 - placeholders only
            f"FROM {stride.table} FINAL WHERE {found.where} AND {BUCKET_RANGE}",
            found,
            after_ms,
            to_ms,
        )

    def _made(self, found: Found, stride: Stride, after_ms: int, to_ms: int) -> pa.Table:
        return self._ask(
            f"SELECT series, toInt64(toUnixTimestamp(time)) * 1000 AS end_ms, {BUCKET_COLUMNS} "  # noqa: S608 - placeholders only
            f"FROM ({buckets_sql(found.where, stride)})",
            found,
            after_ms,
            to_ms,
        )

    def _ask(self, sql: str, found: Found, after_ms: int, to_ms: int) -> pa.Table:
        asked = {**found.parameters, "after_ms": after_ms, "to_ms": to_ms}
        rows = self._reader.ask(sql, asked)
        self._reader.touch(rows.num_rows)
        return rows


def arranged(found: Found, stride: Stride, table: pa.Table) -> Buckets:
    ids, own_rows = found.ids_and_rows()
    series = table["series"].to_numpy()
    places = np.minimum(np.searchsorted(ids, series), max(0, len(ids) - 1))
    known = np.flatnonzero(ids[places] == series) if len(ids) else np.zeros(0, np.int64)
    rows = own_rows[places[known]]
    end_ms = table["end_ms"].to_numpy()[known]
    order = np.lexsort((end_ms, rows))
    rows, end_ms, chosen = rows[order], end_ms[order], known[order]

    def column(name: str) -> Any:  # noqa: ANN401 - of the column's type
        return table[name].to_numpy()[chosen]

    values = {name: column(name) for name in ("first", "last", "low", "high", "total", "lost")}
    if found.factors is not None:
        values = {name: each * found.factors[rows] for name, each in values.items()}
    start_ms = end_ms - stride.ms
    return Buckets(
        labels=found.labels,
        rows=rows,
        end_ms=end_ms,
        count=column("count").astype(np.int64),
        first_ms=start_ms + column("first_ms"),
        last_ms=start_ms + column("last_ms"),
        is_odd=column("is_odd").astype(np.bool_),
        ends_stale=column("ends_stale").astype(np.bool_),
        **values,
    )
