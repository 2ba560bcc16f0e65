"""Slow steps replayed without a culprit's excess: what a step would take. Pure.

The model is that of `alerts.signals.what_if`: a rank enters an operation some time of its own after
it left the one before, an operation goes on when its last rank has entered, and each rank leaves as
long after that as it did. So a step takes the maximum over ranks of entry and transfer, operation
by operation. Two things can be taken away: what a rank's own time is longer by than in normal
steps, and what transfers are longer by than those of the same communicator, operation and size in
normal steps. With transfers goes the own time that grew without making its rank late: behind a slow
link ranks of a tree wait outside of what is recorded. Everything else stays as it was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from alerts.compare.blame import KindName, KindTimes
from alerts.compare.model import Row, Without
from alerts.compare.sides import Side, rows_drawn
from alerts.signals.what_if import MATCHED_SHARE_MIN, ROWS_MAX, Graph, own_between
from alerts.window.columns import Flags, Floats, Ints, Records
from alerts.window.messages import is_pairwise
from alerts.window.split import distinct

ASSUMPTIONS = [
    "A rank enters when its own time is over; a collective goes on when its last rank has entered.",
    "After that each rank leaves as late as it did.",
    "Only what is beyond the normal steps is taken away: of the rank's own time, or of transfers.",
    "Transfers are held against those of the same communicator, operation and size.",
    "Own time that grew and made no rank late is waiting for the network, and goes with it.",
    "Everything else stays as measured; other jobs' use of the same links is not modelled.",
]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken away, and its name."""

    what: str
    ranks: list[int]
    title: str


