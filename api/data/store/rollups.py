"""Roll-ups: the samples of five minutes, or of an hour, of a series in one row.

Buckets are open on the left, (b - 5 min, b], as windows of PromQL are. An hour is rolled up when it
is over and its last samples must have come; samples that come later are noted before they are
written, and their hours are rolled up again. `api.data.store.rolling` decides when, and PromQL
(`api.promql.rolled`) reads them where they give the answer that samples would give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.base.rollup_limits import (
    LATE_AFTER_SECONDS,
    LATE_NOTED_AGAIN_SECONDS,
    LATE_NOTES_KEPT_MAX,
)

STALE_BITS: Final = 0x7FF0000000000002
"""Prometheus' staleness marker, a NaN: from here on the series has no value."""
NEGATIVE_ZERO_BITS: Final = 1 << 63
SERIES_MAX: Final = (1 << 64) - 1
MS_PER_HOUR: Final = 3_600_000


class Stride(msgspec.Struct, frozen=True):
    """The length of a bucket, and the table of such buckets."""

    table: str
    ms: int
    words: str


FIVE_MINUTES: Final = Stride("rollup_5m", 300_000, "five-minute")
ONE_HOUR: Final = Stride("rollup_1h", MS_PER_HOUR, "one-hour")
STRIDES: Final = (ONE_HOUR, FIVE_MINUTES)
"""The coarsest first: of those that give the same answer it is the cheapest."""
ROLLUP_TABLES: Final = (FIVE_MINUTES.table, ONE_HOUR.table)
LEDGER_TABLES: Final = ("rollup_span", "rollup_late")

COLUMNS: Final = (
    "metric, series, time, count, first, last, low_bits, high_bits, total, lost, "
    "first_ms, last_ms, is_odd, ends_stale"
)
TIME_RANGE: Final = (
    "time > fromUnixTimestamp64Milli({after_ms:Int64}) "
    "AND time <= fromUnixTimestamp64Milli({to_ms:Int64})"
)
BUCKET_RANGE: Final = (
    "time > toDateTime(intDiv({after_ms:Int64}, 1000), 'UTC') "
    "AND time <= toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC')"
)
PIECE: Final = (
    "metric IN {metrics:Array(UInt32)} AND series BETWEEN {lowest:UInt64} AND {highest:UInt64}"
)


def falls(values: str, values_before: str) -> str:
    """The sum of the values from which a counter fell; both are arrays in order of time."""
    return (
        "arraySum(arrayMap((now, before) -> if(now < before, before, 0), "
        f"arrayPopFront({values}), arrayPopBack({values_before})))"
    )


def buckets_sql(where: str, stride: Stride) -> str:
    """Buckets made of samples, with `low` and `high`; ``where``: a condition on `samples`.

    TIME_RANGE is added to it. The smallest and the largest value are those of finite samples; a
    bucket with others, or with -0, says that it is odd.
    """
    ms = stride.ms
    return (
        f"SELECT metric, series, intDiv(at_ms + {ms - 1}, {ms}) AS bucket, "  # noqa: S608 - ours
        f"toDateTime(bucket * {ms // 1000}, 'UTC') AS time, "
        "toUInt32(countIf(is_fresh)) AS count, "
        "arraySort((one, at) -> at, groupArrayIf(value, is_fresh), groupArrayIf(at_ms, is_fresh)) "
        "AS ordered, ordered[1] AS first, ordered[-1] AS last, "
        "minIf(value, is_plain) AS low, maxIf(value, is_plain) AS high, "
        f"sumKahanIf(value, is_fresh) AS total, {falls('ordered', 'ordered')} AS lost, "
        f"toUInt32(minIf(at_ms, is_fresh) - (bucket - 1) * {ms}) AS first_ms, "
        f"toUInt32(maxIf(at_ms, is_fresh) - (bucket - 1) * {ms}) AS last_ms, "
        "toUInt8(max(is_fresh AND NOT is_plain)) AS is_odd, "
        "toUInt8(NOT argMax(is_fresh, at_ms)) AS ends_stale FROM ("
        "SELECT metric, series, value, toUnixTimestamp64Milli(time) AS at_ms, "
        f"reinterpretAsUInt64(fraction) != {STALE_BITS} AS is_fresh, isFinite(value) "
        f"AND reinterpretAsUInt64(fraction) != {NEGATIVE_ZERO_BITS} AS is_plain "
        f"FROM samples FINAL WHERE {where} AND {TIME_RANGE}) "
        "GROUP BY metric, series, bucket HAVING count > 0"
    )


