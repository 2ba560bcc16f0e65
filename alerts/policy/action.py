"""An action: the record of one drain, from its wish to its end, with each actor's part.

States and their order:

    shadowed ─────────────────────► shadowed, with an end   (nothing was ever done)
    proposed ─► standing ─► ended
           └──► refused
    standing ─► ended                                       (enforced, or an operator's own)
    refused                                                 (by name, before anything was done)

Only what is `standing` is held. Pure: each change gives a new record.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from alerts.health.model import Charge, HealthState, Hold, Target
from alerts.policy.model import Mode, Rule
from collector.contract.errors import FabricscopeError
from collector.contract.verdict import Cause, Reason

HISTORY_MAX = 50
EXECUTORS_MAX = 16
"""Executors whose last report is kept: one for each scheduler of a site."""


class ActionState(enum.StrEnum):
    """How far an action has come."""

    SHADOWED = "shadowed"
    PROPOSED = "proposed"
    STANDING = "standing"
    REFUSED = "refused"
    ENDED = "ended"


STATE_OF = {
    Mode.SHADOW: ActionState.SHADOWED,
    Mode.APPROVE: ActionState.PROPOSED,
    Mode.ENFORCE: ActionState.STANDING,
}


class Refused(enum.StrEnum):
    """Why a wish was not granted."""

    UNKNOWN_HOST = "unknown_host"
    """A verdict names it, and no agent reports by that name."""
    STALE_EVIDENCE = "stale_evidence"
    """Verdicts are old or unreadable, or the host is silent."""
    BREAKER = "breaker"
    """Too many hosts at once: look for what they have in common."""
    REJECTED = "rejected"
    """An operator refused, or took the host back, while the same incident was open."""
    COOLDOWN = "cooldown"
    """The host came back less than `cooldown_s` ago."""
    QUIET_HOURS = "quiet_hours"
    SHARE_LIMIT = "share_limit"
    EXPIRED = "expired"
    """No operator answered the proposal in time."""
    WITHDRAWN = "withdrawn"
    """The evidence for the proposal is gone, or the policy has changed."""
    HOLDS_LIMIT = "holds_limit"
    """The inventory holds as many things as it can (HOLDS_MAX)."""


class Ending(enum.StrEnum):
    """Why a hold ended, or would have."""

    CLEAN = "clean"
    CHECK = "check"
    TTL = "ttl"
    OPERATOR = "operator"
    REPLACED = "replaced"
    POLICY = "policy"
    """The policy's mode has changed: shadowed actions are now done, or the other way round."""


class Outcome(enum.StrEnum):
    """Whether a shadowed drain would have been right, by later evidence."""

    WAITING = "waiting"
    CONFIRMED = "confirmed"
    """The trouble went on at this host for long enough that a drain would have paid."""
    CLEARED = "cleared"
    """The trouble was over soon, or another host was the culprit."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict that an action rests on."""

    rule: str
    incident: str
    cause: Cause
    reason: Reason
    confidence: float
    risk: float
    """Of the verdict against the host: confidence times weight."""
    about: str
    """What of the host is accused: `link mlx5_0/1`; empty: all of it."""
    text: str

    @classmethod
    def of(cls, rule: Rule, charge: Charge) -> Why:
        return cls(
            rule=rule.name,
            incident=charge.incident,
            cause=charge.cause,
            reason=charge.reason,
            confidence=charge.confidence,
            risk=charge.confidence * charge.weight,
            about=charge.about.within_host,
            text=charge.text,
        )

    @property
    def short(self) -> str:
        """As schedulers show it: `slow_link (nic) of device mlx5_0, incident`."""
        reason = "" if self.reason is Reason.UNKNOWN else f" ({self.reason})"
        of = f" of {self.about}" if self.about else ""
        return f"{self.cause}{reason}{of}, {self.incident}"


class What(enum.StrEnum):
    """Kinds of events of an action."""

    SHADOWED = "shadowed"
    PROPOSED = "proposed"
    HELD = "held"
    APPROVED = "approved"
    REFUSED = "refused"
    EXTENDED = "extended"
    CHECKED = "checked"
    APPLIED = "applied"
    JUDGED = "judged"
    ENDED = "ended"


