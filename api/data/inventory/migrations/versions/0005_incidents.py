"""Incidents, what happened to them, and leases of tasks that only one process may do.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.Column("closed", UtcTime()),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_state", "incidents", ["state"])
    op.create_index("ix_incidents_last_seen", "incidents", ["last_seen"])
    op.create_table(
        "incident_names",
        sa.Column("incident", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"],
            ["incidents.id"],
            name="fk_incident_names_incident",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident", "kind", "name", name="pk_incident_names"),
    )
    op.create_index("ix_incident_names_kind_name", "incident_names", ["kind", "name"])
    op.create_table(
        "incident_changes",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("incident", NAME, nullable=False),
        sa.Column("time", UtcTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_incident_changes"),
    )
    op.create_table(
        "leases",
        sa.Column("task", NAME, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", UtcTime(), nullable=False),
        sa.Column("done_at", UtcTime()),
        sa.PrimaryKeyConstraint("task", name="pk_leases"),
    )


def downgrade() -> None:
    """Drop the tables: incidents are lost, the verdicts behind them are not."""
    op.drop_table("leases")
    op.drop_table("incident_changes")
    op.drop_table("incident_names")
    op.drop_table("incidents")
