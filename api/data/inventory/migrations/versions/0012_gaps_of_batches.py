"""Where the gaps in an agent's batches are, so that a backlog that comes late fills them.

Rows from before have none: what they miss stays counted, and first_sequence is 0.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    document = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column(
        "agents", sa.Column("first_sequence", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("agents", sa.Column("gaps", document, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop the places; `batches_missing` has how many they are."""
    op.drop_column("agents", "gaps")
    op.drop_column("agents", "first_sequence")
