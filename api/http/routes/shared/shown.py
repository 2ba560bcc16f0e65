"""Answers that several routes give."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.health.model import HealthState
from alerts.judge.incident import Incident, IncidentState
from api.data.inventory.health import KeptHold, unix_ns
from collector.contract.verdict import Cause, Culprit, Layer, Reason

LOST_SECONDS_DIGITS = 3


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
    until_ns: int | None
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

    @classmethod
    def of(cls, incident: Incident) -> IncidentOut:
        verdict = incident.verdict
        return cls(
            id=incident.id,
            state=incident.state,
            cause=verdict.cause,
            reason=verdict.reason,
            layer=verdict.layer,
            culprit=verdict.culprit,
            confidence=verdict.confidence,
            summary=verdict.summary,
            action=verdict.action,
            jobs=incident.jobs,
            since_ns=verdict.since_ns,
            until_ns=verdict.until_ns,
            first_said_ns=incident.first_said_ns,
            last_seen_ns=incident.last_seen_ns,
            closed_ns=incident.closed_ns,
            victims=len(verdict.victims),
            symptoms_seen=incident.symptoms_seen,
            reopened=incident.reopened,
            lost_seconds=round(sum(one.lost_seconds for one in verdict.costs), LOST_SECONDS_DIGITS),
            gpu_hours=round(sum(one.gpu_hours for one in verdict.costs), LOST_SECONDS_DIGITS),
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
    """When it ends by itself."""
    ended_ns: int | None
    """When it was ended."""
    ended_by: str

    @classmethod
    def of(cls, kept: KeptHold) -> HoldOut:
        hold = kept.hold
        return cls(
            id=kept.id,
            host=hold.target.host,
            state=hold.state,
            reason=hold.reason,
            by=hold.by,
            since_ns=hold.since_ns,
            until_ns=hold.until_ns,
            ended_ns=unix_ns(kept.ended_at) if kept.ended_at is not None else None,
            ended_by=kept.ended_by,
        )
