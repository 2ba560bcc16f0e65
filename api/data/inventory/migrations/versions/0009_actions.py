"""Actions: requests to drain a host, their author, reason and outcome.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Create the table. Holds that stand have no action: an operator set and ends them."""
    op.create_table(
        "actions",
        sa.Column("id", NAME, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("incident", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime()),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_actions"),
    )
    op.create_index("ix_actions_host", "actions", ["host"])
    op.create_index("ix_actions_at", "actions", ["at"])
    op.create_index("ix_actions_state_ended_at", "actions", ["state", "ended_at"])


def downgrade() -> None:
    """Drop the table: holds stand until an operator ends them, and their reasons are lost."""
    op.drop_table("actions")
