"""Times of a case, moved to a fixed one. Pure."""

from __future__ import annotations

import numpy as np

from alerts.window.columns import Ints
from collector.contract.records import ABSENT
from collector.contract.units import NS

EPOCH_NS = 1_500_000_000 * NS
"""Where scrubbed windows begin, to a millisecond. It has as many binary digits as the present, so
that times which detectors turn into floating-point numbers are rounded alike."""
ROUND_NS = 1 << 20
"""Times move by a multiple of it, for the same reason: about a millisecond."""


class TimeShift:
    """Moves every time by the same amount."""

    def __init__(self, from_ns: int) -> None:
        self._by_ns = (EPOCH_NS - from_ns) // ROUND_NS * ROUND_NS

    def moved(self, time_ns: int) -> int:
        return time_ns + self._by_ns

    def known(self, time_ns: int) -> int:
        """Of a time that is 0 where it is not known."""
        return self.moved(time_ns) if time_ns else 0

    def maybe(self, time_ns: int | None) -> int | None:
        return None if time_ns is None else self.moved(time_ns)

    def column(self, times: Ints) -> Ints:
        found: Ints = np.where(times == ABSENT, ABSENT, times + self._by_ns)
        return found
