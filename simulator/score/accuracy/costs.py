"""What a fault costs a job, by the job's own steps: the truth that verdicts are measured by."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from collector.contract.units import NS
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats

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
        for before, during in self._lengths(from_ns, to_ns):
            if len(before) < STEPS_MIN:
                continue
            if len(during) < STEPS_MIN and (to_ns - from_ns) > 2 * STEPS_MIN * before.mean():
                return None
            if len(during) and worst is not None:
                worst = max(worst, float(during.mean() / before.mean() - 1.0))
        return worst

    def is_measured(self, from_ns: int, to_ns: int) -> bool:
        """Whether some job has steps enough of this time and of the time before it."""
        return any(
            min(len(before), len(during)) >= STEPS_MIN
            for before, during in self._lengths(from_ns, to_ns)
        )

    def _lengths(self, from_ns: int, to_ns: int) -> Iterator[tuple[Floats, Floats]]:
        """Steps of each job before this time, and in it; nanoseconds."""
        for ends in self._ends.values():
            times = np.array(ends)
            length = np.diff(times).astype(np.float64)
            before = length[(times[1:] <= from_ns) & (times[1:] > self.warm_ns)]
            yield before, length[(times[:-1] >= from_ns) & (times[1:] <= to_ns)]

    @property
    def warm_ns(self) -> int:
        return self._start_ns + round(WARM_SECONDS * NS)


STEP_LEAST = 0.01
"""By how much a step is longer, as a share: the least class of the goals. The means of two healthy
stretches differ by some tenths of a percent."""
LOAD_LEAST = 0.05
"""Of what a NIC sent, and of a link's line. A stretch holds some tens of steps, and cuts through
its first and last one; flows of a healthy job are not spread the same at every step either."""


class Harm(msgspec.Struct, frozen=True):
    """What a fault did while it acted, by the true numbers: the same measure for every fault."""

    step: float | None
    """By how much the steps of the job that lost most became longer; None: it stood still."""
    nic: float
    """How much less the NIC sent that lost most, as a share of what it sent before."""
    link: float
    """How much fuller the fullest link was than the fullest one before, in shares of a line."""

    @property
    def is_nothing(self) -> bool:
        is_slower = self.step is None or self.step >= STEP_LEAST
        return not (is_slower or self.nic >= LOAD_LEAST or self.link >= LOAD_LEAST)


class HarmMeter:
    """Steps of jobs, and bytes of links, from snapshot to snapshot."""

    def __init__(self, start_unix_ns: int) -> None:
        self._steps = StepCosts(start_unix_ns)
        self._times: list[int] = []
        self._bits: list[Floats] = []
        """By link, from each snapshot to the next one."""
        self._room: list[Floats] = []
        """By link: bits that it could have carried meanwhile."""
        self._ends: Floats = np.zeros(0)
        self._is_nic: Bools = np.zeros(0, dtype=np.bool_)

    def note(self, snapshot: Snapshot) -> None:
        self._steps.note(snapshot)
        topology = snapshot.topology
        if not self._times:
            self._ends = np.zeros(topology.links)
            self._is_nic = np.isin(
                np.arange(topology.links), topology.up(np.arange(topology.nics, dtype=np.int32))
            )
        bits: Floats = 8.0 * snapshot.links.bytes.astype(np.float64)
        self._times.append(snapshot.start_unix_ns + round(snapshot.time_s * NS))
        self._bits.append(bits - self._ends)
        self._room.append(snapshot.world.capacity() * snapshot.interval_s)
        self._ends = bits

    def of(self, from_ns: int, to_ns: int) -> Harm | None:
        """What this time was worse by than the time before it; None: one of them is too short."""
        times = np.array(self._times)
        is_before = (times > self._steps.warm_ns) & (times <= from_ns)
        # The snapshot in which it began tells of both.
        is_during = (times > from_ns) & (times <= to_ns)
        is_during[np.flatnonzero(is_during)[:1]] = False
        step = self._steps.of(from_ns, to_ns)
        is_measured = step is None or self._steps.is_measured(from_ns, to_ns)
        if not (is_measured and is_before.any() and is_during.any()):
            return None
        sent, load = self._loads(is_before)
        sent_then, load_then = self._loads(is_during)
        lost = (sent - sent_then)[sent > 0] / sent[sent > 0]
        return Harm(
            step=step,
            nic=float(max(lost.max(initial=0.0), 0.0)),
            link=float(max(load_then.max() - load.max(), 0.0)),
        )

    def _loads(self, which: Bools) -> tuple[Floats, Floats]:
        """Mean bits of each NIC between two snapshots, and each link's share of its line."""
        rows = np.flatnonzero(which)
        bits = np.sum([self._bits[row] for row in rows], axis=0)
        room = np.sum([self._room[row] for row in rows], axis=0)
        share: Floats = np.divide(bits, room, out=np.zeros(len(bits)), where=room > 0)
        return bits[self._is_nic] / len(rows), share
