"""`GET /v1/bursts`: bursts that agents found, newest first."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.base.limits import PAGE_DEFAULT
from api.data.events import EventRow, Wanted, decode_position, next_position, read_events
from api.http.context import Parts
from api.http.routes.shared.paging import After, Limit, Page
from api.http.routes.shared.parameters import OfDevice, OfHost, OfPort, ToNow, range_to_now

router = APIRouter(tags=["bursts"])

RANGE_MS_DEFAULT = 3_600_000
"""Without `from`, the last hour."""
MS_MAX = 86_400_000
KIND = "burst"


class BurstOut(BaseModel):
    """A stretch of time in which a port's rate was above the threshold.

    A burst that goes on for a second is reported after that second (`started`) and again at its end
    (`ended`), with the same start. Null is what the agent did not send.
    """

    host: str
    device: str
    port: str | None
    direction: str = Field(description="`receive` or `transmit`.")
    phase: str = Field(description="`whole`, `started` or `ended`.")
    start_ns: int = Field(description="Unix nanoseconds, by the clock of the host.")
    length_seconds: float | None
    bytes: int | None
    peak_bytes_per_second: float | None
    line_bytes_per_second: float | None
    threshold_ratio: float | None = Field(description="Share of the line rate.")
    resolution_seconds: float | None = Field(description="How far apart its readings were.")
    message: str


NUMBERS = [
    name for name, field in BurstOut.model_fields.items() if field.annotation == float | None
]


@router.get("/v1/bursts", summary="Bursts, newest first")
async def bursts(  # noqa: PLR0913, PLR0917 - the question's parameters
    parts: Parts,
    host: OfHost = None,
    device: OfDevice = None,
    port: OfPort = None,
    direction: Annotated[
        Literal["receive", "transmit"] | None, Query(description="Only what came in, or went out.")
    ] = None,
    min_ms: Annotated[float, Query(ge=0, le=MS_MAX, description="Only those so long.")] = 0.0,
    from_: Annotated[
        str | None,
        Query(alias="from", description="RFC 3339 or unix seconds; an hour before `to`."),
    ] = None,
    to: ToNow = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[BurstOut]:
    """Bursts as agents found them; one that was sent twice is shown once."""
    from_ms, to_ms = range_to_now(parts, from_, to, RANGE_MS_DEFAULT)
    wanted = Wanted(
        from_ms=from_ms,
        to_ms=to_ms,
        kinds=(KIND,),
        labels={"host": host, "device": device, "port": port},
        attributes={"direction": direction},
        at_least={"length_seconds": min_ms / 1000 or None},
    )
    position = decode_position(after)
    found = await asyncio.to_thread(read_events, parts.store, wanted, position, limit)
    return Page(items=[burst_of(row) for row in found], next=next_position(found, limit))


def burst_of(row: EventRow) -> BurstOut:
    """Attributes that an agent did not send, or that are no numbers, are null."""
    sent = row.attributes
    counted = number_of(sent.get("bytes"))
    return BurstOut(
        host=row.labels.get("host", ""),
        device=row.labels.get("device", ""),
        port=row.labels.get("port"),
        direction=sent.get("direction", ""),
        phase=sent.get("phase", "whole"),
        start_ns=row.time_ns,
        bytes=int(counted) if counted is not None else None,
        message=row.message,
        **{name: number_of(sent.get(name)) for name in NUMBERS},
    )


def number_of(text: str | None) -> float | None:
    """The number in an attribute; None if it is none, or not a finite one.

    >>> number_of("0.008"), number_of("nan"), number_of(None)
    (0.008, None, None)
    """
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
