"""The inventory in a backup: always an SQLite file, whatever database it comes from or goes to."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine, func, inspect, select

from api.data.backup.manifest import DIGEST_BYTES, BackupError, RowsFacts
from api.data.inventory import migrate
from api.data.inventory.database import ROWS_PER_STATEMENT
from api.data.inventory.engine import WRITE, explained, open_engine, parse_url, place
from api.data.inventory.tables import Base
from collector.contract.errors import InventoryError

DIGESTS = 1 << (8 * DIGEST_BYTES)
TABLES = Base.metadata.sorted_tables
"""Owners before what refers to them."""


def snapshot(url: str, file: Path) -> None:
    """Write the inventory, as it is at one moment, to a new SQLite file; writers go on meanwhile.

    An inventory on PostgreSQL must be at this program's revision: a service brings it there.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        copy_sqlite(Path(str(parsed.database)), file)
        return
    with opened(url) as source, opened(f"sqlite:///{file}") as target:
        migrate.upgrade(target)
        # One snapshot for all tables; it takes no lock that a writer waits for.
        reading = source.connect().execution_options(isolation_level="REPEATABLE READ")
        with explained(source.url, "back up"), reading as rows, writing(target) as written:
            copy_rows(rows, written)


def copy_sqlite(source: Path, target: Path) -> None:
    """SQLite's own online backup, in one step: one transaction, which hinders no writer."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old,
            contextlib.closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
    except sqlite3.Error as error:
        raise InventoryError(f"inventory in {source}: cannot be copied: {error}") from error


def fill(file: Path, url: str) -> None:
    """Bring the rows of a backup's file into an inventory that has none; all, or none of them."""
    with opened(f"sqlite:///{file}") as source, opened(url) as target:
        migrate.upgrade(source)
        with explained(target.url, "restore"):
            migrate.upgrade(target)
            with source.connect() as rows, writing(target) as written:
                copy_rows(rows, written)


def refuse_rows(url: str) -> None:
    """Raise BackupError for an inventory with rows in it; one of tables alone may be filled."""
    with opened(url) as engine, explained(engine.url, "look"), engine.connect() as connection:
        known = set(inspect(connection).get_table_names())
        for table in TABLES:
            if table.name in known and connection.scalar(select(func.count()).select_from(table)):
                raise BackupError(
                    f"{place(engine.url)} is not empty: table {table.name} has rows; name another "
                    "one, or drop this one first"
                )


def facts_of(url: str) -> tuple[str, dict[str, RowsFacts]]:
    """The revision of an inventory, and its tables that this program knows, counted and digested.

    A table that a later revision adds is not there yet, and left out.
    """
    with opened(url) as engine, explained(engine.url, "count rows"), engine.connect() as connection:
        known = set(inspect(connection).get_table_names())
        revision = migrate.current(connection) or ""
        here = [table for table in TABLES if table.name in known]
        if revision != migrate.head():  # its columns may be others: rows can be counted alone
            counts = ((table, select(func.count()).select_from(table)) for table in here)
            found = {table.name: connection.scalar(query) or 0 for table, query in counts}
            return revision, {name: RowsFacts(rows, "") for name, rows in found.items()}
        return revision, {table.name: digested(connection, table.name) for table in here}


def digested(connection: Connection, name: str) -> RowsFacts:
    """Rows, and the sum of their digests: the same on every database, in any order."""
    count = total = 0
    for row in connection.execute(select(Base.metadata.tables[name])):
        text = msgspec.json.encode(list(row), order="deterministic")
        total += int.from_bytes(blake2b(text, digest_size=DIGEST_BYTES).digest(), "big")
        count += 1
    return RowsFacts(count, f"{total % DIGESTS:0{2 * DIGEST_BYTES}x}")


def copy_rows(source: Connection, target: Connection) -> None:
    for table in TABLES:
        found = source.execution_options(yield_per=ROWS_PER_STATEMENT).execute(select(table))
        for some in found.mappings().partitions():
            target.execute(table.insert(), [dict(row) for row in some])


@contextlib.contextmanager
def opened(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    connected = engine.connect().execution_options(**WRITE)
    with connected as connection, connection.begin():
        yield connection
