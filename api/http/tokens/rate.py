"""The rate limit of a token: a bucket that fills by itself. Pure."""

from __future__ import annotations

BURST_SECONDS = 2.0
"""So much of a rate may come at once: senders do not tick evenly."""


class Bucket:
    """Lets through ``per_second`` requests on average; the clock is monotonic seconds."""

    __slots__ = ("_filled_s", "_level", "per_second")

    def __init__(self, per_second: float, now_s: float) -> None:
        self.per_second = per_second
        self._filled_s = now_s
        self._level = self._size

    @property
    def _size(self) -> float:
        # At least one whole request, however slow the rate is.
        return max(1.0, self.per_second * BURST_SECONDS)

    def take(self, now_s: float) -> bool:
        gained = max(0.0, now_s - self._filled_s) * self.per_second
        self._level = min(self._size, self._level + gained)
        self._filled_s = now_s
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True
