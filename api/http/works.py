"""The service's background work: loops that run until it stops."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.types import Lifespan

from api.base.allocator import give_back_free_memory
from api.base.limits import (
    CLOCK_STEP_SECONDS,
    DISK_LOOK_SECONDS,
    GIVE_BACK_SECONDS,
    STORE_LOOK_SECONDS,
    WORK_BREAKS_MAX,
)
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.base.threads import WORK, Threads, note_loop
from api.base.vitals import ClockWatch
from api.data.captures import CAPTURES_SECONDS, Captures
from api.data.inventory.feed import InventoryFeed
from api.data.inventory.repository import Inventory
from api.data.refresh import PortRefresh
from api.data.rollouts.book import RolloutBook
from api.data.store.store import Store
from api.data.store.watch import StoreWatch
from api.fabric.probe_targets import ProbeTargetBook
from api.jobs.watch import JOBS_SECONDS, JobWatch
from api.promql.gate import Gate
from collector.contract.catalog import load_catalog
from collector.contract.errors import InventoryError, StoreError

log = logging.getLogger(__name__)

FEED_SECONDS = 1.0
"""How often what was sighted goes to the inventory."""

JOBS_FORGOTTEN_SECONDS = 3_600.0
"""How often jobs that ended long ago are removed."""

PORTS_SECONDS = 15.0
"""How often the inventory learns the state and rate of every port."""

GHOSTS_SECONDS = 3_600.0
"""How often hosts that were seen for a moment, long ago, are removed."""

FOLLOW_SECONDS = 2.0
"""How often a process that holds samples takes what others inserted, if no reader made it do so: a
part of the time in which INSERT_LOG_BYTES are full."""

RESTART_SECONDS_MIN, RESTART_SECONDS_MAX = 1.0, 30.0
"""How soon work that broke starts again: at first, and when it breaks again and again."""

VITAL = frozenset({"commit"})
"""Work without which the service must not go on taking requests."""

Work = Callable[[], Coroutine[Any, Any, None]]
Loop = Callable[[Steady], Coroutine[Any, Any, None]]
"""Work that goes round by round: a round that breaks does not end it."""


async def feed_inventory(feed: InventoryFeed, metrics: ServiceMetrics, steady: Steady) -> None:
    metrics.watch("fabric_service_inventory_waiting", lambda: float(feed.pending))
    flushed = dropped = errors = 0
    try:
        while True:
            await asyncio.sleep(FEED_SECONDS)
            with steady.round():
                await asyncio.to_thread(feed.run_once)
            metrics.inventory_flushed.inc(feed.flushed - flushed)
            metrics.inventory_dropped.inc(feed.dropped - dropped)
            metrics.inventory_errors.inc(feed.errors - errors)
            flushed, dropped, errors = feed.flushed, feed.dropped, feed.errors
    finally:
        feed.run_once()


async def watch_ports(
    store: Store,
    inventory: Inventory,
    clock: Callable[[], float],
    leads: Callable[[], bool],
    steady: Steady,
) -> None:
    """Keep the ports' state, rate and cables in the inventory fresh, until cancelled.

    Of several processes the one that leads does it: all would write the same.
    """
    failing = False
    refresh = PortRefresh(store, inventory, load_catalog())
    while True:
        await asyncio.sleep(PORTS_SECONDS)
        if not leads():
            refresh.forget()
            continue
        now = dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
        with steady.round():
            try:
                await asyncio.to_thread(refresh.look, now)
                await asyncio.to_thread(inventory.links.note_unplugged, now)
                failing = False
            except (StoreError, InventoryError) as error:
                if not failing:
                    log.warning("the ports' state cannot be refreshed: %s", error)
                failing = True


async def forget_ghosts(
    inventory: Inventory,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    leads: Callable[[], bool],
    steady: Steady,
    *,
    kept_days: int,
) -> None:
    """Delete hosts that were seen for a moment, long ago, or are gone, until cancelled.

    ``kept_days``: how long a host may be silent; 0: for ever.
    """
    while True:
        await asyncio.sleep(GHOSTS_SECONDS)
        if not leads():
            continue
        now = dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
        with steady.round():
            try:
                count = await asyncio.to_thread(inventory.hosts.forget_ghosts, now)
                metrics.ghosts_forgotten.inc(count)
                if kept_days:
                    gone = await asyncio.to_thread(inventory.hosts.forget_gone, now, kept_days)
                    metrics.hosts_forgotten.inc(len(gone))
                    for name in gone:
                        log.info(
                            "host %s was not seen for %d days, and is removed", name, kept_days
                        )
            except InventoryError as error:
                log.info("ghosts are not forgotten now: %s", error)


async def watch_wellbeing(watch: StoreWatch, metrics: ServiceMetrics, steady: Steady) -> None:
    """Keep what the service knows of its disks, parts and clock fresh, until cancelled."""
    clock = ClockWatch(metrics.vitals, CLOCK_STEP_SECONDS)
    parts_s = float("-inf")
    while True:
        with steady.round():
            await asyncio.to_thread(watch.look_at_disks)
            if time.monotonic() - parts_s >= STORE_LOOK_SECONDS:
                parts_s = time.monotonic()
                await asyncio.to_thread(watch.look_at_parts)
        await asyncio.sleep(DISK_LOOK_SECONDS)
        if step_s := clock.step_s():
            metrics.clock_steps.inc()
            log.warning("the clock was set by %+.1f s, or this machine was suspended", step_s)


async def follow_inserts(store: Store, steady: Steady) -> None:
    """Keep up with what the service's other processes insert, until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        with steady.round():
            await asyncio.to_thread(store.known.follow)


