"""What all receivers that take HTTP posts have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from alerts.rulebook.notices import Notice
from api.oncall.notify.http import Delivery, Outcome, post
from api.oncall.notify.receivers import Receiver
from api.oncall.notify.table import secret_of
from collector.contract.errors import SettingsError

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""The notice's id: the same however often it is tried."""


class PostingReceiver(Receiver):
    """Posts JSON to `url`."""

    default_url = ""
    """Where to, if the table has no `url`."""

    @classmethod
    def takes(cls, address: str) -> bool:
        try:
            parts = urlsplit(address)
            _ = parts.port
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and address.isprintable()

    async def send(self, notice: Notice) -> Outcome:
        """Secrets are read each time: a repaired file helps at once."""
        where = f"receiver {self._table.name}"
        try:
            url = secret_of(self._table, "url", where) or self.default_url
            key = secret_of(self._table, "key", where)
        except SettingsError as error:
            return Outcome(delivery=Delivery.RETRY, detail=str(error))
        return await post(
            self._means.client,
            url,
            orjson.dumps(self.body(notice, key)),
            {IDEMPOTENCY_HEADER: notice.id, **self.headers(key)},
            timeout_s=self._table.timeout_s,
            now_s=self._means.clock(),
            secrets=[key],
        )

    @abc.abstractmethod
    def body(self, notice: Notice, key: str) -> object: ...

    def headers(self, key: str) -> Mapping[str, str]:
        del key
        return {}
