"""Incidents, findings and verdicts, read only; raises InventoryError or StoreError. Any thread."""

from __future__ import annotations

import datetime as dt

from alerts.judge.incident import Incident, IncidentState
from api.base.limits import INCIDENT_CHANGES_PAGE_MAX, PAGE_DEFAULT
from api.data.inventory.incidents import IncidentQuery, Numbered
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.oncall.evaluate.lead import EVALUATOR
from api.oncall.evaluate.rows import (
    Position,
    StoredFinding,
    StoredVerdict,
    Wanted,
    read_findings,
    read_verdicts,
)
from collector.contract.verdict import Cause

Incidents = list[Incident]
Verdicts = list[StoredVerdict]
Findings = list[StoredFinding]
News = list[Numbered]
"""The class below has a `list` of its own."""


class IncidentBook:
    """Reads only; the evaluator writes."""

    def __init__(self, inventory: Inventory, store: Store) -> None:
        self._inventory = inventory
        self._store = store

    def list(
        self,
        *,
        state: IncidentState | None = None,
        cause: Cause | None = None,
        job: str | None = None,
        host: str | None = None,
        switch: str | None = None,
        since: dt.datetime | None = None,
        after: str | None = None,
        limit: int = PAGE_DEFAULT,
    ) -> Incidents:
        """Newest first, before the id `after`. A job, host or switch is accused or suffers."""
        wanted = IncidentQuery(
            state=state, cause=cause, job=job, host=host, switch=switch, since=since
        )
        return self._inventory.incidents.page(wanted, after, limit)

    def get(self, number: str) -> Incident | None:
        return self._inventory.incidents.get(number)

    def verdicts(
        self, wanted: Wanted, after: Position | None = None, limit: int = PAGE_DEFAULT
    ) -> Verdicts:
        """Newest first, from before the position ``after``."""
        return read_verdicts(self._store, wanted, after, limit)

    def findings(
        self, wanted: Wanted, after: Position | None = None, limit: int = PAGE_DEFAULT
    ) -> Findings:
        """Newest first, from before the position ``after``."""
        return read_findings(self._store, wanted, after, limit)

    def changes_after(self, number: int, limit: int = INCIDENT_CHANGES_PAGE_MAX) -> News:
        """News with a greater number, in order: what a client that was disconnected has missed."""
        return self._inventory.incidents.changes(number, limit)

    def changes_span(self) -> tuple[int, int] | None:
        return self._inventory.incidents.changes_span()

    def evaluated_at(self) -> dt.datetime | None:
        lease = self._inventory.leases.get(EVALUATOR)
        return lease.done_at if lease is not None else None
