"""Kills a migration before each of its statements, and migrates again.

`python -m tests.chaos.migrations store FOLDER` and `… inventory URL` print what they did as JSON.
A program of its own, because it forks: importing takes seconds, a fork milliseconds, and neither
the engine nor a connection is open in the process that forks.

What a statement leaves when the process dies after it is what the process finds that dies before
the next one, so each statement is met once, and the end of a migration once more.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from sqlalchemy import (
    JSON,
    Boolean,
    DateTime,
    Float,
    Integer,
    MetaData,
    Numeric,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import make_url

from api.data.ingest.columns import SampleColumns
from api.data.inventory import migrate
from api.data.inventory.engine import open_engine
from api.data.store import migrate as store_migrate
from api.data.store.store import Store, StoreUrl

NEVER = 1 << 30
NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Trial(msgspec.Struct):
    """What all kills together came to."""

    kills: int = 0
    migrations: int = 0
    differences: list[str] = []
    """Schemas, or rows, that were not what an undisturbed run leaves."""


def forked(work: Callable[[], object]) -> tuple[int, Any]:
    """Run this in a process of its own; how it ended, and what it returned."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reads)
            with os.fdopen(writes, "wb") as answer:
                answer.write(msgspec.json.encode(work()))
            status = 0
        except BaseException:  # noqa: BLE001 - shown, and the process ends here
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        text_ = answer.read()
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended), msgspec.json.decode(text_) if text_ else None


def answered(work: Callable[[], object]) -> Any:  # noqa: ANN401 - what the work returns
    status, answer = forked(work)
    assert status == 0, f"it ended with {status}"
    return answer


def killed_at(number: int, work: Callable[[Callable[[], None]], object]) -> bool:
    """Kill the work when it calls back for this time; whether it came so far."""
    calls = itertools.count()

    def step() -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    status, _ = forked(lambda: work(step))
    assert status in {0, -signal.SIGKILL}, f"it ended with {status}"
    return status != 0


# The store ---------------------------------------------------------------------------------------

RETENTION = {"collectives": 7, "samples": 3_000}
SCHEMA = """
    SELECT name, create_table_query FROM system.tables
    WHERE database = currentDatabase() ORDER BY name"""


def open_store(folder: Path) -> Store:
    return Store(StoreUrl.parse(f"chdb://{folder}"), retention_days=RETENTION)


def migrate_store(folder: Path, count: int, step: Callable[[], None] = lambda: None) -> None:
    """The first so many migrations; ``step`` is called before each statement, and at the end."""
    store = open_store(folder)
    writer = store._writer

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            step()
            return call(*given, **named)

        return counting

    known = store_migrate.load_migrations()
    # Retention is of all tables: it comes after the last migration.
    retention = RETENTION if count == len(known) else {}
    with (
        patch.object(writer, "command", counted(writer.command)),
        patch.object(writer, "insert", counted(writer.insert)),
        patch.object(store_migrate, "load_migrations", lambda: known[:count]),
        patch.object(store, "_retention_days", retention),
    ):
        store.migrate()
        step()
    store.close()


def last_store() -> int:
    return len(store_migrate.load_migrations())


def fill_store(folder: Path) -> None:
    store = open_store(folder)
    ones = np.arange(3)
    samples = SampleColumns(
        ones.astype(np.uint32),
        ones.astype(np.uint64),
        (ones + round(NOW.timestamp()) * 1000).astype(np.int64),
        (ones + 0.5).astype(np.float64),
    )
    store.insert_samples(samples)
    store.close()


def show_store(folder: Path) -> list[Any]:
    store = open_store(folder)
    tables = store.query(SCHEMA).to_pylist()
    ledger = store.query(
        "SELECT number, name, digest FROM migrations FINAL ORDER BY number"
    ).to_pylist()
    samples = store.query(
        "SELECT metric, series, value FROM samples FINAL ORDER BY metric"
    ).to_pylist()
    store.close()
    return [tables, ledger, samples]


def mended_store(folder: Path) -> list[Any]:
    """What the next start makes of it."""
    migrate_store(folder, last_store())
    return show_store(folder)


def try_store(folder: Path) -> Trial:
    """Each migration is killed on a copy of a store that all before it have made and filled."""
    trial, last = Trial(differences=[]), last_store()
    whole, copy = folder / "whole", folder / "copy"
    for count in range(1, last + 1):
        base = folder / f"base-{count}"
        base.mkdir(parents=True)
        if count > 1:
            answered(partial(migrate_store, base, count - 1))
            answered(partial(fill_store, base))
        replace(base, whole)
        expected = answered(partial(mended_store, whole))
        trial.migrations += 1
        for number in itertools.count():
            replace(base, copy)
            if not killed_at(number, partial(migrate_store, copy, count)):
                break
            trial.kills += 1
            if answered(partial(mended_store, copy)) != expected:
                trial.differences.append(f"migration {count}, before statement {number}")
    return trial


