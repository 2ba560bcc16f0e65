"""Whether this process does a task that only one of several may do: it does while it has the lease.

The lease is a row of the inventory, renewed every few seconds. A process that stops hands it back;
when a process dies its lease expires and another takes over. What the holder writes to the
inventory is refused if the lease has gone to another in the meantime. What it writes to the store
is bounded by time: each holder has a stretch of moments of its own (`Lead.may_write`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator

from api.base.clocks import TrustedClock
from api.base.vitals import Pulse, Vitals
from api.data.inventory.repository import Inventory
from collector.contract.errors import InventoryError
from collector.contract.units import NS

EVALUATOR = "evaluator"
"""The task of judging: windows, verdicts, incidents."""
RENEW_SECONDS = 5.0
LEASE_SECONDS = 20.0
"""After so long without renewal another process takes over: three renewals may fail before that,
and no client waits for a verdict much longer than usual when a process dies."""
INSERT_SECONDS = 5.0
"""Of the lease that must be left where an insert begins that time alone does not bound: ten times
as long as an insert takes."""
LEASE = dt.timedelta(seconds=LEASE_SECONDS)

log = logging.getLogger(__name__)


def name_holder() -> str:
    """A unique name for this process; the host's name in it is for operators."""
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


def steady_of(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock by which leases end here: it is never set, and runs while the machine sleeps.

    A clock of a test's own stands for both.
    """
    if clock is time.time:
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    return clock


def said_moment(clock: Callable[[], float]) -> dt.datetime | None:
    """None: the database's clock counts. A test's own clock is its database's, too."""
    return None if clock is time.time else moment(clock())


class Lead:
    """Whether this process has a task. ``clock``: unix seconds.

    In a service `Members` renews it. Alone it renews itself (`renew`), for one task and without
    fellows: ``is_alone`` says that a lease that is still running is a dead process' and is taken
    at once. ``trusted`` looks for jumps of the clock; None: nothing does.
    """

    def __init__(
        self,
        inventory: Inventory,
        clock: Callable[[], float],
        *,
        task: str = EVALUATOR,
        holder: str = "",
        is_alone: bool = False,
        pulse: Pulse | None = None,
        trusted: TrustedClock | None = None,
    ) -> None:
        self.task = task
        self.holder = holder or name_holder()
        self._trusted = trusted
        self._inventory = inventory
        self._clock = clock
        self._steady = steady_of(clock)
        self._by_force = is_alone
        self._pulse = pulse or Vitals().inventory
        self._until_s = float("-inf")
        """By the steady clock."""
        self._from_ns = self._to_ns = 0
        self._epoch = 0
        self.turns = 0
        """How often this process got the lease anew."""
        self._is_leaving = False
        self._works = 0
        self._is_failing = False

    # --- asked by the task ---------------------------------------------------------------------

    def is_held(self) -> bool:
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """For how long this process may still act if it cannot renew; 0: it may not."""
        if self._is_leaving or not self._may_lead():
            return 0.0
        return max(0.0, self._until_s - self._steady())

    def may_insert(self) -> bool:
        """Whether an insert that begins now has ended before another process may act."""
        return self.left_s > INSERT_SECONDS

    def may_write(self, time_ns: int) -> bool:
        """Whether samples of this moment are this holder's to write, however late they arrive.

        It does not ask whether the lease still runs: moments of the stretch stay this holder's.
        """
        return self._from_ns < time_ns <= self._to_ns

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Something is under way that no other process must begin: the lease is not handed on."""
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1

    def _may_lead(self) -> bool:
        return self._trusted is None or self._trusted.is_steady()

    # --- told by the members -------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self._works > 0

    def grant(self, asked_s: float, to_ns: int, from_ns: int | None = None) -> None:
        """It has the lease for LEASE_SECONDS from when it asked, by the steady clock.

        ``to_ns``: the last moment for which it may write samples; ``from_ns``: it is new, and the
        holder before may have written until then. That one's clock may be ahead, but not by more
        than a lease: a wrong clock must not keep the next holder from writing.
        """
        if from_ns is not None:
            self._from_ns = min(from_ns, to_ns)
            self.turns += 1
        self._to_ns, self._is_leaving = to_ns, False
        self._until_s = asked_s + LEASE_SECONDS

    def extend(self, asked_s: float) -> None:
        """It still has the lease, which it is about to hand on."""
        self._until_s = asked_s + LEASE_SECONDS

    def leave(self) -> int:
        """Begin nothing more: the lease will go to another. The last moment of its stretch."""
        if not self._is_leaving:
            self._is_leaving = True
            self._to_ns = min(self._to_ns, round(self._clock() * NS))
        return self._to_ns

    def lose(self) -> None:
        self._until_s, self._is_leaving = float("-inf"), False

    # --- alone ---------------------------------------------------------------------------------

    def renew(self) -> bool:
        """Take or renew the lease; whether this process holds it."""
        if not self._may_lead():
            # A lease that runs for another hour would keep every other process from leading.
            return False
        asked_s, had = self._steady(), self.is_held()
        to_ns = round((self._clock() + LEASE_SECONDS) * NS)
        try:
            epoch = self._inventory.leases.take(
                self.task,
                self.holder,
                said_moment(self._clock),
                LEASE,
                by_force=self._by_force,
                samples_until=to_ns,
            )
        except InventoryError as error:
            if not self._is_failing:
                log.warning("whether this process evaluates cannot be asked: %s", error)
            self._is_failing = True
            self._pulse.fail(str(error))
            return self.is_held()
        self._is_failing = False
        self._pulse.succeed()
        self._by_force = False
        if epoch:
            self.grant(asked_s, to_ns, None if epoch == self._epoch else 0)
        else:
            self.lose()
        self._epoch = epoch
        if bool(epoch) != had:
            log.info("this process evaluates" if epoch else "another process evaluates")
        return bool(epoch)

    def release(self) -> None:
        if self.is_held():
            to_ns = self.leave()
            self.lose()
            # The lease expires by itself, a little later.
            with contextlib.suppress(InventoryError):
                self._inventory.leases.release(
                    self.task, self.holder, said_moment(self._clock), to_ns
                )


def moment(unix_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(unix_s, tz=dt.UTC)
