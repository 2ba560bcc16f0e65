"""`POST /otlp/v1/metrics`: OTLP/HTTP, as switches and OpenTelemetry collectors push.

| answer | when |
|---|---|
| 200 | everything is durable, or all that was valid: then `partial_success` names what was not |
| 400 | the body is no request; do not retry |
| 413 | over a size limit; do not retry |
| 415 | unknown Content-Type or Content-Encoding |
| 429, Retry-After | over a budget of the sender, which the message names; retry the whole request |
| 503, Retry-After | the store is busy or unavailable; retry the whole request later |

Answers have the request's own encoding, protobuf or JSON; errors are a `google.rpc.Status`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from api.base.errors import Problem
from api.data.ingest.budgets import Over
from api.data.ingest.ingest import OTLP
from api.data.ingest.otlp import OtlpRequest, parse_json, parse_protobuf, unpack_gzip
from api.data.store.blocks import encode_length
from api.http.boundary import OTLP_PATH, PROTOBUF, problem_of, retry_headers
from api.http.context import Parts
from api.http.routes.shared.answers import JSON
from api.http.routes.shared.bodies import read_telemetry, sender_of
from collector.contract.errors import FabricscopeError

router = APIRouter(tags=["ingest"])

PARSERS: Final[dict[str, Callable[[bytes], Any]]] = {PROTOBUF: parse_protobuf, JSON: parse_json}

STATUS_CODES: Final = {400: 3, 413: 8, 415: 12, 429: 8, 503: 14}
"""google.rpc.Code: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE."""
UNKNOWN: Final = 2

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "requestBody": {
        "required": True,
        "description": "ExportMetricsServiceRequest; Content-Encoding gzip or none.",
        "content": {PROTOBUF: _BINARY, JSON: {"schema": {"type": "object"}}},
    }
}


@router.post(
    OTLP_PATH,
    response_class=Response,
    openapi_extra=_BODY,
    summary="OpenTelemetry metrics (OTLP/HTTP)",
)
async def otlp(request: Request, parts: Parts) -> Response:
    """Store what an OpenTelemetry collector, an SDK or a switch pushes."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    try:
        parse = PARSERS.get(media_type)
        if parse is None or encoding not in {"gzip", "identity", ""}:
            detail = f"send {PROTOBUF} or {JSON}, compressed with gzip or not at all"
            raise Problem(415, "unsupported", detail)
        with contextlib.ExitStack() as held:
            body, sender = await read_telemetry(request, parts, held, OTLP)
            unpacked = parse if encoding != "gzip" else lambda data: parse(unpack_gzip(data))
            written = await parts.ingest.otlp(body, unpacked, sender)
    except Over as over:
        return over_budget(over, media_type)
    except FabricscopeError as error:
        problem = problem_of(error)
        refused = {f"status_{problem.status}": 1}
        parts.metrics.refuse(OTLP, refused)
        parts.ingest.note_refused(OTLP, refused, problem.detail, sender_of(request))
        return refusal(problem.status, f"{problem.title}: {problem.detail}", media_type)
    if (too_much := parts.ingest.over(sender, written.request.refused)) is not None:
        # `partial_success` forbids a retry. What was stored may be sent again and changes nothing.
        return over_budget(too_much, media_type)
    return acknowledgement(written, media_type)


def acknowledgement(written: OtlpRequest, media_type: str) -> Response:
    answer = ExportMetricsServiceResponse()
    if refused := written.request.refused:
        rules = ", ".join(f"{count} by {rule}" for rule, count in refused.items())
        answer.partial_success.rejected_data_points = sum(refused.values())
        answer.partial_success.error_message = (
            f"refused: {rules}. First: {written.request.complaint}"
        )
    if media_type == JSON:
        return Response(json_format.MessageToJson(answer, indent=None), media_type=JSON)
    return Response(answer.SerializeToString(), media_type=PROTOBUF)


def over_budget(over: Over, media_type: str) -> Response:
    words = f"{over.body.title}: {over.body.detail}"
    return refusal(over.body.status, words, media_type, over.headers)


def refusal(
    status: int, message: str, media_type: str, again: Mapping[str, str] | None = None
) -> Response:
    """A google.rpc.Status: code = 1, message = 2. ``again``: when it may be retried."""
    code = STATUS_CODES.get(status, UNKNOWN)
    headers = {**retry_headers(status), **(again or {})}
    if media_type == JSON:
        content = msgspec.json.encode({"code": code, "message": message})
        return Response(content, status_code=status, media_type=JSON, headers=headers)
    text = message.encode()
    content = bytes([0x08, code, 0x12]) + encode_length(len(text)) + text
    return Response(content, status_code=status, media_type=PROTOBUF, headers=headers)
