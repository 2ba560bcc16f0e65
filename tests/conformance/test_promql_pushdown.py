"""Two ways from samples to steps, one answer: the engine's aggregates and our own windows.

Whatever `evaluate.REDUCED_BY_ENGINE` leaves to ClickHouse must be what `range_functions` computes
from the samples, on series that are as unpleasant as real ones.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from api.base.threads import Threads
from api.data.store.store import Store, StoreUrl
from api.promql.evaluate import FROM_EDGES, REDUCED_BY_ENGINE, Evaluation, Frame
from api.promql.fetch import Reader, is_stale
from api.promql.find import Found, SeriesMemory
from api.promql.pieces import RangeCall
from api.promql.range_functions import RANGE_FUNCTIONS
from api.promql.rollup_rows import SUMMED_MAX
from api.promql.values import Dialect, Grid, LabelRows, Notes, Windows
from api.promql.windows import cut_windows, latest
from tests.worlds.remote_write import STALE

SERIES = 60
NOW_MS = round(time.time() * 1000)
# Window, step and start: overlapping, touching, with holes between; off the second and on it.
GRIDS = {
    "overlapping": (60_000, 10_000, NOW_MS - 600_000),
    "overlapping, on the second": (60_000, 1_000, NOW_MS // 1000 * 1000 - 300_000),
    "overlapping, not by whole steps": (7_300, 500, NOW_MS - 100_000),
    "long": (300_000, 30_000, NOW_MS // 1000 * 1000 - 600_000),
    "touching": (5_000, 5_000, NOW_MS // 1000 * 1000 - 600_000),
    "with holes": (5_000, 60_000, NOW_MS // 1000 * 1000 - 600_000),
}


def unpleasant(number: int, rng: np.random.Generator) -> tuple[list[int], np.ndarray]:
    """Times (some on the second, so on the edges of windows) and values of one series."""
    size = int(rng.integers(1, 200))
    seconds = rng.integers(0, 600, size) * 1000
    jitter = rng.integers(0, 1000, size) if number % 2 else 0
    times = np.unique(NOW_MS // 1000 * 1000 - 600_000 + seconds + jitter)
    size = len(times)
    kinds = (
        np.cumsum(rng.integers(0, 10, size)).astype(float),
        rng.normal(0, 1000, size),
        np.where(rng.random(size) < 0.1, np.nan, np.arange(size)),
        np.where(rng.random(size) < 0.1, rng.choice([np.inf, -np.inf], size), np.arange(size)),
        rng.integers(0, 3, size).astype(float),
        rng.choice([SUMMED_MAX, -SUMMED_MAX, 1.0, 3.0, 1e-300, 0.1], size),
        -np.zeros(size),
    )
    values = kinds[number % len(kinds)]
    return times.tolist(), np.where(rng.random(size) < 0.1, STALE, values)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Reader, Found]]:
    """A store with such series, and what finds them."""
    folder: Path = tmp_path_factory.mktemp("pushdown")
    store = Store(StoreUrl.parse(f"chdb://{folder / 'data'}"))
    store.migrate()
    rng = np.random.default_rng(5)
    for number in range(SERIES):
        times, values = unpleasant(number, rng)
        columns = {
            "metric": pa.array([9] * len(times), pa.uint32()),
            "series": pa.array([number + 1] * len(times), pa.uint64()),
            "time": pa.array(times, pa.timestamp("ms", "UTC")),
            "whole": pa.array([0] * len(times), pa.int64()),
            "fraction": pa.array(values),
        }
        store.insert_arrow("samples", pa.table(columns))
    labels = LabelRows({"number": str(number)} for number in range(SERIES))
    rows = {number + 1: number for number in range(SERIES)}
    yield (
        Reader(store, SeriesMemory(), time.monotonic() + 600),
        Found(labels, rows, None, "metric = 9", {"metrics": [9]}),
    )
    store.close()


def windows_of(reader: Reader, found: Found, grid: Grid, window_ms: int) -> Windows:
    samples = reader.raw(found, grid.start_ms - window_ms, grid.end_ms)
    fresh = ~samples.stale
    return cut_windows(
        samples.labels,
        samples.rows[fresh],
        samples.times_ms[fresh],
        samples.values[fresh],
        grid.times_ms(),
        window_ms,
        Dialect.PROMETHEUS_3,
    )


def assert_same(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    with np.errstate(all="ignore"):
        near = np.abs(ours - theirs) <= 1e-12 * np.maximum(np.abs(ours), np.abs(theirs))
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | near
    assert same.all(), f"{what}: {ours[~same][:3]} and {theirs[~same][:3]}"


@pytest.mark.parametrize("function", sorted(REDUCED_BY_ENGINE))
@pytest.mark.parametrize(("window_ms", "step_ms", "start_ms"), GRIDS.values(), ids=GRIDS)
def test_the_engine_reduces_as_we_do(
    reader: tuple[Reader, Found], function: str, window_ms: int, step_ms: int, start_ms: int
) -> None:
    ask, found = reader
    grid = Grid(start_ms, step_ms, (NOW_MS - start_ms) // step_ms + 1)
    theirs = ask.reduced(found, REDUCED_BY_ENGINE[function], grid, window_ms, skip_stale=True)
    windows = windows_of(ask, found, grid, window_ms)
    ours, here = RANGE_FUNCTIONS[function](RangeCall(windows, grid.times_ms()))
    assert (theirs.present == here).all()
    assert theirs.largest == np.inf
    assert_same(ours[here], theirs.values[here], function)


@pytest.mark.parametrize("function", sorted(FROM_EDGES))
@pytest.mark.parametrize("window_ms", [5_000, 60_000, 599_000])
def test_the_edges_of_a_window_say_as_much_as_all_of_it(
    reader: tuple[Reader, Found], function: str, window_ms: int
) -> None:
    """To the last bit: the same numbers are put together in the same way."""
    ask, found = reader
    resets = 0
    for end_ms in (NOW_MS // 1000 * 1000, NOW_MS - 123_456, NOW_MS // 1000 * 1000 - 300_000):
        grid = Grid(end_ms, 1, 1)
        frame = Frame(grid=grid, lookback_ms=300_000, dialect=Dialect.PROMETHEUS_3, catalog=None)
        with Threads(1) as helpers:
            evaluation = Evaluation(ask, frame, Notes(), helpers)
            theirs = evaluation._from_edges(function, found, grid.times_ms(), window_ms, grid)
        windows = windows_of(ask, found, grid, window_ms)
        ours, here = RANGE_FUNCTIONS[function](RangeCall(windows, grid.times_ms()))
        assert (theirs.present == here).all()
        assert np.array_equal(ours[here], theirs.values[here], equal_nan=True)
        resets += int(ask.edges(found, end_ms, window_ms).resets.sum())
    assert resets > 0


@pytest.mark.parametrize(("lookback_ms", "step_ms", "start_ms"), GRIDS.values(), ids=GRIDS)
def test_the_engine_finds_the_latest_sample_as_we_do(
    reader: tuple[Reader, Found], lookback_ms: int, step_ms: int, start_ms: int
) -> None:
    ask, found = reader
    grid = Grid(start_ms, step_ms, (NOW_MS - start_ms) // step_ms + 1)
    theirs = ask.reduced(found, "timeSeriesLastToGrid", grid, lookback_ms, skip_stale=False)
    there = theirs.present & ~is_stale(theirs.values)
    samples = ask.raw(found, grid.start_ms - lookback_ms, grid.end_ms)
    ours, _ = latest(
        samples.labels,
        samples.rows,
        samples.times_ms,
        samples.values,
        samples.stale,
        grid.times_ms(),
        lookback_ms,
        Dialect.PROMETHEUS_3,
    )
    assert (there == ours.present).all()
    assert samples.stale.any()
    assert_same(ours.values[there], theirs.values[there], "latest")


def test_of_two_values_for_one_moment_the_later_counts(reader: tuple[Reader, Found]) -> None:
    """Whichever way is taken, and a repeat of the same value is one sample."""
    ask, _ = reader
    at = NOW_MS - 30_000
    for value in (9.0, 5.0, 5.0):
        columns = {
            "metric": pa.array([10, 10], pa.uint32()),
            "series": pa.array([1, 2], pa.uint64()),
            "time": pa.array([at, at], pa.timestamp("ms", "UTC")),
            "whole": pa.array([0, 0], pa.int64()),
            "fraction": pa.array([value, 7.0]),
        }
        ask._store.insert_arrow("samples", pa.table(columns))
    found = Found(LabelRows([{"n": "1"}, {"n": "2"}]), {1: 0, 2: 1}, None, "metric = 10", {})
    samples = ask.raw(found, NOW_MS - 60_000, NOW_MS)
    assert (samples.rows.tolist(), samples.values.tolist()) == ([0, 1], [5.0, 7.0])
    grid = Grid(NOW_MS, 1000, 1)
    for function, wanted in (("timeSeriesLastToGrid", 5.0), ("timeSeriesCountToGrid", 1.0)):
        assert ask.reduced(found, function, grid, 60_000, skip_stale=True).values[0, 0] == wanted


def test_parts_are_the_whole(reader: tuple[Reader, Found], monkeypatch: pytest.MonkeyPatch) -> None:
    ask, found = reader
    whole = ask.raw(found, NOW_MS - 700_000, NOW_MS)
    monkeypatch.setattr("api.promql.fetch.PART_SAMPLES", 500)
    parts = ask.parts(found, NOW_MS - 700_000, NOW_MS)
    assert len(parts) > 5
    pieces = [ask.raw(part, NOW_MS - 700_000, NOW_MS) for part in parts]
    assert [one for part in parts for one in part.labels] == found.labels
    assert np.concatenate([piece.times_ms for piece in pieces]).tolist() == whole.times_ms.tolist()
    bits = np.concatenate([piece.values for piece in pieces]).view(np.uint64)
    assert bits.tolist() == whole.values.view(np.uint64).tolist()
