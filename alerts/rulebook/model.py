"""Types of rules: groups, rules, alerts, with Prometheus' meaning."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from collector.contract.identity import Labels

ALERT_NAME = "alertname"
INCIDENT_LABEL = "incident"
"""The label of an alert that is about an incident: its id."""
FIRST_INCIDENT_LABEL = "first_incident"
"""The label of an alert that is about an incident: the first in the row of incidents that became
each other. All of a row is one page."""
WORK = "work"
"""Annotation: who has acknowledged the alert's incident, and to whom it is assigned."""
INHIBITED_BY = "inhibited_by"
"""The annotation of an alert that an incident explains: the incident's id. An annotation, because
a label would make it another alert."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Either it records a series, or it watches for alerts; times are seconds."""

    name: str
    is_alert: bool
    expression: str
    """PromQL, as it stands in the file."""
    for_s: float = 0.0
    """How long the expression must hold before the alert fires."""
    keep_firing_for_s: float = 0.0
    """How long the alert fires on after the expression has ceased to hold."""
    labels: Mapping[str, str] = {}
    """Added to the row's; values may be templates, for alerts. The group's are among them."""
    annotations: Mapping[str, str] = {}
    line: int = 0
    """Where it begins in its file; 0: not known."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are evaluated in order, for the same time."""

    file: str
    name: str
    """Unique in its file."""
    rules: tuple[Rule, ...]
    interval_s: float | None = None
    """None: the service's setting."""
    limit: int = 0
    """Alerts, or recorded series, that one rule may make; past it the evaluation fails. 0: none."""
    query_offset_s: float | None = None
    """Expressions are evaluated this far in the past, for data that comes late."""

    @property
    def key(self) -> str:
        return f"{self.file};{self.name}"


class AlertState(enum.StrEnum):
    """Prometheus' states of an alert."""

    INACTIVE = "inactive"
    """Resolved, and kept until every receiver has been notified."""
    PENDING = "pending"
    FIRING = "firing"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of one rule for one label set. Times are unix nanoseconds."""

    labels: Labels
    """Canonical (sorted pairs): with `alertname` and the rule's, without the metric's name."""
    annotations: dict[str, str]
    value: float
    """Of the expression, when it last held."""
    state: AlertState
    active_ns: int
    """Since when the expression has held."""
    fired_ns: int | None = None
    resolved_ns: int | None = None
    keep_firing_since_ns: int | None = None
    """When the expression ceased to hold, of an alert that fires on nevertheless."""

    @property
    def name(self) -> str:
        return dict(self.labels).get(ALERT_NAME, "")

    @property
    def incident(self) -> str:
        return dict(self.labels).get(INCIDENT_LABEL, "")

    @property
    def inhibited_by(self) -> str:
        """The incident that explains it; empty: none, it may page."""
        return self.annotations.get(INHIBITED_BY, "")


class Found(msgspec.Struct, frozen=True):
    """One row of an expression's answer: labels with the metric's name, if it has one."""

    labels: Mapping[str, str]
    value: float


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a group's last evaluation."""

    evaluated_ns: int
    """The time for which expressions were evaluated."""
    seconds: float
    errors: dict[int, str] = {}
    """By the rule's place in the group: why it could not be evaluated."""
    rule_seconds: tuple[float, ...] = ()
