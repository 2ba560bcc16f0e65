"""A store's tables to another store: partition by partition, each counted and digested on both.

The engine that is embedded here sends a partition by HTTP itself (its `url` function), so no row
passes through Python and memory is the engine's. Rows are read FINAL, and tables of the target
remove repeats, so a partition that was sent in part is sent again and is right after that. What is
done is seen by comparing, and not by a list that could be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote, urlsplit

import msgspec

from api.data.backup.manifest import BackupError
from api.data.store.frozen import MOVED_TABLES, rows_held, table_folders
from api.data.store.shards import standing_on
from api.data.store.store import LEDGER_SHARD, RETAINED_TABLES, Store

MOVES = "moves"
MOVES_SQL = """
CREATE TABLE IF NOT EXISTS moves {{on_cluster}}
(
    source String,
    began  DateTime64(3, 'UTC') DEFAULT now64(3),
    ended  Nullable(DateTime64(3, 'UTC'))
)
ENGINE = {{engine}}
ORDER BY source
"""
"""In the target: which store is moved there, so that rows of another one are not taken for its."""

PARTITIONS_SQL = """
    SELECT DISTINCT partition_id AS id FROM system.parts
    WHERE active AND database = currentDatabase() AND table = {table:String} ORDER BY id
"""
COLUMNS_SQL = """
    SELECT name, startsWith(type, 'Nullable') AS nullable FROM system.columns
    WHERE database = currentDatabase() AND table = {table:String}
        AND default_kind NOT IN ('ALIAS', 'MATERIALIZED') ORDER BY position
"""


class Tally(msgspec.Struct, frozen=True):
    """Rows of a partition without repeats, and the sum of their digests."""

    rows: int
    digest: int


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is in both stores, the same. ``is_new``: it was sent now."""

    table: str
    partition: str
    rows: int
    is_new: bool


def source_id(source: Store) -> str:
    """Recognises a store: the id that its engine gave to a table when it made it."""
    return table_folders(source)["samples"].name


def prepare(source: Store, target: Store) -> bool:
    """Make tables and note the move; whether it has ended already. Refuses rows of others.

    A target that has never been migrated has no tables; after `Store.migrate` all are there.
    """
    own = source_id(source)
    with target.holding_writes("note the move") as client:
        for statement in target.statements(MOVES_SQL):
            client.command(statement)
    # Appended, as all tables are: of one source the last row counts.
    found = target.query("SELECT source, isNotNull(ended) AS is_over FROM moves FINAL").to_pylist()
    if foreign := [row["source"] for row in found if row["source"] != own]:
        raise BackupError(f"the target has the rows of another store ({foreign[0][:60]})")
    if not found:
        if filled := [table for table, rows in rows_held(target).items() if rows]:
            raise BackupError(
                f"the target is not empty: {filled[0]} has rows that were not moved from here; "
                "name a database of its own"
            )
        note(target, own, is_over=False)
    return any(row["is_over"] for row in found)


def note(target: Store, source: str, *, is_over: bool) -> None:
    ended = "now64(3)" if is_over else "NULL"
    with target.holding_writes("note the move") as client:
        client.command(
            f"INSERT INTO moves (source, ended) SELECT {{source:String}}, {ended}",
            parameters={"source": source},
            settings=target.shard_settings(LEDGER_SHARD),
        )


def move(source: Store, target: Store, show: Callable[[str], None]) -> Iterator[Moved]:
    """All partitions, one after the other; raises BackupError for one that differs after it."""
    for table in MOVED_TABLES:
        rows = source.query(PARTITIONS_SQL, {"table": table})
        for partition in rows["id"].to_pylist():
            show(f"move: {table} {partition}")
            here = tally(source, table, partition)
            is_new = tally(target, table, partition) != here
            if is_new:
                for shard in range(1, target.url.shards + 1):
                    send(source, target, table, partition, shard)
                target.sync(table)
                there = tally(target, table, partition)
                if there != here:
                    raise BackupError(
                        f"{table} {partition}: {here.rows} rows here, {there.rows} there, or other "
                        "ones; does another program write to either? Run this again"
                    )
            yield Moved(table=table, partition=partition, rows=here.rows, is_new=is_new)


def tally(store: Store, table: str, partition: str) -> Tally:
    columns = [
        f"ifNull(toString({row['name']}), '')" if row["nullable"] else str(row["name"])
        for row in store.query(COLUMNS_SQL, {"table": table}).to_pylist()
    ]
    sql = (
        f"SELECT count() AS n, sum(cityHash64({', '.join(columns)})) AS digest "  # noqa: S608 - ours
        f"FROM {table} FINAL WHERE _partition_id = {{partition:String}}"
    )
    # It reads a whole day: longer than any answer may take.
    settings = {"max_execution_time": "0"}
    [row] = store.query(sql, {"partition": partition}, settings=settings).to_pylist()
    return Tally(row["n"], row["digest"])


def send(source: Store, target: Store, table: str, partition: str, shard: int) -> None:
    """The rows of a partition that stand on this shard: all, where there is but one."""
    columns = source.query(COLUMNS_SQL, {"table": table})["name"].to_pylist()
    names = ", ".join(columns)
    parts = urlsplit(target.url.dsn)
    settings = target.shard_settings(shard) or {}
    is_there = f"AND {standing_on(table, shard, target.url.shards)}" if settings else ""
    if settings:
        # Tables remove repeats; a partition that was dropped there may be sent once more.
        settings |= {"insert_deduplicate": "0", "insert_quorum": "auto", "async_insert": "0"}
    insert = quote(f"INSERT INTO {table} ({names}) FORMAT Native", safe="")
    where = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    address = f"{parts.scheme}://{where}/?database={quote(target.url.database)}&query={insert}"
    address += "".join(f"&{name}={value}" for name, value in settings.items())
    headers = {
        "X-ClickHouse-User": unquote(parts.username or "default"),
        "X-ClickHouse-Key": unquote(parts.password or ""),
    }
    pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in headers.items())
    with source.holding_writes(f"send {table} {partition}") as client:
        client.command(
            f"INSERT INTO FUNCTION url({literal(address)}, Native, headers({pairs})) "  # noqa: S608
            f"SELECT {names} FROM {table} FINAL "
            f"WHERE _partition_id = {literal(partition)} {is_there}"
        )


def literal(text: str) -> str:
    r"""An SQL text.

    >>> literal("it's")
    "'it\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def retention_of(source: Store) -> dict[str, int]:
    """Days that a store keeps its tables: the target keeps them as long."""
    return {table: source.retention(table) for table in RETAINED_TABLES}
