"""The board, put together."""

from __future__ import annotations

from collections.abc import Callable

from alerts.health.model import NS
from api.evaluate.parts import Evaluation
from api.health.board import HealthBoard
from api.health.evidence import Evidence
from api.health.holds import InventoryHolds
from api.ingest.own import OwnSamples
from api.inventory.repository import Inventory
from api.metrics import ServiceMetrics


def make_board(
    inventory: Inventory,
    evaluation: Evaluation,
    own: OwnSamples,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> HealthBoard:
    """The board of a service that begins to listen now. ``own`` is the board's alone."""
    holds = [InventoryHolds(inventory.health)]
    evidence = Evidence(inventory, evaluation.book, holds, started_ns=round(clock() * NS))
    return HealthBoard(evidence, inventory, evaluation.lead, own, metrics, clock)
