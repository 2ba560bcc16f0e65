"""Notices about the service itself, sent from memory while the inventory cannot keep them.

Notices are planned and kept in the inventory by the one process that leads. Without the inventory
no process leads, and a process that does not lead, but cannot store anything, is seen by no other.
Then each process sends alerts about itself, and no others, from here: with the same routes,
silences (as last known) and talks. When the inventory is back, open talks go to the notifier, so
that no page comes twice; what was delivered here is not delivered again from the outbox.

A restart during the outage forgets what was sent: a page may then come once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from alerts.rulebook import notices
from alerts.rulebook.notices import Fits, Notice, Scene, Silence, Talk
from api.base.limits import DIRECT_NOTICES_MAX
from api.base.metrics import ServiceMetrics
from api.oncall.evaluate.lead import Lead
from api.oncall.notify.http import Delivery
from api.oncall.notify.receivers import Receiver
from api.oncall.notify.settings import NotifySettings
from collector.contract.units import NS

OWN_SOURCE = "own;"
"""How the groups of rules begin that a process judges about itself (`api.oncall.rules.watch`)."""
DELIVERED_MAX = 1_000
"""Delivered notices whose ids are remembered: more than one outage makes."""
PAUSE_SECONDS = 5.0
"""After a receiver did not take a notice, unless it asks for another pause."""

log = logging.getLogger(__name__)


class Delivered:
    """Ids of notices that receivers took lately, whichever way they went."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, number: str) -> None:
        self._ids[number] = None
        while len(self._ids) > DELIVERED_MAX:
            self._ids.popitem(last=False)

    def __contains__(self, number: str) -> bool:
        return number in self._ids


class Direct:
    """Sends from memory. ``clock``: unix seconds. For one event loop."""

    def __init__(
        self,
        settings: NotifySettings,
        receivers: Mapping[str, Receiver],
        lead: Lead,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._receivers = receivers
        self._lead = lead
        self._metrics = metrics
        self._clock = clock
        self._talks: dict[str, Talk] = {}
        self._waiting: OrderedDict[str, Notice] = OrderedDict()
        """By the group of alerts: a newer notice takes the place of an older one."""
        self._held_until_s: dict[str, float] = {}
        self.delivered = Delivered()
        metrics.watch("fabric_service_direct_notices_waiting", lambda: float(len(self._waiting)))

    @property
    def is_needed(self) -> bool:
        """Whether no leader can send this process' alerts."""
        vitals = self._metrics.vitals
        if vitals.inventory.failing_s:
            return True
        return not self._lead.is_held() and bool(vitals.commit.failing_s or self._talks)

    # --- from and to the notifier ----------------------------------------------------------------

    def adopt(self, talks: Mapping[str, Talk], unsent: Sequence[Notice]) -> None:
        """Go on with what the notifier knew last, about this process."""
        for key, talk in talks.items():
            told = {name: source for name, source in talk.told.items() if is_own(source)}
            if told and key not in self._talks:
                self._talks[key] = msgspec.structs.replace(talk, told=told)
        for notice in unsent:
            if notice.id not in self.delivered:
                self._let_wait(notice)

    def hand_over(self, talks: Mapping[str, Talk]) -> dict[str, Talk]:
        """The talks that the inventory has, gone on with what was sent here."""
        merged = dict(talks)
        for key, talk in self._talks.items():
            kept = talks.get(key)
            others = {} if kept is None else kept.told
            told = {name: source for name, source in others.items() if not is_own(source)}
            merged[key] = msgspec.structs.replace(talk, told={**told, **talk.told})
        self._talks = {}
        return merged

    # --- planning and sending --------------------------------------------------------------------

    async def once(self, scene: Scene, silences: Sequence[Silence], fits: Fits) -> None:
        """Plan if that is needed; send what waits in any case."""
        if self.is_needed:
            now_ns = round(self._clock() * NS)
            made = notices.plan(
                self._settings.routes, scene, self._talks, now_ns, silences=silences, fits=fits
            )
            self._talks = made.talks
            for notice in made.notices:
                self._metrics.notices.labels(notice.receiver, "planned").inc()
                self._let_wait(notice)
        await asyncio.gather(*(self._send(notice) for notice in self._due()))

    def _let_wait(self, notice: Notice) -> None:
        self._waiting.pop(notice.group, None)
        self._waiting[notice.group] = notice
        while len(self._waiting) > DIRECT_NOTICES_MAX:
            _, dropped = self._waiting.popitem(last=False)
            self._metrics.direct_dropped.inc()
            log.error("notice %s to %s is dropped: too many wait", dropped.id, dropped.receiver)

    def _due(self) -> list[Notice]:
        now_s = self._clock()
        return [
            notice
            for notice in self._waiting.values()
            if now_s >= self._held_until_s.get(notice.receiver, 0.0)
        ]

    async def _send(self, notice: Notice) -> None:
        receiver = self._receivers.get(notice.receiver)
        if receiver is None:
            self._settle(notice)
            return
        outcome = await receiver.send(notice)
        self._metrics.notices.labels(notice.receiver, outcome.delivery.value).inc()
        if outcome.delivery is Delivery.RETRY:
            pause_s = outcome.retry_after_s or PAUSE_SECONDS
            self._held_until_s[notice.receiver] = self._clock() + pause_s
            log.warning("%s does not take notice %s: %s", receiver.name, notice.id, outcome.detail)
            return
        if outcome.delivery is Delivery.REFUSED:
            self._metrics.direct_dropped.inc()
            log.warning("%s refuses notice %s: %s", receiver.name, notice.id, outcome.detail)
        self._settle(notice)

    def _settle(self, notice: Notice) -> None:
        self.delivered.add(notice.id)
        if self._waiting.get(notice.group) is notice:  # no newer one came meanwhile
            del self._waiting[notice.group]


def is_own(source: str) -> bool:
    return source.startswith(OWN_SOURCE)
