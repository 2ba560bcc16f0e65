"""The fleet's health, judged every two seconds, for clients that ask or subscribe.

Every process judges by the same evidence and the same rules, so all answer alike. States have a
memory (`alerts.health.judge`), which is kept in the inventory as turns: the process that evaluates
writes them, all read them. `look` runs in a thread; everything else belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from alerts.health.judge import stand
from alerts.health.model import SEVERITY, HealthState, Standing, Target, TargetKind, Turn
from api.base.errors import Problem
from api.base.limits import (
    HEALTH_STALE_SECONDS,
    HEALTH_TURNS_A_ROUND_MAX,
    HEALTH_TURNS_PAGE_MAX,
    HEALTH_WAITERS_MAX,
)
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.ingest.commit import Overloaded
from api.data.ingest.own import OwnSamples
from api.data.inventory.health import NumberedTurn
from api.data.inventory.incidents import moment_of
from api.data.inventory.repository import Inventory
from api.fleet.health.answers import Asked, Body, Fleet, HostEntry, reasons_of
from api.fleet.health.evidence import Evidence
from api.fleet.health.series import HealthSeries
from api.oncall.evaluate.changes import Hub
from api.oncall.evaluate.lead import Lead
from collector.contract.errors import InventoryError, StoreError
from collector.contract.units import NS

LOOK_SECONDS = 2.0
"""How often: schedulers ask every second, and an incident takes seconds to become one."""
JUDGE_SECONDS = 10.0
"""Without news everything is judged again this often: risks fade by a hundredth in minutes."""
FIRST_LOOK_SECONDS = 20.0
"""How long a question waits for the first look of a service that has just started."""
SERIES_SECONDS = 15.0
"""How often states and risks are written as samples: as often as people scrape."""

log = logging.getLogger(__name__)


class LastTurn(NamedTuple):
    """The state of a thing by its last turn, and since when."""

    state: HealthState
    since_ns: int


class Looked(NamedTuple):
    """The result of a look."""

    fleet: Fleet
    turns: list[NumberedTurn]
    """Turns since the look before, by any process."""


class HealthMonitor:
    """Keeps the fleet's health in memory. ``clock``: unix seconds."""

    def __init__(
        self,
        evidence: Evidence,
        inventory: Inventory,
        lead: Lead,
        own: OwnSamples,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._evidence = evidence
        self._inventory = inventory
        self._lead = lead
        self._own = own
        self._metrics = metrics
        self._clock = clock
        self._last_turns: dict[Target, LastTurn] = {}
        self._number: int | None = None
        """Of the last turn that was taken in; None: none was read yet."""
        self._is_behind = False
        """Whether turns are waiting to be written."""
        self._judged: Fleet | None = None
        self._retired: Fleet | None = None
        self._judged_ns = 0
        self._well: dict[str, HostEntry] = {}
        self._well_of = (0, 0)
        self._series = HealthSeries()
        self._series_s = float("-inf")
        self._fleet: Fleet | None = None
        self._looked_s = clock()
        self._changed = asyncio.Event()
        self._poked = asyncio.Event()
        self._waiting = 0
        self._is_closed = False
        self.turns: Hub[NumberedTurn] = Hub()
        metrics.watch("fabric_service_health_age_seconds", lambda: clock() - self._looked_s)
        metrics.watch("fabric_service_health_clients", lambda: len(self.turns) + self._waiting)
        for state in HealthState:
            metrics.watch(
                "fabric_service_hosts",
                lambda state=state: self._count(state),  # type: ignore[misc]
                state=state.value,
            )

    def _count(self, state: HealthState) -> float:
        return float(self._fleet.counts[state.value]) if self._fleet is not None else 0.0

    # --- asking --------------------------------------------------------------------------------

    async def latest(self) -> Fleet | None:
        if self._fleet is None:
            await self._wait(FIRST_LOOK_SECONDS)
        is_stale = self._clock() - self._looked_s > HEALTH_STALE_SECONDS
        return None if is_stale else self._fleet

    async def fleet(self) -> Fleet:
        """The fleet; raises a Problem if the last look is too old."""
        fleet = await self.latest()
        if fleet is None:
            age_s = self._clock() - self._looked_s
            why = f"the inventory could not be read for {age_s:.0f} s: states are not known"
            raise Problem(503, "stale health", why, rule="HEALTH_STALE_SECONDS")
        return fleet

    async def body(self, asked: Asked, known: Collection[str] = (), wait_s: float = 0.0) -> Body:
        """The answer to a request; waits, so long at most, for one whose tag the client lacks."""
        deadline = time.monotonic() + wait_s
        while True:
            found = (await self.fleet()).body(asked)
            rest_s = deadline - time.monotonic()
            if found.tag not in known or rest_s <= 0 or self._is_closed:
                return found
            await self._wait(rest_s)

    async def _wait(self, seconds: float) -> None:
        if self._waiting >= HEALTH_WAITERS_MAX:
            why = f"HEALTH_WAITERS_MAX = {HEALTH_WAITERS_MAX} requests wait already; ask without"
            raise Problem(503, "too many wait", why, rule="HEALTH_WAITERS_MAX")
        self._waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        finally:
            self._waiting -= 1

    def poke(self) -> None:
        """Look now: something changed that cannot wait."""
        self._poked.set()

    def close(self) -> None:
        """Release waiting requests: the service stops."""
        self._is_closed = True
        self._changed.set()
        self.turns.close()

    # --- looking -------------------------------------------------------------------------------

    async def run(self, steady: Steady) -> None:
        is_failing = False
        try:
            while True:
                self._poked.clear()
                with steady.round():
                    try:
                        await self.once()
                        is_failing = False
                    except InventoryError as error:
                        if not is_failing:
                            log.warning("the fleet's health cannot be judged: %s", error)
                        is_failing = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._poked.wait()
        finally:
            self.close()

    async def once(self) -> None:
        """One look, passed to subscribers. Raises InventoryError."""
        now_s = self._clock()
        looked = await asyncio.to_thread(self.look, round(now_s * NS))
        self._looked_s = now_s
        if self._fleet is not looked.fleet:
            self._fleet = looked.fleet
            if not self._is_closed:
                self._changed.set()
                self._changed = asyncio.Event()
        for turn in looked.turns:
            self._metrics.live_dropped.inc(self.turns.tell(turn))
        await self._write_series(looked.fleet, now_s)

    async def _write_series(self, fleet: Fleet, now_s: float) -> None:
        if not self._lead.is_held() or 0 <= now_s - self._series_s < SERIES_SECONDS:
            return
        if not self._lead.may_write(round(now_s * NS)):
            return  # the holder before may have written this moment
        self._series_s = now_s
        left_out = self._series.left_out
        samples = self._series.samples(round(now_s * NS), fleet.hosts.values())
        self._metrics.health_left_out.inc(self._series.left_out - left_out)
        try:
            await self._own.write(samples)
        except (StoreError, Overloaded):
            log.debug("health was not written as series; the next time will do")

    def look(self, now_ns: int) -> Looked:
        """Read what is new, judge everything, record turns. Raises InventoryError."""
        turned = self._follow_turns()
        is_new = self._evidence.refresh(now_ns) or bool(turned) or self._is_behind
        is_due = not 0 <= now_ns - self._judged_ns < JUDGE_SECONDS * NS
        if self._judged is not None and not is_new and not is_due:
            return Looked(self._judged, [])
        standings = self._judge(now_ns)
        if self._lead.is_held() and self._write_turns(standings, now_ns):
            turned += self._follow_turns()
        since = {
            target: self._last_turns[target].since_ns
            for target, standing in standings.items()
            if target in self._last_turns and self._last_turns[target].state is standing.state
        }
        hosts = self._host_entries(standings, since)
        fleet = Fleet(hosts, standings, since, self._evidence.stale)
        if self._judged is None or not self._judged.is_like(fleet):
            # The one before is freed here, in this thread: to free 10,000 entries takes a while.
            self._retired, self._judged = self._judged, fleet
        self._judged_ns = now_ns
        return Looked(self._judged, turned)

    def _judge(self, now_ns: int) -> dict[Target, Standing]:
        evidence = self._evidence
        silent = {Target.of_host(host): seen_ns for host, seen_ns in evidence.silent.items()}
        named = {*evidence.charges, *evidence.holds, *silent, *self._last_turns}
        found: dict[Target, Standing] = {}
        for target in named:
            if target.kind is TargetKind.HOST and not self._is_listed(target):
                continue  # a name in a verdict, or a host that is gone
            before = self._last_turns.get(target)
            standing = stand(
                evidence.charges.get(target, ()),
                now_ns,
                before=before.state if before is not None else HealthState.HEALTHY,
                hold=evidence.holds.get(target),
                silent_since_ns=silent.get(target),
            )
            if standing.state is not HealthState.HEALTHY or standing.risk > 0 or before is not None:
                found[target] = standing
        return found

    def _is_listed(self, target: Target) -> bool:
        """Whether a host is in the fleet: a held one is, however long it has been silent."""
        return target.host in self._evidence.hosts or target in self._evidence.holds

    def _host_entries(
        self, standings: Mapping[Target, Standing], since: Mapping[Target, int]
    ) -> dict[str, HostEntry]:
        evidence = self._evidence
        lemons = evidence.lemons
        # Nearly all of 10,000 hosts are healthy, and stay so: their entries are made once.
        if self._well_of != (id(evidence.hosts), id(lemons)):
            self._well_of = (id(evidence.hosts), id(lemons))
            self._well = {host: well_entry(host, lemons) for host in evidence.hosts}
        entries = dict(self._well)
        held = {each.host for each in evidence.holds if each.kind is TargetKind.HOST}
        if not held <= entries.keys():
            names = sorted({*entries, *held})
            entries = {name: entries.get(name) or well_entry(name, lemons) for name in names}
        for target, standing in standings.items():
            if target.kind is TargetKind.HOST:
                entries[target.host] = HostEntry(
                    host=target.host,
                    state=standing.state,
                    risk=standing.risk,
                    lemon=lemons.get(target.host, 0.0),
                    since_ns=since.get(target, 0),
                    reasons=reasons_of(standing),
                )
        return entries

    # --- turns ---------------------------------------------------------------------------------

    def _follow_turns(self) -> list[NumberedTurn]:
        is_first = self._number is None
        found: list[NumberedTurn] = []
        while page := self._inventory.health.turns_after(self._number or 0):
            for each in page:
                if each.turn.state is HealthState.HEALTHY:
                    self._last_turns.pop(each.turn.target, None)
                else:
                    self._last_turns[each.turn.target] = LastTurn(
                        each.turn.state, each.turn.time_ns
                    )
            self._number = page[-1].number
            found += page
            if len(page) < HEALTH_TURNS_PAGE_MAX:
                break
        self._number = self._number or 0
        return [] if is_first else found

    def _write_turns(self, standings: Mapping[Target, Standing], now_ns: int) -> bool:
        """Record states that differ from the last turn; whether there were any."""
        turns = [
            Turn(
                target=target,
                time_ns=now_ns,
                state=standing.state,
                was=before,
                risk=standing.risk,
                why="; ".join(reasons_of(standing)),
            )
            for target, standing in standings.items()
            if standing.state is not (before := self._state_of(target))
        ]
        # The worst first: what does not fit waits for the next look.
        turns.sort(key=lambda turn: (-SEVERITY[turn.state], turn.target))
        self._is_behind = len(turns) > HEALTH_TURNS_A_ROUND_MAX
        return bool(turns) and self._inventory.health.keep_turns(
            turns[:HEALTH_TURNS_A_ROUND_MAX],
            task=self._lead.task,
            holder=self._lead.holder,
            now=moment_of(now_ns),
        )

    def _state_of(self, target: Target) -> HealthState:
        last = self._last_turns.get(target)
        return last.state if last is not None else HealthState.HEALTHY


def well_entry(host: str, lemons: Mapping[str, float]) -> HostEntry:
    """A host without evidence, except perhaps its past."""
    return HostEntry(host=host, state=HealthState.HEALTHY, risk=0.0, lemon=lemons.get(host, 0.0))
