"""The samples of the last minutes in memory: what windows, links and rules read again and again.

A verdict looks at three minutes every five seconds, so that each sample would be read from the
store 36 times, and merged from many parts each time. A metric that was read twice is held here: its
last minutes are loaded once, and every insert adds to them. What is not complete here is asked of
the store, metric by metric. Only for a store of whose inserts this process knows
(`api.data.store.known`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from api.base.memory import memory_bytes
from api.data.store.rings import (
    PART_ROWS,
    ROW_BYTES,
    Bools,
    Floats,
    Held,
    Ids,
    Ints,
    Metrics,
    Rings,
    Samples,
)
from collector.contract.errors import StoreError

KEPT_MS = 315_000
"""How far back reads may go: Prometheus' five minutes, and what a late round adds."""
WANTED_READS = 2
"""A metric is held from the read on that is so many in a row: most questions are asked once."""
READ_APART_MS = 1_000
"""Reads that are closer together are one."""
UNREAD_MS = 600_000
"""A metric that no reader asked for in so long is let go; one without room is tried again."""
BYTES_SHARE = 8
"""One part in so many of the memory may be used."""
LOADED_MAX = 2_000_000
"""Samples that are loaded by one question: 56 MB."""
EPOCH_MS_MAX = 40 * 86_400_000
"""Times are held as 32 bits from an epoch on. After so long all is let go, and loaded again."""
EPOCH_BEFORE_MS = 86_400_000
METRICS_NOTED_MAX = 100_000
"""Metrics whose reads are counted. Past it the counts restart."""


class SampleRows(Protocol):
    """Samples as equally long columns, in any order."""

    @property
    def metric(self) -> Metrics: ...
    @property
    def series(self) -> Ids: ...
    @property
    def time_ms(self) -> Ints: ...
    @property
    def value(self) -> Floats: ...


Load = Callable[[Sequence[int], int], Samples]
"""Asks the store for all samples of these metrics after a time."""
Count = Callable[[Sequence[int], int], dict[int, int]]
"""Asks the store how many those are, by metric; metrics without any are left out."""


