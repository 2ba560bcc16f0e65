"""Who has been taken out, by whom: the seam for everything that drains hosts.

An operator's word is kept in the inventory (`InventoryHolds`). Whatever else may drain a host, a
scheduler or an action of ours, becomes another of these, and the board asks all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

from alerts.health.model import Hold
from api.data.inventory.health import HealthTables


class Holds(Protocol):
    """Knows what is draining or out: since when, by whom, and why."""

    def standing(self, now: dt.datetime) -> Iterable[Hold]:
        """All that hold at a moment. Raises InventoryError if that cannot be known."""


class InventoryHolds:
    """Holds that operators have set (`PUT /v1/hosts/{host}/hold`)."""

    def __init__(self, health: HealthTables) -> None:
        self._health = health

    def standing(self, now: dt.datetime) -> Iterable[Hold]:
        """All that hold at a moment."""
        return [kept.hold for kept in self._health.holds(now)]
