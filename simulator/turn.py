"""One phase of a job in the network: the progress of its units, or their ends by themselves."""

from __future__ import annotations

import math

import numpy as np

from simulator.jobs.model import Phase
from simulator.network.lone import Lone
from simulator.topology.model import Bools, Floats

NEVER = math.inf
COINCIDING_SECONDS = 2e-3
"""Units of a phase that start, or end, within this time do so as one in the network: each mixture
of units must be solved, and senders need about as long to adapt their rates
(`simulator.network.dcqcn`). Their own times stay exact, and the engine takes back what they seem to
send after their ends; collectives are 1 or 2 % longer or shorter for it in the mean."""


class Turn:
    """One phase of a job in the network, and the progress of each of its units."""

    def __init__(self, phase: Phase) -> None:
        units = phase.pattern.units
        self.phase = phase
        self.remaining: Floats = np.ones(units)
        self.is_moving: Bools = np.zeros(units, dtype=np.bool_)
        self.is_done: Bools = np.zeros(units, dtype=np.bool_)
        self.end_s: Floats = np.full(units, NEVER)
        self.start_s: Floats = phase.start_s.copy()
        """When the network sees a unit start: together with units that start at nearly the same
        moment."""
        self.lag_s: Floats = np.zeros(units)
        """How much later than the true start that is; subtracted again when the unit ends."""
        self.is_active = False
        self.next_start_s = NEVER
        """When the next unit starts by itself; NEVER if none will."""
        self._moved_bits: Floats = np.zeros(len(phase.pattern.flow_unit))
        self._moving_seconds: Floats = np.zeros(units)
        self.lone: Lone | None = None
        """Set while its units go by themselves: the network has no part in it until they end."""
        self.lone_end_s = NEVER
        """When the last of them has sent everything."""
        self._booked_s = -NEVER
        self.settle_starts()

    def settle_starts(self) -> None:
        """Take the starts of waiting units from the phase, and merge those that nearly agree."""
        waits = ~self.is_moving & ~self.is_done
        known = waits & np.isfinite(self.phase.start_s)
        self.start_s[waits] = self.phase.start_s[waits]
        _, group = np.unique(
            np.floor(self.phase.start_s[known] / COINCIDING_SECONDS), return_inverse=True
        )
        latest = np.full(len(group), -NEVER)
        np.maximum.at(latest, group, self.phase.start_s[known])
        self.start_s[known] = latest[group]
        self._find_next_start()

    def start(self, due: Bools, now_s: float) -> None:
        self.is_moving |= due
        self.is_active = True
        self.lag_s = np.where(due, now_s - self.phase.start_s, self.lag_s)
        self._find_next_start()

    def end(self, done: Bools, end_s: Floats) -> None:
        self.end_s = np.where(done, end_s, self.end_s)
        self.is_moving &= ~done
        self.is_done |= done
        self.is_active = bool(self.is_moving.any())

    @property
    def waiting(self) -> Bools:
        able: Bools = ~self.is_moving & ~self.is_done & ~self.phase.is_stuck
        return able & np.isfinite(self.start_s)

    def _find_next_start(self) -> None:
        waiting = self.waiting
        self.next_start_s = float(self.start_s[waiting].min()) if waiting.any() else NEVER

    def progress(self, speed: Floats, flow_bps: Floats, seconds: float) -> None:
        elapsed = np.where(self.is_moving, seconds, 0.0)
        with np.errstate(invalid="ignore"):
            self.remaining -= np.where(elapsed > 0, speed * elapsed, 0.0)
        self._moving_seconds += elapsed
        self._moved_bits += flow_bps * elapsed[self.phase.pattern.flow_unit]

    def mean_bps(self, now: Floats) -> Floats:
        """What each flow could move, on average over its unit's time; ``now`` where that was 0."""
        seconds = self._moving_seconds[self.phase.pattern.flow_unit]
        mean: Floats = np.where(seconds > 0, self._moved_bits / np.maximum(seconds, 1e-300), now)
        return mean

    # Units that go by themselves ---------------------------------------------------------------

    @property
    def may_go_alone(self) -> bool:
        """Whether every unit has a start and will end."""
        return not self.phase.is_stuck.any() and bool(np.isfinite(self.phase.start_s).all())

    @property
    def first_s(self) -> float:
        """When its first unit is in the network, if none is yet."""
        return self.next_start_s if self.lone is None else float(self.phase.start_s.min())

    def ends_alone(self, lone: Lone) -> float:
        return float((self.phase.start_s + lone.seconds).max())

    def go_alone(self, lone: Lone) -> None:
        self.lone = lone
        self.lone_end_s = self.ends_alone(lone)
        self.next_start_s = NEVER

    def lone_ends(self) -> Floats:
        assert self.lone is not None
        start = self.phase.start_s
        ends: Floats = start + np.maximum(self.lone.seconds, self.phase.floor_seconds)
        return ends

    def book(self, until_s: float) -> Floats:
        """For how long each unit has sent since it was last asked."""
        assert self.lone is not None
        start = self.phase.start_s
        begin = np.maximum(start, self._booked_s)
        seconds: Floats = np.maximum(np.minimum(start + self.lone.seconds, until_s) - begin, 0.0)
        self._booked_s = until_s
        return seconds

    def call_back(self, now_s: float) -> None:
        """Make its units part of the network's mixtures again: the world is about to change."""
        lone = self.lone
        if lone is None:
            return
        start = self.phase.start_s
        went = np.clip(now_s - start, 0.0, lone.seconds)
        self.is_moving = start <= now_s
        self.is_active = bool(self.is_moving.any())
        is_over = self.is_moving & (went >= lone.seconds)
        self.end_s = np.where(is_over, self.lone_ends(), self.end_s)
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(lone.speed), lone.speed * went, self.is_moving)
        self.remaining = np.where(is_over, 0.0, 1.0 - moved)
        self._moving_seconds = went
        self._moved_bits = lone.flow_bps * went[self.phase.pattern.flow_unit]
        self.lone, self.lone_end_s = None, NEVER
        self._find_next_start()
