"""The steps of one side of a comparison: which they are, and where each rank's time went. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.compare.model import Row, SideSummary, Span
from alerts.signals.gaps import OwnTime, own_time
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.messages import is_pairwise, partners
from alerts.window.model import JobWindow
from alerts.window.split import distinct
from alerts.window.statistics import median_known

SPANS_MAX = 240
"""Stretches of one rank's step that are drawn: a screen has no room for more."""
SHORT_SHARE = 1e-3
"""Of a step: shorter stretches are drawn as a part of the next."""


class Meetings(msgspec.Struct, frozen=True, kw_only=True):
    """For each row of `OwnTime.rows`: when the last rank entered its operation, and which it was.

    The two ends of a message are one meeting; a message whose other end is not known meets none.
    """

    number: Ints
    last_ns: Ints
    last_row: Ints
    """The row of the rank that entered last; the lower rank of two that came together."""


class RowTimes(msgspec.Struct, frozen=True, kw_only=True):
    """For each row the rank's time since it left everything before: these three, nanoseconds."""

    own: Ints
    wait: Ints
    transfer: Ints


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps of a job, rank by rank. Tables are [ranks, steps of this side]."""

    job: JobWindow
    table: OwnTime
    steps: Ints
    """Places in the table."""
    meetings: Meetings
    times: RowTimes
    own_ns: Floats
    wait_ns: Floats
    transfer_ns: Floats
    """NaN where records of the rank's step are missing."""

    @property
    def lengths_ns(self) -> Floats:
        return self.table.length_ns[self.steps].astype(np.float64)

    @property
    def step_ns(self) -> float:
        return float(np.median(self.lengths_ns))

    @property
    def shown(self) -> int:
        """The place of the step that is drawn: its length is the lower median."""
        order = np.argsort(self.lengths_ns, kind="stable")
        return int(self.steps[order[(len(order) - 1) // 2]])

    @property
    def in_steps(self) -> Flags:
        """Which rows of the table are in these steps."""
        return np.isin(self.table.rows.bin, self.steps)

    def medians(self, name: str) -> dict[int, float]:
        """One number of each of the job's ranks; NaN: not known."""
        values: Floats = getattr(self, name)
        ranks = self.table.ranks.tolist()
        return {rank: median_known(row) for rank, row in zip(ranks, values, strict=True)}

    def summary(self) -> SideSummary:
        start, end = self.table.start_ns[self.steps], self.table.end_ns[self.steps]
        return SideSummary(
            from_ns=int(start.min()),
            to_ns=int(end.max()),
            steps=len(self.steps),
            step_ns=round(self.step_ns),
            shown_ns=int(self.table.start_ns[self.shown]),
        )


def why_not(job: JobWindow) -> str:
    """Why a job's steps cannot be compared; empty: they can."""
    left_out = ", ".join(sorted(job.hosts_left_out)[:4])
    reasons = (
        (
            not job.records.timed().any(),
            "no record of a collective with its times is there",
        ),
        (
            job.is_estimate,
            "only durations of collectives are known: waiting cannot be told from transfer",
        ),
        (
            job.kept_one_in > 1,
            f"one operation in {job.kept_one_in} was kept: time between them is not known",
        ),
        (bool(left_out), f"the clock of {left_out} cannot be compared with the others"),
        (
            not job.steps,
            "its steps are not known: its collectives do not repeat, and no step was marked",
        ),
    )
    found = next((words for is_so, words in reasons if is_so), "")
    if not found and own_time(job) is None:
        return "one rank alone has records: none waits for another"
    return found


def steps_in(table: OwnTime, from_ns: int, to_ns: int) -> Ints:
    """Steps whose middle lies in the time; of a moment, or of less than a step, the one around."""
    middle = table.start_ns + table.length_ns // 2
    inside = np.flatnonzero((middle >= from_ns) & (middle < to_ns))
    if not len(inside):
        moment = from_ns + (to_ns - from_ns) // 2
        inside = np.flatnonzero((table.start_ns <= moment) & (moment < table.end_ns))[:1]
    return inside.astype(np.int64)


def side_of(job: JobWindow, steps: Ints) -> Side:
    """These steps of a job whose table is known and which are at least one."""
    table = own_time(job)
    assert table is not None, "why_not was asked"
    assert len(steps), "a side has steps"
    meetings = meetings_of(table)
    times = row_times(table, meetings)
    known = ~np.isnan(table.outside_ns[:, steps])
    cells = {
        name: np.where(known, summed(table, getattr(times, name))[:, steps], np.nan)
        for name in ("own", "wait", "transfer")
    }
    return Side(
        job=job,
        table=table,
        steps=steps,
        meetings=meetings,
        times=times,
        own_ns=cells["own"],
        wait_ns=cells["wait"],
        transfer_ns=cells["transfer"],
    )


def meetings_of(table: OwnTime) -> Meetings:
    rows = table.rows
    records = rows.records
    alone = is_pairwise(records)
    place = np.arange(len(records), dtype=np.int64)
    mate = partners(records) if alone.any() else np.full(len(records), -1, dtype=np.int64)
    message = np.where(alone, np.where(mate >= 0, np.minimum(place, mate), place), -1)
    _, number = distinct(np.where(alone, -1, rows.operation), message)
    count = int(number.max(initial=-1)) + 1
    last = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(last, number, records.entry_ns)
    row = np.full(count, len(records), dtype=np.int64)
    is_last = records.entry_ns == last[number]
    # Rows are by rank: the first of those that came together is the lowest rank's.
    np.minimum.at(row, number[is_last], place[is_last])
    return Meetings(number=number, last_ns=last[number], last_row=row[number])


def row_times(table: OwnTime, meetings: Meetings) -> RowTimes:
    """Where time went, none of it counted twice: what an earlier operation covers is its own."""
    rows = table.rows
    entry, leave = rows.records.entry_ns, rows.records.exit_ns
    base = int(entry.min())
    span = int(leave.max()) - base + 1
    # All ranks in one column, each above the one before, so that a running maximum stays within.
    shift = rows.rank * span
    ended = np.maximum.accumulate(leave - base + shift)
    before = entry.copy()
    same = rows.rank[1:] == rows.rank[:-1]
    before[1:][same] = (ended[:-1] - shift[:-1] + base)[same]
    begin = np.maximum(entry, before)
    turn = np.clip(meetings.last_ns, begin, np.maximum(begin, leave))
    return RowTimes(
        own=np.maximum(entry - before, 0),
        wait=turn - begin,
        transfer=np.maximum(leave - turn, 0),
    )


def summed(table: OwnTime, values: Ints) -> Floats:
    """[ranks, steps] of a number of each row."""
    rows = table.rows
    shape = (len(table.ranks), len(table.start_ns))
    inside = (rows.bin >= 0) & (rows.bin < shape[1])
    cell = rows.rank[inside] * shape[1] + rows.bin[inside]
    total = np.bincount(cell, values[inside].astype(np.float64), shape[0] * shape[1])
    return total.astype(np.float64).reshape(shape)


# Drawn -------------------------------------------------------------------------------------------


def rows_drawn(
    side: Side, ranks: list[int], entry_ns: Ints, leave_ns: Ints, last_ns: Ints
) -> list[Row]:
    """The shown step of these ranks, from what was measured or replayed: one time for each row.

    All begin together, when the first of all ranks left what was before the step.
    """
    table = side.table
    chosen = np.flatnonzero(table.rows.bin == side.shown)
    place = {rank: number for number, rank in enumerate(table.ranks.tolist())}
    begun = {int(table.rows.rank[row]): begun_at(side, row, leave_ns) for row in chosen[::-1]}
    start = min(begun.values(), default=0)
    shortest = int(SHORT_SHARE * side.step_ns)
    found = []
    for rank in ranks:
        number = place.get(rank)
        own = chosen[table.rows.rank[chosen] == number] if number in begun else chosen[:0]
        spans: list[Span] = []
        at = begun.get(number, start) if number is not None else start
        for row in own.tolist():
            turn = max(at, int(last_ns[row]))
            for part, until in (
                ("own", int(entry_ns[row])),
                ("wait", min(turn, int(leave_ns[row]))),
                ("transfer", int(leave_ns[row])),
            ):
                if until - at > shortest:
                    spans.append(Span(part, at - start, until - start))
                    at = until
        found.append(Row(rank=rank, spans=spans[:SPANS_MAX], is_cut=len(spans) > SPANS_MAX))
    return found


def begun_at(side: Side, row: int, leave_ns: Ints) -> int:
    """When a rank's step began: as it left what was before this row, its first of the step."""
    rows = side.table.rows
    is_first = row == 0 or rows.rank[row - 1] != rows.rank[row]
    return int(rows.records.entry_ns[row]) if is_first else int(leave_ns[row - 1])
