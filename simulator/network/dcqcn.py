"""How RoCE senders slow down: marks at switches, notifications from receivers, rate cuts (DCQCN).

After Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (2015), with marks that
scale with the speed of links. The byte counter is left out: at these speeds the timer is as fast.
"""

from __future__ import annotations

import numpy as np

from simulator.topology.model import Bools, Floats

MARKING_STARTS_BYTES = 150e3
"""Kmin: queue at which marking starts, at 100 Gb/s (what NVIDIA's RoCE defaults set)."""
MARKING_ALL_BYTES = 600e3
"""Kmax: from here on every packet is marked, at 100 Gb/s."""
MARKING_REFERENCE_BPS = 100e9
MARKING_SHARE = 0.1
"""Pmax: share of packets that is marked just below Kmax."""

NOTIFICATION_SECONDS = 50e-6
"""A receiver sends at most one notification (CNP) per flow in this time."""
ALPHA_GAIN = 1 / 64
"""How fast the estimate of congestion follows. With the paper's 1/256, made for 40 Gb/s, it takes
14 ms to decay; this takes a few milliseconds."""
ALPHA_START = 0.05
"""Initial estimate of senders: about where it stays on a link that is just full."""
TIMER_SECONDS = 30e-6
"""Between increases, and between decays of the estimate. With this and the steps below one flow
keeps more than 90 % of a full link, as NICs that are tuned for 400 Gb/s do."""
FAST_RECOVERY_STEPS = 3
"""Increases that only go back towards the rate before the cut."""
ADDITIVE_STEPS = 3
"""Increases after these by `ADDITIVE_SHARE`; beyond, by more every time."""
ADDITIVE_SHARE = 2e-3
"""Of line rate: 80 Mb/s at 40 Gb/s."""
HYPER_SHARE = 1.5e-3
"""Of line rate, times the number of increases beyond."""
LOWEST_SHARE = 1e-3
"""Of line rate that a sender always keeps."""


class Marking:
    """The share of packets that switches mark, given the depth of the queues in front of links."""

    def __init__(self, bits_per_second: Floats, is_marking: Bools) -> None:
        scale = bits_per_second / MARKING_REFERENCE_BPS
        self._start = np.where(is_marking, MARKING_STARTS_BYTES * scale, np.inf)
        self._all = np.where(is_marking, MARKING_ALL_BYTES * scale, np.inf)
        width = (MARKING_ALL_BYTES - MARKING_STARTS_BYTES) * np.maximum(scale, 1e-9)
        self._slope = MARKING_SHARE / width

    def share(self, queue_bytes: Floats) -> Floats | None:
        """For each link; None if nothing is marked anywhere."""
        if not (queue_bytes > self._start).any():
            return None
        ramp = np.maximum(queue_bytes - self._start, 0.0) * self._slope
        share: Floats = np.where(queue_bytes >= self._all, 1.0, ramp)
        return share


class RateControl:
    """The rate limiters of all flows. Rates are in bits a second on the wire."""

    def __init__(self, line_bps: Floats, start_bps: Floats, is_controlled: Bools) -> None:
        self.rate: Floats = np.where(is_controlled, np.minimum(start_bps, line_bps), line_bps)
        self._line = line_bps
        self._is_controlled = is_controlled
        self._target = self.rate.copy()
        self._alpha = np.full(len(line_bps), ALPHA_START)
        self._steps = np.zeros(len(line_bps))
        # Timers start spread over their period, or all flows would act in the same step.
        spread = np.arange(len(line_bps)) * 0.618033988749895 % 1.0
        self._timer = spread * TIMER_SECONDS
        self._since_notified = np.full(len(line_bps), NOTIFICATION_SECONDS)
        self._marked = np.zeros(len(line_bps))
        self._nobody: Bools = np.zeros(len(line_bps), dtype=np.bool_)

    def advance(self, marked_packets: Floats | None, seconds: float) -> Bools:
        """Advance by ``seconds`` with these marked packets; returns which flows were notified."""
        self._since_notified += seconds
        notified = self._nobody
        if marked_packets is not None:
            self._marked += marked_packets
            notified = (self._marked >= 1.0) & (self._since_notified >= NOTIFICATION_SECONDS)
            # Marks that come too early for another notification count as one for the next.
            np.minimum(self._marked, 1.0, out=self._marked)
            if notified.any():
                self._marked[notified] = 0.0
                self._since_notified[notified] = 0.0
                self._cut(notified & self._is_controlled)
        self._timer += seconds
        due = (self._timer >= TIMER_SECONDS) & self._is_controlled
        if due.any():
            self._timer[due] -= TIMER_SECONDS
            self._raise(due)
        return notified

    def _cut(self, cut: Bools) -> None:
        """Reduce these rates by half of the congestion estimate, and remember the old rates."""
        self._target[cut] = self.rate[cut]
        self.rate[cut] = np.maximum(
            self.rate[cut] * (1 - self._alpha[cut] / 2), self._line[cut] * LOWEST_SHARE
        )
        self._alpha[cut] += ALPHA_GAIN * (1 - self._alpha[cut])
        self._steps[cut] = 0.0
        self._timer[cut] = 0.0

    def _raise(self, raised: Bools) -> None:
        """Increase these rates: back to the old rate first, then beyond it, ever faster."""
        self._alpha[raised] *= 1 - ALPHA_GAIN
        self._steps[raised] += 1
        steps, line = self._steps[raised], self._line[raised]
        beyond = steps - FAST_RECOVERY_STEPS - ADDITIVE_STEPS
        step = np.where(beyond > 0, HYPER_SHARE * beyond, ADDITIVE_SHARE) * line
        target = self._target[raised] + np.where(steps > FAST_RECOVERY_STEPS, step, 0.0)
        self._target[raised] = np.minimum(target, line)
        self.rate[raised] = (self.rate[raised] + self._target[raised]) / 2
