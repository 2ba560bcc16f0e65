"""Whether switches of the network add up for a communicator.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision: str | None = "0018"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column(
        "communicators",
        sa.Column("is_in_network", sa.Boolean(), nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    """Drop it: such communicators are taken for rings again."""
    op.drop_column("communicators", "is_in_network")
