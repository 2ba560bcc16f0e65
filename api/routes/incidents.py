"""`GET /v1/incidents` and `/v1/incidents/{id}`: troubles, each with its story."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from alerts.incident import Incident, IncidentState
from api.context import Context, Parts
from api.errors import Problem
from api.limits import NAME_CHARS_MAX, PAGE_DEFAULT, PAGE_MAX
from api.routes.answers import answer, documented
from api.routes.inventory import After, Limit
from api.routes.verdicts import CauseAsked, Name
from api.times import parse_time_ms
from api.topology.names import offer
from collector.contract.verdict import Cause, Culprit, Layer, Reason

router = APIRouter(tags=["verdicts"])

LOST_SECONDS_DIGITS = 3


class IncidentOut(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in short; `GET /v1/incidents/{id}` has all of it. Unix nanoseconds."""

    id: str
    state: IncidentState
    cause: Cause
    reason: Reason
    layer: Layer
    culprit: Culprit
    confidence: float
    summary: str
    action: str
    jobs: Sequence[str]
    since_ns: int
    until_ns: int | None
    first_said_ns: int
    last_seen_ns: int
    closed_ns: int | None
    victims: int
    symptoms_seen: int
    """Other explanations of the same trouble that were merged into it."""
    reopened: int
    lost_seconds: float
    """Of all jobs together, as far as it is known."""
    gpu_hours: float

    @classmethod
    def of(cls, incident: Incident) -> IncidentOut:
        """The incident in short."""
        verdict = incident.verdict
        return cls(
            id=incident.id,
            state=incident.state,
            cause=verdict.cause,
            reason=verdict.reason,
            layer=verdict.layer,
            culprit=verdict.culprit,
            confidence=verdict.confidence,
            summary=verdict.summary,
            action=verdict.action,
            jobs=incident.jobs,
            since_ns=verdict.since_ns,
            until_ns=verdict.until_ns,
            first_said_ns=incident.first_said_ns,
            last_seen_ns=incident.last_seen_ns,
            closed_ns=incident.closed_ns,
            victims=len(verdict.victims),
            symptoms_seen=incident.symptoms_seen,
            reopened=incident.reopened,
            lost_seconds=round(sum(one.lost_seconds for one in verdict.costs), LOST_SECONDS_DIGITS),
            gpu_hours=round(sum(one.gpu_hours for one in verdict.costs), LOST_SECONDS_DIGITS),
        )


class IncidentsOut(msgspec.Struct, frozen=True, kw_only=True):
    """One page of incidents. ``next`` is null on the last one."""

    items: Sequence[IncidentOut]
    next: str | None


@router.get(
    "/v1/incidents",
    summary="Troubles, the latest first",
    response_class=Response,
    responses=documented(IncidentsOut, "One page; `next` is null on the last one."),
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
    moment = None
    if since:
        moment = dt.datetime.fromtimestamp(parse_time_ms(since, "since") / 1000, tz=dt.UTC)
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
    items = [IncidentOut.of(incident) for incident in found]
    return answer(IncidentsOut(items=items, next=items[-1].id if len(items) == limit else None))


@router.get(
    "/v1/incidents/{incident}",
    summary="One trouble with its evidence and its story",
    response_class=Response,
    responses=documented(Incident, "The incident; `verdict` is what stands now."),
)
async def incident(incident: str, parts: Parts) -> Response:
    """Verdict, evidence, victims, what was ruled out, costs, and how the explanation changed."""
    return answer(await asyncio.to_thread(find_incident, parts, incident))


def find_incident(parts: Context, name: str) -> Incident:
    """The incident of this id; a 404 offers ids that are near."""
    found = parts.incidents.get(name) if len(name) <= NAME_CHARS_MAX else None
    if found is None:
        near = offer(name, [one.id for one in parts.incidents.list(limit=PAGE_MAX)])
        raise Problem(404, "no such incident", f"no incident is called {name[:80]!r}{near}")
    return found
