"""Connections, transactions and pages of a database; independent of the inventory's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Delete,
    Executable,
    Select,
    Table,
    Update,
    delete,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

from api.base.limits import PAGE_MAX
from api.base.quarantine import Quarantine
from api.data.inventory import migrate
from api.data.inventory.engine import WRITE, explained, open_engine
from api.data.inventory.tables import Base
from collector.contract.errors import InventoryError

ROWS_PER_STATEMENT: Final = 1_000
"""Rows that one statement writes or reads; SQLite takes 32,766 parameters, and a row has 12."""

Record = TypeVar("Record", bound=msgspec.Struct)

NUMBER_MAX: Final = (1 << 63) - 1
"""Of a numbered document; this service never issued a greater one."""

ROAD: Final = "inventory"
"""Under which the quarantine has rows that cannot be read, and things that cannot be written."""

Item = TypeVar("Item")
Made = TypeVar("Made")
Query = Select[Any]
Row = dict[str, Any]
Narrow = Callable[[Query, Any], Query]
"""Adds conditions to a query, given the table's columns."""


class Database:
    """Connects at first use. `migrate` must have run once before the rest."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self.quarantine = Quarantine()
        """Where rows are noted that cannot be used; a service sets its own."""

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

    def rows(self, doing: str, query: Query, record: type[Record]) -> list[Record]:
        with self.reading(doing) as connection:
            found = connection.execute(query).mappings().all()
        return self.sound(doing, found, lambda row: msgspec.convert(dict(row), record))

    def documents(self, doing: str, query: Query, kind: type[Record]) -> list[Record]:
        """The JSON texts that a query finds, decoded."""
        with self.reading(doing) as connection:
            found = connection.execute(query).scalars().all()
        return self.sound(doing, found, lambda text: msgspec.json.decode(text, type=kind))

    def document(self, doing: str, query: Query, kind: type[Record]) -> Record | None:
        return next(iter(self.documents(doing, query.limit(1), kind)), None)

    def numbered(
        self, doing: str, table: Table, after: int, limit: int, kind: type[Record]
    ) -> list[tuple[int, Record]]:
        """Documents with a number greater than one, in order."""
        number = table.c.number
        query = select(number, table.c.document).where(number > max(-1, min(after, NUMBER_MAX)))
        with self.reading(doing) as connection:
            rows = connection.execute(query.order_by(number).limit(limit)).all()
        decode = msgspec.json.Decoder(kind).decode
        return self.sound(doing, rows, lambda row: (row[0], decode(row[1])))

    def sound(self, doing: str, rows: Iterable[Item], make: Callable[[Item], Made]) -> list[Made]:
        """The rows as records. One that cannot be read, of another version say, hides no other."""
        return self.quarantine.sound(ROAD, doing, rows, make)

    def numbers(self, doing: str, table: Table) -> tuple[int, int] | None:
        """The lowest and the highest number that are kept; None: there are none."""
        with self.reading(doing) as connection:
            query = select(func.min(table.c.number), func.max(table.c.number))
            first, last = connection.execute(query).one()
        return None if first is None else (first, last)

    def scalar(self, doing: str, query: Query) -> Any:  # noqa: ANN401 - any column's value
        with self.reading(doing) as connection:
            return connection.scalar(query)

    def execute(self, doing: str, statement: Update | Delete) -> int:
        """How many rows it changed."""
        with self.writing(doing) as connection:
            return int(connection.execute(statement).rowcount)

    def one(self, record: type[Record], table: Table, key: str) -> Record | None:
        (column,) = table.primary_key
        found = self.ask(record, table, lambda query, _: query.where(column == key), 1)
        return found[0] if found else None

    def ask(self, record: type[Record], table: Table, narrow: Narrow, limit: int) -> list[Record]:
        """Rows of a table in the order of its key, as records."""
        if not 1 <= limit <= PAGE_MAX:
            msg = f"limit is {limit}; a page of the inventory holds 1 to PAGE_MAX = {PAGE_MAX}"
            raise InventoryError(msg)
        wanted = [table.c[name] for name in record.__struct_fields__]
        query = narrow(select(*wanted), table.c).order_by(*table.primary_key).limit(limit)
        return self.rows(f"list {table.name}", query, record)

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

    @property
    def quarantine(self) -> Quarantine:
        return self._database.quarantine


def table_of(model: type[Base]) -> Table:
    return Base.metadata.tables[model.__tablename__]


def before_nul(position: str) -> str:
    """The same place in a list of names, without NUL: no name has it and PostgreSQL refuses it."""
    return position.partition("\0")[0]


def in_pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), ROWS_PER_STATEMENT):
        yield items[start : start + ROWS_PER_STATEMENT]


def execute_all(connection: Connection, statement: Executable, rows: Sequence[Row]) -> None:
    for some in in_pieces(rows):
        connection.execute(statement, list(some))


def upsert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Write these rows whole, over those with the same key."""
    keys = [column.name for column in table.primary_key]
    insert = insert_into(connection, table)
    values = {name: insert.excluded[name] for name in table.c.keys() if name not in keys}  # noqa: SIM118 - columns
    write = insert.on_conflict_do_update(index_elements=keys, set_=values)
    execute_all(connection, write, sorted(rows, key=lambda row: [row[name] for name in keys]))


def append(connection: Connection, table: Table, rows: Sequence[Row], kept_max: int) -> None:
    """Add numbered rows, and remove the oldest past a bound. Only a lease's holder may: no gaps."""
    last = connection.scalar(select(func.max(table.c.number))) or 0
    numbered = [{"number": number, **row} for number, row in enumerate(rows, start=last + 1)]
    execute_all(connection, table.insert(), numbered)
    connection.execute(delete(table).where(table.c.number <= last + len(rows) - kept_max))


def delete_past(
    connection: Connection, order: Column[Any], over: ColumnElement[bool], kept_max: int
) -> None:
    """Delete rows that are over, but for the last ``kept_max`` of them by a column."""
    query = select(order).where(over).order_by(order.desc()).offset(kept_max).limit(1)
    if (last := connection.scalar(query)) is not None:
        connection.execute(delete(order.table).where(over, order <= last))


def insert_into(connection: Connection, table: Table) -> Any:  # noqa: ANN401 - either dialect's Insert
    """An INSERT that supports ON CONFLICT, which both databases spell alike."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)
