"""Jobs, their hosts and ranks, their communicators and who is in them.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from api.data.inventory.tables import DOCUMENT, NAME, UtcTime

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def of_a_job(table: str) -> sa.ForeignKeyConstraint:
    """What belongs to a job goes when the job does."""
    return sa.ForeignKeyConstraint(
        ["job"], ["jobs.job"], name=f"fk_{table}_job", ondelete="CASCADE"
    )


def create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job", NAME, nullable=False),
        *(sa.Column(name, sa.Text()) for name in ("name", "user", "scheduler", "cluster")),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("alias_of", NAME),
        sa.Column("started_at", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.Column("ranks", sa.BigInteger()),
        sa.Column("groups", DOCUMENT, nullable=False),
        sa.Column("attributes", DOCUMENT, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", UtcTime(), nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_jobs"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_table(
        "job_hosts",
        sa.Column("job", NAME, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        of_a_job("job_hosts"),
        sa.PrimaryKeyConstraint("job", "host", name="pk_job_hosts"),
    )
    op.create_index("ix_job_hosts_host", "job_hosts", ["host"])
    op.create_table(
        "job_ranks",
        sa.Column("job", NAME, nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("host", sa.Text()),
        sa.Column("pid", sa.BigInteger()),
        *(sa.Column(name, sa.Text()) for name in ("gpu", "gpu_uuid", "device", "devices", "port")),
        sa.Column("local_rank", sa.BigInteger()),
        sa.Column("origins", DOCUMENT, nullable=False),
        of_a_job("job_ranks"),
        sa.PrimaryKeyConstraint("job", "rank", name="pk_job_ranks"),
    )


def upgrade() -> None:
    create_jobs()
    op.create_table(
        "communicators",
        sa.Column("communicator", NAME, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("ranks", sa.BigInteger()),
        sa.Column("nodes", sa.BigInteger()),
        sa.Column("rings", DOCUMENT, nullable=False),
        sa.Column("trees", DOCUMENT, nullable=False),
        sa.Column("first_seen", UtcTime(), nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        of_a_job("communicators"),
        sa.PrimaryKeyConstraint("communicator", "job", name="pk_communicators"),
    )
    op.create_index("ix_communicators_job", "communicators", ["job"])
    op.create_table(
        "members",
        sa.Column("communicator", NAME, nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("job_rank", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["communicator", "job"],
            ["communicators.communicator", "communicators.job"],
            name="fk_members_communicator_job",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("communicator", "job", "rank", name="pk_members"),
    )
    op.create_index("ix_members_job", "members", ["job"])


def downgrade() -> None:
    """Drop the five tables: what was registered is lost, the rest is found out again."""
    for table in ("members", "communicators", "job_ranks", "job_hosts", "jobs"):
        op.drop_table(table)
