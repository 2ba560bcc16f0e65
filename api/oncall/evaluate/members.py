"""Evaluators that share the work: who is there, and which task is whose.

Each process that evaluates is a member, by a lease of its own in the inventory. Every task has a
lease, too, and belongs to the member that weighs most for it (rendezvous hashing): when a member
comes or goes, only its own tasks move. A task whose lease runs is never taken: a member that should
not have it any longer gives it up first, and one that died keeps it until its lease has ended.

Judging (`EVALUATOR`) stays where it is while its holder lives: what the judge remembers of the last
half hour makes it surer, and another would begin without.

A member that is alone pays two statements every RENEW_SECONDS, as a single lease would cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from api.base.clocks import TrustedClock
from api.base.steady import Steady
from api.base.vitals import Pulse, Vitals
from api.data.inventory.leases import MEMBER, Standing
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import (
    EVALUATOR,
    LEASE,
    LEASE_SECONDS,
    RENEW_SECONDS,
    Lead,
    name_holder,
    said_moment,
    steady_of,
)
from collector.contract.errors import InventoryError
from collector.contract.units import NS

ROLL, HEALTH, WATCH, NOTICES = "roll", "health", "watch", "notices"
"""Collectives into series; health and actions; ports, jobs and what is forgotten; planning and
sending of notices."""
RULE_SHARES: Final = 8
"""Parts of the rule groups (`api.oncall.rules.leads`): so many members may evaluate rules."""
RULES: Final = tuple(f"rules/{number}" for number in range(RULE_SHARES))
TASKS: Final = (EVALUATOR, ROLL, HEALTH, WATCH, NOTICES, *RULES)

SETTLE_SECONDS = 15.0
"""A member that is there for so long gets tasks that others have; what is free it takes at once.
One that dies again and again moves nothing."""
FORGET_SECONDS = 3_600.0
"""How often members that are gone are deleted."""

log = logging.getLogger(__name__)


def owner_of(task: str, members: Collection[str]) -> str:
    """The member that a task, or a job, belongs to."""
    return max(members, key=lambda name: (weight(task, name), name))


def weight(task: str, member: str) -> bytes:
    return blake2b(f"{task}\0{member}".encode(), digest_size=8).digest()


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """What a member does about the tasks."""

    own: Mapping[str, Standing]
    """Those that it has, and keeps."""
    left: tuple[str, ...]
    """Those that it has, and gives up."""
    free: tuple[str, ...]
    """Those that it takes, if they are still free."""


def share_out(
    tasks: Iterable[str], rows: Iterable[Standing], me: str, *, is_alone: bool
) -> tuple[Shares, frozenset[str]]:
    """What is whose, and the members that are settled, ``me`` among them. Pure.

    A judge that is no member is a release that knows of none, and does all of the work: until it
    has ended, nothing is taken.
    """
    by_task = {row.task: row for row in rows}
    ages = {
        row.holder: row.age_s
        for row in by_task.values()
        if row.task.startswith(MEMBER) and row.is_live and not is_alone
    }
    live = {me, *ages}
    settled = frozenset({me, *(name for name, age_s in ages.items() if age_s >= SETTLE_SECONDS)})
    judge = by_task.get(EVALUATOR)
    is_shared = judge is None or not judge.is_live or judge.holder in live or is_alone
    own, left, free = {}, [], []
    for task in tasks:
        row = by_task.get(task)
        if row is not None and row.holder == me:
            own[task] = row
            if task != EVALUATOR and owner_of(task, settled) != me:
                left.append(task)
        elif is_shared and (row is None or not row.is_live or is_alone):
            free.append(task)
    mine = tuple(task for task in free if owner_of(task, live) == me)
    return Shares(own=own, left=tuple(left), free=mine), settled


class Members:
    """This process among those that evaluate. ``clock``: unix seconds; see `Lead` for the rest."""

    def __init__(
        self,
        inventory: Inventory,
        clock: Callable[[], float],
        *,
        holder: str = "",
        is_alone: bool = False,
        pulse: Pulse | None = None,
        trusted: TrustedClock | None = None,
    ) -> None:
        self.holder = holder or name_holder()
        self._inventory = inventory
        self._clock = clock
        self._steady = steady_of(clock)
        self._is_alone = is_alone
        self._by_force = is_alone
        self._pulse = pulse or Vitals().inventory
        self._trusted = trusted
        self.leads = {
            task: Lead(inventory, clock, task=task, holder=self.holder, trusted=trusted)
            for task in TASKS
        }
        self._settled: frozenset[str] = frozenset({self.holder})
        self._until_s = float("-inf")
        self._forgotten_s = self._steady()
        self._is_failing = False

    @property
    def judge(self) -> Lead:
        return self.leads[EVALUATOR]

    @property
    def of_rules(self) -> list[Lead]:
        return [self.leads[task] for task in RULES]

    @property
    def settled(self) -> frozenset[str]:
        """The members that share jobs, as this one last saw them; none while it cannot renew."""
        return self._settled if self._steady() < self._until_s else frozenset()

    async def run(self, steady: Steady) -> None:
        try:
            while True:
                with steady.round():
                    await asyncio.to_thread(self.renew)
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            self.release()

    def renew(self) -> None:
        """Renew what this process has, give up what is another's, take what is free and its own."""
        if self._trusted is not None and not self._trusted.is_steady():
            return  # what it has ends by itself, and others take it
        had = self.judge.is_held()
        try:
            self._renew()
        except InventoryError as error:
            if not self._is_failing:
                log.warning("whether this process evaluates cannot be asked: %s", error)
            self._is_failing = True
            self._pulse.fail(str(error))
            return
        self._is_failing = False
        self._pulse.succeed()
        if (has := self.judge.is_held()) != had:
            log.info("this process evaluates" if has else "another process evaluates")

    def _renew(self) -> None:
        asked_s, now = self._steady(), said_moment(self._clock)
        to_ns = round((self._clock() + LEASE_SECONDS) * NS)
        leases = self._inventory.leases
        own = f"{MEMBER}{self.holder}"
        rows = leases.renew(self.holder, now, LEASE, samples_until=to_ns)
        shares, settled = share_out(TASKS, rows, self.holder, is_alone=self._is_alone)
        for task, lead in self.leads.items():
            if task in shares.left:
                lead.extend(asked_s)
            elif task in shares.own:
                lead.grant(asked_s, to_ns)
            else:
                lead.lose()
        self._settled, self._until_s = settled, asked_s + LEASE_SECONDS
        for task in shares.left:
            self._give_up(self.leads[task])
        free = list(shares.free)
        if not any(row.task == own for row in rows):
            free.append(own)
        if free:
            taken = leases.take_ended(
                free, self.holder, now, LEASE, samples_until=to_ns, by_force=self._by_force
            )
            for task in taken.keys() & self.leads.keys():
                # By force it is taken from the dead, who write nothing more.
                from_ns = 0 if self._by_force else taken[task]
                self.leads[task].grant(asked_s, to_ns, from_ns)
            if taken.keys() & self.leads.keys():
                log.info("this process takes %s", ", ".join(sorted(taken.keys() - {own})))
        self._by_force = False
        if asked_s - self._forgotten_s >= FORGET_SECONDS:
            self._forgotten_s = asked_s
            leases.forget_members(now)

    def _give_up(self, lead: Lead) -> None:
        """Another member gets the task, once nothing of it is under way here."""
        to_ns = lead.leave()
        if not lead.is_busy:
            lead.lose()
            self._inventory.leases.release(lead.task, self.holder, said_moment(self._clock), to_ns)
            log.info("this process hands %s to another", lead.task)

    def release(self) -> None:
        """Hand everything back: the process stops."""
        self._until_s = float("-inf")
        now = said_moment(self._clock)
        with contextlib.suppress(InventoryError):  # leases expire by themselves, a little later
            for lead in self.leads.values():
                lead.release()
            self._inventory.leases.release(f"{MEMBER}{self.holder}", self.holder, now)
