"""Clocks of hosts, aligned by the collectives themselves. Pure.

Ranks of a barrier-like collective leave it nearly together, and the faster it was, the closer: the
exits of one operation scatter in proportion to how long its transfer took, which each rank's own
clock measures (the least time that any rank spent inside). So every operation is a noisy comparison
of its hosts' clocks, weighted by the inverse square of that time. Per host an offset and a drift
are fitted to all of them by weighted least squares, with large residuals counted less (Huber's
weights first, Cauchy's when the guess is good): a slow link spreads exits in a fixed pattern, and
trees let some ranks go long before others, which must not bend the clocks.

A common offset or drift of all clocks cannot be seen and does not matter: the median host is the
reference. Nothing is changed where all offsets are within doubt: hosts whose clocks are kept in
step (PTP) keep their times to the nanosecond. Where one offset is beyond doubt the clocks are not
in step, and all of them are corrected.

Misses: a fault that lasts for the whole window and spreads exits always in the same way (a slow
link in a ring) biases the fit by a share of that spread, which `residual_ns` contains only in part;
`bound_ns` then still holds.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Clock, ClockFit, Codes, Flags, Floats, Ints, Records
from collector.contract.collective import Operation
from collector.contract.records import ABSENT
from collector.contract.units import NS

BARRIER_LIKE = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.ALL_TO_ALL,
        Operation.BARRIER,
    }
)
"""No rank can leave these before all have entered."""

SEGMENT_SECONDS = 120
"""Within so long a clock's drift is constant; over an hour NTP bends it."""
ROWS_MAX = 400_000
"""Records that one segment's fit looks at; more make it slower and no better."""
INSIDE_NS_MIN = 50_000
"""Exits are seen by a thread of the host, to about this; faster operations add nothing."""
DRIFT_TYPICAL = 5e-5
"""50 ppm: what a quartz does. Without evidence for a drift the fit assumes none."""
ROUNDS_ROUGH, ROUNDS_FINE = 6, 10
"""Of reweighting: first mildly, from the clocks as they are; then sharply, from a good guess."""
ACCURACY_NS = 10
ITERATIONS_MAX = 200
"""Of the solver. Hosts that all meet each other need three, a chain of a thousand groups about a
hundred."""
LARGE = 2.0
"""Residuals over so many typical ones count less."""
FOLDS = 8
STRIPES = 3
"""The window is cut into FOLDS x STRIPES stretches, and every FOLDSth of them is left out in turn,
to see how much the answer depends on them: operations that follow each other err alike. Three
stripes, because leaving out an end alone would ask for a needless drift."""
SPREAD_SHARE = 0.1
"""How far exits may differ always in the same direction, as a share of the transfer: in healthy
rings it was 0.01 to 0.03, with a slow link up to 0.1 (medians of 95 operations, eight ranks)."""
TOGETHER = 0.5
"""Ranks left together if no exit is further from the mean than this share of the transfer."""
DOUBTS = 2.0
"""An offset of so many residuals is beyond doubt: clocks are not kept in step."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of comparable exits: an operation, a host, and how close its exits should be.

    ``when`` is the operation's place in the window, from -1 to 1, the same for all its rows.
    """

    operation: Ints
    host: Codes
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

    def at(self, when: float) -> Floats:
        """How far each clock is ahead at this place of the window."""
        return self.offset + self.slope * when


def align(records: Records) -> list[ClockFit]:
    """The clocks in each stretch of time, one at least; none for hosts that share no operation."""
    rows = usable(records)
    if not rows.any():
        return [ClockFit(from_ns=0, to_ns=0, middle_ns=0, clocks=[], operations=0)]
    chosen: Records = records.select(rows)
    operation = operation_index(chosen)
    counts = np.bincount(operation)
    offset_ns = int(chosen.exit_ns[0])
    mean = np.bincount(operation, (chosen.exit_ns - offset_ns).astype(np.float64)) / counts
    first, last = float(mean.min()), float(mean.max())
    pieces = max(1, round((last - first) / (SEGMENT_SECONDS * NS)))
    edges = np.linspace(first, last, pieces + 1)
    piece_of = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, pieces - 1)
    fits = []
    for piece in range(pieces):
        inside = piece_of[operation] == piece
        if inside.any():
            window = (int(edges[piece]) + offset_ns, int(edges[piece + 1]) + offset_ns)
            fits.append(align_segment(thinned(chosen.select(inside)), window))
    return fits


