"""`/v1/incidents/{incident}/feedback` and `…/case`: what operators say about verdicts.

What is said is kept with the window that the verdict was made from. The window leaves the service
only without names.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response

from alerts.cases.model import Says, Told
from alerts.cases.words import verdict_words
from alerts.judge.incident import Incident
from alerts.judge.names import names_of
from api.base.case_limits import CASES_WAITING_MAX
from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX, NAME_CHARS_MAX, PAGE_DEFAULT
from api.data.inventory.feedback import (
    CaseNote,
    CaseState,
    Feedback,
    TooMuchFeedbackError,
    name_feedback,
)
from api.data.inventory.health import unix_ns
from api.data.inventory.incidents import moment_of
from api.http.context import Context, Parts
from api.http.routes.shared.answers import BUSY, CONFLICT, answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import find_incident
from api.http.routes.shared.paging import After, Limit
from api.http.tokens.guard import signed
from collector.contract.errors import CaseError
from collector.contract.identity import printable
from collector.contract.verdict import Cause, Culprit

router = APIRouter(tags=["verdicts"])

CASE_TYPE = "application/vnd.fabricscope.case"
NOT_FEEDBACK = "not feedback"
WAITING = "CASES_WAITING_MAX"

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class CulpritAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who it was, by as many names as are known: a host, a switch, or a job and its rank."""

    job: Name = ""
    rank: Number | None = None
    host: Name = ""
    gpu: Number | None = None
    device: Name = ""
    port: Name = ""
    switch: Name = ""
    switch_port: Name = ""
    storage: Name = ""


class AboutAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict that the operator has seen."""

    cause: Cause
    culprit: CulpritAsked = CulpritAsked()


class FeedbackAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: what an operator says about an incident's verdict."""

    says: Says
    by: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    cause: Cause | None = None
    """With `other`: what it was."""
    culprit: CulpritAsked = CulpritAsked()
    """With `other`: who it was, if that is known."""
    note: Annotated[str, msgspec.Meta(max_length=COMMENT_CHARS_MAX)] = ""
    """For people: it is never part of an exported case."""
    about: AboutAsked | None = None
    """Refused (409) if the incident's verdict is another one by now. Left out: what stands."""