class Recent:
    """One a store; for any thread. ``is_complete``: whether every insert is added here.

    ``catch_up`` adds what others have inserted, before anything is read. ``sharers``: processes of
    the service that each hold samples so.
    """

    def __init__(
        self,
        load: Load,
        count: Count,
        *,
        is_complete: bool = True,
        rows_max: int | None = None,
        now_ms: Callable[[], int],
        catch_up: Callable[[], None] = lambda: None,
        sharers: int = 1,
    ) -> None:
        self._load = load
        self._count = count
        self._is_complete = is_complete
        self._catch_up = catch_up
        share = memory_bytes() // BYTES_SHARE // ROW_BYTES // sharers
        self._rows_max = share if rows_max is None else rows_max
        self._now_ms = now_ms
        self._lock = threading.Lock()
        """Of everything but the counts of reads."""
        self._loading = threading.Lock()
        self._reads: dict[int, tuple[int, int]] = {}
        """Of each metric: how often it was read, and when last."""
        self._version = 0
        self.reads_here = 0
        """Reads that were answered from here, whole."""
        self.reads_of_store = 0
        self._reset()

    @property
    def bytes_used(self) -> int:
        return self._rings.bytes_used

    @property
    def holds_any(self) -> bool:
        """Whether inserts are of any use here."""
        return bool(self._held)

    def _reset(self) -> None:
        """Hold nothing; with the lock, or before anybody else knows of this."""
        self._rings = Rings(self._rows_max, self._now_ms() - EPOCH_BEFORE_MS)
        self._held: set[int] = set()
        """Metrics to which inserts add."""
        self._since_ms: dict[int, int] = {}
        """Of those that are loaded: after which time every sample is here."""
        self._refused_ms: dict[int, int] = {}
        """Metrics for which there was no room, and when."""
        self._dropped_ms = 0
        """The latest sample that was too old to be added."""
        self._version += 1

    def forget(self) -> None:
        """Hold nothing: samples were written that were not added."""
        with self._lock:
            self._reset()

    # --- writing -------------------------------------------------------------------------------

    def add(self, samples: SampleRows) -> None:
        """Samples that the store has by now."""
        if not self._held:
            return
        with self._lock:
            if self._now_ms() - self._rings.epoch_ms > EPOCH_MS_MAX:
                self._reset()
            self._add(samples)

    def _add(self, samples: SampleRows) -> None:
        chosen = self._is_held(samples.metric)
        oldest_ms = max(self._now_ms() - KEPT_MS, self._rings.epoch_ms + 1)
        is_old = chosen & (samples.time_ms < oldest_ms)
        if is_old.any():
            self._dropped_ms = max(self._dropped_ms, int(samples.time_ms[is_old].max()))
            chosen &= ~is_old
        own = Samples(
            samples.metric[chosen],
            samples.series[chosen],
            samples.time_ms[chosen],
            samples.value[chosen],
        )
        for metric in self._rings.add(own, self._is_alive).tolist():
            self._let_go(metric)
            self._refused_ms[metric] = self._now_ms()

    def _is_held(self, metric: Metrics) -> Bools:
        if not self._held:
            return np.zeros(len(metric), np.bool_)
        held = np.sort(np.fromiter(self._held, np.uint32, len(self._held)))
        found: Bools = held[np.minimum(np.searchsorted(held, metric), len(held) - 1)] == metric
        return found

    def _is_alive(self, metric: Metrics, last_ms: Ints) -> Bools:
        """Which rows are still of use; the others may go, so what they had counts as dropped."""
        held = self._is_held(metric)
        alive: Bools = held & (last_ms >= self._now_ms() - KEPT_MS)
        gone = last_ms[held & ~alive]
        self._dropped_ms = max(self._dropped_ms, int(gone.max(initial=0)))
        return alive

    def _let_go(self, metric: int) -> None:
        self._held.discard(metric)
        self._since_ms.pop(metric, None)

    # --- reading -------------------------------------------------------------------------------

    def holds(self, metrics: Sequence[int], after_ms: int) -> bool:
        """Whether all of it is here."""
        if not self._prepare(metrics, after_ms):
            return False
        with self._lock:
            return all(self._is_whole(metric, after_ms) for metric in metrics)

    def read(self, metrics: Sequence[int], after_ms: int, series: Ids) -> Held | None:
        """The rows of these series, which are of these metrics; None: the store has to be asked."""
        is_near = self._prepare(metrics, after_ms)
        with self._lock:
            if is_near and all(self._is_whole(metric, after_ms) for metric in metrics):
                rows = self._rings.find(series)
                self.reads_here += 1
                return self._rings.copy(rows[rows >= 0])
        self.reads_of_store += 1
        return None

    def peek(self, metrics: Sequence[int], after_ms: int, series: Ids) -> Held | None:
        """The same if it is here; nothing is loaded for who asks seldom, and for few series."""
        if not self._is_complete or after_ms < self._now_ms() - KEPT_MS:
            return None
        self._catch_up()
        with self._lock:
            if not all(self._is_whole(metric, after_ms) for metric in metrics):
                return None
            rows = self._rings.find(series)
            return self._rings.copy(rows[rows >= 0])

    def parts(
        self,
        metrics: Sequence[int],
        after_ms: int,
        missing: list[int],
        *,
        metric_rows_max: int | None = None,
    ) -> Iterator[Held]:
        """The rows of metrics of which every sample after a time is here, by metric and series.

        In parts of PART_ROWS, metric by metric: all rows at once would be as much memory again.
        ``missing`` gets the metrics that the store has to be asked for, those with more than
        ``metric_rows_max`` rows among them.
        """
        is_near = self._prepare(metrics, after_ms)
        for metric in sorted(metrics):
            with self._lock:
                rows = self._rings.of_metric(metric)
                is_large = metric_rows_max is not None and len(rows) > metric_rows_max
                is_here = is_near and not is_large and self._is_whole(metric, after_ms)
                places = range(0, len(rows), PART_ROWS) if is_here else ()
                held = [self._rings.copy(rows[at : at + PART_ROWS]) for at in places]
            if not is_here:
                missing.append(metric)
            yield from held
        self.reads_here += not missing
        self.reads_of_store += bool(missing)

    def _is_whole(self, metric: int, after_ms: int) -> bool:
        since_ms = self._since_ms.get(metric)
        if since_ms is None or max(since_ms, self._dropped_ms) > after_ms:
            return False
        return self._rings.is_whole(self._rings.of_metric(metric), after_ms)

    def _prepare(self, metrics: Sequence[int], after_ms: int) -> bool:
        """Load what is read often; False: the time lies too far back."""
        now_ms = self._now_ms()
        if not self._is_complete or after_ms < now_ms - KEPT_MS:
            return False
        self._catch_up()
        self._note(metrics, now_ms)
        wanted = [one for one in metrics if one not in self._since_ms and self._is_wanted(one)]
        if wanted:
            with contextlib.suppress(StoreError):  # who needs it asks, and says what is wrong
                self._hold(wanted)
        return True

    # --- what is held --------------------------------------------------------------------------

    def _note(self, metrics: Sequence[int], now_ms: int) -> None:
        if len(self._reads) > METRICS_NOTED_MAX:
            self._reads = {}
        for metric in metrics:
            count, last_ms = self._reads.get(metric, (0, 0))
            if abs(now_ms - last_ms) > UNREAD_MS:
                self._reads[metric] = (1, now_ms)
            elif abs(now_ms - last_ms) >= READ_APART_MS:
                self._reads[metric] = (count + 1, now_ms)

    def _is_wanted(self, metric: int) -> bool:
        refused_ms = self._refused_ms.get(metric)
        if refused_ms is not None and abs(self._now_ms() - refused_ms) < UNREAD_MS:
            return False
        return self._reads.get(metric, (0, 0))[0] >= WANTED_READS

    def _hold(self, metrics: Sequence[int]) -> None:
        """Load the last minutes of some metrics. Inserts add to them from before it asks on."""
        with self._loading:
            with self._lock:
                self._let_go_unread()
                metrics = [one for one in metrics if one not in self._since_ms]
                self._held.update(metrics)
                version, after_ms = self._version, self._now_ms() - KEPT_MS
            if not metrics:  # another reader has loaded them meanwhile
                return
            for some in in_parts(self._count(metrics, after_ms), metrics):
                loaded = self._load(some, after_ms)
                with self._lock:
                    if self._version != version:
                        return
                    self._add(loaded)
                    self._since_ms.update({one: after_ms for one in some if one in self._held})

    def let_go_unread(self) -> None:
        """Inserts do not add to what no reader asks for any more."""
        with self._lock:
            self._let_go_unread()

    def _let_go_unread(self) -> None:
        now_ms = self._now_ms()
        for metric in list(self._held):
            if now_ms - self._reads.get(metric, (0, now_ms))[1] > UNREAD_MS:
                self._let_go(metric)


def in_parts(counts: dict[int, int], metrics: Sequence[int]) -> list[list[int]]:
    """Metrics in parts of at most LOADED_MAX samples; a larger one alone.

    >>> in_parts({1: 1_500_000, 3: 1_500_000}, [1, 2, 3])
    [[1, 2], [3]]
    """
    parts: list[list[int]] = [[]]
    samples = 0
    for metric in metrics:
        if parts[-1] and samples + counts.get(metric, 0) > LOADED_MAX:
            parts.append([])
            samples = 0
        parts[-1].append(metric)
        samples += counts.get(metric, 0)
    return parts
