"""Offsets and drifts of clocks, fitted to the exits of collectives. Pure numbers, no records.

Weighted least squares with large residuals counted less: see `alerts.window.clocks`.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Flags, Floats, Ints
from alerts.window.statistics import middle

DRIFT_TYPICAL = 5e-5
"""50 ppm: what a quartz does. Without evidence for a drift the fit assumes none."""
ROUNDS_ROUGH, ROUNDS_FINE = 6, 10
"""Of reweighting: first mildly, from the clocks as they are; then sharply, from a good guess."""
ACCURACY_NS = 10
ITERATIONS_MAX = 200
"""Of the solver. Hosts that all meet each other need three, a chain of a thousand groups about a
hundred."""
SETTLED_NS = 100
"""Reweighting ends when no clock moves by more: exits are seen to 50 µs."""
LARGE = 2.0
"""Residuals over so many typical ones count less."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of comparable exits: an operation, a host, and how close its exits should be.

    ``when`` is the operation's place in the window, from -1 to 1, the same for all its rows.
    """

    operation: Ints
    host: Ints
    exit_ns: Floats
    """Relative to the window's middle, to keep the precision."""
    inside_ns: Floats
    when: Floats
    operations: int
    hosts: int


class Fit(msgspec.Struct, frozen=True):
    """Offsets (nanoseconds at the middle) and slopes (nanoseconds until the window's end)."""

    offset: Floats
    slope: Floats
    scatter: float
    """A typical residual, as a share of the time inside."""
    weight: Floats

    def at(self, when: Floats) -> Floats:
        """How far each clock is ahead at its place of the window."""
        return self.offset + self.slope * when


def connected(evidence: Evidence) -> Ints:
    """For each host the group of hosts that it can be compared with, directly or not."""
    group = np.arange(evidence.hosts, dtype=np.int64)
    while True:
        lowest = np.full(evidence.operations, evidence.hosts, dtype=np.int64)
        np.minimum.at(lowest, evidence.operation, group[evidence.host])
        before = group.copy()
        np.minimum.at(group, evidence.host, lowest[evidence.operation])
        if (group == before).all():
            return group


def fit_clocks(
    evidence: Evidence,
    prior_ns: float,
    groups: Ints,
    *,
    keep: Flags | None = None,
    start: Fit | None = None,
) -> Fit:
    """Offsets and slopes, by reweighted least squares. ``keep`` selects the rows that count."""
    base = 1.0 / evidence.inside_ns**2
    if keep is not None:
        base = base * keep
    weight = base if start is None else base * (start.weight * evidence.inside_ns**2)
    solution = np.zeros(2 * evidence.hosts)
    if start is not None:
        solution = np.concatenate([start.offset, start.slope])
    scatter = 1.0 if start is None else start.scatter
    rough = ROUNDS_ROUGH if start is None else 0
    for number in range(rough + (ROUNDS_FINE if start is None else 3)):
        ridge = (scatter / prior_ns) ** 2
        before, solution = solution, solve(evidence, weight, ridge, solution)
        share = np.abs(residuals(evidence, weight, solution)) / evidence.inside_ns
        speaking = share[base > 0]
        scatter = max(1.4826 * middle(speaking), 1e-6) if len(speaking) else scatter
        large = share / (LARGE * scatter)
        weight = base / (np.maximum(large, 1.0) if number < rough else 1.0 + large**2)
        if number > rough and float(np.abs(solution - before).max()) < SETTLED_NS:
            break
    offset, slope = solution[: evidence.hosts].copy(), solution[evidence.hosts :].copy()
    for group in np.unique(groups):
        members = groups == group
        offset[members] -= np.median(offset[members])
        slope[members] -= np.median(slope[members])
    return Fit(offset, slope, scatter, weight)


def solve(evidence: Evidence, weight: Floats, ridge: float, start: Floats) -> Floats:
    """The least-squares solution by conjugate gradients, preconditioned by the diagonal.

    The normal equations are never written out: ten thousand hosts would make a matrix of
    gigabytes. They are singular where a shift of all clocks changes nothing, which conjugate
    gradients leave as it is.
    """
    host, when, hosts = evidence.host, evidence.when, evidence.hosts
    slope = hosts + host
    total = np.bincount(evidence.operation, weight, evidence.operations)
    total[total == 0] = 1.0

    def centred(values: Floats) -> Floats:
        mean = np.bincount(evidence.operation, weight * values, evidence.operations) / total
        return weight * (values - mean[evidence.operation])

    def gathered(values: Floats) -> Floats:
        return np.concatenate(
            [np.bincount(host, values, hosts), np.bincount(host, values * when, hosts)]
        )

    def apply(point: Floats) -> Floats:
        image = gathered(centred(point[host] + point[slope] * when))
        image[hosts:] += ridge * point[hosts:]
        return image

    squares = [np.bincount(host, weight, hosts), np.bincount(host, weight * when**2, hosts) + ridge]
    diagonal = np.maximum(np.concatenate(squares), 1e-300)
    solution = start.copy()
    given = gathered(centred(evidence.exit_ns))
    # Far finer than is needed and than the exits are, and far from where rounding begins.
    goal = float(diagonal.sum()) * ACCURACY_NS**2
    rest = given - apply(solution)
    direction = scaled = rest / diagonal
    size = float(rest @ scaled)
    for _ in range(ITERATIONS_MAX):
        if size <= goal:
            break
        image = apply(direction)
        curvature = float(direction @ image)
        if curvature <= 0.0:
            break
        step = size / curvature
        solution += step * direction
        rest -= step * image
        scaled = rest / diagonal
        size, before = float(rest @ scaled), size
        direction = scaled + (size / before) * direction
    return solution


def places(evidence: Evidence, fit: Fit) -> Floats:
    """When each operation ended on the common clock, by those of its ranks that agree."""
    ahead = fit.offset[evidence.host] + fit.slope[evidence.host] * evidence.when
    total = np.bincount(evidence.operation, fit.weight, evidence.operations)
    sums = np.bincount(
        evidence.operation, fit.weight * (evidence.exit_ns - ahead), evidence.operations
    )
    answer: Floats = sums / np.where(total > 0, total, 1.0)
    return answer


def residuals(evidence: Evidence, weight: Floats, solution: Floats) -> Floats:
    hosts = evidence.hosts
    ahead = solution[evidence.host] + solution[hosts + evidence.host] * evidence.when
    corrected = evidence.exit_ns - ahead
    total = np.bincount(evidence.operation, weight, evidence.operations)
    total[total == 0] = 1.0
    mean = np.bincount(evidence.operation, weight * corrected, evidence.operations) / total
    return corrected - mean[evidence.operation]
