"""Rings that are slow from a window's beginning to its end, and what only looks like that."""

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from alerts.detectors.slow_link import detect
from alerts.finding import Finding
from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from alerts.window.model import JobWindow, Rank
from alerts.window.split import split
from collector.contract.units import NS
from simulator.jobs.ladder import ring_exits
from tests.worlds.collectives import shift_clocks
from tests.worlds.ring_jobs import START_NS, Group, make_job, make_window

RANKS = 8
NIC = {2: 0.01, 3: 0.01}
"""Both edges of rank 3, and what a chunk of a long operation takes over them."""
HEALTHY = 0.0005
PAUSE_SECONDS = 0.2
SHORT_SHARE = 0.1
"""Of a long operation's bytes, which a short one has."""
SIZES = (8 << 20, 256 << 10)


def two_kinds(
    edges: Mapping[int, float], *, operations: int = 30, late_seconds: float = 0.0, kinds: int = 2
) -> JobWindow:
    """A long and a short all-reduce in turn; rank 5 comes late to each of the long ones."""
    job = make_job([Group(range(RANKS))], operations=kinds * operations)
    random = np.random.default_rng(7)
    records, long = job.records, job.records.sequence % kinds == 0
    shape = (kinds * operations, RANKS)
    is_long = long.reshape(shape)
    seconds = np.full(shape, HEALTHY)
    for edge, slower in edges.items():
        seconds[:, edge] = slower
    seconds *= np.where(is_long, 1.0, SHORT_SHARE)
    entry = np.arange(shape[0])[:, None] * PAUSE_SECONDS + random.exponential(0.0002, shape)
    entry[:, 5] += np.where(is_long[:, 5], late_seconds, 0.0)
    leave = ring_exits(entry, seconds, 2 * (RANKS - 1)) + random.exponential(0.0002, shape)
    moved = msgspec.structs.replace(
        records,
        entry_ns=START_NS + (entry.reshape(-1) * NS).astype(np.int64),
        exit_ns=START_NS + (leave.reshape(-1) * NS).astype(np.int64),
        size_bytes=np.where(long, *SIZES).astype(np.int64),
    )
    return with_records(job, moved)


def with_records(job: JobWindow, records: Records) -> JobWindow:
    return msgspec.structs.replace(job, records=records, operations=split(records))


def found_in(job: JobWindow) -> list[Finding]:
    return detect(make_window(job))


def test_a_nic_that_is_slow_all_the_time_is_named_without_a_past() -> None:
    (found,) = found_in(two_kinds(NIC))
    assert found.culprit.host == "node3"
    transfer, ladder = found.evidence
    assert transfer.metric == "collective_transfer"
    assert transfer.baseline is None
    assert "no other time is known" in transfer.text
    assert ladder.baseline is None
    assert "256 KiB" in ladder.text
    assert found.cost is None
    assert [one.what for one in found.ruled_out] == ["straggler"]


def test_less_is_believed_of_it_than_of_what_began_in_the_window() -> None:
    (always,) = found_in(two_kinds(NIC))
    (began,) = found_in(make_job([Group(range(RANKS), NIC, range(30, 60))]))
    assert 0.3 < always.strength < 0.8 * began.strength


@pytest.mark.parametrize("seed", range(4))
def test_clocks_that_are_seconds_apart_and_bent_by_the_ladder_do_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    job = two_kinds(NIC)
    shifted = shift_clocks(
        job.records, random.uniform(-2e9, 2e9, RANKS), random.uniform(-5e-5, 5e-5, RANKS)
    )
    fits = align(shifted)
    (found,) = found_in(with_records(job, correct(shifted, fits)))
    assert found.culprit.host == "node3"


def test_a_ladder_that_is_half_taken_for_clocks_is_still_there() -> None:
    """In the short operations beside it clocks show the other half, upside down."""
    job = two_kinds(NIC)
    long = job.records.exit_ns.reshape(-1, RANKS)[::2]
    ladder = np.median(long - long.mean(axis=1, keepdims=True), axis=0)
    bent = shift_clocks(job.records, -ladder / 2, np.zeros(RANKS))
    (found,) = found_in(with_records(job, bent))
    assert found.culprit.host == "node3"


def test_clocks_that_stand_like_a_ladder_are_no_slow_link() -> None:
    """Each is behind the one before it by the same time, in long and in short operations."""
    job = two_kinds({})
    behind = (np.arange(RANKS) - RANKS // 2) * 10_000_000.0
    assert found_in(with_records(job, shift_clocks(job.records, -behind, np.zeros(RANKS)))) == []


@pytest.mark.parametrize("late_seconds", [0.005, 0.03, 0.1])
def test_a_rank_that_always_comes_late_is_no_slow_link(late_seconds: float) -> None:
    """What it may make of the exits is never wider than it is late."""
    job = two_kinds({}, late_seconds=late_seconds)
    assert found_in(job) == []
    exits = job.records.exit_ns.copy()
    long = job.records.sequence % 2 == 0
    place = (job.records.rank - 5) % RANKS
    fall = late_seconds / RANKS * NS
    exits[long] += ((RANKS - 1 - place[long]) * fall).astype(np.int64)
    assert found_in(with_records(job, msgspec.structs.replace(job.records, exit_ns=exits))) == []


def test_where_all_but_one_are_on_one_host_the_network_is_slower_by_nature() -> None:
    job = two_kinds(NIC)
    ranks = {
        rank: Rank(rank=rank, host="node3" if rank == 3 else "node0", gpu=rank)
        for rank in range(RANKS)
    }
    assert found_in(msgspec.structs.replace(job, ranks=ranks)) == []


def test_without_names_of_hosts_the_rank_is_named() -> None:
    job = two_kinds(NIC)
    ranks = {rank: Rank(rank=rank) for rank in range(RANKS)}
    (found,) = found_in(msgspec.structs.replace(job, ranks=ranks))
    assert found.culprit.rank == 3


def test_operations_of_one_length_cannot_be_separated_from_clocks() -> None:
    assert found_in(two_kinds(NIC, kinds=1, operations=60)) == []


@pytest.mark.parametrize("operations", [1, 2, 5, 11])
def test_a_few_operations_are_not_enough(operations: int) -> None:
    assert found_in(two_kinds(NIC, operations=operations)) == []


def test_a_ladder_that_is_missing_from_every_third_operation_does_not_last() -> None:
    """Over a slow link nothing is fast any more."""
    job, slow = two_kinds({}), two_kinds(NIC)
    chosen = job.records.sequence % 6 != 0
    mixed = {
        name: np.where(chosen, getattr(slow.records, name), getattr(job.records, name))
        for name in ("entry_ns", "exit_ns")
    }
    assert found_in(with_records(job, msgspec.structs.replace(job.records, **mixed))) == []


def test_a_ladder_far_lower_than_transfers_are_long_proves_nothing() -> None:
    """Something small is always in the same order; what makes the ring slow is something else."""
    job = two_kinds({})
    exits = job.records.exit_ns.copy()
    long = job.records.sequence % 2 == 0
    place = (job.records.rank[long] - 3) % RANKS
    exits[long] += ((RANKS - 1 - place) * 0.5 * HEALTHY * NS).astype(np.int64)
    assert found_in(with_records(job, msgspec.structs.replace(job.records, exit_ns=exits))) == []


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_ladder(seed: int) -> None:
    job = two_kinds({})
    exits = job.records.exit_ns + np.random.default_rng(seed).exponential(
        0.02 * NS, len(job.records)
    ).astype(np.int64)
    assert found_in(with_records(job, msgspec.structs.replace(job.records, exit_ns=exits))) == []
