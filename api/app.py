"""The service, wired: the one place where its parts meet.

Store, inventory and clock are arguments, so that a test can pass its own. Nothing here or below
is global: two services can live in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from api.actions.parts import make_acting
from api.audit.service import FleetAudit, load_expectations
from api.boundary import Boundary, install_error_handlers
from api.captures import CAPTURES_SECONDS, Captures
from api.context import Context
from api.correlate.roll import make_roll
from api.evaluate.detect import Panel
from api.evaluate.parts import make_evaluation
from api.explain.explainer import Explainer
from api.health.parts import make_board
from api.ingest.own import OwnSamples
from api.ingest.service import Ingest
from api.inventory.feed import InventoryFeed
from api.inventory.repository import Inventory
from api.jobs.watch import JobWatch
from api.kubernetes.gangs import Gangs
from api.metrics import ServiceMetrics
from api.notify.task import Notifying
from api.packing import Packing
from api.placement.service import Floors
from api.promql.engine import Engine
from api.promql.gate import Gate
from api.promql.values import Dialect
from api.refresh import refresh_ports
from api.routes import (
    actions,
    audit,
    bursts,
    captures,
    catalog,
    checks,
    docs,
    events,
    explain,
    fabric,
    fleet_health,
    health,
    heat,
    holds,
    incidents,
    ingest,
    inventory,
    jobs,
    kubernetes,
    live,
    matrix,
    otlp,
    page,
    placement,
    prometheus,
    prometheus_meta,
    records,
    remote_write,
    rules,
    runbooks,
    samples,
    silences,
    timeline,
    tokens,
    topology,
    trace,
    verdicts,
)
from api.routes.turns import Turns
from api.rules.explain import explain_by_incidents, with_dashboards
from api.rules.parts import make_rules
from api.rules.task import Hooks
from api.settings import ServiceSettings
from api.store.store import Store
from api.tokens.book import TokenBook
from api.tokens.guard import Guard, ask_scope
from api.tokens.parts import make_book
from api.tokens.shown import show_scopes
from api.topology.cache import TopologyCache
from api.version import VERSION
from collector.contract.catalog import load_catalog
from collector.contract.errors import InventoryError, StoreError

log = logging.getLogger(__name__)

FEED_SECONDS = 1.0
"""How often what was sighted goes to the inventory."""

JOBS_SECONDS = 10.0
"""How often the records are looked through for jobs."""

JOBS_FORGOTTEN_SECONDS = 3_600.0
"""How often jobs that ended long ago are removed."""

PORTS_SECONDS = 15.0
"""How often the inventory learns the state and rate of every port."""

ROUTERS = tuple(
    module.router
    for module in (
        ingest,
        remote_write,
        otlp,
        prometheus,
        prometheus_meta,
        rules,
        inventory,
        fleet_health,
        holds,
        actions,
        checks,
        kubernetes,
        placement,
        topology,
        fabric,
        jobs,
        records,
        timeline,
        heat,
        matrix,
        trace,
        verdicts,
        incidents,
        explain,
        live,
        events,
        bursts,
        captures,
        audit,
        silences,
        samples,
        catalog,
        health,
        tokens,
        runbooks,
        docs,
        page,
    )
)
"""Every path of the service, in the order in which the documentation shows them."""

Work = Callable[[], Coroutine[Any, Any, None]]
"""Something that goes on until it is cancelled."""


def create_app(
    settings: ServiceSettings, store: Store, stock: Inventory, clock: Callable[[], float]
) -> FastAPI:
    """The service over this store and inventory; both must be migrated. ``clock``: unix seconds."""
    metrics = ServiceMetrics()
    metrics.inform("fabric_service_info", version=VERSION, store=store.url.scheme)
    feed = InventoryFeed(
        stock, load_catalog(), lambda: dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
    )
    intake = Ingest(store, feed, metrics, clock, retention_days=settings.retention_days.samples)
    intake.captures = requests = Captures(stock, clock)
    topologies = TopologyCache(
        stock, clock, file=settings.topology_file, plan=settings.topology_plan
    )
    evaluation = make_evaluation(
        store,
        stock,
        topologies,
        OwnSamples(intake.commit),
        metrics,
        clock,
        is_alone=store.url.scheme == "chdb" and settings.inventory_url.startswith("sqlite"),
    )
    board = make_board(stock, evaluation, OwnSamples(intake.commit), metrics, clock)
    acting = make_acting(settings.policy_file, stock, board, evaluation.lead, metrics, clock)
    roll = make_roll(store, stock, intake.commit, metrics, clock, evaluation.lead.is_held)
    engine = make_engine(settings, store)
    gate = Gate(engine)
    notifying = Notifying(settings.notifier, stock, evaluation.lead, metrics, clock)
    lead, hooks = evaluation.lead, make_hooks(settings, stock, notifying)
    rulebook = make_rules(settings.rules, engine, stock, lead, intake.commit, metrics, clock, hooks)
    kept_days, book = (
        settings.retention_days.steps,
        make_book(stock.tokens, clock, file=settings.token_file, need=settings.token_need),
    )
    works: dict[str, Work] = {
        "commit": intake.run,
        "inventory feed": lambda: feed_inventory(feed, metrics),
        "port watch": lambda: watch_ports(store, stock, clock),
        "job watch": lambda: watch_jobs(store, stock, clock, kept_days=kept_days),
        "lead": evaluation.lead.run,
        "roll": roll.run,
        "evaluator": evaluation.task.run,
        "news": evaluation.changes.run,
        "health": board.run,
        "actions": acting.task.run,
        "captures": lambda: watch_captures(requests),
        "tokens": book.run,
        "rules": rulebook.task.run,
        "notifier": notifying.run,
        **({"own numbers": rulebook.own.run} if settings.own_numbers else {}),
    }
    app = make_bare_app(working(works, gate))
    app.state.context = Context(
        store=store,
        inventory=stock,
        ingest=intake,
        captures=requests,
        incidents=evaluation.book,
        changes=evaluation.changes,
        health=board,
        metrics=metrics,
        gate=gate,
        settings=settings,
        topologies=topologies,
        clock=clock,
        started_s=clock(),
    )
    app.state.rules = rulebook.book
    app.state.notifying, app.state.acting = notifying, acting
    app.state.tokens = book
    add_routes(app, book if settings.token_need else None, metrics)
    return app


def make_engine(settings: ServiceSettings, store: Store) -> Engine:
    """What answers PromQL."""
    aliases = load_catalog() if settings.promql_aliases else None
    return Engine(store, Dialect(settings.promql_dialect), aliases)


def make_hooks(settings: ServiceSettings, stock: Inventory, notifying: Notifying) -> Hooks:
    """What becomes of alerts: they are explained, and people are told."""
    explain_alerts = with_dashboards(
        explain_by_incidents(stock, settings.public_url), settings.grafana_url
    )
    return Hooks(explain=explain_alerts, notify=notifying.notify)


def add_routes(app: FastAPI, book: TokenBook | None, metrics: ServiceMetrics) -> None:
    """Every path, and what stands before all of them. Without a book no token is asked for."""
    app.state.traces = trace.Traces()
    app.state.page = page.find_page(page.FOLDER)
    app.state.heats = Turns()
    app.state.fabrics = fabric.Fabrics(app.state.context.store)
    app.state.placements = placement.Placements(make_floors(app.state.context))
    app.state.gangs = Gangs(app.state.context.clock)
    add_judges(app, app.state.context)
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(ask_scope)])
    install_error_handlers(app)
    app.add_middleware(Packing)
    app.add_middleware(Guard, book=book, metrics=metrics)
    app.add_middleware(Meter, metrics=metrics)
    app.add_middleware(Boundary)


def add_judges(app: FastAPI, parts: Context) -> None:
    """What looks at the fleet, or at a window, when somebody asks."""
    expectations = load_expectations(parts.settings.audit_expectations)
    app.state.audit = FleetAudit(parts.store, parts.inventory, parts.topologies, expectations)
    explainer = Explainer(parts.store, parts.inventory, parts.topologies.at, Panel(parts.metrics))
    app.state.explanations = explain.Explanations(explainer)


def make_floors(parts: Context) -> Floors:
    """What placement knows of cables and jobs."""
    return Floors(parts.topologies, parts.inventory, parts.clock)


def working(works: Mapping[str, Work], gate: Gate) -> Lifespan[FastAPI]:
    """What goes on as long as the service runs, each by its name."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work(), name=name) for name, work in works.items()]
        for task in tasks:
            task.add_done_callback(stop_if_broken)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gate.close()

    return lifespan


