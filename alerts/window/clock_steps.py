"""Where a host's clock was set, and which clocks are far away from the others. Pure numbers.

A clock that is set (an NTP step, a virtual machine that was suspended) is cut into parts there, and
each part is fitted as a clock of its own. What tells a set clock from everything else that moves
exits: it moves a rank's entry and its exit by the same time, in every operation from then on. A
late rank enters late and leaves with the others; in a tree a rank leaves early and enters like the
others. So only what entry and exit have in common counts.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.clock_fit import Evidence, Fit, connected, fit_clocks, places, residuals
from alerts.window.columns import Codes, Flags, Floats, Ints

FAR_NS = 1_000_000_000
"""Exits of one operation that are further apart, beyond what it took, are of clocks that are far
apart, or were set: operations are put in order of time only after that is taken off. Large buckets
behind a slow link take seconds, and ranks then leave a second apart by clocks that are right."""
FAR_ROUNDS = 4
"""Of finding jumps: a jump of one clock may hide another's."""
JUMPS_MAX = 16
"""A clock that was set more often is not followed: it is left out."""
BLIP_OPERATIONS = 2
"""A clock that is back where it was after so few operations was not set."""
STRETCHES = 24
"""The window is cut into so many, to see cheaply whether any clock may have been set."""
NEAR = ((12, 1), (3, 0))
"""Rows on each side of a possible step that are compared, and how many of them may lie elsewhere.
Few rows only near the ends."""
STEP_SHARE = 0.5
"""A step is larger than this share of the longest transfer near it: a slow link moves ranks by up
to a third, in entries and exits alike."""
FAST = 3.0
"""Operations that take at most so many times as long as the fastest quarter are fast."""
STEP_NS_MIN = 200_000
"""What threads that are woken late do to times."""
STEP_ROUNDS = 6
AS_LARGE = 0.75
"""Clocks are cut together if their steps are this close to the largest: one clock's step also moves
its peers' means."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Clocks, each a host's between two moments at which it was set."""

    clock: Ints
    """Of each row; -1: of a clock that is not followed."""
    host: Ints
    """Of each part."""
    ahead_ns: Ints
    """About how far each part is ahead of the others; 0 where it is not far."""

    def cut(self, clock: int, rows: Flags) -> Parts:
        """The same with a new part for these rows, of this clock's host."""
        return msgspec.structs.replace(
            self,
            clock=np.where(rows, len(self.host), self.clock),
            host=np.append(self.host, self.host[clock]),
            ahead_ns=np.append(self.ahead_ns, self.ahead_ns[clock]),
        )

    def without(self, rows: Flags) -> Parts:
        return msgspec.structs.replace(self, clock=np.where(rows, -1, self.clock))


def far_parts(host: Codes, operation: Ints, entry_ns: Ints, exit_ns: Ints) -> Parts:
    """The clocks, those far away put about right; rows are sorted by operation."""
    count = int(host.max()) + 1
    parts = Parts(
        clock=host.astype(np.int64),
        host=np.arange(count, dtype=np.int64),
        ahead_ns=np.zeros(count, dtype=np.int64),
    )
    starts = np.flatnonzero(np.diff(operation, prepend=-1))
    spread = np.maximum.reduceat(exit_ns, starts) - np.minimum.reduceat(exit_ns, starts)
    inside = np.minimum.reduceat(exit_ns - entry_ns, starts)
    if (spread - inside).max() <= FAR_NS:
        return parts
    inside = np.repeat(inside, np.diff(np.append(starts, len(operation))))
    middle = int(np.median(exit_ns))
    leave, enter = ((each - middle).astype(np.float64) for each in (exit_ns, entry_ns))
    for _ in range(FAR_ROUNDS):
        rows = np.flatnonzero(parts.clock >= 0)
        if not len(rows):
            return parts
        evidence, fit = fit_levels(parts, rows, operation, leave)
        moved, out = both_ways(evidence, enter[rows], fit)
        before = len(parts.host), len(rows)
        parts = cut_at_jumps(parts, rows, (evidence, fit), (moved, out), inside[rows])
        if (len(parts.host), int((parts.clock >= 0).sum())) == before:
            break
    rows = np.flatnonzero(parts.clock >= 0)
    if not len(rows):
        return parts
    evidence, fit = fit_levels(parts, rows, operation, leave)
    return msgspec.structs.replace(parts, ahead_ns=levels(parts, evidence, fit))


