"""Which rank sends what to which, by the operations; how evenly; in what rhythm."""

from unittest.mock import patch

import numpy as np
import pytest

from alerts.signals.ladder import ring_orders
from alerts.traffic import flows as flows_module
from alerts.traffic.balance import balance_of, gini_of
from alerts.traffic.flows import (
    FUSED,
    RECEIVE,
    SEND,
    Assumption,
    Messages,
    Sums,
    Traffic,
    paired,
    traffic_of,
)
from alerts.traffic.matrix import (
    Cells,
    check_of,
    handed_up,
    matrix_of,
    misfit,
    sent_and_received,
)
from alerts.traffic.places import By, Places, places_of
from alerts.traffic.rhythm import Odd, Sent, rhythm_of
from alerts.window.columns import Floats
from alerts.window.model import Communicator, Rank
from collector.contract.identity import natural
from collector.contract.records import ABSENT
from collector.contract.units import NS

MB = 1 << 20
SIZE, COUNT = 8 * MB, 10
TREES = ({0: None, 1: 0, 2: 0, 3: 1}, {3: None, 2: 3, 1: 3, 0: 2})


def ranks_on(hosts: int, each: int) -> dict[int, Rank]:
    """Ranks host by host, each with a GPU and a NIC of its own."""
    return {
        host * each + gpu: Rank(
            rank=host * each + gpu, host=f"node{host}", gpu=gpu, devices=(f"mlx5_{gpu}",)
        )
        for host in range(hosts)
        for gpu in range(each)
    }


def group(members: int, **changes: object) -> dict[str, Communicator]:
    """One communicator of all ranks in their order."""
    values = {
        "name": "c",
        "ranks": members,
        "job_rank": {rank: rank for rank in range(members)},
        "rings": [list(range(members))],
    }
    return {"c": Communicator(**(values | changes))}  # type: ignore[arg-type]


def sums(
    operation: str, members: int, size: int = SIZE, count: float = COUNT, algorithm: str = ""
) -> Sums:
    """One kind of operation of that communicator."""
    return Sums(
        communicators=["c"],
        operations=[operation],
        algorithms=[algorithm],
        communicator=np.zeros(1, dtype=np.int32),
        operation=np.zeros(1, dtype=np.int32),
        algorithm=np.zeros(1, dtype=np.int32),
        size_bytes=np.array([size], dtype=np.int64),
        ranks=np.array([members], dtype=np.int32),
        count=np.array([float(count)]),
        transfer_ns=np.array([1e9]),
    )


def messages(*rows: tuple[int, int, int, float]) -> Messages:
    """What both ends record: rank, peer, kind, bytes; each took a second."""
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    rank, peer, kind = (np.array(column, dtype=np.int32) for column in columns[:3])
    return paired(
        ["c"],
        communicator=np.zeros(len(rank), dtype=np.int32),
        rank=rank,
        peer=peer,
        kind=kind,
        totals=(np.array(columns[3], dtype=np.float64), np.full(len(rank), 1e9)),
    )


NOTHING = messages()


def table_of(traffic: Traffic, places: Places, by: By = By.RANK) -> dict[tuple[str, str], float]:
    """Bytes by the names of both ends."""
    cells: Cells = matrix_of(traffic.flows, places, by).cells
    names = places.names(by)
    return {
        (names[cells.source[row]], names[cells.target[row]]): float(cells.bytes[row])
        for row in range(len(cells))
    }


# Shapes of operations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "times"),
    [("all_reduce", 2 * 3 / 4), ("all_gather", 3.0), ("reduce_scatter", 3.0)],
)
def test_a_ring_hands_the_same_to_every_next_one(operation: str, times: float) -> None:
    places = places_of(ranks_on(4, 1))
    rings = [[0, 2, 1, 3], [0, 2, 1, 3]]
    traffic = traffic_of([sums(operation, 4)], NOTHING, group(4, rings=rings), places)
    each = pytest.approx(SIZE * COUNT * times)
    assert table_of(traffic, places) == {
        ("0", "2"): each,
        ("2", "1"): each,
        ("1", "3"): each,
        ("3", "0"): each,
    }
    assert traffic.assumptions == []
    assert traffic.unplaced_bytes == 0


