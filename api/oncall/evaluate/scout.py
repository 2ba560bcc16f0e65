"""Looks at jobs for the judge: evaluators that do not judge share what a round costs most.

One process judges, with all machines, cables and jobs in one window, since a verdict on a link
needs every job that crosses it. What it does not need are the records of jobs that keep their pace
and of which nothing is found (`api.oncall.evaluate.resting`). To know which these are takes a look
at each, and that is shared: each job belongs to one evaluator, by a hash. Its owner listens to the
job's pace in every round, looks at it as the judge would, and notes in the inventory whether it is
quiet. The judge looks itself at a job that is not, in its next round.

A note is no verdict: two owners at once, or none for some seconds, cost a look and change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from alerts.window.model import JobWindow, Window
from api.data.inventory.leases import Look
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import said_moment
from api.oncall.evaluate.members import Members, owner_of
from api.oncall.evaluate.resting import Resting, shape_of
from collector.contract.units import NS

LOOK_SECONDS: Final = 180
"""As a round of the judge looks back."""
FRESH_SECONDS: Final = 15
"""A note that is not older counts, three rounds: without one the judge looks itself."""
KEPT_SECONDS: Final = 3_600
"""How long notes of jobs that are over are kept."""

ReadOwn = Callable[[int, int, Mapping[str, JobWindow], Callable[[str], bool]], Window]
"""The window from one time to another (unix nanoseconds), with these jobs at rest, and with no
others than those of which the last argument is true."""

log = logging.getLogger(__name__)


class Scout:
    """Looks at this process' jobs, round by round. For one thread at a time."""

    def __init__(
        self,
        read: ReadOwn,
        resting: Resting,
        panel: GuardedDetectors,
        inventory: Inventory,
        members: Members,
        clock: Callable[[], float],
    ) -> None:
        self._read = read
        self._resting = resting
        self._panel = panel
        self._inventory = inventory
        self._members = members
        self._clock = clock
        self.is_idle = True

    def forget(self) -> None:
        if not self.is_idle:
            self._resting.forget()
        self.is_idle = True

    def look(self, now_ns: int) -> list[Look]:
        """One round: what is noted of this process' jobs. Raises StoreError or InventoryError."""
        members, me = self._members.settled, self._members.holder
        if len(members) < 2:  # noqa: PLR2004 - there is no other
            self.forget()
            return []
        self.is_idle = False
        at_rest = self._resting.choose((), now_ns)
        from_ns = now_ns - LOOK_SECONDS * NS
        window = self._panel.look(
            lambda: self._read(from_ns, now_ns, at_rest, lambda job: owner_of(job, members) == me)
        )
        if window is None:
            return []
        findings = self._panel.find(window) if window.looked else []
        self._resting.learn(window, findings, ())
        looks = [
            Look(
                job=job.job,
                holder=me,
                looked_ns=now_ns,
                is_quiet=self._resting.is_quiet(job.job),
                shape=shape_of(job),
            )
            for job in window.jobs
        ]
        if looks and not self._inventory.leases.keep_looks(
            looks,
            holder=me,
            now=said_moment(self._clock),
            kept_ns=now_ns - KEPT_SECONDS * NS,
        ):
            log.info("looks at %d jobs are not kept: this process' lease has ended", len(looks))
        return looks


class Watched:
    """What the judge knows of jobs that others look at."""

    def __init__(self, inventory: Inventory, members: Members) -> None:
        self._inventory = inventory
        self._members = members

    def looks(self, now_ns: int) -> dict[str, Look]:
        """Fresh notes, by job. Asks nothing where this process evaluates alone."""
        members, me = self._members.settled, self._members.holder
        if len(members) < 2:  # noqa: PLR2004 - there is no other
            return {}
        found = self._inventory.leases.looks(now_ns - FRESH_SECONDS * NS)
        return {
            one.job: one
            for one in found
            if one.holder != me and one.holder in members and one.looked_ns <= now_ns
        }
