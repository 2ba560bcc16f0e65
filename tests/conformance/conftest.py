"""Databases for tests of the inventory: each question is asked of both kinds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.data.inventory.repository import Inventory
from tests.stands import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgres(postgres_url: str) -> str:
    """A database with all migrations, to be copied: they take three times as long as a copy."""
    url = postgres.new_database(postgres_url)
    migrate(url)
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    path = tmp_path_factory.mktemp("migrated") / "inventory.db"
    migrate(f"sqlite:///{path}")
    return path


def migrate(url: str) -> None:
    inventory = Inventory(url)
    inventory.migrate()
    inventory.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.peer("initdb", "postgres"))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of its own: empty, or with all migrations where a test has an inventory."""
    is_migrated = "inventory" in request.fixturenames
    if request.param == "sqlite":
        path = tmp_path / "inventory.db"
        if is_migrated:
            shutil.copyfile(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"
    template = request.getfixturevalue("migrated_postgres") if is_migrated else ""
    return postgres.new_database(request.getfixturevalue("postgres_url"), template)


@pytest.fixture
def inventory(url: str) -> Iterator[Inventory]:
    inventory = Inventory(url)
    inventory.migrate()
    yield inventory
    inventory.close()