def test_two_trees_carry_half_of_the_message_up_and_down_each_edge() -> None:
    places = places_of(ranks_on(4, 1))
    wired = group(4, trees=list(TREES))
    by_name = traffic_of([sums("all_reduce", 4, algorithm="tree")], NOTHING, wired, places)
    half = SIZE * COUNT / 2
    found = table_of(by_name, places)
    assert found["1", "0"] == found["0", "1"] == pytest.approx(half)
    assert set(found) == {
        ends
        for tree in TREES
        for child, parent in tree.items()
        if parent is not None
        for ends in ((str(child), str(parent)), (str(parent), str(child)))
    }
    ring = traffic_of([sums("all_reduce", 4, algorithm="ring")], NOTHING, wired, places)
    assert sum(found.values()) == pytest.approx(sum(table_of(ring, places).values()))
    assert by_name.assumptions == ring.assumptions == []


def test_without_a_word_on_the_algorithm_small_all_reduces_are_trees_and_that_is_noted() -> None:
    places = places_of(ranks_on(4, 1))
    wired = group(4, trees=list(TREES))
    small = traffic_of([sums("all_reduce", 4, size=64)], NOTHING, wired, places)
    large = traffic_of([sums("all_reduce", 4)], NOTHING, wired, places)
    forced = traffic_of([sums("all_reduce", 4)], NOTHING, wired, places, is_tree=True)
    assert ("2", "0") in table_of(small, places)
    assert ("2", "0") not in table_of(large, places)
    assert ("2", "0") in table_of(forced, places)
    assert small.assumptions == large.assumptions == [Assumption.ALGORITHM_BY_SIZE]
    assert forced.assumptions == [Assumption.ALGORITHM_BY_COUNTERS]


# Where switches add up ---------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["collnet_direct", "collnetchain", "nvls"])
def test_what_switches_add_up_goes_up_once_and_from_no_rank_to_another(algorithm: str) -> None:
    places = places_of(ranks_on(3, 2))
    traffic = traffic_of(
        [sums("all_reduce", 6, algorithm=algorithm)], NOTHING, group(6, trees=[{0: None}]), places
    )
    assert table_of(traffic, places) == {}
    # Each host hands the message up once: half by each of its two NICs.
    assert traffic.up_bytes.tolist() == pytest.approx([SIZE * COUNT / 2] * 6)
    assert handed_up(traffic.up_bytes, places).tolist() == pytest.approx([SIZE * COUNT / 2] * 6)
    assert traffic.unplaced_bytes == 0
    assert traffic.assumptions == [Assumption.REDUCED_IN_SWITCHES]


def test_nvls_within_one_host_leaves_it_by_no_nic() -> None:
    places = places_of(ranks_on(1, 4))
    traffic = traffic_of([sums("all_reduce", 4, algorithm="nvls")], NOTHING, group(4), places)
    assert table_of(traffic, places) == {}
    assert traffic.up_bytes.sum() == traffic.unplaced_bytes == 0


@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [
        ("all_reduce", "nvls_tree"),
        ("all_gather", "pat"),
        ("reduce_scatter", "collnet_direct"),
        ("all_gather", "an algorithm of 2031"),
    ],
)
def test_an_algorithm_without_a_model_is_no_ring(operation: str, algorithm: str) -> None:
    places = places_of(ranks_on(4, 1))
    traffic = traffic_of([sums(operation, 4, algorithm=algorithm)], NOTHING, group(4), places)
    ring = traffic_of([sums(operation, 4, algorithm="ring")], NOTHING, group(4), places)
    assert table_of(traffic, places) == {}
    assert traffic.unplaced_bytes == pytest.approx(sum(table_of(ring, places).values()))
    assert traffic.assumptions == [Assumption.NOT_MODELLED]


