"""The service, wired: the one place where its parts meet.

Store, inventory and clock are arguments, so that a test can pass its own. Nothing here or below
is global: two services can live in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hmac
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from api.audit.service import FleetAudit, load_expectations
from api.captures import CAPTURES_SECONDS, Captures
from api.context import Context
from api.correlate.roll import make_roll
from api.errors import Boundary, ProblemBody, install_error_handlers, respond
from api.evaluate.detect import Panel
from api.evaluate.parts import make_evaluation
from api.explain.explainer import Explainer
from api.health.parts import make_board
from api.ingest.own import OwnSamples
from api.ingest.service import Ingest
from api.inventory.feed import InventoryFeed
from api.inventory.repository import Inventory
from api.jobs.watch import JobWatch
from api.metrics import ServiceMetrics
from api.notify.task import Notifying
from api.packing import Packing
from api.promql.engine import Engine
from api.promql.gate import Gate
from api.promql.values import Dialect
from api.refresh import refresh_ports
from api.routes import (
    audit,
    bursts,
    captures,
    catalog,
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
    live,
    matrix,
    otlp,
    page,
    prometheus,
    prometheus_meta,
    records,
    remote_write,
    rules,
    runbooks,
    samples,
    silences,
    timeline,
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
        runbooks,
        docs,
        page,
    )
)
"""Every path of the service, in the order in which the documentation shows them."""

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/runbooks", "/", "/assets"})
"""Supervisors and load balancers have no token, nor has the browser of whoever was woken by a page
or opens the built-in one; these say nothing worth hiding. What lies below a path is open with it,
but for the root."""


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
    roll = make_roll(store, stock, intake.commit, metrics, clock, evaluation.lead.is_held)
    engine = make_engine(settings, store)
    gate = Gate(engine)
    notifying = Notifying(settings, stock, evaluation.lead, metrics, clock)
    lead, hooks = evaluation.lead, make_hooks(settings, stock, notifying)
    rulebook = make_rules(settings, engine, stock, lead, intake.commit, metrics, clock, hooks)
    kept_days = settings.retention_days.steps
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
        "captures": lambda: watch_captures(requests),
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
    expectations = load_expectations(settings.audit_expectations)
    app.state.audit = FleetAudit(store, stock, topologies, expectations)
    app.state.rules = rulebook.book
    app.state.notifying = notifying
    explainer = Explainer(store, stock, topologies.at, Panel(metrics))
    app.state.explanations = explain.Explanations(explainer)
    add_routes(app, settings, metrics)
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


def add_routes(app: FastAPI, settings: ServiceSettings, metrics: ServiceMetrics) -> None:
    """Every path, and what stands before all of them."""
    app.state.traces = trace.Traces()
    app.state.page = page.find_page(page.FOLDER)
    app.state.heats = Turns()
    app.state.fabrics = fabric.Fabrics(app.state.context.store)
    for router in ROUTERS:
        app.include_router(router)
    install_error_handlers(app)
    app.add_middleware(Packing)
    app.add_middleware(Guard, tokens=settings.read_tokens())
    app.add_middleware(Meter, metrics=metrics)
    app.add_middleware(Boundary)


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
    return FastAPI(
        title="Fabricscope",
        version=VERSION,
        summary="Which link, NIC, host, GPU or rank makes a training job slow, and the evidence.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )


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
            await asyncio.to_thread(stock.note_unplugged, now)
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
                await asyncio.to_thread(stock.forget_jobs, now - dt.timedelta(days=kept_days))
            forgotten_s = clock()


def stop_if_broken(task: asyncio.Task[None]) -> None:
    """A service whose commit loop has died must not go on taking requests: end it, loudly.

    The supervisor starts it anew, and senders repeat what was not acknowledged.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("%s broke: the service stops", task.get_name(), exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


def is_open(path: str) -> bool:
    """Whether a path is answered to everybody.

    >>> is_open("/runbooks/incident"), is_open("/runbooksx"), is_open("/v1/hosts")
    (True, False, False)
    >>> is_open("/"), is_open("/metrics"), is_open("/assets/index-1a2b.js")
    (True, False, True)
    """
    return path in OPEN_PATHS or path.rpartition("/")[0] in OPEN_PATHS


class Guard:
    """Asks for a bearer token, where tokens are set."""

    def __init__(self, app: ASGIApp, tokens: frozenset[str]) -> None:
        self._app = app
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on who has a token."""
        if scope["type"] == "http" and self._tokens and not is_open(scope["path"]):
            scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            presented = given.strip().encode()
            # Every token is compared, each in constant time: time tells nothing about them.
            matches = [hmac.compare_digest(presented, token) for token in self._tokens]
            if scheme.lower() != "bearer" or not any(matches):
                problem = ProblemBody(
                    status=401,
                    title="no valid token",
                    detail="send Authorization: Bearer TOKEN with a token of the token_file",
                )
                answer = respond(problem, {"WWW-Authenticate": "Bearer"})
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


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
