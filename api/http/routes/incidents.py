"""`GET /v1/incidents` and `/v1/incidents/{id}`: troubles, each with its history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from alerts.judge.incident import IncidentState
from api.base.limits import PAGE_DEFAULT
from api.base.times import parse_moment
from api.data.inventory.work import NO_WORK, state_of
from api.http.context import Parts
from api.http.routes.shared.answers import answer, documented
from api.http.routes.shared.find import find_incident
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import CauseAsked, Name
from api.http.routes.shared.shown import IncidentOut, IncidentWhole

router = APIRouter(tags=["verdicts"])


class IncidentsOut(msgspec.Struct, frozen=True, kw_only=True):
    """One page of incidents. ``next`` is null on the last one."""

    items: Sequence[IncidentOut]
    next: str | None


@router.get(
    "/v1/incidents",
    summary="Troubles, the latest first",
    **documented(IncidentsOut, "One page; `next` is null on the last one."),
)
async def incidents(  # noqa: PLR0913, PLR0917 - the question's parameters
    parts: Parts,
    state: Annotated[IncidentState | None, Query(description="Only those.")] = None,
    cause: CauseAsked = None,
    job: Name = None,
    host: Name = None,
    switch: Name = None,
    since: Annotated[
        str | None,
        Query(description="Seen at or after this: RFC 3339 or unix seconds. Empty: ever."),
    ] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Response:
    """Each trouble once, however many verdicts and symptoms it had, in the order it was found."""
    moment = parse_moment(since, "since")
    found = await asyncio.to_thread(
        lambda: parts.incidents.list(
            state=state,
            cause=cause,
            job=job,
            host=host,
            switch=switch,
            since=moment,
            after=after,
            limit=limit,
        )
    )
    work = await asyncio.to_thread(parts.inventory.work.states, [each.id for each in found])
    items = [IncidentOut.of(each, work.get(each.id, NO_WORK)) for each in found]
    return answer(IncidentsOut(items=items, next=items[-1].id if len(items) == limit else None))


@router.get(
    "/v1/incidents/{incident}",
    summary="One trouble with its evidence and its story",
    **documented(IncidentWhole, "The incident; `verdict` is what stands now."),
)
async def incident(incident: str, parts: Parts) -> Response:
    """Verdict, evidence, victims, what was ruled out, costs, and how the explanation changed."""
    story = await asyncio.to_thread(find_incident, parts, incident)
    deeds = await asyncio.to_thread(parts.inventory.work.of, story.id)
    return answer(IncidentWhole.of(story, state_of(deeds)))
