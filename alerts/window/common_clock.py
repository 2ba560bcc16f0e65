"""From the hosts' own clocks to the common one. Pure.

A host's clock is straight lines, each for the times that its evidence covers by that clock. Beyond
them a line is not prolonged: what it said last is held. Between two lines that do not meet, the
clock was set. A time that both lines claim is of the one that brings it closer to the operation's
other ranks. What no line has, or an operation that a clock was set in, loses its times, and so does
all of a clock that is not known: a lateness that cannot be computed accuses no rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.window.clocks import operation_index
from alerts.window.columns import Clock, ClockFit, Flags, Floats, Ints, Records
from alerts.window.grouped import rows_of
from collector.contract.records import ABSENT
from collector.contract.units import NS

HELD_NS = NS
"""A line is prolonged by a second: an entry lies before its exit. A drift of 50 ppm more or less is
50 µs then."""
STEP_RESIDUALS = 3.0
"""Two lines that are further apart than so many of their errors do not meet."""
DRIFT_MAX = 2e-4
"""200 ppm, four times what a quartz does: between two lines a clock may have moved by so much."""
NEVER = np.iinfo(np.int64)
NONE, SEVERAL = -1, -2
"""Instead of a line's number."""
TIMES = ("entry_ns", "exit_ns", "enqueue_ns")


class HostClock(msgspec.Struct, frozen=True, kw_only=True):
    """One host's clock: its lines in order of the common time; times are by the host's own clock.

    A record is of the line whose ``low_ns`` to ``high_ns`` its end lies in, if its entry is not
    before ``entry_low_ns``.
    """

    low_ns: Ints
    high_ns: Ints
    entry_low_ns: Ints
    from_ns: Ints
    to_ns: Ints
    offset_ns: Ints
    drift: Floats
    middle_ns: Ints
    is_known: Flags

    @property
    def is_plain(self) -> bool:
        """Whether no time is claimed by two lines."""
        return bool((self.low_ns[1:] > self.high_ns[:-1]).all())

    def parted(self) -> HostClock | None:
        """The same without times that two lines claim; None: it was set back."""
        claimed = self.low_ns[1:] <= self.high_ns[:-1]
        low, high, entry = self.low_ns.copy(), self.high_ns.copy(), self.entry_low_ns.copy()
        high[:-1] = np.where(claimed, self.to_ns[:-1], high[:-1])
        low[1:] = np.where(claimed, self.from_ns[1:], low[1:])
        entry[1:] = np.where(claimed, self.from_ns[1:], entry[1:])
        found = msgspec.structs.replace(self, low_ns=low, high_ns=high, entry_low_ns=entry)
        return found if found.is_plain else None

    def line_of(self, time_ns: Ints) -> Ints:
        """The line of each time; NONE, or SEVERAL."""
        if self.is_plain:
            place = np.searchsorted(self.low_ns, time_ns, side="right") - 1
            found = np.where(time_ns <= self.high_ns[place], place, NONE)
            return np.where(place < 0, NONE, found)
        answer = np.full(len(time_ns), NONE, dtype=np.int64)
        for number in range(len(self.low_ns)):
            inside = (time_ns >= self.low_ns[number]) & (time_ns <= self.high_ns[number])
            answer = np.where(inside, np.where(answer == NONE, number, SEVERAL), answer)
        return answer

    def ahead_ns(self, line: Ints, time_ns: Ints) -> Floats:
        """How far the clock is ahead at these times, by these lines."""
        held = np.clip(time_ns, self.from_ns[line] - HELD_NS, self.to_ns[line] + HELD_NS)
        elapsed = (held - self.offset_ns[line] - self.middle_ns[line]).astype(np.float64)
        ahead: Floats = self.offset_ns[line] + self.drift[line] * elapsed
        return ahead

    def nearest(self, time_ns: Ints) -> Ints:
        """A known line for each time, the nearest; for what has nothing but its time."""
        away = np.maximum(self.from_ns[:, None] - time_ns, time_ns - self.to_ns[:, None])
        away = np.where(self.is_known[:, None], np.maximum(away, 0), NEVER.max)
        line: Ints = away.argmin(0)
        return line


