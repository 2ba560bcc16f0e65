"""Requests for agents' raw fast samples.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import DOCUMENT, NAME, UtcTime

revision = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "captures",
        sa.Column("agent", NAME, nullable=False),
        sa.Column("id", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("seconds_before", sa.Double(), nullable=False),
        sa.Column("seconds_after", sa.Double(), nullable=False),
        sa.Column("devices", DOCUMENT, nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("samples", sa.BigInteger()),
        sa.Column("requested_at", UtcTime(), nullable=False),
        sa.Column("handed_at", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.PrimaryKeyConstraint("agent", "id", name="pk_captures"),
    )
    op.create_index("ix_captures_state", "captures", ["state"])


def downgrade() -> None:
    """Drop the table: requests are lost, what was captured is not."""
    op.drop_table("captures")