def fit_levels(parts: Parts, rows: Ints, operation: Ints, leave: Floats) -> tuple[Evidence, Fit]:
    """An offset for each part and no drift, whatever the operations were."""
    _, dense = np.unique(operation[rows], return_inverse=True)
    evidence = Evidence(
        operation=dense.astype(np.int64),
        host=parts.clock[rows],
        exit_ns=leave[rows],
        inside_ns=np.full(len(rows), FAR_NS / 10),
        when=np.zeros(len(rows)),
        operations=int(dense.max()) + 1,
        hosts=len(parts.host),
    )
    return evidence, fit_clocks(evidence, 1.0, connected(evidence))


def both_ways(evidence: Evidence, entry_ns: Floats, fit: Fit) -> tuple[Floats, Floats]:
    """How far each row lies off its operation by its entry and by its exit: the lesser of both.

    And by its exit alone.
    """
    host, operation = evidence.host, evidence.operation
    late = entry_ns - (fit.offset[host] + fit.slope[host] * evidence.when)
    late -= (np.bincount(operation, late) / np.bincount(operation))[operation]
    solution = np.concatenate([fit.offset, fit.slope])
    out = residuals(evidence, fit.weight, solution)
    lesser = np.minimum(np.abs(late), np.abs(out))
    return np.where(late * out > 0, np.copysign(lesser, out), 0.0), out


def cut_at_jumps(
    parts: Parts,
    rows: Ints,
    fitted: tuple[Evidence, Fit],
    off: tuple[Floats, Floats],
    inside_ns: Ints,
) -> Parts:
    """Each clock cut where it jumps; of clocks that jump too often none is left.

    ``off``: how far rows lie off both ways, and by their exits. ``inside_ns``: how long each row's
    operation took, by the rank that was in it for the shortest time.
    """
    evidence, fit = fitted
    place = places(evidence, fit)[evidence.operation]
    order = np.lexsort((place, evidence.host))
    tells = telling(evidence, parts.host)
    order = order[tells[order]]
    clock, value, out = evidence.host[order], off[0][order], off[1][order]
    step = np.where(clock[1:] == clock[:-1], np.abs(np.diff(value)), 0.0)
    took = np.maximum(inside_ns[order][1:], inside_ns[order][:-1])
    jumps = np.flatnonzero(step > np.maximum(FAR_NS / 4, STEP_SHARE * took)) + 1
    if not len(jumps):
        return parts
    # One that was inside meanwhile entered by the old clock and left by the new one.
    is_torn = (jumps > 1) & (clock[jumps - 1] == clock[jumps - 2])
    is_torn &= np.abs(out[jumps - 1] - out[jumps]) < np.abs(out[jumps - 1] - out[jumps - 2])
    owners = clock[jumps]
    largest = np.zeros(len(parts.host))
    np.maximum.at(largest, owners, step[jumps - 1])
    chosen = largest >= AS_LARGE * largest.max()
    if len(np.unique(parts.host[np.unique(clock)])) == 2:  # noqa: PLR2004 - each is the other's mirror
        chosen &= np.arange(len(chosen)) == int(largest.argmax())
    for one in np.flatnonzero(chosen).tolist():
        own = (jumps - is_torn)[owners == one]
        if len(own) > JUMPS_MAX:
            parts = parts.without(parts.clock == one)
            continue
        ends = np.append(own, int(np.searchsorted(clock, one, side="right")))
        all_rows = np.flatnonzero(evidence.host == one)
        for first, last in zip(*kept_jumps(value, ends), strict=True):
            if last is not None:  # a blip
                parts = without_rows(parts, rows[order[first:last]])
                continue
            around = int(order[first - 1]), int(order[first])
            # Where two hosts' clocks are far apart, it is not known when their operation was.
            known = np.where(tells, place, np.nan)
            behind = is_behind(known, off[1], all_rows, around)
            parts = cut_off(parts, rows[all_rows[behind]])
    return parts


