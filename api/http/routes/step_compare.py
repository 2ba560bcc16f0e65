"""`GET /v1/jobs/{job}/steps/compare`, `…/differ`, `…/stages`: what its steps are made of."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from alerts.compare.model import StepsCompared
from alerts.compare.stages import Stages
from api.base.compare_limits import COMPARE_BEFORE_SECONDS, COMPARE_SECONDS_MAX
from api.base.errors import Problem
from api.base.limits import (
    EXPLAIN_SECONDS_DEFAULT,
    EXPLAINS_WAITING_MAX,
    NAME_CHARS_MAX,
    PAGE_DEFAULT,
)
from api.base.times import parse_time_ms
from api.data.inventory.incidents import moment_of
from api.http.context import Context, Parts
from api.http.routes.shared.answers import BUSY, JSON, documented
from api.http.routes.shared.find import FoundJob, find_incident, find_job_name
from api.http.routes.shared.parameters import (
    From,
    To,
    range_of,
    refuse_far_future,
    shared_now_ms,
)
from api.oncall.explain.steps import Span, StepsDiffer, StepsQuestion
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Verdict

router = APIRouter(tags=["jobs"])

Moment = Annotated[str | None, Query(description="RFC 3339 or unix seconds.")]
Named = Annotated[str | None, Query(min_length=1, max_length=NAME_CHARS_MAX)]


@router.get(
    "/v1/jobs/{job}/steps/compare",
    summary="Slow steps against normal ones: where the excess is, who waited for whom",
    **documented(StepsCompared, "Rank by rank; what is not known has a reason.", others=BUSY),
)
async def compare(
    job: FoundJob,
    parts: Parts,
    slow: Annotated[
        str | None,
        Query(
            description="A moment within a slow step, or the begin of slow ones; RFC 3339 or "
            "unix seconds. Empty: the incident's time."
        ),
    ] = None,
    slow_to: Annotated[
        str | None, Query(description="The end of the slow steps. Empty: the step around `slow`.")
    ] = None,
    normal: Annotated[
        str | None,
        Query(
            description="The same of normal steps. Empty: those within "
            f"{COMPARE_BEFORE_SECONDS} s before the slow ones, without those of other incidents."
        ),
    ] = None,
    normal_to: Moment = None,
    normal_job: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=NAME_CHARS_MAX,
            description="Another job or run whose steps are the normal ones; with `normal`.",
        ),
    ] = None,
    incident: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=NAME_CHARS_MAX,
            description="Its time is slow, what was before it normal, its culprit accused.",
        ),
    ] = None,
) -> Response:
    """A step's excess by rank: its own time, waiting, transfer; replayed without the culprit.

    Accused is only what a verdict about the same time accuses. See the how-to "Compare steps".
    """  # fmt: skip
    if normal_job and not normal:
        raise Problem(422, "which steps?", "normal_job= needs normal=, a time of that job")
    asked = span_between(slow, slow_to, "slow") if slow else None
    span, verdict = await asyncio.to_thread(slow_span, parts, asked, incident)
    question = StepsQuestion(
        job=job.job,
        span=span,
        troubled=await asyncio.to_thread(troubles_before, parts, job.job, span),
        normal=span_between(normal, normal_to, "normal") if normal else None,
        normal_job=(
            await asyncio.to_thread(find_job_name, parts, normal_job) if normal_job else None
        ),
        verdict=verdict,
    )
    body = await parts.queues.explanations.take(
        lambda: msgspec.json.encode(parts.explainer.compare_steps(question)),
        "EXPLAINS_WAITING_MAX",
        EXPLAINS_WAITING_MAX,
        key=("compare", msgspec.json.encode(question)),
    )
    return Response(body, media_type=JSON)


@router.get(
    "/v1/jobs/{job}/steps/differ",
    summary="How slow steps of a job differ from its others, ranked",
    **documented(StepsDiffer, "Ranks, operations and readings, the clearest first.", others=BUSY),
)
async def differ(job: FoundJob, parts: Parts, from_: From = None, to: To = None) -> Response:
    """What stands out in the steps that are longer than usual; a difference is no cause."""
    question = StepsQuestion(job=job.job, span=span_of_differ(parts, job, from_, to))
    body = await parts.queues.explanations.take(
        lambda: msgspec.json.encode(parts.explainer.differ(question)),
        "EXPLAINS_WAITING_MAX",
        EXPLAINS_WAITING_MAX,
        key=("differ", msgspec.json.encode(question)),
    )
    return Response(body, media_type=JSON)


@router.get(
    "/v1/jobs/{job}/stages",
    summary="A pipeline's stages: own work, waiting, bubble, and which one sets the pace",
    **documented(Stages, "Stage by stage; what is not known has a reason.", others=BUSY),
)
async def stages(job: FoundJob, parts: Parts, from_: From = None, to: To = None) -> Response:
    """A typical step of each stage, from messages and collectives; accuses no part."""
    question = StepsQuestion(job=job.job, span=span_of_differ(parts, job, from_, to))
    body = await parts.queues.explanations.take(
        lambda: msgspec.json.encode(parts.explainer.stages(question)),
        "EXPLAINS_WAITING_MAX",
        EXPLAINS_WAITING_MAX,
        key=("stages", msgspec.json.encode(question)),
    )
    return Response(body, media_type=JSON)


def slow_span(
    parts: Context, asked: Span | None, incident: str | None
) -> tuple[Span, Verdict | None]:
    """The time of the slow steps, and the incident's verdict; a time that is asked for wins."""
    if incident is None:
        if asked is None:
            raise Problem(
                422, "which steps?", "give slow=, a time within a slow step, or incident="
            )
        return asked, None
    story = find_incident(parts, incident)
    verdict = story.verdict
    # Of a long incident its beginning: what was usual lies right before it.
    until_ns = min(
        verdict.until_ns or story.confirmed_ns, verdict.since_ns + COMPARE_SECONDS_MAX * NS
    )
    return asked or (verdict.since_ns, max(until_ns, verdict.since_ns)), verdict


