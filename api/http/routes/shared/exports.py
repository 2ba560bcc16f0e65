"""Answers of any size: the format that a client accepts, and the stream."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Iterator


class ExportFormat(enum.StrEnum):
    """How the answer is written."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


MEDIA_TYPES = {
    ExportFormat.JSON: "application/json",
    ExportFormat.NDJSON: "application/x-ndjson",
    ExportFormat.CSV: "text/csv",
    ExportFormat.ARROW: "application/vnd.apache.arrow.stream",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


def negotiate(accept: str) -> ExportFormat:
    """The format in the Accept header; JSON if it names none of ours."""
    wanted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    for chosen, media in reversed(MEDIA_TYPES.items()):
        if media in wanted:
            return chosen
    return ExportFormat.JSON


async def stream(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each made in a worker thread while the event loop goes on."""
    while True:
        piece = await asyncio.to_thread(next, pieces, None)
        if piece is None:
            return
        yield piece
