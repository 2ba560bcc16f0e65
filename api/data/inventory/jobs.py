"""The inventory's jobs: registered by people, sighted at schedulers, inferred from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from api.base.limits import PAGE_DEFAULT
from api.data.inventory.database import Part, Query, Row, before_nul, in_pieces
from api.data.inventory.job_model import FACTS, EarlierJob, JobFound, JobRank, Origin
from api.data.inventory.job_rows import (
    COMMUNICATORS,
    JOB_HOSTS,
    JOB_RANKS,
    JOBS,
    MEMBERS,
    as_said,
    change_row,
    hosts_of,
    lock_job,
    make_aliases,
    moment,
    nanoseconds,
    open_job,
    ranks_of,
    write_communicators,
    write_hosts,
    write_ranks,
)
from api.data.inventory.records import (
    Communicator,
    CommunicatorMember,
    Job,
    JobChange,
    JobOrigin,
    JobSaid,
    JobState,
)
from api.data.inventory.sightings import is_name
from collector.contract.errors import InventoryError

DIFFERENCES_SHOWN_MAX: Final = 10
"""Contradictions to a registered job in one error message; more would not be read."""

COLUMNS_SAID: Final = ("name", "user", "scheduler", "cluster", "started_at")


class JobConflictError(InventoryError):
    """A request contradicts the registered job; `differences` lists the fields."""

    def __init__(self, job: str, differences: Sequence[str]) -> None:
        shown = "; ".join(differences[:DIFFERENCES_SHOWN_MAX])
        more = len(differences) - DIFFERENCES_SHOWN_MAX
        super().__init__(f"job {job!r} is registered otherwise: {shown}" + more_words(more))
        self.differences = tuple(differences)


def more_words(more: int) -> str:
    return f"; and {more} more" if more > 0 else ""


class JobTables(Part):
    """Jobs, their ranks and communicators."""

    # --- registration --------------------------------------------------------------------------

    def register(self, job: JobSaid, now: datetime) -> bool:
        """Keep a job; False if it was registered before with the same content.

        A job that was only sighted or inferred until now becomes a registered one. Raises
        JobConflictError if it was registered otherwise.
        """
        with self._database.writing("register a job") as connection:
            row = lock_job(connection, job.id)
            if row is not None and row["alias_of"] is not None:
                raise JobConflictError(job.id, [f"it is an alias of {row['alias_of']!r}"])
            if row is not None and row["origin"] == JobOrigin.REGISTERED:
                if differences := differences_of(connection, row, job):
                    raise JobConflictError(job.id, differences)
                return False
            row = open_job(connection, job.id, JobOrigin.REGISTERED, now)
            columns = {name: getattr(job, name) for name in COLUMNS_SAID}
            given = {name: value for name, value in columns.items() if value is not None}
            write_said(connection, row, job)
            change_row(
                connection,
                row,
                **given,
                origin=JobOrigin.REGISTERED,
                groups=job.groups or row["groups"],
                attributes={**row["attributes"], **job.attributes},
                ranks=len(job.ranks) or row["ranks"],
                revision=row["revision"] + 1,
            )
        return True

    def change(self, name: str, change: JobChange, now: datetime) -> bool:
        """False if there is no job of this name."""
        with self._database.writing("change a job") as connection:
            row = lock_job(connection, name) if is_name(name) else None
            if row is None or row["alias_of"] is not None:
                return False
            write_said(connection, row, change)
            attributes = {**row["attributes"], **change.attributes}
            known = count_ranks(connection, name) if change.ranks else row["ranks"]
            change_row(
                connection,
                row,
                **changed_columns(change, now),
                attributes={key: text for key, text in attributes.items() if text is not None},
                ranks=max(known or 0, row["ranks"] or 0) or None,
                revision=row["revision"] + 1,
            )
        return True

    # --- found out -----------------------------------------------------------------------------

    def keep(self, found: JobFound, now: datetime) -> None:
        first, last = moment(found.first_ns), min(moment(found.last_ns), now)
        origin = JobOrigin.SCHEDULER if found.was_said else JobOrigin.INFERRED
        with self._database.writing("keep a job") as connection:
            row = open_job(connection, found.job, origin, last)
            if row["alias_of"] is not None:
                return  # another process knows more by now; the next look will know it too
            write_hosts(connection, found.job, found.hosts, Origin.RECORDS)
            write_ranks(connection, found.job, found.places)
            write_communicators(connection, found.job, found.communicators)
            values: dict[str, Any] = {
                "ranks": max(row["ranks"] or 0, found.ranks) or None,
                "first_seen": min(row["first_seen"], first),
                "last_seen": max(row["last_seen"], last),
            }
            if row["origin"] != JobOrigin.REGISTERED:
                values["started_at"] = min(row["started_at"] or first, first)
                if row["state"] == JobState.ENDED and last > (row["ended_at"] or last):
                    values |= {"state": JobState.RUNNING, "ended_at": None}
            change_row(connection, row, **values)
            make_aliases(connection, found.job, found.aliases)

    def touch(self, times: dict[str, datetime]) -> None:
        """Note when jobs were last seen; one that was taken for ended runs again."""
        with self._database.writing("note jobs") as connection:
            for name, last in sorted(times.items()):
                row = lock_job(connection, name)
                if row is None or row["alias_of"] is not None or last <= row["last_seen"]:
                    continue
                revived = row["state"] == JobState.ENDED
                revived = revived and row["origin"] != JobOrigin.REGISTERED
                state = {"state": JobState.RUNNING, "ended_at": None} if revived else {}
                change_row(connection, row, last_seen=last, **state)

    def end_quiet(self, before: datetime) -> int:
        """End unregistered jobs that fell silent before this moment; returns how many."""
        quiet = (
            update(JOBS)
            .where(JOBS.c.state == JobState.RUNNING, JOBS.c.last_seen < before)
            .where(JOBS.c.origin != JobOrigin.REGISTERED)
            .values(state=JobState.ENDED, ended_at=JOBS.c.last_seen)
        )
        return self._database.execute("end quiet jobs", quiet)

    def forget(self, before: datetime) -> int:
        """Remove jobs that ended and were last seen before this, with all that belongs to them."""
        old = delete(JOBS).where(JOBS.c.state == JobState.ENDED, JOBS.c.last_seen < before)
        return self._database.execute("forget old jobs", old)

    # --- asking --------------------------------------------------------------------------------

    def get(self, name: str) -> Job | None:
        """The job of this name, which may be an alias."""
        return self._database.one(Job, JOBS, name) if is_name(name) else None

    def page(
        self,
        state: JobState | None = None,
        host: str | None = None,
        after: str | None = None,
        limit: int = PAGE_DEFAULT,
    ) -> list[Job]:
        """A page of jobs by name, without aliases: all, or those in a state or on a host."""
        if host is not None and not is_name(host):
            return []

        def narrow(query: Query, of: Any) -> Query:  # noqa: ANN401 - a table's columns
            query = query.where(of.alias_of.is_(None))
            if state is not None:
                query = query.where(of.state == state)
            if host is not None:
                on_host = select(JOB_HOSTS.c.job).where(JOB_HOSTS.c.host == host)
                query = query.where(of.job.in_(on_host))
            return query if after is None else query.where(of.job > before_nul(after))

        return self._database.ask(Job, JOBS, narrow, limit)

    def groups(self, name: str) -> dict[str, list[list[int]]]:
        """Parallelism groups, if registered; read apart from the job because they are large."""
        query = select(JOBS.c.groups).where(JOBS.c.job == name)
        return dict(self._database.scalar("read a job's groups", query) or {})

    def hosts(self, name: str) -> list[str]:
        with self._database.reading("list a job's hosts") as connection:
            return hosts_of(connection, name)

    def ranks(self, name: str, after: int | None = None, limit: int | None = None) -> list[JobRank]:
        with self._database.reading("list a job's ranks") as connection:
            return ranks_of(connection, name, after, limit)

    def communicators(self, name: str, limit: int | None = None) -> list[Communicator]:
        query = select(COMMUNICATORS).where(COMMUNICATORS.c.job == name)
        query = query.order_by(COMMUNICATORS.c.communicator).limit(limit)
        return self._database.rows("list a job's communicators", query, Communicator)

    def communicator_names(self, name: str) -> list[str]:
        query = select(COMMUNICATORS.c.communicator).where(COMMUNICATORS.c.job == name)
        with self._database.reading("list a job's communicators") as connection:
            return list(connection.scalars(query.order_by(COMMUNICATORS.c.communicator)))

    def shared_communicators(self, name: str) -> list[str]:
        own = select(COMMUNICATORS.c.communicator).where(COMMUNICATORS.c.job == name)
        query = select(COMMUNICATORS.c.communicator).distinct()
        query = query.where(COMMUNICATORS.c.job != name, COMMUNICATORS.c.communicator.in_(own))
        with self._database.reading("list shared communicators") as connection:
            return list(connection.scalars(query))

    def members(
        self, name: str, communicators: Sequence[str] | None = None
    ) -> list[CommunicatorMember]:
        wanted = [MEMBERS.c[field] for field in CommunicatorMember.__struct_fields__]
        query = select(*wanted).where(MEMBERS.c.job == name)
        if communicators is not None:
            query = query.where(MEMBERS.c.communicator.in_(communicators))
        query = query.order_by(MEMBERS.c.communicator, MEMBERS.c.rank)
        return self._database.rows("list a job's members", query, CommunicatorMember)

    def count_ranks(self, name: str) -> int:
        with self._database.reading("count a job's ranks") as connection:
            return count_ranks(connection, name)

    def count_communicators(self, name: str) -> int:
        query = select(func.count()).select_from(COMMUNICATORS).where(COMMUNICATORS.c.job == name)
        return self._database.scalar("count a job's communicators", query) or 0

    def inferred(self, communicators: Iterable[str]) -> list[EarlierJob]:
        """The inferred jobs, ended or not, that have one of these communicators."""
        query = select(COMMUNICATORS.c.job, COMMUNICATORS.c.communicator, JOBS.c.first_seen)
        query = query.join(JOBS, JOBS.c.job == COMMUNICATORS.c.job)
        query = query.where(JOBS.c.origin == JobOrigin.INFERRED, JOBS.c.alias_of.is_(None))
        found: dict[str, tuple[datetime, set[str]]] = {}
        with self._database.reading("look up inferred jobs") as connection:
            for some in in_pieces(sorted(set(communicators))):
                rows = connection.execute(query.where(COMMUNICATORS.c.communicator.in_(some)))
                for job, communicator, first_seen in rows:
                    found.setdefault(job, (first_seen, set()))[1].add(communicator)
        return [
            EarlierJob(job=job, first_ns=nanoseconds(first), communicators=frozenset(names))
            for job, (first, names) in sorted(found.items())
        ]

    def last_seen_ns(self) -> int | None:
        """When any job was last seen; None where none is known."""
        with self._database.reading("find when a job was last seen") as connection:
            last = connection.execute(select(func.max(JOBS.c.last_seen))).scalar_one()
        return None if last is None else nanoseconds(last)

    def running(self) -> list[Job]:
        wanted = [JOBS.c[field] for field in Job.__struct_fields__]
        query = select(*wanted).where(JOBS.c.state == JobState.RUNNING).order_by(JOBS.c.job)
        return self._database.rows("list running jobs", query, Job)


# --- registration -------------------------------------------------------------------------------


def write_said(connection: Connection, row: Row, request: JobSaid | JobChange) -> None:
    hosts = {*request.hosts, *(rank.host for rank in request.ranks)}
    write_hosts(connection, row["job"], hosts, Origin.REGISTERED)
    write_ranks(connection, row["job"], [as_said(rank) for rank in request.ranks])


def count_ranks(connection: Connection, job: str) -> int:
    query = select(func.count()).select_from(JOB_RANKS).where(JOB_RANKS.c.job == job)
    return connection.scalar(query) or 0


def changed_columns(change: JobChange, now: datetime) -> dict[str, object]:
    """The columns that a change sets; an end has a time, and a time of the end is an end."""
    names = (*COLUMNS_SAID, "state", "ended_at", "groups")
    given = {name: getattr(change, name) for name in names}
    values = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if values.get("state") == JobState.ENDED:
        values.setdefault("ended_at", now)
    elif values.get("state") == JobState.RUNNING:
        values["ended_at"] = None
    elif values.get("ended_at") is not None:
        values["state"] = JobState.ENDED
    return values


def differences_of(connection: Connection, row: Row, request: JobSaid) -> list[str]:
    columns = {name: getattr(request, name) for name in COLUMNS_SAID}
    columns |= {"groups": request.groups or None, "attributes": request.attributes or None}
    found = [
        f"{name} is {shown(row[name])}, not {shown(value)}"
        for name, value in columns.items()
        if value is not None and value != row[name]
    ]
    if request.ranks:
        old = {place.rank: place for place in ranks_of(connection, row["job"])}
        found += rank_differences(old, [as_said(rank) for rank in request.ranks])
    if missing := sorted(set(request.hosts) - set(hosts_of(connection, row["job"]))):
        found.append(f"hosts lack {', '.join(missing[:3])}")
    return found


def rank_differences(old: dict[int, JobRank], given: Iterable[JobRank]) -> list[str]:
    registered = {rank for rank, place in old.items() if place.origins.get("rank") == "registered"}
    found = []
    for place in given:
        before = old.get(place.rank)
        if before is None:
            found.append(f"rank {place.rank} is not registered")
            continue
        registered.discard(place.rank)
        found += [
            f"{fact} of rank {place.rank} is {shown(getattr(before, fact))}, "
            f"not {shown(getattr(place, fact))}"
            for fact in FACTS
            if fact in place.origins and getattr(before, fact) != getattr(place, fact)
        ]
    found += [f"rank {rank} is registered and not given" for rank in sorted(registered)]
    return found


def shown(value: object) -> str:
    text = "nothing" if value is None or value == {} else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # noqa: PLR2004 - a line of a message
