"""Slack's incoming webhooks. Their address is the secret."""

from __future__ import annotations

from alerts.rulebook.notices import Notice, Why
from api.oncall.notify.http import Delivery, Outcome
from api.oncall.notify.message import slack_mark, slack_message, work_of
from api.oncall.notify.posting import PostingReceiver
from api.oncall.notify.table import ReceiverTable


class SlackTable(ReceiverTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With the signing secret of the Slack app, messages have buttons and clicks come here."""

    signing_secret: str = ""
    signing_secret_file: str = ""

    @property
    def takes_clicks(self) -> bool:
        return bool(self.signing_secret or self.signing_secret_file)


class SlackReceiver(PostingReceiver):
    """Posts a message to a channel. Slack does not recognise repetitions and may show one twice."""

    name = "slack"
    Table = SlackTable

    async def send(self, notice: Notice) -> Outcome:
        """What a click in this channel did is in its message already (`slack_actions`)."""
        if notice.why is Why.WORK and slack_mark(notice.receiver) in work_of(notice):
            return Outcome(delivery=Delivery.SENT, detail="not sent: it came from this channel")
        return await super().send(notice)

    def body(self, notice: Notice, key: str) -> object:
        del key
        means, table = self._means, self._table
        has_buttons = isinstance(table, SlackTable) and table.takes_clicks
        page = means.page_of(notice)
        return slack_message(notice, means.external_url, page, has_buttons=has_buttons)


RECEIVER = SlackReceiver
