"""Run by Alembic, in the transaction that `api.data.inventory.migrate` opened."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from api.data.inventory.tables import Base


def run() -> None:
    connection = context.config.attributes["connection"]
    assert isinstance(connection, Connection)
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        # SQLite cannot alter a column; Alembic copies the table instead.
        render_as_batch=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
