"""Exits of a ring as a ladder: which edges are slow, and when exits do not show it."""

import msgspec
import numpy as np
import pytest

from alerts.signals.ladder import Ladder, ladder_of, ring_orders
from alerts.signals.transfer import Stretch, slow_stretches
from alerts.window.model import Communicator, JobWindow
from tests.worlds.ring_jobs import Group, make_job

SLOW = range(30, 60)


def slow_stretch(job: JobWindow) -> Stretch:
    (found,) = slow_stretches(job)
    return found


def ladder_in(job: JobWindow) -> Ladder:
    found = ladder_of(job, slow_stretch(job))
    assert found is not None
    return found


@pytest.mark.parametrize("count", [3, 4, 8, 33])
def test_one_slow_edge_has_all_of_the_delay(count: int) -> None:
    ladder = ladder_in(make_job([Group(range(count), {1: 0.02}, SLOW)]))
    assert np.argmax(ladder.share) == 1
    assert ladder.share[1] > 0.9
    assert ladder.is_clear
    assert (ladder.first_out, ladder.last_out) == (1, 2)
    assert not ladder.is_of_nic


@pytest.mark.parametrize("count", [4, 8, 16])
def test_a_slow_nic_has_both_of_its_edges_slow(count: int) -> None:
    """Its own exit lies anywhere between, by how both directions share it."""
    job = make_job([Group(range(count), {1: 0.02, 2: 0.02}, SLOW)])
    exits = job.records.exit_ns.copy()
    early = (job.records.rank == 2) & (job.records.sequence >= SLOW.start)
    exits[early] -= 40_000_000
    ladder = ladder_in(
        msgspec.structs.replace(job, records=msgspec.structs.replace(job.records, exit_ns=exits))
    )
    assert ladder.share[1] + ladder.share[2] > 0.9
    assert ladder.is_of_nic
    assert ladder.is_clear


def test_the_step_is_what_a_chunk_takes_over_the_slow_edge() -> None:
    ladder = ladder_in(make_job([Group(range(8), {4: 0.03}, SLOW)]))
    assert ladder.step_ns == pytest.approx(30e6, rel=0.05)
    assert ladder.step_share == pytest.approx(1.0, abs=0.1)


def test_clocks_that_differ_do_not_matter() -> None:
    job = make_job([Group(range(8), {4: 0.03}, SLOW)])
    ahead = np.random.default_rng(3).integers(-50_000_000, 50_000_000, 8)
    stretch = slow_stretch(job)
    moved = msgspec.structs.replace(
        job.records, exit_ns=job.records.exit_ns + ahead[job.records.rank]
    )
    ladder = ladder_of(msgspec.structs.replace(job, records=moved), stretch)
    assert ladder is not None
    assert np.argmax(ladder.share) == 4
    assert ladder.is_clear


def test_the_order_of_the_ring_is_that_of_its_channels() -> None:
    order = [0, 3, 6, 1, 4, 7, 2, 5]
    job = make_job([Group(order, {2: 0.03}, SLOW)])
    known = Communicator(
        name="0x00",
        ranks=8,
        job_rank={rank: rank for rank in range(8)},
        rings=[order, order],
    )
    records = job.records
    renamed = msgspec.structs.replace(records, rank=np.array(order, dtype=np.int32)[records.rank])
    by_rank = np.lexsort((renamed.rank, renamed.sequence))
    stretch = slow_stretch(job)
    ladder = ladder_of(
        msgspec.structs.replace(
            job, records=renamed.select(by_rank), communicators={"0x00": known}
        ),
        stretch,
    )
    assert ladder is not None
    edge = int(np.argmax(ladder.share))
    assert (ladder.source[edge], ladder.target[edge]) == (6, 1)


def test_around_a_rank_without_records_both_edges_are_suspected_alike() -> None:
    job = make_job([Group(range(8), {2: 0.03}, SLOW)])
    stretch = slow_stretch(job)
    kept: np.ndarray = job.records.rank != 3
    ladder = ladder_of(msgspec.structs.replace(job, records=job.records.select(kept)), stretch)
    assert ladder is not None
    share = dict(zip(ladder.source.tolist(), ladder.share.tolist(), strict=True))
    assert sum(share.values()) == pytest.approx(1.0)
    assert share[2] == pytest.approx(share[3])
    assert share[2] + share[3] > 0.9
    # Two slow edges beside each other are a slow NIC's; here they only stand for one that is not
    # known, and the rank in their middle may be innocent.
    assert not ladder.is_clear
    assert ladder.belief < 0.1


def test_a_rank_without_records_elsewhere_in_the_ring_does_not_matter() -> None:
    job = make_job([Group(range(8), {2: 0.03}, SLOW)])
    stretch = slow_stretch(job)
    kept: np.ndarray = job.records.rank != 6
    ladder = ladder_of(msgspec.structs.replace(job, records=job.records.select(kept)), stretch)
    assert ladder is not None
    assert ladder.source[np.argmax(ladder.share)] == 2
    assert ladder.is_clear


def test_exits_without_an_order_are_no_ladder() -> None:
    clear = 0
    for seed in range(30):
        job = make_job([Group(range(8), {2: 0.03}, SLOW)], seed=seed)
        stretch = slow_stretch(job)
        random = np.random.default_rng(seed)
        exits = job.records.exit_ns + random.integers(0, 400_000_000, len(job.records))
        moved = msgspec.structs.replace(job.records, exit_ns=exits)
        ladder = ladder_of(msgspec.structs.replace(job, records=moved), stretch)
        assert ladder is not None
        clear += ladder.is_clear
    assert clear == 0


def test_of_two_ranks_the_one_behind_the_slow_direction_leaves_last() -> None:
    ladder = ladder_in(make_job([Group([0, 1], {0: 0.05}, SLOW)]))
    assert (ladder.first_out, ladder.last_out) == (0, 1)
    assert ladder.share[0] > 0.9
    assert ladder.belief > 0.6


def test_two_ranks_that_are_slow_both_ways_leave_together() -> None:
    ladder = ladder_in(make_job([Group([0, 1], {0: 0.05, 1: 0.05}, SLOW)]))
    assert ladder.belief < 0.1
    assert abs(ladder.share[0] - 0.5) < 0.05


def test_rings_that_do_not_fit_the_ranks_are_not_believed() -> None:
    odd = Communicator(name="x", ranks=4, job_rank={}, rings=[[0, 1, 1, 9], [3, 2]])
    assert [order.tolist() for order in ring_orders(odd, 4)] == [[0, 1, 2, 3]]
    assert ring_orders(None, 1) == []