FIRST = {
    ActionState.SHADOWED: What.SHADOWED,
    ActionState.PROPOSED: What.PROPOSED,
    ActionState.STANDING: What.HELD,
    ActionState.REFUSED: What.REFUSED,
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of an action: time, kind, actor, and a sentence."""

    time_ns: int
    what: What
    by: str
    words: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of the host."""

    time_ns: int
    passed: bool
    words: str


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """An executor's last report: what it did to the scheduler, or could not do."""

    executor: str
    outcome: str
    """done or failed."""
    words: str
    time_ns: int


class WrongState(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """The requested change of an action is not allowed in its state."""

    def __init__(self, action: Action, wanted: Iterable[ActionState]) -> None:
        # An expired action still has its last state.
        over = "" if action.state in {ActionState.ENDED, ActionState.REFUSED} else " or over"
        states = " or ".join(wanted)
        super().__init__(f"action {action.id} is {action.state}{over}; it must be {states}")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One drain of one host. Times are unix nanoseconds."""

    id: str
    host: str
    hold: HealthState
    """What the host becomes: DRAINING or OUT."""
    state: ActionState
    by: str
    """`policy`, or the operator's name."""
    reason: str
    """A sentence for people and schedulers."""
    at_ns: int
    until_ns: int | None
    """When it expires; None: never. Of a proposal: when that expires."""
    why: Why | None = None
    """None: an operator's."""
    refused: Refused | None = None
    ended_ns: int | None = None
    """Also of what was refused, and of what was only shadowed."""
    ended_by: str = ""
    ended_why: Ending | None = None
    outcome: Outcome | None = None
    """Of what is shadowed."""
    check: Checked | None = None
    applied: tuple[Applied, ...] = ()
    history: tuple[Event, ...] = ()

    @property
    def is_policys(self) -> bool:
        """Whether a rule made it, and the policy may end it."""
        return self.why is not None

    def is_live(self, now_ns: int) -> bool:
        """Whether it holds its host, would hold it, or waits for an answer."""
        return self.ended_ns is None and (self.until_ns is None or now_ns < self.until_ns)

    def stands(self, now_ns: int) -> bool:
        return self.state is ActionState.STANDING and self.is_live(now_ns)

    def as_hold(self) -> Hold:
        return Hold(
            target=Target.of_host(self.host),
            state=self.hold,
            reason=self.reason,
            by=self.by,
            since_ns=self.at_ns,
            until_ns=self.until_ns,
        )


# Changes of an action ----------------------------------------------------------------------------


def begun(action: Action, words: str = "") -> Action:
    first = Event(time_ns=action.at_ns, what=FIRST[action.state], by=action.by, words=words)
    return msgspec.structs.replace(action, history=(first,))


def noted(action: Action, event: Event) -> Action:
    """One more line of its history; past HISTORY_MAX the second goes, never the first."""
    history = (*action.history, event)
    if len(history) > HISTORY_MAX:
        history = (history[0], *history[-(HISTORY_MAX - 1) :])
    return msgspec.structs.replace(action, history=history)


def approved(action: Action, by: str, words: str, now_ns: int, until_ns: int | None) -> Action:
    need(action, now_ns, ActionState.PROPOSED)
    standing = msgspec.structs.replace(
        action, state=ActionState.STANDING, until_ns=until_ns, at_ns=now_ns
    )
    return noted(standing, Event(time_ns=now_ns, what=What.APPROVED, by=by, words=words))


def refused(action: Action, why: Refused, by: str, words: str, now_ns: int) -> Action:
    if action.ended_ns is not None or action.state is not ActionState.PROPOSED:
        raise WrongState(action, [ActionState.PROPOSED])
    over = msgspec.structs.replace(
        action, state=ActionState.REFUSED, refused=why, ended_ns=now_ns, ended_by=by
    )
    return noted(over, Event(time_ns=now_ns, what=What.REFUSED, by=by, words=words))


def ended(action: Action, why: Ending, by: str, words: str, now_ns: int) -> Action:
    """A hold or shadow that is over. A shadow whose host was clean in the end counts as CLEARED."""
    if action.ended_ns is not None or action.state not in HOLDING:
        raise WrongState(action, HOLDING)
    over = msgspec.structs.replace(
        action,
        state=ActionState.ENDED if action.state is ActionState.STANDING else action.state,
        ended_ns=now_ns,
        ended_by=by,
        ended_why=why,
    )
    if over.outcome is Outcome.WAITING and why is Ending.CLEAN:
        over = msgspec.structs.replace(over, outcome=Outcome.CLEARED)
    return noted(over, Event(time_ns=now_ns, what=What.ENDED, by=by, words=words))


def extended(action: Action, until_ns: int | None, words: str, now_ns: int) -> Action:
    need(action, now_ns, *HOLDING)
    longer = msgspec.structs.replace(action, until_ns=until_ns)
    return noted(longer, Event(time_ns=now_ns, what=What.EXTENDED, by=action.by, words=words))


def judged(action: Action, outcome: Outcome, words: str, now_ns: int) -> Action:
    after = msgspec.structs.replace(action, outcome=outcome)
    return noted(after, Event(time_ns=now_ns, what=What.JUDGED, by=action.by, words=words))


def checked(action: Action, check: Checked, by: str) -> Action:
    need(action, check.time_ns, *HOLDING)
    after = msgspec.structs.replace(action, check=check)
    return noted(after, Event(time_ns=check.time_ns, what=What.CHECKED, by=by, words=check.words))


def applied(action: Action, report: Applied) -> Action:
    """With an executor's latest report; ended actions take one too: hosts are given back then."""
    if action.state in {ActionState.SHADOWED, ActionState.PROPOSED, ActionState.REFUSED}:
        raise WrongState(action, [ActionState.STANDING, ActionState.ENDED])
    before = [each for each in action.applied if each.executor == report.executor]
    others = [each for each in action.applied if each.executor != report.executor]
    after = msgspec.structs.replace(action, applied=(*others, report)[-EXECUTORS_MAX:])
    if before and (before[0].outcome, before[0].words) == (report.outcome, report.words):
        return after
    words = f"{report.outcome}: {report.words}" if report.words else report.outcome
    return noted(
        after, Event(time_ns=report.time_ns, what=What.APPLIED, by=report.executor, words=words)
    )


HOLDING = (ActionState.STANDING, ActionState.SHADOWED)


def need(action: Action, now_ns: int, *states: ActionState) -> None:
    if action.state not in states or not action.is_live(now_ns):
        raise WrongState(action, states)