def test_a_communicator_with_collnet_whose_records_name_no_algorithm_is_not_placed() -> None:
    places = places_of(ranks_on(4, 1))
    wired = group(4, trees=list(TREES), is_in_network=True)
    said = traffic_of([sums("all_reduce", 4, algorithm="ring")], NOTHING, wired, places)
    assert len(table_of(said, places)) == 4
    for is_tree in (None, False, True):
        silent = traffic_of([sums("all_reduce", 4)], NOTHING, wired, places, is_tree=is_tree)
        assert table_of(silent, places) == {}
        assert silent.unplaced_bytes > 0
        assert Assumption.NOT_MODELLED in silent.assumptions


def test_nothing_goes_up_where_the_host_of_a_rank_is_not_known() -> None:
    ranks = ranks_on(2, 2)
    del ranks[3]
    places = places_of(ranks)
    traffic = traffic_of(
        [sums("all_reduce", 4, algorithm="collnet_direct")], NOTHING, group(4), places
    )
    assert traffic.up_bytes.sum() == 0
    assert traffic.unplaced_bytes > 0
    assert traffic.assumptions == [Assumption.NOT_MODELLED]


def test_ranks_behind_a_switch_that_adds_up_are_no_neighbours() -> None:
    """Detectors vote over what lies between ring neighbours: here nothing does."""
    assert len(ring_orders(group(4)["c"], 4)) == 1
    assert ring_orders(group(4, is_in_network=True)["c"], 4) == []


def test_an_all_to_all_is_a_block_that_stays_on_rails() -> None:
    places = places_of(ranks_on(2, 2))
    traffic = traffic_of([sums("all_to_all", 4)], NOTHING, group(4), places)
    found = table_of(traffic, places)
    assert len(found) == 4 * 3
    assert set(found.values()) == {SIZE * COUNT / 4}
    assert traffic.assumptions == [Assumption.EQUAL_PARTS]
    rails = table_of(traffic, places, By.RAIL)
    assert set(rails) == {("0", "0"), ("1", "1")}
    # What rank 0 has for rank 3 leaves by the NIC of rank 1, which is on rank 3's rail.
    nics = table_of(traffic, places, By.NIC)
    assert nics["node0/mlx5_1", "node1/mlx5_1"] == pytest.approx(2 * SIZE * COUNT / 4)


def test_an_assumed_ring_leaves_hosts_by_all_their_nics() -> None:
    places = places_of(ranks_on(3, 2))
    traffic = traffic_of([sums("all_reduce", 6)], NOTHING, group(6, rings=[]), places)
    assert traffic.assumptions == [Assumption.RING_ORDER]
    whole = SIZE * COUNT * 2 * 5 / 6
    nics = table_of(traffic, places, By.NIC)
    assert len(nics) == 6
    assert all(one[-1] == other[-1] for one, other in nics)
    assert list(nics.values()) == pytest.approx([whole / 2] * 6)
    drawn = matrix_of(traffic.flows, places, By.HOST)
    assert drawn.local_bytes == pytest.approx(3 * whole)
    assert drawn.bytes == pytest.approx(6 * whole)
    cells = drawn.cells
    assert (cells.is_local == (cells.source == cells.target)).all()


def test_a_broadcast_goes_round_from_its_root_and_a_gather_to_it() -> None:
    places = places_of(ranks_on(3, 1))
    broadcast = traffic_of([sums("broadcast", 3)], NOTHING, group(3), places)
    assert set(table_of(broadcast, places)) == {("0", "1"), ("1", "2")}
    reduce = traffic_of([sums("reduce", 3)], NOTHING, group(3), places)
    assert set(table_of(reduce, places)) == {("1", "2"), ("2", "0")}
    gather = traffic_of([sums("gather", 3)], NOTHING, group(3), places)
    assert table_of(gather, places) == {("1", "0"): SIZE * COUNT, ("2", "0"): SIZE * COUNT}
    assert broadcast.assumptions == gather.assumptions == [Assumption.ROOT_ZERO]


# Sends and receives ------------------------------------------------------------------------------


