"""Wiring of the policy and its task."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from api.base.metrics import ServiceMetrics
from api.data.inventory.repository import Inventory
from api.fleet.actions.policy import PolicyFile
from api.fleet.actions.task import ActionTask
from api.fleet.health.board import HealthMonitor
from api.oncall.evaluate.lead import Lead


class Acting(msgspec.Struct, frozen=True):
    """The parts that other modules hold."""

    file: PolicyFile
    task: ActionTask


def make_acting(
    path: str,
    inventory: Inventory,
    monitor: HealthMonitor,
    lead: Lead,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> Acting:
    """``path``: the policy's file; empty: the shipped one."""
    file = PolicyFile(path)
    return Acting(file, ActionTask(file, inventory, monitor, lead, metrics, clock))
