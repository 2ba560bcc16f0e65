"""`/healthz`, `/readyz`, `/metrics`: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from api.base.limits import RETRY_AFTER_SECONDS
from api.http.context import Parts
from api.http.peer_answers import complaints_of, page_of_all

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse, summary="Is the process alive?")
async def healthz() -> str:
    """Answers while the process can answer at all: restart it when this fails."""
    return "ok\n"


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    summary="Can it store and answer?",
    responses={
        503: {
            "description": "`not ready`, and a line for each thing that is wrong",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def readyz(parts: Parts) -> Response:
    """Asks store and inventory, and looks at commits, evaluation, background work and free space.

    Of a service of several processes it asks all of them, and names those that do not answer.

    Send no traffic here while this fails (503).
    """
    wrong = await parts.wellbeing.complaints(parts.supervisor.failing)
    wrong += await asyncio.to_thread(complaints_of, parts.duties.peers)
    if not wrong:
        return PlainTextResponse("ready\n")
    return PlainTextResponse(
        "\n".join(["not ready", *wrong]) + "\n",
        status_code=503,
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


@router.get("/metrics", response_class=PlainTextResponse, summary="The service's own metrics")
async def metrics(parts: Parts) -> Response:
    """The service's own metrics, in Prometheus' exposition format.

    Of a service of several processes: those of all, each series with its process' name.
    """
    page = generate_latest(parts.metrics.registry)
    if parts.duties.name:
        page = await asyncio.to_thread(page_of_all, parts.duties, page)
    return Response(page, media_type=CONTENT_TYPE_LATEST)
