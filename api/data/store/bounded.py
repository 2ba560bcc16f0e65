"""Keeps the store below a number of bytes: the oldest days go first, of all tables together.

Days, because a day of a table is a partition, which goes at once and rewrites nothing; together,
because samples without the names of their series, or verdicts without samples, are of no use. Today
stays whatever it takes: what arrives now is what is judged now.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from api.base.metrics import ServiceMetrics
from api.data.store.store import RETAINED_TABLES, Store

log = logging.getLogger(__name__)

SIZES_SQL = """
    SELECT table, partition_id AS day, sum(bytes_on_disk) AS size
    FROM system.parts
    WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}
    GROUP BY table, day ORDER BY day, table
"""
"""A day's partition has its digits as id: 20261118."""


class Day(msgspec.Struct, frozen=True, order=True):
    """A day of a table, and its bytes."""

    day: str
    table: str
    size: int


def too_much(days: list[Day], most: int, today: str) -> list[Day]:
    """The oldest days that must go so that the rest fits; never today, nor what is dated later.

    >>> days = [Day("20260101", "a", 5), Day("20260101", "b", 1), Day("20260102", "a", 5)]
    >>> [each.day for each in too_much(days, 7, "20260103")]
    ['20260101', '20260101']
    """
    total = sum(each.size for each in days)
    going: list[Day] = []
    for day in sorted({each.day for each in days if each.day < today}):
        if total <= most:
            break
        those = [each for each in days if each.day == day]
        going += those
        total -= sum(each.size for each in those)
    return going


class BytesBound:
    """Looks at sizes and drops days. ``most``: bytes, 0: unbounded; ``leads``: whether to drop."""

    def __init__(
        self,
        store: Store,
        most: int,
        metrics: ServiceMetrics,
        leads: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """``clock``: unix seconds, by which today is today."""
        self._store = store
        self._most = most
        self._metrics = metrics
        self._leads = leads
        self._clock = clock
        self._sizes: dict[str, int] | None = None
        for table in RETAINED_TABLES:
            metrics.watch("fabric_service_store_bytes", partial(self._size, table), table=table)
            metrics.days_dropped.labels(table)

    def _size(self, table: str) -> float:
        return float("nan") if self._sizes is None else float(self._sizes.get(table, 0))

    def look(self) -> None:
        """Blocks: for a thread. Raises StoreError."""
        rows = self._store.query(SIZES_SQL, {"tables": list(RETAINED_TABLES)}).to_pylist()
        days = [Day(row["day"], row["table"], row["size"]) for row in rows]
        self._sizes = {}
        for each in days:
            self._sizes[each.table] = self._sizes.get(each.table, 0) + each.size
        if not self._most or not self._leads():
            return
        today = f"{dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC):%Y%m%d}"
        for each in too_much(days, self._most, today):
            with self._store.holding_writes(f"drop {each.table} of {each.day}") as client:
                client.command(f"ALTER TABLE {each.table} DROP PARTITION ID '{each.day}'")
            self._metrics.days_dropped.labels(each.table).inc()
            self._sizes[each.table] -= each.size
            log.warning(
                "%s of %s was dropped, %d MiB: the store is over retention_bytes = %d",
                each.table,
                each.day,
                each.size >> 20,
                self._most,
            )
