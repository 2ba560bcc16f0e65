"""Who leaves a collective when: the recurrence, and what real captures show of it."""

import numpy as np
import pytest

from simulator.jobs.ladder import exits, ring_exits, ring_sends
from simulator.jobs.layout import lay_out
from simulator.jobs.model import JobSpec
from simulator.jobs.patterns import NETWORK_STEP_SECONDS, Collective, Collectives, floor_of
from simulator.pattern import Algorithm
from simulator.topology.build import build
from simulator.topology.model import Floats
from simulator.topology.spec import ClusterSpec

CHUNK_BITS = 8 * (1 << 20)
LINE_BPS = 9e9


def ring_of_eight(
    size_bytes: int = 8 << 20, large_algorithm: Algorithm = Algorithm.RING
) -> Collective:
    """Eight hosts with one rank each, as in the captures: an all-reduce of 8 MiB."""
    cluster = build(
        ClusterSpec(topology="single", hosts=8, gpus_per_host=1, nics_per_host=1, speed="HDR")
    )
    spec = JobSpec(
        name="eight",
        hosts=tuple(range(8)),
        tensor=1,
        gradient_bytes=size_bytes,
        buckets=1,
        large_algorithm=large_algorithm,
    )
    collective = Collectives(spec, lay_out(spec, cluster), cluster).reduce
    assert collective is not None
    return collective


def ring_bps(collective: Collective, **edges: float) -> Floats:
    """Line rate, but these edges (`from_2`, by their sender) slower."""
    bps = np.full(len(collective.pattern.flow_unit), LINE_BPS)
    for name, slow in edges.items():
        bps[collective.pattern.flow_member == int(name.removeprefix("from_"))] = slow
    return bps


def test_one_slow_nic_makes_the_ladder_that_was_captured() -> None:
    """In the capture a step takes 30 ms out of host 3, and a little less into it."""
    ring = ring_of_eight()
    bps = ring_bps(ring, from_2=CHUNK_BITS / 26.5e-3, from_3=CHUNK_BITS / 30e-3)
    entry = np.zeros((1, 8))
    left = exits(ring, entry, np.array([14 * 30e-3]), bps)[0]
    milliseconds = (left - left.min()) * 1e3
    captured = [59, 30, 0, 128, 171, 146, 116, 88]
    assert milliseconds == pytest.approx(captured, abs=7)
    assert np.argsort(milliseconds).tolist() == [2, 1, 0, 7, 6, 3, 5, 4]


def test_the_last_exit_is_where_the_network_says() -> None:
    ring = ring_of_eight()
    bps = ring_bps(ring, from_3=1e9)
    entry = np.linspace(1.0, 1.002, 8)[None]
    for end in (1.05, 1.2):
        assert exits(ring, entry, np.array([end]), bps).max() == pytest.approx(end)


@pytest.mark.parametrize("slow_factor", [1.0, 5.0])
def test_a_ring_takes_its_steps_times_the_slowest_edge(slow_factor: float) -> None:
    size, seconds = 64, 1e-3
    steps = 2 * (size - 1)
    edges = np.full((1, size), seconds)
    edges[0, 17] *= slow_factor
    left = ring_exits(np.zeros((1, size)), edges, steps)
    assert left.max() == pytest.approx(steps * seconds * slow_factor, rel=0.01)


def test_units_do_not_touch_each_other() -> None:
    random = np.random.default_rng(1)
    entry, edges = random.random((3, 16)), random.random((3, 16))
    together = ring_exits(entry, edges, 30)
    alone = [ring_exits(entry[unit : unit + 1], edges[unit : unit + 1], 30)[0] for unit in range(3)]
    assert (together == np.stack(alone)).all()


@pytest.mark.parametrize(("size", "steps"), [(5, 8), (40, 78), (40, 300), (100, 99)])
@pytest.mark.parametrize("is_even", [True, False])
def test_the_recurrence_is_the_written_out_one(size: int, steps: int, is_even: bool) -> None:  # noqa: FBT001
    random = np.random.default_rng(2)
    entry = random.random(size)
    edges = np.full(size, 0.01) if is_even else random.random(size)
    ends = [max(entry[r], entry[(r + 1) % size]) + edges[r] for r in range(size)]
    for _ in range(steps - 1):
        ends = [max(ends[r - 1], ends[r]) + edges[r] for r in range(size)]
    left = ring_exits(entry[None], edges[None], steps)[0]
    assert left == pytest.approx([ends[r - 1] for r in range(size)], abs=1e-9)


def test_a_late_rank_waits_least_and_the_transfer_does_not_change() -> None:
    ring = ring_of_eight()
    bps = ring_bps(ring)
    entry = np.zeros((1, 8))
    on_time = exits(ring, entry, np.array([0.02]), bps)
    entry[0, 5] = 0.5
    late = exits(ring, entry, np.array([0.52]), bps)
    inside = (late - entry)[0]
    assert inside.argmin() == 5
    assert inside[5] == pytest.approx(0.02, rel=0.2)
    assert late.max() - entry.max() == pytest.approx(on_time.max(), rel=1e-6)
    assert (late > 0.5).all()


