"""What incidents say of alerts: which they explain, and what the page about one has to say."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.incident import OPEN_MAX, IncidentState
from alerts.rulebook.inhibit import explained, told
from alerts.rulebook.model import Alert
from api.inventory.incidents import IncidentQuery
from api.inventory.repository import Inventory
from api.rules.evaluate import Explain

STANDING = IncidentQuery(state=IncidentState.OPEN)


def explain_by_incidents(stock: Inventory, external_url: str) -> Explain:
    """Marks alerts by the incidents that are open. It blocks; raises InventoryError."""

    def explain(alerts: Sequence[Alert]) -> Sequence[Alert]:
        if not alerts:
            return alerts
        standing = stock.incidents(STANDING, limit=OPEN_MAX)
        by_id = {each.id: each for each in standing}
        return [told(each, by_id, external_url) for each in explained(alerts, standing)]

    return explain
