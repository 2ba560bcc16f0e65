"""A generic webhook: Alertmanager's body, with our fields beside it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import orjson

from alerts.rulebook.notices import Notice
from api.notify.http import Outcome, Verdict, post
from api.notify.message import webhook_body
from api.notify.settings import ReceiverTable, secret_of
from collector.contract.errors import SettingsError

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""The notice's id: the same however often it is tried."""


class WebhookReceiver:
    """Posts to `url`; a `key` becomes a bearer token. ``clock``: unix seconds."""

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
        """Try once. Secrets are read anew: a file that was repaired helps at once."""
        where = f"receiver {self._table.name}"
        try:
            url = secret_of(self._table, "url", where)
            key = secret_of(self._table, "key", where)
        except SettingsError as error:
            return Outcome(verdict=Verdict.RETRY, detail=str(error))
        headers = {IDEMPOTENCY_HEADER: notice.id}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return await post(
            self._client,
            url,
            orjson.dumps(webhook_body(notice, self._external_url)),
            headers,
            timeout_s=self._table.timeout_s,
            now_s=self._clock(),
            secrets=[key],
        )
