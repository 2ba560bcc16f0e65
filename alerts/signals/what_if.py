"""A job's steps played again with some ranks' own time changed: what that would save. Pure.

What ranks did is a graph. A rank enters an operation some time of its own after it has left the one
before; a collective goes on when its last rank has entered; a message when both ends have. Own
times and what follows the last entry (the transfer) are taken as they were measured, and times are
computed from them: so a rank that was slow where no other had to wait for it costs nothing.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.signals.gaps import OwnTime, Rows
from alerts.window.columns import Floats, Ints
from alerts.window.messages import is_pairwise, partners
from alerts.window.model import JobWindow
from collector.contract.verdict import Cost

SECONDS = 1e9
ROWS_MAX = 60_000
"""Records that are played again: a tenth of a second. Of a longer stretch its last steps are, and
the others count as much."""


CLOCK_NS = 100_000
"""By which the end of one operation and the beginning of the next on one GPU may be seen too close:
sources write whole microseconds, and threads note them some ten microseconds late."""
MATCHED_SHARE_MIN = 0.9
"""Of messages whose other end is known: ranks do not wait for messages that come from nowhere."""
OVERLAPPING_MAX = 16
"""Operations of one rank that run at the same time: more streams do not."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step took, computed from what was measured, and how long with the change."""

    seconds: Floats
    seconds_changed: Floats

    @property
    def saved_share(self) -> float:
        total = float(self.seconds.sum())
        return max(0.0, 1.0 - float(self.seconds_changed.sum()) / total) if total > 0 else 0.0


def what_if(own: OwnTime, factor: Floats, steps: slice) -> Played | None:
    """The steps with each rank's own time multiplied; ``factor`` is [ranks, steps].

    None where nothing can be played: no rows in these steps, or messages with one end only.
    """
    first, last = last_steps(own.rows, steps)
    chosen = np.flatnonzero((own.rows.bin >= first) & (own.rows.bin < last))
    if last - first < 1 or not len(chosen):
        return None
    rows = own.rows
    graph = Graph(rows, chosen)
    if graph.matched_share < MATCHED_SHARE_MIN:
        return None
    gap = own_between(rows, chosen, np.array(graph.base))
    saved = gap * (1.0 - np.nan_to_num(factor, nan=1.0)[rows.rank[chosen], rows.bin[chosen]])
    step = rows.bin[chosen] - first
    lengths = []
    for each in (0.0 * saved, saved):
        ends = np.full(last - first, -np.inf)
        np.maximum.at(ends, step, np.array(graph.play(each.tolist())))
        lengths.append(np.diff(np.maximum.accumulate(ends), prepend=min(graph.entry)) / SECONDS)
    return Played(seconds=lengths[0], seconds_changed=lengths[1])


def own_between(rows: Rows, chosen: Ints, base: Floats) -> Floats:
    """The rank's own time before each row, from when it was played to have begun with it."""
    if rows.busy is None:
        return np.maximum(rows.gap_ns[chosen], 0).astype(np.float64)
    rank, entry = rows.rank[chosen], rows.records.entry_ns[chosen]
    since = np.minimum(base.astype(np.int64) + int(entry.min()), entry)
    done = rows.busy.until(rank, entry)
    before = np.zeros(len(done))
    same = rank[1:] == rank[:-1]
    before[1:][same] = done[:-1][same]
    # Of the gap what was not computed: idle outside of all operations, so after the last of them.
    idle = np.where(np.append(False, same), rows.gap_ns[chosen] - (done - before), 0.0)
    own = done - rows.busy.until(rank, since) + np.maximum(idle, 0.0)
    found: Floats = np.minimum(own, (entry - since).astype(np.float64))
    return found


def last_steps(rows: Rows, steps: slice) -> tuple[int, int]:
    """The last of these steps that together have at most ROWS_MAX rows."""
    inside = rows.bin[(rows.bin >= steps.start) & (rows.bin < steps.stop)]
    counts = np.bincount(inside - steps.start, minlength=max(0, steps.stop - steps.start))
    kept = int((np.cumsum(counts[::-1]) <= ROWS_MAX).sum())
    return steps.stop - max(1, kept), steps.stop


