"""The task that evaluates the policy: every few seconds, in the one process that leads.

It records what the policy wants; that alone holds hosts and returns them. When health, lead
or inventory are unavailable nothing is decided, and standing actions go on to their end.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from alerts.health.model import TargetKind
from alerts.policy.action import Action, ActionState
from alerts.policy.decide import Decision, FleetHealth, Memory, decide, look_back_s
from alerts.policy.model import Policy
from alerts.policy.record import record
from api.base.limits import ACTIONS_A_ROUND_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.inventory.actions import LIVE_STATES
from api.data.inventory.incidents import moment_of
from api.data.inventory.repository import Inventory
from api.fleet.actions.policy import PolicyFile
from api.fleet.health.answers import Fleet
from api.fleet.health.board import HealthMonitor
from api.oncall.evaluate.lead import Lead
from collector.contract.errors import InventoryError
from collector.contract.units import NS

DECIDE_SECONDS = 10.0
"""How often: a rule's shortest patience is as long, and an evaluation takes five."""

log = logging.getLogger(__name__)


def name_action(now_ns: int) -> str:
    """A unique id for an action, in order of time."""
    return f"{now_ns // 1_000_000:012x}-{secrets.token_hex(4)}"


def health_of(fleet: Fleet | None) -> FleetHealth:
    """The fleet as a policy sees it; without one everything is stale."""
    if fleet is None:
        return FleetHealth(hosts=(), stale=("health: the states of hosts are not known",))
    hosts = {
        target.host: standing
        for target, standing in fleet.standings.items()
        if target.kind is TargetKind.HOST
    }
    return FleetHealth(hosts=fleet.hosts.keys(), standings=hosts, stale=fleet.stale)


class ActionTask:
    """Evaluates the policy while this process leads. ``clock``: unix seconds."""

    def __init__(
        self,
        file: PolicyFile,
        inventory: Inventory,
        monitor: HealthMonitor,
        lead: Lead,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._file = file
        self._inventory = inventory
        self._monitor = monitor
        self._lead = lead
        self._metrics = metrics
        self._clock = clock
        self._memory = Memory()
        self._is_failing = False
        self._counts: Counter[ActionState] = Counter()
        self._breaker_until_ns: int | None = None
        for state in LIVE_STATES:
            metrics.watch(
                "fabric_service_live_actions",
                lambda state=state: float(self._counts[state]),  # type: ignore[misc]
                state=state.value,
            )
        metrics.watch(
            "fabric_service_action_breaker", lambda: float(self._breaker_until_ns is not None)
        )
        metrics.watch("fabric_service_policy_broken", lambda: float(bool(file.problem)))

    async def run(self, steady: Steady) -> None:
        while True:
            with steady.round():
                await self.once()
            await asyncio.sleep(DECIDE_SECONDS)

    async def once(self) -> Decision | None:
        """One recorded decision; None if another process leads, or reading or writing failed."""
        if not self._lead.is_held():
            # Another process has its own state: what is carried over would be out of date.
            self._memory, self._breaker_until_ns = Memory(), None
            self._counts.clear()
            await asyncio.to_thread(self._file.refresh)  # it is shown here, too
            return None
        health = health_of(await self._monitor.latest())
        now_ns = round(self._clock() * NS)
        try:
            decision, written = await asyncio.to_thread(self._decide, health, now_ns)
        except InventoryError as error:
            if not self._is_failing:
                log.warning("what is done with hosts cannot be decided: %s", error)
            self._is_failing = True
            return None
        self._is_failing = False
        self._tell(decision, written)
        return decision

    def _decide(self, health: FleetHealth, now_ns: int) -> tuple[Decision, list[Action]]:
        policy = self._file.refresh()
        known = self._read(policy, now_ns)
        decision = decide(policy, health, known, self._memory, now_ns)
        records = record(policy, decision, known, now_ns, lambda: name_action(now_ns))
        written: list[Action] | None = []
        begun = records.begun[:ACTIONS_A_ROUND_MAX]
        if begun or records.changed:
            written = self._inventory.actions.keep(
                begun,
                records.changed,
                {each.id: each for each in known},
                task=self._lead.task,
                holder=self._lead.holder,
                now=moment_of(now_ns),
            )
        # Another process decides what this one lost to it.
        self._memory = decision.memory if written is not None else Memory()
        after = {each.id: each for each in (*known, *(written or ()))}
        self._counts = Counter(each.state for each in after.values() if each.is_live(now_ns))
        return decision, written or []

    def _read(self, policy: Policy, now_ns: int) -> list[Action]:
        since = moment_of(now_ns) - dt.timedelta(seconds=look_back_s(policy))
        return self._inventory.actions.for_policy(since)

    def _tell(self, decision: Decision, written: Sequence[Action]) -> None:
        """Count and log the recorded actions, and let the health monitor see them at once."""
        was_open = self._breaker_until_ns is not None
        self._breaker_until_ns = decision.breaker_until_ns
        if decision.breaker_until_ns is not None and not was_open:
            log.error(
                "the policy's breaker is open until %s: too many hosts became due at once",
                f"{moment_of(decision.breaker_until_ns):%Y-%m-%dT%H:%M:%SZ}",
            )
        for action in written:
            why = action.refused or action.ended_why or ""
            self._metrics.actions.labels(action.state.value, str(why)).inc()
            log.info("action %s: %s %s (%s)", action.id, action.host, action.state, action.reason)
        if any(action.state in {ActionState.STANDING, ActionState.ENDED} for action in written):
            self._monitor.poke()
