"""The task that evaluates rule groups, each at its interval, in the one process that it is of.

A group's moments are multiples of its interval plus an offset by its name, as Prometheus has them:
a restart keeps the rhythm, and not all groups are evaluated at once. Moments at which the
last evaluation was still running are left out and counted. Alerts are kept in the inventory before
receivers are notified; a process that has lost the lease meanwhile notifies none. Of several
processes each evaluates the groups whose lease it has (`api.oncall.evaluate.members`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

import msgspec

from alerts.rulebook.model import Alert, AlertState, Group, Rule
from api.base.limits import ALERTS_MAX
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.base.threads import Threads
from api.data.ingest.commit import Overloaded
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.oncall.rules.evaluate import (
    Asker,
    Explain,
    Moment,
    RuleEvaluator,
    RuleOutcome,
    is_held,
    needs,
)
from api.oncall.rules.leads import GroupLeads, Turn
from api.oncall.rules.run import GroupRun, explain_all
from api.oncall.rules.shelf import Shelf
from api.oncall.rules.state import GroupDocument, GroupState, Keeper, StandingAlerts, recall
from api.promql.arrange import Stored
from collector.contract.errors import InventoryError, SettingsError, StoreError
from collector.contract.units import NS

GROUPS_AT_ONCE = 2
"""Groups that are evaluated at once: each asks one question at a time, and questions are of most
use to the cores when there are as many as these. Groups past it begin late."""
FILES_SECONDS = 5.0
"""How often rule files are checked, and an unavailable inventory is retried."""
TICK_SECONDS = 0.5
"""How often it is looked whether a group is due; no rule needs its moment more exactly, since the
moment that it is evaluated for is exact in any case."""
GROUP_INTERVAL_S_MIN = 1.0
"""A group that asks for a shorter interval gets this one: agents report every five seconds."""
STOP_TRIES = 50
STOP_AGAIN_SECONDS = 0.1
"""Questions that are stopped when the service stops get five seconds to end."""

Notify = Callable[[Group, Sequence[Alert], int], Awaitable[None]]
"""Notifies: the group, all of its alerts, those lately resolved too, and the moment (ns)."""
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class LostLead(Exception):  # noqa: N818 - reads as the statement it is
    """Another process evaluates by now: nothing was kept."""


def as_they_are(alerts: Sequence[Alert]) -> Sequence[Alert]:
    return alerts


async def no_notification(group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
    del group, alerts, now_ns


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """What other parts do with alerts. `explain` runs in a thread."""

    explain: Explain = as_they_are
    notify: Notify = no_notification


NO_HOOKS = Hooks()


def aligned_ns(key: str, interval_s: float, now_ns: int) -> int:
    """The last moment of a group, now or before: on a whole second, if the interval has any.

    >>> aligned_ns("a;b", 30, 10**18) - aligned_ns("a;b", 30, 10**18 - 30 * NS) == 30 * NS
    True
    """
    interval_ns = round(interval_s * NS)
    offset = int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % interval_ns
    offset_ns = offset - offset % NS
    return now_ns - (now_ns - offset_ns) % interval_ns


class RuleTask:
    """Evaluates the groups that are this process'. Belongs to the event loop. ``clock``: unix s."""

    def __init__(  # noqa: PLR0913 - the parts that it joins
        self,
        shelf: Shelf,
        asker: Asker,
        evaluator: RuleEvaluator,
        inventory: Inventory,
        leads: GroupLeads,
        own: OwnSamples,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        *,
        interval_s: float,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self._shelf = shelf
        self._asker = asker
        self._evaluator = evaluator
        self._inventory = inventory
        self._leads = leads
        self._keeper = Keeper(inventory, leads, metrics)
        # Groups that write at the same time may both write a new series' labels: no harm.
        self._own = own
        self._metrics = metrics
        self._clock = clock
        self._interval_s = interval_s
        self._hooks = hooks
        self._states: dict[str, GroupState] | None = None
        """Of this process' groups. None: it has none, or the states have to be read again."""
        self._held: frozenset[Turn] = frozenset()
        """The leases that were held when the states were last read."""
        self._last_ns: dict[str, int] = {}
        """The moment of each group that was evaluated last, or was the last when it came up."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._threads = Threads(GROUPS_AT_ONCE, work="rules")
        self._is_failing = False
        self._broken: set[str] = set()
        """Groups whose last evaluation ended by a bug."""
        metrics.watch("fabric_service_rule_parts", lambda: float(len(leads.held())))
        for state in (AlertState.PENDING, AlertState.FIRING):
            metrics.watch(
                "fabric_service_alerts",
                lambda state=state: float(self._count(state)),  # type: ignore[misc]
                state=state.value,
            )

    # --- the clock -----------------------------------------------------------------------------

    async def run(self, steady: Steady) -> None:
        looked = float("-inf")
        try:
            while True:
                if time.monotonic() - looked >= FILES_SECONDS:
                    looked = time.monotonic()
                    with steady.round():
                        await asyncio.to_thread(self._shelf.look)
                        await self.prepare()
                self._begin()
                pause = asyncio.create_task(asyncio.sleep(TICK_SECONDS))
                either = {pause, *self._running.values()}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
                self._reap()
        except asyncio.CancelledError:
            await self._stop_asking()  # only when the service stops
            raise
        finally:
            await self._end_running()  # after a bug it is started again: none must run twice

    async def prepare(self) -> bool:
        """Read the states, if groups are this process'; whether any are."""
        held = self._leads.held()
        if not held:
            self.forget()
            return False
        if self._states is None and self._running:
            return False  # they will still write: the states are not known before
        if self._states is None or held != self._held:
            try:
                read = await asyncio.to_thread(recall, self._inventory)
            except (InventoryError, SettingsError) as error:
                self._say("inventory_away", str(error))
                return False
            self._adopt(read, held)
        return True

    def _adopt(self, read: Mapping[str, GroupState], held: frozenset[Turn]) -> None:
        """Go on with the groups that are this process' now, of those that it had from memory."""
        is_of = self._leads.is_of
        stayed = self._held & held if self._states is not None else frozenset()
        kept = {key: one for key, one in (self._states or {}).items() if is_of(key, stayed)}
        new = {key: one for key, one in read.items() if is_of(key, held - stayed)}
        self._states = {**new, **kept}
        self._last_ns = {key: last for key, last in self._last_ns.items() if is_of(key, stayed)}
        self._held = held

    async def once(self) -> int:
        """Evaluate all groups that are due now, and wait for them; returns their number."""
        await asyncio.to_thread(self._shelf.look)
        if not await self.prepare():
            return 0
        due = self.due()
        for group, moment_ns in due:
            await self.evaluate(group, moment_ns)
        return len(due)

    def forget(self) -> None:
        self._states, self._held = None, frozenset()
        self._last_ns.clear()
        self._metrics.vitals.rules.rest()

    def due(self) -> list[tuple[Group, int]]:
        """Longest waiting first. A new group begins at its next moment, as in Prometheus.

        One that another process evaluated begins at the first moment that is not that one's.
        """
        if self._states is None:
            return []
        now_ns = round(self._clock() * NS)
        found: list[tuple[int, Group, int]] = []
        for group in self._all_groups(self._states):
            lead = self._leads.of(group.key)
            if not lead.is_held() or not self._leads.is_of(group.key, self._held):
                continue
            interval_s = self.interval_of(group)
            moment_ns = aligned_ns(group.key, interval_s, now_ns)
            last_ns = self._last_ns.setdefault(group.key, moment_ns)
            interval_ns = round(interval_s * NS)
            if moment_ns < last_ns - interval_ns:
                log.warning("the clock went back: %s is evaluated anew from there", group.key)
                self._last_ns[group.key] = moment_ns
            is_due = moment_ns > last_ns and lead.may_write(moment_ns)
            if is_due and group.key not in self._running:
                found.append((last_ns + interval_ns, group, moment_ns))
        found.sort(key=lambda each: each[0])
        return [(group, moment_ns) for _, group, moment_ns in found]

    def interval_of(self, group: Group) -> float:
        return max(group.interval_s or self._interval_s, GROUP_INTERVAL_S_MIN)

    def _all_groups(self, states: Mapping[str, GroupState]) -> list[Group]:
        groups = {group.key: group for group in self._shelf.groups}
        for key, state in states.items():
            if key not in groups:
                groups[key] = Group(file=state.file, name=state.name, rules=())
        return list(groups.values())

    def _begin(self) -> None:
        room = GROUPS_AT_ONCE - len(self._running)
        if room <= 0:
            return
        for group, moment_ns in self.due()[:room]:
            self._running[group.key] = asyncio.create_task(
                self.evaluate(group, moment_ns), name=f"rules {group.key}"
            )

    def _reap(self) -> None:
        """Forget finished evaluations; what became of each is counted in `evaluate`."""
        for key, task in list(self._running.items()):
            if task.done():
                del self._running[key]

    async def _end_running(self) -> None:
        running, self._running = self._running, {}
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)

    async def _stop_asking(self) -> None:
        await self._end_running()
        for _ in range(STOP_TRIES):
            if await asyncio.to_thread(self._asker.stop):
                break
            await asyncio.sleep(STOP_AGAIN_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- one group -----------------------------------------------------------------------------

    async def evaluate(self, group: Group, moment_ns: int) -> None:
        """Evaluate a group for a moment. What cannot be kept is logged, and evaluated again."""
        states = self._states
        if states is None:
            return
        self._note_moment(group, moment_ns)
        state = states.setdefault(group.key, GroupState(group.file, group.name))
        started = time.perf_counter()
        try:
            if not group.rules and not self._shelf.knows(group.file):
                await self._hooks.notify(group, state.all_alerts(), moment_ns)
                return
            await self._evaluate(group, state, moment_ns)
        except (InventoryError, SettingsError) as error:
            self._states = None  # the inventory may have kept it nevertheless
            self._say("inventory_away", str(error))
        except LostLead:
            self._states = None
            self._say("lost", "another process does it")
        except (StoreError, Overloaded) as error:
            self._say("store_away", str(error))
        except Exception:
            # This group alone: its alerts stay as they are, and it is due again at its next moment.
            if group.key not in self._broken:
                log.exception("rule group %s broke", group.key)
            self._broken.add(group.key)
            self._metrics.rule_rounds.labels("broken").inc()
        else:
            self._broken.discard(group.key)
            self._say("done", "")
        finally:
            self._metrics.rule_group_seconds.observe(time.perf_counter() - started)

    def _note_moment(self, group: Group, moment_ns: int) -> None:
        """Count the moments since the last one that were left out."""
        interval_ns = round(self.interval_of(group) * NS)
        last_ns = self._last_ns.get(group.key, moment_ns - interval_ns)
        missed = max(0, (moment_ns - last_ns) // interval_ns - 1)
        self._metrics.rule_groups_missed.inc(missed)
        self._last_ns[group.key] = moment_ns

    async def _evaluate(self, group: Group, state: GroupState, moment_ns: int) -> None:
        """Evaluate, explain, keep, write, notify: in this order."""
        interval_s = self.interval_of(group)
        state.resume(group, moment_ns, interval_s)
        started = time.perf_counter()
        at = self._asker.prepare(group, Moment.of(group, moment_ns, interval_s))
        run = GroupRun(group, state, at)
        for place in range(len(group.rules)):
            await self._evaluate_rule(run, place)
        run.end_what_is_gone()
        alerts = await self._in_thread(lambda: explain_all(run.alerts, self._hooks.explain))
        document = run.document(time.perf_counter() - started)
        await self._keep(group, state, alerts, document)
        state.alerts = alerts
        # Notified before the series are written: an unavailable store delays no page.
        await self._hooks.notify(group, state.all_alerts(), moment_ns)
        self._metrics.rule_samples_left_out.inc(run.left_out)
        # Should the store fail, the next evaluation marks what has ended.
        state.series = run.with_what_was()
        await self._own.write(run.unwritten)
        state.series = run.series

    async def _keep(
        self,
        group: Group,
        state: GroupState,
        alerts: Mapping[str, StandingAlerts],
        document: GroupDocument,
    ) -> None:
        """Keep the state; forget a group that has ended and whose notifications are all sent."""
        given = {rule: list(some.values()) for rule, some in alerts.items()}
        if not group.rules and not any(given.values()):
            is_kept = await asyncio.to_thread(self._keeper.forget, state.key)
            if is_kept and self._states is not None:
                self._states.pop(state.key, None)
                self._last_ns.pop(state.key, None)
        else:
            is_kept = await asyncio.to_thread(self._keeper.keep, state, given, document)
        if not is_kept:
            raise LostLead

    def _add(self, run: GroupRun, rule: Rule) -> bool:
        """Add what earlier rules recorded to what was read ahead; whether the rule reads it there.

        Else the store has to have it first. It alone finds series by their labels, so it has to
        have those that are new, too.
        """
        ahead = run.at.ahead
        if ahead is None:
            return False
        columns, is_known = self._own.preview(run.unwritten[run.added :])
        ahead.add(columns.metric, Stored(columns.series, columns.time_ms, columns.value))
        run.added, run.has_new = len(run.unwritten), run.has_new or not is_known
        return not run.has_new and is_held(rule, run.unwritten_names, ahead)

    async def _evaluate_rule(self, run: GroupRun, place: int) -> None:
        """Evaluate one rule, after the samples that it may read have been written."""
        rule, name = run.group.rules[place], run.ids[place]
        if needs(rule, run.unwritten_names) and not await self._in_thread(
            lambda: self._add(run, rule)
        ):
            try:
                await self._own.write(run.unwritten, at_once=True)
                run.written()
            except (StoreError, Overloaded) as error:
                run.fail(place, f"what earlier rules recorded cannot be written: {error}")
                return
        standing = run.state.alerts.get(name, {})
        outcome = await self._in_thread(
            lambda: self._evaluator.evaluate(run.group, rule, standing, run.at)
        )
        others = sum(each.alert_count() for each in (self._states or {}).values())
        if outcome.alerts is not None and (
            others + len(outcome.alerts) - len(standing) > max(ALERTS_MAX, others)
        ):
            outcome = RuleOutcome(
                seconds=outcome.seconds,
                error=f"{len(outcome.alerts)} alerts beside {others} that stand; "
                f"ALERTS_MAX is {ALERTS_MAX}",
            )
        run.take(place, outcome)
        self._metrics.rule_evaluations.inc()
        self._metrics.rule_seconds.observe(outcome.seconds)
        if outcome.error:
            self._metrics.rule_failures.inc()
            if run.state.document is None or place not in run.state.document.health.errors:
                log.warning("rule %s of %s: %s", rule.name, run.group.key, outcome.error)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # --- results --------------------------------------------------------------------------

    def _say(self, outcome: str, why: str) -> None:
        """Count how an evaluation ended; log an error when it begins."""
        self._metrics.rule_rounds.labels(outcome).inc()
        pulse = self._metrics.vitals.rules
        if outcome == "lost":
            pulse.rest()
        elif why:
            pulse.fail(why)
        else:
            pulse.succeed()
        if why and not self._is_failing:
            log.warning("rules cannot be evaluated: %s", why)
        self._is_failing = bool(why)

    def _count(self, state: AlertState) -> int:
        states = list((self._states or {}).values())
        return sum(alert.state is state for each in states for alert in each.all_alerts())
