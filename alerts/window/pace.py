"""The pace of a job: how long its steps take, by a few of its ranks. Pure.

Ranks of a training job wait for each other, so whatever costs one of them time makes the steps of
all longer. To see that it is enough to listen to two ranks: how long it takes from one operation to
the same one a step later, by the rank's own clock. A job that keeps its pace needs no closer look
for a while; one that does not is looked at at once.

Misses: what costs less than PACE_SHARE of a step, or less than chance moves it, until the next
look; what costs nothing.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints, Records
from alerts.window.model import JobWindow
from alerts.window.split import distinct
from alerts.window.statistics import spread
from collector.contract.units import NS

BEATS_MAX = 2
"""Ranks of a job that are listened to: one may fall silent."""
KINDS_TRIED_MAX = 4
INTERVALS_MIN = 8
"""Steps that must be known before anything is usual."""
VALID_SHARE_MIN = 0.7
"""Of the intervals that must span the same number of operations: others have lost records, or an
evaluation between them."""
UNSTEADY_SHARE = 0.05
"""Of a step: where intervals scatter by more, the pace says little."""
STEP_SECONDS_MAX = 20.0
"""A job with longer steps shows its pace too late."""
FRESH_SECONDS = 10.0
FRESH_STEPS = 3.0
"""What is compared with the usual: the last intervals of so much time, or of so many steps."""
PACE_SHARE = 0.003
"""Of a step, by which the pace may differ beyond that: a third of what should be named."""
QUANTILES = (0.25, 0.5)
"""Of the fresh intervals, which must lie where those of any stretch of the last minutes lay. What
disturbs a healthy job makes some steps longer, the lower quarter stays; a fault that lasts moves
it. One that strikes every other step moves the median."""
PAUSE_STEPS = 0.5
"""By which a single interval may be longer than any before."""
LAG_QUANTILE = 0.9
"""Of the ranks, by how much their last record was behind at a look: hosts ship in turns, so it is
what one of them is behind at times. Some ranks may have fallen silent for good."""
SILENT_STEPS = 0.5
SILENT_SECONDS = 1.0
"""Beyond that, how long nothing may be heard: a job that stands is looked at at once."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that one rank does in every step."""

    communicator: str
    rank: int
    """The communicator's."""
    operation: str
    size_bytes: int
    apart: int
    """Sequence numbers from one step to the next."""
    usual_ns: float
    spread_ns: float
    longest_ns: float
    lag_ns: float
    """How far behind its last record usually is."""
    ranges_ns: tuple[tuple[float, float], ...]
    """Between what each of QUANTILES has lain."""

    @property
    def fresh_ns(self) -> int:
        return fresh_ns(self.usual_ns)

    @property
    def back_ns(self) -> int:
        """How far back records are needed to see its pace."""
        return self.fresh_ns + round(self.longest_ns + self.silent_ns)

    @property
    def silent_ns(self) -> float:
        """A last record that is further behind is the last for now."""
        return self.lag_ns + SILENT_STEPS * self.usual_ns + SILENT_SECONDS * NS


def fresh_ns(usual_ns: float) -> int:
    return round(max(FRESH_SECONDS * NS, FRESH_STEPS * usual_ns))


def find_beats(job: JobWindow, to_ns: int) -> tuple[Beat, ...]:
    """What to listen to; nothing where no operation comes once or a few times in each step.

    ``to_ns`` is the end of the job's window.
    """
    steps = len(job.steps)
    operations = job.operations
    if steps < INTERVALS_MIN or not len(operations) or job.is_estimate or job.kept_one_in > 1:
        return ()
    first, kind = distinct(operations.communicator, operations.operation, operations.size_bytes)
    per_step = np.rint(np.bincount(kind) / steps).astype(np.int64)
    seldom = sorted(np.flatnonzero(per_step).tolist(), key=lambda one: int(per_step[one]))
    best: tuple[Beat, ...] = ()
    for one in seldom[:KINDS_TRIED_MAX]:
        row = int(first[one])
        found = beats_of_kind(
            job.records,
            to_ns,
            operations.communicators[operations.communicator[row]],
            operations.operations[operations.operation[row]],
            int(operations.size_bytes[row]),
            int(per_step[one]),
        )
        if found and (not best or unsteadiness(found) < unsteadiness(best)):
            best = found
    return best if best and unsteadiness(best) <= UNSTEADY_SHARE else ()


