"""Samples as columns, and the rules by which their times are accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from api.base.limits import ACCEPT_FUTURE_SECONDS
from api.data.store.blocks import Column
from collector.contract.units import NS_PER_MS

Item = TypeVar("Item")
MS_PER_SECOND = 1_000
MS_PER_DAY = 86_400_000

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WHOLE_MAX = float(1 << 53)
"""Integers beyond this are not exact in a float, so they stay floats."""


NEGATIVE_ZERO_BITS = np.int64(-(1 << 63))
"""-0.0 equals 0, but is not the same: PromQL divides by it."""


class SampleColumns(msgspec.Struct, frozen=True):
    """Samples of any number of series: equally long arrays; times are unix milliseconds."""

    metric: UInt32s
    series: UInt64s
    time_ms: Int64s
    value: Float64s
    place: UInt32s | None = None
    """Where the series stand on a cluster (`api.data.store.shards`); None: there are no shards."""

    def __len__(self) -> int:
        return len(self.series)

    def select(self, keep: Bools) -> SampleColumns:
        """The samples at which ``keep`` is true; itself if that is all of them."""
        if keep.all():
            return self
        place = None if self.place is None else self.place[keep]
        columns = self.metric[keep], self.series[keep], self.time_ms[keep], self.value[keep]
        return SampleColumns(*columns, place)

    def days(self) -> list[int]:
        """The days (since 1970, UTC) in which these samples lie."""
        if not len(self):
            return []
        first, last = int(self.time_ms.min()), int(self.time_ms.max())
        if first // MS_PER_DAY == last // MS_PER_DAY:
            return [first // MS_PER_DAY]
        return [int(day) for day in np.unique(self.time_ms // MS_PER_DAY)]

    @classmethod
    def concatenate(cls, parts: list[SampleColumns]) -> SampleColumns:
        if len(parts) == 1:
            return parts[0]
        names = cls.__struct_fields__
        if any(part.place is None for part in parts):
            names = tuple(name for name in names if name != "place")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def to_block(self) -> list[Column]:
        """The columns of the `samples` table; see its migration for `whole` and `fraction`."""
        with np.errstate(invalid="ignore"):
            whole = self.value.astype(np.int64)
        is_whole = (whole == self.value) & (np.abs(self.value) <= WHOLE_MAX)
        is_whole &= self.value.view(np.int64) != NEGATIVE_ZERO_BITS
        fraction = []
        if not is_whole.all():
            # Left out otherwise: the engine fills in zeros for less than they cost to send.
            fraction = [Column("fraction", "Float64", np.where(is_whole, 0.0, self.value))]
            whole = np.where(is_whole, whole, 0)
        return [
            Column("metric", "UInt32", self.metric),
            Column("series", "UInt64", self.series),
            Column("time", "DateTime64(3, 'UTC')", self.time_ms),
            Column("whole", "Int64", whole),
            *fraction,
        ]


class Acceptance(msgspec.Struct, frozen=True):
    """Which times are accepted, in unix milliseconds. Answers refer to the rules by name."""

    earliest_ms: int
    """Rule `too_old`: retention would drop the sample at once."""
    latest_ms: int
    """Rule `too_far_in_future`."""

    @classmethod
    def at(cls, now_ms: int, retention_days: int) -> Acceptance:
        return cls(
            now_ms - retention_days * MS_PER_DAY, now_ms + ACCEPT_FUTURE_SECONDS * MS_PER_SECOND
        )

    @property
    def now_ms(self) -> int:
        return self.latest_ms - ACCEPT_FUTURE_SECONDS * MS_PER_SECOND

    def apply(self, columns: SampleColumns) -> tuple[SampleColumns, dict[str, int]]:
        if not len(columns):
            return columns, {}
        times = columns.time_ms
        if times.min() >= self.earliest_ms and times.max() <= self.latest_ms:
            return columns, {}
        too_old, too_new = times < self.earliest_ms, times > self.latest_ms
        counts = {"too_old": int(too_old.sum()), "too_far_in_future": int(too_new.sum())}
        refused = {rule: count for rule, count in counts.items() if count}
        return columns.select(~(too_old | too_new)), refused

    def refuse(self, first_ns: int, last_ns: int) -> str | None:
        """The rule that a stretch of time breaks, if any; unix nanoseconds."""
        if first_ns < self.earliest_ms * NS_PER_MS:
            return "too_old"
        return "too_far_in_future" if last_ns > self.latest_ms * NS_PER_MS else None


def sort_out(
    items: Iterable[Item], refuse: Callable[[Item], str | None]
) -> tuple[list[Item], dict[str, int]]:
    """The items that break no rule, and how many each rule refused."""
    kept: list[Item] = []
    refused: Counter[str] = Counter()
    for item in items:
        if (rule := refuse(item)) is None:
            kept.append(item)
        else:
            refused[rule] += 1
    return kept, dict(refused)


def merge_counts(*counts: dict[str, int]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
