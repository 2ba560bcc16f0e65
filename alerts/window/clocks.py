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

Clocks that are far apart are put about right first, and a clock that was set is fitted in parts
(`alerts.window.clock_steps`). Each line holds for the times that its operations cover
(`alerts.window.common_clock`).

Misses: of two hosts it is not known whose clock was set. A clock that is set by less than half of
the transfer is not cut; `residual_ns` has most of the difference. A fault that lasts for the whole
window and spreads exits always in the same way (a slow link in a ring) biases the fit by a share of
that spread, which `residual_ns` contains only in part; `bound_ns` then still holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.clock_fit import (
    DRIFT_TYPICAL,
    Evidence,
    Fit,
    connected,
    fit_clocks,
    places,
    residuals,
)
from alerts.window.clock_steps import FAR_NS, STEP_ROUNDS, Parts, both_ways, far_parts, step_rows
from alerts.window.columns import Clock, ClockFit, Codes, Columns, Flags, Floats, Ints, Records
from collector.contract.collective import Operation
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
FOLDS = 8
STRIPES = 3
"""The window is cut into FOLDS x STRIPES stretches, and every FOLDSth of them is left out in turn,
to see how much the answer depends on them: operations that follow each other err alike. Three
stripes, because leaving out an end alone would ask for a needless drift."""
SPREAD_SHARE = 0.1
"""How far exits may differ always in the same direction, as a share of the transfer: in healthy
rings it was 0.01 to 0.03, with a slow link up to 0.1 (medians of 95 operations, eight ranks)."""
SCATTERED = 3.0
"""A clock that lies off its line by so many transfers on the average is not followed. With a slow
link in a tree it was 0.5."""
MISPLACED = 0.1
"""Of a step: what may lie off on one side of it."""
DISPLACED_NS = 20_000_000
"""By so much an operation's place may be wrong: a drift of 200 ppm makes 4 µs of it."""
TOGETHER = 0.5
"""Ranks left together if no exit is further from the mean than this share of the transfer."""
ERRORS = 2.0
"""Standard errors: 95 % of all clocks are closer."""
DOUBTS = 2.0
"""An offset of so many standard errors and natural differences is beyond doubt: clocks are not kept
in step."""


class Meetings(Columns, frozen=True, kw_only=True):
    """Rows of comparable operations, sorted by operation, on clocks that are about right."""

    operation: Ints
    clock: Ints
    """A part of a host's clock (`alerts.window.clock_steps.Parts`)."""
    entry_ns: Ints
    exit_ns: Ints
    host: Codes
    raw_ns: Ints
    """The exit by the host's own clock."""


def align(records: Records) -> list[ClockFit]:
    """The clocks in each stretch of time, one at least; none for hosts that share no operation."""
    rows = usable(records)
    if not rows.any():
        return [ClockFit(from_ns=0, to_ns=0, middle_ns=0, clocks=[], operations=0)]
    chosen: Records = records.select(rows)
    operation = operation_index(chosen)
    parts = far_parts(chosen.host, operation, chosen.entry_ns, chosen.exit_ns)
    ahead = parts.ahead_ns[parts.clock] if parts.ahead_ns.any() else 0
    seen = Meetings(
        operation=operation,
        clock=parts.clock,
        entry_ns=chosen.entry_ns - ahead,
        exit_ns=chosen.exit_ns - ahead,
        host=chosen.host,
        raw_ns=chosen.exit_ns,
    )
    lost = lost_clocks(seen, records.hosts)
    if lost:
        seen = compared(seen)
        if not len(seen):
            first, last = lost[0].from_ns or 0, lost[-1].to_ns or 0
            return [ClockFit(from_ns=first, to_ns=last, middle_ns=first, clocks=lost, operations=0)]
    fits = [
        align_segment(thinned(part), parts, records.hosts, window)
        for part, window in segments(seen)
    ]
    fits[0] = msgspec.structs.replace(fits[0], clocks=[*fits[0].clocks, *lost])
    return fits


def segments(seen: Meetings) -> Iterator[tuple[Meetings, tuple[int, int]]]:
    """The rows of about SEGMENT_SECONDS each, and the times that these begin and end at."""
    counts = np.bincount(seen.operation)
    offset_ns = int(seen.exit_ns[0])
    mean = np.bincount(seen.operation, (seen.exit_ns - offset_ns).astype(np.float64)) / counts
    first, last = float(mean.min()), float(mean.max())
    pieces = max(1, round((last - first) / (SEGMENT_SECONDS * NS)))
    edges = np.linspace(first, last, pieces + 1)
    piece_of = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, pieces - 1)
    for piece in range(pieces):
        inside = piece_of[seen.operation] == piece
        if inside.any():
            window = (int(edges[piece]) + offset_ns, int(edges[piece + 1]) + offset_ns)
            yield renumbered(seen.select(inside)), window


