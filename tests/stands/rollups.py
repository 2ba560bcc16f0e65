"""A store whose samples are rolled up by hand, asked with roll-ups and without."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from api.base.metrics import ServiceMetrics
from api.base.rollup_limits import LATE_QUIET_SECONDS, LATE_ROUND_SECONDS
from api.data.store.rolling import Roller
from api.data.store.rollups import MS_PER_HOUR
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from api.promql import rolled
from api.promql.engine import Answer, Engine, Question
from api.promql.find import Found
from api.promql.rollup_rows import RollupReader
from api.promql.values import Dialect, Grid, Ints, Vector
from collector.contract.units import NS_PER_MS
from tests.worlds.remote_write import TimeSeries

HOURS = 6
DAY_MS = 24 * MS_PER_HOUR
BEGIN_MS = (time.time_ns() // NS_PER_MS // DAY_MS - 20) * DAY_MS
"""A midnight; all series lie in the hours after it. Not long ago: the engine forgets notes of late
samples by its own clock."""
END_MS = BEGIN_MS + HOURS * MS_PER_HOUR
FOR_EVER = dict.fromkeys(RETAINED_TABLES, 3_650)


class Stand:
    """A store, its roller and a clock that is set by hand."""

    def __init__(self, folder: Path, kept: dict[str, int] | None = None) -> None:
        self.now_s = END_MS / 1000 + 900
        self.url = StoreUrl.parse(f"chdb://{folder / 'data'}")
        self.store = Store(self.url, retention_days=kept or FOR_EVER, clock=lambda: self.now_s)
        self.store.migrate()
        self.store.note_late_samples()
        self.metrics = ServiceMetrics()
        self.roller = Roller(self.store, self.metrics)
        self.numbers = itertools.count()

    def roll(self) -> int:
        """Until nothing is left to do; how many steps that took."""
        return sum(1 for _ in iter(self.roller.step, False))

    def settle(self) -> None:
        """Let late samples lie until they are rolled up, and roll them up."""
        self.now_s += LATE_QUIET_SECONDS + LATE_ROUND_SECONDS + 1
        self.roll()

    def settle_late(self) -> None:
        """Roll up what is late and has lain, without waiting for the next look at it."""
        self.roller = Roller(self.store, ServiceMetrics())
        self.roll()

    def ask(self, text: str, grid: Grid) -> Answer:
        engine = Engine(self.store, Dialect.PROMETHEUS_3, catalog=None)
        try:
            return engine.start(Question(text=text, grid=grid, is_range=True)).answer()
        finally:
            engine.close()


@contextlib.contextmanager
def small_questions() -> Iterator[list[str]]:
    """Roll-ups are asked for little, too; notes each function that they answered."""
    answered: list[str] = []
    results = rolled.RolledAnswers.results

    def noting(
        self: rolled.RolledAnswers, function: str, found: Found, ends: Ints, range_ms: int
    ) -> Vector | None:
        answer = results(self, function, found, ends, range_ms)
        if answer is not None:
            answered.append(function)
        return answer

    with (
        patch.object(rolled, "ROLLED_SAMPLES_FROM", 0),
        patch.object(rolled, "SPAN_MS_MIN", 0),
        patch.object(rolled.RolledAnswers, "results", noting),
    ):
        yield answered


@contextlib.contextmanager
def samples_alone() -> Iterator[None]:
    with (
        patch.object(RollupReader, "covered", lambda *_: None),
        patch.object(RollupReader, "gone_before", lambda *_: None),
    ):
        yield


def grid_of(step_ms: int, begin_ms: int = BEGIN_MS, end_ms: int = END_MS) -> Grid:
    return Grid(begin_ms, step_ms, (end_ms - begin_ms) // step_ms + 1)


def rows_of(answer: Answer) -> dict[str, tuple[list[bool], list[float]]]:
    vector = answer.value
    assert isinstance(vector, Vector)
    found = {}
    for row, labels in enumerate(vector.labels):
        present = vector.present[row]
        found[str(sorted(labels.items()))] = (
            present.tolist(),
            np.where(present, vector.values[row], 0.0).tolist(),
        )
    return found


def assert_same(ours: Answer, theirs: Answer, *, to_the_bit: bool) -> None:
    left, right = rows_of(ours), rows_of(theirs)
    assert left.keys() == right.keys()
    for name, (present, values) in left.items():
        assert present == right[name][0], name
        if to_the_bit:
            bits = np.array(values).view(np.uint64)
            assert (bits == np.array(right[name][1]).view(np.uint64)).all(), (
                name,
                values,
                right[name],
            )
        else:
            np.testing.assert_allclose(values, right[name][1], rtol=1e-12, atol=1e-300)


def counter(name: str, begin_ms: int, end_ms: int, every_ms: int = 60_000) -> TimeSeries:
    times = range(begin_ms + every_ms, end_ms + 1, every_ms)
    return TimeSeries([("__name__", name)], [(float(at - begin_ms), at) for at in times])
