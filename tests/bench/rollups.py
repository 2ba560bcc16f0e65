"""What roll-ups cost, and what they save: `python -m tests.bench.rollups [SERIES [DAYS]]`.

A store of its own, with SERIES series (400) of 15-second samples over DAYS days (7): counters,
gauges, and values that stand still. Rolled up as a past that had no roll-ups, and the last day hour
by hour, as a service that runs does it, samples in one insert a minute. Then questions
over all of it are asked from roll-ups and from samples alone, in turn. CPU time is that of this
process, the engine's threads included.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from api.base.metrics import ServiceMetrics
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from api.data.store.rolling import Roller
from api.data.store.rollups import MS_PER_HOUR
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from api.promql.engine import Answer, Engine, Question
from api.promql.values import Dialect, Grid
from collector.contract.identity import METRIC_LABEL, canonical_labels, metric_id, series_id
from tests.stands.rollups import samples_alone

INTERVAL_MS = 15_000
DAY_MS = 24 * MS_PER_HOUR
METRIC = "bench_total"
ASKED = 5
TABLES = ("samples", "rollup_5m", "rollup_1h", "series")
QUESTIONS = {
    "sum(rate(bench_total[1h])), step 1h": ("sum(rate(bench_total[1h]))", MS_PER_HOUR),
    "max_over_time(bench_total[5m]), step 5m": ("max_over_time(bench_total[5m])", 300_000),
    "avg(bench_total), step 10m": ("avg(bench_total)", 600_000),
    "topk(5, increase(bench_total[1d])), step 1d": ("topk(5, increase(bench_total[1d]))", DAY_MS),
}
SIZES_SQL = (
    "SELECT table, sum(bytes_on_disk) AS size, sum(rows) AS held FROM system.parts "
    "WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)} "
    "GROUP BY table ORDER BY table"
)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Load:
    """Makes series and their samples, hour after hour."""

    def __init__(self, store: Store, series: int) -> None:
        self._store = store
        self._rng = np.random.default_rng(1)
        self._names = [
            canonical_labels(
                {METRIC_LABEL: "bench_total", "host": f"h{one % 40}", "port": str(one)}
            )
            for one in range(series)
        ]
        self._ids = np.sort(np.array([series_id(labels) for labels in self._names], np.uint64))
        self._state = self._rng.integers(0, 1_000_000, series)

    def name(self, day: int) -> None:
        """The series of a day (since 1970)."""
        new = [NewSeries(day, series_id(labels), labels) for labels in self._names]
        self._store.insert_arrow("series", series_rows(new))

    def hour(self, begin_ms: int, inserts: int) -> int:
        """Write an hour's samples in so many inserts; returns how many these are."""
        series, per_hour = len(self._ids), MS_PER_HOUR // INTERVAL_MS
        times = begin_ms + INTERVAL_MS * np.arange(1, per_hour + 1)
        steps = self._rng.integers(0, 100_000, (series, per_hour))
        steps[: series // 4] = 0  # some stand still, some are gauges
        values = self._state[:, np.newaxis] + np.cumsum(steps, axis=1)
        values[series // 4 : series // 2] = steps[series // 4 : series // 2]
        self._state = values[:, -1]
        for some in np.array_split(np.arange(per_hour), inserts):
            count = series * len(some)
            columns = SampleColumns(
                np.full(count, metric_id(METRIC), np.uint32),
                np.repeat(self._ids, len(some)),
                np.tile(times[some], series),
                values[:, some].astype(np.float64).ravel(),
            )
            self._store.insert_samples(columns)
        return series * per_hour


def timed(work: Callable[[], Answer]) -> tuple[Answer, float, float]:
    cpu, wall = cpu_s(), time.perf_counter()
    answer = work()
    return answer, cpu_s() - cpu, time.perf_counter() - wall


def answered(engine: Engine, question: Question) -> Answer:
    return engine.start(question).answer()


def ask(engine: Engine, begin_ms: int, days: int) -> None:
    for words, (text, step_ms) in QUESTIONS.items():
        steps = days * DAY_MS // step_ms
        grid = Grid(begin_ms + step_ms, step_ms, steps)
        question = Question(text=text, grid=grid, is_range=True)
        found: dict[str, list[tuple[float, float]]] = {"roll-ups": [], "samples": []}
        for _ in range(ASKED):
            rolled, *ours = timed(partial(answered, engine, question))
            with samples_alone():
                plain, *theirs = timed(partial(answered, engine, question))
            found["roll-ups"].append((ours[0], ours[1]))
            found["samples"].append((theirs[0], theirs[1]))
        medians = {
            by: [statistics.median(column) for column in zip(*times, strict=True)]
            for by, times in found.items()
        }
        (ours_cpu, ours_wall), (cpu, wall) = medians["roll-ups"], medians["samples"]
        print(
            f"{words}: roll-ups {ours_wall * 1000:.0f} ms ({ours_cpu * 1000:.0f} ms of CPU, "
            f"{rolled.samples} rows), samples {wall * 1000:.0f} ms ({cpu * 1000:.0f} ms, "
            f"{plain.samples} samples): {wall / ours_wall:.1f} times, CPU {cpu / ours_cpu:.1f}",
            flush=True,
        )


def roll(roller: Roller) -> float:
    """All that is due; returns CPU seconds."""
    used = cpu_s()
    while roller.step():
        pass
    return cpu_s() - used


def roll_up(store: Store, clock: list[float], series: int, begin_ms: int, days: int) -> None:
    """All days but the last as a past that had no roll-ups, the last hour by hour."""
    load, roller = Load(store, series), Roller(store, ServiceMetrics())
    used, samples = {"past": 0.0, "as it runs": 0.0}, {"past": 0, "as it runs": 0}
    for day in range(days):
        load.name(begin_ms // DAY_MS + day)
    for hour in range((days - 1) * 24):
        samples["past"] += load.hour(begin_ms + hour * MS_PER_HOUR, 1)
    clock[0] = (begin_ms + (days - 1) * DAY_MS) / 1000 + 900
    used["past"] = roll(roller)
    for hour in range((days - 1) * 24, days * 24):
        samples["as it runs"] += load.hour(begin_ms + hour * MS_PER_HOUR, 60)
        clock[0] += MS_PER_HOUR / 1000
        used["as it runs"] += roll(roller)
    for when, count in samples.items():
        cost = used[when] * 1e6 / count
        print(
            f"rolled up, {when}: {count / 1e6:.1f} million samples, {cost:.2f} s of CPU a million"
        )


def weigh(store: Store) -> None:
    """Bytes of a row, once everything is merged."""
    with store.holding_writes("merge") as client:
        for table in TABLES:
            client.command(f"OPTIMIZE TABLE {table} FINAL")
    for row in store.query(SIZES_SQL, {"tables": list(TABLES)}).to_pylist():
        print(f"{row['table']}: {row['held']} rows of {row['size'] / row['held']:.2f} bytes")


def main(arguments: list[str]) -> int:
    """The command line."""
    series, days = (int(one) for one in (*arguments, *("400", "7")[len(arguments) :]))
    begin_ms = (time.time_ns() // 1_000_000 // DAY_MS - days) * DAY_MS
    clock = [begin_ms / 1000]
    with tempfile.TemporaryDirectory() as folder:
        kept = dict.fromkeys(RETAINED_TABLES, 3_650)
        url = StoreUrl.parse(f"chdb://{Path(folder) / 'data'}")
        store = Store(url, retention_days=kept, clock=lambda: clock[0])
        store.migrate()
        roll_up(store, clock, series, begin_ms, days)
        weigh(store)
        engine = Engine(store, Dialect.PROMETHEUS_3, None)
        ask(engine, begin_ms, days)
        engine.close()
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