def renumbered(seen: Meetings) -> Meetings:
    """The same with operations counted from 0."""
    number = np.cumsum(np.diff(seen.operation, prepend=seen.operation[:1]) != 0)
    return msgspec.structs.replace(seen, operation=number.astype(np.int64))


def compared(seen: Meetings) -> Meetings:
    """Rows of clocks that are followed, where an operation has two of them at least."""
    seen = seen.select(seen.clock >= 0)
    if len(seen):
        seen = seen.select(has_several(seen.operation, seen.clock))
    return renumbered(seen) if len(seen) else seen


def lost_clocks(seen: Meetings, hosts: Sequence[str]) -> list[Clock]:
    """Hosts whose clocks are not followed, and when, by themselves."""
    lost: Meetings = seen.select(seen.clock < 0)
    found = []
    for code in np.unique(lost.host).tolist():
        times = np.sort(lost.raw_ns[lost.host == code])
        whole = not (seen.clock[seen.host == code] >= 0).any()
        edges = np.flatnonzero((np.diff(times) > FAR_NS) & (not whole)) + 1
        found += [unknown_clock(hosts[code], part) for part in np.split(times, edges)]
    return found


def unknown_clock(host: str, times: Ints) -> Clock:
    return Clock(
        host=host,
        offset_ns=0,
        drift=0.0,
        residual_ns=0,
        bound_ns=None,
        is_corrected=False,
        from_ns=int(times.min()),
        to_ns=int(times.max()),
        is_known=False,
    )


def usable(records: Records) -> Flags:
    """Rows of barrier-like operations with times that more than one host was seen in."""
    barrier = np.array([name in BARRIER_LIKE for name in records.operations], dtype=bool)
    if not len(records) or not barrier.any():
        return np.zeros(len(records), dtype=bool)
    # One that ends before it begins: its clock was set meanwhile.
    rows: Flags = records.timed() & (records.exit_ns >= records.entry_ns)
    if not barrier.all():
        rows &= barrier[records.operation]
    chosen = np.flatnonzero(rows)
    if len(chosen):
        rows[chosen] = has_several(operation_index(records)[chosen], records.host[chosen])
    return rows


def has_several(operation: Ints, clock: Ints | Codes) -> Flags:
    """Whether each row's operation has rows of two clocks; rows are sorted by operation."""
    starts = np.flatnonzero(np.diff(operation, prepend=operation[0] - 1))
    several = np.minimum.reduceat(clock, starts) < np.maximum.reduceat(clock, starts)
    return np.repeat(several, np.diff(np.append(starts, len(operation))))


def operation_index(records: Records) -> Ints:
    """The number of each row's operation, counted from 0; rows are sorted."""
    new = np.zeros(len(records), dtype=bool)
    for column in (records.communicator, records.operation, records.sequence):
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new).astype(np.int64)