class Graph:
    """The rows as lists, because they are gone through one by one, in the order of entries."""

    def __init__(self, rows: Rows, chosen: Ints) -> None:
        records = rows.records.select(chosen)
        base = int(records.entry_ns.min())
        self.entry: list[float] = (records.entry_ns - base).astype(np.float64).tolist()
        self.exit: list[float] = (records.exit_ns - base).astype(np.float64).tolist()
        self.rank: list[int] = rows.rank[chosen].tolist()
        self.prior = [-1] * len(chosen)
        """The row of its rank that was entered before, where it is known what ranks compute."""
        begun = self.entry
        if rows.busy is not None:
            self.prior = self._entered_before()
            own = rows.busy.began(rows.rank[chosen], records.entry_ns) - base
            begun = self._begun(own.astype(np.float64).tolist())
        self.after = self._ended_before(begun)
        self.base: list[float] = [
            max(
                self.exit[after] if after >= 0 else self.entry[prior] if prior >= 0 else entry,
                self.entry[prior] if prior >= 0 else -np.inf,
            )
            for after, prior, entry in zip(self.after, self.prior, self.entry, strict=True)
        ]
        self.order: list[int] = np.argsort(records.entry_ns, kind="stable").tolist()
        # Both ends of a message are one meeting, as are all ranks of a collective.
        mate = partners(records)
        own = np.arange(len(chosen))
        alone = is_pairwise(records)
        self.matched_share = float((mate[alone] >= 0).mean()) if alone.any() else 1.0
        meeting = np.where(alone, np.where(mate >= 0, np.minimum(own, mate), own), -1)
        _, group = np.unique(
            np.stack([np.where(alone, -1, rows.operation[chosen]), meeting]),
            axis=1,
            return_inverse=True,
        )
        self.meeting: list[int] = group.reshape(-1).tolist()
        self.members: list[list[int]] = [[] for _ in range(int(group.max()) + 1)]
        for row, number in enumerate(self.meeting):
            self.members[number].append(row)
        self.last: list[float] = [max(self.entry[row] for row in each) for each in self.members]

    def _entered_before(self) -> list[int]:
        """For each row the one of its rank that was entered last, some time before it; -1: none."""
        found = [-1] * len(self.entry)
        for row in range(1, len(found)):
            if self.rank[row - 1] == self.rank[row]:
                is_apart = self.entry[row] - self.entry[row - 1] > CLOCK_NS
                found[row] = row - 1 if is_apart else found[row - 1]
        return found

    def _begun(self, own: list[float]) -> list[float]:
        """When each rank began with what it computed before each row.

        What has ended later than that was not waited for by it. A kernel that only waited for its
        stream was entered as another ended.
        """
        ends: dict[int, list[float]] = {}
        for row, rank in enumerate(self.rank):
            ends.setdefault(rank, []).append(self.exit[row])
        ordered = {rank: np.sort(times) for rank, times in ends.items()}
        found = []
        for row, entry in enumerate(self.entry):
            prior = self.prior[row]
            times = ordered[self.rank[row]]
            place = int(np.searchsorted(times, entry + CLOCK_NS, side="right")) - 1
            if place >= 0 and times[place] >= entry - CLOCK_NS:
                found.append(entry)
            else:
                found.append(max(own[row], self.entry[prior] if prior >= 0 else -np.inf))
        return found

    def _ended_before(self, begun: list[float]) -> list[int]:
        """For each row the one of its rank that had ended last when it began; -1: none here.

        Times are good to CLOCK_NS: one that ends so shortly after a beginning had ended.
        """
        found = [-1] * len(begun)
        for row in range(1, len(begun)):
            best = -1
            for other in range(row - 1, max(-1, row - 1 - OVERLAPPING_MAX), -1):
                if self.rank[other] != self.rank[row]:
                    break
                has_ended = self.exit[other] <= begun[row] + CLOCK_NS
                if has_ended and (best < 0 or self.exit[other] > self.exit[best]):
                    best = other
            found[row] = best
        return found

    def play(self, saved: list[float]) -> list[float]:
        """The exits, with so much less of the ranks' own time before each row."""
        return self.play_times(saved)[1]

    def play_times(
        self, saved: list[float], sooner: list[float] | None = None
    ) -> tuple[list[float], list[float]]:
        """Entries and exits; ``sooner``: so much less of each row's time after the last entry."""
        entry, leave = self.entry.copy(), self.exit.copy()
        missing = [len(each) for each in self.members]
        for row in self.order:
            after, prior = self.after[row], self.prior[row]
            if after >= 0 or prior >= 0:
                begins = max(
                    leave[after] if after >= 0 else -np.inf, entry[prior] if prior >= 0 else -np.inf
                )
                entry[row] = begins + self.entry[row] - self.base[row] - saved[row]
            # Until all have come, as long as it took: only a clock that is off needs that.
            leave[row] = entry[row] + self.exit[row] - self.entry[row]
            number = self.meeting[row]
            missing[number] -= 1
            if not missing[number]:
                self._leave(number, entry, leave, sooner)
        return entry, leave

    def _leave(
        self, number: int, entry: list[float], leave: list[float], sooner: list[float] | None
    ) -> None:
        """All have come: each leaves as long after the last as it did, or that much sooner."""
        last = max(entry[row] for row in self.members[number])
        for row in self.members[number]:
            after = self.exit[row] - self.last[number]
            if after > 0:
                less = min(after, sooner[row]) if sooner is not None else 0.0
                leave[row] = max(entry[row], last + after - less)


def cost_by_play(job: JobWindow, own: OwnTime, factor: Floats, steps: slice) -> Cost | None:
    """What the steps would not have lost with these factors; None where nothing can be played."""
    played = what_if(own, factor, steps)
    if played is None:
        return None
    share = played.saved_share
    length = own.length_ns[steps].astype(np.float64) / SECONDS
    step_seconds = float(np.median(length)) if job.steps else None
    seconds = share * float(own.end_ns[steps][-1] - own.start_ns[steps][0]) / SECONDS
    return Cost(
        job=job.job,
        lost_seconds=seconds,
        step_seconds=step_seconds,
        # By the same share: the median of what steps save may be large where their sum is nothing.
        step_seconds_without=None if step_seconds is None else step_seconds * (1.0 - share),
        lost_share=share,
        gpu_hours=seconds * job.size / 3600,
    )
