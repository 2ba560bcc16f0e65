"""`/v1/silences`: alerts that send no page for a while; `/v1/notices`: sent and waiting notices."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import secrets
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from alerts.rulebook.notices import Matcher, Operator, Silence, Status, Why
from api.base.errors import Problem, decode_json
from api.base.limits import (
    COMMENT_CHARS_MAX,
    NAME_CHARS_MAX,
    PAGE_DEFAULT,
    SILENCE_DAYS_MAX,
    SILENCE_MATCHERS_MAX,
    SILENCES_KEPT_DAYS,
    SILENCES_MAX,
)
from api.data.inventory.incidents import moment_of
from api.data.inventory.notices import KeptNotice
from api.data.inventory.records import NoticeState
from api.http.context import Parts
from api.http.peers import SILENCES
from api.http.routes.shared.answers import CONFLICT, answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import no_such
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import Name
from api.oncall.notify.matching import check_matcher, meets_empty
from api.oncall.notify.message import say
from collector.contract.errors import SettingsError
from collector.contract.units import NS

router = APIRouter(tags=["alerts"])

_OPERATORS = {
    (True, False): Operator.IS,
    (False, False): Operator.IS_NOT,
    (True, True): Operator.FITS,
    (False, True): Operator.FITS_NOT,
}
"""By Alertmanager's isEqual and isRegex."""

Text = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Comment = Annotated[str, msgspec.Meta(min_length=1, max_length=COMMENT_CHARS_MAX)]


