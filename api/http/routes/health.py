"""`/healthz`, `/readyz`, `/metrics`: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from api.http.context import Parts

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse, summary="Is the process alive?")
async def healthz() -> str:
    """Answers while the process can answer at all: restart it when this fails."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse, summary="Can it store and answer?")
async def readyz(parts: Parts) -> str:
    """Asks store and inventory: send no traffic here while this fails (503)."""
    await asyncio.to_thread(parts.store.ping)
    await asyncio.to_thread(parts.inventory.ping)
    return "ready\n"


@router.get("/metrics", response_class=PlainTextResponse, summary="The service's own metrics")
async def metrics(parts: Parts) -> Response:
    """The service's own metrics, in Prometheus' exposition format."""
    return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)
