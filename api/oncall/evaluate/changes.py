"""News for subscribers, as they come: a bounded number of bounded queues.

The evaluator may be another process, so news are read from the inventory, where it writes them, and
have the same numbers for every subscriber. Belongs to the event loop. `Changes` are news of
incidents; those of health (`api.fleet.health.board`) go through a hub of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from api.base.limits import INCIDENT_CHANGES_PAGE_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.inventory.incidents import Numbered
from api.data.inventory.repository import Inventory
from collector.contract.errors import InventoryError

FOLLOW_SECONDS = 1.0
SUBSCRIBERS_MAX = 64
"""Who watches one service process at once: screens on walls, and a few scripts."""
QUEUE_MAX = 256
"""News that wait for one subscriber. Past it those to come are dropped until it has learned of the
gap."""

log = logging.getLogger(__name__)

News = TypeVar("News")


class TooManySubscribers(Exception):  # noqa: N818 - reads as the statement it is
    """SUBSCRIBERS_MAX are there already."""


class Closed(Exception):  # noqa: N818 - reads as the statement it is
    """The service stops: there will be no more news."""


class Missed(msgspec.Struct, frozen=True):
    """So many news were dropped here, because they were not taken in time."""

    count: int


class Subscription(Generic[News]):
    """What one subscriber has yet to take. Use it as a context: at its end it is forgotten."""

    def __init__(self, hub: Hub[News]) -> None:
        self._hub = hub
        self._waiting: deque[News] = deque()
        self._missed = 0
        self._is_closed = False
        self._wake = asyncio.Event()

    def put(self, news: News) -> bool:
        self._wake.set()
        # After a drop all that follows is dropped too, until the subscriber knows where the gap is.
        if self._missed or len(self._waiting) >= QUEUE_MAX:
            self._missed += 1
            return False
        self._waiting.append(news)
        return True

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()

    async def next(self, timeout_s: float) -> News | Missed | None:
        """News, or how many were missed; None: no news in time. Raises Closed at the end."""
        if not self._waiting and not self._missed and not self._is_closed:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        if self._is_closed:
            raise Closed
        if self._waiting:
            return self._waiting.popleft()
        missed, self._missed = self._missed, 0
        return Missed(missed) if missed else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hub.forget(self)


class Hub(Generic[News]):
    """The subscribers to news of one sort."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription[News]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._subscriptions)

    def subscribe(self) -> Subscription[News]:
        if len(self._subscriptions) >= SUBSCRIBERS_MAX:
            raise TooManySubscribers
        subscription = Subscription(self)
        if self._is_closed:
            subscription.close()
        self._subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription[News]) -> None:
        self._subscriptions.discard(subscription)

    def tell(self, news: News) -> int:
        """Queue news for every subscriber; returns how many were too slow and missed them."""
        return sum(not subscription.put(news) for subscription in self._subscriptions)

    def close(self) -> None:
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.close()


class Changes(Hub[Numbered]):
    """Follows the inventory's news and passes them to subscribers."""

    def __init__(self, inventory: Inventory, metrics: ServiceMetrics) -> None:
        super().__init__()
        self._inventory = inventory
        self._metrics = metrics
        self._last_number: int | None = None
        """The number of the last news that were passed on; None: not known yet."""
        metrics.watch("fabric_service_live_clients", lambda: float(len(self)))

    async def run(self, steady: Steady) -> None:
        is_failing = False
        try:
            while True:
                with steady.round():
                    try:
                        while await self.follow() == INCIDENT_CHANGES_PAGE_MAX:
                            pass
                        is_failing = False
                    except InventoryError as error:
                        if not is_failing:
                            log.warning("news of incidents cannot be read: %s", error)
                        is_failing = True
                await asyncio.sleep(FOLLOW_SECONDS)
        finally:
            self.close()

    async def follow(self) -> int:
        if self._last_number is None:
            span = await asyncio.to_thread(self._inventory.incidents.changes_span)
            self._last_number = span[1] if span is not None else 0
            return 0
        news = await asyncio.to_thread(self._inventory.incidents.changes, self._last_number)
        for each in news:
            self._last_number = each.number
            self._metrics.live_dropped.inc(self.tell(each))
        return len(news)
