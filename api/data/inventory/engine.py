"""Opens the database: accepted URLs, connection settings, error messages."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError

from collector.contract.errors import InventoryError

SQLITE_BUSY_MS: Final = 10_000
"""How long a writer waits for another one; a flush of the feed takes well below a second."""
WAL_RETRY_SECONDS: Final = 0.02
CONNECT_SECONDS: Final = 5
"""A PostgreSQL that does not answer by then counts as down; the feed tries again a second later."""
UNACKNOWLEDGED_MS: Final = 15_000
"""Without an acknowledgement for this long the network to PostgreSQL counts as down. Without the
bound a worker thread would hang for the kernel's quarter of an hour."""
POOL_CONNECTIONS: Final = 5

WRITE: Final[dict[str, Any]] = {"fabricscope_write": True}
"""Execution options of a connection that is going to write."""


class InventoryRefusedError(InventoryError):
    """The database works and refuses this very data: a retry will not help."""


def open_engine(url: str) -> Engine:
    """An engine for `sqlite:///path` or `postgresql+psycopg://…`; connects when first used."""
    parsed = parse_url(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed)
            event.listen(engine, "connect", prepare_sqlite)
            event.listen(engine, "begin", begin_sqlite)
            return engine
        return create_engine(
            parsed,
            pool_size=POOL_CONNECTIONS,
            # A restarted PostgreSQL costs one ping, not one failed request per connection.
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_SECONDS,
                "tcp_user_timeout": UNACKNOWLEDGED_MS,
                "application_name": "fabricscope",
            },
        )
    except ImportError as error:
        msg = "PostgreSQL needs the package psycopg: pip install 'fabricscope[postgres]'"
        raise InventoryError(msg) from error


def parse_url(url: str) -> URL:
    """The URL, checked and with the driver set; messages never show the URL itself."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Not chained: the original message may quote a password.
        msg = "the inventory's URL cannot be read; write sqlite:///PATH or postgresql+psycopg://…"
        raise InventoryError(msg) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in {None, "", ":memory:"}:
            msg = "the inventory needs a file (sqlite:///PATH): it outlives the process"
            raise InventoryError(msg)
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    msg = f"the inventory cannot be on {backend}; write sqlite:///PATH or postgresql+psycopg://…"
    raise InventoryError(msg)


def prepare_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - any DBAPI connection
    """Set up a new connection: readers never wait for a writer, and references hold."""
    # Python's driver must not begin transactions by itself; begin_sqlite does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_MS}")
    use_write_ahead_log(cursor)
    # A power cut may cost the last flushes, never the file; samples fill them in again.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def use_write_ahead_log(cursor: Any) -> None:  # noqa: ANN401 - any DBAPI cursor
    """Switch a new file over, once. SQLite does not wait for others who do the same: we do."""
    deadline = time.monotonic() + SQLITE_BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(WAL_RETRY_SECONDS)
        else:
            return


def begin_sqlite(connection: Connection) -> None:
    """Begin: a writer takes its lock at once, since one that upgrades later fails instead."""
    writes = connection.get_execution_options().get("fabricscope_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def place(url: URL) -> str:
    """Where the inventory is, in words without user, password or options."""
    if url.get_backend_name() == "sqlite":
        return f"inventory in {url.database}"
    where = url.host or url.query.get("host") or "the local socket"
    port = f":{url.port}" if url.port else ""
    return f"inventory on PostgreSQL {where}{port}, database {url.database}"


@contextmanager
def explained(url: URL, doing: str) -> Iterator[None]:
    """Turn SQLAlchemy's errors into an InventoryError with a readable message."""
    try:
        yield
    except SQLAlchemyError as error:
        # The driver's own first line: SQLAlchemy's text adds the statement and its parameters.
        origin = error.orig if isinstance(error, DBAPIError) else error
        reason = str(origin).strip().partition("\n")[0]
        if url.password:
            reason = reason.replace(url.password, "***")
        refused = isinstance(error, DataError | IntegrityError)
        kind = InventoryRefusedError if refused else InventoryError
        raise kind(f"{place(url)}: cannot {doing}: {reason}") from error
    except (OverflowError, UnicodeEncodeError) as error:
        # The driver could not even turn a value into the database's form.
        raise InventoryRefusedError(f"{place(url)}: cannot {doing}: {error}") from error
