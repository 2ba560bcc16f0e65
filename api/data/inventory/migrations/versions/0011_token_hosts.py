"""Hosts that a token may send telemetry of; those that there are may send of any.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("hosts", sa.Text(), nullable=False, server_default="*"))


def downgrade() -> None:
    """Drop the bindings: every token that may send then sends of any host."""
    op.drop_column("tokens", "hosts")
