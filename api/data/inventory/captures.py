"""Requests for agents' raw fast samples: the agent, the range, and how each ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import delete, func, select, update

from api.base.limits import (
    CAPTURES_KEPT_DAYS,
    CAPTURES_PENDING_MAX,
    CAPTURES_PER_AGENT_MAX,
    PAGE_DEFAULT,
)
from api.data.inventory.database import Part, before_nul, table_of
from api.data.inventory.records import CaptureState
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import CaptureRow

CAPTURES: Final = table_of(CaptureRow)
PENDING: Final = (CaptureState.WAITING.value, CaptureState.HANDED.value)


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times are UTC, by the service's clock."""

    agent: str
    id: str
    state: CaptureState
    seconds_before: float
    seconds_after: float
    devices: list[str]
    detail: str
    samples: int | None
    requested_at: datetime
    handed_at: datetime | None
    ended_at: datetime | None
    by: str = ""
    """Who asked: a token's name, or the service itself; empty: not known."""
    why: str = ""
    """The incident or trouble that the service asked for; empty: a person asked."""


class CaptureEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended, as the agent reported."""

    agent: str
    id: str
    state: CaptureState
    samples: int
    detail: str


class CaptureTables(Part):
    """Requests of all agents."""

    def request(self, capture: Capture) -> str:
        """The name of the bound that forbids it, or nothing. Forgets what ended long ago."""
        pending = select(func.count()).where(CAPTURES.c.state.in_(PENDING))
        with self._database.writing("keep a capture") as connection:
            old = capture.requested_at - timedelta(days=CAPTURES_KEPT_DAYS)
            connection.execute(delete(CAPTURES).where(CAPTURES.c.requested_at < old))
            own = connection.scalar(pending.where(CAPTURES.c.agent == capture.agent))
            if (own or 0) >= CAPTURES_PER_AGENT_MAX:
                return "CAPTURES_PER_AGENT_MAX"
            if (connection.scalar(pending) or 0) >= CAPTURES_PENDING_MAX:
                return "CAPTURES_PENDING_MAX"
            connection.execute(CAPTURES.insert(), [msgspec.structs.asdict(capture)])
        return ""

    def page(
        self, agent: str, after: str | None = None, limit: int = PAGE_DEFAULT
    ) -> list[Capture]:
        """An agent's requests, the newest first."""
        if not is_name(agent):
            return []
        query = select(CAPTURES).where(CAPTURES.c.agent == agent)
        if after is not None:
            query = query.where(CAPTURES.c.id < before_nul(after))
        query = query.order_by(CAPTURES.c.id.desc()).limit(limit)
        return self._database.rows("list captures", query, Capture)

    def note(
        self, handed: Iterable[tuple[str, str]], ended: Iterable[CaptureEnd], now: datetime
    ) -> None:
        with self._database.writing("note captures") as connection:
            for agent, number in sorted(handed):
                connection.execute(
                    update(CAPTURES)
                    .where(CAPTURES.c.agent == agent, CAPTURES.c.id == number)
                    .where(CAPTURES.c.state == CaptureState.WAITING.value)
                    .values(state=CaptureState.HANDED.value, handed_at=now)
                )
            for end in sorted(ended, key=lambda end: (end.agent, end.id)):
                connection.execute(
                    update(CAPTURES)
                    .where(CAPTURES.c.agent == end.agent, CAPTURES.c.id == end.id)
                    .where(CAPTURES.c.state.in_(PENDING))
                    .values(ended_at=now, **msgspec.structs.asdict(end))
                )

    def asked_by(self, who: str, since: datetime) -> list[Capture]:
        """The requests of one asker since a moment, oldest first."""
        query = (
            select(CAPTURES)
            .where(CAPTURES.c.by == who, CAPTURES.c.requested_at >= since)
            .order_by(CAPTURES.c.id)
            .limit(CAPTURES_PENDING_MAX)
        )
        return self._database.rows("list captures", query, Capture)

    def withdraw(self, who: str, why: str, now: datetime) -> None:
        """Give up what one asker still waits for, for this reason: no agent is told any more."""
        detail = "did not answer in time"
        self._database.execute(
            "withdraw captures",
            update(CAPTURES)
            .where(CAPTURES.c.by == who, CAPTURES.c.why == why, CAPTURES.c.state.in_(PENDING))
            .values(state=CaptureState.EXPIRED.value, detail=detail, ended_at=now),
        )

    def expire(self, before: datetime, now: datetime) -> None:
        detail = "the agent did not report how it ended"
        self._database.execute(
            "give up on captures",
            update(CAPTURES)
            .where(CAPTURES.c.state.in_(PENDING), CAPTURES.c.requested_at < before)
            .values(state=CaptureState.EXPIRED.value, detail=detail, ended_at=now),
        )
