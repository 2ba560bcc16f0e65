"""Configurations that are rolled out to agents, and what each agent reported.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0018"
down_revision: str | None = "0017"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "configurations",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("rollout", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_configurations"),
    )
    op.create_table(
        "agent_configurations",
        sa.Column("agent", NAME, nullable=False),
        sa.Column("good", sa.Integer(), nullable=False),
        sa.Column("trying", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("heard_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("agent", name="pk_agent_configurations"),
    )
    op.create_index("ix_agent_configurations_heard_at", "agent_configurations", ["heard_at"])


def downgrade() -> None:
    """Drop the tables: agents keep what they run, and no roll-out reaches them."""
    op.drop_table("agent_configurations")
    op.drop_table("configurations")
