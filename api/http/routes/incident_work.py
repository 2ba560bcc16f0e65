"""`/v1/incidents/{incident}/work` and `….md`: what people do about an incident, and all of it.

Who acknowledged it, to whom it was assigned, and notes: a record that only grows.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX, NAME_CHARS_MAX
from api.data.inventory.feedback import name_feedback
from api.data.inventory.health import unix_ns
from api.data.inventory.incidents import moment_of
from api.data.inventory.work import Deed, Does, TooMuchWorkError, Work, state_of
from api.http.context import Context, Parts
from api.http.routes.shared.answers import CONFLICT, answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import find_incident
from api.http.tokens.guard import check_pass, signed
from api.oncall.cases.markdown import Price, markdown_of
from collector.contract.identity import printable

router = APIRouter(tags=["verdicts"])

MARKDOWN_TYPE = "text/markdown; charset=utf-8"
NOT_WORK = "not work on an incident"


class WorkAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: what a person does about an incident."""

    does: Does
    by: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    to: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    """With `assign`: who looks after it from now on; empty: no person."""
    note: Annotated[str, msgspec.Meta(max_length=COMMENT_CHARS_MAX)] = ""
    """With `note` required, with the others optional."""


class DeedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person did about an incident."""

    id: str
    at: dt.datetime
    by: str
    does: Does
    to: str
    note: str

    @classmethod
    def of(cls, deed: Deed) -> DeedOut:
        return copied(cls, deed, at=moment_of(deed.at_ns))


class WorkOut(msgspec.Struct, frozen=True, kw_only=True):
    """How far people are with an incident, and who did what: the latest last."""

    incident: str
    work: Work
    items: Sequence[DeedOut]

    @classmethod
    def of(cls, incident: str, deeds: Sequence[Deed]) -> WorkOut:
        return cls(
            incident=incident, work=state_of(deeds), items=[DeedOut.of(each) for each in deeds]
        )


def read_deed(body: bytes, incident: str, now_ns: int) -> Deed:
    asked = decode_json(body, WorkAsked, NOT_WORK)
    if asked.to and asked.does is not Does.ASSIGN:
        raise Problem(422, NOT_WORK, "`to` goes with does=assign only")
    note = printable(" ".join(asked.note.split()))
    if asked.does is Does.NOTE and not note:
        raise Problem(422, NOT_WORK, "does=note needs a note")
    return Deed(
        id=name_feedback(now_ns),
        incident=incident,
        at_ns=now_ns,
        by=asked.by,
        does=asked.does,
        to=printable(asked.to),
        note=note,
    )


@router.post(
    "/v1/incidents/{incident}/work",
    summary="Acknowledge or assign an incident, or note something",
    **documented(WorkOut, "What stands now, and who did what.", body=WorkAsked, others=CONFLICT),
)
async def do_work(incident: str, request: Request, parts: Parts) -> Response:
    """What is done is kept with who did it; a later deed stands in the place of an earlier one."""
    story = await asyncio.to_thread(find_incident, parts, incident)
    deed = read_deed(await receive(request, parts), story.id, unix_ns(parts.now()))
    check_pass(request, f"does={deed.does}", is_allowed=deed.does is Does.ACKNOWLEDGE)
    deed = msgspec.structs.replace(deed, by=signed(request, deed.by))
    try:
        dropped = await asyncio.to_thread(parts.inventory.work.do, deed)
    except TooMuchWorkError as error:
        rule = "WORK_PER_INCIDENT_MAX"
        raise Problem(409, "too much work on an incident", str(error), rule=rule) from error
    parts.cases.count_dropped(dropped)
    deeds = await asyncio.to_thread(parts.inventory.work.of, story.id)
    return answer(WorkOut.of(story.id, deeds))


@router.get(
    "/v1/incidents/{incident}/work",
    summary="Who did what about an incident",
    **documented(WorkOut, "What stands now, and who did what, the latest last."),
)
async def get_work(incident: str, parts: Parts) -> Response:
    """Acknowledgements, assignments and notes."""
    deeds = await asyncio.to_thread(parts.inventory.work.of, incident)
    if not deeds:
        # The record outlives its incident; where there is none, the incident must exist.
        await asyncio.to_thread(find_incident, parts, incident)
    return answer(WorkOut.of(incident, deeds))


@router.get(
    "/v1/incidents/{incident}.md",
    summary="An incident as Markdown",
    response_class=Response,
    responses={
        200: {
            "description": "All of it, for a ticket or a wiki.",
            "content": {"text/markdown": {"schema": {"type": "string"}}},
        }
    },
)
async def markdown(incident: str, parts: Parts) -> Response:
    """What it is, what to do, cost, evidence, what was ruled out, and who did what."""
    text = await asyncio.to_thread(write_markdown, parts, incident)
    return Response(text, media_type=MARKDOWN_TYPE)


def write_markdown(parts: Context, incident: str) -> str:
    story = find_incident(parts, incident)
    deeds = parts.inventory.work.of(story.id)
    said = parts.inventory.feedback.of(story.id)
    price = Price(parts.settings.price_per_gpu_hour, parts.settings.currency)
    return markdown_of(story, deeds, said[::-1], parts.settings.public_url, price)
