"""Keys of the service's own: with one of them the links in notices are signed.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0016"
down_revision: str | None = "0015"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "service_keys",
        sa.Column("name", NAME, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_keys"),
    )


def downgrade() -> None:
    """Drop the table: links of notices that were sent open nothing any more."""
    op.drop_table("service_keys")
