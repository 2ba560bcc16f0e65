"""Reads a query's data: series by their labels, then their samples.

Two ways lead from samples to steps. Either the samples themselves are fetched and cut into windows
here, or the engine's `timeSeries…ToGrid` aggregates reduce them where they lie. The first is faster
when there are about as many steps as samples, the second when many samples become one; both give
the same numbers (`tests/conformance/test_promql_pushdown.py`).
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from api.base.limits import QUERY_MEMORY_BYTES_MAX, QUERY_POINTS_MAX, QUERY_SAMPLES_MAX
from api.base.memory import memory_bytes
from api.data.store.errors import StoreBusy
from api.data.store.rollups import STALE_BITS, TIME_RANGE
from api.data.store.store import Store
from api.promql.ahead import ReadAhead
from api.promql.aliases import Strand
from api.promql.arrange import Stored, arrange
from api.promql.errors import ErrorKind, QueryError, bad_data, failed
from api.promql.find import (
    MOVED_FROM,
    MOVED_MAX,
    OF_METRIC,
    OF_SERIES,
    Among,
    Found,
    Group,
    SeriesMemory,
    Sought,
    group_of,
)
from api.promql.reads import Reads, key_of
from api.promql.values import Bools, Floats, Grid, Ints, LabelRows
from collector.contract.errors import StoreError
from collector.contract.identity import metric_id

PART_SAMPLES = 4_000_000
"""About as many samples are cut into windows at once: 100 MB, and some times that on the way."""

PARTED_FROM = 1_000
"""From this many series on, two halves are read and computed side by side."""

SHORT_INTERVAL_MS = 2_000
"""Samples are rarely much closer to each other; a range that holds few of them even so is not
counted before it is read."""

GROUP_MS_MAX = PART_SAMPLES * SHORT_INTERVAL_MS
"""Series times their time, up to which those of several selectors are read together."""

TOO_MANY_SAMPLES = (
    "query processing would load too many samples into memory in query execution; "
    "QUERY_SAMPLES_MAX is {}"
)


class Samples(msgspec.Struct, frozen=True):
    """Raw samples in order of series and time; ``rows`` indexes the labels of each."""

    labels: LabelRows
    rows: Ints
    times_ms: Ints
    values: Floats
    stale: Bools


class Reduced(msgspec.Struct, frozen=True):
    """(series, steps), and the largest sample, which may be NaN where all of them are."""

    values: Floats
    present: Bools
    largest: float


class EdgeSamples(msgspec.Struct, frozen=True):
    """Of each series the samples at both ends of a window, and what lies between them."""

    times_ms: Ints
    """(2 x series): the first and the last of each."""
    values: Floats
    counts: Ints
    resets: Ints


class Reader:
    """Reads for one query, under its deadline; counts the samples that it touches.

    ``deadline`` is in the seconds of ``time.monotonic``. `stop` may be called from any thread.
    """

    def __init__(
        self,
        store: Store,
        memory: SeriesMemory,
        deadline: float,
        ahead: ReadAhead | None = None,
        reads: Reads | None = None,
    ) -> None:
        """To be made when the question arrives. ``reads``: those of other questions, too."""
        self._arrived_s = time.monotonic()
        self._reads = reads or Reads()
        self._store = store
        self._memory = memory
        self._ahead = ahead
        self._deadline = deadline
        self._tag = uuid.uuid4().hex
        self._stopped = threading.Event()
        self._counting = threading.Lock()
        self._groups: dict[tuple[int, int], list[Group]] = {}
        """By the time that is read: after it, and until it."""
        self.samples = 0
        self.peak_samples = 0
        self._loaded = 0

    def stop(self) -> None:
        self._stopped.set()
        self._store.stop(self._tag)

    def check(self) -> None:
        if self._stopped.is_set():
            raise QueryError(ErrorKind.CANCELED, "query was canceled in query execution")
        if time.monotonic() >= self._deadline:
            raise QueryError(ErrorKind.TIMEOUT, "query timed out in query execution")

    def find(self, strands: list[Strand], from_ms: int, to_ms: int, among: Among = ()) -> Found:
        """The series that match, of those that were seen on the days of this range.

        Of a selector with many series only those ``among`` which the asker has use for.
        """
        version = self._version(strands)
        return self._memory.find(self.ask, version, strands, from_ms, to_ms, among)

    def find_all(self, sought: Iterable[tuple[list[Strand], int, int]]) -> None:
        """Look for the series of several selectors at once, so that `find` knows them.

        Samples of those with the same time are read together, when the first of them is.
        """
        wanted = [Sought(self._version(strands), strands, *span) for strands, *span in sought]
        self._memory.find_all(self.ask, wanted)
        for span in {(one.from_ms, one.to_ms) for one in wanted}:
            known = [self._memory.known(one) for one in wanted if (one.from_ms, one.to_ms) == span]
            self.read_together([one for one in known if one is not None], *span)

    def read_together(self, found: Sequence[Found], after_ms: int, to_ms: int) -> None:
        """When samples of one of these are read for this time, read those of all."""
        group = group_of(found)
        if group is not None and group.series * (to_ms - after_ms) <= GROUP_MS_MAX:
            self._groups.setdefault((after_ms, to_ms), []).append(group)

    def _version(self, strands: list[Strand]) -> int | None:
        metrics = [strand.metric for strand in strands if strand.metric is not None]
        return self._store.known.series_version(metrics if len(metrics) == len(strands) else None)

    def moved(self, strands: list[Strand], after_ms: int, to_ms: int) -> Found | None:
        """Those of a selector's very many series whose samples are not all the same finite number.

        None: it has fewer, too many moved, or another exporter measures the same things, whose
        series must not show because ours stood still.
        """
        own, others = strands[0], [strand.metric for strand in strands[1:]]
        if own.metric is None or self._memory.series_in(own.selector) < MOVED_FROM:
            return None
        metrics = [metric_id(own.metric)]
        if self._ahead is not None and self._ahead.covers(metrics, after_ms, to_ms):
            return None
        if others and self.ask(OTHERS, {"names": others}).num_rows:
            return None
        rows = self.ask(
            f"SELECT series FROM samples WHERE {OF_METRIC} AND {TIME_RANGE} GROUP BY series "  # noqa: S608 - placeholders only
            "HAVING min(value) != max(value) OR max(NOT isFinite(value)) "
            f"LIMIT {MOVED_MAX + 1}",
            {"metrics": metrics, "after_ms": after_ms, "to_ms": to_ms},
        )
        if rows.num_rows > MOVED_MAX:
            return None
        ids = rows["series"].to_pylist()
        return self._memory.find_ids(self.ask, own, after_ms, to_ms, ids)

    @staticmethod
    def among(found: Found, among: Among) -> Found:
        """Those of the series that the asker has use for, perhaps with others."""
        return found.among(among)

    def parts(self, found: Found, after_ms: int, to_ms: int) -> list[Found]:
        """The series in parts whose samples fit into memory, and of which two can be read at once.

        Only a range that could hold many samples is counted; the count also refuses what would be
        too much before it is read. Rows that shade each other stay together.
        """
        rows = len(found.labels)
        if found.shaded:
            return [found]
        parts = 2 if rows >= PARTED_FROM else 1
        if rows * (to_ms - after_ms) // SHORT_INTERVAL_MS > PART_SAMPLES:
            counted = self.ask(
                f"SELECT count() AS samples FROM samples WHERE {found.where} AND {TIME_RANGE}",  # noqa: S608 - placeholders only
                {**found.parameters, "after_ms": after_ms, "to_ms": to_ms},
            )
            samples = int(counted["samples"][0].as_py())
            self.check_samples(self._loaded + samples)
            parts = max(parts, math.ceil(samples / PART_SAMPLES))
        return found.split(parts)

    def raw(self, found: Found, after_ms: int, to_ms: int) -> Samples:
        """All samples of these series with ``after_ms`` < time <= ``to_ms``.

        FINAL makes repeats one, and costs as much again as the rest. Repeats are rare, so they are
        searched here; only two values for one moment need FINAL, which keeps the later one.
        """
        ids, rows = found.ids_and_rows()
        stored = self._read_ahead(found, after_ms, to_ms) or self._recent(found, after_ms, to_ms)
        stored = stored or self._read(found, "samples", after_ms, to_ms)
        samples = arrange(stored, ids, rows)
        repeats = samples.repeats()
        if bool(repeats.any()):
            if samples.contradict(repeats):
                samples = arrange(self._read(found, "samples FINAL", after_ms, to_ms), ids, rows)
            else:
                samples = samples.without(repeats)
        self.touch(len(samples.rows))
        stale = is_stale(samples.values)
        values = samples.values
        if found.factors is not None:
            values = np.where(stale, values, values * found.factors[samples.rows])
        return Samples(found.labels, samples.rows, samples.times_ms, values, stale)

    def is_at_hand(self, found: Found, after_ms: int, to_ms: int) -> bool:
        """Whether the samples of these series in this time are in memory already."""
        ahead, metrics = self._ahead, found.parameters["metrics"]
        if ahead is not None and ahead.covers(metrics, after_ms, to_ms) and ahead.holds(metrics):
            return True
        return is_held_at_most(found) and self._store.recent.holds(metrics, after_ms)

    def _read_ahead(self, found: Found, after_ms: int, to_ms: int) -> Stored | None:
        if self._ahead is None:
            return None
        self.check()
        return self._ahead.find(found.parameters["metrics"], after_ms, to_ms)

    def _recent(self, found: Found, after_ms: int, to_ms: int) -> Stored | None:
        if not is_held_at_most(found):
            return None
        series = found.ids_and_rows()[0]
        held = self._store.recent.read(found.parameters["metrics"], after_ms, series)
        if held is None:
            return None
        flat = held.flat(after_ms, to_ms)
        self._check_points(len(flat))
        return Stored(flat.series, flat.time_ms, flat.value)

    def _read(self, found: Found, table: str, after_ms: int, to_ms: int) -> Stored:
        groups = self._groups.get((after_ms, to_ms), ()) if table == "samples" else ()
        for group in groups:
            if group.has(found):
                if group.stored is None:
                    group.stored = self._take(group.found, table, after_ms, to_ms)
                return group.stored
        return self._take(found, table, after_ms, to_ms)

    def _take(self, found: Found, table: str, after_ms: int, to_ms: int) -> Stored:
        parameters = {**found.parameters, "after_ms": after_ms, "to_ms": to_ms}
        # Some series lie in many blocks of their metric, and are few of the rows there: the other
        # columns are read and unpacked only where one of them is.
        first = f"PREWHERE {OF_SERIES}" if found.is_listed else ""
        sql = (
            f"SELECT series, time, value FROM {table} {first} "  # noqa: S608 - placeholders only
            f"WHERE {found.where} AND {TIME_RANGE} LIMIT {QUERY_POINTS_MAX + 1}"
        )
        return self._reads.take(
            key_of(sql, parameters),
            self._arrived_s,
            lambda: self._read_now(sql, parameters),
            self.check,
        )

    def _read_now(self, sql: str, parameters: dict[str, Any]) -> Stored:
        rows = self.ask(sql, parameters, BULK_SETTINGS)
        self._check_points(rows.num_rows)
        # The engine's times are milliseconds.
        times_ms = rows["time"].to_numpy().view(np.int64)
        return Stored(rows["series"].to_numpy(), times_ms, rows["value"].to_numpy())

    def reduced(
        self, found: Found, function: str, grid: Grid, window_ms: int, *, skip_stale: bool
    ) -> Reduced:
        """Over the windows (end - window, end] of a grid, without the factor of aliases."""
        stale = f"AND reinterpretAsUInt64(fraction) != {STALE_BITS} " if skip_stale else ""
        rows = self.ask(
            f"SELECT series, count() AS samples, max(abs(value)) AS largest, {function}("  # noqa: S608 - placeholders only
            "fromUnixTimestamp64Milli({start_ms:Int64}), fromUnixTimestamp64Milli({to_ms:Int64}), "
            "{step:Decimal64(3)}, {window:Decimal64(3)})(time, value) AS grid "
            f"FROM samples FINAL WHERE {found.where} AND {TIME_RANGE} {stale}GROUP BY series",
            {
                **found.parameters,
                "after_ms": grid.start_ms - window_ms,
                "to_ms": grid.end_ms,
                "start_ms": grid.start_ms,
                "step": decimal_seconds(max(1, grid.step_ms)),
                "window": decimal_seconds(window_ms),
            },
        )
        self.touch(int(np.sum(rows["samples"].to_numpy())), loaded=rows.num_rows * grid.steps)
        values = np.zeros((len(found.labels), grid.steps))
        present = np.zeros(values.shape, dtype=np.bool_)
        points, there = read_grid(rows["grid"], grid.steps)
        places = [found.row_of.get(one, -1) for one in rows["series"].to_pylist()]
        known = np.flatnonzero(np.array(places, np.int64) >= 0)
        target = np.array(places, np.int64)[known]
        values[target], present[target] = points[known], there[known]
        largest = rows["largest"].to_numpy()
        return Reduced(values, present, float(np.max(largest, initial=0.0)))

    def edges(self, found: Found, end_ms: int, window_ms: int) -> EdgeSamples:
        """Of each series what `rate`, `increase` and `delta` need of one window, if none was reset.

        By rows of ``found``, without the factor of aliases; a series without samples counts none.
        """
        end = "fromUnixTimestamp64Milli({to_ms:Int64})"
        rows = self.ask(
            "SELECT series, count() AS samples, toUnixTimestamp64Milli(min(time)) AS first_ms, "  # noqa: S608 - placeholders only
            "toUnixTimestamp64Milli(max(time)) AS last_ms, argMin(value, time) AS first, "
            f"argMax(value, time) AS last, timeSeriesResetsToGrid({end}, {end}, 1, "
            "{window:Decimal64(3)})(time, value)[1] AS resets FROM samples FINAL "
            f"WHERE {found.where} AND {TIME_RANGE} "
            f"AND reinterpretAsUInt64(fraction) != {STALE_BITS} GROUP BY series",
            {
                **found.parameters,
                "after_ms": end_ms - window_ms,
                "to_ms": end_ms,
                "window": decimal_seconds(window_ms),
            },
        )
        samples = rows["samples"].to_numpy().astype(np.int64)
        self.touch(int(samples.sum()), loaded=2 * rows.num_rows)
        places = np.array([found.row_of.get(one, -1) for one in rows["series"].to_pylist()], int)
        known = places >= 0
        at = places[known]
        size = len(found.labels)
        times_ms, values = np.zeros((size, 2), np.int64), np.zeros((size, 2))
        counts, resets = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for column, name in enumerate(("first", "last")):
            times_ms[at, column] = rows[f"{name}_ms"].to_numpy()[known]
            values[at, column] = rows[name].to_numpy()[known]
        counts[at] = samples[known]
        resets[at] = rows["resets"].fill_null(0).to_numpy()[known].astype(np.int64)
        return EdgeSamples(times_ms.ravel(), values.ravel(), counts, resets)

    def touch(self, samples: int, loaded: int | None = None) -> None:
        """Count samples that were read; too many end the query.

        ``loaded``: what the engine has made of them, where it was not the samples themselves.
        """
        with self._counting:
            self.samples += samples
            self.peak_samples = max(self.peak_samples, samples)
            self._loaded += samples if loaded is None else loaded
        self.check_samples(self._loaded)

    @staticmethod
    def _check_points(samples: int) -> None:
        """More than are held at once; by the bound that people can set out from."""
        if samples > QUERY_POINTS_MAX:
            raise failed(TOO_MANY_SAMPLES.format(QUERY_SAMPLES_MAX), rule="QUERY_SAMPLES_MAX")

    @staticmethod
    def check_samples(samples: int) -> None:
        if samples > QUERY_SAMPLES_MAX:
            raise failed(TOO_MANY_SAMPLES.format(QUERY_SAMPLES_MAX), rule="QUERY_SAMPLES_MAX")

    def ask(
        self, sql: str, parameters: dict[str, Any], settings: Mapping[str, str] | None = None
    ) -> pa.Table:
        """The store's answer within the time that is left."""
        self.check()
        own = {
            **(settings or {}),
            "max_execution_time": f"{max(0.001, self._deadline - time.monotonic()):.3f}",
            "max_memory_usage": str(memory_max()),
        }
        try:
            return self._store.query(sql, parameters, tag=self._tag, settings=own)
        except StoreBusy as error:
            raise QueryError(ErrorKind.UNAVAILABLE, str(error)) from error
        except StoreError as error:
            self.check()
            raise translate(error) from error


