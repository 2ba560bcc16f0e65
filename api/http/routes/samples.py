"""`GET /v1/samples`: the raw samples, as they were sent, for scripts and notebooks."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.base.limits import EXPORT_JSON_SAMPLES_MAX, SELECTORS_MAX
from api.data.export import (
    encode_arrow,
    encode_csv,
    encode_json,
    encode_ndjson,
    encode_parquet,
    plan_export,
)
from api.data.selectors import parse_selector
from api.http.context import Parts
from api.http.routes.shared.exports import MEDIA_TYPES, ExportFormat, negotiate, stream
from api.http.routes.shared.parameters import range_to_now

router = APIRouter(tags=["samples"])

ENCODERS = {
    ExportFormat.NDJSON: encode_ndjson,
    ExportFormat.CSV: encode_csv,
    ExportFormat.ARROW: encode_arrow,
    ExportFormat.PARQUET: encode_parquet,
}
"""Of answers that may have any size."""


@router.get(
    "/v1/samples",
    summary="Raw samples of the series that match",
    response_class=Response,
    responses={200: {"content": {media: {} for media in MEDIA_TYPES.values()}}},
)
async def samples(
    request: Request,
    parts: Parts,
    match: Annotated[
        list[str],
        Query(
            max_length=SELECTORS_MAX, description='A selector, as `fabric_port_state{host="a"}`.'
        ),
    ],
    from_: Annotated[
        str | None, Query(alias="from", description="RFC 3339 or unix seconds.")
    ] = None,
    to: Annotated[
        str | None, Query(description="RFC 3339 or unix seconds; now by default.")
    ] = None,
    format_: Annotated[ExportFormat | None, Query(alias="format")] = None,
) -> Response:
    """Series in the order of their ids, each with its samples in order of time.

    Times are unix milliseconds, both ends included. JSON is one document and bounded; NDJSON is
    one series a line, CSV one sample a line, Arrow one stream of record batches and Parquet one
    file, all of any size.
    """
    from_ms, to_ms = range_to_now(parts, from_, to)
    selectors = [parse_selector(text) for text in match]
    chosen = format_ or negotiate(request.headers.get("accept", ""))
    limit = EXPORT_JSON_SAMPLES_MAX if chosen is ExportFormat.JSON else None
    export = await asyncio.to_thread(plan_export, parts.store, selectors, from_ms, to_ms, limit)
    if chosen is ExportFormat.JSON:
        document = await asyncio.to_thread(encode_json, export.chunks(parts.store))
        return Response(document, media_type=MEDIA_TYPES[chosen])
    encode = ENCODERS[chosen]
    return StreamingResponse(
        stream(encode(export.chunks(parts.store))), media_type=MEDIA_TYPES[chosen]
    )
