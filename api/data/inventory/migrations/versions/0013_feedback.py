"""What operators say about verdicts, and the windows that those were made from.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0013"
down_revision: str | None = "0012"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "feedback",
        sa.Column("id", NAME, nullable=False),
        sa.Column("incident", NAME, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_feedback"),
    )
    op.create_index("ix_feedback_incident", "feedback", ["incident"])
    op.create_index("ix_feedback_at", "feedback", ["at"])
    op.create_table(
        "cases",
        sa.Column("incident", NAME, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("packed", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("incident", name="pk_cases"),
    )
    op.create_index("ix_cases_at", "cases", ["at"])


def downgrade() -> None:
    """Drop both tables: what operators said is lost."""
    op.drop_table("cases")
    op.drop_table("feedback")
