"""The controller: writes the service's answers as conditions, labels and taints of nodes.

In mode `report` it writes conditions and labels; in `enforce` also taints, for actions that stand
in the service; in `dry-run` it prints what it would write. The loop is `api.remote.executor`'s.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from api.remote.answers import Report, Service
from api.remote.executor import Ask, Attempt, Done, Executor, Loop, Once, Plan, Said, Step
from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.errors import (
    ClusterAway,
    ClusterError,
    ClusterOdd,
    ClusterRefused,
    ObjectChanged,
    ObjectMissing,
)
from api.remote.kubernetes.follow import Nodes
from api.remote.kubernetes.lease import LEASE_SECONDS, RENEWED_SECONDS, Leadership
from api.remote.kubernetes.objects import Node
from api.remote.kubernetes.plan import EXECUTOR, Known, Urgency, Write, know, plan_fleet, plan_node

WRITES_A_SECOND_MAX = 20.0
"""As much as Kubernetes' own controllers take of its API server."""
WRITE_SECONDS_MAX = LEASE_SECONDS - RENEWED_SECONDS
"""A write that we may begin has ended before anybody else may write."""
WRITES_A_PASS_MAX = 100
"""Then all is planned again: a taint must not wait behind 5,000 heartbeats."""
CONFLICT_TRIES = 3
"""Tries at one node that others write too, in one pass."""

log = logging.getLogger(__name__)


class Mode(enum.StrEnum):
    """What it may write."""

    DRY_RUN = "dry-run"
    REPORT = "report"
    ENFORCE = "enforce"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's settings."""

    mode: Mode = Mode.DRY_RUN
    share_max: float = 0.2
    """Of all nodes, that may have our taint at once, whatever the service holds."""
    say: Callable[[str], None] = log.info
    """Where a dry run, and what is written, goes."""


class Controller(Executor[Mapping[str, Node], Write]):
    """One cluster, one service. ``clock``: unix seconds."""

    name = EXECUTOR
    asks = frozenset(Ask)

    def __init__(
        self,
        cluster: Cluster,
        service: Service,
        leadership: Leadership,
        options: Options,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._leadership = leadership
        self._options = options
        self._clock = clock
        self._is_dry = options.mode is Mode.DRY_RUN
        self._say_once = Once(options.say)
        self._known = Known()
        """Of the latest plan: a write that conflicts with another one is planned again from it."""
        self.news = leadership.news
        self.nodes = Nodes(cluster, self.news)
        self._loop = Loop(self, service, is_dry=self._is_dry, say=options.say, monotonic=monotonic)
        self.trouble = self._loop.trouble

    # --- running -------------------------------------------------------------------------------

    async def run(self) -> None:
        await self._loop.run()

    async def once(self) -> Done:
        """Query everything once, write once, report. Raises what went wrong."""
        done = await self._loop.once()
        await self._loop.reports.send()
        return done

    def is_alive(self) -> bool:
        """Whether passes are made; one that waits for the API server counts."""
        return self._loop.is_alive

    def state(self) -> dict[str, object]:
        return {
            "mode": self._options.mode.value,
            "writes": self._leadership.is_held(),
            "nodes": len(self.nodes.by_name),
            "trouble": dict(self.trouble.now),
        }

    @property
    def followers(self) -> Mapping[str, Step]:
        if self._is_dry:
            return {"nodes": self.nodes.step}
        return {"nodes": self.nodes.step, "lease": self._leadership.run}

    @property
    def is_ready(self) -> bool:
        return self.nodes.is_listed and (self._is_dry or self._leadership.is_held())

    async def claim(self) -> None:
        if not await self._leadership.step():
            raise ClusterAway(self._leadership.why)

    async def release(self) -> None:
        await self._leadership.release()

    # --- a pass --------------------------------------------------------------------------------

    async def observe(self) -> Mapping[str, Node]:
        """All nodes: listed the first time, then as the watch keeps them."""
        if not self.nodes.is_listed:
            await self.nodes.list()
        return self.nodes.by_name

    async def plan(self, nodes: Mapping[str, Node], said: Said) -> Plan[Write]:
        known = know(said.health, said.actions, said.labels)
        if self._options.mode is Mode.REPORT:
            known = msgspec.structs.replace(known, actions=None)
        self._known = known
        return plan_fleet(nodes.values(), known, self._now(), self._options.share_max)

    async def apply(self, changes: Sequence[Write]) -> AsyncGenerator[Attempt]:
        """Write the first of them. Raises when the API server is unavailable or refuses."""
        if self._is_dry:
            for write in changes:
                if write.urgency is not Urgency.HEARTBEAT:
                    self._say_once(f"would write {write.words}")
            return
        for write in changes[:WRITES_A_PASS_MAX]:
            if not self._leadership.is_held():
                return
            try:
                yield await self._write(write)
            except (ClusterAway, ClusterRefused) as error:
                yield failed(write, error)
                raise
            await asyncio.sleep(1 / WRITES_A_SECOND_MAX)

    async def _write(self, write: Write) -> Attempt:
        current: Write | None = write
        try:
            for _ in range(CONFLICT_TRIES):
                if current is None or not self._leadership.is_held():
                    break
                try:
                    await self._patch(current)
                except ObjectChanged:
                    current = await self._again(current)
                else:
                    return Attempt(is_done=True, reports=current.reports)
        except ObjectMissing:
            self.nodes.drop(write.node)
        except ClusterOdd as error:
            # One odd node never hides the others.
            self._say_once(f"{write.node}: not written: {error}")
            return failed(write, error)
        return Attempt(is_done=False)

    async def _patch(self, write: Write) -> None:
        change = self._cluster.patch_status if write.is_status else self._cluster.patch_node
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                self.nodes.put(await change(write.node, write.patch))
        except TimeoutError as error:
            words = f"{write.node}: no answer to a write within {WRITE_SECONDS_MAX:g} s"
            raise ClusterAway(f"{self._cluster.server}: {words}") from error
        if write.urgency is not Urgency.HEARTBEAT:
            self._options.say(write.words)

    async def _again(self, write: Write) -> Write | None:
        """The same write for the node as it is now; None if it is no longer needed."""
        node = await self._cluster.get_node(write.node)
        self.nodes.put(node)
        planned = plan_node(node, self._known, self._now())
        return next((each for each in planned if each.is_status == write.is_status), None)

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)


def failed(write: Write, error: ClusterError) -> Attempt:
    reports = [Report(each.action, "failed", str(error)) for each in write.reports]
    return Attempt(is_done=False, reports=reports)
