"""What operators said about incidents, and the windows kept with it.

Nothing that was said is changed: a later statement stands in its place. Rows outlive their incident
(INCIDENTS_KEPT_DAYS), because a case is complete without it.
"""

from __future__ import annotations

import datetime as dt
import enum
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
from sqlalchemy import Connection, Table, delete, func, select

from alerts.cases.model import Says, Told, Truth
from api.base.case_limits import (
    CASES_KEPT_BYTES_MAX,
    CASES_KEPT_MAX,
    FEEDBACK_KEPT_DAYS,
    FEEDBACK_KEPT_MAX,
    FEEDBACK_PER_INCIDENT_MAX,
)
from api.base.limits import PAGE_DEFAULT
from api.data.inventory.database import Part, before_nul, table_of, upsert
from api.data.inventory.incidents import moment_of
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import CaseRow, FeedbackRow
from collector.contract.errors import InventoryError
from collector.contract.verdict import Cause, Culprit

FEEDBACK: Final = table_of(FeedbackRow)
CASES: Final = table_of(CaseRow)

Dropped = Mapping[str, int]
"""How many rows were dropped, by the bound that they were past."""


class TooMuchFeedbackError(InventoryError):
    """FEEDBACK_PER_INCIDENT_MAX statements about one incident."""


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator said about an incident."""

    id: str
    """In order of time."""
    incident: str
    at_ns: int
    by: str
    says: Says
    cause: Cause | None = None
    culprit: Culprit = Culprit()
    note: str = ""
    told: Told
    """What the incident's verdict said at that moment."""

    @property
    def truth(self) -> Truth:
        return Truth(says=self.says, told=self.told, cause=self.cause, culprit=self.culprit)


class CaseState(enum.StrEnum):
    """Whether the window of an incident's verdict is kept."""

    KEPT = "kept"
    TOO_LARGE = "too_large"
    PAST_RETENTION = "past_retention"
    EMPTY = "empty"
    NOT_READ = "not_read"


class CaseNote(msgspec.Struct, frozen=True, kw_only=True):
    """The window kept for an incident, or why there is none."""

    incident: str
    at_ns: int
    state: CaseState
    words: str
    """One sentence: why it is not kept, or what it is."""
    told: Told
    """What the verdict said that the window was read for."""
    from_ns: int
    to_ns: int
    bytes: int = 0
    is_repeated: bool = False
    """Whether the window gave that verdict again when it was kept."""


def name_feedback(now_ns: int, last: str = "") -> str:
    """A unique id, in order of time; after ``last``, though a clock may stand or be set back.

    >>> name_feedback(0, "00000000000a-12345678")[:13]
    '00000000000b-'
    """
    after = int(last.partition("-")[0], 16) + 1 if last else 0
    return f"{max(now_ns // 1_000_000, after):012x}-{secrets.token_hex(4)}"


