"""When the service's own work last succeeded, and since when it only fails.

Readiness (`/readyz`), the service's metrics and its rules about itself all read these.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

ENGINE_CODE = re.compile(r"Code: (\d+)")
"""How the store's engine numbers its errors."""

WORKS: Final = ("commit", "evaluation", "rules", "inventory")


class Pulse:
    """One kind of work. Ages are by a clock that is never set; for any thread."""

    def __init__(self, name: str, vitals: Vitals) -> None:
        self.name = name
        self._vitals = vitals
        self._began = vitals.steady()
        self._succeeded: float | None = None
        self._failing_since: float | None = None
        self.succeeded_s = 0.0
        """When it last succeeded, unix seconds; 0: not since this process took the work up."""
        self.why = ""
        """Why it last failed."""

    def succeed(self) -> None:
        self._succeeded = self._vitals.steady()
        self._failing_since = None
        self.succeeded_s = self._vitals.clock()
        self.why = ""

    def fail(self, why: str) -> None:
        if self._failing_since is None:
            self._failing_since = self._vitals.steady()
        self.why = why

    def rest(self) -> None:
        """It is another process' work now: neither late nor failing."""
        self._began = self._vitals.steady()
        self._succeeded = self._failing_since = None
        self.succeeded_s = 0.0

    @property
    def failing_s(self) -> float:
        """For how long every attempt has failed; 0: the last one succeeded, or there was none."""
        since = self._failing_since
        return 0.0 if since is None else self._vitals.steady() - since

    @property
    def quiet_s(self) -> float:
        """Since the last success, or since this process took the work up."""
        since = self._began if self._succeeded is None else self._succeeded
        return self._vitals.steady() - since

    @property
    def reason(self) -> str:
        """Why it fails, fit for clients without a token: the engine's number, no path and no text.

        >>> pulse = Vitals().commit
        >>> pulse.fail("insert into samples: Code: 243. DB::Exception: Cannot reserve 3 MiB in /d")
        >>> pulse.reason
        "the engine's error 243"
        """
        found = ENGINE_CODE.search(self.why)
        return f"the engine's error {found[1]}" if found else "the log has the reason"


class Vitals:
    """All pulses of a service. ``clock``: unix seconds; ``steady``: seconds that never jump."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.steady = steady
        self.commit, self.evaluation, self.rules, self.inventory = (
            Pulse(name, self) for name in WORKS
        )
        self.breaks_in_a_row: WeakKeyDictionary[object, tuple[str, int]] = WeakKeyDictionary()
        """Background work whose last rounds broke: its name and how many, by who counts them."""

    def works_that_break(self, at_least: int) -> list[str]:
        """Work of which so many rounds in a row broke, by name."""
        broken = list(self.breaks_in_a_row.values())
        return sorted({work for work, breaks in broken if breaks >= at_least})

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return self.commit, self.evaluation, self.rules, self.inventory


class ClockWatch:
    """Finds steps of the wall clock: it moved by another amount than time that passed."""

    def __init__(self, vitals: Vitals, tolerance_s: float) -> None:
        self._vitals = vitals
        self._tolerance_s = tolerance_s
        self._seen = vitals.clock(), vitals.steady()

    def step_s(self) -> float:
        """By how much the clock was set since the last look; 0.0: not at all."""
        wall, steady = self._vitals.clock(), self._vitals.steady()
        wall_before, steady_before = self._seen
        self._seen = wall, steady
        step = (wall - wall_before) - (steady - steady_before)
        return step if abs(step) > self._tolerance_s else 0.0
