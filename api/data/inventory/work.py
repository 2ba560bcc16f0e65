"""What people do about incidents: acknowledge, assign, note. A record of who did what, and when.

Nothing is changed: a later deed stands in the place of an earlier one. Rows outlive their incident
(INCIDENTS_KEPT_DAYS), as what operators said does.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, select

from api.base.case_limits import WORK_KEPT_DAYS, WORK_KEPT_MAX, WORK_PER_INCIDENT_MAX
from api.data.inventory.database import Part, in_pieces, table_of, upsert
from api.data.inventory.feedback import Dropped, drop_past, name_feedback
from api.data.inventory.incidents import moment_of
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import IncidentWorkRow
from collector.contract.errors import InventoryError

WORK: Final = table_of(IncidentWorkRow)


class TooMuchWorkError(InventoryError):
    """WORK_PER_INCIDENT_MAX deeds about one incident."""


class RepeatedDeedError(InventoryError):
    """What another system told of is kept already."""


class Does(enum.StrEnum):
    """What a person does about an incident."""

    ACKNOWLEDGE = "acknowledge"
    """The person has seen it and looks after it."""
    UNACKNOWLEDGE = "unacknowledge"
    ASSIGN = "assign"
    NOTE = "note"


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person did about an incident."""

    id: str
    """In order of time."""
    incident: str
    at_ns: int
    by: str
    does: Does
    to: str = ""
    """With `assign`: who has it now; empty: no person."""
    note: str = ""
    origin: str = ""
    """The event of another system that told of it, which is kept once; empty: done here."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How far people are with an incident. Unix nanoseconds."""

    acknowledged_by: str = ""
    """Empty: it is not acknowledged."""
    acknowledged_ns: int | None = None
    acknowledged_note: str = ""
    assigned_to: str = ""


NO_WORK: Final = Work()


def state_of(deeds: Iterable[Deed]) -> Work:
    """The state after deeds, in order of time."""
    work = NO_WORK
    for deed in deeds:
        match deed.does:
            case Does.ACKNOWLEDGE:
                work = msgspec.structs.replace(
                    work,
                    acknowledged_by=deed.by,
                    acknowledged_ns=deed.at_ns,
                    acknowledged_note=deed.note,
                )
            case Does.UNACKNOWLEDGE:
                work = Work(assigned_to=work.assigned_to)
            case Does.ASSIGN:
                work = msgspec.structs.replace(work, assigned_to=deed.to)
            case Does.NOTE:
                pass
    return work


class WorkTables(Part):
    """Deeds, by incident."""

    def do(self, deed: Deed) -> Dropped:
        """Keep a deed, after those that are there.

        Raises TooMuchWorkError, and RepeatedDeedError for an origin that is there.
        """
        with self._database.writing("keep what was done about an incident") as connection:
            own = WORK.c.incident == deed.incident
            if deed.origin and deed.origin in origins(connection, deed.incident):
                raise RepeatedDeedError(f"{deed.origin} is kept already")
            if (connection.scalar(select(func.count()).where(own)) or 0) >= WORK_PER_INCIDENT_MAX:
                raise TooMuchWorkError(
                    f"{deed.incident} has WORK_PER_INCIDENT_MAX = {WORK_PER_INCIDENT_MAX} "
                    "acknowledgements, assignments and notes already"
                )
            last = connection.scalar(select(func.max(WORK.c.id)).where(own)) or ""
            if deed.id <= last:
                deed = msgspec.structs.replace(deed, id=name_feedback(deed.at_ns, last))
            row = {
                "id": deed.id,
                "incident": deed.incident,
                "at": moment_of(deed.at_ns),
                "document": msgspec.json.encode(deed).decode(),
            }
            upsert(connection, WORK, [row])
            return forget(connection, moment_of(deed.at_ns))

    def of(self, incident: str) -> list[Deed]:
        """All that was done about an incident, in order of time."""
        if not is_name(incident):
            return []
        query = select(WORK.c.document).where(WORK.c.incident == incident)
        query = query.order_by(WORK.c.id).limit(WORK_PER_INCIDENT_MAX)
        return self._database.documents("list what was done about an incident", query, Deed)

    def states(self, incidents: Collection[str]) -> dict[str, Work]:
        """How far people are with each of these; incidents that no person touched are left out."""
        by_incident: dict[str, list[Deed]] = {}
        names = sorted({name for name in incidents if is_name(name)})
        for some in in_pieces(names):
            query = select(WORK.c.document).where(WORK.c.incident.in_(some)).order_by(WORK.c.id)
            for deed in self._database.documents("list what was done", query, Deed):
                by_incident.setdefault(deed.incident, []).append(deed)
        return {name: state_of(deeds) for name, deeds in by_incident.items()}


def origins(connection: Connection, incident: str) -> set[str]:
    kept = connection.scalars(select(WORK.c.document).where(WORK.c.incident == incident))
    return {msgspec.json.decode(document, type=Deed).origin for document in kept}


def forget(connection: Connection, now: dt.datetime) -> Dropped:
    dropped: Counter[str] = Counter()
    old = now - dt.timedelta(days=WORK_KEPT_DAYS)
    dropped["WORK_KEPT_DAYS"] += connection.execute(delete(WORK).where(WORK.c.at < old)).rowcount
    dropped["WORK_KEPT_MAX"] += drop_past(connection, WORK, WORK_KEPT_MAX)
    return +dropped
