"""What the engine gets from the network: speeds, and counters that follow from causes."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

from simulator.network import network as network_module
from simulator.network.losses import wire_efficiency
from simulator.network.model import LinkRates, NicRates, Solution
from simulator.network.network import Network
from simulator.pattern import Pattern
from simulator.topology.model import Fabric, LinkKind, Topology
from simulator.world import Background, World
from tests.network_cases import (
    links_with,
    pattern,
    rate_of,
    rings,
    small_cluster,
    two_pods,
    world_of,
)

LINE_BPS = 400e9
GOOD_BPS = {fabric: LINE_BPS * wire_efficiency(fabric) for fabric in Fabric}
TROUBLE = (
    "dropped_packets",
    "marked_packets",
    "paused_share",
    "pause_frames",
    "waiting_share",
    "queue_bytes",
    "queue_peak_bytes",
)


def solve(world: World, asked: Pattern, *, has_ecn: bool = True) -> Solution:
    units = np.ones(asked.units, dtype=np.bool_)
    return Network(world.topology, has_ecn=has_ecn).solve(world, [(asked, units)])


def assert_calm(solution: Solution) -> None:
    for column in TROUBLE:
        assert not links_with(solution.links, column), column
    for field in fields(NicRates):
        if field.name != "nics":
            assert getattr(solution.nics, field.name) == pytest.approx(0.0, abs=1e-9)


@pytest.fixture
def no_fluid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fluid is dear, so what is not congested must not need it."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is congested here")

    monkeypatch.setattr(network_module, "settle", refuse)


# Speeds ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_fluid")
@pytest.mark.parametrize("fabric", list(Fabric))
@pytest.mark.parametrize("hosts", [2, 8, 40])
def test_a_healthy_cluster_is_calm_and_rings_take_the_time_of_the_formula(
    fabric: Fabric, hosts: int
) -> None:
    topology = small_cluster(hosts=hosts, nics_per_host=4, gpus_per_host=4, fabric=fabric)
    world = World(topology, np.random.default_rng(3))
    ring = rings(topology, range(hosts), size_bytes=1 << 30)
    solution = solve(world, ring)
    assert_calm(solution)
    seconds = 2 * (hosts - 1) / hosts * (1 << 30) * 8 / GOOD_BPS[fabric]
    assert 1 / solution.speed[0] == pytest.approx([seconds] * 4, rel=0.01)


@pytest.mark.usefixtures("no_fluid")
@pytest.mark.parametrize("kind", ["rail", "fat_tree", "dragonfly", "single"])
def test_a_healthy_all_to_all_that_fills_every_nic_is_calm(kind: str) -> None:
    topology = small_cluster(kind, fabric=Fabric.INFINIBAND)
    pairs = [(one, two) for one in range(8) for two in range(8) if one != two]
    solution = solve(world_of(topology), pattern(pairs, units=[0] * len(pairs)))
    assert_calm(solution)
    expected = GOOD_BPS[Fabric.INFINIBAND] / 7
    assert solution.flow_bps[0] == pytest.approx([expected] * len(pairs), rel=1e-6)


@pytest.mark.parametrize("fabric", list(Fabric))
def test_two_flows_share_the_uplink_of_their_leaf(fabric: Fabric) -> None:
    solution = solve(world_of(two_pods(fabric)), pattern([(0, 4), (1, 5)]))
    assert solution.flow_bps[0].sum() == pytest.approx(GOOD_BPS[fabric], rel=0.1)
    assert solution.flow_bps[0][0] == pytest.approx(solution.flow_bps[0][1], rel=1e-6)


@pytest.mark.parametrize("fabric", list(Fabric))
def test_a_ring_goes_as_fast_as_its_slowest_edge_and_the_others_could_go_faster(
    fabric: Fabric,
) -> None:
    topology = small_cluster(fabric=fabric)

    def downgrade(world: World) -> None:
        world.link_speed_share[topology.up(3)] = 0.25

    ring = rings(topology, range(8))
    solution = solve(world_of(topology, downgrade), ring)
    slowest = GOOD_BPS[fabric] / 4
    assert solution.speed[0][0] == pytest.approx(slowest / (8 * ring.flow_bytes[0]), rel=0.01)
    able = solution.flow_bps[0]
    assert able[3] == pytest.approx(slowest, rel=0.01)
    assert np.delete(able, 3) == pytest.approx([GOOD_BPS[fabric]] * 7, rel=0.01)


def test_flows_of_a_ring_advance_together_and_others_do_not() -> None:
    topology = small_cluster(fabric=Fabric.INFINIBAND)

    def downgrade(world: World) -> None:
        world.link_speed_share[topology.up(0)] = 0.5

    world, pairs = world_of(topology, downgrade), [(0, 1), (2, 3)]
    coupled = solve(world, pattern(pairs, units=[0, 0], is_coupled=True))
    apart = solve(world, pattern(pairs, units=[0, 0]))
    assert coupled.speed[0] == pytest.approx(apart.speed[0])
    line = GOOD_BPS[Fabric.INFINIBAND]
    assert apart.flow_bps[0] == pytest.approx([line / 2, line])
    # Both send as much in the same time: what counts is how long the unit takes.
    for solution in (coupled, apart):
        sent = [rate_of(solution.links, "bytes", topology.up(nic)) for nic in (0, 2)]
        assert sent[0] == pytest.approx(sent[1])


def test_a_flow_twice_as_large_sends_twice_as_much_in_its_unit() -> None:
    topology = small_cluster(fabric=Fabric.INFINIBAND)
    tree = pattern([(0, 1), (2, 3)], units=[0, 0], sizes=[2e9, 1e9], is_coupled=True)
    solution = solve(world_of(topology), tree)
    assert solution.speed[0][0] == pytest.approx(GOOD_BPS[Fabric.INFINIBAND] / 16e9)
    sent = [rate_of(solution.links, "bytes", topology.up(nic)) for nic in (0, 2)]
    assert sent[0] == pytest.approx(2 * sent[1])


def test_a_link_is_used_by_all_that_a_unit_sends_over_it() -> None:
    topology = small_cluster(fabric=Fabric.INFINIBAND)
    tree = pattern([(0, 1), (0, 2)], units=[0, 0], sizes=[2e9, 1e9], is_coupled=True)
    solution = solve(world_of(topology), tree)
    assert solution.speed[0][0] == pytest.approx(GOOD_BPS[Fabric.INFINIBAND] / (8 * 3e9))


def test_units_that_are_not_active_stand_and_those_without_flows_fly() -> None:
    topology = small_cluster()
    world, network = world_of(topology), Network(topology)
    asked = pattern([(0, 1), (2, 3)])
    solution = network.solve(world, [(asked, np.array([True, False]))])
    assert solution.speed[0][0] > 0
    assert solution.speed[0][1] == 0
    assert solution.flow_bps[0][1] == 0
    assert topology.up(2) not in solution.links.links
    empty = pattern([(0, 1)], units=[1])
    assert network.solve(world, [(empty, np.ones(2, dtype=np.bool_))]).speed[0][0] == np.inf
    nothing = network.solve(world, [])
    assert nothing.speed == []
    assert not len(nothing.links.links)


@pytest.mark.parametrize("fabric", list(Fabric))
def test_a_dead_link_stops_its_ring_and_no_other(fabric: Fabric) -> None:
    topology = small_cluster(nics_per_host=2, gpus_per_host=2, fabric=fabric)

    def cut(world: World) -> None:
        world.link_up[[topology.up(4), topology.down(4)]] = False

    solution = solve(world_of(topology, cut), rings(topology, range(8)))
    assert solution.speed[0][0] == 0
    assert solution.speed[0][1] > 0
    assert_calm(solution)


# Congestion ------------------------------------------------------------------------------------


def slow_receiver(share: float) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.nic_receive_share[3] = share

    return change


@pytest.mark.parametrize("has_ecn", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.05])
def test_the_nic_of_a_slow_receiver_sends_pauses_and_receives_none(
    share: float, *, has_ecn: bool
) -> None:
    topology = small_cluster()
    world = world_of(topology, slow_receiver(share))
    solution = solve(world, rings(topology, range(8)), has_ecn=has_ecn)
    paused = links_with(solution.links, "paused_share")
    assert topology.down(3) in paused
    assert set(paused) <= {topology.down(3), topology.up(2)}
    assert rate_of(solution.links, "pause_frames", topology.down(3)) > 1000
    # With pauses only, it is paused all the time that it may not send.
    if not has_ecn:
        assert rate_of(solution.links, "paused_share", topology.down(3)) == pytest.approx(
            1 - share, abs=0.05
        )
    assert solution.flow_bps[0][2] == pytest.approx(share * GOOD_BPS[Fabric.ROCE], rel=0.15)


def test_a_receiver_that_takes_nothing_stops_its_ring_with_endless_pauses() -> None:
    topology = small_cluster()
    world = world_of(topology, slow_receiver(0.0))
    solution = solve(world, rings(topology, range(8)))
    assert solution.speed[0][0] == 0
    assert rate_of(solution.links, "paused_share", topology.down(3)) == pytest.approx(1.0)


def test_on_infiniband_senders_to_a_slow_receiver_wait() -> None:
    topology = small_cluster(fabric=Fabric.INFINIBAND)
    world = world_of(topology, slow_receiver(0.3))
    solution = solve(world, rings(topology, range(8)))
    waiting = links_with(solution.links, "waiting_share")
    assert set(waiting) == {topology.up(2), topology.down(3)}
    assert rate_of(solution.links, "waiting_share", topology.down(3)) == pytest.approx(
        0.7, abs=0.05
    )
    for column in ("paused_share", "pause_frames", "marked_packets", "dropped_packets"):
        assert not links_with(solution.links, column)


def test_a_flow_that_others_back_pressure_holds_up_could_not_go_faster() -> None:
    topology = two_pods(Fabric.INFINIBAND)

    def slow(world: World) -> None:
        world.nic_receive_share[5] = 0.2

    # Both leave over the only cable of their leaf, which has room to spare, as it seems.
    solution = solve(world_of(topology, slow), pattern([(0, 5), (1, 6)]))
    assert solution.flow_bps[0][1] < 0.5 * GOOD_BPS[Fabric.INFINIBAND]


def test_senders_near_and_far_get_equal_shares_over_a_whole_collective() -> None:
    solution = solve(world_of(two_pods()), pattern([(0, 5), (6, 5), (7, 5)]))
    assert np.ptp(solution.flow_bps[0]) < 1e-6 * solution.flow_bps[0].max()


def test_congestion_is_marked_told_and_queued_at_the_uplink_only() -> None:
    topology = two_pods()
    asked = pattern([(0, 4), (1, 5), (2, 6)])
    solution = solve(world_of(topology), asked)
    uplink = np.flatnonzero(
        (topology.kind == LinkKind.FABRIC_UP)
        & (topology.source_switch == topology.target_switch[topology.up(0)])
    )
    assert links_with(solution.links, "marked_packets") == uplink.tolist()
    assert links_with(solution.links, "queue_bytes") == uplink.tolist()
    assert not links_with(solution.links, "paused_share")
    nics = solution.nics
    told = {int(nic): rate for nic, rate in zip(nics.nics, nics.cnp_handled, strict=True)}
    tells = {int(nic): rate for nic, rate in zip(nics.nics, nics.cnp_sent, strict=True)}
    assert all(told[nic] > 0 for nic in (0, 1, 2))
    assert all(tells[nic] > 0 for nic in (4, 5, 6))
    assert sum(told.values()) == pytest.approx(sum(tells.values()))
    assert max(tells.values()) <= 1 / 50e-6
    assert nics.marked_received.sum() == pytest.approx(solution.links.marked_packets.sum())


def test_without_pauses_full_queues_drop_and_packets_are_sent_again() -> None:
    topology = small_cluster()

    def misset(world: World) -> None:
        world.nic_pfc_ok[3] = False
        world.nic_receive_share[3] = 0.5

    healthy_switch = solve(world_of(topology, slow_receiver(0.5)), rings(topology, range(8)))
    solution = solve(world_of(topology, misset), rings(topology, range(8)))
    assert links_with(solution.links, "dropped_packets") == [topology.pcie_in(3)]
    assert not links_with(solution.links, "paused_share")
    by_nic = dict(
        zip(solution.nics.nics.tolist(), solution.nics.retransmitted_packets, strict=True)
    )
    assert by_nic[2] > 1000
    assert by_nic[5] == 0
    gaps = dict(zip(solution.nics.nics.tolist(), solution.nics.out_of_sequence, strict=True))
    assert gaps[3] > 100
    assert solution.speed[0][0] < healthy_switch.speed[0][0]


def test_bursts_make_deep_queues_at_low_utilisation() -> None:
    topology = small_cluster()

    def burst(world: World) -> None:
        for source in (1, 2, 4, 5):
            world.background.append(Background(source, 3, 300e9, 10e-3, 100e-6))

    # A flow that needs little shares the port with the bursts.
    solution = solve(world_of(topology, burst), pattern([(6, 7)]))
    port = topology.down(3)
    assert rate_of(solution.links, "bytes", port) * 8 < 0.05 * LINE_BPS
    peak = rate_of(solution.links, "queue_peak_bytes", port)
    assert peak > 2e6
    assert peak > 20 * rate_of(solution.links, "queue_bytes", port)
    assert rate_of(solution.links, "marked_packets", port) > 0


def test_rare_bursts_cost_what_their_share_of_time_costs() -> None:
    topology = small_cluster()
    ring = rings(topology, range(8))
    healthy = solve(world_of(topology), ring).speed[0][0]

    def burst(world: World) -> None:
        world.background.append(Background(5, 3, 400e9, 1.0, 20e-3))

    hurt = solve(world_of(topology, burst), ring).speed[0][0]
    assert 0.96 * healthy < hurt < 0.999 * healthy


@pytest.mark.parametrize("loss", [1e-5, 1e-3])
@pytest.mark.parametrize("fabric", list(Fabric))
def test_lost_packets_are_counted_where_they_are_lost_and_noticed(
    fabric: Fabric, loss: float
) -> None:
    topology = small_cluster(fabric=fabric)

    def lose(world: World) -> None:
        world.link_loss[topology.down(3)] = loss

    ring = rings(topology, range(8))
    solution = solve(world_of(topology, lose), ring)
    assert links_with(solution.links, "lost_packets") == [topology.down(3)]
    lost = rate_of(solution.links, "lost_packets", topology.down(3))
    assert lost == pytest.approx(loss * rate_of(solution.links, "packets", topology.down(3)))
    nics = solution.nics
    at = {int(nic): place for place, nic in enumerate(nics.nics)}
    noticed = nics.out_of_sequence[at[3]] + nics.ack_timeouts[at[2]]
    assert noticed == pytest.approx(lost)
    assert nics.sequence_errors[at[2]] == nics.out_of_sequence[at[3]]
    assert nics.retransmitted_packets[at[2]] > 10 * lost
    assert np.delete(nics.retransmitted_packets, at[2]) == pytest.approx(0.0, abs=1e-6)
    assert not links_with(solution.links, "queue_bytes")


# Remembering -----------------------------------------------------------------------------------


def test_the_same_question_gets_the_same_object_until_the_world_changes() -> None:
    topology = small_cluster()
    world, network, ring = world_of(topology), Network(topology), rings(topology, range(8))
    units = np.ones(1, dtype=np.bool_)
    first = network.solve(world, [(ring, units)])
    assert network.solve(world, [(ring, units.copy())]) is first
    units[0] = False
    assert network.solve(world, [(ring, units)]) is not first
    units[0] = True
    world.link_speed_share[topology.up(0)] = 0.5
    world.version += 1
    again = network.solve(world, [(ring, units)])
    assert again is not first
    assert again.speed[0][0] < first.speed[0][0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = small_cluster()
    world, network = world_of(topology), Network(topology)
    asked = pattern([(0, 1), (2, 3), (4, 5)])
    active = [[(asked, np.arange(3) == number)] for number in range(3)]
    first = network.solve(world, active[0])
    monkeypatch.setattr(network_module, "SOLUTIONS_BYTES_MAX", 2.5 * network._solutions_bytes)
    second, third = (network.solve(world, one) for one in active[1:])
    assert network.solve(world, active[1]) is second
    assert network.solve(world, active[2]) is third
    assert network.solve(world, active[0]) is not first
    assert len(network._solutions) == 2


def test_two_networks_answer_alike() -> None:
    topology = two_pods()
    asked = pattern([(0, 4), (1, 5), (2, 6)])
    one, two = (solve(world_of(topology), asked) for _ in range(2))
    for column in (field.name for field in fields(LinkRates)):
        assert (getattr(one.links, column) == getattr(two.links, column)).all()


def components(topology: Topology, world: World, asked: Pattern) -> list[int]:
    return [int(number) for number in Network(topology).components(world, asked)]


def test_rails_do_not_disturb_each_other_and_a_common_uplink_does() -> None:
    rails = small_cluster(nics_per_host=4, gpus_per_host=4)
    assert components(rails, world_of(rails), rings(rails, range(8))) == [0, 1, 2, 3]
    pods = two_pods()
    asked = pattern([(0, 4), (1, 5), (2, 3)])
    assert components(pods, world_of(pods), asked) == [0, 0, 2]


def test_units_whose_common_link_has_room_for_both_are_apart() -> None:
    topology = small_cluster()

    def slow_senders(world: World) -> None:
        world.nic_send_share[[0, 1]] = 0.4

    asked = pattern([(0, 2), (1, 2)])
    assert components(topology, world_of(topology, slow_senders), asked) == [0, 1]
    assert components(topology, world_of(topology), asked) == [0, 0]
