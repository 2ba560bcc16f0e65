"""The guard: requests show a token where tokens are required, and each route requires a scope.

Two steps, because only the router knows which route a path is: `Guard` runs before it and checks
the token (401), `ask_scope` runs before each route and checks its scope (403).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.data.inventory.token_model import Scope
from api.http.boundary import respond_in_shape_of
from api.http.browsers import check_change
from api.http.context import context_of
from api.http.tokens.book import TokenBook
from api.http.tokens.model import ANYBODY, Caller, Denial, DenialReason, given_in
from api.http.tokens.scopes import PASSED, PASSED_OF_ALL, SCOPES, TAKES_TEXT, is_open
from collector.contract.identity import printable

CALLER = "fabricscope.caller"
"""The key of the caller in the request's scope."""

NO_TOKEN = Denial(
    401,
    DenialReason.NO_TOKEN,
    "send Authorization: Bearer TOKEN; fabricscope token create makes one",
)
TITLES = {401: "no valid token", 403: "not allowed", 429: "too many requests"}


class Guard:
    """Requires a bearer token; without a book every request passes."""

    def __init__(self, app: ASGIApp, book: TokenBook | None, metrics: ServiceMetrics) -> None:
        self._app = app
        self._book = book
        self._metrics = metrics

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self._find(scope)
            if isinstance(found, Denial):
                self._metrics.denied.labels(found.reason).inc()
                answer = respond_in_shape_of(scope["path"], refusal(found))
                await answer(scope, receive, send)
                return
            scope[CALLER] = found
        await self._app(scope, receive, send)

    def _find(self, scope: AsgiScope) -> Caller | Denial:
        if self._book is None or is_open(scope["path"]):
            return ANYBODY
        given = given_in(Headers(scope=scope).get("authorization", ""))
        return self._book.find(given) if given else NO_TOKEN


async def ask_scope(request: Request) -> None:
    """A route's dependency: raises Problem unless the caller has the route's scope."""
    path = request.scope["route"].path
    if is_open(path):
        return
    line = f"{request.method} {path}"
    needed = SCOPES.get(line)
    caller = caller_of(request)
    context = context_of(request.app)
    if needed is not None and (needed in caller.allowed or is_passed(request, line, caller)):
        if needed is not Scope.READ:
            with denials_counted(context.metrics):
                takes_json = needed is not Scope.INGEST and line not in TAKES_TEXT
                check_change(request, context.settings, takes_json=takes_json)
        return
    context.metrics.denied.labels(DenialReason.SCOPE).inc()
    has = ", ".join(sorted(caller.allowed)) or f"incident {caller.incident} only"
    words = (
        f"{line} needs a token with scope {needed}; {caller.name!r} has {has}"
        if needed is not None
        else f"{line} has no scope in api/http/tokens/scopes.py, so no token may use it: a bug"
    )
    raise refusal(Denial(403, DenialReason.SCOPE, words), needed or "")


def is_passed(request: Request, line: str, caller: Caller) -> bool:
    """Whether a caller with a pass asks for what the pass is for."""
    if not caller.incident:
        return False
    is_own = request.path_params.get("incident") == caller.incident
    return line in PASSED_OF_ALL or (line in PASSED and is_own)


def check_pass(request: Request, what: str, *, is_allowed: bool) -> None:
    """Raise Problem if the caller came with a pass, and that does not allow this of its route."""
    if is_allowed or not caller_of(request).incident:
        return
    context_of(request.app).metrics.denied.labels(DenialReason.SCOPE).inc()
    words = f"a notice's link acknowledges only; {what} needs a token that may operate"
    raise refusal(Denial(403, DenialReason.SCOPE, words), Scope.OPERATE)


@contextlib.contextmanager
def denials_counted(metrics: ServiceMetrics) -> Iterator[None]:
    try:
        yield
    except Problem as problem:
        metrics.denied.labels(problem.body.rule).inc()
        raise


def caller_of(request: Request) -> Caller:
    """The caller, for routes that record it: no name where no token is required."""
    caller: Caller = request.scope[CALLER]
    return caller


def signed(request: Request, by: str) -> str:
    """The name in the request, which is not verified, and the token that it came with, which is."""
    caller, name = caller_of(request), printable(by)
    if caller.incident:
        return f"{name} (by a notice's link)"
    return name if caller.name in {"", name} else f"{name} (token {caller.name})"


def refusal(denial: Denial, needed: str = "") -> Problem:
    """The answer to a denied request. Its header is RFC 6750's."""
    challenge = {
        DenialReason.NO_TOKEN: "Bearer",
        DenialReason.SCOPE: f'Bearer error="insufficient_scope", scope="{needed}"',
    }.get(denial.reason, 'Bearer error="invalid_token"')
    return Problem(
        denial.status,
        TITLES[denial.status],
        denial.words,
        rule=denial.reason,
        headers={} if denial.reason is DenialReason.TOKEN_RATE else {"WWW-Authenticate": challenge},
    )