def make_bare_app(lifespan: Lifespan[FastAPI]) -> FastAPI:
    """An app that answers nothing yet."""
    return Service(
        title="Fabricscope",
        version=VERSION,
        summary="Which link, NIC, host, GPU or rank makes a training job slow, and the evidence.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A path of `api.routes.docs`, so that it asks for a scope as all others do.
        openapi_url=None,
    )


class Service(FastAPI):
    """FastAPI, whose document also says which scope each path asks for."""

    def openapi(self) -> dict[str, Any]:
        """The document of the interface; made once."""
        if self.openapi_schema is None:
            self.openapi_schema = show_scopes(super().openapi())
        return self.openapi_schema


async def feed_inventory(feed: InventoryFeed, metrics: ServiceMetrics) -> None:
    """Tell the inventory what was sighted, until cancelled; then once more."""
    flushed = dropped = errors = 0
    try:
        while True:
            await asyncio.sleep(FEED_SECONDS)
            await asyncio.to_thread(feed.run_once)
            metrics.inventory_flushed.inc(feed.flushed - flushed)
            metrics.inventory_dropped.inc(feed.dropped - dropped)
            metrics.inventory_errors.inc(feed.errors - errors)
            flushed, dropped, errors = feed.flushed, feed.dropped, feed.errors
    finally:
        feed.run_once()


