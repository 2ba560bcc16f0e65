"""`POST /v1/pagerduty/{receiver}`: what people do at PagerDuty, by its webhooks (version 3)."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.case_limits import PAGERDUTY_BODY_BYTES_MAX
from api.base.errors import Problem
from api.data.inventory.health import unix_ns
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, documented
from api.http.routes.shared.bodies import receive
from api.http.tokens.model import DenialReason
from api.oncall.notify.pagerduty_events import SIGNATURE_HEADER, Result, is_signed
from api.oncall.notify.receivers.pagerduty import PagerDutyTable
from api.oncall.notify.table import secret_of
from collector.contract.errors import SettingsError

router = APIRouter(tags=["alerts"])


class TakenOut(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event."""

    result: Result


@router.post(
    "/v1/pagerduty/{receiver}",
    summary="Take an event of PagerDuty's",
    **documented(TakenOut, "What became of it; PagerDuty need not send it again."),
)
async def take_event(receiver: str, request: Request, parts: Parts) -> Response:
    """No token: PagerDuty signs the body with the secret that the receiver has in the settings."""
    secret = await asyncio.to_thread(secret_for, parts, receiver)
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal() or int(declared) > PAGERDUTY_BODY_BYTES_MAX:
        rule = "PAGERDUTY_BODY_BYTES_MAX"
        why = f"the request declares {declared or 'no'} bytes; {rule} is {PAGERDUTY_BODY_BYTES_MAX}"
        raise Problem(413, "too large", why, rule=rule)
    body = await receive(request, parts)
    if not is_signed(body, request.headers.get(SIGNATURE_HEADER, ""), secret):
        parts.metrics.denied.labels(DenialReason.SIGNATURE).inc()
        why = f"{SIGNATURE_HEADER} is not made with the secret of receiver {receiver!r}"
        raise Problem(401, "wrong signature", why, rule=DenialReason.SIGNATURE)
    take = parts.notifying.pagerduty_events.take
    result, dropped = await asyncio.to_thread(take, body, receiver, unix_ns(parts.now()))
    parts.metrics.pagerduty_events.labels(receiver, result).inc()
    parts.cases.count_dropped(dropped)
    return answer(TakenOut(result=result))


def secret_for(parts: Context, receiver: str) -> str:
    """Raises Problem where no such receiver takes events."""
    table = parts.notifying.tables.get(receiver)
    if isinstance(table, PagerDutyTable):
        try:
            secret = secret_of(table, "webhook_secret", f"receiver {receiver}")
        except SettingsError as error:
            raise Problem(503, "no secret", str(error)) from error
        if secret:
            return secret
    detail = f"no receiver {receiver[:80]!r} of type pagerduty has a webhook_secret_file"
    raise Problem(404, "not found", detail)
