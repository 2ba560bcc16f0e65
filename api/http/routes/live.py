"""`GET /v1/live`: incidents as they open, change and close, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Response

from alerts.judge.incident import IncidentState, News
from api.base.limits import PAGE_MAX
from api.data.inventory.incidents import Numbered
from api.http.context import Context, Parts
from api.http.routes.shared.parameters import CauseAsked, Name
from api.http.routes.shared.shown import IncidentOut
from api.http.routes.shared.streams import (
    BEGIN,
    MEDIA_TYPE,
    LiveResponse,
    listen_to,
    look_back,
    message,
    pass_on,
    read_number,
)
from api.oncall.evaluate.changes import (
    Subscription,
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
    response_class=Response,
    responses={
        200: {
            "description": "Events `ready`, `opened`, `updated`, `changed`, `closed`, `reopened` "
            "and `missed`, each with JSON as data.",
            "content": {MEDIA_TYPE: {}},
        },
        503: {"description": "As many clients as there may be are listening."},
    },
)
async def live(
    parts: Parts,
    job: Name = None,
    cause: CauseAsked = None,
    after: Annotated[
        str | None, Query(description="Number of the last event that was seen.")
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The same, as browsers send it; it wins.")
    ] = None,
) -> Response:
    """Stays open. `Last-Event-ID` resumes: what happened since is sent first, or that it is lost.

    Every 15 s without news a comment is sent.
    """
    seen = read_number(last_event_id or after)
    subscription = listen_to(parts.changes)
    wanted = Filter(job=job, cause=cause)
    return LiveResponse(subscription, follow(parts, subscription, wanted, seen))


async def follow(
    parts: Context, subscription: Subscription[Numbered], wanted: Filter, seen: int | None
) -> AsyncIterator[bytes]:
    """The stream: what was missed, then what happens, until the client or the service ends it.

    It subscribes before it reads the past, so that nothing is lost in between.
    """
    yield BEGIN
    opening = await asyncio.to_thread(
        lambda: look_back(seen, parts.incidents.changes_span(), parts.incidents.changes_after, HINT)
    )
    standing = await asyncio.to_thread(
        lambda: len(parts.incidents.list(state=IncidentState.OPEN, limit=PAGE_MAX))
    )

    def show(numbered: Numbered) -> bytes | None:
        return of_change(numbered) if wanted.wants(numbered) else None

    for piece in opening.pieces(show):
        yield piece
    yield message("ready", ReadyOut(number=opening.number, open=standing), opening.number)
    async for piece in pass_on(subscription, opening.number, show, HINT):
        yield piece


def of_change(numbered: Numbered) -> bytes:
    """A change as a server-sent event."""
    change = numbered.change
    return message(
        change.news,
        ChangeOut(
            number=numbered.number,
            news=change.news,
            time_ns=change.time_ns,
            incident=IncidentOut.of(change.incident),
        ),
        numbered.number,
    )