OTHERS = "SELECT 1 FROM series WHERE metric_name IN {names:Array(String)} LIMIT 1"
"""Whether other exporters' series of a metric are stored."""

RECENT_METRICS_MAX = 20
"""Metrics of a selector that are looked for in memory: one that names no metric is for the store,
and must not fill the memory with all that there is."""
RECENT_SERIES_MAX = 100_000
"""Series that are copied from there at once: 77 MB."""
BULK_SETTINGS = {
    # Larger blocks are fewer to put together: a fifth less for a read of many series.
    "max_block_size": "131072",
    # The key has chosen the rows, or PREWHERE says what to read first: the engine need not guess.
    "optimize_move_to_prewhere": "0",
    # The other core reads the other half.
    "max_threads": "1",
}


def is_held_at_most(found: Found) -> bool:
    """Whether these series may be looked for in memory."""
    metrics = len(found.parameters.get("metrics", ()))
    return 0 < metrics <= RECENT_METRICS_MAX and len(found.row_of) <= RECENT_SERIES_MAX


def memory_max() -> int:
    """QUERY_MEMORY_BYTES_MAX, on this machine."""
    return min(QUERY_MEMORY_BYTES_MAX, memory_bytes() // 4)


def is_stale(values: Floats) -> Bools:
    return np.equal(values.view(np.uint64), STALE_BITS)


def read_grid(column: pa.ChunkedArray, steps: int) -> tuple[Floats, Bools]:
    """A column of arrays with gaps as a matrix and its mask; the bits of NaNs survive."""
    lists = column.combine_chunks()
    points = lists.flatten()
    shape = (len(lists), steps)
    bits = points.buffers()[1]
    values = np.frombuffer(bits, np.float64, len(points), points.offset * 8).reshape(shape)
    present = points.is_valid().to_numpy(zero_copy_only=False).reshape(shape)
    return values, present


def decimal_seconds(duration_ms: int) -> str:
    """Milliseconds as the engine reads a duration.

    >>> decimal_seconds(90_005)
    '90.005'
    """
    return f"{duration_ms // 1000}.{duration_ms % 1000:03d}"


_TRANSLATED: tuple[tuple[str, Callable[[str], QueryError]], ...] = (
    ("CANNOT_COMPILE_REGEXP", lambda text: bad_data(f"invalid regular expression: {text}")),
    ("TIMEOUT_EXCEEDED", lambda _: timed_out()),
    ("TOO_SLOW", lambda _: timed_out()),
    (
        "MEMORY_LIMIT_EXCEEDED",
        lambda _: failed(
            f"the query needs more than {memory_max() >> 20} MiB "
            "(QUERY_MEMORY_BYTES_MAX); narrow the selector or the range",
            rule="QUERY_MEMORY_BYTES_MAX",
        ),
    ),
)


def timed_out() -> QueryError:
    return QueryError(ErrorKind.TIMEOUT, "query timed out in query execution")


def translate(error: StoreError) -> QueryError:
    """The engine's refusal as an error for the client."""
    for name, answer in _TRANSLATED:
        if name in str(error):
            return answer(str(error))
    return QueryError(ErrorKind.UNAVAILABLE, f"the store is not available: {error}")
