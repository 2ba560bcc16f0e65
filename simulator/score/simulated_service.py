"""The service's own parts on a simulated clock: batches are stored and rolled as in production.

No HTTP and no waiting: batches go to the same `Ingest`, jobs are found by the same `JobWatch`,
series of collectives are made by the same `RollTask`, whenever they are due in simulated time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from api.base.metrics import ServiceMetrics
from api.data.captures import Captures
from api.data.ingest.ingest import Ingest
from api.data.ingest.otlp import parse_protobuf
from api.data.inventory.feed import InventoryFeed
from api.data.inventory.repository import Inventory
from api.data.refresh import PortRefresh
from api.data.store.store import Store, StoreUrl
from api.http.settings import RetentionDays
from api.http.works import PORTS_SECONDS
from api.jobs.correlate.roll import make_roll
from api.jobs.watch import JOBS_SECONDS, JobWatch
from collector.contract.catalog import load_catalog
from collector.contract.verdict import Verdict


class Evaluator(Protocol):
    """Gives verdicts from the service's data."""

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        """Every verdict that stands at this moment, by data that has arrived by now."""


class Silent:
    """Gives no verdicts: the scoreboard without detectors."""

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        del now_ns
        return ()


class SimulatedService:
    """A service in a folder of its own. ``now_s`` (unix seconds) is when it was last given work."""

    def __init__(self, folder: Path, now_s: float) -> None:
        self.now_s = now_s
        retention = RetentionDays()
        self.inventory = Inventory(f"sqlite:///{folder / 'inventory.db'}")
        self.inventory.migrate()
        self.store = Store(
            StoreUrl.parse(f"chdb://{folder / 'store'}"),
            retention_days=retention.by_table(),
            clock=self.clock,
        )
        self.store.migrate()
        catalog, metrics = load_catalog(), ServiceMetrics()
        self._feed = InventoryFeed(self.inventory, catalog, self._now)
        self._ingest = Ingest(
            self.store, self._feed, metrics, self.clock, retention_days=retention.samples
        )
        self.captures = self._ingest.captures = Captures(self.inventory, self.clock)
        self.commit = self._ingest.commit
        self._roll = make_roll(self.store, self.inventory, self.commit, metrics, self.clock)
        self._watch = JobWatch(self.store, self.inventory)
        self._ports = PortRefresh(self.store, self.inventory, catalog)
        self._looked_s = self._refreshed_s = now_s

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take batches as long as the block runs; then close everything."""
        commit = asyncio.create_task(self._ingest.run())
        try:
            yield
        finally:
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)
            self.store.close()
            self.inventory.close()

    async def work(
        self, now_s: float, bodies: Iterable[bytes], pushes: Iterable[bytes] = ()
    ) -> None:
        """Store these batches and run the service's tasks, in a fixed order and to the end.

        ``pushes`` are requests of OTLP, in protobuf.
        """
        self.now_s = now_s
        await asyncio.gather(*(self._ingest.native(body) for body in bodies))
        pushed = [self._ingest.otlp(body, parse_protobuf) for body in pushes]
        if pushed:
            await asyncio.gather(*pushed)
            await self._ingest.sight_now()
        await self._ingest.sighted()
        self.captures.look()
        self._feed.run_once()
        if now_s - self._looked_s >= JOBS_SECONDS:
            self._looked_s = now_s
            self._watch.look(self._now())
        if now_s - self._refreshed_s >= PORTS_SECONDS:
            self._refreshed_s = now_s
            self._ports.look(self._now())
            self.inventory.links.note_unplugged(self._now())
        await self._roll.catch_up()

    def clock(self) -> float:
        """Simulated time, unix seconds."""
        return self.now_s

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.now_s, tz=dt.UTC)
