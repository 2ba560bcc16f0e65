"""Answers that several routes give."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.health.model import HealthState
from alerts.judge.incident import Incident, IncidentState, Linked
from alerts.judge.stretches import Stretch
from api.data.inventory.health import KeptHold, unix_ns
from api.data.inventory.work import Work
from api.http.routes.shared.answers import copied
from collector.contract.causes import runbook_of
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Layer, Reason

LOST_SECONDS_DIGITS = 3
GPU_HOURS_DIGITS = 6
"""More than any reader shows: what is rounded twice differs from the same sum beside it."""


class IncidentOut(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in short; `GET /v1/incidents/{id}` has all of it. Unix nanoseconds."""

    id: str
    state: IncidentState
    cause: Cause
    reason: Reason
    layer: Layer
    culprit: Culprit
    confidence: float
    summary: str
    action: str
    jobs: Sequence[str]
    since_ns: int
    """The start of the present stretch."""
    until_ns: int | None
    first_since_ns: int
    """The start of the first stretch; `since_ns` where there is one only."""
    lasted_seconds: float
    """In which it was confirmed, over all stretches; the same while it is open and afterwards."""
    stretches: int
    confirmed: Sequence[Stretch]
    """Its stretches in order of time, the present one last; of many, the first and the latest."""
    first_said_ns: int
    last_seen_ns: int
    closed_ns: int | None
    victims: int
    symptoms_seen: int
    """Other explanations of the same trouble that were merged into it."""
    reopened: int
    lost_seconds: float
    """Of all jobs together, as far as it is known."""
    gpu_hours: float
    costs: Sequence[Cost]
    """Of each job: what it lost, its step as it is and as it would be."""
    taken_for: Linked | None
    """What it was first taken for."""
    became: Linked | None
    """What it turned out to be; it is over then, and accuses its culprit no more."""
    work: Work | None
    """How far people are with it; null in live news, which are of the evaluator alone."""

    @classmethod
    def of(cls, incident: Incident, work: Work | None = None) -> IncidentOut:
        verdict = incident.verdict
        return copied(
            cls,
            incident,
            verdict,
            victims=len(verdict.victims),
            lasted_seconds=round(incident.lasted_ns / NS, LOST_SECONDS_DIGITS),
            stretches=incident.earlier.count + 1,
            confirmed=incident.stretches,
            work=work,
            lost_seconds=round(sum(one.lost_seconds for one in verdict.costs), LOST_SECONDS_DIGITS),
            gpu_hours=round(sum(one.gpu_hours for one in verdict.costs), GPU_HOURS_DIGITS),
        )


class IncidentWhole(Incident, frozen=True, kw_only=True):
    """An incident as it is kept, and what follows from that."""

    first_since_ns: int
    """The start of the first stretch; `verdict.since_ns` is that of the present one."""
    lasted_seconds: float
    """In which it was confirmed, over all stretches; the same while it is open and afterwards."""
    runbook: str
    """The page of `/runbooks/` about its cause and reason."""
    work: Work
    """How far people are with it; `…/work` has who did what."""

    @classmethod
    def of(cls, incident: Incident, work: Work) -> IncidentWhole:
        verdict = incident.verdict
        return copied(
            cls,
            incident,
            lasted_seconds=round(incident.lasted_ns / NS, LOST_SECONDS_DIGITS),
            runbook=runbook_of(verdict.cause, verdict.reason),
            work=work,
        )


class HoldOut(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's or action's statement that it is draining or out. Unix nanoseconds."""

    id: str
    host: str
    state: HealthState
    reason: str
    by: str
    since_ns: int
    until_ns: int | None
    ended_ns: int | None
    ended_by: str

    @classmethod
    def of(cls, kept: KeptHold) -> HoldOut:
        return copied(
            cls,
            kept,
            kept.hold,
            host=kept.hold.target.host,
            ended_ns=unix_ns(kept.ended_at) if kept.ended_at is not None else None,
        )
