"""Leases with an epoch and a bound for samples, and what evaluators saw of each other's jobs.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0017"
down_revision: str | None = "0016"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("since", UtcTime(), nullable=True))
    for name in ("epoch", "samples_until"):
        number = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("leases", number)
    op.create_table(
        "job_looks",
        sa.Column("job", NAME, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("looked_ns", sa.BigInteger(), nullable=False),
        sa.Column("is_quiet", sa.Boolean(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_job_looks"),
    )


def downgrade() -> None:
    """Drop what several evaluators need: one of them does all of the work again."""
    op.drop_table("job_looks")
    for name in ("samples_until", "epoch", "since"):
        op.drop_column("leases", name)
