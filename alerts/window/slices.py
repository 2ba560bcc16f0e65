"""Which slices of time to read of a job that has too many records. Pure.

What ranks do between operations can only be seen where operations follow each other: every nth of
them tells nothing of it. So a window of too many records is read in some slices, each whole, evenly
spread, the last one ending where the records do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.window.clocks import SEGMENT_SECONDS, align, operation_index, usable
from alerts.window.columns import Clock, ClockFit, Flags, Ints, Records
from alerts.window.common_clock import DRIFT_MAX, STEP_RESIDUALS
from alerts.window.split import distinct, starts_of
from collector.contract.units import NS

SLICES_MAX = 8
"""Of an hour one every seven minutes: enough to see a beginning."""
SLICE_NS_MIN = 12 * 1_000_000_000
"""Fewer slices rather than shorter ones. A job with more records than fit in so much time is looked
at in one slice, its newest."""
SLICE_STEPS = 8
"""Steps that each slice has room for, where the job's step is known: of a slice the first and the
last one are cut off, and a rank is told to be late by four late steps after four that were not
(`alerts.signals.late`). Jobs of thousands of ranks have steps of several seconds: of slices of
twelve nothing would be left."""
PIECES = 4_096
"""The window's time is counted in so many: of an hour each is a second."""
OVERFULL = 2
"""A slice of one piece alone that has so many times its share of records is left out."""
CLOCK_ROWS_MAX = 20_000
"""Records that the clocks of a slice are fitted to: of 1,280 hosts sixteen each, eight processes in
two operations. An offset is then known to a quarter of the exits' scatter. Ten times as many make
that a twelfth, which is below the share by which exits always differ, and take ten times longer."""
SEGMENT_ROWS_MAX = 2 * CLOCK_ROWS_MAX
"""The same for two minutes of a time that is read as a whole: a drift is fitted as well."""


def records_in_slices(counts: Ints, edges_ns: Ints, step_ns: int, least: int, most: int) -> int:
    """How many records to read in slices: ``least``, and more where a slice would be too short."""
    present = np.flatnonzero(counts)
    if not len(present):
        return least
    time_ns = float(edges_ns[present[-1] + 1] - edges_ns[present[0]])
    wanted = float(counts.sum()) * SLICE_STEPS * step_ns / time_ns
    return int(min(max(least, wanted), most))


