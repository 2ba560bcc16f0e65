"""Who acknowledged an incident, to whom it was assigned, and notes about it.

Incidents need no migration: their documents have new fields with defaults.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "incident_work",
        sa.Column("id", NAME, nullable=False),
        sa.Column("incident", NAME, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incident_work"),
    )
    op.create_index("ix_incident_work_incident", "incident_work", ["incident"])
    op.create_index("ix_incident_work_at", "incident_work", ["at"])


def downgrade() -> None:
    """Drop the table: who did what about incidents is lost."""
    op.drop_table("incident_work")
