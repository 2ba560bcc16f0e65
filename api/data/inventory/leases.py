"""Leases: which process does a task that only one may do, and until when.

Times are the database's where it has a clock of its own (PostgreSQL), and the caller's where it is
a file on the caller's machine (SQLite): no process' clock decides what another one may do. A holder
stops by its own steady clock, counted from before it asked, so it stops before its lease ends.

An epoch grows with each new holder. What a holder writes to the inventory is refused once the task
is another's (`is_holder`). What it writes to the store is bounded by time: a lease names the last
moment for which its holder may write samples, and the next holder begins behind that moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Interval,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)

from api.data.inventory.database import Part, insert_into, table_of, upsert
from api.data.inventory.tables import JobLookRow, LeaseRow, UtcTime

LEASES: Final = table_of(LeaseRow)
LOOKS: Final = table_of(JobLookRow)

MEMBER: Final = "member/"
"""How the tasks begin that are processes themselves: their lease says that they are there."""
LEASES_MAX: Final = 1_000
"""Rows that are read: tasks, and a few hundred processes."""
LOOKS_MAX: Final = 10_000
"""Jobs whose looks are read."""
MEMBERS_KEPT: Final = dt.timedelta(hours=1)
"""How long processes that are gone stay in the table."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The process that does a task, until when, and when the task was last completed."""

    task: str
    holder: str
    until: dt.datetime
    done_at: dt.datetime | None = None
    since: dt.datetime | None = None
    """When the holder took it; None: a release without epochs did."""
    epoch: int = 0
    samples_until: int = 0
    """The last moment for which the holder may write samples, unix nanoseconds by its clock."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it stands at one moment of the database's clock."""

    task: str
    holder: str
    epoch: int
    samples_until: int
    age_s: float
    """How long the holder has had it."""
    is_live: bool
    """Whether it has not ended."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a process saw that looked at a job, in a window that ended at ``looked_ns``."""

    job: str
    holder: str
    looked_ns: int
    is_quiet: bool
    shape: str
    """A digest of the job's ranks and where they run."""


