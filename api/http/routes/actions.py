"""`/v1/actions`: past, standing and shadowed actions on hosts, by whom and why.

Executors near a scheduler read standing actions and apply them there (`POST …/applied` reports how
that went); operators approve, reject and undo. The service itself calls no scheduler.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

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
from api.fleet.actions.task import health_of
from api.http.context import Context, Parts
from api.http.peers import HEALTH
from api.http.routes.shared import parameters
from api.http.routes.shared.answers import CONFLICT, answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import no_such
from api.http.routes.shared.paging import After
from api.http.tokens.guard import signed
from collector.contract.identity import printable
from collector.contract.verdict import Cause, Reason

router = APIRouter(tags=["actions"])

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
NOT_AN_ANSWER = "not an answer to an action"
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
        is_refused = state is not action.state and end is None
        return copied(
            cls,
            action,
            kind="drain",
            hold=action.hold.value,
            state=state,
            rule=why.rule if why is not None else "",
            at=moment_of(action.at_ns),
            until=None if action.until_ns is None else moment_of(action.until_ns),
            incident=why.incident if why is not None else "",
            cause=why.cause if why is not None else None,
            cause_reason=why.reason if why is not None else None,
            confidence=round(why.confidence, 3) if why is not None else None,
            verdict=why.text if why is not None else "",
            refused=Refused.EXPIRED if is_refused else action.refused,
            ended=None if ended_ns is None else moment_of(ended_ns),
            ended_why=end,
            check=action.check.words if action.check is not None else "",
            applied=[
                copied(AppliedOut, each, at=moment_of(each.time_ns)) for each in action.applied
            ],
            history=[copied(EventOut, each, at=moment_of(each.time_ns)) for each in action.history],
        )


def overdue(action: Action) -> tuple[ActionState, Ending | None]:
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
    next: str | None
    """`after` of the next page; null: there is none."""


# --- asking -------------------------------------------------------------------------------------


@router.get(
    "/v1/actions",
    summary="What was, is and would have been done with hosts",
    **documented(ActionsOut, "The newest first. What stands comes whole, without pages."),
)
async def actions(
    parts: Parts,
    state: Annotated[
        list[ActionState], Query(description="Only those; may be given several times. None: all.")
    ] = [],  # noqa: B006 - FastAPI makes a new one for each request
    host: parameters.Name = None,
    incident: parameters.Name = None,
    live: Annotated[bool | None, Query(description="Only those that are not over, or are.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT,
    after: After = None,
) -> Response:
    """With `state=standing` alone, the list that executors apply: all of it, or an error.

    An executor that got only a part of it would return hosts that are held.
    """
    health = health_of(await parts.health.latest())
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
            evidence="stale" if health.stale else "fresh",
            stale=health.stale,
            mode=parts.acting.file.policy.mode,
            next=following,
        )
    )


@router.get(
    "/v1/actions/policy",
    summary="The policy in force, its room, and how often its shadows were right",
    **documented(PolicyOut, "The policy."),
)
async def policy(parts: Parts) -> Response:
    """Rules with their modes and hit rates, limits, the breaker, quiet hours."""
    health = health_of(await parts.health.latest())
    now_ns = unix_ns(parts.now())
    file = parts.acting.file
    shown = await asyncio.to_thread(show_policy, file, parts.inventory, health, now_ns)
    return answer(shown)


@router.get(
    "/v1/actions/{action}",
    summary="One action with its history",
    **documented(ActionOut, "The action."),
)
async def action(action: str, parts: Parts) -> Response:
    """One action; 404 if there is none, or if it ended long ago."""
    found = await asyncio.to_thread(parts.inventory.actions.get, action)
    if found is None:
        raise no_such("action", action)
    return answer(ActionOut.of(found, unix_ns(parts.now())))


# --- changing -----------------------------------------------------------------------------------


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
        raise no_such("action", number)
    parts.health.poke()
    await parts.duties.peers.tell(HEALTH)
    return answer(ActionOut.of(after, unix_ns(now)))


async def decide(
    action: str, request: Request, parts: Context, how: Callable[..., Action]
) -> Response:
    """An operator's decision; ``how`` gets the action, ``by``, ``words`` and ``now_ns``."""
    body = decode_json(await receive(request, parts), Said, NOT_AN_ANSWER)
    now = parts.now()
    by, words = signed(request, body.by), printable(body.words)
    made = partial(how, by=by, words=words, now_ns=unix_ns(now))
    return await change(parts, action, made, now)


@router.post(
    "/v1/actions/{action}/approve",
    summary="Grant a proposal: the host is held from now on",
    **documented(ActionOut, "The action, which stands.", body=Said, others=CONFLICT),
)
async def approve(action: str, request: Request, parts: Parts) -> Response:
    """409 if it is no longer a proposal, or if the policy's share of the fleet is held by now."""
    policy = parts.acting.file.policy
    fleet = await parts.health.fleet()
    held = await asyncio.to_thread(parts.inventory.health.holds, parts.now())
    room = policy.limits.room(len(fleet.hosts))

    def grant(found: Action, by: str, words: str, now_ns: int) -> Action:
        rule = policy.rule(found.why.rule) if found.why is not None else None
        until_ns = rule.until_ns(now_ns) if rule is not None else found.until_ns
        granted = approved(found, by, words, now_ns, until_ns)
        if len(held) >= room:
            why = f"{len(held)} hosts are held, and the policy lets {room} of {len(fleet.hosts)} be"
            raise Problem(409, "share of the fleet", why, rule=Refused.SHARE_LIMIT.value)
        return granted

    return await decide(action, request, parts, grant)


@router.post(
    "/v1/actions/{action}/reject",
    summary="Refuse a proposal",
    **documented(ActionOut, "The action, which is refused.", body=Said, others=CONFLICT),
)
async def reject(action: str, request: Request, parts: Parts) -> Response:
    """The host is not proposed again for the same incident."""
    return await decide(action, request, parts, partial(refused, why=Refused.REJECTED))


@router.post(
    "/v1/actions/{action}/undo",
    summary="End what stands: the host is let back",
    **documented(ActionOut, "The action, which has ended.", body=Said, others=CONFLICT),
)
async def undo(action: str, request: Request, parts: Parts) -> Response:
    """The policy does not take the host again for the same incident."""
    return await decide(action, request, parts, partial(ended, why=Ending.OPERATOR))


@router.post(
    "/v1/actions/{action}/applied",
    summary="Report what an executor did about it",
    **documented(ActionOut, "The action.", body=AppliedSaid, others=CONFLICT),
)
async def say_applied(action: str, request: Request, parts: Parts) -> Response:
    """Kept as the executor's last report, and in the history where it is news."""
    body = decode_json(await receive(request, parts), AppliedSaid, NOT_AN_ANSWER)
    now = parts.now()
    word = copied(Applied, body, words=printable(body.words), time_ns=unix_ns(now))
    return await change(parts, action, lambda each: applied(each, word), now)
