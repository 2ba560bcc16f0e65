"""The errors in the interface's document: which statuses an operation may answer with, and how.

A route names only what is its own (409, 304). What many share follows from what an operation has:
a token, parameters, names in its path, a body. `tests/conformance/test_http_random.py` sends
strangers' requests to every operation and fails on a status that is not in the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.base.errors import ProblemBody
from api.http.boundary import (
    DOOR_STATUSES,
    OTLP_PATH,
    PROBLEM_TYPE,
    PROTOBUF,
    REMOTE_WRITE_PATH,
    PrometheusError,
    speaks_prometheus,
)
from api.http.browsers import PROBED_PATHS
from api.http.routes.shared.answers import JSON, inline_schema
from api.http.tokens.scopes import SCOPES

DESCRIPTIONS: Final[Mapping[int, str]] = {
    308: "The job turned out to be another one: `Location` leads there.",
    400: "Not a valid request: a parameter or the body cannot be read.",
    401: "No token, or none that is valid.",
    403: "The token's scope does not suffice, or another page made a browser send this.",
    404: "There is nothing by this name.",
    408: "The body did not arrive in time (BODY_SECONDS).",
    413: "The body, or what it unpacks to, is too large.",
    415: "The body's Content-Type or Content-Encoding is none that is read here.",
    421: "The request names a host that is not this service's (setting `allowed_hosts`).",
    422: "A parameter or the body is outside of its bounds.",
    429: "The token's rate is used up; `Retry-After` says when to come again.",
    503: "Busy, or the store cannot be reached; `Retry-After` says when to come again.",
}
"""What a status means, where the route does not say it better."""

FINDS_NAMES: Final = frozenset(
    {
        "/v1/costs",
        "/v1/paths",
        "/v1/topology",
        "/v1/links",
        "/v1/links/shares",
        "/v1/explain",
        "/v1/fabric/state",
        "/v1/what-if",
    }
)
"""Paths whose parameters name things; a name in the path itself is seen there."""

TEXTS: Final[Mapping[str, str]] = {REMOTE_WRITE_PATH: "Text", OTLP_PATH: "Otlp"}
"""Paths whose senders expect a shape of their own."""

CONTENTS: Final[Mapping[str, dict[str, Any]]] = {
    "Problem": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    "Prometheus": {JSON: {"schema": {"$ref": "#/components/schemas/PrometheusError"}}},
    "Text": {"text/plain": {"schema": {"type": "string"}}},
    "Otlp": {
        PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
        JSON: {
            "schema": {
                "type": "object",
                "description": "google.rpc.Status",
                "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
            }
        },
    },
}
"""Bodies of errors by the name of their shape."""

FASTAPIS_OWN: Final = ("HTTPValidationError", "ValidationError")
"""Shapes of FastAPI's answer to wrong parameters, which `api.http.boundary` replaces."""


def show_refusals(document: dict[str, Any]) -> dict[str, Any]:
    """Every operation with the errors that it may answer with, each in its shape."""
    shared: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            own = {
                status: shown
                for status, shown in operation["responses"].items()
                if not is_fastapis(shown)
            }
            for status, shown in own.items():
                if is_refusal(int(status)):
                    shown["content"] = content_of(path, int(status))
            for status in refusals_of(f"{method.upper()} {path}", operation):
                name = f"{shape_of(path, status)}{status}"
                content = content_of(path, status)
                shared[name] = {"description": DESCRIPTIONS[status], "content": content}
                own.setdefault(str(status), {"$ref": f"#/components/responses/{name}"})
            operation["responses"] = dict(sorted(own.items()))
    components = document["components"]
    components["responses"] = dict(sorted(shared.items()))
    for name in FASTAPIS_OWN:
        components["schemas"].pop(name, None)
    components["schemas"] |= {
        "Problem": inline_schema(ProblemBody),
        "PrometheusError": inline_schema(PrometheusError),
    }
    return document


def is_refusal(status: int) -> bool:
    """Whether it has an error as its body: neither success nor "not modified"."""
    return status >= 300 and status != 304  # noqa: PLR2004 - HTTP's own numbers


def is_fastapis(response: Mapping[str, Any]) -> bool:
    schema = response.get("content", {}).get(JSON, {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith(FASTAPIS_OWN)


def refusals_of(line: str, operation: Mapping[str, Any]) -> set[int]:
    """The statuses that this operation shares with others."""
    method, path = line.split(" ")
    if path in PROBED_PATHS:
        return {503} if path == "/readyz" else set()
    asked = {each["in"] for each in operation.get("parameters", ())}
    takes_body = method in {"POST", "PUT", "PATCH"}
    found = {421, 503}
    found |= {401, 403, 429} if line in SCOPES else set()
    found |= {400, 422} if asked or takes_body else set()
    found |= {404} if "path" in asked or path in FINDS_NAMES else set()
    found |= {308} if path.startswith("/v1/jobs/{job}") else set()
    found |= {408, 413} if takes_body else set()
    # A deletion takes no body; one that has one must at least say that it is JSON.
    found |= {415} if takes_body or method == "DELETE" else set()
    return found


def shape_of(path: str, status: int) -> str:
    """The name of the shape in which this path gives this error."""
    if status not in DOOR_STATUSES:
        if path in TEXTS:
            return TEXTS[path]
        if speaks_prometheus(path):
            return "Prometheus"
    return "Problem"


def content_of(path: str, status: int) -> dict[str, Any]:
    """The body of an error of this path."""
    return CONTENTS[shape_of(path, status)]
