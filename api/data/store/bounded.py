"""Keeps the store below a number of bytes: the oldest days go first, of all tables together.

Days, because a day of a table is a partition, which goes at once and rewrites nothing (of roll-ups,
a week is); together, because verdicts without samples are of no use. Roll-ups and the names of
series are kept longer than the rest, and remain so: what has lived the largest share of its
retention goes first. Today stays whatever it takes: what arrives now is what is judged now.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from api.base.metrics import ServiceMetrics
from api.data.store.rollups import ROLLUP_TABLES
from api.data.store.store import RECORD_TABLES, RETAINED_TABLES, Store

log = logging.getLogger(__name__)

SIZES_SQL = """
    SELECT table, partition_id AS day, sum(bytes_on_disk) AS size
    FROM system.parts
    WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}
    GROUP BY table, day ORDER BY day, table
"""
"""A day's partition has its digits as id: 20261118."""


class Day(msgspec.Struct, frozen=True, order=True):
    """A day of a table, or of roll-ups the week that begins with it, and its bytes."""

    day: str
    table: str
    size: int

    def age(self, today: str) -> int:
        """Days since its last one; less than 1: it is not over."""
        days = (date_of(today) - date_of(self.day)).days
        return days - 6 if self.table in ROLLUP_TABLES else days


def date_of(day: str) -> dt.date:
    return dt.datetime.strptime(day, "%Y%m%d").replace(tzinfo=dt.UTC).date()


def too_much(days: list[Day], most: int, today: str, kept: Mapping[str, int]) -> list[Day]:
    """The oldest days that must go so that the rest fits; never today, nor what is dated later.

    ``kept``: days of retention, by table. Records of one day go together.

    >>> days = [Day("20260101", "a", 5), Day("20260101", "b", 1), Day("20260102", "a", 5)]
    >>> [each.day for each in too_much(days, 7, "20260103", {"a": 30, "b": 30})]
    ['20260101', '20260101']
    >>> [each.table for each in too_much(days, 10, "20260103", {"a": 30, "b": 3})]
    ['b']
    """
    total = sum(each.size for each in days)
    over = [each for each in days if each.age(today) > 0]
    shares = {each: each.age(today) / kept[each.table] for each in over}
    going: list[Day] = []
    for share in sorted(set(shares.values()), reverse=True):
        if total <= most:
            break
        those = [each for each in over if shares[each] == share]
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

    def _kept(self) -> dict[str, int]:
        """Records go with the samples of their day, however long they are kept themselves."""
        kept = {table: self._store.kept_days(table) for table in RETAINED_TABLES}
        return kept | dict.fromkeys(RECORD_TABLES, kept["samples"])

    def look(self) -> None:
        """Blocks: for a thread. Raises StoreError."""
        placement = self._store.placement
        sql = placement.of_all_shards(SIZES_SQL)
        rows = self._store.query(sql, {"tables": list(RETAINED_TABLES)}).to_pylist()
        days = [Day(row["day"], row["table"], row["size"]) for row in rows]
        self._sizes = {}
        for each in days:
            self._sizes[each.table] = self._sizes.get(each.table, 0) + each.size
        if not self._most or not self._leads():
            return
        today = f"{dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC):%Y%m%d}"
        for each in too_much(days, self._most, today, self._kept()):
            with self._store.holding_writes(f"drop {each.table} of {each.day}") as client:
                client.command(placement.dropping(each.table, each.day))
            self._metrics.days_dropped.labels(each.table).inc()
            self._sizes[each.table] -= each.size
            log.warning(
                "%s of %s was dropped, %d MiB: the store is over retention_bytes = %d",
                each.table,
                each.day,
                each.size >> 20,
                self._most,
            )