class SaidOut(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator said about an incident, and about which verdict."""

    id: str
    incident: str
    at: dt.datetime
    by: str
    says: Says
    cause: Cause | None
    culprit: Culprit
    note: str
    told: Told

    @classmethod
    def of(cls, said: Feedback) -> SaidOut:
        return copied(cls, said, at=moment_of(said.at_ns))


class CaseOut(msgspec.Struct, frozen=True, kw_only=True):
    """The window that is kept with it, or why there is none."""

    state: CaseState
    words: str
    bytes: int
    from_ns: int
    to_ns: int
    is_repeated: bool
    """Whether the window gave the verdict again when it was kept."""

    @classmethod
    def of(cls, note: CaseNote) -> CaseOut:
        return copied(cls, note)


class FeedbackOut(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about an incident: the latest first, which stands."""

    incident: str
    items: Sequence[SaidOut]
    case: CaseOut | None
    """Null: nothing was said, or the window was dropped by its age or a bound."""


class FeedbackPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of what was said. ``next`` is null on the last one."""

    items: Sequence[SaidOut]
    next: str | None


def read_feedback(body: bytes, incident: Incident, now_ns: int) -> Feedback:
    asked = decode_json(body, FeedbackAsked, NOT_FEEDBACK)
    culprit = read_culprit(asked.culprit, incident)
    told = Told.of(incident.verdict)
    if asked.about is not None:
        check_about(asked.about, told)
    if asked.says is not Says.OTHER and (asked.cause is not None or names_of(culprit)):
        raise Problem(422, NOT_FEEDBACK, "a cause or culprit goes with says=other only")
    if asked.says is Says.OTHER and asked.cause is None:
        raise Problem(422, NOT_FEEDBACK, "says=other needs the cause; GET /v1/causes lists them")
    if asked.says is Says.OTHER and asked.cause is told.cause and culprit in (told.culprit, NONE):
        why = f"the verdict says {told.cause} already: name another cause or another culprit"
        raise Problem(422, NOT_FEEDBACK, why)
    return Feedback(
        id=name_feedback(now_ns),
        incident=incident.id,
        at_ns=now_ns,
        by=asked.by,
        says=asked.says,
        cause=asked.cause,
        culprit=culprit,
        note=printable(asked.note),
        told=told,
    )


NONE = Culprit()


def check_about(about: AboutAsked, told: Told) -> None:
    """A Problem if the verdict has changed since the operator has seen it."""
    if about.cause is not told.cause or copied(Culprit, about.culprit) != told.culprit:
        why = f"the verdict is {verdict_words(told.cause, told.culprit)} by now: look at it again"
        raise Problem(409, "another verdict", why, rule="verdict_changed")


def read_culprit(asked: CulpritAsked, incident: Incident) -> Culprit:
    """The culprit as it is named; a rank without a job is one of the incident's only job."""
    culprit = copied(Culprit, asked)
    if culprit == NONE:
        return culprit
    if culprit.rank is not None and not culprit.job and len(incident.jobs) == 1:
        culprit = msgspec.structs.replace(culprit, job=incident.jobs[0])
    if not (culprit.host or culprit.switch or (culprit.job and culprit.rank is not None)):
        why = "a culprit is a host, a switch, or a job with a rank; more names may go with it"
        raise Problem(422, NOT_FEEDBACK, why)
    return culprit


@router.put(
    "/v1/incidents/{incident}/feedback",
    summary="Say whether a verdict is right",
    **documented(
        FeedbackOut,
        "What stands now, and what was said before.",
        body=FeedbackAsked,
        others=CONFLICT,
    ),
)
async def put_feedback(incident: str, request: Request, parts: Parts) -> Response:
    """Right, wrong, or another cause; it replaces what was said before, which is kept.

    The window that the verdict was made from is read again and kept, so that later versions can be
    held against it (`fabricscope score --cases`). Where that cannot be, `case` says why.
    """
    story = await asyncio.to_thread(find_incident, parts, incident)
    now_ns = unix_ns(parts.now())
    said = read_feedback(await receive(request, parts), story, now_ns)
    said = msgspec.structs.replace(said, by=signed(request, said.by))
    try:
        dropped = await asyncio.to_thread(parts.inventory.feedback.say, said)
    except TooMuchFeedbackError as error:
        rule = "FEEDBACK_PER_INCIDENT_MAX"
        raise Problem(409, "too much feedback", str(error), rule=rule) from error
    parts.cases.count_dropped(dropped)
    note = await keep_window(parts, story, said)
    items = await asyncio.to_thread(parts.inventory.feedback.of, story.id)
    return answer(
        FeedbackOut(
            incident=story.id, items=[SaidOut.of(each) for each in items], case=CaseOut.of(note)
        )
    )


async def keep_window(parts: Context, story: Incident, said: Feedback) -> CaseNote:
    """The note of the window; what was said stands whatever becomes of it."""
    try:
        return await parts.queues.cases.take(
            lambda: parts.cases.keep(story, said.truth, said.at_ns), WAITING, CASES_WAITING_MAX
        )
    except Problem as problem:
        return CaseNote(
            incident=story.id,
            at_ns=said.at_ns,
            state=CaseState.NOT_READ,
            words=f"{problem.body.detail}; say it again",
            told=said.told,
            from_ns=0,
            to_ns=0,
        )


@router.get(
    "/v1/incidents/{incident}/feedback",
    summary="What was said about a verdict",
    **documented(FeedbackOut, "The latest first; `case` is the window that is kept."),
)
async def get_feedback(incident: str, parts: Parts) -> Response:
    """Who said what and when, and whether the verdict's window is kept."""
    items = await asyncio.to_thread(parts.inventory.feedback.of, incident)
    if not items:
        # Statements outlive their incident; where there is none, the incident must exist.
        await asyncio.to_thread(find_incident, parts, incident)
    note = await asyncio.to_thread(parts.inventory.feedback.note, incident)
    return answer(
        FeedbackOut(
            incident=incident,
            items=[SaidOut.of(each) for each in items],
            case=None if note is None else CaseOut.of(note),
        )
    )


@router.get(
    "/v1/feedback",
    summary="What was said about all verdicts",
    **documented(FeedbackPage, "One page, the latest first; `next` is null on the last one."),
)
async def feedback(parts: Parts, limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
    """Every statement, also those that a later one has replaced."""
    found = await asyncio.to_thread(parts.inventory.feedback.page, after, limit)
    items = [SaidOut.of(each) for each in found]
    return answer(FeedbackPage(items=items, next=items[-1].id if len(items) == limit else None))


@router.get(
    "/v1/incidents/{incident}/case",
    summary="A verdict's window without names",
    response_class=Response,
    responses={
        200: {
            "description": "The case, for `fabricscope score --cases`.",
            "content": {CASE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        **CONFLICT,
        **BUSY,
    },
)
async def case(incident: str, parts: Parts) -> Response:
    """The window and what was said last, with neutral names, other times and no texts."""
    try:
        packed = await parts.queues.cases.take(
            lambda: parts.cases.export(incident), WAITING, CASES_WAITING_MAX
        )
    except CaseError as error:
        why = f"what is kept of {incident[:80]!r} cannot be given out: {error}"
        raise Problem(409, "case unreadable", why) from error
    if packed is None:
        raise await no_case(parts, incident)
    return Response(packed, media_type=CASE_TYPE)


async def no_case(parts: Context, incident: str) -> Problem:
    """Why there is no case: by the note of its window, or because nothing was said."""
    note = await asyncio.to_thread(parts.inventory.feedback.note, incident)
    if note is not None:
        return Problem(404, "no case", f"its window was not kept: {note.words}", rule=note.state)
    await asyncio.to_thread(find_incident, parts, incident)
    why = f"{incident[:80]!r} has no feedback yet: PUT …/feedback keeps its window"
    return Problem(404, "no case", why)
