"""Parts of an embedded store, frozen at one moment: the engine's own snapshot, made of hard links.

`BACKUP`, the engine's other way, needs a folder that is fixed when the engine starts and writes a
second copy there. Frozen parts take no room until a merge replaces them, and can be read at leisure
while the service goes on. A part is a folder of files that never change.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from api.data.store.rollups import LEDGER_TABLES, ROLLUP_TABLES
from api.data.store.store import RECORD_TABLES, SHADOW, SHADOW_PREFIX, Store
from collector.contract.errors import StoreError

MOVED_TABLES = (*RECORD_TABLES, "series", "metadata", *LEDGER_TABLES, *ROLLUP_TABLES)
"""All tables with data; the ledger of migrations is made where they are restored. In this order:
what says that something is rolled up is frozen before the roll-ups, which may have more, and after
the samples, so that it names all of them that were late."""

PART_NAME = re.compile(r"([A-Za-z0-9-]+)_(\d+)_(\d+)_(\d+)(?:_(\d+))?")
"""Partition, first and last block, level, mutation."""

PATHS_SQL = "SELECT name, data_paths FROM system.tables WHERE database = currentDatabase()"
ROWS_SQL = """
    SELECT table, sum(rows) AS held FROM system.parts
    WHERE active AND database = currentDatabase() GROUP BY table
"""


class FrozenPart(msgspec.Struct, frozen=True):
    """One part of a table."""

    table: str
    name: str
    folder: Path

    @property
    def rows(self) -> int:
        """Rows in it, repeats that no merge has removed among them."""
        return int((self.folder / "count.txt").read_text("ascii"))

    def files(self) -> list[Path]:
        """By name. Raises StoreError for a folder in it: our tables have no projections."""
        found = sorted(self.folder.iterdir())
        if odd := [file.name for file in found if not file.is_file()]:
            raise StoreError(f"part {self.table}/{self.name} has a folder {odd[0]}: not known here")
        return found


def order_of(part: str) -> tuple[str, int, int]:
    """Parts in the order in which their rows were written: of rows with one key the last counts.

    >>> sorted(["20260102_10_12_1", "20260102_9_9_0"], key=order_of)
    ['20260102_9_9_0', '20260102_10_12_1']
    """
    found = PART_NAME.fullmatch(part)
    if found is None:
        raise StoreError(f"{part!r} is not the name of a part")
    return found[1], int(found[2]), int(found[3])


def embedded_folder(store: Store) -> Path:
    if store.folder is None:
        raise StoreError("the store is a ClickHouse server: its own BACKUP statement backs it up")
    return store.folder


@contextlib.contextmanager
def frozen(store: Store) -> Iterator[list[FrozenPart]]:
    """All parts as they are at one moment, by table and in order; gone when this ends.

    No insert of this process ends while the tables are frozen, some milliseconds: so the parts have
    everything that was acknowledged before, and where there are no workers, of all tables up to the
    same moment.
    """
    folder = embedded_folder(store)
    if not store.url.socket:  # else another process may be making a backup
        store.remove_frozen()
    name = f"{SHADOW_PREFIX}{secrets.token_hex(8)}"
    shadow = folder / SHADOW / name
    try:
        with store.holding_writes("freeze") as client:
            for table in MOVED_TABLES:
                client.command(f"ALTER TABLE {table} FREEZE WITH NAME '{name}'")
            held = rows_held(store)
        places = table_folders(store)
        found = {table: parts_in(shadow, table, places[table]) for table in MOVED_TABLES}
        if lost := [table for table in MOVED_TABLES if held[table] and not found[table]]:
            raise StoreError(f"freeze: {lost[0]} has rows, and no part of it was frozen")
        yield [part for parts in found.values() for part in parts]
    finally:
        shutil.rmtree(shadow, ignore_errors=True)


def table_folders(store: Store) -> dict[str, Path]:
    """Where each table's parts lie."""
    rows = store.query(PATHS_SQL).to_pylist()
    return {row["name"]: Path(row["data_paths"][0]) for row in rows if row["data_paths"]}


def parts_in(shadow: Path, table: str, place: Path) -> list[FrozenPart]:
    """A frozen table's parts. Below the shadow lies what lies below the store: store/abc/UUID."""
    folder = shadow.joinpath(*place.parts[-3:])
    if not folder.is_dir():  # a table without a part
        return []
    names = sorted((entry.name for entry in folder.iterdir() if entry.is_dir()), key=order_of)
    return [FrozenPart(table, name, folder / name) for name in names]


def attach(store: Store, table: str, parts: Sequence[Path]) -> None:
    """Move these folders into a table, in the order of their names. They must be on its disk."""
    detached = table_folders(store)[table] / "detached"
    with store.holding_writes(f"attach to {table}") as client:
        for part in sorted(parts, key=lambda each: order_of(each.name)):
            part.rename(detached / part.name)
            client.command(f"ALTER TABLE {table} ATTACH PART '{part.name}'")


def stop_merges(store: Store) -> None:
    """So that rows can be counted: merges remove repeats. Until the engine is closed."""
    with store.holding_writes("stop merges") as client:
        client.command("SYSTEM STOP MERGES")


def rows_held(store: Store) -> dict[str, int]:
    """Rows of each table, 0 where it has no part."""
    rows = store.query(store.placement.of_all_shards(ROWS_SQL)).to_pylist()
    found = {row["table"]: int(row["held"]) for row in rows}
    return {table: found.get(table, 0) for table in MOVED_TABLES}
