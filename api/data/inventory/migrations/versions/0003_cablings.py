"""What was cabled to what and when; and which hosts are switches.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import NAME, UtcTime

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None

KEY = ("host", "device", "port", "method")
PEER = ("peer_name", "peer_port", "peer_guid", "peer_chassis", "peer_port_id")


def upgrade() -> None:
    """Give hosts a role, and create the table of cablings."""
    op.add_column("hosts", sa.Column("role", sa.Text(), nullable=False, server_default="host"))
    op.create_table(
        "cablings",
        *(sa.Column(name, NAME, nullable=False) for name in KEY),
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in PEER),
        sa.Column("since", UtcTime(), nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.Column("until", UtcTime()),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.host"], name="fk_cablings_host", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(*KEY, "number", name="pk_cablings"),
    )


def downgrade() -> None:
    """Drop the table: what is cabled now is seen again, what was is lost."""
    op.drop_table("cablings")
    op.drop_column("hosts", "role")