async def give_back_memory(steady: Steady) -> None:
    """Return freed memory to the kernel now and then, until cancelled."""
    while True:
        await asyncio.sleep(GIVE_BACK_SECONDS)
        with steady.round():
            await asyncio.to_thread(give_back_free_memory)


async def watch_orders(
    captures: Captures, rollouts: RolloutBook, targets: ProbeTargetBook, steady: Steady
) -> None:
    """Learn what is there for agents, until cancelled: one statement, where there is nothing."""
    while True:
        await asyncio.sleep(CAPTURES_SECONDS)
        with steady.round():
            await asyncio.to_thread(captures.look)
            if rollouts.is_due(captures.configuration):
                await asyncio.to_thread(rollouts.look)
            if targets.is_due():
                await asyncio.to_thread(targets.look)


async def watch_jobs(
    store: Store,
    inventory: Inventory,
    clock: Callable[[], float],
    leads: Callable[[], bool],
    steady: Steady,
    *,
    kept_days: int,
) -> None:
    """A job that has ended is kept as long as the steps that it made.

    Of several processes one watches: all would read the same and write the same.
    """
    watch = JobWatch(store, inventory)
    forgotten_s = clock()
    while True:
        await asyncio.sleep(JOBS_SECONDS)
        if not leads():
            watch = JobWatch(store, inventory)  # another goes on, from what is in the inventory
            continue
        now = dt.datetime.fromtimestamp(clock(), tz=dt.UTC)
        is_well = False
        with steady.round():
            is_well = await asyncio.to_thread(watch.look, now)
        if is_well and clock() - forgotten_s >= JOBS_FORGOTTEN_SECONDS:
            with contextlib.suppress(InventoryError):  # the next look logs it
                await asyncio.to_thread(inventory.jobs.forget, now - dt.timedelta(days=kept_days))
            forgotten_s = clock()


class Supervisor:
    """Runs background work, each by its name, and starts again what breaks.

    One odd row must not end the service, nor stop its other work for ever. Only `VITAL` work ends
    it: the process stops, exits with a status that makes a supervisor start it again, and senders
    repeat what was not acknowledged.
    """

    def __init__(self, works: Mapping[str, Work], metrics: ServiceMetrics) -> None:
        self.works = works
        """By name, in the order in which they begin."""
        self._metrics = metrics
        self.broken = ""
        """The vital work that broke; empty: none."""
        self._breaks: dict[str, int] = {}
        """How often work has broken in a row, each time soon after its start."""
        self._started_s: dict[str, float] = {}

    @property
    def failing(self) -> list[str]:
        """Work that ends, or whose rounds break, again and again: it is not done."""
        now_s = time.monotonic()
        ended = {
            name
            for name, breaks in self._breaks.items()
            if breaks >= WORK_BREAKS_MAX and now_s - self._started_s[name] <= RESTART_SECONDS_MAX
        }
        return sorted({*ended, *self._metrics.vitals.works_that_break(WORK_BREAKS_MAX)})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(self._keep(name, work), name=name)
            for name, work in self.works.items()
        ]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, work: Work) -> None:
        pause_s = RESTART_SECONDS_MIN
        WORK.set(name)
        self._metrics.work_failures.labels(name)  # 0, so that the first break is an increase
        while True:
            started_s = self._started_s[name] = time.monotonic()
            try:
                await work()
            except Exception:
                self._metrics.work_failures.labels(name).inc()
                if name in VITAL:
                    log.critical("%s broke: the service stops", name, exc_info=True)
                    self.broken = name
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                log.exception("%s broke; it starts again in %g s", name, pause_s)
            else:
                return  # only cancelling ends work, but for that of tests
            if time.monotonic() - started_s > RESTART_SECONDS_MAX:
                pause_s = RESTART_SECONDS_MIN
                self._breaks[name] = 0
            self._breaks[name] = self._breaks.get(name, 0) + 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_SECONDS_MAX)


@contextlib.asynccontextmanager
async def at_work(supervisor: Supervisor, gate: Gate) -> AsyncIterator[None]:
    """Runs the work in this event loop, as long as this lasts."""
    note_loop()
    asyncio.get_running_loop().set_default_executor(Threads())
    async with supervisor.running():
        yield
    gate.close()


def working(supervisor: Supervisor, gate: Gate) -> Lifespan[FastAPI]:
    """Runs the work as long as the service runs."""
    return lambda _: at_work(supervisor, gate)
