"""The parts of the service that routes use, wired once in `api.http.wiring`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import Depends, FastAPI, Request

from api.base.metrics import ServiceMetrics
from api.data.captures import Captures
from api.data.ingest.ingest import Ingest
from api.data.inventory.repository import Inventory
from api.data.rollouts.book import RolloutBook
from api.data.store.store import Store
from api.fabric.cache import TopologyCache
from api.fabric.probe_targets import ProbeTargetBook
from api.fleet.actions.parts import Acting
from api.fleet.audit.fleet_audit import FleetAudit
from api.fleet.health.board import HealthMonitor
from api.fleet.kubernetes.gangs import Gangs
from api.fleet.placement.floors import Floors
from api.http.duties import Duties
from api.http.page_files import PageFiles
from api.http.settings import ServiceSettings
from api.http.tenants import Tenants
from api.http.tokens.book import TokenBook
from api.http.turns import Slots, Turns
from api.http.wellbeing import Wellbeing
from api.http.works import Supervisor
from api.jobs.correlate.ahead import Ahead
from api.jobs.correlate.fabric import FabricReader
from api.jobs.correlate.pieces import JobPieces
from api.oncall.cases.keeper import CaseKeeper
from api.oncall.evaluate.book import IncidentBook
from api.oncall.evaluate.changes import Changes
from api.oncall.explain.explainer import Explainer
from api.oncall.notify.task import Notifying
from api.oncall.rules.answer import RuleBook
from api.promql.gate import Gate

LOOKS_KEPT_MAX = 2
"""Of LOOK_RECORDS_MAX records each: 160 MB."""
EXPLANATIONS_KEPT_MAX = 4
"""Of 4 MB each at 64 hosts."""


PATTERNS_KEPT_MAX = 4
"""Of a job's traffic, 8 MB at 1,024 ranks."""


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """Queues for answers that take a core for long; each kind has its own."""

    backups: Slots = msgspec.field(default_factory=lambda: Slots("backups"))
    cases: Turns = msgspec.field(default_factory=Turns)
    explanations: Turns = msgspec.field(default_factory=lambda: Turns(EXPLANATIONS_KEPT_MAX))
    fabrics: Turns = msgspec.field(default_factory=Turns)
    heats: Turns = msgspec.field(default_factory=Turns)
    link_shares: Turns = msgspec.field(default_factory=Turns)
    looks: Turns = msgspec.field(default_factory=lambda: Turns(LOOKS_KEPT_MAX))
    patterns: Turns = msgspec.field(default_factory=lambda: Turns(PATTERNS_KEPT_MAX))
    pieces: Turns = msgspec.field(default_factory=Turns)
    placements: Turns = msgspec.field(default_factory=Turns)
    timelines: Turns = msgspec.field(default_factory=Turns)
    traces: Slots = msgspec.field(default_factory=lambda: Slots("traces"))
    what_ifs: Turns = msgspec.field(default_factory=Turns)

    @property
    def is_answering(self) -> bool:
        """Whether somebody waits for an answer of one of a page's views.

        Pieces are not asked after: they are made for such an answer, or ahead of one.
        """
        views = (
            self.explanations,
            self.fabrics,
            self.heats,
            self.link_shares,
            self.looks,
            self.patterns,
            self.timelines,
        )
        return any(one.is_taken for one in views)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. ``clock`` gives unix seconds, ``started_s`` is when the service was wired."""

    settings: ServiceSettings
    clock: Callable[[], float]
    started_s: float
    metrics: ServiceMetrics
    store: Store
    inventory: Inventory
    ingest: Ingest
    captures: Captures
    rollouts: RolloutBook
    probe_targets: ProbeTargetBook
    gate: Gate
    tenants: Tenants
    topologies: TopologyCache
    incidents: IncidentBook
    changes: Changes
    rules: RuleBook
    notifying: Notifying
    explainer: Explainer
    cases: CaseKeeper
    health: HealthMonitor
    acting: Acting
    audit: FleetAudit
    floors: Floors
    gangs: Gangs
    fabric_reader: FabricReader
    job_pieces: JobPieces
    ahead: Ahead
    tokens: TokenBook
    page: PageFiles | None
    """Null: none was built."""
    queues: Queues
    supervisor: Supervisor
    wellbeing: Wellbeing
    duties: Duties

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.clock(), tz=dt.UTC)

    def end_streams(self) -> None:
        self.changes.close()
        self.health.close()


def context_of(app: FastAPI) -> Context:
    """The context that `api.http.app` gave this app: all that an app holds."""
    context: Context = app.state.context
    return context


async def get_context(request: Request) -> Context:
    """Async, because FastAPI sends every other dependency through a thread: 0.2 ms a request."""
    return context_of(request.app)


Parts = Annotated[Context, Depends(get_context)]
