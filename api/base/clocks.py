"""Whether this machine's clock may be believed.

By a clock that is an hour ahead all evidence is an hour old, so every incident is over and stays so
until that hour has passed; by one that is an hour behind, what agents send lies in the future and
is refused for good. So while a clock has just jumped, the service does not judge, and senders wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

JUMP_SECONDS = 15.0
"""A wall clock that moves by so much against the monotonic one was set, or the machine slept; what
corrects clocks bit by bit moves them by far less between two looks."""
JUMP_HOLD_SECONDS = 60.0
"""So long a clock that has jumped is not believed: most jumps are mistakes, and taken back. After
that the new time counts."""

log = logging.getLogger(__name__)


class TrustedClock:
    """Whether the wall clock may be believed. ``clock``: unix seconds; ``steady``: never set."""

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float]) -> None:
        self._clock = clock
        self._steady = steady
        self._apart_s = clock() - steady()
        """How far the clocks are apart while they are believed."""
        self._jumped_s: float | None = None
        """By how much they have come further apart; None: they have not."""
        self._since_s = 0.0

    def is_steady(self) -> bool:
        now_s = self._steady()
        apart_s = self._clock() - now_s
        moved_s = apart_s - self._apart_s
        if abs(moved_s) < JUMP_SECONDS:
            self._apart_s, self._jumped_s = apart_s, None
            return True
        if self._jumped_s is None or abs(moved_s - self._jumped_s) >= JUMP_SECONDS:
            log.warning(
                "the clock was set by %+.0f s: this process neither takes telemetry nor evaluates "
                "until it is back, or for %.0f s",
                moved_s,
                JUMP_HOLD_SECONDS,
            )
            self._jumped_s, self._since_s = moved_s, now_s
        if now_s - self._since_s < JUMP_HOLD_SECONDS:
            return False
        self._apart_s, self._jumped_s = apart_s, None
        return True
