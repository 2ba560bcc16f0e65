"""Alerts that stand, and how the evaluation of their rule groups went.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("rule_group", NAME, nullable=False),
        sa.Column("rule", NAME, nullable=False),
        sa.Column("fingerprint", NAME, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rule_group", "rule", "fingerprint", name="pk_alerts"),
    )
    op.create_table(
        "rule_groups",
        sa.Column("rule_group", NAME, nullable=False),
        sa.Column("evaluated_at", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rule_group", name="pk_rule_groups"),
    )


def downgrade() -> None:
    """Drop the tables: alerts are pending again, and `for` restarts."""
    op.drop_table("rule_groups")
    op.drop_table("alerts")
