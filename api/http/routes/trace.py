"""`GET /v1/jobs/{job}/trace`: a job's stretch of time as a file that Perfetto opens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from alerts.judge.incident import Incident
from api.base.errors import Problem
from api.base.limits import PAGE_MAX
from api.base.packing import takes_gzip
from api.base.trace_limits import (
    TRACE_MAKE_SECONDS_MAX,
    TRACE_SECONDS_MAX,
    TRACE_SEND_SECONDS_MAX,
    TRACES_MAX,
)
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON
from api.http.routes.shared.exports import stream
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.parameters import From, To, span_of
from api.http.turns import refusals_counted
from api.jobs.trace.read import read_story
from api.jobs.trace.stream import packed
from api.jobs.trace.tell import write_story
from collector.contract.units import NS, NS_PER_MS

router = APIRouter(tags=["jobs"])
log = logging.getLogger(__name__)

TRACE = "trace"
NAME_CHARS_MAX = 80
"""Of a job in the file's name."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Google's Trace Event Format. `fabricscope` stands last: a file without it was "
    "cut off on the way.",
    "required": ["displayTimeUnit", "traceEvents", "fabricscope"],
    "properties": {
        "displayTimeUnit": {"type": "string"},
        "traceEvents": {"type": "array", "items": {"type": "object"}},
        "fabricscope": {
            "type": "object",
            "description": "Whose trace it is, unix nanoseconds of its beginning and end, how far "
            "clocks may be apart, what was left out by which bound; and, if `is_complete` is "
            "false, what ended it and how many microseconds after its beginning.",
        },
    },
}


class HeldResponse(StreamingResponse):
    """A stream that holds something until it is over, however it ends."""

    def __init__(
        self, content: AsyncIterator[bytes], held: contextlib.ExitStack, headers: dict[str, str]
    ) -> None:
        super().__init__(content, media_type=JSON, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that takes too long loses the connection."""
        with self._held:
            try:
                async with asyncio.timeout(TRACE_SEND_SECONDS_MAX):
                    await super().__call__(scope, receive, send)
            except TimeoutError:
                log.warning(
                    "%s: not taken within TRACE_SEND_SECONDS_MAX = %d s",
                    scope["path"][:NAME_CHARS_MAX],
                    TRACE_SEND_SECONDS_MAX,
                )


@router.get(
    "/v1/jobs/{job}/trace",
    summary="A job's time as a trace for Perfetto",
    response_class=Response,
    responses={
        200: {
            "description": "Open the file in ui.perfetto.dev or chrome://tracing.",
            "content": {JSON: {"schema": SCHEMA}},
        },
        422: {"description": "Too long, or too many records; the answer names how much would fit."},
        503: {"description": "Too many traces are being made; try again."},
    },
)
async def trace(
    job: FoundJob, request: Request, parts: Parts, from_: From = None, to: To = None
) -> Response:
    """Steps, phases and collectives of every rank (waiting and transfer), incidents, counters.

    All times are on one clock. Arrows lead from the culprit to the ranks that wait for it. The
    answer is streamed, and packed with gzip for clients that accept that.
    """
    span = span_of(parts, job, from_, to)
    with refusals_counted(parts.metrics, TRACE):
        refuse_long(*span)
        with contextlib.ExitStack() as held:
            held.enter_context(parts.queues.traces.hold("TRACES_MAX", TRACES_MAX))
            document = await asyncio.to_thread(make_trace, parts, job.job, span)
            kept = held.pop_all()
    headers = {
        "Vary": "Accept-Encoding",
        "Content-Disposition": f'attachment; filename="{file_name(job.job)}"',
    }
    if takes_gzip(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        document = packed(document)
    return HeldResponse(stream(document), kept, headers)


def refuse_long(from_ns: int, to_ns: int) -> None:
    """A Problem if the stretch of time is empty, or longer than a trace shows."""
    seconds = (to_ns - from_ns) / NS
    if seconds > TRACE_SECONDS_MAX:
        why = f"{seconds:.0f} s, over TRACE_SECONDS_MAX = {TRACE_SECONDS_MAX}"
        raise Problem(422, "too long", why, rule="TRACE_SECONDS_MAX")
    if from_ns == to_ns:
        raise Problem(400, "empty range", f"from and to are both {from_ns // NS_PER_MS} ms")


def make_trace(parts: Context, job: str, span: tuple[int, int]) -> Iterator[bytes]:
    """The trace; refuses at once what must be refused, reads the rest while sending."""
    story = read_story(
        parts.store, parts.inventory, parts.topologies.at, incidents_of(parts, job, span), job, span
    )
    return write_story(parts.store, story, seconds_max=TRACE_MAKE_SECONDS_MAX)


def incidents_of(parts: Context, job: str, span: tuple[int, int]) -> list[Incident]:
    """The job's incidents that were seen after the trace's beginning; of too many the newest."""
    since = dt.datetime.fromtimestamp(span[0] / NS, tz=dt.UTC)
    return parts.incidents.list(job=job, since=since, limit=PAGE_MAX)


def file_name(job: str) -> str:
    """The file name for browsers; a job's name may be any text.

    >>> file_name('../a "b"')
    '..-a-b.trace.json'
    """
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", job).strip("-")[:NAME_CHARS_MAX]
    return f"{words or 'job'}.trace.json"