def host_clocks(fits: Sequence[ClockFit]) -> dict[str, HostClock]:
    """The clocks of hosts whose times must be changed, or cannot be; all others are right."""
    lines: dict[str, list[tuple[ClockFit, Clock]]] = {}
    wrong = {
        clock.host
        for fit in fits
        for clock in fit.clocks
        if clock.is_corrected or not clock.is_known
    }
    if not wrong:
        return {}
    for fit in fits:
        for clock in fit.clocks:
            if clock.host in wrong:
                lines.setdefault(clock.host, []).append((fit, clock))
    return {host: to_host_clock(own) for host, own in lines.items()}


def to_host_clock(lines: Sequence[tuple[ClockFit, Clock]]) -> HostClock:
    spans = [
        (
            fit.from_ns if clock.from_ns is None else clock.from_ns,
            fit.to_ns if clock.to_ns is None else clock.to_ns,
        )
        for fit, clock in lines
    ]
    shifts = [clock.offset_ns if clock.is_corrected else 0 for _, clock in lines]
    order = sorted(range(len(lines)), key=lambda number: spans[number][0] - shifts[number])

    def column(values: Sequence[int]) -> Ints:
        return np.array([values[number] for number in order], dtype=np.int64)

    from_ns, to_ns = column([one for one, _ in spans]), column([one for _, one in spans])
    is_known = np.array([lines[number][1].is_known for number in order], dtype=bool)
    drift = np.array([lines[number][1].drift for number in order])
    clock = HostClock(
        low_ns=from_ns.copy(),
        high_ns=to_ns.copy(),
        entry_low_ns=np.full(len(order), NEVER.min, dtype=np.int64),
        from_ns=from_ns,
        to_ns=to_ns,
        offset_ns=column(shifts),
        drift=np.where(column([clock.is_corrected for _, clock in lines]) > 0, drift, 0.0),
        middle_ns=column([fit.middle_ns for fit, _ in lines]),
        is_known=is_known,
    )
    widen(clock, column([clock.residual_ns for _, clock in lines]))
    return clock


def widen(clock: HostClock, residual_ns: Ints) -> None:
    """The lines' ends moved to where the next one begins.

    Where the clock was set in between, each line may reach as far as the other one begins.
    """
    low, high = clock.low_ns, clock.high_ns
    meets = meeting(clock, residual_ns)
    between = (clock.to_ns[:-1] + clock.from_ns[1:]) // 2
    first = np.arange(len(low) - 1)
    ended = clock.to_ns[:-1] - clock.ahead_ns(first, clock.to_ns[:-1])
    begun = clock.from_ns[1:] - clock.ahead_ns(first + 1, clock.from_ns[1:])
    known = clock.is_known[:-1] & clock.is_known[1:]
    gap = np.where(known, np.maximum(begun - ended, 0), 0).astype(np.int64)
    high[:-1] = np.where(meets, between, high[:-1] + gap)
    low[1:] = np.where(meets, between + 1, low[1:] - gap)
    clock.entry_low_ns[1:] = np.where(meets, NEVER.min, low[1:])
    # What lies before and after all evidence is of the first and of the last line; of a clock that
    # was set back as far as half of the way to where it was before.
    below, above = high[high < clock.from_ns[0]], low[low > clock.to_ns[-1]]
    first_ns, last_ns = clock.from_ns[0], clock.to_ns[-1]
    low[0] = (int(below.max()) + int(first_ns)) // 2 + 1 if len(below) else NEVER.min
    high[-1] = (int(above.min()) + int(last_ns)) // 2 if len(above) else NEVER.max
    if (low[1:] < first_ns).any() and not len(below):
        low[0] = first_ns
    if (high[:-1] > last_ns).any() and not len(above):
        high[-1] = last_ns


