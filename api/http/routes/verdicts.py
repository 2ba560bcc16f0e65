"""`GET /v1/verdicts` and `/v1/jobs/{job}/verdict`: past verdicts, and what is wrong now."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Response

from alerts.judge.incident import Incident, IncidentState
from api.base.limits import EVALUATION_STALE_SECONDS, PAGE_DEFAULT, PAGE_MAX
from api.data.events import decode_position, next_position
from api.data.inventory.incidents import moment_of
from api.data.inventory.records import Job
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, copied, documented
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import DAY_MS, CauseAsked, FromDay, Name, ToNow, range_to_now
from api.oncall.evaluate.rows import Wanted
from collector.contract.units import NS_PER_MS
from collector.contract.verdict import Verdict

router = APIRouter(tags=["verdicts"])


class SaidOut(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, when it was written and the incident that it belongs to."""

    time_ns: int
    id: str
    """Distinguishes verdicts of the same moment."""
    incident: str
    verdict: Verdict


class VerdictsOut(msgspec.Struct, frozen=True, kw_only=True):
    """One page of verdicts. ``next`` is null on the last one."""

    items: Sequence[SaidOut]
    next: str | None


class JobVerdictOut(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a job now. An empty list means healthy if the evaluator has looked."""

    job: str
    verdicts: Sequence[Verdict]
    """The most certain first; empty: nothing is known to be wrong."""
    incidents: Sequence[str]
    """Of each verdict, the incident: `GET /v1/incidents/{id}` has its story."""
    evaluated_at: dt.datetime | None
    """When the evaluator last looked; null: never."""
    is_fresh: bool
    """False: the last look is too old to count."""
    well_since: dt.datetime | None
    """Since when nothing is wrong: the end of its last trouble, or its start. Null while something
    is wrong, and while the evaluator is not running."""


@router.get(
    "/v1/verdicts",
    summary="Past verdicts, newest first",
    **documented(VerdictsOut, "One page; `next` is null on the last one."),
)
async def verdicts(  # noqa: PLR0913, PLR0917 - the question's parameters
    parts: Parts,
    cause: CauseAsked = None,
    job: Name = None,
    host: Name = None,
    switch: Name = None,
    incident: Name = None,
    from_: FromDay = None,
    to: ToNow = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Response:
    """Verdicts as they were written: first, whenever they changed, and once a minute meanwhile."""
    from_ms, to_ms = range_to_now(parts, from_, to, DAY_MS)
    wanted = Wanted(
        from_ns=from_ms * NS_PER_MS,
        # To the end of the millisecond: a verdict of now has nanoseconds.
        to_ns=(to_ms + 1) * NS_PER_MS - 1,
        cause=cause,
        job=job,
        host=host,
        switch=switch,
        incident=incident,
    )
    found = await asyncio.to_thread(parts.incidents.verdicts, wanted, decode_position(after), limit)
    items = [copied(SaidOut, written, id=f"{written.id:016x}") for written in found]
    return answer(VerdictsOut(items=items, next=next_position(found, limit)))


@router.get(
    "/v1/jobs/{job}/verdict",
    summary="What is wrong with a job now",
    **documented(JobVerdictOut, "What is wrong; an empty list if nothing is."),
)
async def job_verdict(job: FoundJob, parts: Parts) -> Response:
    """The open incidents of a job, how fresh that is, and since when all is well."""
    return answer(await asyncio.to_thread(judge_job, parts, job))


def judge_job(parts: Context, job: Job) -> JobVerdictOut:
    evaluated = parts.incidents.evaluated_at()
    age_s = None if evaluated is None else parts.clock() - evaluated.timestamp()
    is_fresh = age_s is not None and age_s <= EVALUATION_STALE_SECONDS
    standing = parts.incidents.list(state=IncidentState.OPEN, job=job.job, limit=PAGE_MAX)
    standing = sorted(standing, key=lambda one: (-one.verdict.confidence, one.id))
    well_since = None
    if is_fresh and not standing:
        ended = parts.incidents.list(state=IncidentState.CLOSED, job=job.job, limit=PAGE_MAX)
        well_since = well_since_of(job, ended)
    return JobVerdictOut(
        job=job.job,
        verdicts=[incident.verdict for incident in standing],
        incidents=[incident.id for incident in standing],
        evaluated_at=evaluated,
        is_fresh=is_fresh,
        well_since=well_since,
    )


def well_since_of(job: Job, ended: Sequence[Incident]) -> dt.datetime:
    """The end of the job's last trouble; its start, if it had none."""
    ends = [moment_of(one.verdict.until_ns or one.last_seen_ns) for one in ended]
    return max(ends, default=job.started_at or job.first_seen)
