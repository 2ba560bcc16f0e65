"""Faults of the demo as they come and go, and how long the jobs' steps take meanwhile."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from collector.contract.verdict import Culprit
from simulator.scenario import Truth
from simulator.snapshot import Snapshot

STEPS_KEPT = 600
"""Of each job: ten minutes, for what is usual."""
BEFORE_SECONDS = 20.0
"""What a step took before a fault is the median of so long."""
USUAL_QUANTILE = 0.2
"""Of the steps kept: most of the faster ones ran while all was well."""
USUAL_STEPS_MIN = 5


@dataclass(frozen=True)
class Story:
    """A fault that was injected. Times are seconds since the start."""

    truth: Truth
    start_s: float
    end_s: float

    @property
    def victim(self) -> str:
        """The thing with the fault, as short as possible."""
        return name_of(self.truth.culprits)


class StepTimes:
    """How long the last steps of each job took, by when they ended."""

    def __init__(self) -> None:
        self._steps: dict[str, deque[tuple[float, float]]] = {}

    def add(self, snapshot: Snapshot) -> None:
        for block in snapshot.steps:
            # Of a rank, as `JobStatus` has it: pipeline stages begin one after the other.
            seconds = float(np.nanmedian(block.end_s - block.start_s))
            kept = self._steps.setdefault(block.job, deque(maxlen=STEPS_KEPT))
            kept.append((float(np.nanmax(block.end_s)), seconds))

    def last(self, job: str, count: int) -> list[float]:
        return [seconds for _, seconds in self._steps.get(job, ())][-count:]

    def median(self, job: str, from_s: float, to_s: float) -> float | None:
        chosen = [took for end, took in self._steps.get(job, ()) if from_s < end <= to_s]
        return float(np.median(chosen)) if chosen else None

    def usual(self, job: str) -> float | None:
        """What a step takes when all is well; None while there are too few steps."""
        seconds = self.last(job, STEPS_KEPT)
        enough = len(seconds) >= USUAL_STEPS_MIN
        return float(np.quantile(seconds, USUAL_QUANTILE)) if enough else None

    def compare(self, story: Story, now_s: float) -> str:
        """What a step of each job took before the fault, and takes or took while it lasts."""
        parts = []
        for job in self._steps:
            before = self.median(job, story.start_s - BEFORE_SECONDS, story.start_s)
            during = self.median(job, story.start_s, min(now_s, story.end_s))
            parts.append(f"{job} {milliseconds(before)} before, {milliseconds(during)} during")
        return "a step took: " + "; ".join(parts)


def milliseconds(seconds: float | None) -> str:
    """A duration for people.

    >>> milliseconds(1.2345), milliseconds(None)
    ('1,234 ms', '(none ended)')
    """
    return "(none ended)" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def name_of(culprits: tuple[Culprit, ...]) -> str:
    """The best culprit, as short as possible; parts of a host with their host.

    >>> name_of((Culprit(host="node0003", device="mlx5_1", switch="leaf-0", switch_port="4"),))
    'node0003/mlx5_1'
    """
    if not culprits:
        return "no culprit"
    one = culprits[0]
    if one.host:
        gpu = "" if one.gpu is None else f"gpu{one.gpu}"
        return "/".join(part for part in (one.host, one.device or gpu) if part)
    return (
        "/".join(part for part in (one.switch, one.switch_port) if part) or one.storage or one.job
    )


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
