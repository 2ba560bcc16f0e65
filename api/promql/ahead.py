"""Reads once what many queries of one moment need.

The rules of a group ask for the same moment, most of them for small metrics, and each question to
the store has a price of its own (milliseconds of the engine and of this interpreter), whatever its
size. So the samples of all of the group's metrics are read by one question for each length of
range. What is large or lies elsewhere in time is read as ever. What the group's own rules record
meanwhile is added (`ReadAhead.add`), so that a rule reads it before the store has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from api.base.limits import QUERY_SECONDS_DEFAULT, RULES_MAX
from api.data.store.rings import joined
from api.data.store.store import Store
from api.promql.arrange import Stored
from api.promql.parse import parse_query
from api.promql.plan import Select, Subquery, nodes_of, selects_of
from collector.contract.errors import StoreError
from collector.contract.identity import metric_id

AHEAD_ROWS_MAX = 1_000_000
"""Samples of one question, 28 MB. Past it the largest metrics are left out the next time."""
AHEAD_METRIC_ROWS_MAX = 50_000
"""A metric with more samples is read by itself: the price of a question does not matter there."""
AHEAD_SERIES_MAX = 5_000
"""The same for a metric in memory, by its series."""
AHEAD_RANGE_MS_MAX = 900_000
"""Longer ranges may be reduced by the engine, and few queries have them."""
LARGE_MAX = 100_000
"""Metrics that are known to be large; past it they are forgotten, and found again."""

SQL = """
    SELECT metric, series, time, value FROM samples
    WHERE metric IN {metrics:Array(UInt32)}
      AND time > fromUnixTimestamp64Milli({after_ms:Int64})
      AND time <= fromUnixTimestamp64Milli({to_ms:Int64})
"""


class Block(msgspec.Struct, frozen=True):
    """Samples of some metrics, in the order of these; those of one metric as the store has them."""

    metric: npt.NDArray[np.uint32]
    stored: Stored

    def of(self, metric: int) -> Stored:
        ends = (np.searchsorted(self.metric, np.uint32(metric), side) for side in ("left", "right"))
        rows = slice(*(int(end) for end in ends))
        whole = self.stored
        return Stored(whole.series[rows], whole.times_ms[rows], whole.values[rows])


class LargeMetrics:
    """Metrics that are not worth reading ahead, by id. One an engine; for any thread."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def __contains__(self, metric: int) -> bool:
        return metric in self._known

    def add(self, metrics: Iterable[int]) -> None:
        if len(self._known) > LARGE_MAX:
            self._known.clear()
        self._known.update(metrics)


