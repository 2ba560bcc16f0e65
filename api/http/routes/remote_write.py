"""`POST /api/v1/write`: Prometheus remote write, versions 1 and 2.

| answer | when |
|---|---|
| 204 | everything is durable |
| 400 | something is invalid; what was valid is durable; do not retry |
| 413 | over a size limit; do not retry |
| 415 | unknown Content-Type or Content-Encoding |
| 429 | over a budget of the sender, which the text names; retry the whole request later |
| 503 | the store is busy or unavailable; retry the whole request later |

With 429 for new series or hosts, known series of the request are stored: Prometheus drops what
gets 429 unless `retry_on_http_429` is set, and one exploding target must not cost it the others.

Out-of-order and repeated samples are accepted: a retry changes nothing, and of two values for
one moment the later one counts. Answers to version 2 carry the counts that its specification
demands; answers to version 1 must not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from api.base.errors import ProblemBody
from api.data.ingest.budgets import Over
from api.data.ingest.ingest import REMOTE_WRITE
from api.data.ingest.remote_write import V1_PROTO, V2_PROTO, RemoteRequest
from api.http.boundary import problem_of, retry_headers
from api.http.context import Parts
from api.http.routes.shared.bodies import read_telemetry, sender_of
from collector.contract.errors import FabricscopeError

router = APIRouter(tags=["ingest"])

NO_HEADERS: Mapping[str, str] = {}
MEDIA_TYPE = "application/x-protobuf"
_BODY = {
    "requestBody": {
        "required": True,
        "description": f"{V1_PROTO} or {V2_PROTO}, compressed as a snappy block.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/api/v1/write",
    status_code=204,
    response_class=PlainTextResponse,
    openapi_extra=_BODY,
    summary="Prometheus remote write",
)
async def remote_write(request: Request, parts: Parts) -> Response:
    """Store what a Prometheus, an agent or a collector sends (remote write 1.0 and 2.0)."""
    version = version_of(request.headers.get("content-type", ""))
    encoding = request.headers.get("content-encoding", "snappy").strip().lower()
    if version is None or encoding != "snappy":
        parts.metrics.refuse(REMOTE_WRITE, {"unsupported": 1})
        detail = f"send {MEDIA_TYPE};proto={V1_PROTO} or {V2_PROTO}, snappy-compressed"
        return answer(ProblemBody(status=415, title="unsupported", detail=detail), version)
    try:
        with contextlib.ExitStack() as held:
            body, sender = await read_telemetry(request, parts, held, REMOTE_WRITE)
            written = await parts.ingest.remote_write(body, version, sender)
    except Over as over:
        return answer(over.body, version, again=over.headers)
    except FabricscopeError as error:
        problem = problem_of(error)
        refused = {f"status_{problem.status}": 1}
        parts.metrics.refuse(REMOTE_WRITE, refused)
        parts.ingest.note_refused(REMOTE_WRITE, refused, problem.detail, sender_of(request))
        return answer(problem, version)
    if (too_much := parts.ingest.over(sender, written.refused)) is not None:
        return answer(too_much.body, version, written, again=too_much.headers)
    if written.refused:
        rules = ", ".join(f"{count} by {rule}" for rule, count in written.refused.items())
        detail = f"refused: {rules}. First: {written.complaint}"
        return answer(
            ProblemBody(status=400, title="some samples refused", detail=detail), version, written
        )
    return Response(status_code=204, headers=written_headers(version, written))


def version_of(content_type: str) -> int | None:
    """1 or 2 by the message that the Content-Type names; None for anything else."""
    media_type, *parameters = (part.strip() for part in content_type.split(";"))
    if media_type.lower() != MEDIA_TYPE:
        return None
    proto = V1_PROTO
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "proto":
            proto = value.strip().strip('"')
    return {V1_PROTO: 1, V2_PROTO: 2}.get(proto)


def written_headers(version: int | None, written: RemoteRequest | None) -> dict[str, str]:
    """The counts of stored samples, for version 2 alone."""
    if version != 2:  # noqa: PLR2004 - the version that asks for it
        return {}
    prefix = "X-Prometheus-Remote-Write"
    return {
        f"{prefix}-Samples-Written": str(len(written.write.samples) if written else 0),
        f"{prefix}-Histograms-Written": "0",
        f"{prefix}-Exemplars-Written": str(len(written.write.exemplars) if written else 0),
    }


def answer(
    problem: ProblemBody,
    version: int | None,
    written: RemoteRequest | None = None,
    again: Mapping[str, str] = NO_HEADERS,
) -> Response:
    """One line of plain text: it ends up in the sender's log. ``again``: when it may retry."""
    headers = {**retry_headers(problem.status), **again, **written_headers(version, written)}
    return PlainTextResponse(
        f"{problem.title}: {problem.detail}\n", status_code=problem.status, headers=headers
    )
