"""Rings, trees and direct flows: bytes between members, and their NICs."""

import numpy as np
import pytest

from collector.contract.collective import Operation
from simulator.jobs.layout import lay_out
from simulator.jobs.model import JobSpec
from simulator.jobs.patterns import Collective, Collectives, edge_range, stage_ranges, tree_depths
from simulator.jobs.rings import ROOT, binary_tree, double_trees
from simulator.pattern import Algorithm
from simulator.topology.build import build
from simulator.topology.model import Floats
from simulator.topology.spec import ClusterSpec


def collectives(
    *, topology: str = "rail", hosts: int = 4, gpus: int = 8, nics: int = 8, spec: JobSpec
) -> Collectives:
    cluster = build(
        ClusterSpec(topology=topology, hosts=hosts, gpus_per_host=gpus, nics_per_host=nics)
    )
    return Collectives(spec, lay_out(spec, cluster), cluster)


def job(hosts: int, tensor: int = 1, **more: int | bool | Algorithm) -> JobSpec:
    return JobSpec(name="job", hosts=tuple(range(hosts)), tensor=tensor, **more)  # type: ignore[arg-type]


def reduction(made: Collectives) -> Collective:
    assert made.reduce is not None
    return made.reduce


def edge_bytes(collective: Collective) -> Floats:
    """[units, members, members]: bytes from one to the other over the network."""
    pattern = collective.pattern
    size = pattern.members.shape[1]
    total = np.zeros((pattern.units, size, size))
    where = (pattern.flow_unit, pattern.flow_member, pattern.flow_peer)
    np.add.at(total, where, pattern.flow_bytes)
    return total


