"""Held hosts, for tests: as an operator's request makes and ends a hold."""

import datetime as dt

from alerts.health.model import Hold
from alerts.policy.record import said_by
from api.data.inventory.health import KeptHold
from api.data.inventory.repository import Inventory


def set_hold(inventory: Inventory, number: str, hold: Hold) -> None:
    """Hold a host."""
    inventory.actions.take_host(said_by(hold, number))


def end_hold(inventory: Inventory, host: str, by: str, now: dt.datetime) -> KeptHold | None:
    """Let it back; None if nothing holds it."""
    return inventory.actions.give_back(host, by, "", now)
