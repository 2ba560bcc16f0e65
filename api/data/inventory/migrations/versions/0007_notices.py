"""Notices: the last state sent to each receiver, the outbox, and silences.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "talks",
        sa.Column("talk", NAME, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("talk", name="pk_talks"),
    )
    op.create_table(
        "notices",
        sa.Column("id", NAME, nullable=False),
        sa.Column("talk", NAME, nullable=False),
        sa.Column("receiver", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_critical", sa.Boolean(), nullable=False),
        sa.Column("planned_at", UtcTime(), nullable=False),
        sa.Column("due_at", UtcTime(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", UtcTime()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
    )
    op.create_index("ix_notices_talk", "notices", ["talk"])
    op.create_index("ix_notices_planned_at", "notices", ["planned_at"])
    op.create_index("ix_notices_state_due_at", "notices", ["state", "due_at"])
    op.create_table(
        "silences",
        sa.Column("id", NAME, nullable=False),
        sa.Column("ends_at", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_silences"),
    )
    op.create_index("ix_silences_ends_at", "silences", ["ends_at"])


def downgrade() -> None:
    """Drop the tables: firing alerts are sent again, and waiting notices are lost."""
    op.drop_table("silences")
    op.drop_table("notices")
    op.drop_table("talks")
