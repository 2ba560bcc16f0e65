"""Who asked for a capture, and why: a person, or the service for an incident.

Rows from before have neither.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    for name in ("by", "why"):
        op.add_column("captures", sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop both: captures stay, without who asked."""
    for name in ("why", "by"):
        op.drop_column("captures", name)
