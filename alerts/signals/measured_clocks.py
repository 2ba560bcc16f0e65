"""What hosts measure of their clocks, held against what the collectives show. Pure.

A time daemon knows how far its clock is from its server, and not whether the server is right. The
collectives of a job show how far its hosts are from each other, and not who has the right time.
Where both are known of three hosts and more they must agree, each taken against the hosts' median:
a host that they contradict about has a wrong time source, or a daemon that steers another clock.

A contradiction accuses no rank and corrects no clock: verdicts go by the collectives. A host that
measures nothing, or that the collectives do not know, contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import Clock, ClockFit
from alerts.window.model import JobWindow, Window
from collector.contract.clocks import CHRONY, ERROR, OFFSET, PTP
from collector.contract.units import NS

WITNESSES = (PTP, CHRONY)
"""The first that a host has: ptp4l measures to microseconds."""
HOSTS_LEAST = 3
"""Of two hosts it is not known whose clock is wrong."""
LEAST_S = 0.005
"""Ten times the largest error of a fit that was measured on real ranks (decision 13)."""
TARGET = "fabric_host_"


class Contradiction(msgspec.Struct, frozen=True):
    """A host of a job whose measured clock is not where its collectives show it."""

    job: str
    host: str
    by: str
    """Who measured it: `chrony`, `ptp4l`."""
    measured_s: float
    """Ahead of the job's median host, as measured."""
    inferred_s: float
    """The same, as its collectives show it."""
    error_s: float
    """What both together may be off."""

    @property
    def apart_s(self) -> float:
        return self.inferred_s - self.measured_s


class Measured(msgspec.Struct, frozen=True):
    """The last word of a host's own witness in a window."""

    by: str
    time_ns: int
    ahead_s: float
    error_s: float
    """Of the measurement: what it knows beyond the offset itself."""


def contradictions(window: Window) -> list[Contradiction]:
    """By job and host; none where everything agrees, or too little is known."""
    measured = measured_clocks(window)
    if len(measured) < HOSTS_LEAST:
        return []
    return [one for job in window.looked for one in of_job(job, measured)]


def measured_clocks(window: Window) -> dict[str, Measured]:
    """The latest measurement of each host that has one in the window."""
    found: dict[str, Measured] = {}
    hosts, grid = window.hosts, window.hosts.grid
    for by in reversed(WITNESSES):
        names = [f"{metric.removeprefix(TARGET)}:{by}" for metric in (OFFSET, ERROR)]
        if not all(name in hosts.readings for name in names):
            continue
        offset, error = (hosts.values(name) for name in names)
        known = np.isfinite(offset) & np.isfinite(error)
        last = grid.cells - 1 - known[:, ::-1].argmax(axis=1)
        for row in np.flatnonzero(known.any(axis=1)).tolist():
            cell = int(last[row])
            ahead, bound = float(offset[row, cell]), float(error[row, cell])
            time_ns = grid.start_ns + cell * grid.step_ns
            found[hosts.host[row]] = Measured(by, time_ns, ahead, max(bound - abs(ahead), 0.0))
    return found


def of_job(job: JobWindow, measured: Mapping[str, Measured]) -> Iterator[Contradiction]:
    clocks = last_clocks(job.clocks)
    both = [host for host in sorted(clocks) if host in measured]
    if len(both) < HOSTS_LEAST:
        return
    own = np.array([measured[host].ahead_s for host in both])
    seen = np.array([ahead_s(*clocks[host], measured[host].time_ns) for host in both])
    error = np.array([measured[host].error_s + clocks[host][1].residual_ns / NS for host in both])
    own -= np.median(own)
    seen -= np.median(seen)
    allowed = np.maximum(error + np.median(error), LEAST_S)
    for place in np.flatnonzero(np.abs(seen - own) > allowed).tolist():
        host = both[place]
        yield Contradiction(
            job=job.job,
            host=host,
            by=measured[host].by,
            measured_s=float(own[place]),
            inferred_s=float(seen[place]),
            error_s=float(allowed[place]),
        )


def last_clocks(fits: Sequence[ClockFit]) -> dict[str, tuple[ClockFit, Clock]]:
    """Each host's clock in the last stretch that rests on operations; those that are known."""
    resting = [fit for fit in fits if fit.operations]
    if not resting:
        return {}
    fit = max(resting, key=lambda one: one.to_ns)
    found: dict[str, tuple[ClockFit, Clock]] = {}
    unknown = {clock.host for clock in fit.clocks if not clock.is_known}
    for clock in sorted(fit.clocks, key=lambda one: one.to_ns or 0):
        if clock.host not in unknown:
            found[clock.host] = fit, clock
    return found


def ahead_s(fit: ClockFit, clock: Clock, time_ns: int) -> float:
    """How far a clock is ahead of the job's common one at this time, by its line."""
    first_ns, last_ns = clock.from_ns or fit.from_ns, clock.to_ns or fit.to_ns
    held_ns = min(max(time_ns, first_ns), last_ns)
    since_ns = held_ns - clock.offset_ns - fit.middle_ns
    return (clock.offset_ns + clock.drift * since_ns) / NS
