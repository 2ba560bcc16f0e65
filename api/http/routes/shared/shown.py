"""Answers that several routes give."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.health.model import HealthState
from alerts.judge.incident import Incident, IncidentState
from api.data.inventory.health import KeptHold, unix_ns
from api.http.routes.shared.answers import copied
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
        return copied(
            cls,
            incident,
            verdict,
            victims=len(verdict.victims),
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