def test_a_message_that_both_ends_report_counts_once_and_is_measured() -> None:
    places = places_of(ranks_on(2, 1))
    both = messages((0, 1, SEND, 600.0), (1, 0, RECEIVE, 600.0), (1, 0, SEND, 50.0))
    traffic = traffic_of([], both, group(2), places)
    assert table_of(traffic, places) == {("0", "1"): 600.0, ("1", "0"): 50.0}
    assert traffic.flows.is_measured.all()
    # The sender's agent was away for half of the time.
    one = traffic_of([], messages((0, 1, SEND, 300.0), (1, 0, RECEIVE, 600.0)), group(2), places)
    assert table_of(one, places) == {("0", "1"): 600.0}


def test_a_fused_send_and_receive_is_half_each_way_and_that_is_noted() -> None:
    places = places_of(ranks_on(2, 1))
    fused = messages((0, 1, FUSED, 600.0), (1, 0, FUSED, 600.0))
    traffic = traffic_of([], fused, group(2), places)
    assert table_of(traffic, places) == {("0", "1"): 300.0, ("1", "0"): 300.0}
    assert traffic.assumptions == [Assumption.BOTH_WAYS]


# What has no place -------------------------------------------------------------------------------


def test_bytes_of_unknown_members_are_added_up_as_unplaced() -> None:
    places = places_of(ranks_on(4, 1))
    known = group(4, job_rank={0: 0, 1: 1, 2: 2})
    whole = SIZE * COUNT * 2 * 3 / 4 * 4
    traffic = traffic_of([sums("all_reduce", 4)], NOTHING, known, places)
    placed = sum(table_of(traffic, places).values())
    assert placed == pytest.approx(whole / 2)
    assert traffic.unplaced_bytes == pytest.approx(whole / 2)
    stranger = traffic_of([sums("all_reduce", 4)], messages((0, 1, SEND, 5.0)), {}, places)
    assert len(stranger.flows) == 0
    assert stranger.unplaced_bytes == pytest.approx(whole + 5)


def test_more_flows_than_fit_are_unplaced_and_not_held() -> None:
    places = places_of(ranks_on(8, 1))
    kinds = [sums("all_to_all", 8), sums("all_reduce", 8)]
    with patch.object(flows_module, "FLOWS_MAX", 60):
        traffic = traffic_of(kinds, NOTHING, group(8), places)
    assert len(traffic.flows) == 8
    assert traffic.unplaced_bytes == pytest.approx(SIZE * COUNT * 7)


def test_odd_operations_neither_crash_nor_count() -> None:
    places = places_of(ranks_on(2, 1))
    kinds = [
        sums("all_reduce", 2, size=ABSENT),
        sums("all_reduce", 2, size=-5),
        sums("all_reduce", 2, count=float("nan")),
        sums("all_reduce", 1),
        sums("a word of tomorrow", 2),
        sums("all_reduce", 2).select(slice(0)),
    ]
    traffic = traffic_of(kinds, NOTHING, group(2, rings=[[0, 9], [0]]), places)
    assert len(traffic.flows) == 0
    for by in By:
        assert len(matrix_of(traffic.flows, places, by).cells) == 0
    nowhere = places_of({})
    assert len(traffic_of([sums("all_reduce", 2)], NOTHING, group(2), nowhere).flows) == 0


def test_the_order_of_rows_changes_nothing() -> None:
    places = places_of(ranks_on(4, 2))
    kinds = [sums("all_reduce", 8), sums("all_to_all", 8), sums("all_gather", 8, size=100)]
    traffic = traffic_of(kinds, NOTHING, group(8), places)
    turned = traffic_of(kinds[::-1], NOTHING, group(8), places)
    for by in By:
        assert table_of(traffic, places, by) == pytest.approx(table_of(turned, places, by))


# Places ------------------------------------------------------------------------------------------


def test_a_rank_with_two_nics_sends_half_by_each() -> None:
    ranks = {
        rank: Rank(rank=rank, host=f"node{rank}", devices=("mlx5_2", "mlx5_10"))
        for rank in range(2)
    }
    places = places_of(ranks)
    traffic = traffic_of([sums("all_gather", 2)], NOTHING, group(2), places)
    nics = table_of(traffic, places, By.NIC)
    assert nics == {
        (f"node{one}/{name}", f"node{1 - one}/{name}"): SIZE * COUNT / 2
        for one in range(2)
        for name in ("mlx5_2", "mlx5_10")
    }
    assert set(table_of(traffic, places, By.RAIL)) == {("0", "0"), ("1", "1")}