def thinned(seen: Meetings) -> Meetings:
    """Every nth operation, so that there are at most ROWS_MAX rows."""
    step = -(-len(seen) // ROWS_MAX)
    if step <= 1:
        return seen
    return renumbered(seen.select(seen.operation % step == 0))


def align_segment(
    seen: Meetings, parts: Parts, hosts: Sequence[str], window: tuple[int, int]
) -> ClockFit:
    middle = int(np.median(seen.exit_ns))
    codes, clock = np.unique(seen.clock, return_inverse=True)
    owners, bases = parts.host[codes], parts.ahead_ns[codes]
    evidence, half = to_evidence(seen, clock, len(codes), middle)
    entry = (seen.entry_ns - middle).astype(np.float64)
    prior_ns = DRIFT_TYPICAL * half
    groups = connected(evidence)
    fit = fit_clocks(evidence, prior_ns, groups)
    off = both_ways(evidence, entry, fit)
    for _ in range(STEP_ROUNDS):
        steps = step_rows(evidence, off, fit, owners)
        if not steps and not is_displaced(evidence, fit, half):
            break
        evidence = replaced(evidence, fit, half)
        evidence, owners, bases = cut(evidence, steps, owners, bases)
        groups = connected(evidence)
        fit = fit_clocks(evidence, prior_ns, groups)
        off = both_ways(evidence, entry, fit)
    bound = causal_bound(entry, evidence, fit)
    error, share = doubt(evidence, fit, prior_ns, groups)
    low, high = ends(evidence)
    moved = np.maximum(np.abs(fit.at(low)), np.abs(fit.at(high)))
    is_beyond = moved > DOUBTS * np.minimum(error + share, bound)
    is_corrected = np.isin(groups, np.unique(groups[is_beyond | (bases != 0)]))
    # What causality allows is against the others, which may be off themselves.
    doubts = ERRORS * error + share
    unfit = misfit(evidence, off[0], fit)
    residual = np.minimum(doubts, bound + np.median(doubts)) + unfit
    is_known = ~(scattered(evidence, off[0]) | is_misplaced(fit.offset + bases, unfit, owners))
    first, last = span_of(seen.raw_ns, evidence)
    drift = fit.slope / half
    # Seconds a second of the host's own clock.
    drift = drift / (1.0 + drift)
    clocks = [
        Clock(
            host=hosts[owner],
            offset_ns=int(bases[row]) + round(float(fit.offset[row])),
            drift=float(drift[row]),
            residual_ns=round(float(residual[row])),
            bound_ns=round(float(bound[row])) if np.isfinite(bound[row]) else None,
            is_corrected=bool(is_corrected[row]),
            from_ns=int(first[row]),
            to_ns=int(last[row]),
            is_known=bool(is_known[row]),
        )
        for row, owner in enumerate(owners.tolist())
    ]
    return ClockFit(
        from_ns=window[0],
        to_ns=window[1],
        middle_ns=middle,
        clocks=clocks,
        operations=evidence.operations,
    )


def to_evidence(seen: Meetings, clock: Ints, clocks: int, middle_ns: int) -> tuple[Evidence, float]:
    """The rows for the fit, and half of the time that they cover."""
    operation = seen.operation
    count = int(operation[-1]) + 1
    starts = np.flatnonzero(np.diff(operation, prepend=-1))
    inside = np.minimum.reduceat(seen.exit_ns - seen.entry_ns, starts).astype(np.float64)
    exits = (seen.exit_ns - middle_ns).astype(np.float64)
    place = np.bincount(operation, exits) / np.bincount(operation)
    half = max(float(np.abs(place).max()), 1.0)
    evidence = Evidence(
        operation=operation,
        host=clock,
        exit_ns=exits,
        inside_ns=np.maximum(inside, INSIDE_NS_MIN)[operation],
        when=(place / half)[operation],
        operations=count,
        hosts=clocks,
    )
    return evidence, half


def cut(
    evidence: Evidence, steps: Mapping[int, Ints], owners: Ints, bases: Ints
) -> tuple[Evidence, Ints, Ints]:
    """The evidence with a clock of its own for what comes after each step."""
    host = evidence.host.copy()
    for clock, rows in steps.items():
        host[rows] = len(owners)
        owners, bases = np.append(owners, owners[clock]), np.append(bases, bases[clock])
    return msgspec.structs.replace(evidence, host=host, hosts=len(owners)), owners, bases


def is_displaced(evidence: Evidence, fit: Fit, half: float) -> bool:
    """Whether wrong clocks have put operations to places where a drift says something else."""
    if float(np.abs(fit.offset).max()) < DISPLACED_NS:
        return False
    place = places(evidence, fit)[evidence.operation]
    return bool(np.abs(place - evidence.when * half).max() > DISPLACED_NS)


def replaced(evidence: Evidence, fit: Fit, half: float) -> Evidence:
    """The evidence with its operations where they were on the common clock."""
    when = np.clip(places(evidence, fit) / half, -1.0, 1.0)
    return msgspec.structs.replace(evidence, when=when[evidence.operation])


def ends(evidence: Evidence) -> tuple[Floats, Floats]:
    """The places of each clock's first and last operation."""
    low, high = np.full(evidence.hosts, np.inf), np.full(evidence.hosts, -np.inf)
    np.minimum.at(low, evidence.host, evidence.when)
    np.maximum.at(high, evidence.host, evidence.when)
    return low, high


def span_of(times_ns: Ints, evidence: Evidence) -> tuple[Ints, Ints]:
    """The first and the last of these times of each clock."""
    limits = np.iinfo(np.int64)
    first = np.full(evidence.hosts, limits.max, dtype=np.int64)
    last = np.full(evidence.hosts, limits.min, dtype=np.int64)
    np.minimum.at(first, evidence.host, times_ns)
    np.maximum.at(last, evidence.host, times_ns)
    return first, last


def scattered(evidence: Evidence, moved: Floats) -> Flags:
    """Clocks that no line explains: entry and exit lie off it, by more than transfers take."""
    count = np.maximum(np.bincount(evidence.host, minlength=evidence.hosts), 1)
    off = np.bincount(evidence.host, np.abs(moved), evidence.hosts) / count
    inside = np.bincount(evidence.host, evidence.inside_ns, evidence.hosts) / count
    answer: Flags = off > SCATTERED * np.maximum(inside, np.median(off))
    return answer


def is_misplaced(offset: Floats, unfit: Floats, owners: Ints) -> Flags:
    """Clocks of hosts whose steps were found, but not well: a part of the time lies off by much."""
    most = np.full(int(owners.max()) + 1, -np.inf)
    least, worst = -most, np.zeros(len(most))
    np.maximum.at(most, owners, offset)
    np.minimum.at(least, owners, offset)
    np.maximum.at(worst, owners, unfit)
    answer: Flags = ((most > least) & (worst > MISPLACED * (most - least)))[owners]
    return answer


def doubt(evidence: Evidence, fit: Fit, prior_ns: float, groups: Ints) -> tuple[Floats, Floats]:
    """How far each clock may be off, anywhere in the time that its operations cover.

    Stretches of the window are left out in turn (a jackknife): what holds for all of them holds.
    That standard error, and the share of the transfer by which exits may differ always in
    the same way; of a single operation all of its transfer, since its scatter is not known.
    """
    stretches = FOLDS * STRIPES
    stretch = np.minimum(((evidence.when + 1) / 2 * stretches).astype(int), stretches - 1)
    fold = stretch % FOLDS
    present = np.unique(fold)
    spread = np.zeros(evidence.hosts)
    if len(present) > 1:
        left_out = [
            fit_clocks(evidence, prior_ns, groups, keep=fold != one, start=fit) for one in present
        ]
        low, high = ends(evidence)
        for when in (low, (low + high) / 2, high):
            answers = np.stack([other.at(when) for other in left_out])
            variance = (len(present) - 1) / len(present) * ((answers - answers.mean(0)) ** 2).sum(0)
            spread = np.maximum(spread, np.sqrt(variance))
    total = np.maximum(np.bincount(evidence.host, fit.weight, evidence.hosts), 1e-300)
    inside = np.bincount(evidence.host, fit.weight * evidence.inside_ns, evidence.hosts) / total
    count = np.bincount(evidence.host, minlength=evidence.hosts)
    typical = fit.scatter * inside / np.sqrt(count)
    return np.maximum(spread, typical), (SPREAD_SHARE + 1 / count) * inside


def misfit(evidence: Evidence, moved: Floats, fit: Fit) -> Floats:
    """How far a part of each clock's time lies off its line, beyond what chance and transfers do.

    A clock that was set by less than makes a step, or that bends. Where operations became slower
    by themselves, exits spread: a slow link.
    """
    stretches = FOLDS * STRIPES
    stretch = np.minimum(((evidence.when + 1) / 2 * stretches).astype(int), stretches - 1)
    cell, cells = evidence.host * stretches + stretch, evidence.hosts * stretches
    weight = fit.weight
    total = np.maximum(np.bincount(cell, weight, cells), 1e-300)
    off = np.abs(np.bincount(cell, weight * moved, cells) / total)
    inside = np.bincount(cell, weight * evidence.inside_ns, cells) / total
    count = np.maximum(total**2 / np.maximum(np.bincount(cell, weight**2, cells), 1e-300), 1.0)
    usual = np.where(inside > 0, inside, np.inf).reshape(-1, stretches).min(1)
    slower = np.maximum(inside - 2 * np.repeat(usual, stretches), 0.0)
    chance = 3 * fit.scatter * inside / np.sqrt(count)
    is_off = off > chance + SPREAD_SHARE * inside + TOGETHER * slower
    answer: Floats = np.where(is_off, off, 0.0).reshape(-1, stretches).max(1)
    return answer


def causal_bound(entry_ns: Floats, evidence: Evidence, fit: Fit) -> Floats:
    """How far each clock could be off at most, by operations that all ranks left together."""
    ahead = fit.offset[evidence.host] + fit.slope[evidence.host] * evidence.when
    solution = np.concatenate([fit.offset, fit.slope])
    share = np.abs(residuals(evidence, fit.weight, solution)) / evidence.inside_ns
    apart = np.zeros(evidence.operations)
    np.maximum.at(apart, evidence.operation, share)
    together = (apart < TOGETHER)[evidence.operation]
    entry = entry_ns - ahead
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
