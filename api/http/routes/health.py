"""`/healthz`, `/readyz`, `/metrics`: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from api.base.limits import RETRY_AFTER_SECONDS
from api.http.context import Parts

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

    Send no traffic here while this fails (503).
    """
    wrong = await parts.wellbeing.complaints(parts.supervisor.failing)
    if not wrong:
        return PlainTextResponse("ready\n")
    return PlainTextResponse(
        "\n".join(["not ready", *wrong]) + "\n",
        status_code=503,
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


@router.get("/metrics", response_class=PlainTextResponse, summary="The service's own metrics")
async def metrics(parts: Parts) -> Response:
    """The service's own metrics, in Prometheus' exposition format."""
    return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)