class MatcherBody(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """A condition on a label, as Alertmanager writes it."""

    name: Text
    value: Text
    is_regex: bool = False
    is_equal: bool = True

    def read(self) -> Matcher:
        """Raises SettingsError."""
        matcher = Matcher(self.name, _OPERATORS[self.is_equal, self.is_regex], self.value)
        check_matcher(matcher)
        return matcher

    @classmethod
    def of(cls, matcher: Matcher) -> MatcherBody:
        equal, regex = next(key for key, one in _OPERATORS.items() if one is matcher.operator)
        return cls(name=matcher.label, value=matcher.value, is_regex=regex, is_equal=equal)


class SilenceAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: which alerts, until when, who silences them and why."""

    matchers: Annotated[
        list[MatcherBody], msgspec.Meta(min_length=1, max_length=SILENCE_MATCHERS_MAX)
    ]
    created_by: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    comment: Comment
    starts: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    """Left out: now."""
    ends: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    hours: Annotated[float, msgspec.Meta(gt=0, le=24 * SILENCE_DAYS_MAX)] | None = None
    """From its start; instead of `ends`."""


class SilenceState(enum.StrEnum):
    """Whether a silence holds."""

    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"


class SilenceOut(msgspec.Struct, frozen=True, kw_only=True):
    """A silence."""

    id: str
    state: SilenceState
    matchers: Sequence[MatcherBody]
    starts: dt.datetime
    ends: dt.datetime
    updated: dt.datetime
    created_by: str
    comment: str

    @classmethod
    def of(cls, silence: Silence, now_ns: int) -> SilenceOut:
        state = SilenceState.ACTIVE
        if silence.ends_ns <= now_ns:
            state = SilenceState.EXPIRED
        elif silence.starts_ns > now_ns:
            state = SilenceState.PENDING
        return copied(
            cls,
            silence,
            state=state,
            matchers=[MatcherBody.of(each) for each in silence.matchers],
            starts=moment_of(silence.starts_ns),
            ends=moment_of(silence.ends_ns),
            updated=moment_of(silence.updated_ns),
        )


class SilencesOut(msgspec.Struct, frozen=True, kw_only=True):
    """Silences, the first to end first."""

    items: Sequence[SilenceOut]


def read_silence(body: bytes, now_ns: int) -> Silence:
    asked = decode_json(body, SilenceAsked, "not a silence")
    try:
        matchers = tuple(each.read() for each in asked.matchers)
    except SettingsError as error:
        raise Problem(422, "not a silence", str(error)) from error
    if meets_empty(matchers):
        why = "alerts without any of these labels meet all matchers; name one that must be there"
        raise Problem(422, "not a silence", why)
    starts_ns = now_ns if asked.starts is None else unix_ns(asked.starts)
    if (asked.ends is None) == (asked.hours is None):
        raise Problem(422, "not a silence", "it needs ends, or hours, and not both")
    ends_ns = (
        unix_ns(asked.ends) if asked.ends else starts_ns + round((asked.hours or 0) * 3_600 * NS)
    )
    if not max(starts_ns, now_ns) < ends_ns <= now_ns + SILENCE_DAYS_MAX * 86_400 * NS:
        why = f"it must end after its start and after now, within {SILENCE_DAYS_MAX} days"
        raise Problem(422, "not a silence", why, rule="SILENCE_DAYS_MAX")
    return Silence(
        id=secrets.token_hex(8),
        matchers=matchers,
        starts_ns=starts_ns,
        ends_ns=ends_ns,
        created_by=asked.created_by,
        comment=asked.comment,
        updated_ns=now_ns,
    )


def unix_ns(moment: dt.datetime) -> int:
    """A Problem if the moment is out of range."""
    try:
        return round(moment.timestamp() * NS)
    except (OverflowError, ValueError, OSError) as error:
        raise Problem(422, "not a silence", f"{moment} is no moment that there is") from error


# --- silences -----------------------------------------------------------------------------------


@router.post(
    "/v1/silences",
    summary="Silence alerts",
    **documented(SilenceOut, "The silence.", status=201, body=SilenceAsked, others=CONFLICT),
)
async def create(request: Request, parts: Parts) -> Response:
    """Alerts that match all matchers send no page until the silence ends.

    For the built-in notifier; an Alertmanager has its own. Receivers that were notified of a firing
    alert are still notified of its end.
    """
    body = await receive(request, parts)
    now_s = parts.clock()
    silence = read_silence(body, round(now_s * NS))
    now = dt.datetime.fromtimestamp(now_s, tz=dt.UTC)
    if not await asyncio.to_thread(parts.inventory.silences.keep, silence, now):
        why = f"there are SILENCES_MAX = {SILENCES_MAX} already; end one that is not needed"
        raise Problem(409, "too many silences", why, rule="SILENCES_MAX")
    parts.notifying.silences_changed()
    await parts.duties.peers.tell(SILENCES)
    made = answer(SilenceOut.of(silence, round(now_s * NS)))
    made.status_code = 201
    made.headers["Location"] = f"/v1/silences/{silence.id}"
    return made


@router.get(
    "/v1/silences",
    summary="Silences, the first to end first",
    **documented(SilencesOut, "All that stand, and those of the last days."),
)
async def silences(
    parts: Parts, state: Annotated[SilenceState | None, Query(description="Only those.")] = None
) -> Response:
    """Silences that are active, pending, or have ended within the last days."""
    now_s = parts.clock()
    since = dt.datetime.fromtimestamp(now_s, tz=dt.UTC) - dt.timedelta(days=SILENCES_KEPT_DAYS)
    found = await asyncio.to_thread(parts.inventory.silences.ending_after, since)
    items = [SilenceOut.of(each, round(now_s * NS)) for each in found]
    return answer(
        SilencesOut(items=[each for each in items if state is None or each.state is state])
    )


@router.get(
    "/v1/silences/{silence}", summary="One silence", **documented(SilenceOut, "The silence.")
)
async def silence(silence: str, parts: Parts) -> Response:
    """One silence; 404 if there is none, or if it ended long ago."""
    found = await asyncio.to_thread(parts.inventory.silences.get, silence)
    if found is None:
        raise no_such("silence", silence)
    return answer(SilenceOut.of(found, round(parts.clock() * NS)))


@router.delete(
    "/v1/silences/{silence}",
    summary="End a silence",
    **documented(SilenceOut, "The silence, which has ended."),
)
async def end(silence: str, parts: Parts) -> Response:
    """End a silence now. It is kept for some days, as a record of who silenced what."""
    now_ns = round(parts.clock() * NS)
    found = await asyncio.to_thread(parts.inventory.silences.end, silence, now_ns)
    if found is None:
        raise no_such("silence", silence)
    parts.notifying.silences_changed()
    await parts.duties.peers.tell(SILENCES)
    return answer(SilenceOut.of(found, now_ns))


# --- notices ------------------------------------------------------------------------------------


class NoticeOut(msgspec.Struct, frozen=True, kw_only=True):
    """A notice, and how far it has come."""

    id: str
    """Receivers get it as `Idempotency-Key`: the same however often it is tried."""
    receiver: str
    group: str
    group_labels: dict[str, str]
    status: Status
    why: Why
    number: int
    """Of the notices about this group of alerts, from 1."""
    title: str
    alerts: int
    state: NoticeState
    attempts: int
    detail: str
    """Why the last attempt failed; empty if it did not."""
    planned: dt.datetime
    due: dt.datetime
    ended: dt.datetime | None
    """When it was sent, or given up."""

    @classmethod
    def of(cls, kept: KeptNotice) -> NoticeOut:
        notice = kept.notice
        return copied(
            cls,
            kept,
            notice,
            group_labels=dict(notice.group_labels),
            title=say(notice, "").title,
            alerts=len(notice.lines) + notice.left_out,
            planned=kept.planned_at,
            due=kept.due_at,
            ended=kept.ended_at,
        )


class NoticesOut(msgspec.Struct, frozen=True, kw_only=True):
    """One page of notices. ``next`` is null on the last one."""

    items: Sequence[NoticeOut]
    next: str | None


@router.get(
    "/v1/notices",
    summary="Notices that were sent, and those that wait",
    **documented(NoticesOut, "One page; `next` is null on the last one."),
)
async def notices(
    parts: Parts,
    receiver: Name = None,
    state: Annotated[NoticeState | None, Query(description="Only those.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Response:
    """Notices of the built-in notifier, the newest first."""
    found = await asyncio.to_thread(
        lambda: parts.inventory.notices.page(
            receiver=receiver, state=state, after=after, limit=limit
        )
    )
    items = [NoticeOut.of(each) for each in found]
    return answer(NoticesOut(items=items, next=items[-1].id if len(items) == limit else None))
