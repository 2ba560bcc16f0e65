"""What all receivers that are posted to have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping

import httpx
import orjson

from alerts.rulebook.notices import Notice
from api.notify.http import Outcome, Verdict, post
from api.notify.settings import ReceiverTable, secret_of
from collector.contract.errors import SettingsError

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""The notice's id: the same however often it is tried."""


class PostingReceiver(abc.ABC):
    """Posts JSON to `url`. ``clock``: unix seconds."""

    default_url = ""
    """Where to, if the table has no `url`."""

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
            url = secret_of(self._table, "url", where) or self.default_url
            key = secret_of(self._table, "key", where)
        except SettingsError as error:
            return Outcome(verdict=Verdict.RETRY, detail=str(error))
        return await post(
            self._client,
            url,
            orjson.dumps(self.body(notice, key)),
            {IDEMPOTENCY_HEADER: notice.id, **self.headers(key)},
            timeout_s=self._table.timeout_s,
            now_s=self._clock(),
            secrets=[key],
        )

    @abc.abstractmethod
    def body(self, notice: Notice, key: str) -> object:
        """What is posted."""

    def headers(self, key: str) -> Mapping[str, str]:
        """Headers besides the notice's id."""
        del key
        return {}
