"""Explanations of alerts: the incident behind them, its summary, and links to the evidence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.judge.incident import OPEN_MAX, IncidentState
from alerts.rulebook.inhibit import explained, told
from alerts.rulebook.model import Alert
from api.data.inventory.incidents import IncidentQuery
from api.data.inventory.repository import Inventory
from api.oncall.rules.evaluate import Explain
from dashboards.grafana.links import ANNOTATION, board_link

STANDING = IncidentQuery(state=IncidentState.OPEN)


def explain_by_incidents(inventory: Inventory, external_url: str) -> Explain:
    """Marks alerts by the open incidents. It blocks; raises InventoryError."""

    def explain(alerts: Sequence[Alert]) -> Sequence[Alert]:
        if not alerts:
            return alerts
        standing = inventory.incidents.page(STANDING, limit=OPEN_MAX)
        by_id = {each.id: each for each in standing}
        return [told(each, by_id, external_url) for each in explained(alerts, standing)]

    return explain


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
