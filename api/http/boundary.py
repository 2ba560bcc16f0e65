"""The request boundary: every error becomes one shape of answer, `application/problem+json`.

| what was raised | status | title |
|---|---|---|
| Problem | its own | its own |
| WireTooLarge | 413 | too large |
| WireError and other ContractError | 400 | not a valid request |
| Overloaded, StoreBusy | 503, Retry-After | busy |
| StoreError, InventoryError | 503, Retry-After | the store (or inventory) is not available |
| QueryError | by its kind | its kind |
| anything else | 500 | a bug, with a trace in the log |

`GET /v1/…` and `POST /v1/ingest` answer so. Remote write answers in plain text, because its
senders log the first line of what they get (`api.http.routes.remote_write`). The other paths of
`/api/v1/` answer with Prometheus' own shape, `{"status":"error","errorType":…,"error":…}`: its
clients know no other. A client that is refused before the route (401, 403, 421, 429) gets
problem+json everywhere.
"""

from __future__ import annotations

import http
import logging

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.base.errors import Problem, ProblemBody
from api.base.limits import RETRY_AFTER_SECONDS
from api.data.ingest.commit import Overloaded
from api.data.store.errors import StoreBusy
from api.http.context import context_of
from api.promql.errors import ErrorKind, QueryError
from collector.contract.errors import (
    ContractError,
    FabricscopeError,
    InventoryError,
    StoreError,
    WireTooLarge,
)

log = logging.getLogger(__name__)

PROMQL = "promql"
"""The protocol under which refused questions are counted."""

PROBLEM_TYPE = "application/problem+json"

PROMETHEUS_PATHS = "/api/v1/"
REMOTE_WRITE_PATH = "/api/v1/write"
OTLP_PATH = "/otlp/v1/metrics"
PROTOBUF = "application/x-protobuf"

DOOR_STATUSES = frozenset({401, 403, 421, 429})
"""For requests that `api.http.tokens` and `api.http.browsers` refuse."""

_STATUSES = {
    ErrorKind.BAD_DATA: 400,
    ErrorKind.EXECUTION: 422,
    ErrorKind.CANCELED: 499,
    ErrorKind.TIMEOUT: 503,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.NOT_FOUND: 404,
}


_ANSWERS: tuple[tuple[type[FabricscopeError], int, str], ...] = (
    (WireTooLarge, 413, "too large"),
    (ContractError, 400, "not a valid request"),
    (Overloaded, 503, "busy"),
    (StoreBusy, 503, "busy"),
    (StoreError, 503, "the store is not available"),
    (InventoryError, 503, "the inventory is not available"),
)


def problem_of(error: Exception) -> ProblemBody:
    """The answer to this error; the table above."""
    if isinstance(error, Problem):
        return error.body
    if isinstance(error, QueryError):
        status = _STATUSES[error.kind]
        return ProblemBody(status=status, title=error.kind, detail=str(error), rule=error.rule)
    for kind, status, title in _ANSWERS:
        if isinstance(error, kind):
            return ProblemBody(status=status, title=title, detail=str(error))
    return ProblemBody(
        status=500,
        title="a bug in the service",
        detail=f"{type(error).__name__}; the trace is in the service's log",
    )


def retry_headers(status: int) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_SECONDS)} if status in {429, 503} else {}


def respond(body: ProblemBody, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=body.status,
        media_type=PROBLEM_TYPE,
        headers={**retry_headers(body.status), **(headers or {})},
    )


class PrometheusError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Prometheus' shape of an error."""

    status: str = "error"
    error_type: ErrorKind
    error: str


def respond_as_prometheus(
    body: ProblemBody, kind: ErrorKind | None = None, headers: dict[str, str] | None = None
) -> Response:
    """The problem in Prometheus' shape; its kind follows from the status if it is not given."""
    if kind is None:
        by_status = {status: kind for kind, status in _STATUSES.items()}
        kind = by_status.get(body.status, ErrorKind.BAD_DATA)
    # A query that timed out would take as long again; only a request that waited in vain may retry
    # soon.
    again = {} if kind is ErrorKind.TIMEOUT else retry_headers(body.status)
    return Response(
        msgspec.json.encode(PrometheusError(error_type=kind, error=body.detail)),
        status_code=body.status,
        media_type="application/json",
        headers={**again, **(headers or {})},
    )


def respond_in_shape_of(path: str, error: Exception) -> Response:
    body = problem_of(error)
    headers = error.headers if isinstance(error, Problem) else {}
    if speaks_prometheus(path) and body.status not in DOOR_STATUSES:
        kind = error.kind if isinstance(error, QueryError) else None
        return respond_as_prometheus(body, kind, headers)
    return respond(body, headers)


def speaks_prometheus(path: str) -> bool:
    return path.startswith(PROMETHEUS_PATHS) and path != REMOTE_WRITE_PATH


def install_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        faults = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()]
        return respond(ProblemBody(status=422, title="wrong parameters", detail="; ".join(faults)))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        """404 and 405, which the router raises itself."""
        title = http.HTTPStatus(error.status_code).phrase.lower()
        detail = f"{request.method} {request.url.path}: {error.detail}; the paths are at /docs"
        problem = ProblemBody(status=error.status_code, title=title, detail=detail)
        headers = dict(error.headers or {})
        if speaks_prometheus(request.url.path):
            return respond_as_prometheus(problem, headers=headers)
        return respond(problem, headers)

    @app.exception_handler(FabricscopeError)
    async def known(request: Request, error: FabricscopeError) -> Response:
        """An error raised on purpose. Bounds that stopped a query are counted here."""
        body = problem_of(error)
        is_question = speaks_prometheus(request.url.path) and body.status not in DOOR_STATUSES
        if body.rule and is_question:
            context_of(request.app).metrics.refuse(PROMQL, {body.rule: 1})
        return respond_in_shape_of(request.url.path, error)


class Boundary:
    """The outermost layer: unforeseen errors are logged with their trace and answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers for errors that occur before an answer has begun."""
        answering = False

        async def watch(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if answering or scope["type"] != "http":
                raise
            log.exception("%s %s failed", scope["method"], scope["path"])
            await respond_in_shape_of(scope["path"], error)(scope, receive, send)
