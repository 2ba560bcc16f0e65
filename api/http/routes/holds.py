"""`/v1/hosts/{host}/hold`, `/v1/holds`: an action that stands at once (`…routes.actions`)."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from alerts.health.model import HealthState, Hold, Target
from alerts.policy.record import said_by
from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX, HOLD_DAYS_MAX, NAME_CHARS_MAX
from api.data.inventory.actions import TooManyHoldsError
from api.data.inventory.health import KeptHold, unix_ns
from api.fleet.actions.task import name_action
from api.http.context import Parts
from api.http.peers import HEALTH
from api.http.routes.shared.answers import CONFLICT, answer, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import find_host
from api.http.routes.shared.shown import HoldOut
from api.http.tokens.guard import signed
from collector.contract.identity import printable

router = APIRouter(tags=["health"])


class HoldAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: the host's state, who sets it and why, and until when."""

    state: Literal["draining", "out"]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=COMMENT_CHARS_MAX)]
    by: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    until: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    """Left out: until an operator ends it."""
    hours: Annotated[float, msgspec.Meta(gt=0, le=24 * HOLD_DAYS_MAX)] | None = None
    """From now; instead of `until`."""


class HoldsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Standing holds, by host."""

    items: Sequence[HoldOut]


def read_hold(body: bytes, host: str, now: dt.datetime) -> Hold:
    asked = decode_json(body, HoldAsked, "not a hold")
    if asked.until is not None and asked.hours is not None:
        raise Problem(422, "not a hold", "it takes until or hours, not both")
    until = asked.until if asked.hours is None else now + dt.timedelta(hours=asked.hours)
    if until is not None and not now < until <= now + dt.timedelta(days=HOLD_DAYS_MAX):
        why = f"it must end after now and within {HOLD_DAYS_MAX} days, or not by itself"
        raise Problem(422, "not a hold", why, rule="HOLD_DAYS_MAX")
    return Hold(
        target=Target.of_host(host),
        state=HealthState(asked.state),
        # They are shown in terminals and schedulers' lists.
        reason=printable(asked.reason),
        by=printable(asked.by),
        since_ns=unix_ns(now),
        until_ns=None if until is None else unix_ns(until),
    )


@router.put(
    "/v1/hosts/{host}/hold",
    summary="Mark a host as draining, or out",
    **documented(HoldOut, "The hold.", body=HoldAsked, others=CONFLICT),
)
async def put_hold(host: str, request: Request, parts: Parts) -> Response:
    """Until it ends this is the host's state, whatever is measured.

    It replaces a standing hold; that one is kept, with who replaced it.
    """
    fleet = await parts.health.fleet()
    found = await asyncio.to_thread(find_host, parts, fleet, host)
    hold = read_hold(await receive(request, parts), found.host, parts.now())
    hold = msgspec.structs.replace(hold, by=signed(request, hold.by))
    number = name_action(hold.since_ns)
    try:
        await asyncio.to_thread(parts.inventory.actions.take_host, said_by(hold, number))
    except TooManyHoldsError as error:
        raise Problem(409, "too many holds", str(error), rule="HOLDS_MAX") from error
    parts.health.poke()
    await parts.duties.peers.tell(HEALTH)
    return answer(HoldOut.of(KeptHold(id=number, hold=hold, ended_at=None, ended_by="")))


@router.delete(
    "/v1/hosts/{host}/hold",
    summary="Let a host back",
    **documented(HoldOut, "The hold, which has ended."),
)
async def end_hold(
    host: str,
    request: Request,
    parts: Parts,
    by: Annotated[str, Query(min_length=1, max_length=NAME_CHARS_MAX, description="Who ends it.")],
) -> Response:
    """End what holds a host; from then on its state is the measured one."""
    who, now = signed(request, by), parts.now()
    ended = await asyncio.to_thread(parts.inventory.actions.give_back, host, who, "", now)
    if ended is None:
        raise Problem(404, "no such hold", f"nothing holds a host named {host[:80]!r}")
    parts.health.poke()
    await parts.duties.peers.tell(HEALTH)
    return answer(HoldOut.of(ended))


@router.get(
    "/v1/holds", summary="Hosts that are taken out", **documented(HoldsOut, "All holds that stand.")
)
async def holds(parts: Parts) -> Response:
    """Everything that is draining or out, by whom, since when and why."""
    found = await asyncio.to_thread(parts.inventory.health.holds, parts.now())
    return answer(HoldsOut(items=[HoldOut.of(each) for each in found]))
