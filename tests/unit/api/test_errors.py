"""Every error has the same response shape, also an unexpected exception."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from api.base.errors import Problem
from api.data.ingest.commit import Overloaded
from api.data.store.errors import StoreBusy
from api.http.boundary import Boundary, problem_of, respond, respond_in_shape_of
from api.promql.errors import ErrorKind, QueryError
from collector.contract.errors import (
    IdentityError,
    InventoryError,
    StoreError,
    WireError,
    WireTooLarge,
    WireVersionError,
)

SECRET = "password=hunter2"  # noqa: S105


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Problem(418, "teapot", "short and stout"), 418),
        (WireTooLarge("x"), 413),
        (WireVersionError("x"), 400),
        (WireError("x"), 400),
        (IdentityError("x"), 400),
        (Overloaded("x"), 503),
        (StoreBusy("x"), 503),
        (StoreError("x"), 503),
        (InventoryError("x"), 503),
        (ValueError(SECRET), 500),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int) -> None:
    answer = respond(problem_of(error))
    body = json.loads(bytes(answer.body))
    assert answer.status_code == body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert ("retry-after" in answer.headers) == (status == 503)
    assert SECRET.encode() not in bytes(answer.body)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        *(
            (QueryError(kind, "x"), status, kind)
            for kind, status in (
                (ErrorKind.BAD_DATA, 400),
                (ErrorKind.EXECUTION, 422),
                (ErrorKind.CANCELED, 499),
                (ErrorKind.TIMEOUT, 503),
                (ErrorKind.INTERNAL, 500),
                (ErrorKind.UNAVAILABLE, 503),
                (ErrorKind.NOT_FOUND, 404),
            )
        ),
        (Problem(400, "not a selector", "x"), 400, "bad_data"),
        (Problem(413, "too large", "x"), 413, "bad_data"),
        (Problem(422, "too much", "x"), 422, "execution"),
        (StoreBusy("x"), 503, "unavailable"),
        (StoreError("x"), 503, "unavailable"),
        (ValueError(SECRET), 500, "internal"),
    ],
)
def test_prometheus_paths_have_prometheus_errors(error: Exception, status: int, kind: str) -> None:
    answer = respond_in_shape_of("/api/v1/query", error)
    body = json.loads(bytes(answer.body))
    assert set(body) == {"status", "errorType", "error"}
    assert (answer.status_code, body["status"], body["errorType"]) == (status, "error", kind)
    assert body["error"]
    assert ("retry-after" in answer.headers) == (kind == "unavailable")
    assert SECRET.encode() not in bytes(answer.body)
    for path in ("/v1/samples", "/api/v1/write"):
        other = respond_in_shape_of(path, error)
        assert other.headers["content-type"] == "application/problem+json"
        assert other.status_code == status


def call(app: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - an ASGI application
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - a message of ASGI
        sent.append(dict(message))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(Boundary(app)(scope, receive, send))
    return sent


async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise KeyError(SECRET)


async def broken_halfway(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise KeyError(SECRET)


def test_a_bug_becomes_an_answer_and_a_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    start, body = call(broken)
    assert start["status"] == 500
    problem = json.loads(body["body"])
    assert problem["detail"] == "KeyError; the trace is in the service's log"
    assert "Traceback" in caplog.text


def test_a_bug_after_the_answer_began_cannot_be_answered_again() -> None:
    with pytest.raises(KeyError):
        call(broken_halfway)