def usable(records: Records) -> Flags:
    """Rows of barrier-like operations with times that more than one host was seen in."""
    barrier = np.array([name in BARRIER_LIKE for name in records.operations], dtype=bool)
    if not len(records) or not barrier.any():
        return np.zeros(len(records), dtype=bool)
    rows: Flags = records.timed() & barrier[records.operation]
    operation = operation_index(records)
    host = records.host.astype(np.float64)
    count = int(operation[-1]) + 1
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, operation[rows], host[rows])
    np.maximum.at(highest, operation[rows], host[rows])
    return rows & (lowest < highest)[operation]


def operation_index(records: Records) -> Ints:
    """The number of each row's operation, counted from 0; rows are sorted."""
    new = np.zeros(len(records), dtype=bool)
    for column in (records.communicator, records.operation, records.sequence):
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new).astype(np.int64)


def thinned(records: Records) -> Records:
    """Every nth operation, so that there are at most ROWS_MAX rows."""
    step = -(-len(records) // ROWS_MAX)
    if step <= 1:
        return records
    kept: Records = records.select(operation_index(records) % step == 0)
    return kept


def align_segment(records: Records, window: tuple[int, int]) -> ClockFit:
    hosts, host = np.unique(records.host, return_inverse=True)
    operation = operation_index(records)
    count = int(operation[-1]) + 1
    inside = np.full(count, np.inf)
    np.minimum.at(inside, operation, (records.exit_ns - records.entry_ns).astype(np.float64))
    middle = int(np.median(records.exit_ns))
    exits = (records.exit_ns - middle).astype(np.float64)
    place = np.bincount(operation, exits) / np.bincount(operation)
    half = max(float(np.abs(place).max()), 1.0)
    evidence = Evidence(
        operation=operation,
        host=host.astype(np.int32),
        exit_ns=exits,
        inside_ns=np.maximum(inside, INSIDE_NS_MIN)[operation],
        when=(place / half)[operation],
        operations=count,
        hosts=len(hosts),
    )
    groups = connected(evidence)
    prior_ns = DRIFT_TYPICAL * half
    fit = fit_clocks(evidence, prior_ns, groups)
    bound = causal_bound(records, evidence, fit)
    residual = np.minimum(doubt(evidence, fit, prior_ns, groups), bound)
    moved = np.maximum(np.abs(fit.at(-1.0)), np.abs(fit.at(1.0)))
    wrong = np.unique(groups[moved > DOUBTS * residual])
    is_corrected = np.isin(groups, wrong)
    clocks = [
        Clock(
            host=records.hosts[code],
            offset_ns=round(float(fit.offset[row])),
            drift=float(fit.slope[row]) / half,
            residual_ns=round(float(residual[row])),
            bound_ns=round(float(bound[row])) if np.isfinite(bound[row]) else None,
            is_corrected=bool(is_corrected[row]),
        )
        for row, code in enumerate(hosts)
    ]
    return ClockFit(
        from_ns=window[0], to_ns=window[1], middle_ns=middle, clocks=clocks, operations=count
    )


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
        solution = solve(evidence, weight, ridge, solution)
        share = np.abs(residuals(evidence, weight, solution)) / evidence.inside_ns
        speaking = share[base > 0]
        scatter = max(1.4826 * float(np.median(speaking)), 1e-6) if len(speaking) else scatter
        large = share / (LARGE * scatter)
        weight = base / (np.maximum(large, 1.0) if number < rough else 1.0 + large**2)
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
        image = gathered(centred(point[host] + point[hosts + host] * when))
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


def residuals(evidence: Evidence, weight: Floats, solution: Floats) -> Floats:
    hosts = evidence.hosts
    ahead = solution[evidence.host] + solution[hosts + evidence.host] * evidence.when
    corrected = evidence.exit_ns - ahead
    total = np.bincount(evidence.operation, weight, evidence.operations)
    total[total == 0] = 1.0
    mean = np.bincount(evidence.operation, weight * corrected, evidence.operations) / total
    return corrected - mean[evidence.operation]


def doubt(evidence: Evidence, fit: Fit, prior_ns: float, groups: Ints) -> Floats:
    """How far each host's clock may be off, anywhere in the window.

    Stretches of the window are left out in turn (a jackknife): what holds for all of them holds.
    That standard error, and the share of the transfer by which exits may differ always in
    the same way; of a single operation all of its transfer, since its scatter is not known.
    """
    stretches = FOLDS * STRIPES
    fold = np.minimum(((evidence.when + 1) / 2 * stretches).astype(int), stretches - 1) % FOLDS
    present = np.unique(fold)
    spread = np.zeros(evidence.hosts)
    if len(present) > 1:
        left_out = [
            fit_clocks(evidence, prior_ns, groups, keep=fold != one, start=fit) for one in present
        ]
        for when in (-1.0, 0.0, 1.0):
            answers = np.stack([other.at(when) for other in left_out])
            variance = (len(present) - 1) / len(present) * ((answers - answers.mean(0)) ** 2).sum(0)
            spread = np.maximum(spread, np.sqrt(variance))
    total = np.maximum(np.bincount(evidence.host, fit.weight, evidence.hosts), 1e-300)
    inside = np.bincount(evidence.host, fit.weight * evidence.inside_ns, evidence.hosts) / total
    count = np.bincount(evidence.host, minlength=evidence.hosts)
    typical = fit.scatter * inside / np.sqrt(count)
    return np.maximum(spread, typical) + (SPREAD_SHARE + 1 / count) * inside


def causal_bound(records: Records, evidence: Evidence, fit: Fit) -> Floats:
    """How far each clock could be off at most, by operations that all ranks left together."""
    ahead = fit.offset[evidence.host] + fit.slope[evidence.host] * evidence.when
    solution = np.concatenate([fit.offset, fit.slope])
    share = np.abs(residuals(evidence, fit.weight, solution)) / evidence.inside_ns
    apart = np.zeros(evidence.operations)
    np.maximum.at(apart, evidence.operation, share)
    together = (apart < TOGETHER)[evidence.operation]
    entry = evidence.exit_ns - (records.exit_ns - records.entry_ns) - ahead
    leave = evidence.exit_ns - ahead
    last_entry = np.full(evidence.operations, -np.inf)
    first_exit = np.full(evidence.operations, np.inf)
    np.maximum.at(last_entry, evidence.operation, entry)
    np.minimum.at(first_exit, evidence.operation, leave)
    after = np.full(evidence.hosts, np.inf)
    before = np.full(evidence.hosts, np.inf)
    host, operation = evidence.host[together], evidence.operation[together]
    np.minimum.at(after, host, leave[together] - last_entry[operation])
    np.minimum.at(before, host, first_exit[operation] - entry[together])
    bound: Floats = np.maximum(np.abs(after), np.abs(before))
    return bound


def correct(records: Records, fits: list[ClockFit]) -> Records:
    """The records on the common clock; those of hosts whose clocks are good are as they were."""
    moved = records
    starts = np.array([fit.from_ns for fit in fits[1:]], dtype=np.int64)
    moment = np.maximum(records.exit_ns, records.entry_ns)
    piece = np.searchsorted(starts, moment, side="right")
    for number, fit in enumerate(fits):
        by_host = {clock.host: clock for clock in fit.clocks if clock.is_corrected}
        if not by_host:
            continue
        offset, drift = np.zeros(len(records.hosts)), np.zeros(len(records.hosts))
        for code, name in enumerate(records.hosts):
            if name in by_host:
                offset[code], drift[code] = by_host[name].offset_ns, by_host[name].drift
        rows = piece == number
        columns = {}
        for name in ("entry_ns", "exit_ns", "enqueue_ns"):
            column = getattr(moved, name).copy()
            there = rows & (column != ABSENT)
            host = records.host[there]
            elapsed = (column[there] - fit.middle_ns).astype(np.float64)
            column[there] -= np.rint(offset[host] + drift[host] * elapsed).astype(np.int64)
            columns[name] = column
        moved = msgspec.structs.replace(moved, **columns)
    return moved
