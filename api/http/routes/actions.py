"""`/v1/actions`: past, standing and shadowed actions on hosts, by whom and why.

Executors near a scheduler read standing actions and apply them there (`POST …/applied` reports how
that went); operators approve, reject and undo. The service itself calls no scheduler.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from alerts.policy.action import (
    Action,
    ActionState,
    Applied,
    Ending,
    Outcome,
    Refused,
    What,
    WrongState,
    applied,
    approved,
    ended,
    refused,
)
from alerts.policy.model import Mode
from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX, NAME_CHARS_MAX, PAGE_DEFAULT, PAGE_MAX
from api.data.inventory.actions import ActionQuery, HeldError, TooManyHoldsError
from api.data.inventory.health import unix_ns
from api.data.inventory.incidents import moment_of
from api.fleet.actions.shown import PolicyOut, show_policy
from api.fleet.actions.task import board_of
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, body_of, documented
from api.http.routes.shared.bodies import receive
from api.http.tokens.guard import signed
from collector.contract.identity import printable
from collector.contract.verdict import Cause, Reason

router = APIRouter(tags=["actions"])

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Words = Annotated[str, msgspec.Meta(max_length=COMMENT_CHARS_MAX)]


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an operator's decision: who decides, and why."""

    by: Name
    words: Words = ""


class AppliedSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an executor's report: what it did to its scheduler, or could not do."""

    executor: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_.:-]{1,64}$")]
    """`slurm`, `kubernetes`, … with a name of its own where a site has several."""
    outcome: Literal["done", "failed"]
    words: Words = ""


# --- what is answered ---------------------------------------------------------------------------


class AppliedOut(msgspec.Struct, frozen=True, kw_only=True):
    """An executor's last report about an action."""

    executor: str
    outcome: str
    words: str
    at: dt.datetime


class EventOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an action."""

    at: dt.datetime
    what: What
    by: str
    words: str


class ActionOut(msgspec.Struct, frozen=True, kw_only=True):
    """One drain of one host, from its proposal to its end."""

    id: str
    kind: Literal["drain"]
    """A host's return is the end of its drain, not an action of its own."""
    host: str
    hold: str
    """What the host becomes while it stands: draining or out."""
    state: ActionState
    reason: str
    """A sentence for people and schedulers."""
    by: str
    """`policy`, or the operator's name."""
    rule: str
    """The policy's rule; empty: an operator's own."""
    at: dt.datetime
    until: dt.datetime | None
    """When it ends by itself; of a proposal, when that expires."""
    incident: str
    cause: Cause | None
    cause_reason: Reason | None
    confidence: float | None
    verdict: str
    """The verdict's sentence."""
    refused: Refused | None
    ended: dt.datetime | None
    ended_by: str
    ended_why: Ending | None
    outcome: Outcome | None
    """Of a shadowed action: whether it would have been right."""
    check: str
    """The result of the host's last check; empty: there was none."""
    applied: Sequence[AppliedOut]
    history: Sequence[EventOut]

    @classmethod
    def of(cls, action: Action, now_ns: int) -> ActionOut:
        """An action whose time is up is shown as ended, before the policy ends it."""
        why, state, ended_ns, end = action.why, action.state, action.ended_ns, action.ended_why
        if ended_ns is None and not action.is_live(now_ns):
            ended_ns = action.until_ns
            state, end = overdue(action)
        return cls(
            id=action.id,
            kind="drain",
            host=action.host,
            hold=action.hold.value,
            state=state,
            reason=action.reason,
            by=action.by,
            rule=why.rule if why is not None else "",
            at=moment_of(action.at_ns),
            until=None if action.until_ns is None else moment_of(action.until_ns),
            incident=why.incident if why is not None else "",
            cause=why.cause if why is not None else None,
            cause_reason=why.reason if why is not None else None,
            confidence=round(why.confidence, 3) if why is not None else None,
            verdict=why.text if why is not None else "",
            refused=Refused.EXPIRED
            if state is not action.state and end is None
            else action.refused,
            ended=None if ended_ns is None else moment_of(ended_ns),
            ended_by=action.ended_by,
            ended_why=end,
            outcome=action.outcome,
            check=action.check.words if action.check is not None else "",
            applied=[
                AppliedOut(
                    executor=each.executor,
                    outcome=each.outcome,
                    words=each.words,
                    at=moment_of(each.time_ns),
                )
                for each in action.applied
            ],
            history=[
                EventOut(at=moment_of(each.time_ns), what=each.what, by=each.by, words=each.words)
                for each in action.history
            ],
        )


