"""Connections, transactions and pages of a database; independent of the inventory's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Select, Table, select, text
from sqlalchemy.dialects import postgresql, sqlite

from api.base.limits import PAGE_MAX
from api.data.inventory import migrate
from api.data.inventory.engine import WRITE, explained, open_engine
from api.data.inventory.tables import Base
from collector.contract.errors import InventoryError

ROWS_PER_STATEMENT: Final = 1_000
"""Rows that one statement writes or reads; SQLite takes 32,766 parameters, and a row has 12."""

Record = TypeVar("Record", bound=msgspec.Struct)

Query = Select[Any]
Narrow = Callable[[Query, Any], Query]
"""Adds conditions to a query, given the table's columns."""


class Database:
    """Connects at first use. `migrate` must have run once before the rest."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def migrate(self) -> None:
        """Bring the schema to this program's version; several processes may try at once."""
        with explained(self._engine.url, "bring the schema up to date"):
            migrate.upgrade(self._engine)

    def ping(self) -> None:
        """Return if the database answers, else raise InventoryError."""
        with self.reading("answer") as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self._engine.dispose()

    def ask(self, record: type[Record], table: Table, narrow: Narrow, limit: int) -> list[Record]:
        """Rows of a table in the order of its key, as records."""
        if not 1 <= limit <= PAGE_MAX:
            msg = f"limit is {limit}; a page of the inventory holds 1 to PAGE_MAX = {PAGE_MAX}"
            raise InventoryError(msg)
        wanted = [table.c[name] for name in record.__struct_fields__]
        query = narrow(select(*wanted), table.c).order_by(*table.primary_key).limit(limit)
        with self.reading(f"list {table.name}") as connection:
            rows = connection.execute(query).mappings().all()
        return [msgspec.convert(dict(row), record) for row in rows]

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A connection whose transaction sees one state of the inventory."""
        with explained(self._engine.url, doing), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """A connection whose transaction is committed, or undone as a whole."""
        with (
            explained(self._engine.url, doing),
            self._engine.connect().execution_options(**WRITE) as connection,
            connection.begin(),
        ):
            yield connection


class Part:
    """Tables of one subject. All parts of an inventory share its database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def table_of(model: type[Base]) -> Table:
    return Base.metadata.tables[model.__tablename__]


def before_nul(position: str) -> str:
    """The same place in a list of names, without NUL: no name has it and PostgreSQL refuses it."""
    return position.partition("\0")[0]


def insert_into(connection: Connection, table: Table) -> Any:  # noqa: ANN401 - either dialect's Insert
    """An INSERT that supports ON CONFLICT, which both databases spell alike."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)
