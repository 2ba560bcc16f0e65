"""PagerDuty's Events API, version 2."""

from __future__ import annotations

from alerts.rulebook.notices import Notice, Why
from api.oncall.notify.http import Delivery, Outcome
from api.oncall.notify.message import from_pagerduty, pagerduty_event, work_of
from api.oncall.notify.posting import PostingReceiver
from api.oncall.notify.table import ReceiverTable

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
"""Where events go, unless `url` is set (the EU's service region has its own)."""


class PagerDutyTable(ReceiverTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With the secret of PagerDuty's webhook, what people do there comes here, too."""

    webhook_secret: str = ""
    webhook_secret_file: str = ""


class PagerDutyReceiver(PostingReceiver):
    """Triggers and resolves. A repetition changes nothing there: its dedup_key is the group's."""

    name = "pagerduty"
    Table = PagerDutyTable
    needs = "key"
    default_url = EVENTS_URL

    async def send(self, notice: Notice) -> Outcome:
        """What people did there themselves is not sent back."""
        if notice.why is Why.WORK and from_pagerduty(work_of(notice), notice.receiver):
            return Outcome(delivery=Delivery.SENT, detail="not sent: it came from PagerDuty")
        return await super().send(notice)

    def body(self, notice: Notice, key: str) -> object:
        means = self._means
        return pagerduty_event(notice, key, means.external_url, means.page_of(notice))


RECEIVER = PagerDutyReceiver
