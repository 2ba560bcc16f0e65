"""Incidents and their news as they are kept, told and answered. Pure."""

from __future__ import annotations

import enum

import msgspec

from alerts.judge.stretches import GAP_SECONDS, Earlier, Stretch
from alerts.judge.words import action, name, summary
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict

CLOSE_SECONDS = GAP_SECONDS
"""An incident without evidence for this long is over."""
CLOSE_INTERMITTENT_SECONDS = 600
"""The same for causes that come and go by nature: links flap every few minutes."""
HISTORY_MAX = 50
"""Turns of an incident that are kept: the first, and the latest."""


class IncidentState(enum.StrEnum):
    """Whether an incident goes on."""

    OPEN = "open"
    CLOSED = "closed"


class News(enum.StrEnum):
    """What happened to an incident."""

    OPENED = "opened"
    UPDATED = "updated"
    CHANGED = "changed"
    CLOSED = "closed"
    REOPENED = "reopened"
    ASKED = "asked"
    """The service requested a measurement for it (`alerts.judge.asking`)."""
    ANSWERED = "answered"
    """What came of that."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of an incident, and its explanation from then on."""

    time_ns: int
    news: News
    cause: Cause
    culprit: Culprit
    confidence: float
    reason: Reason = Reason.UNKNOWN
    was_cause: Cause | None = None
    was_culprit: Culprit | None = None
    was_reason: Reason | None = None
    note: str = ""
    """A sentence: what was asked, what came of it, or which incident it was taken for before."""


class Symptom(msgspec.Struct, frozen=True):
    """Another explanation of the same trouble, that was merged into it."""

    cause: Cause
    culprit: Culprit


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """The incident of the same trouble by another culprit, as the two were when they changed."""

    incident: str
    cause: Cause
    culprit: Culprit
    reason: Reason = Reason.UNKNOWN


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble of one culprit, from its first verdict on. Times are unix nanoseconds."""

    id: str
    """Sorts by time; its last two words are pronounceable over a telephone."""
    state: IncidentState
    verdict: Verdict
    """The latest, or that at the end; ``until_ns`` is None while the incident is open.
    ``since_ns`` is the start of the present stretch, ``costs`` are those of all stretches."""
    first_said_ns: int
    last_seen_ns: int
    """The last evidence for it."""
    confirmed_ns: int
    closed_ns: int | None = None
    jobs: tuple[str, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    symptoms_seen: int = 0
    """How many other explanations were merged into it: all that are kept and, past them, as many
    as there were in one round."""
    reopened: int = 0
    history: tuple[Turn, ...] = ()
    seen_first_ns: int = 0
    """The first evidence in the present stretch, which began no later; 0: kept by an earlier
    version."""
    earlier: Earlier = Earlier()
    taken_for: Linked | None = None
    """What this trouble was first taken for: an incident that ended when this one began."""
    became: Linked | None = None
    """What this trouble turned out to be: it ended with this, and accuses its culprit no more."""
    first_incident: str = ""
    """The first in a row of incidents that became each other; empty: this one. A row is one page
    for the on-call person."""

    @property
    def is_open(self) -> bool:
        return self.state is IncidentState.OPEN

    @property
    def close_ns(self) -> int:
        comes_and_goes = self.verdict.cause.facts.comes_and_goes or self.reopened > 0
        return (CLOSE_INTERMITTENT_SECONDS if comes_and_goes else CLOSE_SECONDS) * NS

    @property
    def present(self) -> Stretch:
        return Stretch(self.verdict.since_ns, self.last_seen_ns)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The times in which it was confirmed; of many, the first and the latest."""
        return (*self.earlier.stretches, self.present)

    @property
    def first_since_ns(self) -> int:
        return self.stretches[0].since_ns

    @property
    def lasted_ns(self) -> int:
        """How long it was confirmed in all: the same while it is open and when it is closed."""
        return self.earlier.lasted_ns + self.present.lasted_ns

    @property
    def link(self) -> Linked:
        verdict = self.verdict
        return Linked(
            incident=self.id, cause=verdict.cause, culprit=verdict.culprit, reason=verdict.reason
        )


class Change(msgspec.Struct, frozen=True):
    """News of an incident, with the incident as it is after it."""

    news: News
    incident: Incident
    time_ns: int


class Advance(msgspec.Struct, frozen=True):
    """The result of a round."""

    incidents: list[Incident]
    """All that are open, and those closed ones that may still be opened again; in order."""
    changes: list[Change]
    incident_of: list[str]
    """For each verdict, in the order given, the incident that it went to; empty: none."""
    left_out: int
    """Verdicts that would have been incidents, past OPEN_MAX."""


# Words -------------------------------------------------------------------------------------------


def linked_words(link: Linked) -> str:
    """Another incident of the same trouble: its cause, culprit and id."""
    reason = "" if link.reason is Reason.UNKNOWN else f" ({link.reason})"
    who = name(link.culprit)
    return f"{link.cause}{reason}{f' of {who}' if who else ''}, incident {link.incident}"


def worded(verdict: Verdict) -> Verdict:
    """With sentences that say what its fields say; one that was made without words gets none."""
    if not verdict.summary:
        return verdict
    return msgspec.structs.replace(verdict, summary=summary(verdict), action=action(verdict))


def evidence_from(verdict: Verdict) -> int:
    """When its earliest evidence begins; where none has a time, when it says that it began."""
    return min((one.from_ns for one in verdict.evidence if one.from_ns), default=verdict.since_ns)


def settled(incident: Incident) -> Incident:
    """A closed incident whose verdict ends when it was last seen."""
    ended = msgspec.structs.replace(incident.verdict, until_ns=incident.last_seen_ns)
    return msgspec.structs.replace(incident, verdict=worded(ended))


# History -----------------------------------------------------------------------------------------


def with_turn(
    incident: Incident, news: News, before: Verdict | None, now_ns: int, note: str = ""
) -> Incident:
    """With one more line in its history; past HISTORY_MAX an old one is dropped."""
    verdict = incident.verdict
    was = before if before is not None else verdict
    is_other = (was.cause, was.culprit) != (verdict.cause, verdict.culprit)
    turn = Turn(
        time_ns=now_ns,
        news=news,
        cause=verdict.cause,
        culprit=verdict.culprit,
        confidence=verdict.confidence,
        reason=verdict.reason,
        was_cause=was.cause if is_other else None,
        was_culprit=was.culprit if is_other else None,
        was_reason=was.reason if was.reason is not verdict.reason else None,
        note=note,
    )
    return with_line(incident, turn)


def noted(
    incident: Incident, news: News, note: str, now_ns: int, said: Verdict | None = None
) -> Incident:
    """With a line in its history that changes no explanation; ``said``: what was said then."""
    verdict = incident.verdict if said is None else said
    turn = Turn(
        time_ns=now_ns,
        news=news,
        cause=verdict.cause,
        culprit=verdict.culprit,
        confidence=verdict.confidence,
        reason=verdict.reason,
        note=note,
    )
    return with_line(incident, turn)


def with_line(incident: Incident, turn: Turn) -> Incident:
    history = (*incident.history, turn)
    if len(history) > HISTORY_MAX:
        # What was asked stays: an incident asks once.
        places = range(1, len(history))
        dropped = next(one for one in places if history[one].news is not News.ASKED)
        history = (*history[:dropped], *history[dropped + 1 :])
    return msgspec.structs.replace(incident, history=history)