def hours_sql() -> str:
    """Hours' buckets made of their five-minute buckets, with `low` and `high`."""
    return (
        "SELECT metric, series, toDateTime(hour * 3600, 'UTC') AS time, "  # noqa: S608 - ours
        "toUInt32(sum(samples)) AS count, "
        "arraySort((one, at) -> at, groupArray(begin), groupArray(at_ms)) AS begins, "
        "arraySort((one, at) -> at, groupArray(ending), groupArray(at_ms)) AS endings, "
        "begins[1] AS first, endings[-1] AS last, "
        "min(lowest_one) AS low, max(highest_one) AS high, "
        f"sumKahan(sums) AS total, sum(losses) + {falls('begins', 'endings')} AS lost, "
        "toUInt32(min(at_ms + begin_ms)) AS first_ms, toUInt32(max(at_ms + ending_ms)) AS last_ms, "
        "max(odd) AS is_odd, argMax(stale, at_ms) AS ends_stale FROM ("
        "SELECT metric, series, count AS samples, first AS begin, last AS ending, "
        "low AS lowest_one, high AS highest_one, total AS sums, lost AS losses, "
        "first_ms AS begin_ms, last_ms AS ending_ms, is_odd AS odd, ends_stale AS stale, "
        "intDiv(toInt64(toUnixTimestamp(time)) + 3599, 3600) AS hour, "
        "(toInt64(toUnixTimestamp(time)) - (hour - 1) * 3600) * 1000 - 300000 AS at_ms "
        f"FROM {FIVE_MINUTES.table} FINAL WHERE {PIECE} AND {BUCKET_RANGE}) "
        "GROUP BY metric, series, hour"
    )


def fill_sql(stride: Stride, made: str) -> str:
    """Write the buckets that a SELECT makes.

    A bucket is never replaced by one of fewer samples: then some of them are past retention.
    """
    bits = (
        "bitXor(reinterpretAsUInt64(low), reinterpretAsUInt64(first)) AS low_bits, "
        "bitXor(reinterpretAsUInt64(high), reinterpretAsUInt64(last)) AS high_bits"
    )
    return (
        f"INSERT INTO {stride.table} ({COLUMNS}) "  # noqa: S608 - ours
        f"SELECT {COLUMNS.replace('low_bits, high_bits', bits)} FROM ({made}) AS made "
        "LEFT JOIN (SELECT metric, series, time, count AS kept "
        f"FROM {stride.table} FINAL WHERE {PIECE} AND {BUCKET_RANGE}) AS before "
        "USING (metric, series, time) WHERE count >= kept"
    )


FILL_SQL: Final = (
    fill_sql(FIVE_MINUTES, buckets_sql(PIECE, FIVE_MINUTES)),
    fill_sql(ONE_HOUR, hours_sql()),
)
"""The rows of one hour of some series: first those of five minutes, from which the hour's are."""
COUNTS_SQL: Final = (
    "SELECT metric, count() AS samples FROM samples WHERE "  # noqa: S608 - ours
    f"{TIME_RANGE} {{only}} "
    "GROUP BY metric ORDER BY metric"
)
SPAN_SQL: Final = (
    "SELECT toInt64(toUnixTimestamp(since)) * 1000 AS since_ms, "
    "toInt64(toUnixTimestamp(until)) * 1000 AS until_ms FROM rollup_span FINAL"
)
OLDEST_SQL: Final = (
    "SELECT count() AS n, toUnixTimestamp64Milli(min(time)) AS oldest_ms FROM samples"
)
"""The engine answers it from the bounds that each part notes of its partition's column."""
PENDING_SQL: Final = (
    "SELECT metric, toInt64(toUnixTimestamp(hour)) * 1000 AS hour_ms, "
    "toUnixTimestamp64Milli(noted) AS noted_ms FROM rollup_late FINAL WHERE NOT is_rolled"
)


