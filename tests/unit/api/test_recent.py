"""The last minutes in memory hold what a store holds, or say that they do not."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.data.store import recent as module
from api.data.store.recent import KEPT_MS, READ_APART_MS, UNREAD_MS, WANTED_READS, Recent
from api.data.store.rings import SLOTS, Held, Rings, Samples, joined
from collector.contract.errors import StoreError

NOW_MS = 1_794_700_000_000
DAY_MS = 86_400_000
Row = tuple[int, int, int, float]
"""Metric, series, time and value."""


def columns(rows: Sequence[Row]) -> Samples:
    return Samples(
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.float64),
    )


class Read(NamedTuple):
    """What is held of some metrics, and those that are not."""

    parts: list[Held]
    missing: list[int]

    def told(self, after_ms: int) -> dict[tuple[int, int], float]:
        flat = joined([part.flat(after_ms, NOW_MS + 100 * DAY_MS) for part in self.parts])
        keys = list(zip(flat.metric.tolist(), flat.series, flat.time_ms, strict=True))
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys)
        found = zip(flat.series.tolist(), flat.time_ms.tolist(), strict=True)
        return dict(zip(found, flat.value.tolist(), strict=True))

    @property
    def rows(self) -> int:
        return sum(map(len, self.parts))


class World:
    """A store of rows with its memory, at a time that a test sets."""

    def __init__(self, rows_max: int = 1_000) -> None:
        self.now_ms = NOW_MS
        self.rows: list[Row] = []
        self.loads: list[list[int]] = []
        self.is_away = False
        self.meanwhile: list[Row] = []
        """Written while samples are loaded, and seen by that question."""
        self.recent = Recent(self.load, self.count, rows_max=rows_max, now_ms=lambda: self.now_ms)

    def write(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        self.recent.add(columns(rows))

    def load(self, metrics: Sequence[int], after_ms: int) -> Samples:
        if self.is_away:
            raise StoreError("away")
        self.loads.append(list(metrics))
        if self.meanwhile:
            rows, self.meanwhile = self.meanwhile, []
            self.write(rows)
        return columns([row for row in self.rows if row[0] in metrics and row[2] > after_ms])

    def count(self, metrics: Sequence[int], after_ms: int) -> dict[int, int]:
        del after_ms
        return {metric: sum(row[0] == metric for row in self.rows) for metric in metrics}

    def read(self, metrics: Sequence[int], after_ms: int | None = None) -> Read:
        after_ms = self.now_ms - 300_000 if after_ms is None else after_ms
        missing: list[int] = []
        parts = list(self.recent.parts(metrics, after_ms, missing))
        return Read(parts, missing)

    def hold(self, *metrics: int) -> None:
        """Read often enough."""
        self.read(metrics)
        self.now_ms += READ_APART_MS
        assert not self.read(metrics).missing

    def stored(self, metric: int, after_ms: int) -> dict[tuple[int, int], float]:
        """What a store answers: of two values for one moment the later."""
        return {
            (series, time_ms): value
            for own, series, time_ms, value in self.rows
            if own == metric and time_ms > after_ms
        }


def test_what_is_read_once_is_not_held() -> None:
    world = World()
    world.write([(1, 11, NOW_MS, 1.0)])
    assert world.read([1]).missing == [1]
    assert world.loads == []


def test_what_is_read_often_is_loaded_once_and_added_to() -> None:
    world = World()
    world.write([(1, 11, NOW_MS - 1_000, 1.0), (2, 22, NOW_MS, 2.0)])
    world.hold(1)
    world.write([(1, 11, NOW_MS + 1_000, 3.0), (1, 12, NOW_MS, 4.0), (2, 22, NOW_MS, 2.0)])
    after_ms = world.now_ms - 300_000
    assert world.read([1]).told(after_ms) == world.stored(1, after_ms)
    assert world.loads == [[1]]
    assert world.read([1, 2]).missing == [2]


def test_who_peeks_takes_what_is_there_and_loads_nothing() -> None:
    world = World()
    world.write([(1, 11, NOW_MS - 1_000, 1.0), (1, 12, NOW_MS, 2.0), (2, 22, NOW_MS, 3.0)])
    wanted, after_ms = np.array([12, 22, 99], np.uint64), NOW_MS - 2_000
    for _ in range(WANTED_READS + 1):
        assert world.recent.peek([1, 2], after_ms, wanted) is None
        world.now_ms += READ_APART_MS
    assert world.loads == []
    world.hold(1)
    assert world.recent.peek([1, 2], after_ms, wanted) is None
    world.hold(2)
    found = world.recent.peek([1, 2], after_ms, wanted)
    assert found is not None
    flat = found.flat(after_ms, NOW_MS)
    assert (flat.series.tolist(), flat.value.tolist()) == ([12, 22], [2.0, 3.0])
    assert world.recent.peek([1], NOW_MS - 10 * KEPT_MS, wanted) is None


def test_what_is_written_while_it_is_loaded_is_there_once() -> None:
    world = World()
    world.meanwhile = [(1, 11, NOW_MS, 1.0)]
    world.hold(1)
    assert world.read([1]).told(0) == {(11, NOW_MS): 1.0}


def test_a_metric_without_samples_is_held_as_empty() -> None:
    world = World()
    world.hold(7)
    assert not world.read([7]).rows
    world.write([(7, 70, NOW_MS, 1.0)])
    assert world.read([7]).rows == 1


def test_of_a_series_with_more_readings_than_slots_the_store_is_asked() -> None:
    world = World()
    world.hold(1, 2)
    start_ms = world.now_ms - 200_000
    world.write([(1, 11, start_ms + 1_000 * place, place) for place in range(SLOTS + 1)])
    world.write([(2, 22, start_ms + 3_000 * place, place) for place in range(SLOTS)])
    assert world.read([1, 2]).missing == [1]
    # Its first reading alone is not here.
    assert not world.read([1, 2], start_ms).missing
    assert world.read([1, 2], start_ms - 1).missing == [1]


def test_a_reach_too_far_back_is_the_stores() -> None:
    world = World()
    world.hold(1)
    assert world.read([1], world.now_ms - KEPT_MS - 1).missing == [1]
    assert not world.recent.holds([1], world.now_ms - KEPT_MS - 1)
    assert world.recent.holds([1], world.now_ms - KEPT_MS + READ_APART_MS)


def test_a_clock_that_went_forth_and_back_hides_nothing() -> None:
    world = World()
    world.hold(1)
    world.now_ms += 3_600_000
    late_ms = NOW_MS + 10_000
    world.write([(1, 11, late_ms, 1.0)])
    world.now_ms = NOW_MS + 20_000
    assert world.read([1], world.now_ms - 60_000).missing == [1]
    assert not world.read([1], late_ms).missing


def test_a_store_that_is_away_is_asked_by_who_needs_it() -> None:
    world = World()
    world.is_away = True
    world.read([1])
    world.now_ms += READ_APART_MS
    assert world.read([1]).missing == [1]
    world.is_away = False
    world.write([(1, 11, NOW_MS, 1.0)])
    assert world.read([1]).told(0) == {(11, NOW_MS): 1.0}


def test_what_has_no_room_is_the_stores_and_is_not_tried_at_every_read() -> None:
    world = World(rows_max=3)
    world.hold(1, 2)
    world.write([(1, 11, NOW_MS, 1.0), (2, 21, NOW_MS, 1.0)])
    world.write([(2, series, NOW_MS, 1.0) for series in range(22, 30)])
    loads = len(world.loads)
    for _ in range(5):
        world.now_ms += READ_APART_MS
        assert world.read([1, 2]).missing == [2]
    assert len(world.loads) == loads
    # Those of the metric that was let go make room.
    world.write([(1, series, NOW_MS, 1.0) for series in (12, 13)])
    assert world.read([1]).rows == 3


def test_ended_series_make_room() -> None:
    world = World(rows_max=8)
    world.hold(1)
    for hour in range(5):
        world.now_ms = NOW_MS + hour * 500_000
        world.read([1])
        world.write([(1, 10 * hour + place, world.now_ms, 1.0) for place in range(6)])
        after_ms = world.now_ms - 300_000
        assert world.read([1]).told(after_ms) == world.stored(1, after_ms)


def test_rows_that_made_room_are_missed_by_a_clock_that_goes_back() -> None:
    world = World(rows_max=1)
    world.hold(1)
    world.write([(1, 11, NOW_MS - 156_000, 1.0)])
    world.now_ms = NOW_MS + 160_000
    world.write([(1, 12, world.now_ms, 1.0)])
    world.now_ms = NOW_MS + 93_000
    assert world.read([1], NOW_MS - 157_000).missing == [1]


def test_what_nobody_reads_is_let_go() -> None:
    world = World()
    world.hold(1)
    world.now_ms += UNREAD_MS + 1
    world.hold(2)
    assert world.recent._held == {2}
    assert world.read([1]).missing == [1]


def test_after_forty_days_it_is_loaded_again() -> None:
    world = World()
    world.hold(1)
    for day in range(45):
        world.now_ms = NOW_MS + day * DAY_MS
        world.write([(1, 11, world.now_ms, float(day))])
        world.read([1])
        world.now_ms += READ_APART_MS
        world.read([1])
        world.now_ms += READ_APART_MS
        after_ms = world.now_ms - 300_000
        assert world.read([1]).told(after_ms) == world.stored(1, after_ms) != {}


def test_samples_that_were_written_elsewhere_make_it_forget() -> None:
    world = World()
    world.hold(1)
    world.rows.append((1, 11, NOW_MS, 1.0))
    world.recent.forget()
    assert world.read([1]).told(0) == {(11, NOW_MS): 1.0}


def test_nothing_is_held_of_a_store_that_others_write_to() -> None:
    world = World()
    shared = Recent(world.load, world.count, is_complete=False, now_ms=lambda: NOW_MS)
    for _ in range(3):
        assert shared.read([1], NOW_MS, np.array([11], np.uint64)) is None
    assert world.loads == []


def test_some_series_are_read_in_their_order() -> None:
    world = World()
    world.write([(1, series, NOW_MS, float(series)) for series in range(20)])
    world.hold(1)
    wanted = np.array([7, 99, 3], np.uint64)
    held = world.recent.read([1], NOW_MS - 1, wanted)
    assert held is not None
    assert held.flat(0, NOW_MS).value.tolist() == [7.0, 3.0]
    assert world.recent.read([1, 2], NOW_MS - 1, wanted) is None


def test_a_metric_with_many_series_may_be_left_to_the_store() -> None:
    world = World()
    world.write(
        [(metric, 100 * metric + n, NOW_MS, 1.0) for metric in (1, 2) for n in range(9 * metric)]
    )
    world.hold(1, 2)
    missing: list[int] = []
    parts = list(world.recent.parts([1, 2], NOW_MS - 1, missing, metric_rows_max=9))
    assert (missing, [len(part) for part in parts]) == ([2], [9])


def test_rows_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 4)
    world = World()
    world.write([(1, series, NOW_MS, float(series)) for series in range(10)])
    world.hold(1)
    read = world.read([1])
    assert [len(part) for part in read.parts] == [4, 4, 2]
    assert len(read.told(0)) == 10


def test_a_load_is_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOADED_MAX", 10)
    world = World()
    world.write([(1 + place % 3, place, NOW_MS, 1.0) for place in range(24)])
    world.hold(1, 2, 3)
    assert world.loads == [[1], [2], [3]]
    assert world.read([1, 2, 3]).rows == 24


values = st.sampled_from([0.0, 1.0, 2.5, math.inf, -1.0])
readings = st.tuples(
    st.integers(1, 3), st.integers(0, 5), st.integers(-400, 60).map(lambda s: s * 1_000), values
)
steps = st.lists(
    st.one_of(
        st.lists(readings, min_size=1, max_size=100),
        st.integers(-200, 200).map(lambda s: s * 1_000),
    ),
    max_size=12,
)


@given(steps, st.integers(1, 25))
@settings(max_examples=200, deadline=None)
def test_it_has_what_a_store_has_or_says_what_is_missing(
    taken: list[list[tuple[int, int, int, float]] | int], rows_max: int
) -> None:
    """Any readings in any order, repeats, clocks that are set, little room."""
    world = World(rows_max)
    world.read([1, 2, 3])
    world.now_ms += READ_APART_MS
    for step in taken:
        if isinstance(step, int):
            world.now_ms += step
        else:
            # A series belongs to one metric.
            rows = [
                (metric, 10 * metric + series, world.now_ms + ago_ms, value)
                for metric, series, ago_ms, value in step
            ]
            world.write(rows)
        after_ms = world.now_ms - 250_000
        held = world.read([1, 2, 3], after_ms)
        expected: dict[tuple[int, int], float] = {}
        for metric in {1, 2, 3}.difference(held.missing):
            expected |= world.stored(metric, after_ms)
        assert held.told(after_ms) == expected


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.sampled_from([0.0, 1.0]))),
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_readings_that_come_together_are_held_as_if_they_came_one_by_one(
    inserts: list[list[tuple[int, int, float]]],
) -> None:
    """Inserts with one reading of each series take another way than those with several."""
    together, apart = Rings(10, NOW_MS), Rings(10, NOW_MS)
    for insert in inserts:
        # Of each series in order of time, as batches have them; series in any order.
        rows = [(1, series, NOW_MS + after, value) for series, after, value in insert]
        together.add(columns(sorted(rows, key=lambda row: row[2])), lambda _, last: last >= 0)
        for row in sorted(rows, key=lambda row: row[2]):
            apart.add(columns([row]), lambda _, last: last >= 0)
    for series in range(6):
        held = []
        for rings in (together, apart):
            found = rings.find(np.array([series], np.uint64))
            held.append(rings.copy(found[found >= 0]))
        one, other = held
        assert one.turned().offset.tolist() == other.turned().offset.tolist()
        assert one.turned().value.tolist() == other.turned().value.tolist()
        # Said to stand still is only what does.
        for after_ms in range(NOW_MS, NOW_MS + 30):
            for held_one in held:
                inside = held_one.within(after_ms, NOW_MS + 30)
                still = held_one.is_still(after_ms)
                values = [set(held_one.value[at][inside[at]].tolist()) for at in range(len(inside))]
                assert all(len(own) < 2 for own, is_so in zip(values, still, strict=True) if is_so)
