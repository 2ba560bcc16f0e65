"""Evidence for the health of things, and its history: silence, holds, changes of state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, func, not_, or_, select, update

from alerts.health.model import HealthState, Hold, Target, TargetKind, Turn
from api.base.limits import (
    HEALTH_HOSTS_MAX,
    HEALTH_TURNS_KEPT_DAYS,
    HEALTH_TURNS_KEPT_MAX,
    HEALTH_TURNS_PAGE_MAX,
    HOLDS_KEPT_DAYS,
    HOLDS_MAX,
    PAGE_DEFAULT,
)
from api.data.inventory.database import ROWS_PER_STATEMENT, Part, before_nul, table_of
from api.data.inventory.incidents import NUMBER_MAX, is_holder, moment_of
from api.data.inventory.links import LOOK_BACK
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import HealthTurnRow, HoldRow, HostRole, HostRow
from collector.contract.units import NS

HOSTS: Final = table_of(HostRow)
HOLDS: Final = table_of(HoldRow)
TURNS: Final = table_of(HealthTurnRow)


class KnownHost(msgspec.Struct, frozen=True):
    """A host and when it was first and last seen."""

    host: str
    first_seen: dt.datetime
    last_seen: dt.datetime


class KeptHold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold, and who ended it."""

    id: str
    hold: Hold
    ended_at: dt.datetime | None
    """Null: no operator or policy ended it; it may have expired."""
    ended_by: str


class NumberedTurn(msgspec.Struct, frozen=True):
    """A turn and its number, which grows over all processes and restarts."""

    number: int
    turn: Turn


class HealthTables(Part):
    """Silence, holds and turns. Actions make and end holds (`api.data.inventory.actions`)."""

    # --- who reports ---------------------------------------------------------------------------

    def known_hosts(self, now: dt.datetime) -> list[KnownHost]:
        """Machines that were seen within LOOK_BACK, by name; HEALTH_HOSTS_MAX at most."""
        query = select(HOSTS.c.host, HOSTS.c.first_seen, HOSTS.c.last_seen).where(*is_there(now))
        with self._database.reading("list hosts") as connection:
            rows = connection.execute(query.order_by(HOSTS.c.host).limit(HEALTH_HOSTS_MAX))
            return [KnownHost(*row) for row in rows]

    def count_hosts(self, now: dt.datetime) -> int:
        """A cheap check whether an earlier list of hosts is still complete."""
        query = select(func.count()).select_from(HOSTS).where(*is_there(now))
        with self._database.reading("count hosts") as connection:
            return connection.scalar(query) or 0

    def silent_hosts(self, before: dt.datetime, now: dt.datetime) -> dict[str, dt.datetime]:
        """Machines that sent nothing since a moment, and when they last did.

        Leaves out machines that are gone: those silent for LOOK_BACK.
        """
        query = select(HOSTS.c.host, HOSTS.c.last_seen).where(
            *is_there(now), HOSTS.c.last_seen < before
        )
        with self._database.reading("list silent hosts") as connection:
            rows = connection.execute(query.limit(HEALTH_HOSTS_MAX)).all()
        return {row.host: row.last_seen for row in rows}

    # --- holds ---------------------------------------------------------------------------------

    def holds(self, now: dt.datetime) -> list[KeptHold]:
        """All that stand, by kind and name."""
        query = select(HOLDS).where(stands(now)).order_by(HOLDS.c.kind, HOLDS.c.name)
        with self._database.reading("list holds") as connection:
            rows = connection.execute(query.limit(HOLDS_MAX)).mappings().all()
        return [read_hold(row) for row in rows]

    def holds_of(self, target: Target, limit: int = PAGE_DEFAULT) -> list[KeptHold]:
        """Everything that held a thing, the latest first, also what has ended."""
        if not is_name(target.name):
            return []
        query = select(HOLDS).where(*is_of(target)).order_by(HOLDS.c.since.desc(), HOLDS.c.id)
        with self._database.reading("list a thing's holds") as connection:
            rows = connection.execute(query.limit(limit)).mappings().all()
        return [read_hold(row) for row in rows]

    # --- turns ---------------------------------------------------------------------------------

    def keep_turns(
        self, turns: Sequence[Turn], *, task: str, holder: str, now: dt.datetime
    ) -> bool:
        """Append turns, in one transaction; False, and nothing is kept, if others do the task."""
        with self._database.writing("keep turns of health") as connection:
            if not is_holder(connection, task, holder):
                return False
            last = connection.scalar(select(func.max(TURNS.c.number))) or 0
            rows = [
                {
                    "number": number,
                    "host": turn.target.host,
                    "time": moment_of(turn.time_ns),
                    "document": msgspec.json.encode(turn).decode(),
                }
                for number, turn in enumerate(turns, start=last + 1)
            ]
            for start in range(0, len(rows), ROWS_PER_STATEMENT):
                connection.execute(TURNS.insert(), rows[start : start + ROWS_PER_STATEMENT])
            oldest = last + len(turns) - HEALTH_TURNS_KEPT_MAX
            old = now - dt.timedelta(days=HEALTH_TURNS_KEPT_DAYS)
            connection.execute(
                delete(TURNS).where(or_(TURNS.c.number <= oldest, TURNS.c.time < old))
            )
        return True

    def turns_after(self, number: int, limit: int = HEALTH_TURNS_PAGE_MAX) -> list[NumberedTurn]:
        """Turns with a greater number, in order."""
        query = (
            select(TURNS.c.number, TURNS.c.document)
            .where(TURNS.c.number > max(-1, min(number, NUMBER_MAX)))
            .order_by(TURNS.c.number)
            .limit(limit)
        )
        with self._database.reading("list turns of health") as connection:
            rows = connection.execute(query).all()
        return [NumberedTurn(row.number, read_turn(row.document)) for row in rows]

    def turns_of(self, host: str, limit: int = PAGE_DEFAULT) -> list[Turn]:
        """How a host's and its parts' states changed, the latest first."""
        if not is_name(host):
            return []
        query = (
            select(TURNS.c.document)
            .where(TURNS.c.host == before_nul(host))
            .order_by(TURNS.c.number.desc())
            .limit(limit)
        )
        with self._database.reading("list a host's turns") as connection:
            return [read_turn(document) for document in connection.execute(query).scalars()]

    def turns_span(self) -> tuple[int, int] | None:
        """The lowest and the highest number of the turns that are kept; None: there are none."""
        query = select(func.min(TURNS.c.number), func.max(TURNS.c.number))
        with self._database.reading("list turns of health") as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (first, last)