def overdue(action: Action) -> tuple[ActionState, Ending | None]:
    """The state of an action whose time is up, before the policy has ended it."""
    if action.state is ActionState.PROPOSED:
        return ActionState.REFUSED, None
    if action.state is ActionState.STANDING:
        return ActionState.ENDED, Ending.TTL
    return action.state, Ending.TTL


class ActionsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Actions, the newest first."""

    actions: Sequence[ActionOut]
    evidence: Literal["fresh", "stale"]
    """`stale`: the evidence is old or missing; change nothing then."""
    stale: Sequence[str]
    """Why, in sentences."""
    mode: Mode
    """The policy's."""
    next: str | None
    """`after` of the next page; null: there is none."""


# --- asking -------------------------------------------------------------------------------------


@router.get(
    "/v1/actions",
    summary="What was, is and would have been done with hosts",
    response_class=Response,
    responses=documented(ActionsOut, "The newest first. What stands comes whole, without pages."),
)
async def actions(
    parts: Parts,
    state: Annotated[
        list[ActionState], Query(description="Only those; may be given several times. None: all.")
    ] = [],  # noqa: B006 - FastAPI makes a new one for each request
    host: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None,
    incident: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None,
    live: Annotated[bool | None, Query(description="Only those that are not over, or are.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """With `state=standing` alone, the list that executors apply: all of it, or an error.

    An executor that got only a part of it would return hosts that are held.
    """
    board = board_of(await parts.health.latest())
    now_ns = unix_ns(parts.now())
    following = None
    if state == [ActionState.STANDING] and incident is None and after is None:
        standing = await asyncio.to_thread(parts.inventory.actions.standing)
        found = [each for each in standing if each.stands(now_ns) and host in {None, each.host}]
    else:
        wanted = ActionQuery(states=frozenset(state), host=host, incident=incident, live=live)
        found = await asyncio.to_thread(parts.inventory.actions.page, wanted, after, limit)
        following = found[-1].id if len(found) == limit else None
    return answer(
        ActionsOut(
            actions=[ActionOut.of(each, now_ns) for each in found],
            evidence="stale" if board.stale else "fresh",
            stale=board.stale,
            mode=parts.acting.file.policy.mode,
            next=following,
        )
    )


@router.get(
    "/v1/actions/policy",
    summary="The policy in force, its room, and how often its shadows were right",
    response_class=Response,
    responses=documented(PolicyOut, "The policy."),
)
async def policy(parts: Parts) -> Response:
    """Rules with their modes and hit rates, limits, the breaker, quiet hours."""
    board = board_of(await parts.health.latest())
    now_ns = unix_ns(parts.now())
    file = parts.acting.file
    shown = await asyncio.to_thread(show_policy, file, parts.inventory, board, now_ns)
    return answer(shown)


@router.get(
    "/v1/actions/{action}",
    summary="One action with its history",
    response_class=Response,
    responses=documented(ActionOut, "The action."),
)
async def action(action: str, parts: Parts) -> Response:
    """One action; 404 if there is none, or if it ended long ago."""
    found = await asyncio.to_thread(parts.inventory.actions.get, action)
    if found is None:
        raise no_action(action)
    return answer(ActionOut.of(found, unix_ns(parts.now())))


def no_action(number: str) -> Problem:
    """The answer to an unknown id."""
    return Problem(404, "no such action", f"no action is called {number[:80]!r}")


# --- changing -----------------------------------------------------------------------------------


async def read_said(request: Request, parts: Context, kind: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - of that kind
    """The body of a request; a Problem names what is wrong with it."""
    return decode_json(await receive(request, parts), kind, "not an answer to an action")


async def change(
    parts: Context, number: str, how: Callable[[Action], Action], now: dt.datetime
) -> Response:
    """The action after a change; a Problem names why there is none."""
    try:
        after = await asyncio.to_thread(parts.inventory.actions.change, number, how, now)
    except WrongState as error:
        raise Problem(409, "not in this state", str(error), rule="state") from error
    except TooManyHoldsError as error:
        raise Problem(409, "too many holds", str(error), rule="HOLDS_MAX") from error
    except HeldError as error:
        raise Problem(409, "held already", str(error), rule="held") from error
    if after is None:
        raise no_action(number)
    parts.health.poke()
    return answer(ActionOut.of(after, unix_ns(now)))


@router.post(
    "/v1/actions/{action}/approve",
    summary="Grant a proposal: the host is held from now on",
    response_class=Response,
    responses=documented(ActionOut, "The action, which stands."),
    openapi_extra=body_of(Said),
)
async def approve(action: str, request: Request, parts: Parts) -> Response:
    """409 if it is no longer a proposal, or if the policy's share of the fleet is held by now."""
    body: Said = await read_said(request, parts, Said)
    now = parts.now()
    policy = parts.acting.file.policy
    fleet = await parts.health.fleet()
    held = await asyncio.to_thread(parts.inventory.health.holds, now)
    room = policy.limits.room(len(fleet.hosts))

    def grant(found: Action) -> Action:
        rule = policy.rule(found.why.rule) if found.why is not None else None
        until_ns = rule.until_ns(unix_ns(now)) if rule is not None else found.until_ns
        by, words = signed(request, body.by), printable(body.words)
        granted = approved(found, by, words, unix_ns(now), until_ns)
        if len(held) >= room:
            why = f"{len(held)} hosts are held, and the policy lets {room} of {len(fleet.hosts)} be"
            raise Problem(409, "share of the fleet", why, rule=Refused.SHARE_LIMIT.value)
        return granted

    return await change(parts, action, grant, now)


@router.post(
    "/v1/actions/{action}/reject",
    summary="Refuse a proposal",
    response_class=Response,
    responses=documented(ActionOut, "The action, which is refused."),
    openapi_extra=body_of(Said),
)
async def reject(action: str, request: Request, parts: Parts) -> Response:
    """The host is not proposed again for the same incident."""
    body: Said = await read_said(request, parts, Said)
    now = parts.now()
    by, words = signed(request, body.by), printable(body.words)
    return await change(
        parts, action, lambda each: refused(each, Refused.REJECTED, by, words, unix_ns(now)), now
    )


@router.post(
    "/v1/actions/{action}/undo",
    summary="End what stands: the host is let back",
    response_class=Response,
    responses=documented(ActionOut, "The action, which has ended."),
    openapi_extra=body_of(Said),
)
async def undo(action: str, request: Request, parts: Parts) -> Response:
    """The policy does not take the host again for the same incident."""
    body: Said = await read_said(request, parts, Said)
    now = parts.now()
    by, words = signed(request, body.by), printable(body.words)
    return await change(
        parts, action, lambda each: ended(each, Ending.OPERATOR, by, words, unix_ns(now)), now
    )


@router.post(
    "/v1/actions/{action}/applied",
    summary="Report what an executor did about it",
    response_class=Response,
    responses=documented(ActionOut, "The action."),
    openapi_extra=body_of(AppliedSaid),
)
async def say_applied(action: str, request: Request, parts: Parts) -> Response:
    """Kept as the executor's last report, and in the history where it is news."""
    body: AppliedSaid = await read_said(request, parts, AppliedSaid)
    now = parts.now()
    word = Applied(
        executor=body.executor,
        outcome=body.outcome,
        words=printable(body.words),
        time_ns=unix_ns(now),
    )
    return await change(parts, action, lambda each: applied(each, word), now)
