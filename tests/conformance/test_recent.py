"""What is read from memory is what the store has: windows cell by cell, PromQL number by number."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from alerts.window.model import Grid, Readings
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from api.data.store import recent
from api.data.store.store import Store, StoreUrl
from api.jobs.correlate.readings import GridReader
from api.jobs.correlate.things import read_gpus, read_hosts, read_ports, read_samples
from api.oncall.evaluate.series import STALE
from api.promql.engine import Engine, Question
from api.promql.values import Dialect, Vector
from api.promql.values import Grid as Steps
from collector.contract.identity import Labels, metric_id, series_id
from collector.contract.units import NS
from tests.stands.memory import nothing_held

CELL = 5
SERIES = 24
INSERTS = 9
METRICS = {
    "fabric_port_transmit_bytes_total": ("host", "device", "port"),
    "fabric_port_state": ("host", "device", "port"),
    "fabric_port_symbol_errors_total": ("host", "device", "port"),
    "fabric_gpu_sm_clock_hertz": ("gpu", "host"),
    "fabric_host_load1": ("host",),
}
GAUGE, COUNTER = "fabric_gpu_sm_clock_hertz", "fabric_port_transmit_bytes_total"
QUERIES = (
    GAUGE,
    f'{GAUGE}{{host="n2"}}',
    f"rate({COUNTER}[1m])",
    f"increase({COUNTER}[4m])",
    f"max_over_time({GAUGE}[2m]) - min_over_time({GAUGE}[2m])",
    f"sum by (host) (rate({COUNTER}[1m])) / on (host) count by (host) ({GAUGE})",
    "count(fabric_host_load1)",
)
Row = tuple[int, int, int, float]


def labels_of(metric: str, number: int) -> Labels:
    words = {"host": f"n{number // 4}", "device": f"mlx5_{number % 4}", "port": "1"}
    words |= {"gpu": str(number % 4)} | ({"host": f"n{number}"} if metric.endswith("load1") else {})
    named = {"__name__": metric, **{name: words[name] for name in METRICS[metric]}}
    return tuple(sorted(named.items()))


def columns(rows: Sequence[Row]) -> SampleColumns:
    return SampleColumns(
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.float64),
    )


def unpleasant(now_s: int, random: np.random.Generator) -> list[list[Row]]:
    """Four minutes of many series, in some inserts.

    Gaps, resets, what is no number, what ends, readings that come late, repeats, and a series that
    is read too often to be held.
    """
    inserts: list[list[Row]] = [[] for _ in range(INSERTS)]
    for metric in METRICS:
        for number in range(SERIES):
            series = series_id(labels_of(metric, number))
            every = 1 if metric == "fabric_host_load1" and not number else 5 + number % 3
            times = np.arange(now_s - 240, now_s, every) * 1000 + int(random.integers(0, 900))
            times = times[random.random(len(times)) > (0.7 if number % 5 == 4 else 0.02)]
            values = np.cumsum(random.integers(0, 4 if number % 3 else 1, len(times))).astype(float)
            values[random.random(len(times)) < 0.02] = random.choice([np.nan, np.inf, 0.0, STALE])
            for place, (at, value) in enumerate(zip(times.tolist(), values.tolist(), strict=True)):
                row = (metric_id(metric), series, at, value)
                inserts[place * INSERTS // len(times)].append(row)
    inserts[3], inserts[6] = inserts[6], inserts[3]
    for each in inserts:
        order = random.permutation(len(each)).tolist()
        each[:] = [each[place] for place in [*order, *order[:20]]]
    return inserts


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(recent, "READ_APART_MS", 0)
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path}/telemetry"))
    opened.migrate()
    day = round(time.time()) // 86_400
    names = [labels_of(metric, number) for metric in METRICS for number in range(SERIES)]
    rows = [NewSeries(each, series_id(one), one) for one in names for each in (day - 1, day)]
    opened.insert_arrow("series", series_rows(rows))
    yield opened
    opened.close()


@contextmanager
def without_memory(store: Store) -> Iterator[None]:
    kept = store.recent
    store.recent = nothing_held()
    yield
    store.recent = kept


def things(reader: GridReader, grid: Grid) -> dict[str, Readings]:
    samples = read_samples(reader, grid)
    found = {
        "port": read_ports(reader, None, grid, samples),
        "gpu": read_gpus(reader, grid, samples),
        "host": read_hosts(reader, grid, samples),
    }
    return {
        f"{kind} {name}": readings
        for kind, each in found.items()
        for name, readings in each.readings.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_windows_are_the_same_cell_by_cell(store: Store, seed: int) -> None:
    now_s = round(time.time())
    reader, asked = GridReader(store), []
    for insert in unpleasant(now_s, np.random.default_rng(seed)):
        store.insert_samples(columns(insert))
        for cells, back_s in ((36, 0), (30, 7)):
            grid = Grid((now_s - back_s - cells * CELL) * NS, CELL * NS, cells)
            held = things(reader, grid)
            asked.append(store.recent.reads_here)
            with without_memory(store):
                whole = things(reader, grid)
            assert held.keys() == whole.keys()
            for name, readings in held.items():
                assert readings.row.tolist() == whole[name].row.tolist(), name
                assert np.array_equal(readings.values, whole[name].values, equal_nan=True), name
    assert {name.split()[0] for name in held} == {"port", "gpu", "host"}
    # From the second read on, until one series has more readings than a ring.
    assert asked[2] == 2
    assert store.recent.bytes_used > 0


@pytest.mark.parametrize("dialect", list(Dialect))
def test_promql_is_the_same_number_by_number(store: Store, dialect: Dialect) -> None:
    now_s = round(time.time())
    engine = Engine(store, dialect, None)

    def ask(text: str) -> dict[Labels, float]:
        question = Question(text=text, grid=Steps(now_s * 1000, 1, 1), is_range=False)
        value = engine.start(question, None).answer().value
        assert isinstance(value, Vector)
        rows = zip(value.labels, value.values[:, 0].tolist(), value.present[:, 0], strict=True)
        return {
            tuple(sorted(labels.items())): round(number, 9)
            for labels, number, is_there in rows
            if is_there
        }

    for insert in unpleasant(now_s, np.random.default_rng(7)):
        store.insert_samples(columns(insert))
        held = [ask(text) for text in QUERIES]
        with without_memory(store):
            assert repr(held) == repr([ask(text) for text in QUERIES])
    assert sum(map(len, held)) > 100
    assert store.recent.reads_here > 40
    engine.close()
