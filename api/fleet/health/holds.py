"""Which hosts are taken out, and by what: the interface of everything that drains hosts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

from alerts.health.model import Hold
from api.data.inventory.health import HealthTables


class Holds(Protocol):
    """Lists what is draining or out: since when, at whose request, and why."""

    def standing(self, now: dt.datetime) -> Iterable[Hold]:
        """All holds at a moment. Raises InventoryError if they cannot be read."""
        ...


class InventoryHolds:
    """Holds that operators have set (`PUT /v1/hosts/{host}/hold`)."""

    def __init__(self, health: HealthTables) -> None:
        self._health = health

    def standing(self, now: dt.datetime) -> Iterable[Hold]:
        return [kept.hold for kept in self._health.holds(now)]
