"""The controller: what the service says becomes conditions, labels and taints of nodes.

Level-triggered: each pass holds all that is known against all nodes as they are and writes what
differs, so nothing is lost by a crash, a missed event or a service that was away. In mode `report`
it writes conditions and labels; in `enforce` also taints, for actions that stand in the service; in
`dry-run` it says what it would write.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import enum
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import msgspec

from api.kubernetes.client import Cluster
from api.kubernetes.errors import (
    ClusterAway,
    ClusterError,
    ClusterOdd,
    ClusterRefused,
    ObjectChanged,
    ObjectMissing,
)
from api.kubernetes.follow import Nodes, Said, Trouble, keep_on
from api.kubernetes.lease import LEASE_SECONDS, RENEWED_SECONDS, Leadership
from api.kubernetes.plan import Known, Urgency, Write, know, plan_fleet, plan_node
from api.kubernetes.service import Report, Service
from api.top.client import Away, Odd, Refused

PASS_SECONDS = 5.0
"""Without news all is looked at again this often: what was written by others is set right."""
PASS_PAUSE_SECONDS = 1.0
"""Between two passes: kubelets of 5,000 nodes make 17 events a second, and a pass takes 55 ms."""
WRITES_A_SECOND_MAX = 20.0
"""As much as Kubernetes' own controllers take of its API server."""
WRITE_SECONDS_MAX = LEASE_SECONDS - RENEWED_SECONDS
"""A write that we may begin has ended before anybody else may write."""
WRITES_A_PASS_MAX = 100
"""Then all is planned again: a taint must not wait behind 5,000 heartbeats."""
CONFLICT_TRIES = 3
"""Tries at one node that others write too, in one pass."""
REPORT_SECONDS = 1.0
"""How often reports are sent."""
REPORTS_KEPT_MAX = 1_000
"""Reports that wait for the service. The oldest go, and a pass makes them anew where it matters."""
SAID_KEPT_MAX = 200_000
"""Lines of a dry run that were said, so that each is said once."""
ALIVE_SECONDS = 120.0
"""A pass takes seconds. After so long without one the process is stuck: restart it."""

log = logging.getLogger(__name__)

Thing = TypeVar("Thing")


