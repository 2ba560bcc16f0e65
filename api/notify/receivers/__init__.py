"""Those who are told. Each knows how to post one notice, and says what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import httpx

from alerts.rulebook.notices import Notice
from api.notify.http import Outcome
from api.notify.receivers.apprise import AppriseReceiver
from api.notify.receivers.pagerduty import PagerDutyReceiver
from api.notify.receivers.slack import SlackReceiver
from api.notify.receivers.webhook import WebhookReceiver
from api.notify.settings import ReceiverTable


class Receiver(Protocol):
    """Somebody who is told."""

    async def send(self, notice: Notice) -> Outcome:
        """Try once. It returns within the receiver's time-out and raises nothing."""
        ...


def make_receiver(
    table: ReceiverTable,
    client: httpx.AsyncClient,
    external_url: str,
    clock: Callable[[], float],
) -> Receiver:
    """The receiver that a table of the file describes. ``clock``: unix seconds."""
    match table.type:
        case "slack":
            return SlackReceiver(table, client, external_url, clock)
        case "pagerduty":
            return PagerDutyReceiver(table, client, external_url, clock)
        case "apprise":
            return AppriseReceiver(table, external_url)
    return WebhookReceiver(table, client, external_url, clock)