class LeaseTables(Part):
    """Tasks that one process does at a time. ``now``: only where the database has no clock."""

    def take(
        self,
        task: str,
        holder: str,
        now: dt.datetime | None,
        until: dt.datetime | dt.timedelta,
        *,
        by_force: bool = False,
        samples_until: int = 0,
    ) -> int:
        """Take a task or keep it; its epoch, 0: another process has it, whose lease still runs."""
        with self._database.writing("take a lease") as connection:
            clock = clock_of(connection, now)
            ends = later(clock, until) if isinstance(until, dt.timedelta) else until
            insert = insert_into(connection, LEASES)
            old, new = LEASES.c, insert.excluded
            is_kept = old.holder == new.holder
            may = or_(is_kept, old.until <= clock)
            row = {
                "task": task,
                "holder": holder,
                "until": ends,
                "since": clock,
                "epoch": 1,
                "samples_until": samples_until,
            }
            connection.execute(
                insert.values(row).on_conflict_do_update(
                    index_elements=[LEASES.c.task],
                    set_={
                        "holder": new.holder,
                        "until": new.until,
                        "since": case((is_kept, old.since), else_=new.since),
                        "epoch": case((is_kept, old.epoch), else_=old.epoch + 1),
                        "samples_until": new.samples_until,
                    },
                    where=None if by_force else may,
                )
            )
            own = (old.task == task, old.holder == holder)
            return connection.scalar(select(old.epoch).where(*own)) or 0

    def renew(
        self,
        holder: str,
        now: dt.datetime | None,
        length: dt.timedelta,
        *,
        samples_until: int,
    ) -> list[Standing]:
        """Renew all that a process holds, also what has just ended; returns all leases.

        Two statements, whatever is held.
        """
        with self._database.writing("renew leases") as connection:
            clock = clock_of(connection, now)
            values = {"until": later(clock, length), "samples_until": samples_until}
            connection.execute(update(LEASES).where(LEASES.c.holder == holder).values(values))
            return read_standing(connection, clock)

    def take_ended(
        self,
        tasks: Sequence[str],
        holder: str,
        now: dt.datetime | None,
        length: dt.timedelta,
        *,
        samples_until: int,
        by_force: bool = False,
    ) -> dict[str, int]:
        """Take those of these tasks whose leases have ended, or that none has had.

        Returns of each the last moment for which the holder before may have written samples (unix
        nanoseconds by that one's clock).
        """
        taken: dict[str, int] = {}
        with self._database.writing("take leases") as connection:
            clock = clock_of(connection, now)
            new = {"holder": holder, "since": clock, "samples_until": samples_until}
            new["until"] = later(clock, length)
            for task in sorted(tasks):
                own = LEASES.c.task == task
                query = select(LEASES.c.samples_until).where(own)
                if not by_force:
                    query = query.where(LEASES.c.until <= clock)
                before = connection.scalar(query.with_for_update())
                if before is not None:
                    epoch = LEASES.c.epoch + 1
                    connection.execute(update(LEASES).where(own).values(epoch=epoch, **new))
                    taken[task] = before
                    continue
                add = insert_into(connection, LEASES).values(task=task, epoch=1, **new)
                if connection.execute(add.on_conflict_do_nothing()).rowcount:
                    taken[task] = 0
        return taken

    def release(
        self, task: str, holder: str, now: dt.datetime | None, samples_until: int | None = None
    ) -> None:
        """End a lease; ``samples_until``: no sample of a later moment was written.

        The task is then no process' own: its holder would renew it with all that it has.
        """
        with self._database.writing("release a lease") as connection:
            values: dict[str, Any] = {"until": clock_of(connection, now), "holder": ""}
            if samples_until is not None:
                values["samples_until"] = samples_until
            is_own = (LEASES.c.task == task, LEASES.c.holder == holder)
            connection.execute(update(LEASES).where(*is_own).values(values))

    def forget_members(self, now: dt.datetime | None) -> None:
        """Delete processes that have been gone for MEMBERS_KEPT."""
        with self._database.writing("forget processes") as connection:
            gone = LEASES.c.until < later(clock_of(connection, now), -MEMBERS_KEPT)
            is_member = LEASES.c.task.startswith(MEMBER, autoescape=True)
            connection.execute(delete(LEASES).where(is_member, gone))

    def get(self, task: str) -> Lease | None:
        query = select(LEASES).where(LEASES.c.task == task)
        return next(iter(self._database.rows("look up a lease", query, Lease)), None)

    # --- looks at jobs -------------------------------------------------------------------------

    def keep_looks(
        self, looks: Sequence[Look], *, holder: str, now: dt.datetime | None, kept_ns: int
    ) -> bool:
        """False, and nothing is kept, if the process' own lease has ended.

        Looks from before ``kept_ns`` are deleted: their jobs are over.
        """
        with self._database.writing("keep looks at jobs") as connection:
            own = (LEASES.c.task == f"{MEMBER}{holder}", LEASES.c.holder == holder)
            is_live = LEASES.c.until > clock_of(connection, now)
            if connection.scalar(select(LEASES.c.task).where(*own, is_live)) is None:
                return False
            connection.execute(delete(LOOKS).where(LOOKS.c.looked_ns < kept_ns))
            upsert(connection, LOOKS, [msgspec.structs.asdict(each) for each in looks])
        return True

    def looks(self, since_ns: int) -> list[Look]:
        query = select(LOOKS).where(LOOKS.c.looked_ns >= since_ns).limit(LOOKS_MAX)
        return self._database.rows("list looks at jobs", query, Look)


# --- for transactions of others -----------------------------------------------------------------


def is_holder(connection: Connection, task: str, holder: str) -> bool:
    """Whether a task is a process' own. Its row is locked until the transaction ends."""
    query = select(LEASES.c.holder).where(LEASES.c.task == task).with_for_update()
    return connection.scalar(query) == holder


def note_done(connection: Connection, task: str, now: dt.datetime) -> None:
    connection.execute(update(LEASES).where(LEASES.c.task == task).values(done_at=now))


# --- time ---------------------------------------------------------------------------------------

Moment = ColumnElement[dt.datetime] | dt.datetime


def clock_of(connection: Connection, now: dt.datetime | None) -> Moment:
    """This moment: as the caller says, or by the database's clock."""
    if now is not None:
        return now
    if connection.dialect.name == "sqlite":  # a file: its clock is this machine's
        return dt.datetime.now(dt.UTC)
    return func.clock_timestamp(type_=UtcTime())


def later(clock: Moment, by: dt.timedelta) -> Any:  # noqa: ANN401 - a moment, or its expression
    if isinstance(clock, dt.datetime):
        return clock + by
    return clock + literal(by, Interval)


def read_standing(connection: Connection, clock: Moment) -> list[Standing]:
    at = literal(clock, UtcTime()) if isinstance(clock, dt.datetime) else clock
    columns = LEASES.c
    query = select(
        columns.task,
        columns.holder,
        columns.epoch,
        columns.samples_until,
        columns.since,
        columns.until,
        at.label("now"),
    )
    return list(standings(connection.execute(query.order_by(columns.task).limit(LEASES_MAX))))


def standings(rows: Iterable[Any]) -> Iterable[Standing]:
    for row in rows:
        age_s = (row.now - row.since).total_seconds() if row.since is not None else float("inf")
        yield Standing(
            task=row.task,
            holder=row.holder,
            epoch=row.epoch,
            samples_until=row.samples_until,
            age_s=age_s,
            is_live=row.until > row.now,
        )
