"""Answers of any size: the form that a client asks for, and their pieces."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Iterator


class Format(enum.StrEnum):
    """How the answer is written."""

    JSON = "json"
    NDJSON = "ndjson"
    ARROW = "arrow"


MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.NDJSON: "application/x-ndjson",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}


def negotiate(accept: str) -> Format:
    """The format that the Accept header asks for; JSON if it asks for none of ours."""
    wanted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    for chosen in (Format.ARROW, Format.NDJSON):
        if MEDIA_TYPES[chosen] in wanted:
            return chosen
    return Format.JSON


async def stream(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each made in a worker thread while the event loop goes on."""
    while True:
        piece = await asyncio.to_thread(next, pieces, None)
        if piece is None:
            return
        yield piece
