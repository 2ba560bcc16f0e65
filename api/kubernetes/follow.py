"""What the controller follows: nodes of the cluster, and what the service says.

Each follower goes on until it is cancelled, keeps the latest, says what keeps it from knowing more,
and wakes whoever waits for news.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from api.kubernetes.client import Cluster
from api.kubernetes.errors import ClusterAway, ClusterError, WatchGone
from api.kubernetes.objects import Node
from api.kubernetes.service import Actions, FleetHealth, Service
from api.top.client import Away, Odd, Refused
from api.top.watch import RETRY_SECONDS_MAX, backoff
from collector.contract.errors import FabricscopeError

STEP_SECONDS_MIN = 0.2
"""How long a step takes at least."""
HEALTH_WAIT_SECONDS = 30.0
"""How long the service lets us wait for a change."""
HEALTH_KEPT_SECONDS = 60.0
"""What was known of health counts so long without an answer: a service that is restarted must not
turn every node's condition. As long as the service trusts its own (HEALTH_STALE_SECONDS)."""
ACTIONS_SECONDS = 5.0
"""How often we ask what stands."""
ACTIONS_KEPT_SECONDS = 30.0
"""An answer that is older is doubt."""
LABELS_SECONDS = 60.0
"""How often we ask where hosts hang: cables change by hand."""

log = logging.getLogger(__name__)


async def keep_on(what: str, step: Callable[[], Awaitable[None]], trouble: Trouble) -> None:
    """Do a thing again and again until cancelled; after a failure later and later."""
    failures = 0
    while True:
        began_s = time.monotonic()
        try:
            await step()
            failures = 0
            trouble.over(what)
            # Somebody who answers at once, again and again, must not keep us and him busy.
            await asyncio.sleep(max(0.0, began_s + STEP_SECONDS_MIN - time.monotonic()))
        except (ClusterError, Away, Refused, Odd) as error:
            failures += 1
            trouble.begins(what, error)
            asked_s = error.retry_s if isinstance(error, ClusterAway) else 0.0
            await asyncio.sleep(max(backoff(failures), min(asked_s, RETRY_SECONDS_MAX)))


class Trouble:
    """What does not work now, by what it is; said once when it begins and once when it is over."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}

    def begins(self, what: str, error: FabricscopeError) -> None:
        """Something failed."""
        if self.now.get(what) != str(error):
            log.warning("%s: %s", what, error)
        self.now[what] = str(error)

    def over(self, what: str) -> None:
        """It works again."""
        if self.now.pop(what, None) is not None:
            log.info("%s: works again", what)


class Nodes:
    """The cluster's nodes: listed, then watched; listed again when the watch is too far behind."""

    def __init__(self, cluster: Cluster, news: asyncio.Event) -> None:
        self._cluster = cluster
        self._news = news
        self._version = ""
        self.by_name: dict[str, Node] = {}
        self.is_listed = False

    async def step(self) -> None:
        """List if need be, then watch until the server ends it."""
        if not self._version:
            await self.list()
        try:
            async with contextlib.aclosing(self._cluster.watch_nodes(self._version)) as events:
                async for kind, node in events:
                    self._take(kind, node)
        except WatchGone as error:
            log.info("nodes are listed again: %s", error)
            self._version = ""

    async def list(self) -> None:
        """Take all nodes as they are now."""
        self.by_name, self._version = await self._cluster.list_nodes()
        self.is_listed = True
        self._news.set()

    def _take(self, kind: str, node: Node) -> None:
        """What an event means. A bookmark only says how far we are."""
        self._version = node.metadata.resource_version or self._version
        if kind == "DELETED":
            self.by_name.pop(node.name, None)
        elif kind in {"ADDED", "MODIFIED"}:
            self.put(node)
        self._news.set()

    def put(self, node: Node) -> None:
        """A node as somebody has seen it; an event that is older than our own write is no news."""
        known = self.by_name.get(node.name)
        if known is None or not node.is_older_than(known):
            self.by_name[node.name] = node

    def drop(self, name: str) -> None:
        """A node that is no more."""
        self.by_name.pop(name, None)


class Said:
    """What the service said last, each with its age. ``monotonic``: seconds."""

    def __init__(
        self,
        service: Service,
        news: asyncio.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._news = news
        self._monotonic = monotonic
        self._health: FleetHealth | None = None
        self._health_s = monotonic()
        self._is_heard = False
        """Whether the last question about health was answered."""
        self._actions: Actions | None = None
        self._actions_s = float("-inf")
        self.labels: dict[str, dict[str, str]] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the service has not answered for long, or not since we began."""
        return self._monotonic() - self._health_s >= HEALTH_KEPT_SECONDS

    @property
    def health(self) -> FleetHealth | None:
        """How hosts are; None if that is of the past."""
        return None if self.is_silent else self._health

    @property
    def actions(self) -> Actions | None:
        """What stands; None on doubt."""
        is_kept = self._monotonic() - self._actions_s < ACTIONS_KEPT_SECONDS
        return self._actions if is_kept else None

    async def ask_health(self) -> None:
        """Ask how hosts are; wait for a change, unless we do not know that the service is there."""
        wait_s = HEALTH_WAIT_SECONDS if self._is_heard else 0.0
        self._is_heard = False
        found = await self._service.health(wait_s)
        self._is_heard, self._health_s = True, self._monotonic()
        if found is not None:
            self._health = found
        self._news.set()

    async def ask_actions(self) -> None:
        """Ask what stands; without a good answer nothing is known to."""
        try:
            found = await self._service.actions()
        except FabricscopeError:
            self._actions = None
            raise
        self._actions, self._actions_s = found, self._monotonic()
        self._news.set()

    async def ask_labels(self) -> None:
        """Ask where hosts hang."""
        self.labels = await self._service.labels()
        self._news.set()

    async def step_actions(self) -> None:
        """Ask, and wait."""
        await self.ask_actions()
        await asyncio.sleep(ACTIONS_SECONDS)

    async def step_labels(self) -> None:
        """Ask, and wait."""
        await self.ask_labels()
        await asyncio.sleep(LABELS_SECONDS)