class FeedbackTables(Part):
    """What was said, and cases."""

    # --- writing -------------------------------------------------------------------------------

    def say(self, said: Feedback) -> Dropped:
        """Keep a statement, after those that are there. Raises TooMuchFeedbackError."""
        with self._database.writing("keep what an operator said") as connection:
            count = select(func.count()).where(FEEDBACK.c.incident == said.incident)
            if (connection.scalar(count) or 0) >= FEEDBACK_PER_INCIDENT_MAX:
                raise TooMuchFeedbackError(
                    f"{said.incident} has FEEDBACK_PER_INCIDENT_MAX = "
                    f"{FEEDBACK_PER_INCIDENT_MAX} statements already"
                )
            newest = select(func.max(FEEDBACK.c.id)).where(FEEDBACK.c.incident == said.incident)
            last = connection.scalar(newest) or ""
            if said.id <= last:
                named = name_feedback(said.at_ns, last)
                said = msgspec.structs.replace(said, id=named)
            row = {
                "id": said.id,
                "incident": said.incident,
                "at": moment_of(said.at_ns),
                "document": msgspec.json.encode(said).decode(),
            }
            upsert(connection, FEEDBACK, [row])
            return forget(connection, moment_of(said.at_ns))

    def keep(self, note: CaseNote, packed: bytes | None) -> Dropped:
        """Keep an incident's window, or why there is none; in the place of what was kept."""
        with self._database.writing("keep a case") as connection:
            row = {
                "incident": note.incident,
                "at": moment_of(note.at_ns),
                "document": msgspec.json.encode(note).decode(),
                "size": len(packed or b""),
                "packed": packed,
            }
            upsert(connection, CASES, [row])
            return forget(connection, moment_of(note.at_ns))

    # --- asking --------------------------------------------------------------------------------

    def of(self, incident: str) -> list[Feedback]:
        """All that was said about an incident, the latest first."""
        if not is_name(incident):
            return []
        query = select(FEEDBACK.c.document).where(FEEDBACK.c.incident == incident)
        query = query.order_by(FEEDBACK.c.id.desc()).limit(FEEDBACK_PER_INCIDENT_MAX)
        return self._database.documents("list what was said", query, Feedback)

    def page(self, after: str | None = None, limit: int = PAGE_DEFAULT) -> list[Feedback]:
        """What was said about all incidents, the latest first: before the id `after`."""
        query = select(FEEDBACK.c.document)
        if after is not None:
            query = query.where(FEEDBACK.c.id < before_nul(after))
        query = query.order_by(FEEDBACK.c.id.desc()).limit(limit)
        return self._database.documents("list what was said", query, Feedback)

    def note(self, incident: str) -> CaseNote | None:
        if not is_name(incident):
            return None
        query = select(CASES.c.document).where(CASES.c.incident == incident)
        return self._database.document("look up a case", query, CaseNote)

    def packed(self, incident: str) -> bytes | None:
        """The window of an incident, packed; None: none is kept."""
        if not is_name(incident):
            return None
        query = select(CASES.c.packed).where(CASES.c.incident == incident)
        found: bytes | None = self._database.scalar("read a case", query)
        return found


# --- rows ---------------------------------------------------------------------------------------


def forget(connection: Connection, now: dt.datetime) -> Dropped:
    """Drop what is too old, and the oldest past the bounds."""
    dropped: Counter[str] = Counter()
    old = now - dt.timedelta(days=FEEDBACK_KEPT_DAYS)
    for table in (FEEDBACK, CASES):
        gone = connection.execute(delete(table).where(table.c.at < old)).rowcount
        dropped["FEEDBACK_KEPT_DAYS"] += gone
    dropped["FEEDBACK_KEPT_MAX"] += drop_past(connection, FEEDBACK, FEEDBACK_KEPT_MAX)
    dropped["CASES_KEPT_MAX"] += drop_past(connection, CASES, CASES_KEPT_MAX)
    dropped["CASES_KEPT_BYTES_MAX"] += drop_bytes_past(connection)
    return +dropped


def drop_past(connection: Connection, table: Table, kept_max: int) -> int:
    """Drop all but the latest rows of a table; how many."""
    (key,) = table.primary_key
    past = select(key).order_by(table.c.at.desc(), key.desc()).offset(kept_max)
    names = list(connection.execute(past.limit(kept_max)).scalars())
    if names:
        connection.execute(delete(table).where(key.in_(names)))
    return len(names)


def drop_bytes_past(connection: Connection) -> int:
    """Drop the oldest cases until the others have CASES_KEPT_BYTES_MAX; how many had a window."""
    query = select(CASES.c.incident, CASES.c.size).where(CASES.c.size > 0)
    rows = connection.execute(query.order_by(CASES.c.at.desc(), CASES.c.incident.desc())).all()
    total, gone = 0, []
    for incident, size in rows:
        total += size
        if total > CASES_KEPT_BYTES_MAX:
            gone.append(incident)
    if gone:
        connection.execute(delete(CASES).where(CASES.c.incident.in_(gone)))
    return len(gone)
