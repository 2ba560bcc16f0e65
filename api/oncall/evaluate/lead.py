"""One of several service processes evaluates and rolls: the one that holds the lease.

The lease is a row of the inventory, renewed every few seconds. A process that stops hands it back;
when a process dies its lease expires and another takes over. What the holder writes to the
inventory is refused if the lease has gone to another in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
import socket
from collections.abc import Callable

from api.base.clocks import TrustedClock
from api.base.steady import Steady
from api.base.vitals import Pulse, Vitals
from api.data.inventory.repository import Inventory
from collector.contract.errors import InventoryError

EVALUATOR = "evaluator"
RENEW_SECONDS = 5.0
LEASE_SECONDS = 20.0
"""After so long without renewal another process takes over: three renewals may fail before that,
and no client waits for a verdict much longer than usual when a process dies."""

log = logging.getLogger(__name__)


def name_holder() -> str:
    """A unique name for this process; the host's name in it is for operators."""
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


class Lead:
    """Whether this process leads. ``clock``: unix seconds.

    ``is_alone``: no other process can run (an embedded store allows one process), so that a lease
    that is still running is a dead process' and is taken at once. ``trusted`` looks for
    jumps of the clock; None: nothing does.
    """

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
        self._trusted = trusted
        self._inventory = inventory
        self._clock = clock
        self._by_force = is_alone
        self._pulse = pulse or Vitals().inventory
        self._until_s = float("-inf")
        self._is_failing = False

    def is_held(self) -> bool:
        return self._may_lead() and self._clock() < self._until_s

    def _may_lead(self) -> bool:
        return self._trusted is None or self._trusted.is_steady()

    async def run(self, steady: Steady) -> None:
        try:
            while True:
                with steady.round():
                    await asyncio.to_thread(self.renew)
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            self.release()

    def renew(self) -> bool:
        """Take or renew the lease; whether this process holds it."""
        if not self._may_lead():
            # A lease that runs for another hour would keep every other process from leading.
            return False
        now_s = self._clock()
        now, until = (moment(each) for each in (now_s, now_s + LEASE_SECONDS))
        had = self.is_held()
        try:
            has = self._inventory.leases.take(
                EVALUATOR, self.holder, now, until, by_force=self._by_force
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
        self._until_s = now_s + LEASE_SECONDS if has else float("-inf")
        if has != had:
            log.info("this process evaluates" if has else "another process evaluates")
        return has

    def release(self) -> None:
        if self.is_held():
            self._until_s = float("-inf")
            # The lease expires by itself, a little later.
            with contextlib.suppress(InventoryError):
                self._inventory.leases.release(EVALUATOR, self.holder, moment(self._clock()))


def moment(unix_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(unix_s, tz=dt.UTC)
