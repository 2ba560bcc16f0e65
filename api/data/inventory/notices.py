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
from sqlalchemy import (
    Connection,
    RowMapping,
    Update,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)

from alerts.rulebook.notices import Notice, Plan, Silence, Talk
from api.base.limits import (
    NOTICES_KEPT_DAYS,
    NOTICES_KEPT_MAX,
    OUTBOX_MAX,
    PAGE_DEFAULT,
    SILENCES_KEPT_DAYS,
    SILENCES_MAX,
)
from api.data.inventory.database import (
    Part,
    before_nul,
    delete_past,
    execute_all,
    in_pieces,
    insert_into,
    table_of,
    upsert,
)
from api.data.inventory.incidents import moment_of
from api.data.inventory.leases import is_holder
from api.data.inventory.records import NoticeState
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import NoticeRow, SilenceRow, TalkRow

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


class Backlog(msgspec.Struct, frozen=True):
    """Notices that wait for one receiver."""

    waiting: int
    oldest: dt.datetime


class NoticeTables(Part):
    """The outbox, the talks behind it, and silences."""

    # --- planning ------------------------------------------------------------------------------

    def talks(self) -> dict[str, Talk]:
        talks = self._database.documents("list talks", select(TALKS.c.document), Talk)
        return {talk.key: talk for talk in talks}

    def keep_plan(self, plan: Plan, *, task: str, holder: str, now: dt.datetime) -> KeptPlan | None:
        """None, and nothing is kept, if the task belongs to another process by now."""
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
        """Critical ones first, then the oldest; those that were put off come last."""
        is_due = or_(NOTICES.c.due_at <= now, NOTICES.c.due_at > now + CLOCK_SET_BACK)
        query = (
            select(NOTICES.c.document)
            .where(NOTICES.c.state == WAITING, is_due)
            .where(NOTICES.c.receiver == receiver)
            .order_by(NOTICES.c.is_critical.desc(), NOTICES.c.due_at, NOTICES.c.id)
            .limit(limit)
        )
        return self._database.documents("list notices", query, Notice)

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
        done = {"state": state.value, "detail": detail, "ended_at": now}
        self._database.execute(
            "settle a notice", update(NOTICES).where(NOTICES.c.id == number).values(done)
        )

    def postpone(self, number: str, due: dt.datetime, detail: str) -> None:
        """A notice could not be sent: it is tried again, unless a newer one took its place."""
        still = (NOTICES.c.id == number, NOTICES.c.state == WAITING)
        later = update(NOTICES).where(*still).values(due_at=due, detail=detail)
        self._database.execute("put a notice off", later)

    def drop_strangers(self, receivers: Collection[str], now: dt.datetime) -> int:
        is_strange = NOTICES.c.receiver.not_in(list(receivers))
        drop = dropped("its receiver is no longer configured", now)
        return self._database.execute(
            "drop notices", drop.where(NOTICES.c.state == WAITING, is_strange)
        )

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
        return self._database.sound("list notices", rows, read_notice)


def read_notice(row: RowMapping) -> KeptNotice:
    notice = msgspec.json.decode(row["document"], type=Notice)
    return msgspec.convert({**row, "notice": notice}, KeptNotice)


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
        return self._database.document("look up a silence", query, Silence)

    def ending_after(self, ends_after: dt.datetime) -> list[Silence]:
        query = (
            select(SILENCES.c.document)
            .where(SILENCES.c.ends_at > ends_after)
            .order_by(SILENCES.c.ends_at, SILENCES.c.id)
            .limit(SILENCES_ASKED_MAX)
        )
        return self._database.documents("list silences", query, Silence)


# --- rows ---------------------------------------------------------------------------------------


def digest(key: str) -> str:
    """A talk's key as rows have it: label values may be longer than an index takes."""
    return blake2b(key.encode(), digest_size=16).hexdigest()


def dropped(why: str, now: dt.datetime) -> Update:
    values = {"state": NoticeState.DROPPED.value, "detail": why, "ended_at": now}
    return update(NOTICES).values(values)


def end_waiting(
    connection: Connection, keys: Iterable[str], state: NoticeState, now: dt.datetime
) -> int:
    ended = 0
    names = sorted(digest(key) for key in keys)
    for some in in_pieces(names):
        done = connection.execute(
            update(NOTICES)
            .where(NOTICES.c.state == WAITING, NOTICES.c.talk.in_(some))
            .values(state=state.value, ended_at=now)
        )
        ended += done.rowcount
    return ended


def write_talks(connection: Connection, talks: Sequence[Talk]) -> None:
    rows = [
        {"talk": digest(talk.key), "document": msgspec.json.encode(talk).decode()} for talk in talks
    ]
    upsert(connection, TALKS, rows)


def remove_talks(connection: Connection, keys: Sequence[str]) -> None:
    for some in in_pieces(keys):
        gone = [digest(key) for key in some]
        connection.execute(delete(TALKS).where(TALKS.c.talk.in_(gone)))


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
    execute_all(connection, write, rows)


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
    drop = dropped(f"more than OUTBOX_MAX = {OUTBOX_MAX} waited", now)
    return int(connection.execute(drop.where(NOTICES.c.id.in_(excess))).rowcount)


def forget_notices(connection: Connection, now: dt.datetime) -> None:
    ended = NOTICES.c.state != WAITING
    old = now - dt.timedelta(days=NOTICES_KEPT_DAYS)
    connection.execute(delete(NOTICES).where(ended, NOTICES.c.planned_at < old))
    delete_past(connection, NOTICES.c.planned_at, ended, NOTICES_KEPT_MAX)


def write_silence(connection: Connection, silence: Silence) -> None:
    row = {
        "id": silence.id,
        "ends_at": moment_of(silence.ends_ns),
        "document": msgspec.json.encode(silence).decode(),
    }
    upsert(connection, SILENCES, [row])
