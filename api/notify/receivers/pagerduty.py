"""PagerDuty's Events API, version 2."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import orjson

from alerts.rulebook.notices import Notice
from api.notify.http import Outcome, Verdict, post
from api.notify.message import pagerduty_event
from api.notify.receivers.webhook import IDEMPOTENCY_HEADER
from api.notify.settings import ReceiverTable, secret_of
from collector.contract.errors import SettingsError

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
"""Where events go, unless `url` says otherwise (the EU's service region has its own)."""


class PagerDutyReceiver:
    """Triggers and resolves. A repetition changes nothing there: its dedup_key is the group's."""

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
        where = f"receiver {self._table.name}"
        try:
            url = secret_of(self._table, "url", where) or EVENTS_URL
            key = secret_of(self._table, "key", where)
        except SettingsError as error:
            return Outcome(verdict=Verdict.RETRY, detail=str(error))
        return await post(
            self._client,
            url,
            orjson.dumps(pagerduty_event(notice, key, self._external_url)),
            {IDEMPOTENCY_HEADER: notice.id},
            timeout_s=self._table.timeout_s,
            now_s=self._clock(),
            secrets=[key],
        )
