"""Tiers, rails and pods: those that were simulated, and none by mistake."""

from typing import Any

import msgspec
import pytest

from api.fabric.model import Node, NodeKind, Topology, make_topology
from api.fabric.tiers import with_tiers
from simulator.topology.build import ClusterSpec, build
from tests.worlds.topologies import (
    AT,
    cable,
    changed,
    nic,
    recabled,
    simulated_topology,
    switch_port,
    topology_of,
)

SHAPES: list[dict[str, Any]] = [
    {"topology": "rail", "hosts": 33, "hosts_per_leaf": 16},
    {"topology": "rail", "hosts": 6, "nics_per_host": 2, "hosts_per_leaf": 2},
    {"topology": "rail", "hosts": 9, "nics_per_host": 2, "hosts_per_leaf": 1, "switch_ports": 16},
    {"topology": "rail", "hosts": 64, "hosts_per_leaf": 8, "oversubscription": 3.0},
    {"topology": "fat_tree", "hosts": 17, "hosts_per_leaf": 4},
    {"topology": "fat_tree", "hosts": 40, "hosts_per_leaf": 1, "switch_ports": 16},
    {"topology": "fat_tree", "hosts": 8, "nics_per_host": 2, "oversubscription": 4.0},
    {"topology": "dragonfly", "hosts": 17},
    {"topology": "dragonfly", "hosts": 33, "nics_per_host": 2, "oversubscription": 3.0},
    {"topology": "single", "hosts": 8},
]


@pytest.mark.parametrize("order", SHAPES, ids=str)
def test_switches_stand_where_they_were_put(order: dict[str, Any]) -> None:
    cluster = build(ClusterSpec(**order))
    found = with_tiers(topology_of(cluster))
    for switch in cluster.switches:
        node = found.nodes[switch.name]
        assert node.tier == switch.tier, switch
        assert node.rail == switch.rail, switch
    if order["topology"] == "rail":
        assert {s.name: s.pod for s in cluster.switches if s.tier == 0} == {
            s.name: found.nodes[s.name].pod for s in cluster.switches if s.tier == 0
        }
    else:
        assert {node.pod for node in found.nodes.values()} == {None}
    assert all(node.tier is None for node in found.nodes.values() if node.kind is NodeKind.HOST)


def tier_of(topology: Topology, name: str) -> int | None:
    return with_tiers(topology).nodes[name].tier


def test_a_host_on_a_spine_by_mistake_makes_no_leaf_of_it() -> None:
    small = simulated_topology(topology="rail", hosts=6, nics_per_host=2, hosts_per_leaf=2)
    for topology in (small, simulated_topology(topology="rail", hosts=32, hosts_per_leaf=16)):
        moved = recabled(topology, {nic(0, 0): switch_port("spine-0", 99)})
        assert tier_of(moved, "spine-0") == 1
        assert tier_of(moved, "leaf-pod0-rail0") == 0


def test_a_host_on_a_core_by_mistake_makes_no_leaf_of_it() -> None:
    whole = simulated_topology(topology="fat_tree", hosts=40, hosts_per_leaf=1, switch_ports=16)
    assert tier_of(whole, "core-plane0-0") == 2
    moved = recabled(whole, {nic(0, 0): switch_port("core-plane0-0", 99)})
    assert tier_of(moved, "core-plane0-0") == 2
    assert tier_of(moved, "spine-block0-0") == 1


def test_a_cable_from_a_leaf_into_a_core_makes_no_spine_of_it() -> None:
    whole = simulated_topology(topology="fat_tree", hosts=40, hosts_per_leaf=1, switch_ports=16)
    stray = cable(switch_port("leaf-0", 99), switch_port("core-plane0-0", 99))
    assert tier_of(changed(whole, plus=[stray]), "core-plane0-0") == 2


def test_missing_links_move_nobody() -> None:
    whole = simulated_topology(topology="rail", hosts=32, hosts_per_leaf=16)
    every = [link.id for link in whole.neighbours["spine-0"]]
    thinned = with_tiers(changed(whole, without=every[:-1]))
    assert thinned.nodes["spine-0"].tier == 1
    alone = with_tiers(changed(whole, without=every))
    assert alone.nodes["spine-0"].tier is None


def test_mixed_up_nics_leave_the_leaf_its_rail() -> None:
    whole = simulated_topology(topology="rail", hosts=8, nics_per_host=4, hosts_per_leaf=8)
    one, other = whole.other_end(nic(0, 0)), whole.other_end(nic(0, 1))
    assert one is not None
    assert other is not None
    mixed = with_tiers(recabled(whole, {nic(0, 0): other, nic(0, 1): one}))
    assert [mixed.nodes[f"leaf-pod0-rail{rail}"].rail for rail in range(4)] == [0, 1, 2, 3]


def test_what_a_file_says_of_a_switch_stays() -> None:
    whole = simulated_topology(topology="fat_tree", hosts=4, nics_per_host=1, hosts_per_leaf=1)
    said = msgspec.structs.replace(whole.nodes["spine-0"], tier=7, rail=3, pod=2)
    nodes = {**whole.nodes, "spine-0": said}
    found = with_tiers(msgspec.structs.replace(whole, nodes=nodes))
    assert found.nodes["spine-0"] == said


def test_nothing_is_known_of_switches_without_hosts() -> None:
    lonely = Node(name="lonely", kind=NodeKind.SWITCH)
    link = cable(switch_port("one", 1), switch_port("two", 1))
    found = with_tiers(make_topology(AT, [lonely], [], [link]))
    assert {node.tier for node in found.nodes.values()} == {None}
    assert with_tiers(make_topology(AT, [], [], [])).nodes == {}
