"""`GET /v1/live`: incidents as they open, change and close, as server-sent events."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from alerts.judge.incident import IncidentState, News
from api.base.limits import PAGE_MAX
from api.data.inventory.incidents import Numbered
from api.http.context import Parts
from api.http.routes.shared.answers import copied
from api.http.routes.shared.parameters import CauseAsked, Name
from api.http.routes.shared.shown import IncidentOut
from api.http.routes.shared.streams import (
    AfterEvent,
    LastEventId,
    LiveResponse,
    Opening,
    follow,
    listen_to,
    look_back,
    message,
    read_number,
    streamed,
)
from collector.contract.verdict import Cause

router = APIRouter(tags=["verdicts"])

HINT = "GET /v1/incidents shows how everything stands"


class ChangeOut(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event: what happened to which incident, and its state since."""

    number: int
    news: News
    time_ns: int
    incident: IncidentOut


class ReadyOut(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the first event: the stream is open; changes from now on will follow."""

    number: int
    """Of the latest change before."""
    open: int
    """How many incidents are open: `GET /v1/incidents?state=open` names them."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes a client wants."""

    job: str | None = None
    cause: Cause | None = None

    def wants(self, numbered: Numbered) -> bool:
        incident = numbered.change.incident
        if self.job is not None and self.job not in incident.jobs:
            return False
        return self.cause is None or incident.verdict.cause is self.cause


@router.get(
    "/v1/live",
    summary="Incidents as they happen (server-sent events)",
    **streamed(
        "`ready`, `opened`, `updated`, `changed`, `closed`, `reopened`, `asked`, `answered` and "
        "`missed`"
    ),
)
async def live(
    parts: Parts,
    job: Name = None,
    cause: CauseAsked = None,
    after: AfterEvent = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stays open. `Last-Event-ID` resumes: what happened since is sent first, or that it is lost.

    Every 15 s without news a comment is sent.
    """
    seen = read_number(last_event_id or after)
    subscription = listen_to(parts.changes)
    wanted = Filter(job=job, cause=cause)

    def look() -> tuple[Opening[Numbered], ReadyOut]:
        book = parts.incidents
        opening = look_back(seen, book.changes_span(), book.changes_after, HINT)
        standing = book.list(state=IncidentState.OPEN, limit=PAGE_MAX)
        return opening, ReadyOut(number=opening.number, open=len(standing))

    def show(numbered: Numbered) -> bytes | None:
        return of_change(numbered) if wanted.wants(numbered) else None

    return LiveResponse(subscription, follow(subscription, look, show, HINT))


def of_change(numbered: Numbered) -> bytes:
    change = numbered.change
    shown = copied(ChangeOut, numbered, change, incident=IncidentOut.of(change.incident))
    return message(change.news, shown, numbered.number)
