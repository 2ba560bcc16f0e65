"""`GET /v1/events`: what happened, newest first."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.base.limits import EVENT_KINDS_MAX, PAGE_DEFAULT
from api.data.events import Wanted, decode_position, next_position, read_events
from api.http.context import Parts
from api.http.routes.shared.answers import copied
from api.http.routes.shared.paging import After, Limit, Page
from api.http.routes.shared.parameters import DAY_MS, FromDay, OfDevice, OfPort, ToNow, range_to_now

router = APIRouter(tags=["events"])


class EventOut(BaseModel):
    """Something that happened at one moment."""

    id: str = Field(description="Distinguishes events of the same moment.")
    kind: str = Field(description="`link_down`, `link_up`, `link_rate`, `link_flap`, `xid`, …")
    time_ns: int = Field(description="Unix nanoseconds, by the clock of the host that saw it.")
    labels: dict[str, str] = Field(description="The thing that it happened to.")
    message: str
    attributes: dict[str, str] = Field(description="What was seen.")


@router.get("/v1/events", summary="What happened, newest first")
async def events(  # noqa: PLR0913, PLR0917 - the question's parameters
    parts: Parts,
    kind: Annotated[
        list[str] | None,
        Query(max_length=EVENT_KINDS_MAX, description="Only these kinds; may be repeated."),
    ] = None,
    host: Annotated[str | None, Query(description="Only this host's, or switch's.")] = None,
    device: OfDevice = None,
    port: OfPort = None,
    from_: FromDay = None,
    to: ToNow = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[EventOut]:
    """Events as agents sent them; one that was sent twice is shown once."""
    from_ms, to_ms = range_to_now(parts, from_, to, DAY_MS)
    wanted = Wanted(
        from_ms=from_ms,
        to_ms=to_ms,
        kinds=tuple(kind or ()),
        labels={"host": host, "device": device, "port": port},
    )
    position = decode_position(after)
    found = await asyncio.to_thread(read_events, parts.store, wanted, position, limit)
    items = [copied(EventOut, row, id=f"{row.id:016x}") for row in found]
    return Page(items=items, next=next_position(found, limit))