def replace(source: Path, target: Path) -> None:
    """A copy of a folder, instead of the last one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)


# The inventory -----------------------------------------------------------------------------------


class Place:
    """Databases of one kind: a file each, or one of a PostgreSQL server each."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._is_file = self._url.get_backend_name() == "sqlite"

    def url(self, name: str) -> str:
        if self._is_file:
            return f"sqlite:///{self._url.database}/{name}.db"
        return self._url.set(database=name).render_as_string(hide_password=False)

    def copy(self, source: str, name: str) -> None:
        """A database like another one that no process has open; instead of the last of its name."""
        if self._is_file:
            folder = Path(str(self._url.database))
            for rest in folder.glob(f"{name}.db*"):
                rest.unlink()
            if (folder / f"{source}.db").exists():
                shutil.copyfile(folder / f"{source}.db", folder / f"{name}.db")
            return
        engine = open_engine(str(self._url.render_as_string(hide_password=False)))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {source or 'template0'}"))
        engine.dispose()


def upgrade(url: str, revision: str, step: Callable[[], None] = lambda: None) -> None:
    """``step`` is called before each statement, before the commit and after it."""
    engine = open_engine(url)
    event.listen(engine, "before_cursor_execute", lambda *_: step())
    event.listen(engine, "commit", lambda *_: step())
    migrate.upgrade(engine, revision)
    step()
    engine.dispose()


def fill_inventory(url: str) -> None:
    """A row in every table that is there."""
    engine = open_engine(url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name != "alembic_version":
                connection.execute(
                    table.insert(), {column.name: sample(column.type) for column in table.columns}
                )
    engine.dispose()


def sample(kind: object) -> object:
    """A value of a column's type."""
    if isinstance(kind, DateTime):
        return NOW
    if isinstance(kind, Boolean):
        return True
    if isinstance(kind, JSON):
        return {"a": "b"}
    return 1 if isinstance(kind, Integer | Numeric | Float) else "x"


def show_inventory(url: str) -> list[str]:
    """The schema and all rows, as text."""
    engine = open_engine(url)
    lines = []
    found = inspect(engine)
    tables = MetaData()
    tables.reflect(engine)
    for table in tables.sorted_tables:
        lines += [
            f"{table.name}.{column.name} {column.type!r} {column.nullable}"
            for column in table.columns
        ]
        lines.append(f"{table.name} {found.get_pk_constraint(table.name)}")
        for many in (found.get_indexes, found.get_foreign_keys, found.get_unique_constraints):
            lines += sorted(f"{table.name} {one}" for one in many(table.name))
        with engine.connect() as connection:
            rows = connection.execute(table.select()).all()
        lines += sorted(f"{table.name}: {tuple(row)}" for row in rows)
    engine.dispose()
    return lines


def mended_inventory(url: str) -> list[str]:
    """What the next start makes of it."""
    upgrade(url, "head")
    return show_inventory(url)


def revisions() -> list[str]:
    names = (migrate.FOLDER / "versions").glob("[0-9]*.py")
    return sorted(path.name.partition("_")[0] for path in names)


def try_inventory(url: str) -> Trial:
    """Each migration is killed on a copy of an inventory that those before it made and filled."""
    trial, place = Trial(differences=[]), Place(url)
    before = ""
    for revision in revisions():
        base = f"base_{revision}"
        place.copy("", base)
        if before:
            answered(partial(upgrade, place.url(base), before))
            answered(partial(fill_inventory, place.url(base)))
        place.copy(base, "whole")
        whole = place.url("whole")
        expected = answered(partial(mended_inventory, whole))
        trial.migrations += 1
        killed = place.url("killed")
        for number in itertools.count():
            place.copy(base, "killed")
            if not killed_at(number, partial(upgrade, killed, revision)):
                break
            trial.kills += 1
            if answered(partial(mended_inventory, killed)) != expected:
                trial.differences.append(f"revision {revision}, before statement {number}")
        before = revision
    return trial


def main(kind: str, where: str) -> None:
    trial = try_store(Path(where)) if kind == "store" else try_inventory(where)
    sys.stdout.write(msgspec.json.encode(trial).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
