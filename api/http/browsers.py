"""What a browser could be made to do to the service: by which name it calls, and from which page.

A page of a stranger can make its reader's browser send requests to a service on the reader's own
machine or network. Three checks make such requests harmless:

- **Host**: a name of the stranger's can be made to lead to this machine (DNS rebinding). A service
  that requires no token answers only to loopback names and to those of `allowed_hosts`. One that
  requires tokens answers to any name, since the stranger's page has none, unless names are set.
- **Origin**: a browser says which page a changing request comes from. It must be a page of this
  service (the same host and port), or one of `external_url`.
- **Content-Type**: a form of another page may send `text/plain` without asking first, and JSON only
  after the service agreed, which it never does. So a route that changes something takes JSON only.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.base.errors import Problem
from api.base.metrics import ServiceMetrics
from api.http.boundary import respond_in_shape_of
from api.http.settings import ServiceSettings, is_ip

ANY_HOST = "*"
"""In `allowed_hosts`: every name."""
PROBED_PATHS = frozenset({"/healthz", "/readyz"})
"""Supervisors call these by whatever address they know; they reveal and change nothing."""


def host_of(netloc: str) -> str:
    """The name in a Host header, in lower case; empty if it is none.

    >>> host_of("LocalHost:9700"), host_of("[::1]:9700"), host_of("a.example."), host_of("a b")
    ('localhost', '::1', 'a.example', '')
    """
    try:
        name = urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
    name = name.removesuffix(".")
    return name if name.isascii() and not any(each.isspace() for each in name) else ""


def is_loopback_name(host: str) -> bool:
    """Whether only this machine can be meant: no name server is asked for these.

    >>> [is_loopback_name(each) for each in ("localhost", "a.localhost", "127.0.0.9", "::1")]
    [True, True, True, True]
    >>> is_loopback_name("localhost.evil.example"), is_loopback_name("10.0.0.1")
    (False, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_ip(host) and ipaddress.ip_address(host).is_loopback


class HostCheck:
    """By which names the service may be called. `*.example` allows every name below it."""

    def __init__(self, settings: ServiceSettings) -> None:
        names = settings.host_names
        self._is_any = ANY_HOST in names or (bool(settings.token_need) and not names)
        own = host_of(urlsplit(settings.public_url).netloc)
        self._names = {name for name in (*names, own) if name}
        self._suffixes = tuple(name.removeprefix("*") for name in names if name.startswith("*."))

    def allows(self, host: str) -> bool:
        return (
            self._is_any
            or is_loopback_name(host)
            or host in self._names
            or host.endswith(self._suffixes or ("\0",))
        )


class HostGuard:
    """Refuses requests that call the service by a name that is not its own (421)."""

    def __init__(self, app: ASGIApp, check: HostCheck, metrics: ServiceMetrics) -> None:
        self._app = app
        self._check = check
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBED_PATHS:
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            # A client that names no host is no browser.
            if given and not (len(given) == 1 and self._check.allows(host_of(given[0]))):
                self._metrics.denied.labels("host").inc()
                answer = respond_in_shape_of(scope["path"], wrong_host(given[0]))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def wrong_host(given: str) -> Problem:
    return Problem(
        421,
        "not a name of this service",
        f"the request is for host {given[:100]!r}; a service without tokens answers to loopback "
        "names and to those of the setting allowed_hosts",
        rule="host",
    )


def check_change(request: Request, settings: ServiceSettings, *, takes_json: bool) -> None:
    """Raise Problem for a changing request that another page may have made a browser send."""
    origin = request.headers.get("origin")
    if origin is not None and not is_own_page(origin, request, settings):
        raise Problem(
            403,
            "not allowed",
            f"a page of {origin[:100]!r} made this request; only pages of this service may change "
            "something (its address is the setting external_url)",
            rule="origin",
        )
    if takes_json and has_body(request) and not is_json(request.headers.get("content-type", "")):
        given = request.headers.get("content-type", "")[:100]
        raise Problem(
            415,
            "unsupported type",
            f"Content-Type is {given!r}; send -H 'Content-Type: application/json'",
            rule="content_type",
        )


def is_own_page(origin: str, request: Request, settings: ServiceSettings) -> bool:
    """Whether the page came from where the request goes.

    The scheme is not compared: behind a proxy that speaks TLS, pages have `https` and the requests
    that arrive here do not.
    """
    try:
        page = urlsplit(origin).netloc.lower() if "://" in origin else ""
    except ValueError:  # brackets that do not close, and the like: no browser sends that
        return False
    own = {request.headers.get("host", "").lower(), urlsplit(settings.public_url).netloc.lower()}
    return bool(page) and page in own


def has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or (
        request.headers.get("content-length", "0").strip() not in {"", "0"}
    )


def is_json(content_type: str) -> bool:
    """Whether a body of this type is JSON.

    >>> is_json("application/json; charset=utf-8"), is_json("text/plain"), is_json("a/b+json")
    (True, False, True)
    """
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")