def kept_jumps(value: Floats, ends: Ints) -> tuple[list[int], list[int | None]]:
    """Where one clock jumps, and where blips end, which are no steps.

    ``ends``: the rows at which it jumps, and the end of its rows.
    """
    firsts: list[int] = []
    lasts: list[int | None] = []
    number = 0
    while number < len(ends) - 1:
        first, after = int(ends[number]), int(ends[number + 1])
        is_back = number + 2 < len(ends) and abs(value[after] - value[first - 1]) < FAR_NS / 4
        is_blip = is_back and after - first <= BLIP_OPERATIONS
        firsts.append(first)
        lasts.append(after if is_blip else None)
        number += 2 if is_blip else 1
    return firsts, lasts


def is_behind(place: Floats, out: Floats, rows: Ints, around: tuple[int, int]) -> Flags:
    """Which of a clock's rows come after a step.

    ``around``: the last row that tells before it, and the first after. Operations of two hosts in
    between, or without a place, show half of the step.
    """
    before, after = around
    closer = np.abs(out[rows] - out[after] / 2) < np.abs(out[rows] - out[before] / 2)
    is_open = ~((place[rows] <= place[before]) | (place[rows] >= place[after]))
    behind: Flags = (place[rows] >= place[after]) | (is_open & closer)
    return behind


def without_rows(parts: Parts, rows: Ints) -> Parts:
    lost = np.zeros(len(parts.clock), dtype=bool)
    lost[rows] = True
    return parts.without(lost)


def cut_off(parts: Parts, rows: Ints) -> Parts:
    """A new part for these rows, which are of one clock until it was cut."""
    rows = rows[parts.clock[rows] >= 0]
    if not len(rows):
        return parts
    chosen = np.zeros(len(parts.clock), dtype=bool)
    chosen[rows] = True
    return parts.cut(int(parts.clock[rows[-1]]), chosen)


