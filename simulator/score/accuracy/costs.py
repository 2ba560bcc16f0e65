"""What a fault costs a job, by the job's own steps: the truth that verdicts are measured by."""

from __future__ import annotations

import numpy as np

from collector.contract.units import NS
from simulator.snapshot import Snapshot

WARM_SECONDS = 20.0
"""The first steps of a run: connecting, and a cold start."""
STEPS_MIN = 3


class StepCosts:
    """Ends of steps by job; unix nanoseconds."""

    def __init__(self, start_unix_ns: int) -> None:
        self._start_ns = start_unix_ns
        self._ends: dict[str, list[int]] = {}

    def note(self, snapshot: Snapshot) -> None:
        for block in snapshot.steps:
            end_s = float(np.median(block.end_s))
            if np.isfinite(end_s):
                self._ends.setdefault(block.job, []).append(self._start_ns + round(end_s * NS))

    def of(self, from_ns: int, to_ns: int) -> float | None:
        """By how much the steps of this time are longer than those before it: of the worst job.

        By means, because a link that flaps stops few steps for long. None: some job stood still.
        """
        worst: float | None = 0.0
        for ends in self._ends.values():
            times = np.array(ends)
            length = np.diff(times)
            before = length[(times[1:] <= from_ns) & (times[1:] > self._warm_ns)]
            during = length[(times[:-1] >= from_ns) & (times[1:] <= to_ns)]
            if len(before) < STEPS_MIN:
                continue
            if len(during) < STEPS_MIN and (to_ns - from_ns) > 2 * STEPS_MIN * before.mean():
                return None
            if len(during) and worst is not None:
                worst = max(worst, float(during.mean() / before.mean() - 1.0))
        return worst

    @property
    def _warm_ns(self) -> int:
        return self._start_ns + round(WARM_SECONDS * NS)
