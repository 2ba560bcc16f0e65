"""`GET /v1/costs`: what troubles have cost, in GPU-hours and in money."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from alerts.judge.incident import Incident
from api.base.case_limits import COSTS_ENTRIES_MAX, COSTS_INCIDENTS_MAX
from api.base.limits import PAGE_MAX
from api.base.times import parse_moment
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, documented
from api.http.routes.shared.find import find_job_name
from api.http.routes.shared.parameters import Name, ToNow, moment_of, range_to_now
from api.oncall.costs import By, Entry, account
from collector.contract.units import NS_PER_MS

router = APIRouter(tags=["verdicts"])

WEEK_MS = 7 * 86_400_000
"""Without `from`, the last week: what a meeting on Monday looks at."""


class CostsOut(msgspec.Struct, frozen=True, kw_only=True):
    """An account of some time. `money` is null without a price."""

    from_: str = msgspec.field(name="from")
    to: str
    by: By
    price_per_gpu_hour: float | None
    currency: str
    incidents: int
    unmeasured: int
    gpu_hours: float
    money: float | None
    entries: Sequence[Entry]
    entries_left_out: int
    is_partial: bool
    """Whether more incidents were there than are read for one answer: the latest were."""


@router.get(
    "/v1/costs",
    summary="What troubles have cost, the dearest first",
    **documented(CostsOut, "Sums over incidents; weeks in order of time."),
)
async def costs(
    parts: Parts,
    by: Annotated[By, Query(description="What is added up.")] = By.CULPRIT,
    begin: Annotated[
        str | None,
        Query(alias="from", description="RFC 3339 or unix seconds; a week before `to`."),
    ] = None,
    to: ToNow = None,
    job: Name = None,
    price: Annotated[
        float | None,
        Query(ge=0, le=1e6, description="Of a GPU-hour, in place of the setting's."),
    ] = None,
) -> Response:
    """GPU-hours that were lost to each trouble; `culprit` ranks what it would be worth to fix."""
    from_ms, to_ms = range_to_now(parts, begin, to, WEEK_MS)
    found, is_partial = await asyncio.to_thread(incidents_since, parts, from_ms, job)
    if job and not found:
        # That a job cost nothing is not said of one that does not exist.
        await asyncio.to_thread(find_job_name, parts, job)
    own = parts.settings.price_per_gpu_hour if price is None else price
    told = account(found, from_ms * NS_PER_MS, to_ms * NS_PER_MS, by, own)
    body = CostsOut(
        from_=moment_of(from_ms * NS_PER_MS),
        to=moment_of(to_ms * NS_PER_MS),
        by=by,
        price_per_gpu_hour=own or None,
        currency=parts.settings.currency,
        incidents=told.incidents,
        unmeasured=told.unmeasured,
        gpu_hours=told.gpu_hours,
        money=told.money,
        entries=told.entries[:COSTS_ENTRIES_MAX],
        entries_left_out=max(0, len(told.entries) - COSTS_ENTRIES_MAX),
        is_partial=is_partial,
    )
    return answer(body)


def incidents_since(parts: Context, from_ms: int, job: str | None) -> tuple[list[Incident], bool]:
    """The latest of those that were seen since then, and whether there are more."""
    since = parse_moment(str(from_ms / 1000), "from")
    found: list[Incident] = []
    after: str | None = None
    while len(found) < COSTS_INCIDENTS_MAX:
        page = parts.incidents.list(job=job, since=since, after=after, limit=PAGE_MAX)
        found += page
        if len(page) < PAGE_MAX:
            return found, False
        after = page[-1].id
    return found, True