class ReadAhead:
    """The samples of some metrics before one moment, read when the first of them is needed.

    ``ranges``: how far back each metric is needed, in milliseconds. For any thread.
    """

    def __init__(
        self, store: Store, ranges: Mapping[str, int], at_ms: int, large: LargeMetrics
    ) -> None:
        self._store = store
        self._at_ms = at_ms
        self._large = large
        self._range_of = {
            metric_id(name): range_ms
            for name, range_ms in ranges.items()
            if metric_id(name) not in large
        }
        self._blocks: dict[int, Block | None] = {}
        self._added: dict[int, list[Stored]] = {}
        self._lock = threading.Lock()

    def covers(self, metrics: Iterable[int], after_ms: int, to_ms: int) -> bool:
        """Whether this time of these metrics is read ahead."""
        ranges = [self._range_of.get(metric) for metric in metrics]
        return to_ms <= self._at_ms and all(
            range_ms is not None and after_ms >= self._after_ms(range_ms) for range_ms in ranges
        )

    def holds(self, metrics: Iterable[int]) -> bool:
        """Whether all samples of these metrics are here, as far back as any query needs them."""
        ranges = [self._range_of.get(metric) for metric in metrics]
        return all(
            range_ms is not None and self._block(range_ms) is not None for range_ms in ranges
        )

    def add(self, metric: npt.NDArray[np.uint32], stored: Stored) -> None:
        """Samples that the store may not have yet. One that it has as well counts once."""
        for one in np.unique(metric).tolist():
            own = metric == one
            part = Stored(stored.series[own], stored.times_ms[own], stored.values[own])
            with self._lock:
                self._added.setdefault(one, []).append(part)

    def find(self, metrics: Sequence[int], after_ms: int, to_ms: int) -> Stored | None:
        """All samples of these metrics in a time; None: they have to be asked for."""
        if not self.covers(metrics, after_ms, to_ms):
            return None
        blocks = {self._range_of[metric]: self._block(self._range_of[metric]) for metric in metrics}
        parts = []
        for metric in metrics:
            block = blocks[self._range_of[metric]]
            if block is None:
                return None
            parts.append(within(block.of(metric), after_ms, to_ms))
            parts += [within(each, after_ms, to_ms) for each in self._added.get(metric, ())]
        return parts[0] if len(parts) == 1 else together(parts)

    def _after_ms(self, range_ms: int) -> int:
        """One more: Prometheus 2 takes in the edge."""
        return self._at_ms - range_ms - 1

    def _block(self, range_ms: int) -> Block | None:
        with self._lock:
            if range_ms not in self._blocks:
                self._blocks[range_ms] = self._read(range_ms)
            return self._blocks[range_ms]

    def _read(self, range_ms: int) -> Block | None:
        metrics = sorted(metric for metric, own in self._range_of.items() if own == range_ms)
        missing: list[int] = []
        held = self._store.recent.parts(
            metrics, self._after_ms(range_ms), missing, metric_rows_max=AHEAD_SERIES_MAX
        )
        found = joined([part.flat(self._after_ms(range_ms), self._at_ms) for part in held])
        block = Block(found.metric, Stored(found.series, found.time_ms, found.value))
        if missing:
            asked = self._ask(range_ms, missing)
            if asked is None:
                return None
            block = asked if not len(found) else both(block, asked)
        present, counts = np.unique(block.metric, return_counts=True)
        self._large.add(present[counts >= AHEAD_METRIC_ROWS_MAX].tolist())
        return block

    def _ask(self, range_ms: int, metrics: Sequence[int]) -> Block | None:
        parameters = {
            "metrics": list(metrics),
            "after_ms": self._after_ms(range_ms),
            "to_ms": self._at_ms,
        }
        settings = {"max_execution_time": str(QUERY_SECONDS_DEFAULT)}
        try:
            rows = self._store.query(
                f"{SQL} LIMIT {AHEAD_ROWS_MAX + 1}", parameters, settings=settings
            )
        except StoreError:
            return None  # those who need it ask themselves, and say what is wrong
        metric = rows["metric"].to_numpy()
        if rows.num_rows > AHEAD_ROWS_MAX:
            found, counts = np.unique(metric, return_counts=True)
            self._large.add(found[counts >= max(1, rows.num_rows // len(metrics))].tolist())
            return None
        order = np.argsort(metric, kind="stable")
        stored = Stored(
            rows["series"].to_numpy()[order],
            rows["time"].to_numpy().view(np.int64)[order],
            rows["value"].to_numpy()[order],
        )
        return Block(metric[order], stored)


def both(one: Block, other: Block) -> Block:
    """Samples of different metrics, in the order of these."""
    metric = np.concatenate([one.metric, other.metric])
    order = np.argsort(metric, kind="stable")
    whole = together([one.stored, other.stored])
    stored = Stored(whole.series[order], whole.times_ms[order], whole.values[order])
    return Block(metric[order], stored)


def within(stored: Stored, after_ms: int, to_ms: int) -> Stored:
    kept = (stored.times_ms > after_ms) & (stored.times_ms <= to_ms)
    if bool(kept.all()):
        return stored
    return Stored(stored.series[kept], stored.times_ms[kept], stored.values[kept])


def together(parts: Sequence[Stored]) -> Stored:
    return Stored(
        np.concatenate([part.series for part in parts]),
        np.concatenate([part.times_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


# --- what queries need --------------------------------------------------------------------------


@lru_cache(maxsize=RULES_MAX)
def ranges_of(text: str, lookback_ms: int) -> Mapping[str, int]:
    """How far before its moment a query reads each metric that it names, if not too far."""
    found: dict[str, int] = {}
    for select, range_ms in selects_of(parse_query(text)):
        metric, back_ms = select.selector.metric, range_ms or lookback_ms
        is_near = select.at is None and select.offset_ms == 0 and back_ms <= AHEAD_RANGE_MS_MAX
        if metric is not None and is_near:
            found[metric] = max(found.get(metric, 0), back_ms)
    return found


@lru_cache(maxsize=RULES_MAX)
def read_elsewhere(text: str) -> frozenset[str | None]:
    """Metrics of which a query may read samples of its moment from the store itself.

    Those in subqueries, at fixed or later times, or over long ranges; None among them: any.
    """
    plan = parse_query(text)
    found = {
        select.selector.metric
        for select, range_ms in selects_of(plan)
        if select.at is not None
        or select.offset_ms < 0
        or (select.offset_ms == 0 and range_ms > AHEAD_RANGE_MS_MAX)
    }
    for node in nodes_of(plan):
        if isinstance(node, Subquery):
            inside = (each for each in nodes_of(node) if isinstance(each, Select))
            found |= {each.selector.metric for each in inside}
    return frozenset(found)