def telling(evidence: Evidence, owners: Ints) -> Flags:
    """Rows that tell whose clock it is: of three hosts or more, unless their clock has no others.

    Two hosts in an operation are each other's mirror.
    """
    host = owners[evidence.host]
    pairs = np.unique(evidence.operation * (int(owners.max()) + 1) + host)
    hosts = np.bincount(pairs // (int(owners.max()) + 1), minlength=evidence.operations)
    several: Flags = (hosts > 2)[evidence.operation]  # noqa: PLR2004 - see above
    has_several = np.bincount(evidence.host, several, evidence.hosts) > 0
    return several | ~has_several[evidence.host]


def levels(parts: Parts, evidence: Evidence, fit: Fit) -> Ints:
    """How far each part is ahead of most of those it meets; 0 where that is not far."""
    groups = connected(evidence)
    rows = np.bincount(evidence.host, minlength=evidence.hosts)
    ahead = np.zeros(evidence.hosts, dtype=np.int64)
    for group in np.unique(groups):
        members = np.flatnonzero((groups == group) & (rows > 0))
        if not len(members):
            continue
        members = members[np.argsort(fit.offset[members], kind="stable")]
        offset = fit.offset[members]
        cluster = np.concatenate([[0], np.cumsum(np.diff(offset) > FAR_NS)])
        weight = np.bincount(cluster, rows[members])
        lowest = np.full(len(weight), np.inf)
        np.minimum.at(lowest, cluster, parts.host[members])
        # Of two as large as each other the one with the first host.
        best = np.lexsort((lowest, -weight))[0]
        away = offset - np.median(offset[cluster == best])
        ahead[members] = np.where(np.abs(away) > FAR_NS / 2, np.rint(away), 0).astype(np.int64)
    return ahead


# Steps within a stretch of time ------------------------------------------------------------------


def step_rows(
    evidence: Evidence, off: tuple[Floats, Floats], fit: Fit, owners: Ints
) -> dict[int, Ints]:
    """Clocks that were set, and their rows from then on; ``owners``: the clocks' hosts.

    ``off``: how far rows lie off both ways, and by their exits.
    """
    moved, out = off
    suspects = np.flatnonzero(may_be_set(evidence, moved))
    if not len(suspects):
        return {}
    place = places(evidence, fit)[evidence.operation]
    tells = telling(evidence, owners)
    found: dict[int, tuple[float, Ints]] = {}
    for clock in suspects.tolist():
        every = np.flatnonzero(evidence.host == clock)
        rows = every[tells[every]]
        rows = rows[np.argsort(place[rows], kind="stable")]
        step = largest_step(moved[rows], out[rows], evidence.inside_ns[rows])
        if step is None:
            continue
        around = int(rows[step[1] - 1]), int(rows[step[1]])
        behind = is_behind(place, out, every, around)
        if not behind.all():  # two at one place: nothing would be left of the clock before
            found[clock] = step[0], every[behind]
    if not found:
        return {}
    best = max(found, key=lambda clock: found[clock][0])
    if len(np.unique(owners[np.unique(evidence.host)])) == 2:  # noqa: PLR2004 - mirrors
        return {best: found[best][1]}
    least = AS_LARGE * found[best][0]
    return {clock: rows for clock, (size, rows) in found.items() if size >= least}


def may_be_set(evidence: Evidence, moved: Floats) -> Flags:
    """Clocks whose means in parts of the window differ by more than a step must."""
    stretch = np.minimum(((evidence.when + 1) / 2 * STRETCHES).astype(np.int64), STRETCHES - 1)
    cell = evidence.host * STRETCHES + stretch
    cells = evidence.hosts * STRETCHES
    weight = evidence.inside_ns**-2
    total = np.bincount(cell, weight, cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (np.bincount(cell, weight * moved, cells) / total).reshape(-1, STRETCHES)
        inside = np.sqrt(np.bincount(cell, minlength=cells) / total).reshape(-1, STRETCHES)
    high = np.where(np.isfinite(mean), mean, -np.inf).max(1)
    low = np.where(np.isfinite(mean), mean, np.inf).min(1)
    least = np.where(np.isfinite(inside), inside, np.inf).min(1)
    may_be: Flags = high - low > STEP_SHARE * np.maximum(least, STEP_NS_MIN)
    return may_be


def largest_step(moved: Floats, out: Floats, inside_ns: Floats) -> tuple[float, int] | None:
    """The size of the largest step of one clock's rows in order, and its first row.

    Fast operations show it best, but its place is found among all. One that was inside meanwhile
    entered by the old clock and left by the new one: it comes after.
    """
    everywhere = np.arange(len(moved))
    fast = np.flatnonzero(inside_ns <= FAST * np.quantile(inside_ns, 0.25))
    found = [
        (*step, rows)
        for rows in (everywhere, fast)
        if (step := step_among(moved[rows], inside_ns[rows])) is not None
    ]
    if not found:
        return None
    size, at, near, rows = max(found, key=lambda step: step[0])
    first, last = rows[at], rows[at + 2 * near - 1]
    low = np.median(moved[rows[at : at + near]])
    high = np.median(moved[rows[at + near : at + 2 * near]])
    part = moved[first : last + 1]
    before = np.concatenate([[0.0], np.cumsum(np.abs(part - low))])
    after = np.concatenate([[0.0], np.cumsum(np.abs(part - high))])
    cut = int(first) + int((before + after[-1] - after)[1:-1].argmin()) + 1
    is_torn = cut > 1 and abs(out[cut - 1] - high) < abs(out[cut - 1] - low)
    return size, cut - int(is_torn)


def step_among(moved: Floats, inside_ns: Floats) -> tuple[float, int, int] | None:
    """The size of the largest step, where the rows compared begin, and how many are on each side.

    A clock that was set moves all rows: nearly the least of one side is above nearly the most of
    the other.
    """
    best: tuple[float, int, int] | None = None
    for near, spare in NEAR:
        if len(moved) < 2 * near:
            continue
        values = np.sort(np.lib.stride_tricks.sliding_window_view(moved, near), axis=1)
        longest = np.lib.stride_tricks.sliding_window_view(inside_ns, near).max(1)
        least, most = values[:, spare], values[:, -1 - spare]
        size = np.maximum(least[near:] - most[:-near], least[:-near] - most[near:])
        natural = STEP_SHARE * np.maximum(longest[near:], longest[:-near])
        size = np.where(size > np.maximum(natural, STEP_NS_MIN), size, 0.0)
        at = int(size.argmax())
        if size[at] > 0 and (best is None or size[at] > 2 * best[0]):
            best = float(size[at]), at, near
    return best
