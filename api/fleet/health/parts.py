"""Wiring of the board."""

from __future__ import annotations

from collections.abc import Callable

from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.fleet.health.board import HealthMonitor
from api.fleet.health.evidence import Evidence
from api.fleet.health.holds import InventoryHolds
from api.oncall.evaluate.members import HEALTH
from api.oncall.evaluate.parts import Evaluation
from collector.contract.units import NS


def make_board(
    inventory: Inventory,
    evaluation: Evaluation,
    own: OwnSamples,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> HealthMonitor:
    """The board of a service that starts to listen now. ``own`` is used by the board alone."""
    holds = [InventoryHolds(inventory.health)]
    evidence = Evidence(inventory, evaluation.book, holds, started_ns=round(clock() * NS))
    return HealthMonitor(evidence, inventory, evaluation.members.leads[HEALTH], own, metrics, clock)
