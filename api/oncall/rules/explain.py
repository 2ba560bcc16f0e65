"""Explanations of alerts: the incident behind them, its summary, and links to the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from alerts.judge.incident import OPEN_MAX, Incident, IncidentState
from alerts.rulebook.inhibit import explained, told
from alerts.rulebook.model import WORK, Alert, AlertState
from api.data.inventory.incidents import IncidentQuery
from api.data.inventory.repository import Inventory
from api.data.inventory.work import NO_WORK, Work
from api.oncall.rules.evaluate import Explain
from dashboards.grafana.links import ANNOTATION, board_link

ACKNOWLEDGED = "acknowledged by "
"""How the annotation of an acknowledged incident begins."""
ENDED_MAX = 20
"""Ended incidents that one round looks up, one by one."""
STANDING = IncidentQuery(state=IncidentState.OPEN)


def explain_by_incidents(inventory: Inventory, external_url: str) -> Explain:
    """Marks alerts by the open incidents. It blocks; raises InventoryError."""

    def explain(alerts: Sequence[Alert]) -> Sequence[Alert]:
        if not alerts:
            return alerts
        standing = inventory.incidents.page(STANDING, limit=OPEN_MAX)
        by_id = {each.id: each for each in standing}
        by_id |= ended_lately(inventory, alerts, by_id)
        found = [told(each, by_id, external_url) for each in explained(alerts, standing)]
        before = [each.taken_for.incident for each in standing if each.taken_for is not None]
        work = inventory.work.states([*by_id, *before])
        return [with_work(each, by_id.get(each.incident), work) for each in found]

    return explain


def with_work(alert: Alert, incident: Incident | None, work: Mapping[str, Work]) -> Alert:
    """An alert about an incident, with who looks after it; without what no longer holds."""
    if incident is None:
        return alert
    words = work_words(incident, work)
    annotations = {name: text for name, text in alert.annotations.items() if name != WORK}
    if words:
        annotations[WORK] = words
    if annotations == alert.annotations:
        return alert
    return msgspec.structs.replace(alert, annotations=annotations)


def work_words(incident: Incident, work: Mapping[str, Work]) -> str:
    """Who acknowledged an incident, or the one that it was taken for, and who has it."""
    own = work.get(incident.id, NO_WORK)
    before = NO_WORK
    if incident.taken_for is not None:
        before = work.get(incident.taken_for.incident, NO_WORK)
    parts = []
    if own.acknowledged_by:
        note = f" ({own.acknowledged_note})" if own.acknowledged_note else ""
        parts.append(f"{ACKNOWLEDGED}{own.acknowledged_by}{note}")
    elif before.acknowledged_by:
        parts.append(f"what it was first taken for was acknowledged by {before.acknowledged_by}")
    if assigned := own.assigned_to or before.assigned_to:
        parts.append(f"assigned to {assigned}")
    return ", ".join(parts)


def ended_lately(
    inventory: Inventory, alerts: Sequence[Alert], standing: Mapping[str, Incident]
) -> dict[str, Incident]:
    """Incidents that are over and whose alerts fire on for a while: some became others."""
    names = {
        each.incident
        for each in alerts
        if each.incident not in standing and each.state is AlertState.FIRING
    }
    found = (inventory.incidents.get(name) for name in sorted(names - {""})[:ENDED_MAX])
    return {each.id: each for each in found if each is not None and each.became is not None}


def with_dashboards(explain: Explain, grafana_url: str) -> Explain:
    """Adds to each alert a link to its dashboard at that time; none without URL."""
    if not grafana_url:
        return explain

    def explain_and_link(alerts: Sequence[Alert]) -> Sequence[Alert]:
        return [linked(alert, grafana_url) for alert in explain(alerts)]

    return explain_and_link


def linked(alert: Alert, grafana_url: str) -> Alert:
    """An alert with a link to its dashboard; one that its rule gives wins."""
    given = alert.annotations.get(ANNOTATION, "")
    # Ours of an earlier round does not: the alert may have ended since.
    if given and not given.startswith(f"{grafana_url.rstrip('/')}/d/"):
        return alert
    link = board_link(grafana_url, dict(alert.labels), alert.active_ns, alert.resolved_ns)
    if link == given:
        return alert
    annotations = {**alert.annotations, ANNOTATION: link}
    return msgspec.structs.replace(alert, annotations=annotations)
