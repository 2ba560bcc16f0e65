"""The notifier: takes alerts from the evaluators, plans notices, keeps and sends them.

One process plans and sends: the one with the lease of notices. Its state is in the inventory: a
process that takes over goes on where it stopped. Alerts of rule groups that other processes
evaluate it reads from the inventory. Until a rule group is evaluated, the notified state stands.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from alerts.rulebook import notices
from alerts.rulebook.model import ALERT_NAME, Alert, Group
from alerts.rulebook.notices import (
    GONE_SECONDS,
    Notice,
    Plan,
    Scene,
    Silence,
    Standing,
    Talk,
)
from api.base.limits import ALERTS_MAX, DIRECT_NOTICES_MAX
from api.base.metrics import ServiceMetrics
from api.base.passes import Passes
from api.base.steady import Steady
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import Lead, moment
from api.oncall.notify.alertmanager import Entry, Rounds, Sender, expressions_of, with_external
from api.oncall.notify.direct import Direct, is_own
from api.oncall.notify.http import make_client
from api.oncall.notify.matching import Fitter
from api.oncall.notify.outbox import Outbox
from api.oncall.notify.pagerduty_events import PagerDutyEvents
from api.oncall.notify.receivers import Means, make_receiver
from api.oncall.notify.settings import NotifierSettings, NotifySettings
from api.oncall.notify.slack_actions import SlackActions
from collector.contract.errors import InventoryError
from collector.contract.units import NS

PLAN_SECONDS = 1.0
QUIET_PLAN_SECONDS = 5.0
"""The same while nothing happens: only intervals pass."""
SILENCES_SECONDS = 5.0
"""How old the silences may be that are known here; one that was made here holds at once."""
BACKLOG_SECONDS = 10.0
"""How often it is counted what waits."""
ALERTS_INLINE_MAX = 500
"""Alerts of a group that are prepared for Alertmanagers at once; more would hold others up."""

log = logging.getLogger(__name__)


class Elsewhere(Protocol):
    """The alerts of rule groups that other processes evaluate."""

    @property
    def are_any(self) -> bool: ...

    def look(self, *, is_first: bool) -> list[tuple[Group, Sequence[Alert], int]]:
        """Those evaluated since the last look, or all, each with its moment (unix nanoseconds)."""


class Book:
    """The alerts of all rule groups, as they were last evaluated."""

    def __init__(self, external_labels: dict[str, str]) -> None:
        self._external = external_labels
        self._groups: dict[str, tuple[Group, Sequence[Alert]]] = {}
        self._evaluated: dict[str, int] = {}
        self.since_ns = 0
        self.left_out = 0

    def note(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        self._groups[group.key] = (group, alerts)
        self._evaluated[group.key] = now_ns

    def begin(self, now_ns: int) -> None:
        """Forget everything: this process begins to lead now."""
        self._groups.clear()
        self._evaluated.clear()
        self.since_ns = now_ns

    def scene(self) -> Scene:
        """All alerts. Groups that are no longer evaluated, while others are, are gone."""
        groups, evaluated = dict(self._groups), dict(self._evaluated)
        newest_ns = max(evaluated.values(), default=0)
        standing: list[Standing] = []
        left_out = 0
        for key, (group, alerts) in groups.items():
            if newest_ns - evaluated[key] > GONE_SECONDS * NS:
                self._groups.pop(key, None)
                self._evaluated.pop(key, None)
                continue
            expressions = expressions_of(group)
            room = ALERTS_MAX - len(standing)
            left_out += max(0, len(alerts) - room)
            standing += [
                Standing(
                    labels=with_external(alert.labels, self._external),
                    alert=alert,
                    source=key,
                    expression=expressions.get(dict(alert.labels).get(ALERT_NAME, ""), ""),
                )
                for alert in alerts[:room]
            ]
        self.left_out = left_out
        return Scene(alerts=tuple(standing), evaluated=evaluated, since_ns=self.since_ns)


class Notifier:
    """Plans notices for the receivers of the file, and keeps them. ``clock``: unix seconds."""

    def __init__(
        self,
        settings: NotifySettings,
        book: Book,
        inventory: Inventory,
        lead: Lead,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        direct: Direct | None = None,
    ) -> None:
        self._settings = settings
        self._direct = direct
        self._known: dict[str, Talk] = {}
        """The talks as they were last read or kept."""
        self._own_notices: deque[Notice] = deque(maxlen=DIRECT_NOTICES_MAX)
        """Notices about this process that were kept lately."""
        self._book = book
        self._inventory = inventory
        self._lead = lead
        self._metrics = metrics
        self._clock = clock
        self._talks: dict[str, Talk] | None = None
        self._silences: list[Silence] = []
        self._silences_at_s = float("-inf")
        self._is_failing = False
        self._left_out = 0
        self._fits = Fitter()
        metrics.watch("fabric_service_notify_left_out", lambda: float(self._left_out))

    @property
    def is_impatient(self) -> bool:
        return any(talk.number == 0 for talk in (self._talks or {}).values())

    def silences_changed(self) -> None:
        """A client has made or ended a silence: read them again."""
        self._silences_at_s = float("-inf")

    async def send_directly(self, own: Book) -> None:
        """Send alerts about this process from memory, where the inventory cannot keep them."""
        if self._direct is None:
            return
        if self._direct.is_needed:
            self._give_to_direct(self._direct)
        scene = own.scene()
        self._learn(scene)
        await self._direct.once(scene, self._silences, self._fits)

    def _give_to_direct(self, direct: Direct) -> None:
        direct.adopt(self._known, list(self._own_notices))
        self._known = {}
        self._own_notices.clear()

    async def plan_once(self) -> Plan | None:
        """Plan and keep what is due; None if this process does not lead, or nothing was kept."""
        is_direct = self._direct is not None and self._direct.is_needed
        if is_direct or not self._lead.is_held():
            self._talks = None
            if not is_direct:
                self._known = {}  # another process goes on with them
                self._own_notices.clear()
            return None
        try:
            made = await self._plan()
        except InventoryError as error:
            # Whether it was kept is not known: read again.
            self._talks = None
            if not self._is_failing:
                log.warning("cannot notify any receiver: %s", error)
            self._is_failing = True
            self._metrics.notify_errors.inc()
            return None
        self._is_failing = False
        return made

    async def _plan(self) -> Plan | None:
        now_s = self._clock()
        now_ns, now = round(now_s * NS), moment(now_s)
        if self._talks is None:
            names = [receiver.name for receiver in self._settings.receivers]
            dropped = await asyncio.to_thread(self._inventory.notices.drop_strangers, names, now)
            self._metrics.notices.labels("", "dropped").inc(dropped)
            talks = await asyncio.to_thread(self._inventory.notices.talks)
            if self._direct is not None:
                self._give_to_direct(self._direct)
                talks = self._direct.hand_over(talks)
            self._talks = self._known = talks
        await self._ask_silences(now_s, now)
        look = functools.partial(self._look, dict(self._talks), now_ns)
        made = await asyncio.to_thread(look)
        if made.notices or made.forgotten:
            kept = await asyncio.to_thread(
                lambda: self._inventory.notices.keep_plan(
                    made, task=self._lead.task, holder=self._lead.holder, now=now
                )
            )
            if kept is None:
                self._talks = None
                return None
            for notice in made.notices:
                self._metrics.notices.labels(notice.receiver, "planned").inc()
                talk = made.talks.get(notice.group) or self._talks.get(notice.group)
                if talk is not None and any(map(is_own, talk.told.values())):
                    self._own_notices.append(notice)
            self._metrics.notices.labels("", "superseded").inc(kept.superseded)
            self._metrics.notices.labels("", "dropped").inc(kept.dropped)
        self._talks = self._known = made.talks
        self._left_out = made.left_out + self._book.left_out
        return made

    def _look(self, talks: dict[str, Talk], now_ns: int) -> Plan:
        scene = self._book.scene()
        self._learn(scene)
        return notices.plan(
            self._settings.routes, scene, talks, now_ns, silences=self._silences, fits=self._fits
        )

    def _learn(self, scene: Scene) -> None:
        matchers = [matcher for route in self._settings.routes for matcher in route.matchers]
        matchers += [matcher for silence in self._silences for matcher in silence.matchers]
        self._fits.learn(matchers, [one.labels for one in scene.alerts])

    async def _ask_silences(self, now_s: float, now: dt.datetime) -> None:
        if 0 <= now_s - self._silences_at_s < SILENCES_SECONDS:
            return
        self._silences_at_s = now_s
        self._silences = await asyncio.to_thread(self._inventory.silences.ending_after, now)


class Notifying:
    """All ways of notification; the evaluator calls `notify`."""

    def __init__(
        self,
        settings: NotifierSettings,
        inventory: Inventory,
        lead: Lead,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        passes: Passes | None = None,
    ) -> None:
        """``passes`` sign the links of notices; None: their readers need no token."""
        file, tables = settings.file, settings.alertmanagers
        self._lead = lead
        self._inventory = inventory
        self._clock = clock
        self._metrics = metrics
        self._client = make_client() if file.receivers or tables else None
        self.tables = {table.name: table for table in file.receivers}
        self.pagerduty_events = PagerDutyEvents(inventory)
        self.slack_actions: SlackActions | None = None
        """None without receivers."""
        self._book = Book(settings.external_labels)
        self._own_book = Book(settings.external_labels)
        self._own_book.begin(round(clock() * NS))
        self.owned: Callable[[Alert], bool] = lambda _: False
        """Whether an alert that was judged over the store is judged by `notify_own`'s caller."""
        self.elsewhere: Elsewhere | None = None
        """The alerts of groups that other processes evaluate; None: there are none."""
        self._is_new = True
        """Whether none of them were read since this process plans."""
        self._direct: Direct | None = None
        self._rounds = Rounds(settings.external_labels, settings.interval_s)
        self._was_leading = False
        self._news = asyncio.Event()
        self.notifier: Notifier | None = None
        self.senders: list[Sender] = []
        self.outboxes: list[Outbox] = []
        if self._client is None:
            return
        url = settings.public_url
        self.senders = [Sender(each, self._client, url, metrics, clock) for each in tables]
        means = Means(client=self._client, external_url=url, clock=clock, passes=passes)
        receivers = {table.name: make_receiver(table, means) for table in file.receivers}
        if receivers:
            self.slack_actions = SlackActions(inventory, means)
            direct = self._direct = Direct(file, receivers, lead, metrics, clock)
            parts = (inventory, lead, metrics, clock)
            self.notifier = Notifier(file, self._book, *parts, direct)
            self.outboxes = [
                Outbox(
                    name, receiver, *parts, direct.delivered, timeout_s=self.tables[name].timeout_s
                )
                for name, receiver in receivers.items()
            ]
        self._backlogs = dict.fromkeys((each.name for each in self.outboxes), (0.0, 0.0))
        for each in self.outboxes:
            self._watch(each.name)

    def _watch(self, name: str) -> None:
        self._metrics.watch(
            "fabric_service_notices_waiting", lambda: self._backlogs[name][0], receiver=name
        )
        self._metrics.watch(
            "fabric_service_notices_oldest_seconds", lambda: self._backlogs[name][1], receiver=name
        )

    async def notify(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        """Returns soon, never raises: what could not be sent is sent after the next evaluation."""
        if self._lead.is_held():  # then those about this process come by `notify_own`
            alerts = [each for each in alerts if not self.owned(each)]
        await self._take(group, alerts, now_ns)

    async def notify_own(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        """The same of alerts about this process, which it judged itself."""
        self._own_book.note(group, alerts, now_ns)
        is_direct = self._direct is not None and self._direct.is_needed
        if self._lead.is_held():
            await self._take(group, alerts, now_ns)
        elif self.senders and (is_direct or self._cannot_be_seen()):
            self._offer(self._rounds.due(group, alerts, now_ns))
        self._news.set()

    def _cannot_be_seen(self) -> bool:
        """Whether the process that leads, if any, knows nothing new of this one."""
        vitals = self._metrics.vitals
        return bool(vitals.inventory.failing_s or vitals.commit.failing_s)

    async def _take(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        self._see_lead(now_ns)
        if self.notifier is not None:
            self._book.note(group, alerts, now_ns)
            self._news.set()
        if not self.senders:
            return
        if len(alerts) > ALERTS_INLINE_MAX:
            entries = await asyncio.to_thread(self._rounds.due, group, alerts, now_ns)
        else:
            entries = self._rounds.due(group, alerts, now_ns)
        self._offer(entries)

    def _offer(self, entries: Sequence[Entry]) -> None:
        for sender in self.senders:
            sender.offer(entries)

    def silences_changed(self) -> None:
        if self.notifier is not None:
            self.notifier.silences_changed()
            self._news.set()

    async def run(self, steady: Steady) -> None:
        if self._client is None:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.notifier is not None:
                    tasks.create_task(self._plan_on(self.notifier, steady))
                    tasks.create_task(self._count_on(steady.like()))
                for sender in self.senders:
                    tasks.create_task(sender.run(steady.like()))
                for outbox in self.outboxes:
                    tasks.create_task(outbox.run(steady.like()))
        except asyncio.CancelledError:
            # Only when the service stops: after a bug this is started again.
            await self._client.aclose()
            raise

    async def _plan_on(self, notifier: Notifier, steady: Steady) -> None:
        """Plan soon when there is news, else every few seconds."""
        while True:
            with steady.round():
                self._see_lead(round(self._clock() * NS))
                await self._hear_of_others()
                made = await notifier.plan_once()
                if made is not None and made.notices:
                    for outbox in self.outboxes:
                        outbox.wake.set()
                await notifier.send_directly(self._own_book)
            await asyncio.sleep(PLAN_SECONDS)
            has_others = self.elsewhere is not None and self.elsewhere.are_any
            if not notifier.is_impatient and not has_others:
                try:
                    async with asyncio.timeout(QUIET_PLAN_SECONDS - PLAN_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    pass
            self._news.clear()

    async def _hear_of_others(self) -> None:
        """Note what other processes evaluated; what cannot be read now is read the next time."""
        if self.elsewhere is None or not self._lead.is_held():
            return
        look = functools.partial(self.elsewhere.look, is_first=self._is_new)
        try:
            found = await asyncio.to_thread(look)
        except InventoryError:
            return  # planning will fail, too, and says so
        self._is_new = False
        for group, alerts, evaluated_ns in found:
            others = [each for each in alerts if not self.owned(each)]
            self._book.note(group, others, evaluated_ns)

    async def _count_on(self, steady: Steady) -> None:
        while True:
            with steady.round():
                await self._count_backlogs()
            await asyncio.sleep(BACKLOG_SECONDS)

    async def _count_backlogs(self) -> None:
        try:
            found = await asyncio.to_thread(self._inventory.notices.backlogs)
        except InventoryError:
            found = {}  # logged where notices are planned
        now = moment(self._clock())
        for name in self._backlogs:
            one = found.get(name)
            age_s = (now - one.oldest).total_seconds() if one else 0.0
            self._backlogs[name] = (float(one.waiting) if one else 0.0, max(0.0, age_s))

    def _see_lead(self, now_ns: int) -> None:
        """Forget what was known from before this process gained the lead."""
        leads = self._lead.is_held()
        if leads and not self._was_leading:
            self._book.begin(now_ns)
            self._rounds.forget()
            self._is_new = True
        self._was_leading = leads