class Replay:
    """The slow steps as a graph, played as often as asked."""

    def __init__(self, slow: Side, normal: Side) -> None:
        self._slow, self._normal = slow, normal
        self._chosen = rows_played(slow)
        self._graph = Graph(slow.table.rows, self._chosen) if len(self._chosen) else None
        self._base = self._graph.base if self._graph is not None else []
        self._begin = min(self._graph.entry) if self._graph is not None else 0.0

    @property
    def why_not(self) -> str:
        """Why nothing can be replayed; empty: it can."""
        if not len(self._chosen):
            return f"a step has more than {ROWS_MAX:,} records: it is not replayed"
        if self._graph is None or self._graph.matched_share < MATCHED_SHARE_MIN:
            return "the other end of some messages is not known: steps cannot be replayed"
        return ""

    def play(
        self,
        taken: Taken,
        usual: Mapping[KindName, KindTimes],
        idle: Sequence[int],
        shown: list[int],
    ) -> Without | None:
        """None where taking it away saves nothing.

        ``idle``: ranks whose own time grew and that were not late.
        """
        assert self._graph is not None, "why_not was asked"
        nothing = [0.0] * len(self._chosen)
        saved, sooner = nothing, nothing
        if taken.what == "rank":
            saved = self._own_excess(taken.ranks).tolist()
        else:
            sooner = self._transfer_excess(taken.ranks, usual).tolist()
            # In a tree, ranks that have passed on their part wait outside of what is recorded.
            saved = self._own_excess(idle).tolist()
        entry, leave = self._graph.play_times(saved, sooner)
        before, after = self._lengths(self._graph.play(nothing)), self._lengths(leave)
        total = float(before.sum())
        share = 1.0 - float(after.sum()) / total if total > 0 else 0.0
        if share <= 0:
            return None
        step_ns = self._slow.step_ns
        return Without(
            what=taken.what,
            ranks=taken.ranks,
            title=taken.title,
            step_ns=round(step_ns * (1.0 - share)),
            saved_ns=round(step_ns * share),
            rows=self._drawn(entry, leave, shown),
        )

    def _own_excess(self, ranks: Collection[int]) -> Floats:
        """For each row what its rank's own time before it is longer by than in normal steps.

        Against the same place of the step, because a rank that is slow before one collective need
        not be before the next; in all no more than its step has too much of.
        """
        rows = self._slow.table.rows
        gap = own_between(rows, self._chosen, np.array(self._base))
        usual = gaps_by_place(self._normal, ranks)
        played = np.intersect1d(self._slow.steps, rows.bin[self._chosen])
        places = places_in_step(self._slow, ranks, played)
        normal = self._normal.medians("own_ns")
        saved = np.zeros(len(gap))
        where = {int(row): place for place, row in enumerate(self._chosen)}
        for (rank, _), own in places.items():
            taken = {
                where[row]: max(0.0, gap[where[row]] - usual[place])
                for row, place in own
                if row in where and place in usual
            }
            total = sum(gap[where[row]] for row, _ in own if row in where)
            beyond, sum_taken = total - normal.get(rank, np.nan), sum(taken.values())
            share = min(1.0, beyond / sum_taken) if sum_taken > 0 and beyond > 0 else 0.0
            for row, value in taken.items():
                saved[row] = value * share
        return saved

    def _transfer_excess(
        self, ranks: Collection[int], usual: Mapping[KindName, KindTimes]
    ) -> Floats:
        """For each row of a collective of these ranks (none: of all) what to leave sooner by."""
        slow = self._slow
        rows, chosen = slow.table.rows, self._chosen
        records = rows.records.select(chosen)
        number = slow.meetings.number[chosen]
        involved = ~is_pairwise(records) & np.isin(rows.bin[chosen], slow.steps)
        if ranks:
            theirs = np.isin(slow.table.ranks[rows.rank[chosen]], list(ranks))
            involved &= np.isin(number, number[theirs])
        after = (records.exit_ns - slow.meetings.last_ns[chosen]).astype(np.float64)
        whole = np.zeros(int(number.max(initial=-1)) + 1)
        np.maximum.at(whole, number, after)
        normal = usual_transfers(records, usual)
        factor = np.fmin(1.0, normal / np.maximum(whole[number], 1.0))
        found: Floats = np.where(involved, np.maximum(after, 0.0) * (1.0 - factor), 0.0)
        return found

    def _lengths(self, leave: list[float]) -> Floats:
        """How long each of the slow steps took, by when its last rank left it."""
        step = self._slow.table.rows.bin[self._chosen]
        first = int(step.min())
        ends = np.full(int(step.max()) - first + 1, -np.inf)
        np.maximum.at(ends, step - first, np.array(leave))
        lengths = np.diff(np.maximum.accumulate(ends), prepend=self._begin)
        is_slow: Flags = np.isin(np.arange(len(lengths)) + first, self._slow.steps)
        found: Floats = lengths[is_slow]
        return found

    def _drawn(self, entry: list[float], leave: list[float], shown: list[int]) -> list[Row]:
        if self._slow.shown not in self._slow.table.rows.bin[self._chosen]:
            return []  # of too many rows the last steps are played
        records = self._slow.table.rows.records
        base = int(records.entry_ns[self._chosen].min())
        entry_ns, leave_ns = records.entry_ns.copy(), records.exit_ns.copy()
        entry_ns[self._chosen] = np.rint(np.array(entry)).astype(np.int64) + base
        leave_ns[self._chosen] = np.rint(np.array(leave)).astype(np.int64) + base
        number = self._slow.meetings.number
        last = np.full(int(number.max()) + 1, np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(last, number, entry_ns)
        return rows_drawn(self._slow, shown, entry_ns, leave_ns, last[number])


Place = tuple[int, str, str, int, int]
"""Of an operation in a rank's step: rank, communicator, operation, size, and which of its kind."""


def places_in_step(
    side: Side, ranks: Collection[int], steps: Ints
) -> dict[tuple[int, int], list[tuple[int, Place]]]:
    """For each of these steps of these ranks its rows, each with its place."""
    rows, table = side.table.rows, side.table
    records = rows.records
    chosen = rows_of(side, ranks, steps)
    seen: dict[tuple[int, Place], int] = {}
    found: dict[tuple[int, int], list[tuple[int, Place]]] = {}
    for row in chosen.tolist():
        rank, step = int(table.ranks[rows.rank[row]]), int(rows.bin[row])
        kind: Place = (
            rank,
            records.communicators[records.communicator[row]],
            records.operations[records.operation[row]],
            int(records.size_bytes[row]),
            0,
        )
        count = seen.get((step, kind), 0)
        seen[step, kind] = count + 1
        found.setdefault((rank, step), []).append((row, (*kind[:4], count)))
    return found


def rows_of(side: Side, ranks: Collection[int], steps: Ints) -> Ints:
    rows = side.table.rows
    own = np.isin(side.table.ranks[rows.rank], list(ranks))
    return np.flatnonzero(own & np.isin(rows.bin, steps)).astype(np.int64)


def gaps_by_place(side: Side, ranks: Collection[int]) -> dict[Place, float]:
    """The median own time before each place of these ranks' steps; of too many rows the last."""
    values: dict[Place, list[float]] = {}
    steps = side.steps
    while len(steps) > 1 and len(rows_of(side, ranks, steps)) > ROWS_MAX:
        steps = steps[len(steps) // 2 :]
    for own in places_in_step(side, ranks, steps).values():
        for row, place in own:
            values.setdefault(place, []).append(float(side.times.own[row]))
    return {place: float(np.median(each)) for place, each in values.items()}


def usual_transfers(records: Records, usual: Mapping[KindName, KindTimes]) -> Floats:
    """For each row the normal transfer of its kind; NaN: none is known."""
    first, kind = distinct(records.communicator, records.operation, records.size_bytes)
    names = (
        (
            records.communicators[records.communicator[row]],
            records.operations[records.operation[row]],
            int(records.size_bytes[row]),
        )
        for row in first.tolist()
    )
    known = [usual[name].median_ns if name in usual else np.nan for name in names]
    return np.array(known, dtype=np.float64)[kind]


def rows_played(slow: Side) -> Ints:
    """Rows of the slow steps and of the one before, whose exits they begin from.

    Of more than ROWS_MAX the last steps; none if a single one has more.
    """
    rows = slow.table.rows
    last = int(slow.steps.max())
    first = max(0, int(slow.steps.min()) - 1)
    inside = rows.bin[(rows.bin >= first) & (rows.bin <= last)]
    counts = np.bincount(inside - first, minlength=last - first + 1)
    kept = int((np.cumsum(counts[::-1]) <= ROWS_MAX).sum())
    return np.flatnonzero((rows.bin > last - kept) & (rows.bin <= last)).astype(np.int64)
