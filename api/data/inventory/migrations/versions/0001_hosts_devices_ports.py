"""Hosts, their devices and ports, and how far the agents' batches have come.

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import DOCUMENT, NAME, UtcTime

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def seen() -> list[sa.Column[object]]:
    """The columns that every thing has."""
    return [
        sa.Column("first_seen", UtcTime(), nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.Column("attributes", DOCUMENT, nullable=False),
        sa.Column("attribute_times", DOCUMENT, nullable=False),
    ]


def of_a_host(table: str) -> sa.ForeignKeyConstraint:
    """What belongs to a host goes when the host does."""
    return sa.ForeignKeyConstraint(
        ["host"], ["hosts.host"], name=f"fk_{table}_host", ondelete="CASCADE"
    )


def upgrade() -> None:
    op.create_table(
        "hosts",
        sa.Column("host", NAME, nullable=False),
        sa.Column("cluster", sa.Text()),
        sa.Column("agent", sa.Text()),
        sa.Column("agent_version", sa.Text()),
        *seen(),
        sa.PrimaryKeyConstraint("host", name="pk_hosts"),
    )
    op.create_table(
        "devices",
        sa.Column("host", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("device", NAME, nullable=False),
        sa.Column("driver", sa.Text()),
        sa.Column("firmware", sa.Text()),
        *seen(),
        of_a_host("devices"),
        sa.PrimaryKeyConstraint("host", "kind", "device", name="pk_devices"),
    )
    op.create_table(
        "ports",
        sa.Column("host", NAME, nullable=False),
        sa.Column("device", NAME, nullable=False),
        sa.Column("port", NAME, nullable=False),
        sa.Column("link_layer", sa.Text()),
        sa.Column("state", sa.Text()),
        sa.Column("rate_bits_per_second", sa.BigInteger()),
        sa.Column("netdev", sa.Text()),
        sa.Column("guid", sa.Text()),
        *seen(),
        of_a_host("ports"),
        sa.PrimaryKeyConstraint("host", "device", "port", name="pk_ports"),
    )
    op.create_table(
        "agents",
        sa.Column("agent", NAME, nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_received_at", UtcTime(), nullable=False),
        sa.Column("batches_missing", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent", name="pk_agents"),
    )


def downgrade() -> None:
    """Drop the four tables: they fill again by themselves as samples arrive."""
    for table in ("agents", "ports", "devices", "hosts"):
        op.drop_table(table)
