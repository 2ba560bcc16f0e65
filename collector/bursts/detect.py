"""Finds bursts in the windows of one counter: a state machine, fed window by window.

A burst begins with a window above the threshold and lasts while windows stay above the release;
it has ended when they stayed below that for HOLD_WINDOWS. One hole of a window does not split it:
packets come in clumps, and a read may fall between two of them. Nor does one clump make it: until
so many windows as make a burst were above the threshold, HOLD_WINDOWS at or below that end it, so
that an even flow above the release is none because one read of it came late.
"""

from __future__ import annotations

from typing import NamedTuple

from collector.bursts.plan import NS_PER_SECOND

HOLD_WINDOWS = 2
"""Windows below the release that end a burst, or below the threshold one that only begins."""
LONG_NS = NS_PER_SECOND
"""A burst that goes on for so long is reported then, and again when it ends: an on-call person
must not wait for the end of a transfer that never ends."""


class Burst(NamedTuple):
    """A burst: monotonic nanoseconds and bytes. ``phase``: whole, started or ended."""

    phase: str
    start_ns: int
    end_ns: int
    bytes: int
    peak: float
    """Bytes per nanosecond, of its fullest window."""
    windows: int


class Detector:
    """The state of one counter. Rates are bytes per nanosecond."""

    __slots__ = (
        "_above",
        "_below_ns",
        "_bytes",
        "_doubt_ns",
        "_end_ns",
        "_hold_ns",
        "_is_reported",
        "_peak",
        "_release",
        "_start_ns",
        "_waiting_bytes",
        "_waiting_windows",
        "_windows",
        "_windows_min",
        "is_open",
        "threshold",
    )

    def __init__(
        self, threshold: float, release: float, *, windows_min: int, window_ns: int
    ) -> None:
        self.threshold = threshold
        self._release = release
        self._windows_min = windows_min
        self._hold_ns = HOLD_WINDOWS * window_ns
        self.is_open = False
        self._forget()

    def set_window(self, window_ns: int) -> None:
        """The counter turned out to have another resolution."""
        self._hold_ns = HOLD_WINDOWS * window_ns

    def _forget(self) -> None:
        self.is_open = self._is_reported = False
        self._start_ns = self._end_ns = self._bytes = self._above = self._windows = 0
        self._below_ns = self._waiting_bytes = self._waiting_windows = self._doubt_ns = 0
        self._peak = 0.0

    def take(self, start_ns: int, end_ns: int, counted: int, rate: float) -> Burst | None:
        """Take a window; returns the burst that it ends or makes long, if any.

        Only worth calling while a burst is open or when the rate is above the threshold.
        """
        if not self.is_open:
            if rate <= self.threshold:
                return None
            self.is_open, self._start_ns = True, start_ns
        if self._above < self._windows_min:
            self._doubt_ns = 0 if rate > self.threshold else self._doubt_ns + end_ns - start_ns
            if self._doubt_ns >= self._hold_ns:
                return self.close()
        if rate <= self._release:
            self._below_ns += end_ns - start_ns
            self._waiting_bytes += counted
            self._waiting_windows += 1
            return self.close() if self._below_ns >= self._hold_ns else None
        # Whatever fell into a hole belongs to the burst, because it went on.
        self._bytes += counted + self._waiting_bytes
        self._windows += 1 + self._waiting_windows
        self._above += rate > self.threshold
        self._below_ns = self._waiting_bytes = self._waiting_windows = 0
        self._end_ns = end_ns
        self._peak = max(self._peak, rate)
        if not self._is_reported and end_ns - self._start_ns >= LONG_NS:
            self._is_reported = True
            return self._burst("started")
        return None

    def quiet(self, duration_ns: int) -> Burst | None:
        """Take a stretch without counts; returns the burst that it ends, if any."""
        if not self.is_open:
            return None
        self._below_ns += duration_ns
        return self.close() if self._below_ns >= self._hold_ns else None

    def close(self) -> Burst | None:
        """The burst ends here; None if it was too short to be one."""
        found = None
        if self._is_reported:
            found = self._burst("ended")
        elif self._above >= self._windows_min:
            found = self._burst("whole")
        self._forget()
        return found

    def _burst(self, phase: str) -> Burst:
        return Burst(
            phase, self._start_ns, self._end_ns, self._bytes, self._peak, max(1, self._windows)
        )
