"""The HTTP service: every path and the middleware. Nothing is global: two can live in a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from api.base.metrics import ServiceMetrics
from api.base.packing import Packing
from api.base.threads import ANSWERS, WORK
from api.base.version import VERSION
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.http.boundary import Boundary, install_error_handlers
from api.http.browsers import HostCheck, HostGuard
from api.http.duties import EVERYTHING, Duties
from api.http.patience import Patience
from api.http.refusals import show_refusals
from api.http.routes import (
    actions,
    audit,
    backup,
    bursts,
    captures,
    catalog,
    checks,
    configuration_document,
    configurations,
    costs,
    docs,
    elsewhere,
    events,
    explain,
    fabric,
    feedback,
    fleet_health,
    freshness,
    health,
    heat,
    holds,
    host_removal,
    incident_work,
    incidents,
    ingest,
    jobs,
    kubernetes,
    link_shares,
    live,
    matrix,
    otlp,
    page,
    page_settings,
    pagerduty,
    placement,
    probe_targets,
    prometheus,
    prometheus_meta,
    records,
    refused,
    remote_write,
    rules,
    runbooks,
    samples,
    silences,
    slack,
    step_compare,
    timeline,
    tokens,
    topology,
    trace,
    verdicts,
    what_if,
)
from api.http.routes import inventory as inventory_routes
from api.http.schema_names import with_published_names
from api.http.settings import ServiceSettings
from api.http.tokens.guard import Guard, ask_scope
from api.http.tokens.shown import show_scopes
from api.http.wiring import wire
from api.http.works import working

ROUTERS = tuple(
    module.router
    for module in (
        ingest,
        remote_write,
        otlp,
        prometheus,
        prometheus_meta,
        rules,
        inventory_routes,
        host_removal,
        fleet_health,
        holds,
        actions,
        checks,
        kubernetes,
        placement,
        topology,
        link_shares,
        what_if,
        fabric,
        jobs,
        records,
        timeline,
        heat,
        step_compare,
        matrix,
        trace,
        verdicts,
        incident_work,  # first: `….md` is no incident's id
        incidents,
        costs,
        feedback,
        explain,
        freshness,
        live,
        events,
        bursts,
        captures,
        configurations,
        configuration_document,
        probe_targets,
        audit,
        silences,
        pagerduty,
        slack,
        samples,
        catalog,
        health,
        refused,
        tokens,
        backup,
        runbooks,
        docs,
        page_settings,
        page,
    )
)
"""Every path of the service, in the order in which the documentation shows them."""


INGEST_ROUTERS = (
    ingest.router,
    remote_write.router,
    otlp.router,
    configuration_document.router,
    probe_targets.router,
)
COMMON_ROUTERS = (health.router,)


def routers_of(duties: Duties) -> list[APIRouter]:
    """What a process with these duties answers. What is left out is refused by `elsewhere`."""
    left_out = {
        *(() if duties.ingests else map(id, INGEST_ROUTERS)),
        *(() if duties.answers else map(id, ROUTERS)),
    }
    kept = {*map(id, COMMON_ROUTERS), *(map(id, INGEST_ROUTERS) if duties.ingests else ())}
    return [each for each in ROUTERS if id(each) in kept or id(each) not in left_out]


def create_app(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    clock: Callable[[], float],
    duties: Duties = EVERYTHING,
) -> FastAPI:
    """The service over this store and inventory; both must be migrated. ``clock``: unix seconds."""
    context = wire(settings, store, inventory, clock, duties)
    app = make_bare_app(working(context.supervisor, context.gate))
    app.state.context = context
    served = routers_of(duties)
    for router in served:
        app.include_router(router, dependencies=[Depends(ask_scope)])
    if len(served) < len(ROUTERS):
        app.include_router(elsewhere.router)
    install_error_handlers(app)
    app.add_middleware(Packing)
    # Without a book no token is required.
    book = context.tokens if settings.token_need else None
    app.add_middleware(Guard, book=book, metrics=context.metrics)
    app.add_middleware(HostGuard, check=HostCheck(settings), metrics=context.metrics)
    app.add_middleware(Patience)
    app.add_middleware(Meter, metrics=context.metrics)
    app.add_middleware(Boundary)
    return app


def make_bare_app(lifespan: Lifespan[FastAPI]) -> FastAPI:
    return Service(
        title="Fabricscope",
        version=VERSION,
        summary="Which link, NIC, host, GPU or rank makes a training job slow, and the evidence.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A path of `api.http.routes.docs`, so that it requires a scope as all others do.
        openapi_url=None,
    )


class Service(FastAPI):
    """FastAPI, whose OpenAPI document also has each path's scope and refusals."""

    def openapi(self) -> dict[str, Any]:
        """Built once."""
        if self.openapi_schema is None:
            self.openapi_schema = with_published_names(
                show_refusals(show_scopes(super().openapi()))
            )
        return self.openapi_schema


class Meter:
    """Counts and times requests by route, never by raw path: a scanner must not make series."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()
        WORK.set(ANSWERS)

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
