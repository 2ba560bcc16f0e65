"""Sends what waits in the inventory for one receiver, each notice until it is settled.

A notice is sent by its id, which it keeps: a crash between the receiver's answer and our mark makes
it go out once more; the receiver can recognise the id. Nothing else is sent twice. A receiver that
is unavailable is retried with growing pauses; when it is back it gets the present state of each
group of alerts, because newer notices have taken the place of older ones meanwhile.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from random import Random

from alerts.rulebook.notices import Notice
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.inventory.records import NoticeState
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import Lead, moment
from api.oncall.notify.direct import Delivered
from api.oncall.notify.http import RETRY_AFTER_SECONDS_MAX, Delivery, Outcome
from api.oncall.notify.receivers import Receiver
from collector.contract.errors import InventoryError

SENDS_AT_ONCE = 8
"""Notices that are on the way to one receiver at a time."""
LOOK_SECONDS = 1.0
"""How often the outbox is read, when no event announces a notice."""
PAUSE_SECONDS_FIRST = 1.0
PAUSE_SECONDS_MAX = 60.0
"""After failures: a receiver that is back is found within a minute."""

BROKEN = "broken"
"""Under which notices are counted that a bug keeps from being sent."""

log = logging.getLogger(__name__)


class Outbox:
    """Sends to one receiver. ``clock``: unix seconds. For one event loop."""

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        inventory: Inventory,
        lead: Lead,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        delivered: Delivered | None = None,
        *,
        timeout_s: float = 0.0,
    ) -> None:
        """``timeout_s``: how long an attempt may take."""
        self.name = name
        self._timeout_s = timeout_s
        self._delivered = delivered or Delivered()
        self.wake = asyncio.Event()
        self._receiver = receiver
        self._inventory = inventory
        self._lead = lead
        self._metrics = metrics
        self._clock = clock
        self._random = Random()  # noqa: S311 - jitter
        self._failures = 0
        self._held_until_s = 0.0
        self._unmarked: dict[str, tuple[NoticeState, str]] = {}
        """Settled by the receiver, and the inventory does not know yet."""
        self._is_failing = False

    async def run(self, steady: Steady) -> None:
        while True:
            sent = 0
            with steady.round():
                sent = await self.send_due()
            if sent < SENDS_AT_ONCE:
                self.wake.clear()
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self.wake.wait()
                except TimeoutError:
                    pass

    async def send_due(self) -> int:
        """Send what is due, at most SENDS_AT_ONCE; returns how many were tried."""
        try:
            tried = await self._send_due()
        except InventoryError as error:
            if not self._is_failing:
                log.warning("notices to %s cannot be looked up or marked: %s", self.name, error)
            self._is_failing = True
            return 0
        self._is_failing = False
        return tried

    async def _send_due(self) -> int:
        now_s = self._clock()
        # An attempt that begins now must have ended before another process may begin one.
        if self._lead.left_s <= self._timeout_s:
            return 0
        with self._lead.at_work():
            return await self._send_all(now_s)

    async def _send_all(self, now_s: float) -> int:
        await self._mark_settled()
        # A clock that was set back must not delay longer than a receiver may ask for.
        self._held_until_s = min(self._held_until_s, now_s + RETRY_AFTER_SECONDS_MAX)
        if now_s < self._held_until_s:
            return 0
        due = await asyncio.to_thread(
            self._inventory.notices.due, self.name, moment(now_s), SENDS_AT_ONCE
        )
        if not due:
            return 0
        for notice in due:
            if notice.id in self._delivered:  # sent directly, while the inventory was away
                self._unmarked[notice.id] = (NoticeState.SENT, "")
        await self._mark_settled()
        due = [notice for notice in due if notice.id not in self._delivered]
        ids = [notice.id for notice in due]
        still = await asyncio.to_thread(
            lambda: self._inventory.notices.begin_attempts(
                ids, task=self._lead.task, holder=self._lead.holder
            )
        )
        wanted = [notice for notice in due if notice.id in (still or ())]
        tried = await asyncio.gather(*(self._deliver(notice) for notice in wanted))
        self._judge([outcome for outcome in tried if outcome is not None])
        return len(wanted)

    async def _deliver(self, notice: Notice) -> Outcome | None:
        """Send one notice and mark it at once: a crash between the two sends it twice.

        None: a bug keeps this notice from being sent. It is tried again later, and holds up no
        other.
        """
        try:
            outcome = await self._receiver.send(notice)
        except Exception as bug:
            log.exception("notice %s to %s cannot be made", notice.id, self.name)
            self._metrics.notices.labels(self.name, BROKEN).inc()
            due_s = self._clock() + PAUSE_SECONDS_MAX
            why = f"{type(bug).__name__}: {bug}"
            await asyncio.to_thread(self._inventory.notices.postpone, notice.id, moment(due_s), why)
            return None
        self._metrics.notices.labels(self.name, outcome.delivery.value).inc()
        if outcome.delivery is Delivery.RETRY:
            due_s = self._clock() + (outcome.retry_after_s or self._pause_s())
            await asyncio.to_thread(
                self._inventory.notices.postpone, notice.id, moment(due_s), outcome.detail
            )
            return outcome
        self._delivered.add(notice.id)
        is_sent = outcome.delivery is Delivery.SENT
        state = NoticeState.SENT if is_sent else NoticeState.REFUSED
        if not is_sent:
            log.warning("%s refuses notice %s: %s", self.name, notice.id, outcome.detail)
        self._unmarked[notice.id] = (state, outcome.detail)
        await self._mark_settled(notice.id)
        return outcome

    async def _mark_settled(self, number: str = "") -> None:
        for each in [number] if number else list(self._unmarked):
            state, detail = self._unmarked[each]
            now: dt.datetime = moment(self._clock())
            await asyncio.to_thread(self._inventory.notices.settle, each, state, detail, now)
            self._unmarked.pop(each, None)

    def _judge(self, outcomes: list[Outcome]) -> None:
        failed = [each for each in outcomes if each.delivery is Delivery.RETRY]
        if outcomes and len(failed) < len(outcomes):
            if self._failures:
                log.info("%s takes notices again", self.name)
            self._failures = 0
        if not failed:
            return
        asked_s = max((each.retry_after_s or 0.0 for each in failed), default=0.0)
        if asked_s:
            self._held_until_s = self._clock() + asked_s
        if len(failed) == len(outcomes):
            if not self._failures:
                log.warning("%s does not take notices: %s", self.name, failed[0].detail)
            self._failures += 1
            self._held_until_s = max(self._held_until_s, self._clock() + self._pause_s())

    def _pause_s(self) -> float:
        """Seconds to wait after consecutive failures: doubling, bounded, random."""
        doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(self._failures, 20)
        return self._random.uniform(PAUSE_SECONDS_FIRST, min(doubled, PAUSE_SECONDS_MAX))
