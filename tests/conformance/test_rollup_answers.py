"""Roll-ups give the answers that samples would give.

Random series with resets, gaps, stale markers, infinities and late samples are asked about twice:
with roll-ups and from samples alone.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.data.store.rollups import MS_PER_HOUR
from api.promql import rolled
from api.promql.values import Grid
from tests.stands.rollups import (
    BEGIN_MS,
    END_MS,
    HOURS,
    Stand,
    assert_same,
    counter,
    grid_of,
    rows_of,
    samples_alone,
    small_questions,
)
from tests.stands.samples import write_series
from tests.tools.cut import CUT
from tests.worlds.remote_write import STALE, TimeSeries

FUNCTIONS = sorted(rolled.ROLLED)
QUESTIONS = (
    # step, range
    ("10m", 600_000, 300_000),
    ("1h", MS_PER_HOUR, MS_PER_HOUR),
    ("5m", 300_000, 1_500_000),
    ("2h", 2 * MS_PER_HOUR, MS_PER_HOUR),
)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    made = Stand(tmp_path_factory.mktemp("rollups"))
    # Something at both ends, so that all hours between them are rolled up.
    edges = [(1.0, BEGIN_MS + 1), (1.0, END_MS)]
    write_series(made.store, [TimeSeries([("__name__", "edges")], edges)])
    made.settle()
    yield made
    made.store.close()


class Wish(msgspec.Struct, frozen=True):
    """What a series looks like."""

    seed: int
    whole: bool
    interval_ms: int
    jitter_ms: int
    begins_ms: int
    gap: int
    resets: int
    is_gauge: bool
    stale: int
    odd: tuple[float, ...]

    def samples(self) -> list[tuple[float, int]]:
        """Values and times."""
        rng = np.random.default_rng(self.seed)
        times = np.arange(BEGIN_MS + self.begins_ms, END_MS + 1, self.interval_ms)
        times = np.unique(times + rng.integers(0, self.jitter_ms + 1, len(times)))
        times = times[times <= END_MS]
        gap = int(rng.integers(0, len(times)))
        times = np.delete(times, slice(gap, gap + self.gap))
        size = len(times)
        if not size:
            return []
        steps = rng.integers(0, 1_000, size) if self.whole else rng.random(size) * 10
        values = np.cumsum(steps).astype(np.float64)
        for at in rng.integers(0, size, self.resets):
            values[at:] -= values[at]
        if self.is_gauge:
            values = values - rng.integers(0, 500, size)
        values[rng.integers(0, size, self.stale)] = STALE
        values[rng.integers(0, size, len(self.odd))] = self.odd
        return list(zip(values.tolist(), times.tolist(), strict=True))


def wishes(*, whole: bool) -> st.SearchStrategy[Wish]:
    return st.builds(
        Wish,
        seed=st.integers(0, 2**32 - 1),
        whole=st.just(whole),
        interval_ms=st.sampled_from((60_000, 170_000, 20_000)),
        jitter_ms=st.sampled_from((0, 7, 4_001)),
        begins_ms=st.integers(1, 400_000),
        gap=st.integers(0, 200),
        resets=st.integers(0, 4),
        is_gauge=st.booleans(),
        stale=st.integers(0, 3),
        odd=st.sampled_from(((), (), (float("nan"),), (float("inf"), -0.0))),
    )


def write(stand: Stand, name: str, histories: Sequence[list[tuple[float, int]]]) -> None:
    given = [
        TimeSeries([("__name__", name), ("port", str(port))], list(samples))
        for port, samples in enumerate(histories)
        if samples
    ]
    if given:
        write_series(stand.store, given)


@settings(max_examples=CUT.examples(30))
@given(data=st.data(), whole=st.booleans())
def test_answers_from_rollups_are_those_of_samples(
    stand: Stand, data: st.DataObject, *, whole: bool
) -> None:
    name = f"m{next(stand.numbers)}_total"
    wanted = data.draw(st.lists(wishes(whole=whole), min_size=1, max_size=3))
    given = [wish.samples() for wish in wanted]
    late = data.draw(st.integers(0, 5))
    write(stand, name, [one[: len(one) - late] for one in given])
    stand.settle()
    write(stand, name, [one[len(one) - late :] for one in given if late])  # all hours are over
    function = data.draw(st.sampled_from(FUNCTIONS))
    text, step_ms, shift_ms = data.draw(st.sampled_from(QUESTIONS))
    grid = grid_of(step_ms, BEGIN_MS + shift_ms // 300_000 * 300_000)
    asked = f"{function}({name}[{text}])"
    with small_questions():
        fresh = stand.ask(asked, grid)
        stand.settle()
        ours = stand.ask(asked, grid)
        newest = stand.ask(name, grid)
    with samples_alone():
        samples, plain = stand.ask(asked, grid), stand.ask(name, grid)
    is_sum = function in {"sum_over_time", "avg_over_time"}
    to_the_bit = whole or not (is_sum or function in {"increase", "rate"})
    assert_same(fresh, samples, to_the_bit=to_the_bit)
    assert_same(ours, samples, to_the_bit=to_the_bit)
    assert_same(newest, plain, to_the_bit=True)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_is_answered_by_rollups(stand: Stand, function: str) -> None:
    name = f"m{next(stand.numbers)}_total"
    write_series(stand.store, [counter(name, BEGIN_MS, END_MS)])
    stand.settle()
    grid = grid_of(MS_PER_HOUR, BEGIN_MS + MS_PER_HOUR)
    with small_questions() as answered:
        ours = stand.ask(f"{function}({name}[1h])", grid)
    assert answered == [function]
    assert ours.samples == HOURS, "an hour's row for each step, and no sample"
    with samples_alone():
        assert_same(ours, stand.ask(f"{function}({name}[1h])", grid), to_the_bit=True)
    assert rows_of(ours)


@pytest.mark.parametrize(
    ("asked", "begin_ms"),
    [
        ("max_over_time({}[7m])", BEGIN_MS),
        ("max_over_time({}[1h])", BEGIN_MS + 1),
        ("quantile_over_time(0.5, {}[1h])", BEGIN_MS),
        ("max_over_time({}[1h] offset 1s)", BEGIN_MS),
    ],
)
def test_windows_that_are_no_whole_buckets_are_read_as_samples(
    stand: Stand, asked: str, begin_ms: int
) -> None:
    name = f"m{next(stand.numbers)}"
    write_series(stand.store, [counter(name, BEGIN_MS, END_MS)])
    stand.settle()
    with small_questions() as answered:
        stand.ask(asked.format(name), grid_of(MS_PER_HOUR, begin_ms, begin_ms + 4 * MS_PER_HOUR))
    assert not answered


def test_a_young_store_lacks_nothing(stand: Stand) -> None:
    """Where samples begin when roll-ups do, none are gone: windows before are read as they are."""
    answer = stand.ask("count_over_time(edges[7h])", Grid(BEGIN_MS + 5_000, MS_PER_HOUR, 3))
    assert [values for _, values in rows_of(answer).values()] == [[1.0, 1.0, 1.0]]
    assert not answer.notes.warnings
