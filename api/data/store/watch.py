"""What the service knows of the disks and parts under its store, without asking at each scrape."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from api.base.limits import DISK_FREE_BYTES_MIN
from api.base.metrics import ServiceMetrics
from api.data.store.bounded import BytesBound
from api.data.store.store import RETAINED_TABLES, Store
from collector.contract.errors import StoreError

STORE_DISK, INVENTORY_DISK = "store", "inventory"
DAYS = ("today", "yesterday")

PARTS_SQL = """
    SELECT table, count() AS parts, sum(rows) AS held,
        sumIf(rows, partition = toString(today())) AS today,
        sumIf(rows, partition = toString(yesterday())) AS yesterday
    FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table
"""
DISKS_SQL = """
    SELECT free_space AS free, total_space AS total FROM system.disks
    WHERE total_space > 0 ORDER BY free_space / total_space LIMIT 1
"""

log = logging.getLogger(__name__)


class Room(msgspec.Struct, frozen=True):
    """Free space of one disk, in bytes."""

    disk: str
    free: int
    total: int

    @property
    def is_short(self) -> bool:
        """Whether so little is left that inserts are about to fail."""
        return self.free < DISK_FREE_BYTES_MIN


class StoreWatch:
    """Looks now and then; metrics show what was seen last. ``look_*`` block: for a thread."""

    def __init__(self, store: Store, metrics: ServiceMetrics, inventory: Path | None) -> None:
        """``inventory``: the file of an SQLite inventory."""
        self._store = store
        self._metrics = metrics
        self._folders: dict[str, Path] = {}
        if store.folder is not None:
            self._folders[STORE_DISK] = store.folder
        if inventory is not None:
            self._folders[INVENTORY_DISK] = inventory.parent
        self.bound: BytesBound | None = None
        """What keeps the store below `retention_bytes`; a service sets it."""
        self._server_room: Room | None = None
        self._rooms: dict[str, Room] = {}
        self._damaged = 0
        self._reads = {"memory": 0, "store": 0}
        self._metrics.watch("fabric_service_recent_bytes", lambda: store.recent.bytes_used)
        self._is_failing = False
        for disk in (STORE_DISK, INVENTORY_DISK):
            self._watch_disk(disk)
        self._parts: dict[str, tuple[float, float]] = {}
        self._series: dict[str, float] = {}
        for table in RETAINED_TABLES:
            self._watch_table(table)
        for day in DAYS:
            self._watch_day(day)

    def _watch_disk(self, disk: str) -> None:
        def read(what: str) -> float:
            room = self._rooms.get(disk)
            return float("nan") if room is None else float(getattr(room, what))

        self._metrics.watch("fabric_service_disk_free_bytes", lambda: read("free"), disk=disk)
        self._metrics.watch("fabric_service_disk_total_bytes", lambda: read("total"), disk=disk)

    def _watch_table(self, table: str) -> None:
        unknown = (float("nan"), float("nan"))
        self._metrics.watch(
            "fabric_service_store_parts", lambda: self._parts.get(table, unknown)[0], table=table
        )
        self._metrics.watch(
            "fabric_service_store_rows", lambda: self._parts.get(table, unknown)[1], table=table
        )

    def _watch_day(self, day: str) -> None:
        self._metrics.watch(
            "fabric_service_store_series", lambda: self._series.get(day, float("nan")), day=day
        )

    def look_at_disks(self) -> list[Room]:
        """Free space now; of a ClickHouse server, as it was asked last."""
        found = list(self._local_rooms())
        if self._server_room is not None:
            found.append(self._server_room)
        self._rooms = {room.disk: room for room in found}
        self._metrics.damaged_reads.inc(self._store.damaged_reads - self._damaged)
        self._damaged = self._store.damaged_reads
        recent = self._store.recent
        for by, count in (("memory", recent.reads_here), ("store", recent.reads_of_store)):
            self._metrics.recent_reads.labels(by).inc(count - self._reads[by])
            self._reads[by] = count
        return found

    def _local_rooms(self) -> Iterator[Room]:
        """One for each file system: store and inventory usually share theirs."""
        seen: set[int] = set()
        for disk, folder in self._folders.items():
            try:
                device, space = folder.stat().st_dev, os.statvfs(folder)
            except OSError as error:
                log.warning("free space of %s cannot be read: %s", folder, error)
                continue
            if device not in seen:
                seen.add(device)
                size = space.f_frsize
                yield Room(disk, space.f_bavail * size, space.f_blocks * size)

    def look_at_parts(self) -> None:
        """Ask the engine. What it cannot answer is not known, and not what it was before."""
        try:
            if self.bound is not None:
                self.bound.look()
            of_all_shards = self._store.placement.of_all_shards
            rows = self._store.query(of_all_shards(PARTS_SQL)).to_pylist()
            if self._store.folder is None:
                [disk] = self._store.query(of_all_shards(DISKS_SQL)).to_pylist()
                self._server_room = Room(STORE_DISK, disk["free"], disk["total"])
        except StoreError as error:
            self._parts, self._series, self._server_room = {}, {}, None
            if not self._is_failing:
                log.warning("the store's parts cannot be read: %s", error)
            self._is_failing = True
            return
        self._is_failing = False
        # A table without a part has none: that is known.
        none = dict.fromkeys(RETAINED_TABLES, (0.0, 0.0))
        self._parts = none | {
            row["table"]: (float(row["parts"]), float(row["held"])) for row in rows
        }
        series: dict[str, int] = next((row for row in rows if row["table"] == "series"), {})
        self._series = {day: float(series.get(day, 0)) for day in DAYS}
