"""Databases for tests of the inventory: each question is asked of both kinds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.data.inventory.repository import Inventory
from tests.stands import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.peer("initdb", "postgres"))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/inventory.db"
    return postgres.new_database(request.getfixturevalue("postgres_url"))


@pytest.fixture
def inventory(url: str) -> Iterator[Inventory]:
    inventory = Inventory(url)
    inventory.migrate()
    yield inventory
    inventory.close()