# --- rows ---------------------------------------------------------------------------------------


def is_there(now: dt.datetime) -> Iterable[ColumnElement[bool]]:
    """The conditions that a row is a machine of the fleet: no switch, and not long gone."""
    return HOSTS.c.role == HostRole.HOST.value, HOSTS.c.last_seen >= now - LOOK_BACK


def stands(now: dt.datetime) -> ColumnElement[bool]:
    return and_(HOLDS.c.ended_at.is_(None), or_(HOLDS.c.until.is_(None), HOLDS.c.until > now))


def is_of(target: Target) -> Iterable[ColumnElement[bool]]:
    return HOLDS.c.kind == target.kind.value, HOLDS.c.name == target.name


def put_hold(connection: Connection, number: str, hold: Hold) -> bool:
    """Keep a hold in the place of what held the same thing; False if there are HOLDS_MAX.

    Holds that ended long ago are forgotten here.
    """
    since = moment_of(hold.since_ns)
    forget_holds(connection, since)
    others = select(func.count()).where(stands(since), not_(and_(*is_of(hold.target))))
    if (connection.scalar(others) or 0) >= HOLDS_MAX:
        return False
    end_holds(connection, hold.target, hold.by, since)
    row = {
        "id": number,
        "kind": hold.target.kind.value,
        "host": hold.target.host,
        "name": hold.target.name,
        "state": hold.state.value,
        "reason": hold.reason,
        "by": hold.by,
        "since": since,
        "until": None if hold.until_ns is None else moment_of(hold.until_ns),
        "ended_at": None,
        "ended_by": "",
    }
    connection.execute(HOLDS.insert(), [row])
    return True


def find_hold(connection: Connection, target: Target, now: dt.datetime) -> KeptHold | None:
    query = select(HOLDS).where(*is_of(target), stands(now))
    row = connection.execute(query).mappings().first()
    return None if row is None else read_hold(row)


def end_holds(connection: Connection, target: Target, by: str, now: dt.datetime) -> None:
    connection.execute(
        update(HOLDS).where(*is_of(target), stands(now)).values(ended_at=now, ended_by=by)
    )


def forget_holds(connection: Connection, now: dt.datetime) -> None:
    old = now - dt.timedelta(days=HOLDS_KEPT_DAYS)
    connection.execute(delete(HOLDS).where(or_(HOLDS.c.ended_at < old, HOLDS.c.until < old)))


def read_hold(row: Any) -> KeptHold:  # noqa: ANN401 - a row of the table
    until = row["until"]
    return KeptHold(
        id=row["id"],
        hold=Hold(
            target=Target(TargetKind(row["kind"]), row["host"], row["name"]),
            state=HealthState(row["state"]),
            reason=row["reason"],
            by=row["by"],
            since_ns=unix_ns(row["since"]),
            until_ns=None if until is None else unix_ns(until),
        ),
        ended_at=row["ended_at"],
        ended_by=row["ended_by"],
    )


def read_turn(document: str) -> Turn:
    return msgspec.json.decode(document, type=Turn)


def unix_ns(moment: dt.datetime) -> int:
    """A moment of the inventory, which keeps microseconds."""
    return round(moment.timestamp() * 1_000_000) * (NS // 1_000_000)
