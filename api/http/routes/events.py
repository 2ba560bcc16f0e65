"""`GET /v1/events`: what happened, newest first."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.base.limits import EVENT_KINDS_MAX, PAGE_DEFAULT
from api.base.times import parse_range_ms
from api.data.events import Wanted, decode_position, encode_position, read_events
from api.http.context import Parts
from api.http.routes.shared.paging import After, Limit, Page

router = APIRouter(tags=["events"])

RANGE_MS_DEFAULT = 24 * 3_600_000
"""Without `from`, the last day: what an operator wants to see in the morning."""


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
    device: Annotated[str | None, Query(description="Only this device's.")] = None,
    port: Annotated[str | None, Query(description="Only this port's.")] = None,
    from_: Annotated[
        str | None,
        Query(alias="from", description="RFC 3339 or unix seconds; a day before `to`."),
    ] = None,
    to: Annotated[str | None, Query(description="RFC 3339 or unix seconds; now.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[EventOut]:
    """Events as agents sent them; one that was sent twice is shown once."""
    now_ms = round(parts.clock() * 1000)
    from_ms, to_ms = parse_range_ms(from_, to, now_ms, RANGE_MS_DEFAULT)
    named = {"host": host, "device": device, "port": port}
    wanted = Wanted(
        from_ms=from_ms,
        to_ms=to_ms,
        kinds=tuple(kind or ()),
        labels={name: value for name, value in named.items() if value is not None},
    )
    position = decode_position(after) if after is not None else None
    found = await asyncio.to_thread(read_events, parts.store, wanted, position, limit)
    items = [EventOut(**{**msgspec.structs.asdict(row), "id": f"{row.id:016x}"}) for row in found]
    following = encode_position(found[-1].position) if len(found) == limit else None
    return Page(items=items, next=following)
