"""PagerDuty's Events API, version 2."""

from __future__ import annotations

from alerts.rulebook.notices import Notice
from api.oncall.notify.message import pagerduty_event
from api.oncall.notify.posting import PostingReceiver

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
"""Where events go, unless `url` is set (the EU's service region has its own)."""


class PagerDutyReceiver(PostingReceiver):
    """Triggers and resolves. A repetition changes nothing there: its dedup_key is the group's."""

    name = "pagerduty"
    needs = "key"
    default_url = EVENTS_URL

    def body(self, notice: Notice, key: str) -> object:
        means = self._means
        return pagerduty_event(notice, key, means.external_url, means.page_of(notice))


RECEIVER = PagerDutyReceiver
