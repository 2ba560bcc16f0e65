"""`GET /v1/explain`: the evidence as data, so that operators can check a verdict."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from alerts.judge.incident import Incident
from api.base.errors import Problem
from api.base.limits import (
    EXPLAIN_SECONDS_DEFAULT,
    EXPLAIN_SECONDS_MAX,
    EXPLAINS_WAITING_MAX,
    NAME_CHARS_MAX,
)
from api.base.times import parse_range_ms, parse_time_ms
from api.fabric.cache import BuiltTopology
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON, documented
from api.http.routes.shared.find import find_incident, find_job_name
from api.http.routes.shared.parameters import Rank, moment_of, refuse_far_future, shared_now_ms
from api.http.routes.shared.topologies import find, find_or_refuse, port_of
from api.oncall.explain.answer import Explanation
from api.oncall.explain.explainer import Question
from collector.contract.errors import ContractError
from collector.contract.identity import LinkId, PortId
from collector.contract.units import NS_PER_MS

router = APIRouter(tags=["verdicts"])

MS_PER_SECOND = 1_000


def named(description: str) -> Any:  # noqa: ANN401 - what FastAPI makes of a parameter
    return Query(min_length=1, max_length=NAME_CHARS_MAX, description=description)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a request: exactly one of them."""

    job: str | None = None
    host: str | None = None
    link: str | None = None
    incident: str | None = None

    @property
    def words(self) -> dict[str, str]:
        return {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }


async def read_about(
    job: Annotated[str | None, named("A job's collectives, and what they accuse.")] = None,
    host: Annotated[str | None, named("A host or switch: its readings and jobs.")] = None,
    link: Annotated[
        str | None, named("A cable: its id, or one of its ports (host/device/port, switch/port).")
    ] = None,
    incident: Annotated[str | None, named("What an incident rests on.")] = None,
) -> About:
    """A Problem if there is no subject, or more than one."""
    about = About(job=job, host=host, link=link, incident=incident)
    if len(about.words) != 1:
        given = ", ".join(about.words) or "none"
        raise Problem(422, "about whom?", f"give one of job, host, link, incident; given: {given}")
    return about


@router.get(
    "/v1/explain",
    summary="The evidence as data",
    **documented(Explanation, "Windows, series, findings; what was left out is listed."),
)
async def explain(
    parts: Parts,
    about: Annotated[About, Depends(read_about)],
    from_: Annotated[
        str | None,
        Query(
            alias="from",
            description=f"RFC 3339 or unix seconds; {EXPLAIN_SECONDS_DEFAULT} s before `to`.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        Query(description="RFC 3339 or unix seconds; now, or an incident's last evaluation."),
    ] = None,
    since: Annotated[
        str | None, Query(description="Divides before from during. Empty: when the trouble began.")
    ] = None,
    communicator: Annotated[str | None, named("Only this communicator's.")] = None,
    rank: Rank = None,
    *,
    records: Annotated[
        bool, Query(description="Also every single record, for counting by hand.")
    ] = False,
) -> Response:
    """What detectors saw: operations, ranks' own times, exits around rings, clocks, readings.

    The window ends at `to` as if that were now, and all detectors run on it again.
    """
    question = await ask(parts, about, from_, to)
    since_ns = question.since_ns
    if since:
        since_ms = parse_time_ms(since, "since")
        refuse_far_future(since_ms, "since")
        since_ns = since_ms * NS_PER_MS
    question = msgspec.structs.replace(
        question, since_ns=since_ns, communicator=communicator, rank=rank, has_records=records
    )
    body = await parts.queues.explanations.take(
        lambda: msgspec.json.encode(parts.explainer.explain(question)),
        "EXPLAINS_WAITING_MAX",
        EXPLAINS_WAITING_MAX,
        # Every single record may be hundreds of MB: that is not kept for others.
        key=None if records else msgspec.json.encode(question),
    )
    return Response(body, media_type=JSON)


async def ask(parts: Context, about: About, begin: str | None, end: str | None) -> Question:
    now_ms = shared_now_ms(parts)
    if about.incident is not None:
        story = await asyncio.to_thread(find_incident, parts, about.incident)
        # The window at its last explanation: the same again finds the same.
        now_ms = min(now_ms, -(-story.confirmed_ns // NS_PER_MS))
        return about_incident(story, span_of(begin, end, now_ms), about)
    span = span_of(begin, end, now_ms)
    if about.job is not None:
        name = await asyncio.to_thread(find_job_name, parts, about.job)
        return Question(from_ns=span[0], to_ns=span[1], about=about.words, job=name)
    built = await find(parts, moment_of(span[1]))
    if about.link is not None:
        return about_link(built, about.link, span, about)
    assert about.host is not None, "one of four was given"
    if about.host not in built.topology.nodes:
        find_or_refuse(built.topology, about.host, "host")
    return Question(from_ns=span[0], to_ns=span[1], about=about.words, hosts=(about.host,))


def span_of(begin: str | None, end: str | None, now_ms: int) -> tuple[int, int]:
    """From and to in unix nanoseconds; a Problem if that is too long."""
    default_ms = EXPLAIN_SECONDS_DEFAULT * MS_PER_SECOND
    from_ms, to_ms = parse_range_ms(begin, end, now_ms, default_ms)
    refuse_far_future(to_ms, "to")
    if to_ms - from_ms > EXPLAIN_SECONDS_MAX * MS_PER_SECOND:
        seconds = (to_ms - from_ms) / MS_PER_SECOND
        why = f"{seconds:.0f} s, over EXPLAIN_SECONDS_MAX = {EXPLAIN_SECONDS_MAX}"
        raise Problem(422, "too long", why, rule="EXPLAIN_SECONDS_MAX")
    if from_ms == to_ms:
        raise Problem(400, "empty range", f"from and to are both {from_ms} ms")
    return from_ms * NS_PER_MS, to_ms * NS_PER_MS


def about_link(built: BuiltTopology, text: str, span: tuple[int, int], about: About) -> Question:
    try:
        link = LinkId.parse(text) if "|" in text else None
        ends = (link.a, link.b) if link is not None else (port_of(text),)
    except ContractError as error:
        raise Problem(422, "not a link", str(error)) from error
    known: list[PortId] = []
    for end in ends:
        if end in built.topology.ports:
            known.append(end)
        else:
            name = text if link is None else str(end)
            # A NIC without its port's number stands for all of its ports.
            known += find_or_refuse(built.topology, name, "link").ports
    return Question(from_ns=span[0], to_ns=span[1], about=about.words, ports=tuple(known))


def about_incident(story: Incident, span: tuple[int, int], about: About) -> Question:
    verdict, since_ns = story.verdict, story.verdict.since_ns
    return Question(
        from_ns=span[0],
        to_ns=span[1],
        about=about.words,
        jobs=story.jobs or verdict.jobs,
        culprits=(verdict.culprit, *verdict.accomplices),
        since_ns=since_ns if span[0] < since_ns <= span[1] else None,
    )
