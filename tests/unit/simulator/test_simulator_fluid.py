"""The fluid: nothing is lost but what is dropped, and back-pressure goes where it must."""

import numpy as np
import pytest

from simulator.network.flows import Links, find_paths
from simulator.network.fluid import STEP_SECONDS, Fluid, Sources
from simulator.network.losses import link_errors
from simulator.topology.model import Fabric, Ints
from simulator.topology.world import World
from tests.worlds.network_cases import small_cluster, two_pods, world_of

LINE_BPS = 400e9


def greedy(world: World, source: list[int], target: list[int], *, has_ecn: bool = True) -> Fluid:
    """Flows that begin at line rate and always have more to send."""
    links = Links.of(world, link_errors(world))
    ends: list[Ints] = [np.array(nics, dtype=np.int32) for nics in (source, target)]
    key = (np.arange(len(source)) * 31).astype(np.int32)
    paths = find_paths(world, links, ends[0], ends[1], key)
    forever, line = np.full(len(source), np.inf), np.full(len(source), LINE_BPS)
    sources = Sources.steady(forever, line)
    return Fluid(world, paths, links.capacity_bps, sources, has_ecn=has_ecn)


def run(fluid: Fluid, seconds: float) -> None:
    for _ in range(round(seconds / STEP_SECONDS)):
        fluid.step()


def at(fluid: Fluid, link: int) -> int:
    """Where the fluid keeps a link."""
    return int(np.flatnonzero(fluid.links == link)[0])


def make_lossy(world: World) -> None:
    world.nic_pfc_ok[5] = False
    world.nic_receive_share[5] = 0.4


def make_slow(world: World) -> None:
    world.nic_receive_share[5] = 0.2


@pytest.mark.parametrize("fabric", list(Fabric))
@pytest.mark.parametrize("change", [None, make_slow, make_lossy])
@pytest.mark.parametrize("has_ecn", [True, False])
def test_what_is_sent_is_delivered_dropped_or_queued(
    fabric: Fabric, change: None, *, has_ecn: bool
) -> None:
    world = world_of(two_pods(fabric), change)
    fluid = greedy(world, [0, 1, 2, 3, 6], [4, 5, 5, 6, 5], has_ecn=has_ecn)
    for _ in range(300):
        fluid.step()
        totals = fluid.totals
        went = totals.flow_delivered + totals.flow_dropped
        queued = np.bincount(fluid.uses.flow, fluid.queued)
        assert (fluid.queued >= 0).all()
        assert totals.flow_sent == pytest.approx(went + queued, rel=1e-9, abs=1e-3)
    assert fluid.totals.flow_delivered.min() > 0


def test_two_flows_share_a_port() -> None:
    world = world_of(small_cluster())
    fluid = greedy(world, [0, 1], [2, 2])
    run(fluid, 4e-3)
    one, two = fluid.totals.flow_delivered * 8 / fluid.totals.seconds
    assert one == pytest.approx(two, rel=0.1)
    assert 0.85 * LINE_BPS < one + two <= LINE_BPS


def test_marks_come_before_notifications_before_cuts() -> None:
    world = world_of(small_cluster())
    fluid = greedy(world, [0, 1], [2, 2])
    first: dict[str, int] = {}
    for step in range(400):
        fluid.step()
        happened = {
            "queue": fluid.totals.queue_peak.any(),
            "mark": fluid.totals.marked.any(),
            "notification": fluid.totals.flow_notified.any(),
            "cut": (fluid.control.rate < LINE_BPS).any(),
        }
        for what, has in happened.items():
            if has:
                first.setdefault(what, step)
    assert first["queue"] < first["mark"] <= first["notification"] <= first["cut"]


def test_senders_that_slow_down_are_not_paused_but_others_are() -> None:
    world = world_of(small_cluster())
    reacting, stubborn = (
        greedy(world, [0, 1], [2, 2], has_ecn=has_ecn) for has_ecn in (True, False)
    )
    for fluid in (reacting, stubborn):
        # Beginning at line rate is a shock; what counts is what follows.
        for _ in range(600):
            fluid.step(weight=0.0)
        run(fluid, 3e-3)
    assert reacting.totals.marked.any()
    assert not reacting.totals.paused.any()
    assert not stubborn.totals.marked.any()
    up = [at(stubborn, world.topology.up(nic)) for nic in (0, 1)]
    assert (stubborn.totals.paused[up] > 0.4 * stubborn.totals.seconds).all()


