"""Notices: the last state sent to each receiver, the outbox, and silences.

A notice is stored before it is sent, in the transaction that updates its receiver's talk; after the
attempt it is marked. At most one notice waits for each group of alerts: a newer one replaces it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, or_, select, tuple_, update

from alerts.rulebook.notices import Notice, Plan, Silence, Talk
from api.base.limits import (
    NOTICES_KEPT_DAYS,
    NOTICES_KEPT_MAX,
    OUTBOX_MAX,
    PAGE_DEFAULT,
    SILENCES_KEPT_DAYS,
    SILENCES_MAX,
)
from api.data.inventory.database import ROWS_PER_STATEMENT, Part, before_nul, insert_into, table_of
from api.data.inventory.incidents import is_holder, moment_of
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import NoticeRow, NoticeState, SilenceRow, TalkRow

TALKS: Final = table_of(TalkRow)
NOTICES: Final = table_of(NoticeRow)
SILENCES: Final = table_of(SilenceRow)

WAITING: Final = NoticeState.WAITING.value
SILENCES_ASKED_MAX: Final = 10 * SILENCES_MAX
"""Silences in one list: those that stand, and those of the last days."""


CLOCK_SET_BACK: Final = dt.timedelta(hours=2)
"""Longer than the sender postpones a notice: one that is due later was planned by another clock."""


class KeptPlan(msgspec.Struct, frozen=True):
    """Counts of waiting notices that newer ones superseded or a bound dropped."""

    superseded: int
    dropped: int


class KeptNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice and how far it has come. Times are UTC."""

    notice: Notice
    state: NoticeState
    attempts: int
    planned_at: dt.datetime
    due_at: dt.datetime
    ended_at: dt.datetime | None
    """When it was sent, or given up."""
    detail: str
    """Result of the last attempt."""


class Backlog(msgspec.Struct, frozen=True):
    """Notices that wait for one receiver."""

    waiting: int
    oldest: dt.datetime


class NoticeTables(Part):
    """The outbox, the talks behind it, and silences."""

    # --- planning ------------------------------------------------------------------------------

    def talks(self) -> dict[str, Talk]:
        """The last state sent to each receiver, by the talks' keys."""
        with self._database.reading("list talks") as connection:
            found = connection.execute(select(TALKS.c.document)).scalars().all()
        talks = (msgspec.json.decode(document, type=Talk) for document in found)
        return {talk.key: talk for talk in talks}

    def keep_plan(self, plan: Plan, *, task: str, holder: str, now: dt.datetime) -> KeptPlan | None:
        """Keep notices and the talks behind them, in one transaction, before they are sent.

        None, and nothing is kept, if the task belongs to another process by now.
        """
        with self._database.writing("keep notices") as connection:
            if not is_holder(connection, task, holder):
                return None
            spoken = [notice.group for notice in plan.notices]
            superseded = end_waiting(
                connection, {*spoken, *plan.forgotten}, NoticeState.SUPERSEDED, now
            )
            write_talks(connection, plan.changed)
            remove_talks(connection, plan.forgotten)
            write_notices(connection, plan.notices)
            dropped = drop_past_bound(connection, now)
            forget_notices(connection, now)
        return KeptPlan(superseded, dropped)

    # --- sending -------------------------------------------------------------------------------

    def due(self, receiver: str, now: dt.datetime, limit: int) -> list[Notice]:
        """Notices that wait for a receiver and may be tried: critical ones first, then the oldest.

        One that was tried and put off comes behind those that were not.
        """
        is_due = or_(NOTICES.c.due_at <= now, NOTICES.c.due_at > now + CLOCK_SET_BACK)
        query = (
            select(NOTICES.c.document)
            .where(NOTICES.c.state == WAITING, is_due)
            .where(NOTICES.c.receiver == receiver)
            .order_by(NOTICES.c.is_critical.desc(), NOTICES.c.due_at, NOTICES.c.id)
            .limit(limit)
        )
        with self._database.reading("list notices") as connection:
            found = connection.execute(query).scalars().all()
        return [read_notice(document) for document in found]

    def begin_attempts(self, ids: Sequence[str], *, task: str, holder: str) -> set[str] | None:
        """Those that still wait, with one more attempt; None if another process has the task."""
        with self._database.writing("begin to send notices") as connection:
            if not is_holder(connection, task, holder):
                return None
            still = (NOTICES.c.id.in_(ids), NOTICES.c.state == WAITING)
            found = set(connection.scalars(select(NOTICES.c.id).where(*still)))
            connection.execute(
                update(NOTICES).where(*still).values(attempts=NOTICES.c.attempts + 1)
            )
        return found

    def settle(self, number: str, state: NoticeState, detail: str, now: dt.datetime) -> None:
        """A notice was sent, or refused. Also one that was superseded meanwhile: it was sent."""
        with self._database.writing("settle a notice") as connection:
            connection.execute(
                update(NOTICES)
                .where(NOTICES.c.id == number)
                .values(state=state.value, detail=detail, ended_at=now)
            )

    def postpone(self, number: str, due: dt.datetime, detail: str) -> None:
        """A notice could not be sent: it is tried again, unless a newer one took its place."""
        with self._database.writing("put a notice off") as connection:
            connection.execute(
                update(NOTICES)
                .where(NOTICES.c.id == number, NOTICES.c.state == WAITING)
                .values(due_at=due, detail=detail)
            )

    def drop_strangers(self, receivers: Collection[str], now: dt.datetime) -> int:
        """Give up notices to receivers that are no longer configured; their number."""
        with self._database.writing("drop notices") as connection:
            done = connection.execute(
                update(NOTICES)
                .where(NOTICES.c.state == WAITING, NOTICES.c.receiver.not_in(list(receivers)))
                .values(
                    state=NoticeState.DROPPED.value,
                    detail="its receiver is no longer configured",
                    ended_at=now,
                )
            )
            return int(done.rowcount)

    def backlogs(self) -> dict[str, Backlog]:
        query = (
            select(NOTICES.c.receiver, func.count(), func.min(NOTICES.c.planned_at))
            .where(NOTICES.c.state == WAITING)
            .group_by(NOTICES.c.receiver)
        )
        with self._database.reading("count notices") as connection:
            return {
                receiver: Backlog(number, oldest)
                for receiver, number, oldest in connection.execute(query)
            }

    def page(
        self,
        *,
        receiver: str | None = None,
        state: NoticeState | None = None,
        after: str | None = None,
        limit: int = PAGE_DEFAULT,
    ) -> list[KeptNotice]:
        """A page of notices, the newest first: those behind the one with an id."""
        query = select(NOTICES)
        if receiver is not None:
            query = query.where(NOTICES.c.receiver == before_nul(receiver))
        if state is not None:
            query = query.where(NOTICES.c.state == state.value)
        if after is not None:
            at = select(NOTICES.c.planned_at, NOTICES.c.id)
            place = at.where(NOTICES.c.id == before_nul(after)).subquery()
            behind = tuple_(NOTICES.c.planned_at, NOTICES.c.id) < tuple_(
                place.c.planned_at, place.c.id
            )
            query = query.join(place, behind)
        query = query.order_by(NOTICES.c.planned_at.desc(), NOTICES.c.id.desc()).limit(limit)
        with self._database.reading("list notices") as connection:
            rows = connection.execute(query).mappings().all()
        return [
            KeptNotice(
                notice=read_notice(row["document"]),
                state=NoticeState(row["state"]),
                attempts=row["attempts"],
                planned_at=row["planned_at"],
                due_at=row["due_at"],
                ended_at=row["ended_at"],
                detail=row["detail"],
            )
            for row in rows
        ]


