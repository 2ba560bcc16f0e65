"""Inventory queries for placement: where jobs run, and how many GPUs hosts have."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import func, select

from api.base.limits import PLACEMENT_PLACES_MAX
from api.data.inventory.database import Part, table_of
from api.data.inventory.job_rows import JOB_HOSTS, JOB_RANKS, JOBS
from api.data.inventory.records import DeviceKind, JobState
from api.data.inventory.tables import DeviceRow

DEVICES: Final = table_of(DeviceRow)


class RunningPlace(msgspec.Struct, frozen=True):
    """A host of a job that runs."""

    job: str
    title: str
    """The job's name, or its id."""
    host: str
    first_rank: int | None
    """The lowest of the job's ranks there; None if none is known."""


class PlaceTables(Part):
    """Running jobs by host, and GPUs by host; each in one query."""

    def running(self) -> list[RunningPlace]:
        """Hosts of jobs that run, by job and host; PLACEMENT_PLACES_MAX of them at most."""
        ranked = (
            select(JOB_RANKS.c.job, JOB_RANKS.c.host, func.min(JOB_RANKS.c.rank).label("first"))
            .where(JOB_RANKS.c.host.is_not(None))
            .group_by(JOB_RANKS.c.job, JOB_RANKS.c.host)
            .subquery()
        )
        is_same = (ranked.c.job == JOB_HOSTS.c.job) & (ranked.c.host == JOB_HOSTS.c.host)
        query = (
            select(JOB_HOSTS.c.job, JOBS.c.name, JOB_HOSTS.c.host, ranked.c.first)
            .join(JOBS, JOBS.c.job == JOB_HOSTS.c.job)
            .outerjoin(ranked, is_same)
            .where(JOBS.c.state == JobState.RUNNING, JOBS.c.alias_of.is_(None))
            .order_by(JOB_HOSTS.c.job, JOB_HOSTS.c.host)
            .limit(PLACEMENT_PLACES_MAX)
        )
        with self._database.reading("list where jobs run") as connection:
            rows = connection.execute(query).all()
        return [RunningPlace(job, name or job, host, first) for job, name, host, first in rows]

    def gpu_counts(self) -> dict[str, int]:
        """GPUs by host; hosts that report none are absent."""
        query = (
            select(DEVICES.c.host, func.count())
            .where(DEVICES.c.kind == DeviceKind.GPU)
            .group_by(DEVICES.c.host)
        )
        with self._database.reading("count GPUs") as connection:
            return {host: int(count) for host, count in connection.execute(query)}
