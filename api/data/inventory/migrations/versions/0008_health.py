"""Holds on hosts, and how the health of things has changed.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "holds",
        sa.Column("id", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.Column("until", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_holds"),
    )
    op.create_index("ix_holds_kind_name", "holds", ["kind", "name"])
    op.create_index("ix_holds_ended_at", "holds", ["ended_at"])
    op.create_table(
        "health_turns",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("time", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_health_turns"),
    )
    op.create_index("ix_health_turns_host", "health_turns", ["host"])


def downgrade() -> None:
    """Drop the tables: all holds are lost, and so is the history of states."""
    op.drop_table("health_turns")
    op.drop_table("holds")
