"""`POST /v1/slack/{receiver}`: clicks on the buttons of our messages in Slack."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, Request, Response
from starlette.background import BackgroundTask

from api.base.case_limits import SLACK_BODY_BYTES_MAX
from api.base.errors import Problem
from api.data.inventory.health import unix_ns
from api.http.context import Context, Parts
from api.http.routes.shared.answers import answer, documented
from api.http.routes.shared.signed import DeedOut, receive_short, secret_for, wrong_signature
from api.oncall.notify.deeds import Result
from api.oncall.notify.http import Delivery
from api.oncall.notify.receivers.slack import SlackTable
from api.oncall.notify.slack_actions import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    SlackActions,
    Taken,
    is_signed,
)

router = APIRouter(tags=["alerts"])
log = logging.getLogger(__name__)


@router.post(
    "/v1/slack/{receiver}",
    summary="Take a click on a button of a Slack message",
    **documented(DeedOut, "What became of it; the message changes by itself."),
)
async def take_click(receiver: str, request: Request, parts: Parts) -> Response:
    """No token: Slack signs time and body with the secret that the receiver has in the settings."""
    secret = await asyncio.to_thread(secret_for, parts, receiver, SlackTable, "signing_secret")
    body = await receive_short(request, parts, "SLACK_BODY_BYTES_MAX", SLACK_BODY_BYTES_MAX)
    timestamp = request.headers.get(TIMESTAMP_HEADER, "")
    signature = request.headers.get(SIGNATURE_HEADER, "")
    if not is_signed(body, timestamp, signature, secret, parts.clock()):
        raise wrong_signature(parts, SIGNATURE_HEADER, receiver)
    actions = parts.notifying.slack_actions
    if actions is None:
        raise Problem(503, "no notifier", "this process has no receivers; ask another one")
    taken = await asyncio.to_thread(actions.take, body, receiver, unix_ns(parts.now()))
    parts.metrics.slack_actions.labels(receiver, taken.result).inc()
    parts.cases.count_dropped(taken.dropped)
    made = answer(DeedOut(result=taken.result))
    if taken.message:
        # After our answer: Slack waits three seconds for that, and its own may take longer.
        made.background = BackgroundTask(change_message, parts, actions, taken, receiver)
    return made


async def change_message(
    parts: Context, actions: SlackActions, taken: Taken, receiver: str
) -> None:
    """Tells Slack what its message says now; counts and logs what Slack did not take."""
    outcome = await actions.answer(taken, parts.notifying.tables[receiver])
    if outcome.delivery is not Delivery.SENT:
        parts.metrics.slack_actions.labels(receiver, Result.UNANSWERED).inc()
        log.warning(
            "receiver %s: a click was %s; Slack did not take the answer: %s",
            receiver,
            taken.result,
            outcome.detail,
        )