class SilenceTables(Part):
    """Silences that stand or are to come, and those that ended lately."""

    def keep(self, silence: Silence, now: dt.datetime) -> bool:
        """Keep a silence; False if there are SILENCES_MAX already. Forgets those long over."""
        with self._database.writing("keep a silence") as connection:
            old = now - dt.timedelta(days=SILENCES_KEPT_DAYS)
            connection.execute(delete(SILENCES).where(SILENCES.c.ends_at < old))
            standing = select(func.count()).where(SILENCES.c.ends_at > now)
            if (connection.scalar(standing) or 0) >= SILENCES_MAX:
                return False
            write_silence(connection, silence)
        return True

    def end(self, number: str, now_ns: int) -> Silence | None:
        """End a silence now, if it is not over; the silence, None if there is none."""
        if not is_name(number):
            return None
        with self._database.writing("end a silence") as connection:
            query = select(SILENCES.c.document).where(SILENCES.c.id == number)
            document = connection.scalar(query.with_for_update())
            if document is None:
                return None
            silence = msgspec.json.decode(document, type=Silence)
            if silence.ends_ns > now_ns:
                silence = msgspec.structs.replace(
                    silence,
                    starts_ns=min(silence.starts_ns, now_ns),
                    ends_ns=now_ns,
                    updated_ns=now_ns,
                )
                write_silence(connection, silence)
        return silence

    def get(self, number: str) -> Silence | None:
        if not is_name(number):
            return None
        query = select(SILENCES.c.document).where(SILENCES.c.id == number)
        with self._database.reading("look up a silence") as connection:
            document = connection.scalar(query)
        return msgspec.json.decode(document, type=Silence) if document is not None else None

    def ending_after(self, ends_after: dt.datetime) -> list[Silence]:
        """Silences that end after a moment, the first to end first."""
        query = (
            select(SILENCES.c.document)
            .where(SILENCES.c.ends_at > ends_after)
            .order_by(SILENCES.c.ends_at, SILENCES.c.id)
            .limit(SILENCES_ASKED_MAX)
        )
        with self._database.reading("list silences") as connection:
            found = connection.execute(query).scalars().all()
        return [msgspec.json.decode(document, type=Silence) for document in found]