class Span(msgspec.Struct, frozen=True):
    """All hours after ``since_ms`` and up to ``until_ms`` are rolled up; both are whole hours."""

    since_ms: int
    until_ms: int


class Late(msgspec.Struct, frozen=True):
    """A metric's hour that got samples after it was over; ``hour_ms`` is its end."""

    metric: int
    hour_ms: int
    noted_ms: int


def read_span(ask: Callable[[str], pa.Table]) -> Span | None:
    """None: nothing was rolled up yet."""
    rows = ask(SPAN_SQL).to_pylist()
    return Span(rows[0]["since_ms"], rows[0]["until_ms"]) if rows else None


def span_rows(span: Span) -> pa.Table:
    """As the one row of `rollup_span`."""
    return pa.table(
        {
            "id": pa.array([0], pa.uint8()),
            "since": _moments([span.since_ms]),
            "until": _moments([span.until_ms]),
        }
    )


def read_late(ask: Callable[[str], pa.Table]) -> list[Late]:
    """What waits to be rolled up again."""
    rows = ask(PENDING_SQL).to_pylist()
    return [Late(row["metric"], row["hour_ms"], row["noted_ms"]) for row in rows]


def late_rows(notes: Sequence[Late], *, is_rolled: bool) -> pa.Table:
    """As rows of `rollup_late`."""
    return pa.table(
        {
            "metric": pa.array([note.metric for note in notes], pa.uint32()),
            "hour": _moments([note.hour_ms for note in notes]),
            "noted": pa.array([note.noted_ms for note in notes], pa.timestamp("ms", "UTC")),
            "is_rolled": pa.array([int(is_rolled)] * len(notes), pa.uint8()),
        }
    )


def _moments(times_ms: Sequence[int]) -> pa.Array:
    """As the engine's DateTime: whole seconds in 32 bits."""
    return pa.array([each // 1000 for each in times_ms], pa.uint32())


def hour_after(moment_ms: int) -> int:
    """The end of the hour that a moment lies in: (end - 1 h, end].

    >>> hour_after(3_600_000), hour_after(3_600_001)
    (3600000, 7200000)
    """
    return -(-moment_ms // MS_PER_HOUR) * MS_PER_HOUR


class LateNotes:
    """Which hours of metrics get samples after they are over. Under the store's write lock.

    A note holds for what is written within LATE_NOTED_AGAIN_SECONDS of it, so that a backlog, which
    is late for minutes, is noted once a minute.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: unix seconds."""
        self._clock = clock
        self._noted: dict[tuple[int, int], int] = {}

    def take(self, metric: npt.NDArray[np.uint32], time_ms: npt.NDArray[np.int64]) -> list[Late]:
        """Notes to be written before these samples are."""
        now_ms = round(self._clock() * 1000)
        closed_ms = (now_ms - LATE_AFTER_SECONDS * 1000) // MS_PER_HOUR * MS_PER_HOUR
        if not len(time_ms) or int(time_ms.min()) > closed_ms:
            return []
        is_late = time_ms <= closed_ms
        hours = -(-time_ms[is_late] // MS_PER_HOUR)
        # Both fit: 32 bits of the metric, 20 of hours until the year 2089.
        keys = np.unique(
            (metric[is_late].astype(np.uint64) << np.uint64(32)) | hours.astype(np.uint64)
        )
        if len(self._noted) + len(keys) > LATE_NOTES_KEPT_MAX:
            self._noted = {}
        since_ms = now_ms - LATE_NOTED_AGAIN_SECONDS * 1000
        notes = []
        for key in keys.tolist():
            name = (key >> 32, (key & 0xFFFFFFFF) * MS_PER_HOUR)
            if not since_ms < self._noted.get(name, since_ms) <= now_ms:
                self._noted[name] = now_ms
                notes.append(Late(name[0], name[1], now_ms))
        return notes

    def forget(self) -> None:
        """What was taken could not be written: it is taken again."""
        self._noted = {}
