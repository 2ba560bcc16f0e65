"""`POST /otlp/v1/metrics`: OTLP/HTTP, as switches and OpenTelemetry collectors push.

| answer | when |
|---|---|
| 200 | everything is durable, or all that was valid: then `partial_success` names what was not |
| 400 | the body is no request; do not retry |
| 413 | over a size limit; do not retry |
| 415 | unknown Content-Type or Content-Encoding |
| 503, Retry-After | the store is busy or unavailable; retry the whole request later |

Answers have the request's own encoding, protobuf or JSON; errors are a `google.rpc.Status`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from api.base.errors import Problem
from api.data.ingest.ingest import OTLP
from api.data.ingest.otlp import OtlpRequest, parse_json, parse_protobuf, unpack_gzip
from api.data.store.blocks import encode_length
from api.http.boundary import problem_of, retry_headers
from api.http.context import Parts
from api.http.routes.shared.answers import JSON
from api.http.routes.shared.bodies import read_body, sender_of
from collector.contract.errors import FabricscopeError

router = APIRouter(tags=["ingest"])

OTLP_PATH: Final = "/otlp/v1/metrics"
PROTOBUF: Final = "application/x-protobuf"
PARSERS: Final[dict[str, Callable[[bytes], Any]]] = {PROTOBUF: parse_protobuf, JSON: parse_json}

STATUS_CODES: Final = {400: 3, 413: 8, 415: 12, 503: 14}
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
            body = await read_body(request, parts.ingest, held)
            unpacked = parse if encoding != "gzip" else lambda data: parse(unpack_gzip(data))
            written = await parts.ingest.otlp(body, unpacked, sender_of(request))
    except FabricscopeError as error:
        problem = problem_of(error)
        refused = {f"status_{problem.status}": 1}
        parts.metrics.refuse(OTLP, refused)
        parts.ingest.note_refused(OTLP, refused, problem.detail, sender_of(request))
        return refusal(problem.status, f"{problem.title}: {problem.detail}", media_type)
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


def refusal(status: int, message: str, media_type: str) -> Response:
    """A google.rpc.Status: code = 1, message = 2."""
    code = STATUS_CODES.get(status, UNKNOWN)
    headers = retry_headers(status)
    if media_type == JSON:
        content = msgspec.json.encode({"code": code, "message": message})
        return Response(content, status_code=status, media_type=JSON, headers=headers)
    text = message.encode()
    content = bytes([0x08, code, 0x12]) + encode_length(len(text)) + text
    return Response(content, status_code=status, media_type=PROTOBUF, headers=headers)