def test_what_the_topology_has_of_rails_stands_against_the_count() -> None:
    ranks = ranks_on(2, 1)
    places = places_of(ranks, {("node0", "mlx5_0"): 3, ("node1", "mlx5_0"): 5})
    traffic = traffic_of([sums("all_gather", 2)], NOTHING, group(2), places)
    assert set(table_of(traffic, places, By.RAIL)) == {("3", "5"), ("5", "3")}


def test_ranks_whose_gpu_or_nic_is_unknown_are_nameless() -> None:
    ranks = {0: Rank(rank=0, host="node0", gpu=0), 1: Rank(rank=1, host="node1")}
    places = places_of(ranks)
    traffic = traffic_of([sums("all_gather", 2)], NOTHING, group(2), places)
    for by, nameless in ((By.RANK, 0), (By.HOST, 0), (By.GPU, 2), (By.NIC, 2), (By.RAIL, 2)):
        drawn = matrix_of(traffic.flows, places, by)
        assert drawn.nameless_bytes == pytest.approx(nameless * SIZE * COUNT), by


def test_names_are_sorted_as_people_count() -> None:
    assert sorted(["mlx5_10", "mlx5_9", "eth1", "mlx5_1"], key=natural) == [
        "eth1",
        "mlx5_1",
        "mlx5_9",
        "mlx5_10",
    ]


def test_times_of_ranks_at_work_together_are_not_added_up() -> None:
    places = places_of(ranks_on(2, 2))
    rails = {
        name: Communicator(name=name, ranks=2, job_rank={0: rail, 1: 2 + rail}, rings=[[0, 1]])
        for rail, name in enumerate("ab")
    }
    one = sums("all_gather", 2)
    kinds = [
        Sums(
            **{**{name: getattr(one, name) for name in Sums.__struct_fields__}, "communicators": c}
        )
        for c in (["a"], ["b"], ["b"])
    ]
    cells = matrix_of(traffic_of(kinds, NOTHING, rails, places).flows, places, By.HOST).cells
    # Two rails at once; on the second there were two stretches, one after the other.
    assert cells.transfer_ns.tolist() == [2e9, 2e9]
    assert cells.bytes.tolist() == [3 * SIZE * COUNT] * 2


# Against counters --------------------------------------------------------------------------------


def test_counters_separate_a_tree_from_a_ring() -> None:
    places = places_of(ranks_on(4, 1))
    wired = group(4, trees=[TREES[0]])

    def sent(*, is_tree: bool) -> np.ndarray:
        traffic = traffic_of([sums("all_reduce", 4)], NOTHING, wired, places, is_tree=is_tree)
        return sent_and_received(matrix_of(traffic.flows, places, By.NIC).cells, 4)[0]

    counted = sent(is_tree=True) * 1.01
    assert misfit(sent(is_tree=True), counted) < 1e-9
    assert misfit(sent(is_tree=False), counted) > 0.05
    counted[2] = np.nan
    check = check_of(sent(is_tree=True), counted)
    assert check is not None
    assert check.nics == 3
    assert check.median_ratio == pytest.approx(1 / 1.01)
    assert check_of(np.ones(2), np.array([np.nan, 0.0])) is None


# Balance -----------------------------------------------------------------------------------------


def test_balance_names_the_one_that_sends_less() -> None:
    values: Floats = 100.0 + np.arange(64, dtype=np.float64) % 3
    values[7] = 60.0
    balance = balance_of(values)
    assert balance is not None
    assert balance.standing_out.tolist() == [7]
    assert balance.highest_by_mean < 1.03
    assert 0 < balance.gini < 0.02


def test_few_things_groups_of_things_and_small_differences_do_not_stand_out() -> None:
    few = np.array([100.0, 100, 100, 100, 100, 100, 10])
    stages = np.full(64, 100.0)
    stages[:16] = 50.0
    alike = np.full(64, 100.0)
    alike[3] = 96.0
    for values in (few, stages, alike):
        balance = balance_of(values)
        assert balance is not None
        assert len(balance.standing_out) == 0