def choose_slices(
    counts: Ints, edges_ns: Ints, records_max: int, step_ns: int = 0
) -> list[tuple[int, int]]:
    """The slices, in order, with about so many records; of ``counts`` each is one piece's.

    ``step_ns``: how long a step of the job takes; 0: it is not known.
    """
    present = np.flatnonzero(counts)
    if not len(present):
        return []
    first, last = int(present[0]), int(present[-1]) + 1
    total = np.concatenate([[0], np.cumsum(counts)])
    time_ns = float(edges_ns[last] - edges_ns[first]) * records_max / max(1, int(total[-1]))
    slices = max(1, min(SLICES_MAX, int(time_ns / max(SLICE_NS_MIN, SLICE_STEPS * step_ns))))
    share = max(1, records_max // slices)
    chosen: list[tuple[int, int]] = []
    for number in range(1, slices + 1):
        end = first + -(-(last - first) * number // slices)
        begin = int(np.searchsorted(total, total[end] - share))
        begin = max(min(begin, end - 1), chosen[-1][1] if chosen else first)
        if begin < end and 0 < total[end] - total[begin] <= OVERFULL * share:
            chosen.append((begin, end))
    return [(int(edges_ns[begin]), int(edges_ns[end]) - 1) for begin, end in chosen]


def whole_steps(slices: Sequence[tuple[int, int]], starts: Ints, ends: Ints) -> Flags:
    """Which of these steps, in order of time, were read from their first record to their last.

    The first and the last of a slice may be cut off; the last of all may as well be in any window.
    """
    chosen = np.full(len(ends), not slices)
    for begin, end in slices:
        inside = np.flatnonzero((starts >= begin) & (ends <= end))
        chosen[inside[1:] if end == slices[-1][1] else inside[1:-1]] = True
    return chosen


def shrunk(slices: Sequence[tuple[int, int]], clocks: Sequence[ClockFit]) -> list[tuple[int, int]]:
    """The slices by the common clock: as much as the hosts' clocks differ is cut off both ends.

    Of a host that is further away than a slice is long, a slice has none of the records.
    """
    longest = max((end - begin for begin, end in slices), default=0)
    moved = [abs(clock.offset_ns) for fit in clocks for clock in fit.clocks if clock.is_corrected]
    margin = max((each for each in moved if each < longest), default=0)
    return [(begin + margin, end - margin) for begin, end in slices if end - begin > 2 * margin]


def align_slices(records: Records, slices: Sequence[tuple[int, int]]) -> list[ClockFit]:
    """The clocks in each slice, and lines between them; ``records`` are by the hosts' clocks."""
    if slices and slices[-1][1] - slices[0][0] <= SEGMENT_SECONDS * NS * 3 // 2:
        return align_whole(records)
    fits: list[ClockFit] = []
    moment = np.maximum(records.exit_ns, records.entry_ns)
    for begin, end in slices:
        found = align(
            some_operations(records.select((moment >= begin) & (moment <= end)), CLOCK_ROWS_MAX)
        )
        if found[0].operations:
            found[0] = msgspec.structs.replace(found[0], from_ns=begin)
            found[-1] = msgspec.structs.replace(found[-1], to_ns=end)
            fits += found
    return bridged(fits) or align(records.select(slice(0)))


def align_whole(records: Records) -> list[ClockFit]:
    """The clocks of a time that was read as a whole, from a bounded number of its records."""
    span_ns = longest_span(records)
    segments = max(1, round(span_ns / (SEGMENT_SECONDS * NS)))
    return align(some_operations(records, SEGMENT_ROWS_MAX * segments))


def longest_span(records: Records) -> int:
    """The time from the first to the last exit of a host, by its own clock."""
    rows = records.timed()
    limits = np.iinfo(np.int64)
    first = np.full(len(records.hosts), limits.max, dtype=np.int64)
    last = np.full(len(records.hosts), limits.min, dtype=np.int64)
    np.minimum.at(first, records.host[rows], records.exit_ns[rows])
    np.maximum.at(last, records.host[rows], records.exit_ns[rows])
    seen = first <= last
    return int((last[seen] - first[seen]).max()) if seen.any() else 0


def some_operations(records: Records, rows_max: int) -> Records:
    """Of operations that tell of clocks every nth of each communicator, its first at least."""
    rows: Records = records.select(usable(records))
    step = -(-len(rows) // rows_max)
    if step <= 1:
        return rows
    index = operation_index(rows)
    starts = starts_of(index)
    _, stream = distinct(rows.communicator[starts], rows.operation[starts])
    first = starts_of(stream)
    place = np.arange(len(starts)) - first[stream]
    kept: Records = rows.select((place % step == 0)[index])
    return kept


def bridged(fits: Sequence[ClockFit]) -> list[ClockFit]:
    """The fits of slices and bridges between them: a drift of seconds does not hold for minutes."""
    whole: list[ClockFit] = []
    for one, other in itertools.pairwise(fits):
        whole += [one, bridge(one, other)]
    return [*(ramp(*whole[:2]) if whole else []), *whole, *fits[-1:]]


def ramp(first: ClockFit, between: ClockFit) -> list[ClockFit]:
    """The time before the first slice, by the drift to the second, and for as long as that is."""
    drifts = {clock.host: clock for clock in between.clocks}
    seen: dict[str, Clock] = {}
    for clock in first.clocks:
        seen.setdefault(clock.host, clock)
    begin = first.from_ns - (between.to_ns - between.from_ns)
    clocks = []
    for host, clock in seen.items():
        until = first.from_ns if clock.from_ns is None else clock.from_ns
        drift = drifts[host].drift
        left = ahead(clock, until - first.middle_ns)
        clocks.append(
            msgspec.structs.replace(
                clock,
                offset_ns=round((left - drift * (until - first.from_ns)) / (1 - drift)),
                drift=drift,
                is_corrected=clock.is_corrected or drifts[host].is_corrected,
                from_ns=until - (first.from_ns - begin),
                to_ns=until - 1,
                is_known=drifts[host].is_known,
            )
        )
    return [
        ClockFit(
            from_ns=begin,
            to_ns=first.from_ns - 1,
            middle_ns=first.from_ns,
            clocks=clocks,
            operations=0,
        )
    ]


def bridge(one: ClockFit, other: ClockFit) -> ClockFit:
    """A straight line for each clock, from the end of one fit to the beginning of the next.

    Where no drift explains the difference, the clock was set at a time that is not known.
    """
    begin, end = one.to_ns + 1, max(other.from_ns, one.to_ns + 2)
    middle = (begin + end) // 2
    after = {clock.host: clock for clock in reversed(other.clocks)}
    before = {clock.host: clock for clock in one.clocks}
    clocks = []
    for host, clock in before.items():
        later = after.get(host, clock)
        then = other if host in after else one
        left_at = one.to_ns if clock.to_ns is None else clock.to_ns
        right_at = then.from_ns if later.from_ns is None else later.from_ns
        right_at = max(right_at, left_at + 1)
        left = ahead(clock, left_at - one.middle_ns)
        right = ahead(later, right_at - then.middle_ns)
        bounds = [each.bound_ns for each in (clock, later) if each.bound_ns is not None]
        residual = max(clock.residual_ns, later.residual_ns)
        drift = (right - left) / (right_at - left_at)
        elapsed = (left_at + right_at) // 2 - middle
        moved = DRIFT_MAX * (right_at - left_at) + STEP_RESIDUALS * residual
        is_steady = abs(right - left) <= moved
        clocks.append(
            Clock(
                host=host,
                offset_ns=round(((left + right) / 2 - drift * elapsed) / (1 - drift)),
                drift=drift,
                residual_ns=residual,
                bound_ns=max(bounds, default=None),
                is_corrected=clock.is_corrected or later.is_corrected,
                from_ns=left_at + 1,
                to_ns=right_at - 1,
                is_known=is_steady and clock.is_known and later.is_known,
            )
        )
    return ClockFit(from_ns=begin, to_ns=end - 1, middle_ns=middle, clocks=clocks, operations=0)


def ahead(clock: Clock, elapsed_ns: int) -> float:
    """``elapsed_ns``: since the fit's middle, by the host's own clock."""
    if not clock.is_corrected:
        return 0.0
    return clock.offset_ns + clock.drift * (elapsed_ns - clock.offset_ns)
