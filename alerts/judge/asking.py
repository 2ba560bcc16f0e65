"""When an unsure verdict asks for its measurement, how much, how long it waits, and in words. Pure.

A verdict that stays unsure for some rounds asks once for what would decide it, if a part of the
product serves that kind and the operator allows it. Asking changes no verdict: what comes is
evidence of a later window, which is judged as any other.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence

import msgspec

from alerts.judge.incident import OPEN_CONFIDENCE
from alerts.judge.words import DECIDED_MIN, listed, short_name
from collector.contract.figures import duration, share
from collector.contract.units import NS
from collector.contract.verdict import MeasurementKind, Undecided, Verdict

ROUNDS_UNSURE = 3
"""Rounds in a row that a verdict must be unsure for: in a quarter of a minute counters of switches
arrive, and most verdicts become sure by themselves."""
NEAR_CONFIDENCE = OPEN_CONFIDENCE - 0.15
"""Verdicts from here on ask before they open an incident: the measurement may open it rightly.
Less certain ones are noise more often than not."""
AT_ONCE_MAX = 4
"""Measurements waited for at once: one trouble has many victims, and all of them look unsure."""
HOST_PER_HOUR_MAX = 3
"""Of one host, so that no verdict keeps an agent busy."""
PER_HOUR_MAX = 12
"""Of all hosts together."""
WAIT_SECONDS = 120
"""An agent learns of it within five seconds and sends it within some more. One that has not
answered after two minutes is away, and the verdict stays as it is."""
JOBS_NAMED = 3
"""Jobs that name a trouble: a switch's trouble has hundreds."""
HOUR_NS = 3_600 * NS
TROUBLES_MAX = 1_000
"""Unsure verdicts whose rounds are counted; more at once are one trouble at its root."""


class AskState(enum.StrEnum):
    """How far a request has come."""

    WAITING = "waiting"
    ANSWERED = "answered"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement that was requested, by the trouble that it was requested for."""

    trouble: str
    kind: MeasurementKind
    asked_ns: int
    hosts: tuple[str, ...]
    state: AskState = AskState.WAITING
    ended_ns: int = 0
    samples: int = 0
    why: str = ""
    """Why it was refused, or whose answer did not come."""


# Whether ------------------------------------------------------------------------------------------


def trouble_of(verdict: Verdict) -> str:
    """A name for a trouble that is no incident: its suspects take turns, cause and jobs stay."""
    return f"{verdict.cause} of {', '.join(verdict.jobs[:JOBS_NAMED])}"


def needs(verdict: Verdict, allowed: Collection[MeasurementKind]) -> Undecided | None:
    """What to ask for: where the verdict is unsure, near the bar, and the kind is allowed."""
    asked = verdict.undecided
    if asked is None or not NEAR_CONFIDENCE <= verdict.confidence < DECIDED_MIN or not asked.at:
        return None
    return asked if asked.is_served and asked.kind in allowed else None


class Patience:
    """For how many rounds in a row each trouble has been unsure."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}

    def note(self, troubles: Iterable[str]) -> list[str]:
        """Count a round; returns those that have been unsure for long enough."""
        unsure = dict.fromkeys(troubles)
        self._rounds = {
            one: min(ROUNDS_UNSURE, self._rounds.get(one, 0) + 1)
            for one in list(unsure)[:TROUBLES_MAX]
        }
        return [one for one, rounds in self._rounds.items() if rounds >= ROUNDS_UNSURE]


def forbidden(hosts: Sequence[str], past: Iterable[Asked], now_ns: int) -> str:
    """The bound that forbids one more request at these hosts now; empty: none does."""
    recent = [one for one in past if one.asked_ns > now_ns - HOUR_NS]
    if sum(one.state is AskState.WAITING for one in recent) >= AT_ONCE_MAX:
        return "AT_ONCE_MAX"
    if len(recent) >= PER_HOUR_MAX:
        return "PER_HOUR_MAX"
    if any(sum(host in one.hosts for one in recent) >= HOST_PER_HOUR_MAX for host in hosts):
        return "HOST_PER_HOUR_MAX"
    return ""


def is_overdue(asked: Asked, now_ns: int) -> bool:
    return asked.state is AskState.WAITING and now_ns - asked.asked_ns >= WAIT_SECONDS * NS


# In words -----------------------------------------------------------------------------------------


def asked_words(undecided: Undecided) -> str:
    hosts = listed(list(dict.fromkeys(one.host for one in undecided.at)))
    who = listed([one.name for one in undecided.suspects])
    why = f", to decide between {who}" if who else ""
    return f"The service asked {hosts} for {undecided.kind.facts.title}{why}."


def asked_before_words(asked: Asked) -> str:
    """The same of what was asked before the incident opened."""
    hosts = listed(asked.hosts)
    return f"The service asked {hosts} for {asked.kind.facts.title}, before it was sure enough."


def ended_words(asked: Asked, before: Verdict | None, after: Verdict) -> str:
    """What came of it: when, and what the verdict became."""
    title = asked.kind.facts.title
    took = duration(max(0, asked.ended_ns - asked.asked_ns) / NS)
    if asked.state is AskState.TIMED_OUT:
        came = f"The service gave up on {title} after {took}: {asked.why}"
    elif asked.state is AskState.REFUSED:
        came = f"The agents could not take {title}: {asked.why}"
    else:
        came = f"{title[:1].upper()}{title[1:]} came after {took} ({asked.samples:,} samples)"
    return f"{came}; {change_words(before, after)}."


def change_words(before: Verdict | None, after: Verdict) -> str:
    now = said(after)
    if before is None:
        return f"the verdict is {now}"
    if after.confidence < DECIDED_MIN:
        next_one = after.undecided
        would = f": {next_one.text[:1].lower()}{next_one.text[1:]}" if next_one is not None else ""
        return f"the verdict stays unsure ({now}); what would decide now{would.removesuffix('.')}"
    return f"the verdict went from {said(before)} to {now}"


def said(verdict: Verdict) -> str:
    who = short_name(verdict.culprit) or "no known part"
    return f"{verdict.cause} of {who} ({share(verdict.confidence)})"