# --- rows ---------------------------------------------------------------------------------------


def digest(key: str) -> str:
    """A talk's key as rows have it: label values may be longer than an index takes."""
    return blake2b(key.encode(), digest_size=16).hexdigest()


def read_notice(document: str) -> Notice:
    return msgspec.json.decode(document, type=Notice)


def end_waiting(
    connection: Connection, keys: Iterable[str], state: NoticeState, now: dt.datetime
) -> int:
    """End what waits of these talks; how many."""
    ended = 0
    names = sorted(digest(key) for key in keys)
    for start in range(0, len(names), ROWS_PER_STATEMENT):
        some = names[start : start + ROWS_PER_STATEMENT]
        done = connection.execute(
            update(NOTICES)
            .where(NOTICES.c.state == WAITING, NOTICES.c.talk.in_(some))
            .values(state=state.value, ended_at=now)
        )
        ended += done.rowcount
    return ended


def write_talks(connection: Connection, talks: Sequence[Talk]) -> None:
    insert = insert_into(connection, TALKS)
    write = insert.on_conflict_do_update(
        index_elements=[TALKS.c.talk], set_={"document": insert.excluded.document}
    )
    rows = [
        {"talk": digest(talk.key), "document": msgspec.json.encode(talk).decode()} for talk in talks
    ]
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        connection.execute(write, rows[start : start + ROWS_PER_STATEMENT])


def remove_talks(connection: Connection, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), ROWS_PER_STATEMENT):
        some = [digest(key) for key in keys[start : start + ROWS_PER_STATEMENT]]
        connection.execute(delete(TALKS).where(TALKS.c.talk.in_(some)))


def write_notices(connection: Connection, notices: Sequence[Notice]) -> None:
    """Add notices that wait. One of the same name that was sent before is not sent again."""
    insert = insert_into(connection, NOTICES)
    names = ("state", "planned_at", "due_at", "ended_at", "detail", "document")
    write = insert.on_conflict_do_update(
        index_elements=[NOTICES.c.id],
        set_={name: insert.excluded[name] for name in names},
        where=NOTICES.c.state != NoticeState.SENT.value,
    )
    rows = [
        {
            "id": notice.id,
            "talk": digest(notice.group),
            "receiver": notice.receiver,
            "state": WAITING,
            "status": notice.status.value,
            "is_critical": notice.is_critical,
            "planned_at": moment_of(notice.planned_ns),
            "due_at": moment_of(notice.planned_ns),
            "attempts": 0,
            "ended_at": None,
            "detail": "",
            "document": msgspec.json.encode(notice).decode(),
        }
        for notice in notices
    ]
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        connection.execute(write, rows[start : start + ROWS_PER_STATEMENT])


def drop_past_bound(connection: Connection, now: dt.datetime) -> int:
    """Give up what waits past OUTBOX_MAX: what is not critical first, and of that the oldest."""
    waiting = connection.scalar(select(func.count()).where(NOTICES.c.state == WAITING)) or 0
    if waiting <= OUTBOX_MAX:
        return 0
    excess = (
        select(NOTICES.c.id)
        .where(NOTICES.c.state == WAITING)
        .order_by(NOTICES.c.is_critical, NOTICES.c.planned_at, NOTICES.c.id)
        .limit(waiting - OUTBOX_MAX)
    )
    done = connection.execute(
        update(NOTICES)
        .where(NOTICES.c.id.in_(excess))
        .values(
            state=NoticeState.DROPPED.value,
            detail=f"more than OUTBOX_MAX = {OUTBOX_MAX} waited",
            ended_at=now,
        )
    )
    return int(done.rowcount)


def forget_notices(connection: Connection, now: dt.datetime) -> None:
    """Remove notices that ended and are too old or too many."""
    ended = NOTICES.c.state != WAITING
    old = now - dt.timedelta(days=NOTICES_KEPT_DAYS)
    connection.execute(delete(NOTICES).where(ended, NOTICES.c.planned_at < old))
    newest = (
        select(NOTICES.c.planned_at)
        .where(ended)
        .order_by(NOTICES.c.planned_at.desc())
        .offset(NOTICES_KEPT_MAX)
        .limit(1)
    )
    last_gone = connection.scalar(newest)
    if last_gone is not None:
        connection.execute(delete(NOTICES).where(ended, NOTICES.c.planned_at <= last_gone))


def write_silence(connection: Connection, silence: Silence) -> None:
    insert = insert_into(connection, SILENCES)
    names = ("ends_at", "document")
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[SILENCES.c.id], set_={name: insert.excluded[name] for name in names}
        ),
        [
            {
                "id": silence.id,
                "ends_at": moment_of(silence.ends_ns),
                "document": msgspec.json.encode(silence).decode(),
            }
        ],
    )
