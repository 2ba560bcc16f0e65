"""Sorts samples as the store returns them: by row, then by time, each moment once.

The store's parts are each in order of series and time. To merge them there costs more than to
read them; here only runs (the samples of one series that stand together) are put in order, of
which there are some for each series, and not the samples themselves.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from api.promql.values import Bools, Floats, Ints

Ids = npt.NDArray[np.uint64]


class Stored(msgspec.Struct, frozen=True):
    """Samples in any order, repeats included."""

    series: Ids
    times_ms: Ints
    values: Floats


class Arranged(msgspec.Struct, frozen=True):
    """Samples in order of row and time. Repeats stand side by side."""

    rows: Ints
    times_ms: Ints
    values: Floats

    def repeats(self) -> Bools:
        same = np.zeros(len(self.rows), dtype=np.bool_)
        same[1:] = self.times_ms[1:] == self.times_ms[:-1]
        if bool(same.any()):
            same[1:] &= self.rows[1:] == self.rows[:-1]
        return same

    def contradict(self, repeats: Bools) -> bool:
        """Whether any repeat has another value, to the bit."""
        return bool(np.any(repeats[1:] & (np.diff(self.values.view(np.int64)) != 0)))

    def without(self, left_out: Bools) -> Arranged:
        kept = ~left_out
        return Arranged(self.rows[kept], self.times_ms[kept], self.values[kept])


def arrange(stored: Stored, ids: Ids, rows: Ints) -> Arranged:
    """Leaves out samples of other series: of a metric with the same short id, or newer ones."""
    series, times_ms = stored.series, stored.times_ms
    if not len(series) or not len(ids):
        return Arranged(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    begins = np.flatnonzero(np.concatenate(([True], series[1:] != series[:-1])))
    lengths = np.diff(np.append(begins, len(series)))
    run_ids = series[begins]
    places = np.minimum(np.searchsorted(ids, run_ids), len(ids) - 1)
    run_rows = np.where(ids[places] == run_ids, rows[places], -1)
    if bool(run_rows[0] >= 0) and bool(np.all(run_rows[1:] > run_rows[:-1])):
        found = Arranged(np.repeat(run_rows, lengths), times_ms, stored.values)
    else:
        order = np.lexsort((times_ms[begins], run_rows))
        order = order[run_rows[order] >= 0]
        chosen = lengths[order]
        steps_before = np.cumsum(chosen) - chosen
        samples = np.repeat(begins[order] - steps_before, chosen) + np.arange(int(chosen.sum()))
        found = Arranged(
            np.repeat(run_rows[order], chosen), times_ms[samples], stored.values[samples]
        )
    return in_time(found)


def in_time(found: Arranged) -> Arranged:
    """The samples, sorted one by one if runs of the same series lie in each other's time."""
    backwards = (found.times_ms[1:] < found.times_ms[:-1]) & (found.rows[1:] == found.rows[:-1])
    if not bool(backwards.any()):
        return found
    order = np.lexsort((found.times_ms, found.rows))
    return Arranged(found.rows[order], found.times_ms[order], found.values[order])
