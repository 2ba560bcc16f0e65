"""`POST /v1/pagerduty/{receiver}`: what people do at PagerDuty, by its webhooks (version 3)."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from api.base.case_limits import PAGERDUTY_BODY_BYTES_MAX
from api.data.inventory.health import unix_ns
from api.http.context import Parts
from api.http.routes.shared.answers import answer, documented
from api.http.routes.shared.signed import DeedOut, receive_short, secret_for, wrong_signature
from api.oncall.notify.pagerduty_events import SIGNATURE_HEADER, is_signed
from api.oncall.notify.receivers.pagerduty import PagerDutyTable

router = APIRouter(tags=["alerts"])


@router.post(
    "/v1/pagerduty/{receiver}",
    summary="Take an event of PagerDuty's",
    **documented(DeedOut, "What became of it; PagerDuty need not send it again."),
)
async def take_event(receiver: str, request: Request, parts: Parts) -> Response:
    """No token: PagerDuty signs the body with the secret that the receiver has in the settings."""
    secret = await asyncio.to_thread(secret_for, parts, receiver, PagerDutyTable, "webhook_secret")
    body = await receive_short(request, parts, "PAGERDUTY_BODY_BYTES_MAX", PAGERDUTY_BODY_BYTES_MAX)
    if not is_signed(body, request.headers.get(SIGNATURE_HEADER, ""), secret):
        raise wrong_signature(parts, SIGNATURE_HEADER, receiver)
    take = parts.notifying.pagerduty_events.take
    result, dropped = await asyncio.to_thread(take, body, receiver, unix_ns(parts.now()))
    parts.metrics.pagerduty_events.labels(receiver, result).inc()
    parts.cases.count_dropped(dropped)
    return answer(DeedOut(result=result))