def meeting(clock: HostClock, residual_ns: Ints) -> Flags:
    """Whether each line goes over into the next one, and the clock was not set in between."""
    first = np.arange(len(clock.from_ns) - 1)
    one = clock.ahead_ns(first, clock.to_ns[:-1])
    other = clock.ahead_ns(first + 1, clock.from_ns[1:])
    gap = np.maximum(clock.from_ns[1:] - clock.to_ns[:-1], 0)
    allowed = STEP_RESIDUALS * (residual_ns[:-1] + residual_ns[1:]) + DRIFT_MAX * gap
    meets: Flags = np.abs(one - other) <= allowed
    meets &= clock.is_known[:-1] & clock.is_known[1:]
    return meets & (clock.from_ns[1:] > clock.to_ns[:-1])


def ahead_of(clocks: Mapping[str, HostClock], host: str, time_ns: Ints) -> Ints:
    """How far a host's clock is ahead at these times, by the line that is nearest."""
    clock = clocks.get(host)
    if clock is None or not clock.is_known.any():
        return np.zeros(len(time_ns), dtype=np.int64)
    return np.rint(clock.ahead_ns(clock.nearest(time_ns), time_ns)).astype(np.int64)


def correct(records: Records, fits: Sequence[ClockFit]) -> Records:
    """The records on the common clock; those of hosts whose clocks are good are as they were.

    Times of a clock that is not known are taken away.
    """
    clocks = host_clocks(fits)
    if not clocks or not len(records):
        return records
    moment = np.maximum(records.exit_ns, records.entry_ns)
    single = {name: clock for name, clock in clocks.items() if len(clock.low_ns) == 1}
    columns = move_all(records, single, moment)
    if len(single) == len(clocks):
        return msgspec.structs.replace(records, **columns)
    rows_of = by_host(records)
    unsure: list[tuple[HostClock, Ints]] = []
    for code, name in enumerate(records.hosts):
        clock, rows = clocks.get(name), rows_of[code]
        if clock is None or name in single or not len(rows):
            continue
        timed = rows[moment[rows] != ABSENT]
        line = clock.line_of(moment[timed])
        move(columns, clock, timed, line)
        if (line == SEVERAL).any():
            unsure.append((clock, timed[line == SEVERAL]))
    if unsure:
        place_unsure(records, columns, unsure)
    return msgspec.structs.replace(records, **columns)


def move_all(records: Records, clocks: Mapping[str, HostClock], moment: Ints) -> dict[str, Ints]:
    """Columns of times, those of hosts with one line each on the common clock, all at once.

    Such a line holds for all times. ``moment``: of each record, by its host's clock.
    """
    lines = [clocks.get(name) for name in records.hosts]

    def of_hosts(field: str, usual: float = 0) -> npt.NDArray[Any]:
        values = [usual if clock is None else getattr(clock, field)[0] for clock in lines]
        return np.array(values)[host]

    host = records.host
    rows = moment != ABSENT
    if None in lines:
        rows &= np.array([clock is not None for clock in lines])[host]
    first, last = of_hosts("from_ns") - HELD_NS, of_hosts("to_ns") + HELD_NS
    offset, drift, is_known = of_hosts("offset_ns"), of_hosts("drift", 0.0), of_hosts("is_known")
    middle = offset + of_hosts("middle_ns")
    found = {}
    for name in TIMES:
        time_ns = getattr(records, name)
        ahead = offset + drift * (np.clip(time_ns, first, last) - middle).astype(np.float64)
        moved = time_ns - np.rint(ahead).astype(np.int64)
        kept = (time_ns != ABSENT) & (is_known != 0)
        found[name] = np.where(rows, np.where(kept, moved, ABSENT), time_ns)
    return found


