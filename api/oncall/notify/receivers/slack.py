"""Slack's incoming webhooks. Their address is the secret."""

from __future__ import annotations

from alerts.rulebook.notices import Notice
from api.oncall.notify.message import slack_message
from api.oncall.notify.posting import PostingReceiver


class SlackReceiver(PostingReceiver):
    """Posts a message to a channel. Slack does not recognise repetitions and may show one twice."""

    name = "slack"

    def body(self, notice: Notice, key: str) -> object:
        del key
        return slack_message(notice, self._means.external_url, self._means.page_of(notice))


RECEIVER = SlackReceiver
