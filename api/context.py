"""What a request can reach: the parts of the service, wired once in `api.app`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import Depends, Request

from api.captures import Captures
from api.evaluate.book import IncidentBook
from api.evaluate.changes import Changes
from api.health.board import HealthBoard
from api.ingest.service import Ingest
from api.inventory.repository import Inventory
from api.metrics import ServiceMetrics
from api.promql.gate import Gate
from api.settings import ServiceSettings
from api.store.store import Store
from api.topology.cache import TopologyCache


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. ``clock`` gives unix seconds, ``started_s`` is when the service was wired."""

    store: Store
    inventory: Inventory
    ingest: Ingest
    captures: Captures
    incidents: IncidentBook
    changes: Changes
    health: HealthBoard
    metrics: ServiceMetrics
    gate: Gate
    settings: ServiceSettings
    topologies: TopologyCache
    clock: Callable[[], float]
    started_s: float

    def now(self) -> dt.datetime:
        """The service's time."""
        return dt.datetime.fromtimestamp(self.clock(), tz=dt.UTC)

    def end_streams(self) -> None:
        """End answers that never end by themselves: the service stops."""
        self.changes.close()
        self.health.close()


async def get_context(request: Request) -> Context:
    """The context of the app that serves this request.

    Async, because FastAPI sends every other dependency through a thread: 0.2 ms a request.
    """
    context: Context = request.app.state.context
    return context


Parts = Annotated[Context, Depends(get_context)]