def test_sends_are_smooth_on_the_slow_edge_and_bursts_elsewhere() -> None:
    ring = ring_of_eight()
    slow = CHUNK_BITS / 30e-3
    bps = ring_bps(ring, from_3=slow)
    entry, end = np.zeros((1, 8)), np.array([14 * 30e-3])
    starts, ends = ring_sends(ring, entry, end, bps)
    assert starts.shape == ends.shape == (14, 1, 8)
    busy = (ends - starts).sum(axis=0)[0] / 0.42
    assert busy[3] == pytest.approx(1.0, abs=0.01)
    assert (np.delete(busy, 3) < 0.1).all()
    # One send after the other, and nothing is passed on before it has arrived.
    assert (starts[1:] >= ends[:-1] - 1e-12).all()
    assert (starts[1:, :, 1:] >= ends[:-1, :, :-1] - 1e-12).all()
    left = exits(ring, entry, end, bps)
    assert np.roll(ends[-1], 1, axis=1) == pytest.approx(left)


def test_a_slow_tree_edge_holds_up_what_hangs_below_it() -> None:
    tree = ring_of_eight(size_bytes=2 << 20)
    assert tree.pattern.algorithm is Algorithm.TREE
    pattern = tree.pattern
    bps = np.full(len(pattern.flow_unit), LINE_BPS)
    entry, end = np.zeros((1, 8)), np.array([1.0])
    healthy = exits(tree, entry, end, bps)[0]
    assert healthy.min() > 0.5
    # Down to host 3, a leaf of the first tree (no edge of the second one): only host 3 is late.
    bps[(pattern.flow_member == 2) & (pattern.flow_peer == 3)] = LINE_BPS / 50
    left = exits(tree, entry, end, bps)[0]
    assert left.argmax() == 3
    assert np.delete(left, 3).max() < 0.5
    # Up from host 5, another leaf: no rank can leave before it is served.
    bps = np.full(len(pattern.flow_unit), LINE_BPS)
    bps[(pattern.flow_member == 5) & (pattern.flow_peer == 6)] = LINE_BPS / 50
    assert exits(tree, entry, end, bps)[0].min() > 0.9


def test_what_switches_add_up_comes_to_all_ranks_at_once() -> None:
    """No ladder leads to the one that sends slowly."""
    summed = ring_of_eight(size_bytes=1 << 30, large_algorithm=Algorithm.COLLNET_DIRECT)
    bps = np.full(len(summed.pattern.flow_unit), LINE_BPS)
    bps[summed.pattern.flow_member == 3] /= 8
    entry = np.zeros((1, 8))
    entry[0, 5] = 0.1
    left = exits(summed, entry, np.array([1.0]), bps)[0]
    assert left == pytest.approx(1.0)


def test_in_an_all_to_all_a_rank_leaves_when_its_own_flows_are_done() -> None:
    cluster = build(ClusterSpec(topology="single", hosts=8, gpus_per_host=1, nics_per_host=1))
    spec = JobSpec(name="eight", hosts=tuple(range(8)), tensor=1, expert=8)
    collective = Collectives(spec, lay_out(spec, cluster), cluster).expert[0, 0]
    pattern = collective.pattern
    bps = np.full(len(pattern.flow_unit), LINE_BPS)
    bps[(pattern.flow_member == 2) & (pattern.flow_peer == 6)] /= 4
    left = exits(collective, np.zeros((1, 8)), np.array([1.0]), bps)[0]
    assert left[[2, 6]] == pytest.approx(1.0)
    assert np.delete(left, [2, 6]) == pytest.approx(0.25, rel=0.01)


def test_a_flow_that_could_not_move_divides_nothing_by_zero() -> None:
    ring = ring_of_eight()
    left = exits(ring, np.zeros((1, 8)), np.array([3.0]), np.zeros(8))
    assert np.isfinite(left).all()
    assert left.max() == pytest.approx(3.0)


def test_a_ring_of_a_thousand_equal_edges_takes_all_its_steps() -> None:
    size = 1024
    entry, edges = np.zeros((1, size)), np.full((1, size), NETWORK_STEP_SECONDS)
    left = ring_exits(entry, edges, 2 * (size - 1))
    assert left.max() == pytest.approx(2 * (size - 1) * NETWORK_STEP_SECONDS)


def tensor_job() -> Collective:
    """Two hosts of four GPUs: what the GPUs of each reduce among themselves."""
    cluster = build(
        ClusterSpec(topology="single", hosts=2, gpus_per_host=4, nics_per_host=4, speed="HDR")
    )
    spec = JobSpec(name="two", hosts=(0, 1), tensor=4, gradient_bytes=1 << 20, buckets=1)
    (collective,) = Collectives(spec, lay_out(spec, cluster), cluster).tensor.values()
    return collective


def test_a_gpu_with_slow_nvlink_slows_its_own_host_only() -> None:
    inside = tensor_job()
    share = np.ones((2, 4))
    share[1, 2] = 0.1
    floor = floor_of(inside, share)
    np.testing.assert_allclose(floor_of(inside, np.ones((2, 4))), inside.pattern.floor_seconds)
    assert floor[0] == inside.pattern.floor_seconds[0]
    assert floor[1] == pytest.approx(10 * floor[0], rel=0.15)
    left = exits(inside, np.zeros((2, 4)), floor, np.zeros(0), share)
    assert left.max(axis=1) == pytest.approx(floor)
    # The rank behind the slow edges leaves last; those of the other host leave together.
    assert left[0].max() - left[0].min() < 1e-9
    assert int(left[1].argmax()) in {2, 3}
