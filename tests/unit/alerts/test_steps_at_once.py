"""Steps of all ranks at once are those of each rank by itself, whatever the records are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from alerts.signals.gaps import most_even
from alerts.window.columns import Ints
from alerts.window.grouped import middles, order_by, rows_of, running_most
from alerts.window.statistics import middle
from alerts.window.steps import Bounds, Work, infer_bounds, measure_ranks, measure_steps
from collector.contract.records import ABSENT
from tests.oracles import plain_steps

SEEDS = range(60)
START_NS = 1_794_700_000_000_000_000


def any_work(seed: int) -> Work:
    """Some ranks that repeat a program, or two, or nothing; with losses, pauses and odd clocks."""
    rng = random.Random(seed)
    programs = [
        [rng.randrange(4) for _ in range(rng.choice((1, 3, 8, 17)))]
        for _ in range(rng.choice((1, 1, 2)))
    ]
    lost, rare = rng.choice((0.0, 0.0, 0.02, 0.2)), rng.choice((0.0, 0.0, 0.01))
    rows: list[tuple[int, ...]] = []
    for rank in range(rng.choice((1, 2, 7, 20))):
        program = programs[rank % len(programs)] if rng.random() < 0.95 else []
        rows += rank_of(rng, rank, program, lost, rare)
    names = ("rank", "kind", "stream", "sequence", "entry_ns", "exit_ns", "enqueue_ns")
    columns = dict(zip(names, np.array(rows, dtype=np.int64).T, strict=True))
    skew = np.array([rng.randrange(1_000_000) for _ in rows])
    work = Work(
        **{**columns, "rank": columns["rank"].astype(np.int32)},
        waited_ns=columns["entry_ns"] + skew,
        is_last=(skew < 100_000).astype(np.int32),
        skew_ns=skew,
        late_ns=skew - 500_000,
    )
    ordered: Work = work.select(np.lexsort((work.entry_ns, work.rank)))
    return ordered


def rank_of(
    rng: random.Random, rank: int, program: list[int], lost: float, rare: float
) -> list[tuple[int, ...]]:
    at = START_NS + rng.randrange(5_000_000_000)
    # Some clocks are of another age, and some ranks say when they launched.
    at = rng.choice((at, at, at, at, 5))
    launches = rng.choice(("all", "none", "some"))
    numbers = [rng.randrange(100)] * 9
    rows: list[tuple[int, ...]] = []
    for step in range(rng.choice((2, 5, 30, 80))):
        if rng.random() < 0.01:
            numbers = [number + 10_000 for number in numbers]
        for place, kind in enumerate(program or [rng.randrange(5) for _ in range(4)]):
            stream = kind % 3
            chosen = [(kind, stream)]
            if rng.random() < rare:
                chosen.append((7, 8))
            for one, counted in chosen:
                numbers[counted] += 1
                at += 30_000_000 * (place == 0) + rng.randrange(1_000_000)
                leave = at + rng.randrange(-10_000, 40_000_000 if rng.random() < 0.05 else 900_000)
                is_told = launches == "all" or (launches == "some" and step % 2)
                enqueue = at - rng.randrange(3_000_000) if is_told else ABSENT
                if rng.random() >= lost:
                    rows.append((rank, one, counted, numbers[counted], at, leave, enqueue))
    return rows


def same(one: Bounds | None, other: Bounds | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(
        getattr(one, name).dtype == getattr(other, name).dtype
        and np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("rank", "number", "start_ns", "end_ns")
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_and_times_are_those_of_each_rank_by_itself(seed: int) -> None:
    work = any_work(seed)
    bounds = infer_bounds(work)
    assert same(bounds, plain_steps.infer_bounds(work))
    if bounds is None:
        return
    spent, expected = measure_ranks(work, bounds), plain_steps.measure_ranks(work, bounds)
    for name in spent.__struct_fields__:
        np.testing.assert_array_equal(getattr(spent, name), getattr(expected, name))
    assert measure_steps(work, bounds) == plain_steps.measure_steps(work, bounds)
    # Of some ranks and steps only, and of ranks that did nothing.
    some: Bounds = bounds.select((bounds.number % 3 > 0) & (bounds.rank % 2 == 0))
    nobody: Work = work.select(work.rank % 4 == 1)
    assert measure_steps(work, some) == plain_steps.measure_steps(work, some)
    assert measure_steps(nobody, some) == plain_steps.measure_steps(nobody, some)


def test_what_is_looked_at_has_steps_and_none() -> None:
    """Else the test above would compare nothing with nothing."""
    found = [infer_bounds(any_work(seed)) for seed in SEEDS]
    assert 10 < sum(bounds is not None for bounds in found) < len(found)


@pytest.mark.parametrize("far", [10, 1 << 40, (1 << 62) - 1])
def test_groups_at_once_are_those_one_by_one(far: int) -> None:
    """Also of values that are so far apart that a group and a value are no single number."""
    rng = np.random.default_rng(3)
    for count in (1, 2, 30, 1_000):
        group = np.sort(rng.integers(0, 6, count))
        _, group = np.unique(group, return_inverse=True)
        values: Ints = rng.integers(-far, far, count)
        starts = np.searchsorted(group, np.arange(group.max() + 1))
        each = np.split(values, starts[1:])
        most = np.concatenate([np.maximum.accumulate(one) for one in each])
        np.testing.assert_array_equal(running_most(values, starts), most)
        assert middles(values, group).tolist() == [middle(one) for one in each]
        shares = values / 3
        each_share = np.split(shares, starts[1:])
        assert middles(shares, group).tolist() == [middle(one) for one in each_share]
        mixed = rng.integers(0, 5, count)
        np.testing.assert_array_equal(order_by(mixed, values), np.lexsort((values, mixed)))
        wide = mixed * far
        np.testing.assert_array_equal(rows_of(wide), np.argsort(wide, kind="stable"))


@pytest.mark.parametrize("seed", SEEDS)
def test_where_counting_begins_is_found_as_by_trying_every_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    each, steps = int(rng.integers(1, 30)), int(rng.integers(3, 40))
    place = np.arange(each * steps - int(rng.integers(0, each)))
    by_clock = (place + int(rng.integers(0, each))) // each + int(rng.integers(0, 5))
    # Evaluations, lost records, and operations that the clock puts into a step beside.
    by_clock += np.cumsum(rng.random(len(place)) < rng.choice([0, 0.01, 0.2]))
    by_clock += rng.integers(-1, 2, len(place)) * (rng.random(len(place)) < rng.choice([0, 0.3]))
    best, most = 0, -1
    for shift in range(each):
        drift = by_clock - (place + shift) // each
        agree = int((drift == middle(drift)).sum())
        if agree > most:
            best, most = shift, agree
    assert most_even(by_clock, each) == (best, most)