def test_a_ring_goes_from_host_to_host_and_leaves_by_every_nic_it_can_reach() -> None:
    pattern = reduction(collectives(spec=job(4))).pattern
    assert pattern.members.tolist() == [list(range(32))]
    # One edge leaves each host, from its last GPU to the next host's first, over eight channels.
    assert len(pattern.flow_unit) == 4 * 8
    assert sorted(set(pattern.flow_member.tolist())) == [7, 15, 23, 31]
    assert (pattern.flow_peer == (pattern.flow_member + 1) % 32).all()
    assert sorted(pattern.flow_source.tolist()) == list(range(32))
    assert (pattern.flow_source // 8 == pattern.flow_member // 8).all()
    assert (pattern.flow_target // 8 == (pattern.flow_source // 8 + 1) % 4).all()


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_rails_are_not_crossed(tensor: int) -> None:
    pattern = reduction(collectives(spec=job(4, tensor))).pattern
    assert (pattern.flow_source % 8 == pattern.flow_target % 8).all()
    channels = np.bincount(pattern.flow_unit * 32 + pattern.flow_member)
    assert set(channels[channels > 0].tolist()) == {8 // tensor}
    assert pattern.units == tensor


def test_gpus_that_share_a_nic_share_its_channel() -> None:
    made = collectives(topology="single", nics=2, spec=job(4))
    assert sorted(set(reduction(made).pattern.flow_source.tolist())) == list(range(8))
    assert len(reduction(made).pattern.flow_source) == 8


def test_every_edge_of_a_ring_carries_what_the_algorithm_says() -> None:
    size = 1 << 28
    made = reduction(collectives(spec=job(4, 2, gradient_bytes=4 * size)))
    assert made.pattern.algorithm is Algorithm.RING
    total = edge_bytes(made)
    assert total[total > 0] == pytest.approx(2 * 15 / 16 * size)
    sharded = collectives(spec=job(4, 2, gradient_bytes=4 * size, is_sharded=True))
    assert sharded.gather is not None
    for one, operation in (
        (reduction(sharded), Operation.REDUCE_SCATTER),
        (sharded.gather, Operation.ALL_GATHER),
    ):
        assert one.pattern.operation is operation
        assert one.pattern.size_bytes == size // 16
        total = edge_bytes(one)
        assert total[total > 0] == pytest.approx(15 * size / 16)


def test_units_inside_a_host_have_no_flows_and_take_what_nvlink_takes() -> None:
    tensor = collectives(spec=job(4, 8)).tensor[0, 0]
    assert not tensor.has_flows
    assert tensor.pattern.units == 4
    moving = 2 * 7 / 8 * (64 << 20) / 360e9
    assert tensor.pattern.floor_seconds == pytest.approx(moving, rel=0.3)
    assert (tensor.pattern.floor_seconds > moving).all()


@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 31, 64, 100])
def test_a_binary_tree_has_everyone_once_and_is_as_deep_as_a_logarithm(nodes: int) -> None:
    parents = binary_tree(nodes)
    assert (parents == ROOT).sum() == 1
    assert np.bincount(parents[parents >= 0]).max() <= 2
    depth = tree_depths(parents[None])[0]
    assert depth.max() <= np.ceil(np.log2(nodes)) + 1
    assert (depth == 0).sum() == 1


@pytest.mark.parametrize("hosts", [4, 7])
def test_who_has_children_in_one_tree_has_none_in_the_other(hosts: int) -> None:
    cluster = build(ClusterSpec(hosts=hosts))
    layout = lay_out(job(hosts, 8), cluster)
    parents = double_trees(layout.groups["data"], layout)
    assert parents.shape == (8, 2, hosts)
    for first, second in parents:
        inner = [set(one[one != ROOT].tolist()) for one in (first, second)]
        shared = inner[0] & inner[1]
        # With an odd number one host cannot be spared.
        assert len(shared) <= hosts % 2


def test_inside_a_host_a_chain_hangs_on_the_tree() -> None:
    cluster = build(ClusterSpec(hosts=4))
    layout = lay_out(job(4), cluster)
    for parents in double_trees(layout.groups["data"], layout)[0]:
        inside = np.arange(32) % 8 != 0
        assert (parents[inside] == np.flatnonzero(inside) - 1).all()
        heads = parents[~inside]
        assert (heads[heads != ROOT] % 8 == 0).all()


def test_small_all_reduces_between_hosts_go_by_tree_half_of_the_message_each_way() -> None:
    made = reduction(collectives(hosts=8, spec=job(8, 8, gradient_bytes=4 << 20)))
    assert made.pattern.algorithm is Algorithm.TREE
    assert made.parents is not None
    total = edge_bytes(made)
    assert (total == total.transpose(0, 2, 1)).all()
    # Seven edges a tree, two trees, both directions, half a mebibyte each.
    assert total[0].sum() == pytest.approx(7 * 2 * 2 * (1 << 19))


@pytest.mark.parametrize("algorithm", [one for one in Algorithm if one.is_in_network])
def test_switches_that_add_up_get_each_byte_once_by_all_nics(algorithm: Algorithm) -> None:
    size = 1 << 28
    made = reduction(collectives(spec=job(4, gradient_bytes=4 * size, large_algorithm=algorithm)))
    pattern = made.pattern
    assert pattern.algorithm is algorithm
    sent, got = (
        np.bincount(nics, pattern.flow_bytes, 32)
        for nics in (pattern.flow_source, pattern.flow_target)
    )
    assert sent == pytest.approx(size / 8)
    assert got == pytest.approx(size / 8)
    assert pattern.flow_ahead_bytes is not None
    assert not pattern.flow_ahead_bytes.any()


def test_small_ones_go_by_tree_whatever_the_large_ones_do() -> None:
    spec = job(4, gradient_bytes=4 << 20, large_algorithm=Algorithm.NVLS)
    assert reduction(collectives(spec=spec)).pattern.algorithm is Algorithm.TREE


def test_an_nvls_tree_has_the_edges_of_a_tree_and_all_of_a_host_at_its_root() -> None:
    made = [
        reduction(collectives(spec=job(4, gradient_bytes=4 << 28, **how)))
        for how in ({"large_algorithm": Algorithm.NVLS_TREE}, {"tree_bytes_max": 1 << 40})
    ]
    assert [one.pattern.algorithm for one in made] == [Algorithm.NVLS_TREE, Algorithm.TREE]
    assert (edge_bytes(made[0]) == edge_bytes(made[1])).all()
    assert made[0].parents is not None
    inside = np.arange(32) % 8 != 0
    for parents in made[0].parents[0]:
        assert (parents[inside] == np.flatnonzero(inside) // 8 * 8).all()
        assert (parents[~inside][parents[~inside] != ROOT] % 8 == 0).all()


def test_everyone_gives_everyone_an_equal_part_over_the_receivers_rail() -> None:
    made = collectives(spec=job(4, expert=16)).expert[0, 0]
    pattern = made.pattern
    assert pattern.units == 2
    total = edge_bytes(made)
    assert (total > 0).sum() == 2 * 16 * 8
    assert total[total > 0] == pytest.approx((128 << 20) / 16)
    receiver = pattern.members[pattern.flow_unit, pattern.flow_peer]
    sender = pattern.members[pattern.flow_unit, pattern.flow_member]
    assert (pattern.flow_target == receiver).all()
    assert (pattern.flow_source // 8 == sender // 8).all()
    assert (pattern.flow_source % 8 == pattern.flow_target % 8).all()
    assert not pattern.is_coupled


def test_without_rails_everyone_sends_by_its_own_nic() -> None:
    pattern = collectives(topology="single", spec=job(4, expert=16)).expert[0, 0].pattern
    sender = pattern.members[pattern.flow_unit, pattern.flow_member]
    assert (pattern.flow_source == sender).all()


def test_a_pipeline_fills_and_drains_one_stage_after_the_other() -> None:
    spec = job(4, pipeline=4, microbatches=2)
    ranges = stage_ranges(spec)
    assert ranges == [(0, 0), (0, 1), (1, 2), (2, 3), (3, 3)]
    assert [edge_range(one, 4) for one in ranges] == [(0, 0), (0, 1), (1, 2), (2, 2), None]


def test_stages_send_forward_to_the_next_and_backward_to_the_one_before() -> None:
    made = collectives(spec=job(4, 8, pipeline=4))
    forward, backward = made.forward[0, 2].pattern, made.backward[0, 2].pattern
    assert forward.units == backward.units == 3 * 8
    assert (forward.flow_target - forward.flow_source == 8).all()
    assert (backward.flow_target - backward.flow_source == -8).all()
    assert forward.flow_bytes == pytest.approx(64 << 20)
    # What a real pipeline sends in all, it sends here too: 9 microbatches in 4 waves.
    many = collectives(spec=job(4, 8, pipeline=4, microbatches=9)).forward[0, 2].pattern
    assert many.flow_bytes * 4 == pytest.approx(9 * (64 << 20))


def test_the_same_connection_has_the_same_key_and_another_one_another() -> None:
    made = collectives(hosts=16, spec=job(16, is_sharded=True))
    assert made.gather is not None
    keys = reduction(made).pattern.flow_key
    assert (keys == made.gather.pattern.flow_key).all()
    assert (keys >= 0).all()
    assert len(set(keys.tolist())) == len(keys)