class Mode(enum.StrEnum):
    """How much it may do."""

    DRY_RUN = "dry-run"
    REPORT = "report"
    ENFORCE = "enforce"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set."""

    mode: Mode = Mode.DRY_RUN
    share_max: float = 0.2
    """Of all nodes, that may have our taint at once, whatever the service says."""
    say: Callable[[str], None] = log.info
    """Where a dry run, and what is written, goes."""


class Done(msgspec.Struct, kw_only=True):
    """What a pass came to."""

    written: int = 0
    left: int = 0
    """What a later pass has to write."""
    refused: tuple[str, ...] = ()


class Controller:
    """One cluster, one service. ``clock``: unix seconds."""

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
        self._cluster = cluster
        self._service = service
        self._leadership = leadership
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self._news = leadership.news
        self.trouble = Trouble()
        self.nodes = Nodes(cluster, self._news)
        self.said = Said(service, self._news, monotonic)
        self._reports: OrderedDict[Report, None] = OrderedDict()
        self._reported: OrderedDict[Report, None] = OrderedDict()
        self._lines: OrderedDict[str, None] = OrderedDict()
        self._passed_s = monotonic()

    # --- running -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as group:
            for what, step in (
                ("nodes", self.nodes.step),
                ("health", self.said.ask_health),
                ("actions", self.said.step_actions),
                ("labels", self.said.step_labels),
                ("passes", self._step),
                ("reports", self._step_reports),
            ):
                group.create_task(keep_on(what, step, self.trouble), name=what)
            if self._options.mode is not Mode.DRY_RUN:
                group.create_task(self._leadership.run(), name="lease")

    async def once(self) -> Done:
        """Ask everything once, write once, give the lease back. Raises what went wrong."""
        await self.nodes.list()
        await self.said.ask_health()
        await self.said.ask_actions()
        await self.said.ask_labels()
        if self._options.mode is Mode.DRY_RUN:
            return await self.reconcile()
        done = Done(left=1)
        try:
            while done.left:
                if not await self._leadership.step():
                    raise ClusterAway(self._leadership.why)
                written = done.written
                done = await self.reconcile()
                done.written += written
            await self._send_reports()
        finally:
            await self._leadership.release()
        return done

    def is_alive(self) -> bool:
        """Whether passes are made; one that waits for the API server counts."""
        return self._monotonic() - self._passed_s < ALIVE_SECONDS

    def state(self) -> dict[str, object]:
        """In a few words, for whoever looks."""
        return {
            "mode": self._options.mode.value,
            "writes": self._leadership.is_held(),
            "nodes": len(self.nodes.by_name),
            "trouble": dict(self.trouble.now),
        }

    async def _step(self) -> None:
        """Wait for news or a while, then make a pass."""
        # Not wait_for: before Python 3.12 it loses a cancellation that comes with the news.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PASS_SECONDS):
                await self._news.wait()
        self._news.clear()
        self._passed_s = self._monotonic()
        if self.nodes.is_listed and self._has_begun() and self._may_write():
            done = await self.reconcile()
            if done.left:
                self._news.set()
            else:
                await asyncio.sleep(PASS_PAUSE_SECONDS)

    def _has_begun(self) -> bool:
        """Whether the service was heard, or was away for as long as we would wait for it.

        Without this every start would turn all conditions to Unknown, and back.
        """
        return self.said.health is not None or self.said.is_silent

    def _may_write(self) -> bool:
        return self._options.mode is Mode.DRY_RUN or self._leadership.is_held()

    # --- a pass --------------------------------------------------------------------------------

    def known(self) -> Known:
        """What the service has said, as it counts now."""
        return know(self.said.health, self.said.actions, self.said.labels)

    async def reconcile(self) -> Done:
        """Hold what is known against all nodes, and write what differs."""
        known = self.known()
        if self._options.mode is Mode.REPORT:
            known = msgspec.structs.replace(known, actions=None)
        now = self._now()
        plan = plan_fleet(self.nodes.by_name.values(), known, now, self._options.share_max)
        for words in plan.refused:
            self._say_once(words)
        if self._options.mode is Mode.DRY_RUN:
            for write in plan.writes:
                if write.urgency is not Urgency.HEARTBEAT:
                    self._say_once(f"would write {write.words}")
            return Done(refused=tuple(plan.refused))
        for report in plan.reports:
            self._tell(report)
        done = Done(left=len(plan.writes), refused=tuple(plan.refused))
        for write in plan.writes[:WRITES_A_PASS_MAX]:
            if not self._leadership.is_held():
                break
            done.written += await self._apply(write, known)
            done.left -= 1
            await asyncio.sleep(1 / WRITES_A_SECOND_MAX)
        return done

    async def _apply(self, write: Write, known: Known) -> bool:
        """Write one thing; whether it was done. Raises when the API server is away or refuses."""
        current: Write | None = write
        try:
            for _ in range(CONFLICT_TRIES):
                if current is None or not self._leadership.is_held():
                    return False
                try:
                    await self._patch(current)
                except ObjectChanged:
                    current = await self._again(current, known)
                else:
                    return True
        except ObjectMissing:
            self.nodes.drop(write.node)
        except (ClusterAway, ClusterRefused) as error:
            self._tell_failed(write, error)
            raise
        except ClusterOdd as error:
            # One odd node never hides the others.
            self._tell_failed(write, error)
            self._say_once(f"{write.node}: not written: {error}")
        return False

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
        for report in write.reports:
            self._tell(report)

    async def _again(self, write: Write, known: Known) -> Write | None:
        """The same write for the node as it is now; None if it is no longer needed."""
        node = await self._cluster.get_node(write.node)
        self.nodes.put(node)
        planned = plan_node(node, known, self._now())
        return next((each for each in planned if each.is_status == write.is_status), None)

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)

    def _say_once(self, words: str) -> None:
        """Say what every pass finds again, once."""
        if words not in self._lines:
            self._options.say(words)
            remember(self._lines, words, SAID_KEPT_MAX)

    # --- reports -------------------------------------------------------------------------------

    def _tell_failed(self, write: Write, error: ClusterError) -> None:
        """Tell the service that an action could not be applied."""
        for report in write.reports:
            self._tell(Report(report.action, "failed", str(error)))

    def _tell(self, report: Report) -> None:
        """Tell the service, once."""
        if report not in self._reported and report not in self._reports:
            remember(self._reports, report, REPORTS_KEPT_MAX)

    async def _step_reports(self) -> None:
        await self._send_reports()
        await asyncio.sleep(REPORT_SECONDS)

    async def _send_reports(self) -> None:
        """Send what waits; an action that the service does not know is told about in vain."""
        while self._reports:
            report = next(iter(self._reports))
            try:
                await self._service.report(report)
            except Odd as error:
                log.warning("the service does not take what we say: %s", error)
            self._reports.pop(report, None)
            remember(self._reported, report, REPORTS_KEPT_MAX)


def remember(memory: OrderedDict[Thing, None], thing: Thing, limit: int) -> None:
    """Keep one more; past the bound the oldest goes."""
    memory[thing] = None
    if len(memory) > limit:
        memory.popitem(last=False)


NOT_DONE = (ClusterError, Away, Refused, Odd)
"""What `once` raises when something went wrong."""
