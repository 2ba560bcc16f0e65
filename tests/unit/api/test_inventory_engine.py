"""Which database URLs the inventory accepts; no error shows a password."""

from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from api.data.inventory.engine import open_engine, parse_url, place
from api.data.inventory.repository import Inventory
from api.data.inventory.tables import UtcTime
from collector.contract.errors import InventoryError


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:////var/lib/fabricscope/inventory.db", "sqlite+pysqlite"),
        ("postgresql+psycopg://u:p@db/fabricscope", "postgresql+psycopg"),
        ("postgresql://u:p@db/fabricscope", "postgresql+psycopg"),
        ("postgres://u:p@db/fabricscope", "postgresql+psycopg"),
    ],
)
def test_urls_that_are_taken(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://u:geheim@db/x", "cannot be on mysql"),
        ("geheim", "cannot be read"),
        ("postgresql://u:geheim@db:port/x", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_urls_that_are_refused_by_name_and_without_the_password(url: str, why: str) -> None:
    with pytest.raises(InventoryError, match=why) as refused:
        open_engine(url)
    assert "geheim" not in str(refused.value)


def test_the_place_has_no_secrets() -> None:
    url = parse_url("postgresql://user:geheim@db:5433/fs?sslpassword=geheim")
    assert place(url) == "inventory on PostgreSQL db:5433, database fs"
    assert place(parse_url("sqlite:///x/y.db")) == "inventory in x/y.db"


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    # No process listens on port 1 of loopback.
    inventory = Inventory("postgresql://user:geheim@127.0.0.1:1/fs")
    with pytest.raises(InventoryError, match=r"PostgreSQL 127\.0\.0\.1:1, database fs") as failed:
        inventory.ping()
    assert "geheim" not in str(failed.value)
    inventory.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    inventory = Inventory(f"sqlite:///{tmp_path}/absent/inventory.db")
    with pytest.raises(
        InventoryError, match=r"absent/inventory\.db: cannot answer: unable to open"
    ):
        inventory.ping()
    inventory.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inventory.db"
    path.write_bytes(b"this is no database, and long enough to say so" * 100)
    inventory = Inventory(f"sqlite:///{path}")
    with pytest.raises(InventoryError, match="bring the schema up to date: file is not a database"):
        inventory.migrate()
    inventory.close()
    assert path.read_bytes().startswith(b"this is no database"), "the file is unchanged"


def test_sqlite_is_set_up_for_a_service(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/inventory.db")
    with engine.connect() as connection:
        for pragma, value in [
            ("journal_mode", "wal"),
            ("foreign_keys", 1),
            ("busy_timeout", 10000),
        ]:
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    engine.dispose()


def test_a_time_without_a_zone_is_a_mistake() -> None:
    dialect = create_engine("sqlite://").dialect
    with pytest.raises(ValueError, match="no time zone"):
        UtcTime().process_bind_param(datetime(2026, 1, 1), dialect)  # noqa: DTZ001 - the mistake