def by_host(records: Records) -> list[Ints]:
    order = rows_of(records.host)
    ends = np.cumsum(np.bincount(records.host, minlength=len(records.hosts)))
    return np.split(order, ends[:-1])


def move(columns: Mapping[str, Ints], clock: HostClock, rows: Ints, line: Ints) -> None:
    """These rows' times put onto the common clock; none where no line has them."""
    entry, leave = columns["entry_ns"][rows], columns["exit_ns"][rows]
    both = (entry != ABSENT) & (leave != ABSENT)
    is_set = bool((clock.entry_low_ns != NEVER.min).any())
    # An entry by the clock as it was before it was set.
    is_torn = both & ((entry < clock.entry_low_ns[line]) | (is_set & (entry > leave)))
    good = (line >= 0) & clock.is_known[line] & ~is_torn
    for name, column in columns.items():
        there = column[rows] != ABSENT
        time_ns = column[rows]
        moved = time_ns - np.rint(clock.ahead_ns(line, time_ns)).astype(np.int64)
        kept = good & there
        if name == "enqueue_ns":
            kept &= time_ns >= clock.entry_low_ns[line]
        column[rows] = np.where(kept, moved, ABSENT)


def place_unsure(
    records: Records, columns: Mapping[str, Ints], unsure: Sequence[tuple[HostClock, Ints]]
) -> None:
    """Rows that two lines claim: the one that brings them closer to their operation's others."""
    operation = operation_index(records)
    leave = columns["exit_ns"]
    known = leave != ABSENT
    base = int(leave[known][0]) if known.any() else 0
    count = np.bincount(operation[known], minlength=int(operation[-1]) + 1)
    total = np.bincount(
        operation[known], (leave[known] - base).astype(np.float64), minlength=len(count)
    )
    for clock, rows in unsure:
        others = count[operation[rows]]
        goal = total[operation[rows]] / np.maximum(others, 1) + base
        moment = np.maximum(records.exit_ns[rows], records.entry_ns[rows])
        line = in_order(records, clock, rows, moment)
        least = np.full(len(rows), np.inf)
        for number in range(len(clock.low_ns)):
            same = np.full(len(rows), number)
            inside = (moment >= clock.low_ns[number]) & (moment <= clock.high_ns[number])
            away = np.abs(moment - clock.ahead_ns(same, moment) - goal)
            # What a clock that is not known may have written, no other line has.
            away = np.where(clock.is_known[number], away, -1.0)
            closer = inside & (others > 0) & (away < least)
            line, least = np.where(closer, number, line), np.where(closer, away, least)
        for name in columns:
            columns[name][rows] = getattr(records, name)[rows]
        move(columns, clock, rows, line)


def in_order(records: Records, clock: HostClock, rows: Ints, moment: Ints) -> Ints:
    """The line of rows without others, by their numbers: times fall back where the clock did.

    Rows are sorted by operation and number. A rank's numbers grow, and so do its times, but for
    once; where they do not fall back, nothing tells where the clock was set: NONE.
    """
    stream = np.zeros(len(rows), dtype=bool)
    order = np.lexsort(
        (records.sequence[rows], records.rank[rows], records.operation[rows],
         records.communicator[rows])
    )  # fmt: skip
    for key in (records.communicator, records.operation, records.rank):
        values = key[rows[order]]
        stream[1:] |= values[1:] != values[:-1]
    answer = np.full(len(rows), NONE, dtype=np.int64)
    for part in np.split(order, np.flatnonzero(stream)):
        if len(part) < 2:  # noqa: PLR2004 - before and after
            continue
        falls = np.diff(moment[part])
        cut = int(falls.argmin()) + 1
        claims = np.flatnonzero(
            (clock.low_ns <= moment[part[cut - 1]]) & (clock.high_ns >= moment[part[cut - 1]])
        )
        if falls[cut - 1] < 0 and len(claims) == 2:  # noqa: PLR2004 - before and after
            answer[part[:cut]], answer[part[cut:]] = claims
    return answer
