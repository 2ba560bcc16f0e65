"""Bearer tokens, without their secrets.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime()),
        sa.Column("used_at", UtcTime()),
        sa.Column("revoked_at", UtcTime()),
        sa.Column("requests_per_second", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )


def downgrade() -> None:
    """Drop the table: only the token file's tokens grant access any more."""
    op.drop_table("tokens")