def test_balance_of_nothing_is_nothing() -> None:
    assert balance_of(np.array([])) is None
    assert balance_of(np.array([5.0])) is None
    assert balance_of(np.array([0.0, 0.0, np.nan])) is None
    assert gini_of(np.zeros(0)) == 0


# Rhythm ------------------------------------------------------------------------------------------

STEP_NS = 730_000_000


def regular(steps: int = 60, late: dict[int, int] | None = None) -> Sent:
    """A rank that computes for 0.53 s and sends for 0.2 s; some steps wait before they begin."""
    wait = np.zeros(steps, dtype=np.int64)
    for step, pause in (late or {}).items():
        wait[step] = pause
    starts = 1_800_000_000 * NS + np.arange(steps) * STEP_NS + np.cumsum(wait) - wait
    ends = starts + STEP_NS + wait
    return Sent(
        entry_ns=ends - 200_000_000,
        exit_ns=ends,
        bytes=np.full(steps, 4e9),
        start_ns=starts,
        end_ns=ends,
    )


def test_a_regular_job_shows_its_period_by_steps_and_by_bytes_and_when_it_sends() -> None:
    rhythm = rhythm_of([regular(), regular()])
    assert rhythm.period_ns == STEP_NS
    assert rhythm.byte_period_ns == pytest.approx(STEP_NS, rel=0.01)
    assert rhythm.correlation > 0.9
    assert rhythm.duty == pytest.approx(200 / 730, abs=0.01)
    first, last = rhythm.phases
    assert (first.is_sending, last.is_sending) == (False, True)
    assert first.end == last.start == pytest.approx(530 / 730, abs=0.05)
    assert last.bytes_per_second == pytest.approx(4e9 / 0.2, rel=0.1)
    assert rhythm.odd == []


def test_a_checkpoint_is_a_long_period_and_a_hole_a_missing_one() -> None:
    sent = regular(late={20: 10 * NS})
    (odd,) = rhythm_of([sent]).odd
    assert (odd.kind, odd.start_ns) == (Odd.LONG, int(sent.start_ns[20]))
    assert odd.periods == pytest.approx(1 + 10 / 0.73, rel=0.01)
    kept = np.delete(np.arange(60), [30, 31])
    gone = Sent(
        entry_ns=sent.entry_ns[kept][:40],
        exit_ns=sent.exit_ns[kept][:40],
        bytes=sent.bytes[:40],
        start_ns=regular().start_ns[kept],
        end_ns=regular().end_ns[kept],
    )
    (hole,) = rhythm_of([gone]).odd
    assert hole.kind is Odd.MISSING
    assert hole.periods == pytest.approx(2.0)


def test_noise_and_nothing_have_no_rhythm() -> None:
    random = np.random.default_rng(5)
    entry = 1_800_000_000 * NS + np.sort(random.integers(0, 100 * NS, 400))
    noise = Sent(entry_ns=entry, exit_ns=entry + 5_000_000, bytes=np.full(400, 1e6))
    rhythm = rhythm_of([noise])
    assert (rhythm.period_ns, rhythm.byte_period_ns, rhythm.phases) == (None, None, [])
    nothing = np.zeros(0, dtype=np.int64)
    silent = Sent(entry_ns=nothing, exit_ns=nothing, bytes=np.zeros(0))
    one = Sent(entry_ns=entry[:1], exit_ns=entry[:1], bytes=np.array([np.nan]))
    backwards = Sent(entry_ns=entry, exit_ns=entry - 10, bytes=np.full(400, 1e6))
    for ranks in ([], [silent], [one], [backwards], [silent, one]):
        assert rhythm_of(ranks).byte_period_ns is None


def test_the_order_of_operations_does_not_matter_to_the_rhythm() -> None:
    sent = regular()
    order = np.random.default_rng(1).permutation(len(sent))
    mixed = Sent(
        entry_ns=sent.entry_ns[order],
        exit_ns=sent.exit_ns[order],
        bytes=sent.bytes[order],
        start_ns=sent.start_ns,
        end_ns=sent.end_ns,
    )
    assert rhythm_of([mixed]) == rhythm_of([sent])
