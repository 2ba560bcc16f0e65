"""Brings the inventory's schema to the version that this program needs.

Alembic, without its command line and its ini file: everything it needs is in the package. All
steps run in one transaction on both databases, so a failed upgrade leaves the old schema.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from api.data.inventory.engine import WRITE
from collector.contract.errors import InventoryError

FOLDER: Final = Path(__file__).parent / "migrations"

LOCK_KEY: Final = 0x6661_6272_6963
"""Advisory lock of PostgreSQL ("fabric"): service processes that start together take turns."""

ALEMBIC: Final = threading.Lock()
"""Alembic's `op` and `context` are one for the whole process: two threads would mix them up."""


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    connected = engine.connect().execution_options(**WRITE)
    with ALEMBIC, connected as connection, connection.begin():
        yield connection


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema up to a revision; does nothing when it is there already."""
    with migrating(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        try:
            command.upgrade(configured(connection), revision)
        except CommandError as error:
            raise InventoryError(
                f"the inventory's schema is at revision {current(connection)}, which this program "
                f"does not know ({error}); run the Fabricscope that made it, or a newer one"
            ) from error


def downgrade(engine: Engine, revision: str) -> None:
    """Take the schema back to a revision (`base`: nothing left). Loses what the steps added."""
    with migrating(engine) as connection:
        command.downgrade(configured(connection), revision)


def current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """The revision that this program needs."""
    return ScriptDirectory.from_config(settings()).get_current_head() or ""


def configured(connection: Connection) -> Config:
    """The settings, with the connection that env.py is to use."""
    config = settings()
    config.attributes["connection"] = connection
    return config


def settings() -> Config:
    """Alembic's settings: our folder."""
    config = Config()
    # Config interpolates: a percent sign in the path must be doubled.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
