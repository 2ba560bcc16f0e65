"""The alerts of every rule group: in memory while this process leads, and in the inventory.

The inventory has the last kept state, so that another process, or this one after a restart, goes on
from there, and so that any process can list the alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from alerts.rulebook.life import alert_samples, is_remembered, restored
from alerts.rulebook.model import Alert, AlertState, Group, GroupHealth, Rule
from api.base.limits import ALERT_BYTES_MAX
from api.base.metrics import ServiceMetrics
from api.data.inventory.alerts import KeptAlert, KeptGroup
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import moment
from api.oncall.rules.leads import GroupLeads
from collector.contract.identity import Labels, canonical_bytes, canonical_labels
from collector.contract.model import Series
from collector.contract.units import NS

OUTAGE_INTERVALS = 3
"""After so many intervals without an evaluation there was an outage, and `for` is restored as
Prometheus does. Below it nothing is in doubt: what was kept is exact, and a process that hands over
to another misses one or two evaluations."""

DIGEST_BYTES = 16

StandingAlerts = dict[Labels, Alert]


class AlertDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert as JSON. The value is text, because JSON has no NaN."""

    labels: dict[str, str]
    value: str
    state: AlertState
    active_ns: int
    annotations: dict[str, str] = {}
    fired_ns: int | None = None
    resolved_ns: int | None = None
    keep_firing_since_ns: int | None = None


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A group as JSON: its names, the rules that it had, and how its last evaluation went."""

    file: str
    name: str
    rules: tuple[str, ...]
    """In order: `health` refers to places."""
    health: GroupHealth


class GroupState:
    """The state of one group. For one task at a time."""

    def __init__(self, file: str, name: str) -> None:
        self.file = file
        self.name = name
        self.alerts: dict[str, StandingAlerts] = {}
        """By the rule's id; also of rules that the group no longer has, until all notifications are
        sent."""
        self.series: dict[str, set[Series]] = {}
        """By the rule's id: its last series, so that what vanishes gets its stale marker."""
        self.kept: dict[tuple[str, str], str] = {}
        """Documents in the inventory, by rule and fingerprint."""
        self.document: GroupDocument | None = None
        self.is_recalled = False
        """It comes from the inventory, and was not evaluated since."""

    @property
    def key(self) -> str:
        return f"{self.file};{self.name}"

    def all_alerts(self) -> list[Alert]:
        return [alert for alerts in self.alerts.values() for alert in alerts.values()]

    def alert_count(self) -> int:
        """Includes resolved alerts."""
        return sum(map(len, self.alerts.values()))

    def resume(self, group: Group, now_ns: int, interval_s: float) -> None:
        """Before the first evaluation of a recalled state: continue, or restore after an outage."""
        if not self.is_recalled:
            return
        self.is_recalled = False
        last_ns = self.document.health.evaluated_ns if self.document is not None else 0
        is_outage = now_ns - last_ns > OUTAGE_INTERVALS * interval_s * NS
        for name, rule in zip(rule_ids(group), group.rules, strict=True):
            kept = self.alerts.get(name, {})
            made = alert_samples(kept.values(), now_ns)
            self.series[name] = {sample.series for sample in made}
            if is_outage:
                self.alerts[name] = restored(rule, kept.values(), last_ns, now_ns)


# --- names --------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """An id that any database takes, whatever the text contains."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def group_id(key: str) -> str:
    return digest(key.encode())


def rule_ids(group: Group) -> list[str]:
    """The rules' ids in the inventory, in order.

    A rule with the same name, expression and labels is the same rule, wherever it stands in its
    group: its alerts go on when a file changes. Of several that are the same, each has its own.
    """
    seen: Counter[str] = Counter()
    ids = []
    for rule in group.rules:
        name = digest(identity_of(rule))
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


def identity_of(rule: Rule) -> bytes:
    return msgspec.json.encode(
        (rule.is_alert, rule.name, rule.expression, sorted(rule.labels.items()))
    )


def fingerprint(labels: Labels) -> str:
    return digest(canonical_bytes(labels))


# --- documents ----------------------------------------------------------------------------------


