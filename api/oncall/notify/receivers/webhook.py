"""A generic webhook: Alertmanager's body, with our fields beside it."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.rulebook.notices import Notice
from api.oncall.notify.message import webhook_body
from api.oncall.notify.posting import PostingReceiver


class WebhookReceiver(PostingReceiver):
    """For receivers of Alertmanager's webhooks; a `key` becomes a bearer token."""

    name = "webhook"

    def body(self, notice: Notice, key: str) -> object:
        del key
        return webhook_body(notice, self._means.external_url, self._means.page_of(notice))

    def headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}


RECEIVER = WebhookReceiver
