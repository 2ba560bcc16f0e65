"""Turns a decision into actions to be stored: in the inventory, or a simulation's list. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from alerts.health.model import Hold
from alerts.policy.action import (
    STATE_OF,
    Action,
    ActionState,
    Outcome,
    Refused,
    Why,
    begun,
    ended,
    extended,
    judged,
    refused,
)
from alerts.policy.decide import Decision, Drain, End, Refusal
from alerts.policy.model import Mode, Policy
from collector.contract.units import NS

BY_POLICY = "policy"
REFUSED_AGAIN_S = 3_600.0
"""The same refusal is recorded once in this time: `decide` runs every few seconds."""


class Records(msgspec.Struct, frozen=True):
    """Actions that a decision begins or changes."""

    begun: list[Action]
    """New ones: shadowed, proposed, standing or refused."""
    changed: list[Action]
    """Known ones, as they are from now on."""

    def onto(self, actions: Iterable[Action]) -> dict[str, Action]:
        known = {each.id: each for each in actions}
        return known | {each.id: each for each in (*self.begun, *self.changed)}


def record(
    policy: Policy,
    decision: Decision,
    actions: Iterable[Action],
    now_ns: int,
    name: Callable[[], str],
) -> Records:
    """``actions`` as `decide` received them; ``name`` gives unused ids."""
    recorded = {
        said_of(each.host, each.why, each.refused)
        for each in actions
        if each.refused is not None
        and each.why is not None
        and now_ns - each.at_ns < REFUSED_AGAIN_S * NS
    }
    new = [drained(policy, each, now_ns, name()) for each in decision.drains]
    new += [
        turned_down(each, now_ns, name())
        for each in decision.refusals
        if said_of(each.drain.host, each.drain.why, each.refused) not in recorded
    ]
    changed = {each.action.id: over(each, now_ns) for each in decision.ends}
    for extension in decision.extensions:
        if extension.action.id not in changed:
            words = "its incident is still open"
            longer = extended(extension.action, extension.until_ns, words, now_ns)
            changed[longer.id] = longer
    for each in decision.judgements:
        known = changed.get(each.action.id, each.action)
        if known.outcome is Outcome.WAITING:
            changed[known.id] = judged(known, each.outcome, each.words, now_ns)
    return Records(new, list(changed.values()))


def said_of(host: str, why: Why, refused: Refused) -> tuple[str, str, str, Refused]:
    """The key by which two refusals are the same."""
    return host, why.rule, why.incident, refused


def drained(policy: Policy, drain: Drain, now_ns: int, number: str) -> Action:
    state = STATE_OF[drain.mode]
    until_ns = drain.until_ns
    if state is ActionState.PROPOSED:
        until_ns = now_ns + round(policy.limits.proposal_s * NS)
    action = Action(
        id=number,
        host=drain.host,
        hold=drain.rule.hold,
        state=state,
        by=BY_POLICY,
        reason=drain.why.short,
        at_ns=now_ns,
        until_ns=until_ns,
        why=drain.why,
        outcome=Outcome.WAITING if drain.mode is Mode.SHADOW else None,
    )
    return begun(action, drain.why.text)


def turned_down(refusal: Refusal, now_ns: int, number: str) -> Action:
    drain = refusal.drain
    action = Action(
        id=number,
        host=drain.host,
        hold=drain.rule.hold,
        state=ActionState.REFUSED,
        by=BY_POLICY,
        reason=drain.why.short,
        at_ns=now_ns,
        until_ns=None,
        why=drain.why,
        refused=refusal.refused,
        ended_ns=now_ns,
        ended_by=BY_POLICY,
    )
    return begun(action, refusal.words)


def said_by(hold: Hold, number: str) -> Action:
    """An operator's own action: it stands at once, and no policy ends it."""
    action = Action(
        id=number,
        host=hold.target.host,
        hold=hold.state,
        state=ActionState.STANDING,
        by=hold.by,
        reason=hold.reason,
        at_ns=hold.since_ns,
        until_ns=hold.until_ns,
    )
    return begun(action, hold.reason)


def over(end: End, now_ns: int) -> Action:
    if end.refused is not None:
        return refused(end.action, end.refused, BY_POLICY, end.words, now_ns)
    assert end.why is not None, "an end is a refusal or an ending"
    return ended(end.action, end.why, BY_POLICY, end.words, now_ns)
