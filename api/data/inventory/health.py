"""Evidence for the health of things, and its history: silence, holds, changes of state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)

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
from api.data.inventory.database import Part, append, before_nul, table_of
from api.data.inventory.ghosts import is_ghost
from api.data.inventory.incidents import moment_of
from api.data.inventory.leases import is_holder
from api.data.inventory.links import LOOK_BACK
from api.data.inventory.records import HostRole
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import DeviceRow, HealthTurnRow, HoldRow, HostRow
from collector.contract.units import NS

HOSTS: Final = table_of(HostRow)
DEVICES: Final = table_of(DeviceRow)
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
        return self._database.scalar("count hosts", query) or 0

    def silent_hosts(self, before: dt.datetime, now: dt.datetime) -> dict[str, dt.datetime]:
        """Machines silent since a moment, and since when; not those gone for LOOK_BACK."""
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
            rows = [
                {
                    "host": turn.target.host,
                    "time": moment_of(turn.time_ns),
                    "document": msgspec.json.encode(turn).decode(),
                }
                for turn in turns
            ]
            append(connection, TURNS, rows, HEALTH_TURNS_KEPT_MAX)
            old = now - dt.timedelta(days=HEALTH_TURNS_KEPT_DAYS)
            connection.execute(delete(TURNS).where(TURNS.c.time < old))
        return True

    def turns_after(self, number: int, limit: int = HEALTH_TURNS_PAGE_MAX) -> list[NumberedTurn]:
        found = self._database.numbered("list turns of health", TURNS, number, limit, Turn)
        return [NumberedTurn(*each) for each in found]

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
        return self._database.documents("list a host's turns", query, Turn)

    def turns_span(self) -> tuple[int, int] | None:
        return self._database.numbers("list turns of health", TURNS)


# --- rows ---------------------------------------------------------------------------------------


def is_there(now: dt.datetime) -> Iterable[ColumnElement[bool]]:
    """The conditions that a row is a machine of the fleet: no switch, not long gone, no ghost.

    Nor one whose agent reports no part of it: that one polls switches, and no job runs there.
    """
    is_machine = HOSTS.c.role == HostRole.HOST.value
    has_parts = exists().where(DEVICES.c.host == HOSTS.c.host)
    is_host = or_(HOSTS.c.agent.is_(None), has_parts)
    is_recent = HOSTS.c.last_seen >= now - LOOK_BACK
    return is_machine, is_recent, not_(is_ghost(HOSTS, now)), is_host


def stands(now: dt.datetime) -> ColumnElement[bool]:
    return and_(HOLDS.c.ended_at.is_(None), or_(HOLDS.c.until.is_(None), HOLDS.c.until > now))


def is_of(target: Target) -> Iterable[ColumnElement[bool]]:
    return HOLDS.c.kind == target.kind.value, HOLDS.c.name == target.name


def put_hold(connection: Connection, number: str, hold: Hold) -> bool:
    """In the place of what held the same thing; False if there are HOLDS_MAX. Forgets old ones."""
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


def unix_ns(moment: dt.datetime) -> int:
    """A moment of the inventory, which keeps microseconds."""
    return round(moment.timestamp() * 1_000_000) * (NS // 1_000_000)