def test_a_pause_is_for_the_link_that_fills_the_buffer() -> None:
    topology = small_cluster()
    fluid = greedy(world_of(topology), [0, 1], [2, 2], has_ecn=False)
    while not fluid.is_paused.any():
        fluid.step()
    paused = set(fluid.links[fluid.is_paused].tolist())
    assert paused == {topology.up(0), topology.up(1)}
    # Each has filled its part of the switch's memory, and what was on the way came on top.
    standing = fluid.totals.queue_peak[at(fluid, topology.down(2))] / 2
    step_bytes = LINE_BPS * STEP_SECONDS / 8
    assert 2.5e6 < standing < 2.8e6 + 2 * step_bytes


def test_a_pause_lasts_until_a_good_part_has_drained() -> None:
    topology = small_cluster()
    world = world_of(topology)
    world.link_speed_share[topology.down(2)] = 0.5
    fluid = greedy(world, [0], [2], has_ecn=False)
    up, port = at(fluid, topology.up(0)), at(fluid, topology.down(2))
    while not fluid.is_paused[up]:
        fluid.step()
    while fluid.is_paused[up]:
        fluid.step()
    standing = fluid.queued[fluid.uses.link == port].sum()
    assert standing < 0.8 * 2.8e6


def test_a_nic_fetches_only_what_it_has_room_for() -> None:
    topology = small_cluster()
    fluid = greedy(world_of(topology, make_slow), [0, 0], [5, 6], has_ecn=False)
    run(fluid, 2e-3)
    fetched = topology.bits_per_second[topology.pcie_out(0)] * STEP_SECONDS / 8
    assert fluid.totals.queue_peak[at(fluid, topology.up(0))] <= 1e6 + fetched


def test_pauses_of_a_slow_receiver_go_upstream_only() -> None:
    topology = two_pods()
    world = world_of(topology, make_slow)
    # Through the spine to the slow NIC 5, and beside it, in the same leaf, from 6 to 7.
    fluid = greedy(world, [0, 6], [5, 7], has_ecn=False)
    run(fluid, 3e-3)
    paused = {int(link) for link in fluid.links[fluid.totals.paused > 0]}
    way = [
        int(link)
        for link in fluid.links[fluid.uses.link[fluid.uses.flow == 0]]
        if link != topology.pcie_in(5)
    ]
    assert paused == set(way)
    assert topology.down(5) in paused
    # The root: its port sends pauses and receives none.
    assert topology.up(5) not in paused
    assert fluid.totals.flow_delivered[1] * 8 / fluid.totals.seconds > 0.95 * LINE_BPS


def test_pauses_hold_up_who_has_nothing_to_do_with_it() -> None:
    world = world_of(two_pods(), make_slow)
    # Both leave over the only cable of their leaf; only the first wants to the slow NIC.
    fluid = greedy(world, [0, 1], [5, 6], has_ecn=False)
    run(fluid, 3e-3)
    victim = fluid.totals.flow_delivered[1] * 8 / fluid.totals.seconds
    assert victim < 0.35 * LINE_BPS


def test_infiniband_waits_and_neither_pauses_nor_marks_nor_drops() -> None:
    topology = two_pods(Fabric.INFINIBAND)
    world = world_of(topology, make_lossy)
    fluid = greedy(world, [0, 1, 6], [5, 5, 7])
    run(fluid, 3e-3)
    totals = fluid.totals
    assert not totals.paused.any()
    assert not totals.marked.any()
    assert not fluid.use_dropped.any()
    waiting = totals.waited / totals.seconds
    for link in (topology.down(5), topology.up(0), topology.up(1)):
        assert waiting[at(fluid, link)] > 0.5
    for link in (topology.up(6), topology.down(7)):
        assert waiting[at(fluid, link)] == pytest.approx(0.0, abs=1e-9)


def test_without_pauses_a_full_nic_drops() -> None:
    topology = small_cluster()
    fluid = greedy(world_of(topology, make_lossy), [0], [5])
    run(fluid, 2e-3)
    crossed = fluid.uses.links[fluid.uses.link]
    dropped = {int(link) for link in crossed[fluid.use_dropped > 0]}
    assert dropped == {topology.pcie_in(5)}
    assert not fluid.totals.paused.any()


def test_a_switch_with_little_memory_pauses_earlier() -> None:
    peaks = []
    for share in (1.0, 0.2):
        world = world_of(small_cluster())
        world.switch_buffer_share[:] = share
        fluid = greedy(world, [0, 1], [2, 2], has_ecn=False)
        run(fluid, 2e-3)
        peaks.append(fluid.totals.queue_peak[at(fluid, world.topology.down(2))])
    assert peaks[1] < 0.5 * peaks[0]
