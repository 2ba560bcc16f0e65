"""What the engine gets from the network: speeds, and counters that follow from causes."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

from simulator.network import network as network_module
from simulator.network.congestion import Scene, Settled, settle
from simulator.network.losses import wire_efficiency
from simulator.network.model import LinkRates, NicRates, Solution
from simulator.network.network import Network
from simulator.pattern import Pattern
from simulator.topology.model import Fabric, LinkKind
from simulator.topology.world import NETWORK_KNOBS, Background, World
from tests.worlds.network_cases import (
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
    """The fluid is expensive: without congestion it must not run."""

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
    handled = {int(nic): rate for nic, rate in zip(nics.nics, nics.cnp_handled, strict=True)}
    sent = {int(nic): rate for nic, rate in zip(nics.nics, nics.cnp_sent, strict=True)}
    assert all(handled[nic] > 0 for nic in (0, 1, 2))
    assert all(sent[nic] > 0 for nic in (4, 5, 6))
    assert sum(handled.values()) == pytest.approx(sum(sent.values()))
    assert max(sent.values()) <= 1 / 50e-6
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


# Parts of a mixture ----------------------------------------------------------------------------


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[Scene]:
    """Scenes that the fluid has been run in."""
    scenes: list[Scene] = []

    def note(world: World, scene: Scene, *, has_ecn: bool) -> Settled:
        scenes.append(scene)
        return settle(world, scene, has_ecn=has_ecn)

    monkeypatch.setattr(network_module, "settle", note)
    return scenes


def test_the_fluid_runs_for_all_units_together_and_not_for_every_part(settled: list[Scene]) -> None:
    topology = two_pods()
    world, network = world_of(topology), Network(topology)
    asked = pattern([(0, 4), (1, 5), (2, 6)])
    for units in ([1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]):
        network.solve(world, [(asked, np.array(units, dtype=np.bool_))])
    assert [len(scene.flows) for scene in settled] == [3]


def test_a_part_fares_nearly_as_if_the_fluid_had_run_for_it() -> None:
    topology = two_pods()
    pairs = [(0, 4), (1, 5), (2, 6)]
    active = [(pattern(pairs), np.array([True, False, True]))]
    part = Network(topology).solve(world_of(topology), active)
    alone = solve(world_of(topology), pattern([pairs[0], pairs[2]]))
    assert part.flow_bps[0][[0, 2]] == pytest.approx(alone.flow_bps[0], rel=0.05)
    assert part.flow_bps[0][1] == 0
    for column in ("bytes", "queue_bytes", "marked_packets"):
        own, exact = (getattr(one.links, column).max() for one in (part, alone))
        assert exact / 3 < own < 3 * exact, column
    assert links_with(part.links, "queue_bytes") == links_with(alone.links, "queue_bytes")
    assert links_with(part.links, "marked_packets") == links_with(alone.links, "marked_packets")
    marked = part.links.marked_packets.sum()
    assert part.nics.marked_received.sum() == pytest.approx(marked, rel=1e-6)
    assert part.nics.cnp_sent.max() <= 1 / 50e-6


def test_a_unit_that_is_left_alone_is_calm_although_the_whole_was_not() -> None:
    topology = two_pods()
    asked = pattern([(0, 4), (1, 5), (2, 6)])
    active = [(asked, np.array([False, True, False]))]
    solution = Network(topology).solve(world_of(topology), active)
    assert_calm(solution)
    assert solution.flow_bps[0][1] == pytest.approx(GOOD_BPS[Fabric.ROCE])


def test_a_part_that_is_congested_when_the_whole_is_not_is_run_by_itself(
    settled: list[Scene],
) -> None:
    topology = small_cluster()
    world, network = world_of(topology), Network(topology)
    world.nic_receive_share[5] = 0.6
    # Two flows share their NIC, so neither brings more than the slow receiver takes.
    asked = pattern([(0, 5), (0, 6)])
    assert_calm(network.solve(world, [(asked, np.array([True, True]))]))
    left = network.solve(world, [(asked, np.array([True, False]))])
    assert len(settled) == 1
    assert rate_of(left.links, "pause_frames", topology.down(5)) > 0


def test_a_unit_alone_counts_its_own_traffic_and_not_the_backgrounds() -> None:
    topology = small_cluster()
    world, network = world_of(topology), Network(topology)
    world.background.append(Background(0, 3, 40e9))
    asked = pattern([(0, 1), (2, 3)])
    alone = network.solve_alone(world, asked, 0)
    both = network.solve(world, [(asked, np.array([True, False]))])
    own = GOOD_BPS[Fabric.ROCE] - 40e9
    up = topology.up(0)
    line_bytes = LINE_BPS / 8
    assert rate_of(both.links, "bytes", up) == pytest.approx(line_bytes, rel=0.01)
    assert rate_of(alone.links, "bytes", up) == pytest.approx(
        alone.speed[0][0] * asked.flow_bytes[0] / wire_efficiency(Fabric.ROCE)
    )
    assert alone.speed[0][0] * 8 * asked.flow_bytes[0] == pytest.approx(own, rel=0.01)
    assert rate_of(alone.links, "bytes", topology.down(3)) == 0


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


def test_what_the_network_does_not_feel_leaves_its_solutions_as_they_are() -> None:
    topology = small_cluster()
    world, network, ring = world_of(topology), Network(topology), rings(topology, range(8))
    active = [(ring, np.ones(1, dtype=np.bool_))]
    first = network.solve(world, active)
    world.gpu_power_limit_share[0] = 0.5
    world.version += 1
    assert network.solve(world, active) is first


def test_a_state_that_comes_back_is_remembered() -> None:
    topology = small_cluster()
    world, network, ring = world_of(topology), Network(topology), rings(topology, range(8))
    active = [(ring, np.ones(1, dtype=np.bool_))]
    found = []
    for is_up in (True, False, True, False):
        world.link_up[topology.up(0)] = is_up
        world.version += 1
        found.append(network.solve(world, active))
    assert found[2] is found[0]
    assert found[3] is found[1]
    assert found[0].speed[0][0] > found[1].speed[0][0] == 0


@pytest.mark.parametrize("knob", NETWORK_KNOBS)
def test_every_knob_of_the_network_makes_another_state(knob: str) -> None:
    world = world_of(small_cluster())
    before = world.network_digest()
    values = getattr(world, knob)
    values[0] = not values[0] if values.dtype == np.bool_ else values[0] + 1
    assert world.network_digest() != before


def test_background_makes_another_state() -> None:
    world = world_of(small_cluster())
    before = world.network_digest()
    world.background.append(Background(0, 3, 40e9))
    assert world.network_digest() != before


def test_states_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = small_cluster()
    world, network, ring = world_of(topology), Network(topology), rings(topology, range(8))
    monkeypatch.setattr(network_module, "STATES_KEPT", 2)
    for version, share in enumerate((0.9, 0.8, 0.7)):
        world.link_speed_share[topology.up(0)] = share
        world.version = version
        network.solve(world, [(ring, np.ones(1, dtype=np.bool_))])
    assert len(network._states) == 2


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
