"""`POST /v1/ingest`: native batches of our agents."""

from __future__ import annotations

import contextlib

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.errors import Problem
from api.data.ingest.ingest import NATIVE
from api.http.context import Parts
from api.http.routes.shared.bodies import over_counted, read_telemetry
from collector.contract.wire import CONTENT_TYPE

router = APIRouter(tags=["ingest"])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "One batch: msgpack inside a zstd frame (docs/wire-format.md).",
        "content": {CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/v1/ingest", openapi_extra=_BODY, summary="Store one batch of an agent")
async def ingest_batch(request: Request, parts: Parts) -> Response:
    """Answers 200 with a receipt when the batch is durable.

    ``refused`` in the receipt counts samples that broke a rule; they are not stored and must not
    be sent again. A batch that was stored before may be sent again and changes nothing. 429: the
    sender is over the budget that `rule` names; nothing of the batch is stored, send it again
    after `Retry-After` seconds.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != CONTENT_TYPE:
        why = f"Content-Type is {media_type!r}, not {CONTENT_TYPE}"
        raise Problem(415, "unsupported type", why)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding != "zstd":
        raise Problem(415, "unsupported encoding", f"Content-Encoding is {encoding!r}, not zstd")
    with contextlib.ExitStack() as held:
        body, sender = await read_telemetry(request, parts, held, NATIVE)
        with over_counted(parts, NATIVE, sender):
            receipt = await parts.ingest.native(body, sender)
    return Response(msgspec.json.encode(receipt), media_type="application/json")