def write_alert(alert: Alert) -> tuple[str, bool]:
    """An alert as its document, and whether annotations were dropped because they are too large."""
    document = msgspec.json.encode(
        AlertDocument(
            labels=dict(alert.labels),
            annotations=alert.annotations,
            value=repr(alert.value),
            state=alert.state,
            active_ns=alert.active_ns,
            fired_ns=alert.fired_ns,
            resolved_ns=alert.resolved_ns,
            keep_firing_since_ns=alert.keep_firing_since_ns,
        )
    )
    if len(document) <= ALERT_BYTES_MAX or not alert.annotations:
        return document.decode(), False
    return write_alert(msgspec.structs.replace(alert, annotations={}))[0], True


def read_alert(document: str) -> Alert:
    found = msgspec.json.decode(document, type=AlertDocument)
    return Alert(
        labels=canonical_labels(found.labels),
        annotations=found.annotations,
        value=float(found.value),
        state=found.state,
        active_ns=found.active_ns,
        fired_ns=found.fired_ns,
        resolved_ns=found.resolved_ns,
        keep_firing_since_ns=found.keep_firing_since_ns,
    )


def read_group(kept: KeptGroup) -> GroupDocument:
    return msgspec.json.decode(kept.document, type=GroupDocument)


# --- the inventory ------------------------------------------------------------------------------


ROAD = "rules"
"""Under which the quarantine has states that cannot be read."""


def recall(inventory: Inventory) -> dict[str, GroupState]:
    groups, alerts = inventory.alerts.standing()
    states: dict[str, GroupState] = {}
    by_id: dict[str, GroupState] = {}
    sound = inventory.quarantine.sound
    read = sound(ROAD, "a rule group", groups, lambda each: (each, read_group(each)))
    for each, document in read:
        state = GroupState(document.file, document.name)
        state.document = document
        state.is_recalled = True
        states[state.key] = by_id[each.rule_group] = state
    for kept, alert in sound(ROAD, "an alert", alerts, lambda one: (one, read_alert(one.document))):
        found = by_id.get(kept.rule_group)
        if found is not None:
            found.alerts.setdefault(kept.rule, {})[alert.labels] = alert
            found.kept[kept.rule, kept.fingerprint] = kept.document
    return states


class Keeper:
    """Writes states to the inventory, as long as their groups are this process'. Any thread."""

    def __init__(self, inventory: Inventory, leads: GroupLeads, metrics: ServiceMetrics) -> None:
        self._inventory = inventory
        self._leads = leads
        self._metrics = metrics

    def keep(
        self, state: GroupState, alerts: Mapping[str, Iterable[Alert]], document: GroupDocument
    ) -> bool:
        """In one transaction; False, and nothing is kept, if another process leads by now."""
        name, lead = group_id(state.key), self._leads.of(state.key)
        after: dict[tuple[str, str], str] = {}
        for rule, some in alerts.items():
            for alert in some:
                text, is_cut = write_alert(alert)
                after[rule, fingerprint(alert.labels)] = text
                self._metrics.alert_annotations_left_out.inc(is_cut)
        changed = [
            row(name, key, text) for key, text in after.items() if state.kept.get(key) != text
        ]
        gone = [row(name, key, text) for key, text in state.kept.items() if key not in after]
        is_kept = self._inventory.alerts.keep(
            KeptGroup(
                rule_group=name,
                evaluated_at=moment(document.health.evaluated_ns / NS),
                document=msgspec.json.encode(document).decode(),
            ),
            changed,
            gone,
            task=lead.task,
            holder=lead.holder,
        )
        if is_kept:
            state.kept = after
            state.document = document
        return is_kept

    def forget(self, key: str) -> bool:
        name, lead = group_id(key), self._leads.of(key)
        return self._inventory.alerts.forget_group(name, task=lead.task, holder=lead.holder)


def row(group: str, key: tuple[str, str], document: str) -> KeptAlert:
    return KeptAlert(rule_group=group, rule=key[0], fingerprint=key[1], document=document)


def ended(alerts: Mapping[Labels, Alert], now_ns: int) -> StandingAlerts:
    """The alerts of a removed rule: what fired is resolved, and is sent for a while."""
    after: StandingAlerts = {}
    for labels, alert in alerts.items():
        if alert.state is AlertState.FIRING:
            after[labels] = msgspec.structs.replace(
                alert, state=AlertState.INACTIVE, resolved_ns=now_ns
            )
        elif alert.state is AlertState.INACTIVE and is_remembered(alert, now_ns):
            after[labels] = alert
    return after