async def watch_ports(store: Store, stock: Inventory, clock: Callable[[], float]) -> None:
    """Keep the ports' state, rate and cables in the inventory fresh, until cancelled."""
    failing = False
    while True:
        await asyncio.sleep(PORTS_SECONDS)
        now = dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
        try:
            await asyncio.to_thread(refresh_ports, store, stock, load_catalog(), now)
            await asyncio.to_thread(stock.links.note_unplugged, now)
            failing = False
        except (StoreError, InventoryError) as error:
            if not failing:
                log.warning("the ports' state cannot be refreshed: %s", error)
            failing = True


async def watch_captures(captures: Captures) -> None:
    """Keep requests to agents in step with the inventory, until cancelled."""
    while True:
        await asyncio.sleep(CAPTURES_SECONDS)
        await asyncio.to_thread(captures.look)


async def watch_jobs(
    store: Store, stock: Inventory, clock: Callable[[], float], *, kept_days: int
) -> None:
    """Keep the inventory's jobs in step with the records, until cancelled.

    A job that has ended is kept as long as the steps that it made.
    """
    watch = JobWatch(store, stock)
    forgotten_s = clock()
    while True:
        await asyncio.sleep(JOBS_SECONDS)
        now = dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
        is_well = await asyncio.to_thread(watch.look, now)
        if is_well and clock() - forgotten_s >= JOBS_FORGOTTEN_SECONDS:
            with contextlib.suppress(InventoryError):  # the next look says so
                await asyncio.to_thread(stock.jobs.forget, now - dt.timedelta(days=kept_days))
            forgotten_s = clock()


def stop_if_broken(task: asyncio.Task[None]) -> None:
    """A service whose commit loop has died must not go on taking requests: end it, loudly.

    The supervisor starts it anew, and senders repeat what was not acknowledged.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("%s broke: the service stops", task.get_name(), exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


class Meter:
    """Counts and times requests by route, never by raw path: a scanner must not make series."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "unknown")
            self._metrics.requests.labels(scope["method"], path, str(status)).inc()
            self._metrics.request_seconds.labels(path).observe(time.perf_counter() - started)
