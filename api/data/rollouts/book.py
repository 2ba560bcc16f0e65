"""Roll-outs as a service process knows them: notices for receipts, agents' reports, the next step.

Agents call the service, never the other way round: the receipt of an agent's next batch carries
what it should run, until it has reported that. Everything is kept in the inventory, so that an
agent can talk to any process. Whether there is news comes with what each process reads every second
in any case (`api.data.captures`), and the one that leads moves roll-outs on. Where nothing is
rolled out nothing is read, a receipt costs one look into a dictionary, and agents do nothing.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from api.base.metrics import ServiceMetrics
from api.base.rollout_limits import (
    CONFIGURATION_AGENTS_MAX,
    CONFIGURATION_REPORTS_MAX,
    ROLLOUT_LOOK_SECONDS,
    ROLLOUT_SILENT_SECONDS,
)
from api.data.exchange import Exchange
from api.data.inventory.orders import Mark
from api.data.inventory.repository import Inventory
from api.data.inventory.rollout_model import AgentConfiguration, Rollout, RolloutState, Version
from api.data.rollouts.reports import updated
from api.data.rollouts.stages import HostState, Tally, decide, tally, wanted
from collector.contract.model import Event
from collector.contract.rollout import KIND, LOCAL_VERSION
from collector.contract.wire import ConfigurationNotice

log = logging.getLogger(__name__)

MOVING = frozenset({RolloutState.ROLLING, RolloutState.WAITING})


class RolloutBook:
    """What this process knows. For any thread."""

    def __init__(
        self,
        inventory: Inventory,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        leads: Callable[[], bool],
    ) -> None:
        self._tables = inventory.rollouts
        self._metrics = metrics
        self._clock = clock
        self._leads = leads
        self._lock = threading.Lock()
        self._latest: Version | None = None
        self._base_notice = ConfigurationNotice(version=LOCAL_VERSION)
        self._agents: dict[str, AgentConfiguration] = {}
        self._unwritten: dict[str, AgentConfiguration] = {}
        self._read_at: dt.datetime | None = None
        """When reports were read last; None: not since this process began."""
        self._looked_s = float("-inf")
        """By a clock that is never set."""
        self._tally: Tally | None = None
        self.look = Exchange("roll-outs", self._exchange).look
        """Write reports, read news, and move the roll-out on where this process leads."""
        for state in HostState:
            metrics.watch("fabric_service_rollout_hosts", partial(self._count, state), state=state)
        metrics.watch("fabric_service_rollout_stopped", self._is_stopped)

    # --- receipts and batches ------------------------------------------------------------------

    def of(self, agent: str) -> ConfigurationNotice | None:
        """What the receipt of an agent carries; None for all that run what they should."""
        known, latest = self._agents.get(agent), self._latest
        if known is None or latest is None:
            return None
        version = wanted(latest.rollout, known)
        if version == known.good and known.trying is None:
            return None
        if version != latest.version:
            return self._base_notice if self._base_notice.version == version else None
        return ConfigurationNotice(
            version=version,
            sha256=latest.sha256,
            signature=latest.signature,
            trial_seconds=latest.rollout.trial_seconds,
        )

    def note(self, agent: str, events: Iterable[Event]) -> None:
        """Take the reports among an agent's own events."""
        for event in events:
            if event.kind != KIND:
                continue
            with self._lock:
                known = self._agents.get(agent)
                report = updated(known, agent, event, self._now())
                is_full = len(self._unwritten) >= CONFIGURATION_REPORTS_MAX
                is_new = known is None and len(self._agents) >= CONFIGURATION_AGENTS_MAX
                if report is None or is_full or is_new:
                    rule = "malformed" if report is None else "too_many"
                    self._metrics.rollout_reports_dropped.labels(rule).inc()
                    continue
                self._agents[agent] = self._unwritten[agent] = report

    # --- the inventory -------------------------------------------------------------------------

    def is_due(self, newest: Mark | None) -> bool:
        """Whether to look; ``newest``: the configuration that the inventory has now."""
        latest = self._latest
        known = None if latest is None else (latest.version, latest.revision)
        if newest not in {None, known}:
            return True
        is_moving = latest is not None and latest.rollout.state in MOVING
        is_late = time.monotonic() - self._looked_s >= ROLLOUT_LOOK_SECONDS
        return is_late and (is_moving or bool(self._unwritten))

    def _exchange(self) -> None:
        self._looked_s = time.monotonic()
        with self._lock:
            unwritten = list(self._unwritten.values())
        if unwritten:
            self._tables.write_reports(unwritten)
            with self._lock:
                for each in unwritten:
                    if self._unwritten.get(each.agent) is each:
                        del self._unwritten[each.agent]
        latest = self._tables.latest()
        is_news = latest != self._latest
        if latest is None:
            return
        if self._read_at is None or is_news:
            self._read_reports(None)  # also without those of hosts that were removed
        elif latest.rollout.state in MOVING:
            self._read_reports(self._read_at)
        if is_news:
            self._base_notice = self._notice_of(latest.rollout.base)
            self._latest = latest
        if latest.rollout.state in MOVING and self._leads():
            self._move(latest)
        elif is_news or unwritten:
            self._tally = tally(latest.rollout, self.agents(), ())

    def _read_reports(self, since: dt.datetime | None) -> None:
        """All, or what is new since a moment; what was not written yet counts more."""
        found = self._tables.reports(since)
        with self._lock:
            if since is None:
                self._agents = dict(self._unwritten)
            for each in found:
                known = self._agents.get(each.agent)
                if known is None or known.at <= each.at:
                    self._agents[each.agent] = each
        self._read_at = max((each.heard_at for each in found), default=self._read_at or self._now())

    def _move(self, latest: Version) -> None:
        now, agents = self._now(), self.agents()
        reporting = self.reporting()
        self._tally = tally(latest.rollout, agents, reporting)
        rollout = decide(latest.rollout, agents, reporting, now)
        if rollout is latest.rollout or not self._tables.change(latest, rollout):
            return
        words = f"{rollout.state.value} at {rollout.share:g} %"
        level = logging.WARNING if rollout.state is RolloutState.STOPPED else logging.INFO
        log.log(level, "configuration %d: %s; %s", rollout.version, words, rollout.reason or "-")
        self._metrics.rollout_steps.labels(rollout.state.value).inc()
        self._latest = self._tables.latest()

    def _notice_of(self, version: int) -> ConfigurationNotice:
        """Of the version that agents go back to, without a trial: it was good before."""
        found = self._tables.get(version) if version != LOCAL_VERSION else None
        if found is None:
            return ConfigurationNotice(version=LOCAL_VERSION)
        return ConfigurationNotice(
            version=version, sha256=found.sha256, signature=found.signature, trial_seconds=0.0
        )

    # --- answers -------------------------------------------------------------------------------

    def agents(self) -> list[AgentConfiguration]:
        with self._lock:
            return list(self._agents.values())

    def reporting(self) -> frozenset[str]:
        """Agents that take part and of which a batch came lately."""
        return self._tables.heard_since(self._now() - dt.timedelta(seconds=ROLLOUT_SILENT_SECONDS))

    def tally_of(self, rollout: Rollout) -> Tally:
        """How far a roll-out is, by the inventory."""
        return tally(rollout, self._tables.reports(), self.reporting())

    def _count(self, state: HostState) -> float:
        return float(self._tally.counts[state]) if self._tally is not None else 0.0

    def _is_stopped(self) -> float:
        """Only what the service stopped by itself: an operator who stops it knows."""
        latest = self._latest
        if latest is None or latest.rollout.state is not RolloutState.STOPPED:
            return 0.0
        return 0.0 if latest.rollout.by else 1.0

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)