def unsteadiness(beats: tuple[Beat, ...]) -> float:
    return max(beat.spread_ns / beat.usual_ns for beat in beats)


def beats_of_kind(
    records: Records, to_ns: int, communicator: str, operation: str, size_bytes: int, per_step: int
) -> tuple[Beat, ...]:
    """One kind of operation on some of its ranks."""
    rows = rows_of(records, communicator, operation, size_bytes)
    ranks, which = np.unique(records.rank[rows], return_inverse=True)
    last = np.zeros(len(ranks), dtype=np.int64)
    np.maximum.at(last, which.reshape(-1), records.entry_ns[rows])
    chosen = ranks[np.arange(BEATS_MAX) * len(ranks) // BEATS_MAX] if len(ranks) else ranks
    found = []
    for rank in sorted(set(chosen.tolist())):
        own = rows[records.rank[rows] == rank]
        sequence, entry = records.sequence[own], records.entry_ns[own]
        if len(own) <= per_step + INTERVALS_MIN:
            return ()
        gap = sequence[per_step:] - sequence[:-per_step]
        values, counts = np.unique(gap, return_counts=True)
        apart = int(values[np.argmax(counts)])
        taken = (entry[per_step:] - entry[:-per_step])[gap == apart].astype(np.float64)
        usual = float(np.median(taken))
        is_known = len(taken) >= max(INTERVALS_MIN, VALID_SHARE_MIN * len(gap))
        if not is_known or not 0 < usual <= STEP_SECONDS_MAX * NS:
            return ()
        beat = Beat(
            communicator=communicator,
            rank=int(rank),
            operation=operation,
            size_bytes=size_bytes,
            apart=apart,
            usual_ns=usual,
            spread_ns=spread(taken),
            longest_ns=float(taken.max()),
            lag_ns=float(np.quantile(to_ns - last, LAG_QUANTILE)),
            ranges_ns=ranges_of(taken, usual),
        )
        found.append(beat)
    return tuple(found)


def ranges_of(taken: Floats, usual_ns: float) -> tuple[tuple[float, float], ...]:
    """Between what the quantiles of stretches as long as the fresh one lay, as it moved along."""
    length = min(len(taken), max(1, int(fresh_ns(usual_ns) / usual_ns)))
    along = np.lib.stride_tricks.sliding_window_view(taken, length)
    found = np.quantile(along, QUANTILES, axis=1)
    margin = PACE_SHARE * usual_ns
    return tuple((float(one.min()) - margin, float(one.max()) + margin) for one in found)


def rows_of(records: Records, communicator: str, operation: str, size_bytes: int) -> Ints:
    """The timed rows of one kind of operation, in order of their numbers."""
    if communicator not in records.communicators or operation not in records.operations:
        return np.zeros(0, dtype=np.int64)
    code = records.communicators.index(communicator)
    first, last = np.searchsorted(records.communicator, [code, code + 1])
    part: Records = records.select(slice(int(first), int(last)))
    chosen = (
        (part.operation == records.operations.index(operation))
        & (part.size_bytes == size_bytes)
        & part.timed()
    )
    return np.flatnonzero(chosen).astype(np.int64) + int(first)


def keeps_pace(beats: tuple[Beat, ...], heard: Records, to_ns: int) -> bool:
    """Whether all that was heard by now is usual. ``heard`` has these ranks' newest records."""
    return bool(beats) and all(is_usual(beat, heard, to_ns) for beat in beats)


def is_usual(beat: Beat, heard: Records, to_ns: int) -> bool:
    rows = rows_of(heard, beat.communicator, beat.operation, beat.size_bytes)
    rows = rows[heard.rank[rows] == beat.rank]
    sequence, entry = heard.sequence[rows], heard.entry_ns[rows]
    if not len(rows):
        return False
    last_ns = int(entry.max())
    if to_ns - last_ns > beat.silent_ns:
        return False
    before = np.searchsorted(sequence, sequence - beat.apart)
    is_step = sequence[before] == sequence - beat.apart
    is_step &= entry >= last_ns - beat.fresh_ns
    taken: Floats = (entry - entry[before])[is_step].astype(np.float64)
    if not len(taken) or taken.max() > beat.longest_ns + PAUSE_STEPS * beat.usual_ns:
        return False
    now = np.quantile(taken, QUANTILES).tolist()
    return all(low <= one <= high for one, (low, high) in zip(now, beat.ranges_ns, strict=True))
