"""Rules (this process' files) and alerts (the inventory's) in the form of Prometheus' API."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from alerts.rulebook.model import Alert, AlertState, Group, Rule
from api.base.times import rfc3339
from api.data.inventory.repository import Inventory
from api.data.selectors import Selector
from api.oncall.rules.expression import written_back
from api.oncall.rules.shelf import RuleFile, Shelf
from api.oncall.rules.state import GroupState, recall, rule_ids
from api.promql.errors import bad_data
from api.promql.texts import decimal_text

NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time: when what was never evaluated was evaluated."""
PATTERN_SHOWN_CHARS = 100

Document = dict[str, Any]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules, and how much of them. Empty conditions are none."""

    kind: str = ""
    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    matching: Sequence[Selector] = ()
    """Rules whose own labels meet one of these."""
    with_alerts: bool = True
    limit: int = 0
    """Groups in the answer; 0: all."""
    after: str = ""

    def has(self, rule: Rule) -> bool:
        if self.kind and rule.is_alert != (self.kind == "alert"):
            return False
        if self.names and rule.name not in self.names:
            return False
        return not self.matching or any(meets(rule.labels, each) for each in self.matching)


class UnknownToken(Exception):  # noqa: N818 - reads as the statement it is
    """No group has this token any more."""


class RuleBook:
    """Reads only; for any thread. ``interval_s``: of groups that set none."""

    def __init__(self, shelf: Shelf, inventory: Inventory, interval_s: float) -> None:
        self._shelf = shelf
        self._inventory = inventory
        self._interval_s = interval_s

    def files(self) -> list[RuleFile]:
        return self._shelf.files

    def alerts(self) -> list[Document]:
        """All alerts that are pending or firing, by their labels. Raises InventoryError."""
        states = recall(self._inventory).values()
        active = [alert for state in states for alert in state.all_alerts() if is_active(alert)]
        active.sort(key=lambda alert: alert.labels)
        return [alert_document(alert) for alert in active]

    def rules(self, wanted: Wanted) -> Document:
        """Groups with their rules. Raises InventoryError, or UnknownToken."""
        states = recall(self._inventory)
        groups = sorted(self._shelf.groups, key=lambda each: (each.file, each.name))
        is_found = not (wanted.limit and wanted.after)
        shown: list[Document] = []
        answer: Document = {"groups": shown}
        for group in groups:
            is_found = is_found or token_of(group) == wanted.after
            if not is_found or not is_wanted(group, wanted):
                continue
            document = self._group(group, states.get(group.key), wanted)
            if not document["rules"]:
                continue
            if wanted.limit and len(shown) == wanted.limit:
                answer["groupNextToken"] = token_of(group)
                break
            shown.append(document)
        if not is_found:
            raise UnknownToken
        return answer

    def _group(self, group: Group, state: GroupState | None, wanted: Wanted) -> Document:
        known = Known(group, state)
        return {
            "name": group.name,
            "file": group.file,
            "rules": [
                rule_document(rule, known, place, with_alerts=wanted.with_alerts)
                for place, rule in enumerate(group.rules)
                if wanted.has(rule)
            ],
            "interval": plain(group.interval_s or self._interval_s),
            "limit": group.limit,
            "evaluationTime": known.seconds,
            "lastEvaluation": known.evaluated,
        }


class Known:
    """The state of a group's last evaluation, by the place of each rule."""

    def __init__(self, group: Group, state: GroupState | None) -> None:
        self._ids = rule_ids(group)
        self._alerts = state.alerts if state is not None else {}
        document = state.document if state is not None else None
        self._places = (
            {name: place for place, name in enumerate(document.rules)} if document else {}
        )
        self._health = document.health if document is not None else None
        self.seconds = self._health.seconds if self._health is not None else 0
        self.evaluated = NEVER if self._health is None else rfc3339(self._health.evaluated_ns)

    def alerts(self, place: int) -> list[Alert]:
        found = self._alerts.get(self._ids[place], {})
        return [alert for _, alert in sorted(found.items()) if is_active(alert)]

    def health(self, place: int) -> Document:
        """Health of a rule's last evaluation; unknown for a rule that was added since."""
        there = self._places.get(self._ids[place])
        if there is None or self._health is None:
            return {"health": "unknown", "evaluationTime": 0, "lastEvaluation": NEVER}
        error = self._health.errors.get(there, "")
        result = {"health": "err", "lastError": error} if error else {"health": "ok"}
        times = self._health.rule_seconds
        seconds = times[there] if there < len(times) else 0
        return {**result, "evaluationTime": seconds, "lastEvaluation": self.evaluated}


