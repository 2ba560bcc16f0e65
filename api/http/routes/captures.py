"""`/v1/agents/{agent}/capture`: ask an agent for the raw fast samples around now."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.base.errors import Problem, decode_json
from api.base.limits import CAPTURE_DEVICES_MAX, CAPTURE_SECONDS_MAX, PAGE_DEFAULT
from api.data.inventory.captures import Capture
from api.data.inventory.records import CaptureState
from api.http.context import Parts
from api.http.peers import CAPTURES
from api.http.routes.shared.answers import body_of
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.paging import After, Limit, Page
from api.http.tokens.guard import caller_of

router = APIRouter(tags=["bursts"])

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=CAPTURE_SECONDS_MAX)]
DeviceName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Devices = Annotated[list[DeviceName], msgspec.Meta(max_length=CAPTURE_DEVICES_MAX)]


class CaptureAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request; everything may be left out.

    The moment is when the agent learns of it, with its next batch: within five seconds, and its
    ring goes back thirty.
    """

    seconds_before: Seconds = 10.0
    seconds_after: Seconds = 5.0
    devices: Devices = []


class CaptureOut(BaseModel):
    """A request for raw samples and how far it has come."""

    id: str = Field(
        description="The label `capture` of its samples, `fabric_burst_raw_bytes_total`."
    )
    agent: str
    state: CaptureState
    seconds_before: float
    seconds_after: float
    devices: list[str] = Field(description="Only these; empty: all that are sampled.")
    detail: str = Field(description="Why it was refused or lost.")
    samples: int | None = Field(description="How many were sent, once it has ended.")
    requested_at: dt.datetime
    handed_at: dt.datetime | None
    ended_at: dt.datetime | None
    by: str = Field(description="The token that asked, or `fabricscope` itself; empty: not known.")
    why: str = Field(description="The incident that the service asked for; empty: a person asked.")

    @classmethod
    def of(cls, capture: Capture) -> CaptureOut:
        return cls(**msgspec.structs.asdict(capture))


@router.post(
    "/v1/agents/{agent}/capture",
    summary="Ask an agent for raw fast samples",
    status_code=202,
    response_model=CaptureOut,
    openapi_extra=body_of(CaptureAsked, is_required=False),
)
async def capture(agent: str, request: Request, response: Response, parts: Parts) -> CaptureOut:
    """Ask for the counters' own readings, every few milliseconds, around now.

    They come with the agent's next batches, over some seconds; the list shows when all are there.
    """
    body = await receive(request, parts)
    asked = decode_json(body or b"{}", CaptureAsked, "not a capture")
    if await asyncio.to_thread(parts.inventory.hosts.agent, agent) is None:
        raise no_agent(agent)
    made = await asyncio.to_thread(
        parts.captures.ask,
        agent,
        asked.seconds_before,
        asked.seconds_after,
        asked.devices,
        by=caller_of(request).name,
    )
    await parts.duties.peers.tell(CAPTURES)  # the agent's next batch may meet any process
    response.headers["Location"] = f"/v1/agents/{quote(agent, safe='')}/captures"
    return CaptureOut.of(made)


@router.get("/v1/agents/{agent}/captures", summary="What an agent was asked to capture")
async def captures(
    agent: str, parts: Parts, limit: Limit = PAGE_DEFAULT, after: After = None
) -> Page[CaptureOut]:
    """An agent's captures, the newest first; 404 if no batch of such an agent has arrived."""
    if await asyncio.to_thread(parts.inventory.hosts.agent, agent) is None:
        raise no_agent(agent)
    found = await asyncio.to_thread(parts.inventory.captures.page, agent, after, limit)
    items = [CaptureOut.of(each) for each in found]
    return Page(items=items, next=items[-1].id if len(items) == limit else None)


def no_agent(agent: str) -> Problem:
    return Problem(404, "no such agent", f"no batch of an agent named {agent[:80]!r} has arrived")
