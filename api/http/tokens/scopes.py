"""The scope that each path requires of a token: the one table. Pure.

A new route needs a line here; without one it refuses every request (and a test fails).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from api.data.inventory.token_model import Scope
from collector.contract.errors import SettingsError
from collector.contract.layers import unknown

INCLUDED: Final[Mapping[Scope, frozenset[Scope]]] = {
    Scope.INGEST: frozenset({Scope.INGEST}),
    Scope.READ: frozenset({Scope.READ}),
    # A client that changes something must see what it is.
    Scope.OPERATE: frozenset({Scope.OPERATE, Scope.READ}),
    Scope.ADMIN: frozenset(Scope),
}
"""Each scope and what it allows."""

SIGNED_PATHS: Final = frozenset({"/v1/pagerduty", "/v1/slack"})
"""PagerDuty and Slack sign what they send, and the routes check that."""

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/runbooks", "/", "/assets"}) | SIGNED_PATHS
"""Supervisors and load balancers have no token, nor has the browser in which an operator opens a
runbook or the built-in page; these reveal nothing of the cluster. What lies below a path is open
with it, but for the root."""

GET_POST: Final = ("GET", "POST")
ASKED_BOTH_WAYS: Final = (
    *("query", "query_range", "format_query", "parse_query", "query_exemplars"),
    *("labels", "series"),
)
SCOPES: Final[Mapping[str, Scope]] = {
    # Telemetry comes in.
    "POST /v1/ingest": Scope.INGEST,
    "POST /api/v1/write": Scope.INGEST,
    "POST /otlp/v1/metrics": Scope.INGEST,
    # Queries in Prometheus' format; its clients also use POST.
    **{f"{method} /api/v1/{path}": Scope.READ for path in ASKED_BOTH_WAYS for method in GET_POST},
    "GET /api/v1/label/{name}/values": Scope.READ,
    "GET /api/v1/metadata": Scope.READ,
    "GET /federate": Scope.READ,
    "GET /api/v1/status/buildinfo": Scope.READ,
    "GET /api/v1/status/runtimeinfo": Scope.READ,
    "GET /api/v1/status/flags": Scope.READ,
    "GET /api/v1/status/config": Scope.READ,
    "GET /api/v1/status/tsdb": Scope.READ,
    "GET /api/v1/alertmanagers": Scope.READ,
    "GET /api/v1/targets": Scope.READ,
    "GET /api/v1/targets/metadata": Scope.READ,
    "GET /api/v1/rules": Scope.READ,
    "GET /api/v1/alerts": Scope.READ,
    "GET /v1/rules/files": Scope.READ,
    # What exists, and how it fares.
    "GET /v1/hosts": Scope.READ,
    "GET /v1/switches": Scope.READ,
    "GET /v1/hosts/{host}": Scope.READ,
    "DELETE /v1/hosts/{host}": Scope.OPERATE,
    "GET /v1/ports": Scope.READ,
    "GET /v1/health": Scope.READ,
    "GET /v1/health/live": Scope.READ,
    "GET /v1/hosts/{host}/health": Scope.READ,
    "PUT /v1/hosts/{host}/hold": Scope.OPERATE,
    "DELETE /v1/hosts/{host}/hold": Scope.OPERATE,
    "GET /v1/holds": Scope.READ,
    "GET /v1/actions": Scope.READ,
    "GET /v1/actions/policy": Scope.READ,
    "GET /v1/actions/{action}": Scope.READ,
    "POST /v1/actions/{action}/approve": Scope.OPERATE,
    "POST /v1/actions/{action}/reject": Scope.OPERATE,
    "POST /v1/actions/{action}/undo": Scope.OPERATE,
    "POST /v1/actions/{action}/applied": Scope.OPERATE,
    "POST /v1/hosts/{host}/check": Scope.OPERATE,
    "GET /v1/topology": Scope.READ,
    "GET /v1/links": Scope.READ,
    "GET /v1/links/shares": Scope.READ,
    "GET /v1/paths": Scope.READ,
    "GET /v1/topology/mistakes": Scope.READ,
    "GET /v1/fabric/state": Scope.READ,
    # Schedulers ask.
    "POST /v1/placement": Scope.READ,
    # A question with a body: it changes nothing.
    "POST /v1/what-if": Scope.READ,
    "POST /v1/kubernetes/filter": Scope.READ,
    "POST /v1/kubernetes/prioritize": Scope.READ,
    "GET /v1/kubernetes/labels": Scope.READ,
    # Jobs.
    "POST /v1/jobs": Scope.OPERATE,
    "PATCH /v1/jobs/{job}": Scope.OPERATE,
    "GET /v1/jobs": Scope.READ,
    "GET /v1/jobs/{job}": Scope.READ,
    "GET /v1/jobs/{job}/ranks": Scope.READ,
    "GET /v1/jobs/{job}/collectives": Scope.READ,
    "GET /v1/jobs/{job}/steps": Scope.READ,
    "GET /v1/jobs/{job}/steps/compare": Scope.READ,
    "GET /v1/jobs/{job}/steps/differ": Scope.READ,
    "GET /v1/jobs/{job}/stages": Scope.READ,
    "GET /v1/jobs/{job}/timeline": Scope.READ,
    "GET /v1/jobs/{job}/operations": Scope.READ,
    "GET /v1/jobs/{job}/heat": Scope.READ,
    "GET /v1/jobs/{job}/heat/cell": Scope.READ,
    "GET /v1/jobs/{job}/matrix": Scope.READ,
    "GET /v1/jobs/{job}/trace": Scope.READ,
    "GET /v1/jobs/{job}/verdict": Scope.READ,
    # Findings and notifications.
    "GET /v1/verdicts": Scope.READ,
    "GET /v1/costs": Scope.READ,
    "GET /v1/incidents": Scope.READ,
    "GET /v1/incidents/{incident}": Scope.READ,
    "GET /v1/incidents/{incident}.md": Scope.READ,
    "POST /v1/incidents/{incident}/work": Scope.OPERATE,
    "GET /v1/incidents/{incident}/work": Scope.READ,
    "PUT /v1/incidents/{incident}/feedback": Scope.OPERATE,
    "GET /v1/incidents/{incident}/feedback": Scope.READ,
    "GET /v1/incidents/{incident}/case": Scope.READ,
    "GET /v1/feedback": Scope.READ,
    "GET /v1/explain": Scope.READ,
    "GET /v1/freshness": Scope.READ,
    "GET /v1/live": Scope.READ,
    "GET /v1/events": Scope.READ,
    "GET /v1/bursts": Scope.READ,
    # It makes an agent work.
    "POST /v1/agents/{agent}/capture": Scope.OPERATE,
    "GET /v1/agents/{agent}/captures": Scope.READ,
    # What runs on every host: it takes an admin to push, and one on call to stop it.
    "POST /v1/configurations": Scope.ADMIN,
    "GET /v1/configurations": Scope.READ,
    "GET /v1/configurations/{version}": Scope.READ,
    "GET /v1/configurations/{version}/document": Scope.INGEST,
    "GET /v1/agents/{agent}/probe-targets": Scope.INGEST,
    "GET /v1/agents/configurations": Scope.READ,
    "POST /v1/configurations/{version}/stop": Scope.OPERATE,
    "POST /v1/configurations/{version}/back": Scope.OPERATE,
    "POST /v1/configurations/{version}/resume": Scope.ADMIN,
    "GET /v1/audit": Scope.READ,
    "POST /v1/silences": Scope.OPERATE,
    "GET /v1/silences": Scope.READ,
    "GET /v1/silences/{silence}": Scope.READ,
    "DELETE /v1/silences/{silence}": Scope.OPERATE,
    "GET /v1/notices": Scope.READ,
    "GET /v1/samples": Scope.READ,
    # The service itself.
    "GET /v1/catalog": Scope.READ,
    "GET /v1/causes": Scope.READ,
    "GET /metrics": Scope.READ,
    "GET /v1/refused": Scope.READ,
    "GET /v1/page": Scope.READ,
    "GET /docs": Scope.READ,
    "GET /openapi.json": Scope.READ,
    "GET /v1/whoami": Scope.READ,
    "GET /v1/backup": Scope.ADMIN,
    "POST /v1/tokens": Scope.ADMIN,
    "GET /v1/tokens": Scope.ADMIN,
    "DELETE /v1/tokens/{token}": Scope.ADMIN,
}
"""Method and path of each route that is not open, and the scope that it asks for."""

PASSED: Final = frozenset(
    {
        "GET /v1/incidents/{incident}",
        "GET /v1/incidents/{incident}.md",
        "GET /v1/incidents/{incident}/work",
        "POST /v1/incidents/{incident}/work",
    }
)
"""What the link of a notice opens, of its own incident; of deeds it allows to acknowledge."""
PASSED_OF_ALL: Final = frozenset({"GET /v1/causes", "GET /v1/freshness", "GET /v1/whoami"})
"""What the page needs beside it, and what tells nothing of the cluster."""

TAKES_TEXT: Final = frozenset({"POST /v1/hosts/{host}/check"})
"""Routes that change something by another body than JSON; telemetry has formats of its own."""


def is_open(path: str) -> bool:
    """Whether a path is answered without a token.

    >>> is_open("/runbooks/incident"), is_open("/runbooksx"), is_open("/v1/hosts")
    (True, False, False)
    >>> is_open("/"), is_open("/metrics"), is_open("/assets/index-1a2b.js")
    (True, False, True)
    """
    return path in OPEN_PATHS or path.rpartition("/")[0] in OPEN_PATHS


def allowed_by(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Everything that these scopes allow together.

    >>> sorted(allowed_by([Scope.OPERATE]))
    [<Scope.OPERATE: 'operate'>, <Scope.READ: 'read'>]
    """
    return frozenset().union(*(INCLUDED[scope] for scope in scopes))


def parse_scopes(text: str) -> frozenset[Scope]:
    """The scopes of a list with commas; SettingsError names one that does not exist.

    >>> sorted(parse_scopes("read, ingest"))
    [<Scope.INGEST: 'ingest'>, <Scope.READ: 'read'>]
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in set(Scope):
            raise SettingsError(unknown("scope", word, list(Scope)))
    return frozenset(Scope(word) for word in words)