# --- documents ----------------------------------------------------------------------------------


def rule_document(rule: Rule, known: Known, place: int, *, with_alerts: bool) -> Document:
    document: Document = {"name": rule.name, "query": written_back(rule.expression)}
    health = known.health(place)
    if not rule.is_alert:
        labels = {"labels": dict(rule.labels)} if rule.labels else {}
        return {**document, **labels, **health, "type": "recording"}
    alerts = known.alerts(place)
    states = {alert.state for alert in alerts}
    return {
        "state": next(
            (each for each in (AlertState.FIRING, AlertState.PENDING) if each in states),
            AlertState.INACTIVE,
        ).value,
        **document,
        "duration": plain(rule.for_s),
        "keepFiringFor": plain(rule.keep_firing_for_s),
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
        "alerts": [alert_document(alert) for alert in alerts] if with_alerts else [],
        **health,
        "type": "alerting",
    }


def alert_document(alert: Alert) -> Document:
    since_ns = alert.keep_firing_since_ns
    kept = {} if since_ns is None else {"keepFiringSince": rfc3339(since_ns)}
    return {
        "labels": dict(alert.labels),
        "annotations": alert.annotations,
        "state": alert.state.value,
        "activeAt": rfc3339(alert.active_ns),
        **kept,
        "value": exponent_text(alert.value),
    }


def is_active(alert: Alert) -> bool:
    return alert.state is not AlertState.INACTIVE


def plain(seconds: float) -> float:
    """A number without a fraction of zero: Go's JSON has 30, not 30.0."""
    return int(seconds) if seconds == int(seconds) else seconds


def exponent_text(value: float) -> str:
    """The number with an exponent, as Go's `strconv.FormatFloat(value, 'e', -1, 64)`.

    >>> exponent_text(1.0), exponent_text(0.0), exponent_text(-1234.5), exponent_text(float("inf"))
    ('1e+00', '0e+00', '-1.2345e+03', '+Inf')
    """
    if not math.isfinite(value):
        return decimal_text(value)
    if value == 0:
        return "-0e+00" if math.copysign(1, value) < 0 else "0e+00"
    exact = Decimal(repr(float(value)))
    exponent = exact.adjusted()
    digits = format(exact.scaleb(-exponent).normalize(), "f")
    return f"{digits}e{exponent:+03d}"


# --- choosing -----------------------------------------------------------------------------------


def is_wanted(group: Group, wanted: Wanted) -> bool:
    if wanted.groups and group.name not in wanted.groups:
        return False
    return not wanted.files or group.file in wanted.files


def token_of(group: Group) -> str:
    return hashlib.sha1(group.key.encode(), usedforsecurity=False).hexdigest()


def meets(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether a rule's labels match a selector; an absent label is empty."""
    return all(
        is_match(labels.get(each.label, ""), each.operator, each.value)
        for each in selector.matchers
    )


def is_match(value: str, operator: str, wanted: str) -> bool:
    """Whether one label matches one matcher. Patterns are RE2's, by Arrow's engine."""
    if "~" not in operator:
        return (value == wanted) == (operator == "=")
    try:
        found = pc.match_substring_regex(pa.array([value]), pattern=f"^(?s:{wanted})$")
    except pa.ArrowInvalid as error:
        raise bad_data(f"error parsing regexp: {wanted[:PATTERN_SHOWN_CHARS]}") from error
    return bool(found[0].as_py()) == (operator == "=~")
