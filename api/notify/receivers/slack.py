"""Slack's incoming webhooks. Their address is the secret."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import orjson

from alerts.rulebook.notices import Notice
from api.notify.http import Outcome, Verdict, post
from api.notify.message import slack_message
from api.notify.receivers.webhook import IDEMPOTENCY_HEADER
from api.notify.settings import ReceiverTable, secret_of
from collector.contract.errors import SettingsError


class SlackReceiver:
    """Posts a message to a channel. Slack does not know repetitions: one may be shown twice."""

    def __init__(
        self,
        table: ReceiverTable,
        client: httpx.AsyncClient,
        external_url: str,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._client = client
        self._external_url = external_url
        self._clock = clock

    async def send(self, notice: Notice) -> Outcome:
        """Try once."""
        try:
            url = secret_of(self._table, "url", f"receiver {self._table.name}")
        except SettingsError as error:
            return Outcome(verdict=Verdict.RETRY, detail=str(error))
        return await post(
            self._client,
            url,
            orjson.dumps(slack_message(notice, self._external_url)),
            {IDEMPOTENCY_HEADER: notice.id},
            timeout_s=self._table.timeout_s,
            now_s=self._clock(),
        )
