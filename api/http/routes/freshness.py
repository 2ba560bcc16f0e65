"""`GET /v1/freshness`: how old the newest data and the last evaluation are."""

from __future__ import annotations

import asyncio
import datetime as dt

import msgspec
from fastapi import APIRouter, Response

from api.base.limits import DATA_LATE_SECONDS, EVALUATION_STALE_SECONDS
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, documented

router = APIRouter(tags=["verdicts"])


class AgeOut(msgspec.Struct, frozen=True, kw_only=True):
    """How old something is, by the service's clock."""

    at: dt.datetime | None
    """Null: there was none yet."""
    age_seconds: float | None
    bound_seconds: float
    """Older is late."""
    is_late: bool
    """True also where there was none yet."""


class FreshnessOut(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of now is one only if both are fresh."""

    now: dt.datetime
    """The service's clock."""
    data: AgeOut
    """The newest sample from any sender. The service's own numbers do not count."""
    evaluation: AgeOut
    """The last time that detectors looked at all that there was."""


@router.get(
    "/v1/freshness",
    summary="How old is what can be seen?",
    **documented(FreshnessOut, "The age of the newest data and of the last evaluation."),
)
async def freshness(parts: Parts) -> Response:
    """Ages are by the service's clock: a reader's may be wrong.

    With several processes, data that only another one received is seen up to half a minute later.
    """
    return answer(await asyncio.to_thread(look, parts))


def look(parts: Context) -> FreshnessOut:
    now = parts.now()
    received_s = parts.ingest.newest_s
    received = None if received_s is None else dt.datetime.fromtimestamp(received_s, tz=dt.UTC)
    known = [moment for moment in (received, parts.inventory.hosts.last_seen()) if moment]
    return FreshnessOut(
        now=now,
        data=age_of(max(known, default=None), now, DATA_LATE_SECONDS),
        evaluation=age_of(parts.incidents.evaluated_at(), now, EVALUATION_STALE_SECONDS),
    )


def age_of(moment: dt.datetime | None, now: dt.datetime, bound_s: float) -> AgeOut:
    """A moment after ``now``, as of a sender whose clock is ahead, has the age 0."""
    age_s = None if moment is None else max(0.0, (now - moment).total_seconds())
    is_late = age_s is None or age_s > bound_s
    return AgeOut(at=moment, age_seconds=age_s, bound_seconds=bound_s, is_late=is_late)