def troubles_before(parts: Context, job: str, span: Span) -> tuple[Span, ...]:
    """When incidents of the job stood before this time: steps of then are not what is usual."""
    begin_ns = max(0, span[0] - COMPARE_BEFORE_SECONDS * NS)
    found = parts.incidents.list(job=job, since=moment_of(begin_ns), limit=PAGE_DEFAULT)
    stretches = (one for incident in found for one in incident.stretches)
    return tuple(
        (max(begin_ns, one.since_ns), min(span[0], one.until_ns))
        for one in stretches
        if one.since_ns < span[0] and one.until_ns > begin_ns
    )


def span_of_differ(parts: Context, job: FoundJob, begin: str | None, end: str | None) -> Span:
    from_ms, to_ms = range_of(parts, job, begin, end, shared_now_ms(parts))
    if not begin:
        from_ms = max(0, to_ms - EXPLAIN_SECONDS_DEFAULT * 1000)
    return bounded((from_ms * NS_PER_MS, to_ms * NS_PER_MS), "from")


def span_between(begin: str, end: str | None, name: str) -> Span:
    begin_ms = parse_time_ms(begin, name)
    end_ms = parse_time_ms(end, f"{name}_to") if end else begin_ms
    refuse_far_future(max(begin_ms, end_ms), name)
    if end_ms < begin_ms:
        raise Problem(400, "empty range", f"{name}_to is before {name}")
    return bounded((begin_ms * NS_PER_MS, end_ms * NS_PER_MS), name)


def bounded(span: Span, name: str) -> Span:
    """A Problem if that is too long."""
    seconds = (span[1] - span[0]) / NS
    if seconds > COMPARE_SECONDS_MAX:
        why = f"{name}: {seconds:.0f} s, over COMPARE_SECONDS_MAX = {COMPARE_SECONDS_MAX}"
        raise Problem(422, "too long", why, rule="COMPARE_SECONDS_MAX")
    return span
