"""Incidents and their news."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, or_, select

from alerts.judge.incident import KEPT_MAX, Change, Incident, IncidentState
from api.base.limits import (
    INCIDENT_CHANGES_KEPT_MAX,
    INCIDENT_CHANGES_PAGE_MAX,
    INCIDENT_NAMES_MAX,
    INCIDENTS_KEPT_DAYS,
    INCIDENTS_KEPT_MAX,
    PAGE_DEFAULT,
)
from api.data.inventory.database import (
    Part,
    append,
    before_nul,
    execute_all,
    insert_into,
    table_of,
    upsert,
)
from api.data.inventory.leases import is_holder, note_done
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import IncidentChangeRow, IncidentNameRow, IncidentRow
from collector.contract.units import NS
from collector.contract.verdict import Cause

INCIDENTS: Final = table_of(IncidentRow)
NAMES: Final = table_of(IncidentNameRow)
CHANGES: Final = table_of(IncidentChangeRow)


class Numbered(msgspec.Struct, frozen=True):
    """News of an incident and their number, which grows over all processes and restarts."""

    number: int
    change: Change


class IncidentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which incidents: all conditions that are given."""

    state: IncidentState | None = None
    cause: Cause | None = None
    job: str | None = None
    host: str | None = None
    switch: str | None = None
    since: dt.datetime | None = None
    """Seen then, or later."""


class IncidentTables(Part):
    """Incidents, what they can be found by, and their news."""

    # --- writing -------------------------------------------------------------------------------

    def keep(
        self,
        incidents: Sequence[Incident],
        changes: Sequence[Change],
        *,
        task: str,
        holder: str,
        now: dt.datetime,
    ) -> bool:
        """False, and nothing is kept, if the task belongs to another process by now."""
        with self._database.writing("keep incidents") as connection:
            if not is_holder(connection, task, holder):
                return False
            rows = sorted(incidents, key=lambda each: each.id)
            write_incidents(connection, rows)
            write_names(connection, rows)
            write_changes(connection, changes)
            forget(connection, now)
            note_done(connection, task, now)
        return True

    # --- asking --------------------------------------------------------------------------------

    def recent(self, closed_since: dt.datetime) -> list[Incident]:
        """All that are open, and those that were closed at a moment or later; KEPT_MAX at most."""
        is_open = INCIDENTS.c.state == IncidentState.OPEN.value
        query = (
            select(INCIDENTS.c.document)
            .where(or_(is_open, INCIDENTS.c.closed >= closed_since))
            # "open" comes behind "closed": those that are open are in any case among them.
            .order_by(INCIDENTS.c.state.desc(), INCIDENTS.c.id.desc())
            .limit(KEPT_MAX)
        )
        found = self._database.documents("list incidents", query, Incident)
        return sorted(found, key=lambda each: each.id)

    def get(self, number: str) -> Incident | None:
        if not is_name(number):
            return None
        query = select(INCIDENTS.c.document).where(INCIDENTS.c.id == number)
        return self._database.document("look up an incident", query, Incident)

    def page(
        self, wanted: IncidentQuery, after: str | None = None, limit: int = PAGE_DEFAULT
    ) -> list[Incident]:
        """A page of incidents, the newest first: those before an id, at most `limit`."""
        query = select(INCIDENTS.c.document)
        for kind in ("job", "host", "switch"):
            name = getattr(wanted, kind)
            if name is None:
                continue
            if not is_name(name):
                return []
            named = select(NAMES.c.incident).where(NAMES.c.kind == kind, NAMES.c.name == name)
            query = query.where(INCIDENTS.c.id.in_(named))
        if wanted.state is not None:
            query = query.where(INCIDENTS.c.state == wanted.state.value)
        if wanted.cause is not None:
            query = query.where(INCIDENTS.c.cause == wanted.cause.value)
        if wanted.since is not None:
            query = query.where(INCIDENTS.c.last_seen >= wanted.since)
        if after is not None:
            query = query.where(INCIDENTS.c.id < before_nul(after))
        query = query.order_by(INCIDENTS.c.id.desc()).limit(limit)
        return self._database.documents("list incidents", query, Incident)

    def changes(self, after: int, limit: int = INCIDENT_CHANGES_PAGE_MAX) -> list[Numbered]:
        found = self._database.numbered("list news of incidents", CHANGES, after, limit, Change)
        return [Numbered(*each) for each in found]

    def changes_span(self) -> tuple[int, int] | None:
        return self._database.numbers("list news of incidents", CHANGES)


# --- rows ---------------------------------------------------------------------------------------


def moment_of(time_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ns / NS, tz=dt.UTC)


def write_incidents(connection: Connection, incidents: Sequence[Incident]) -> None:
    rows = [
        {
            "id": each.id,
            "state": each.state.value,
            "cause": each.verdict.cause.value,
            "last_seen": moment_of(each.last_seen_ns),
            "closed": moment_of(each.closed_ns) if each.closed_ns is not None else None,
            "document": msgspec.json.encode(each).decode(),
        }
        for each in incidents
    ]
    upsert(connection, INCIDENTS, rows)


def write_names(connection: Connection, incidents: Iterable[Incident]) -> None:
    """Add what incidents can be found by; a name that one ever had stays."""
    rows = [
        {"incident": each.id, "kind": kind, "name": name}
        for each in incidents
        for kind, name in sorted(set(list(names_in(each))[:INCIDENT_NAMES_MAX]))
    ]
    execute_all(connection, insert_into(connection, NAMES).on_conflict_do_nothing(), rows)


def names_in(incident: Incident) -> Iterator[tuple[str, str]]:
    """Jobs, hosts and switches: those accused first, then those that suffer."""
    verdict = incident.verdict
    for job in incident.jobs:
        if is_name(job):
            yield "job", job
    for culprit in (verdict.culprit, *verdict.accomplices, *verdict.victims):
        for kind in ("job", "host", "switch"):
            if is_name(name := getattr(culprit, kind)):
                yield kind, name


def write_changes(connection: Connection, changes: Sequence[Change]) -> None:
    if not changes:
        return
    rows = [
        {
            "incident": change.incident.id,
            "time": moment_of(change.time_ns),
            "document": msgspec.json.encode(change).decode(),
        }
        for change in changes
    ]
    append(connection, CHANGES, rows, INCIDENT_CHANGES_KEPT_MAX)


def forget(connection: Connection, now: dt.datetime) -> None:
    closed = INCIDENTS.c.state == IncidentState.CLOSED.value
    old = now - dt.timedelta(days=INCIDENTS_KEPT_DAYS)
    connection.execute(delete(INCIDENTS).where(closed, INCIDENTS.c.closed < old))
    newest = (
        select(INCIDENTS.c.id)
        .order_by(INCIDENTS.c.id.desc())
        .offset(INCIDENTS_KEPT_MAX - 1)
        .limit(1)
    )
    last_kept = connection.scalar(newest)
    if last_kept is not None:
        connection.execute(delete(INCIDENTS).where(closed, INCIDENTS.c.id < last_kept))
