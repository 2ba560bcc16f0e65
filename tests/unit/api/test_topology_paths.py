"""Ways between ports: all of them, counted exactly, and none that a fabric would not take."""

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from api.fabric import spread as spread_module
from api.fabric.graph import Graph, compile_graph
from api.fabric.model import Link, Topology, make_topology
from api.fabric.names import NoSuchName, find_endpoint
from api.fabric.paths import find_ways, pairs_between, ports_of
from api.fabric.spread import SpreadTooLarge, edge_paths
from api.fabric.tiers import with_tiers
from collector.contract.identity import LinkId, PortId
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import NO_LINK
from simulator.topology.routing import route
from simulator.topology.world import World
from tests.worlds.topologies import (
    AT,
    cable,
    changed,
    nic,
    port_of,
    simulated_topology,
    switch_port,
    topology_of,
)

EVERY = 100_000
SHAPES: list[dict[str, Any]] = [
    {"topology": "rail", "hosts": 8, "nics_per_host": 2, "hosts_per_leaf": 2},
    {"topology": "fat_tree", "hosts": 12, "nics_per_host": 2, "oversubscription": 2.0},
    {"topology": "fat_tree", "hosts": 40, "nics_per_host": 1, "hosts_per_leaf": 2,
     "switch_ports": 8},
    {"topology": "dragonfly", "hosts": 12, "nics_per_host": 2, "hosts_per_leaf": 2},
    {"topology": "single", "hosts": 4, "nics_per_host": 2},
]  # fmt: skip


def graph_of(**order: object) -> Graph:
    return compile_graph(with_tiers(simulated_topology(**order)))


def links_on(graph: Graph, source: PortId, target: PortId) -> list[tuple[LinkId, ...]]:
    ways = find_ways(graph, source, target, EVERY)
    assert ways.count == len(ways.paths)
    return [tuple(hop.link.id for hop in path) for path in ways.paths]


def brute_force(topology: Topology, source: PortId, target: PortId) -> set[tuple[LinkId, ...]]:
    """All shortest walks over live links that go up and then down, by trying."""
    first, last = topology.link_of[source], topology.link_of[target]
    top = max(node.tier or 0 for node in topology.nodes.values())
    fronts: list[tuple[str, bool, tuple[LinkId, ...]]] = [(first.id.b.host, True, (first.id,))]
    if first.id.b == source:
        fronts = [(first.id.a.host, True, (first.id,))]
    goal = last.id.a.host if last.id.b == target else last.id.b.host
    while fronts:
        found = {(*way, last.id) for at, _, way in fronts if at == goal}
        if found:
            return found
        further = []
        for at, is_rising, way in fronts:
            for link in topology.neighbours[at]:
                other = link.id.b.host if link.id.a.host == at else link.id.a.host
                here, there = topology.nodes[at].tier, topology.nodes[other].tier
                if link.is_up is False or here is None or there is None or len(way) > 7:
                    continue
                if there > here and not is_rising:
                    continue
                if there == here and top > 0:
                    continue
                further.append((other, is_rising and there >= here, (*way, link.id)))
        fronts = further
    return set()


@pytest.mark.parametrize("order", SHAPES, ids=lambda order: order["topology"])
def test_all_shortest_ways_are_found_and_no_others(order: dict[str, Any]) -> None:
    graph = graph_of(**order)
    hosts = order["hosts"]
    for source, target in (
        (nic(0, 0), nic(1, 0)),
        (nic(0, 0), nic(hosts - 1, order["nics_per_host"] - 1)),
        (nic(hosts // 2, 0), nic(0, order["nics_per_host"] - 1)),
    ):
        found = links_on(graph, source, target)
        assert set(found) == brute_force(graph.topology, source, target)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("order", SHAPES[:3], ids=lambda order: order["topology"])
def test_every_way_that_a_simulated_flow_takes_is_among_them(order: dict[str, Any]) -> None:
    cluster = build(ClusterSpec(**order))
    graph = compile_graph(with_tiers(topology_of(cluster)))
    chance = np.random.default_rng(1)
    source, target, key = (
        chance.integers(0, most, 30).astype(np.int32) for most in (cluster.nics, cluster.nics, 999)
    )
    rows = route(World(cluster, chance), source, target, key)
    for one, other, row in zip(source.tolist(), target.tolist(), rows, strict=True):
        cables = [int(link) for link in row if link != NO_LINK and link >= 2 * cluster.nics]
        if not cables:
            continue
        way = tuple(
            LinkId.between(port_of(cluster, link), port_of(cluster, int(cluster.reverse[link])))
            for link in cables
        )
        ends = (port_of(cluster, cluster.up(one)), port_of(cluster, cluster.up(other)))
        assert way in links_on(graph, *ends)


def test_hops_follow_each_other_from_source_to_target() -> None:
    graph = graph_of(**SHAPES[0])
    ways = find_ways(graph, nic(0, 0), nic(7, 1), EVERY)
    assert ways.hops == 4
    for path in ways.paths:
        assert path[0].source == nic(0, 0)
        assert path[-1].target == nic(7, 1)
        assert all(one.target.host == other.source.host for one, other in pairwise(path))
        assert not any("node" in hop.target.host for hop in path[:-1])


def test_the_count_is_exact_where_the_list_is_cut() -> None:
    graph = graph_of(topology="rail", hosts=64, hosts_per_leaf=16)
    ways = find_ways(graph, nic(0, 0), nic(63, 7), 3)
    assert len(ways.paths) == 3
    assert ways.count == len(find_ways(graph, nic(0, 0), nic(63, 7), EVERY).paths) > 3
    again = find_ways(graph, nic(0, 0), nic(63, 7), 3)
    assert again == ways, "the order is the same each time"
    assert find_ways(graph, nic(0, 0), nic(63, 7), 0).count == ways.count


def without_uplinks(topology: Topology, leaf: str, *, but: str) -> Topology:
    def alter(link: Link) -> Link:
        hosts = {link.id.a.host, link.id.b.host}
        is_uplink = leaf in hosts and any(name.startswith("spine") for name in hosts)
        if is_uplink and but not in hosts:
            return msgspec.structs.replace(link, is_up=False)
        return link

    return changed(topology, alter=alter)


def test_links_that_are_down_carry_nothing() -> None:
    whole = simulated_topology(**SHAPES[0])
    graph = compile_graph(with_tiers(without_uplinks(whole, "leaf-pod0-rail0", but="spine-1")))
    ways = find_ways(graph, nic(0, 0), nic(7, 0), EVERY)
    assert ways.count
    assert all(path[1].target.host == "spine-1" for path in ways.paths)
    cut = compile_graph(with_tiers(without_uplinks(whole, "leaf-pod0-rail0", but="nothing")))
    none = find_ways(cut, nic(0, 0), nic(7, 0), EVERY)
    assert (none.hops, none.count, none.paths) == (None, 0, ())
    assert "links between switches are down" in none.reason


def test_no_way_goes_down_and_up_again_through_a_leaf() -> None:
    """Leaf 0 has only spine 0 and leaf 1 only spine 1: what is left leads through a third leaf."""
    whole = simulated_topology(topology="fat_tree", hosts=3, nics_per_host=2, hosts_per_leaf=1)
    cut = without_uplinks(without_uplinks(whole, "leaf-0", but="spine-0"), "leaf-1", but="spine-1")
    ways = find_ways(compile_graph(with_tiers(cut)), nic(0, 0), nic(1, 0), EVERY)
    assert ways.count == 0
    assert "no way up and down leads from leaf-0 to leaf-1" in ways.reason


def test_ports_without_a_switch_say_why() -> None:
    one, other, lost = nic(0, 0), nic(1, 0), nic(2, 0)
    down = cable(switch_port("leaf", 1), lost, is_up=False)
    topology = make_topology(AT, [], [], [cable(one, other), down])
    graph = compile_graph(with_tiers(topology))
    direct = find_ways(graph, one, other, EVERY)
    assert (direct.hops, direct.count, direct.paths[0][0].target) == (1, 1, other)
    assert "is down" in find_ways(graph, lost, one, EVERY).reason
    assert "no link is known" in find_ways(graph, nic(9, 9), one, EVERY).reason
    assert (
        "which is no switch"
        in find_ways(
            compile_graph(with_tiers(changed(topology, plus=[cable(nic(3, 0), nic(4, 0))]))),
            one,
            nic(3, 0),
            EVERY,
        ).reason
    )


def test_switches_can_be_ends() -> None:
    graph = graph_of(**SHAPES[0])
    spine, leaf = switch_port("spine-0", "any"), switch_port("leaf-pod3-rail1", "any")
    down = find_ways(graph, spine, nic(0, 0), EVERY)
    assert (down.hops, {path[0].source.host for path in down.paths}) == (2, {"spine-0"})
    assert find_ways(graph, leaf, spine, EVERY).hops == 1
    assert find_ways(graph, leaf, leaf, EVERY).count == 0


# --- names --------------------------------------------------------------------------------------


def test_hosts_talk_rail_by_rail() -> None:
    topology = simulated_topology(**SHAPES[0])
    ports = [ports_of(topology, f"node000{host}") for host in (0, 1)]
    assert pairs_between(topology, *ports) == [(nic(0, 0), nic(1, 0)), (nic(0, 1), nic(1, 1))]
    unknown = changed(
        topology,
        ports=[msgspec.structs.replace(port, rail=None) for port in topology.ports.values()],
    )
    assert len(pairs_between(unknown, *ports)) == 4
    assert pairs_between(topology, [nic(0, 0)], [nic(0, 0)]) == []


def test_names_stand_for_ports() -> None:
    topology = simulated_topology(**SHAPES[0])
    assert find_endpoint(topology, "node0000").ports == (nic(0, 0), nic(0, 1))
    assert find_endpoint(topology, "node0000/mlx5_1").ports == (nic(0, 1),)
    assert find_endpoint(topology, "node0000/mlx5_1/1").ports == (nic(0, 1),)
    assert find_endpoint(topology, "spine-0").is_switch
    assert find_endpoint(topology, "spine-0/1").name == "spine-0/1"
    assert find_endpoint(topology, "spine-0/spine-0/1").name == "spine-0/1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node0001x", "did you mean node0001"),
        ("node0000/mlx5_9", "did you mean node0000/mlx5_"),
        ("node0000/mlx5_0/2", "did you mean node0000/mlx5_0/1"),
        ("spine-0/999", "spine-0 has no port '999'"),
        ("a/b/c/d", "nothing is called 'a/b/c/d'"),
        ("", "nothing is called ''"),
    ],
)
def test_names_that_nobody_has_bring_near_ones(text: str, said: str) -> None:
    with pytest.raises(NoSuchName) as refused:
        find_endpoint(simulated_topology(**SHAPES[0]), text)
    assert said in str(refused.value)


# --- many pairs at once -------------------------------------------------------------------------


@pytest.mark.parametrize("order", SHAPES, ids=lambda order: order["topology"])
def test_the_spread_is_what_the_ways_add_up_to(order: dict[str, Any]) -> None:
    graph = graph_of(**order)
    last = order["hosts"] - 1
    pairs = [
        (nic(one, device), nic(other, device))
        for one, other in ((0, 1), (0, last), (last, 1), (0, last))
        for device in range(order["nics_per_host"])
    ]
    pairs += [(nic(99, 0), nic(0, 0)), (nic(0, 0), nic(0, 0))]
    spread = edge_paths(graph, pairs)
    for number, (source, target) in enumerate(pairs):
        part = slice(spread.start[number], spread.start[number + 1])
        ways = find_ways(graph, source, target, EVERY)
        if source.host == "node0099" or source == target:
            assert part.start == part.stop
            continue
        found = {
            graph.links[link].id: share
            for link, share in zip(spread.link[part], spread.share[part], strict=True)
        }
        assert len(found) == part.stop - part.start, "no link twice"
        assert sum(found.values()) == pytest.approx(ways.hops)
        counted = Counter(hop.link.id for path in ways.paths for hop in path)
        assert found.keys() == counted.keys()
        if order["topology"] != "dragonfly":  # where ways branch unevenly, shares are not counts
            for link, count in counted.items():
                assert found[link] == pytest.approx(count / ways.count)


def test_pairs_that_cannot_meet_have_no_links() -> None:
    whole = simulated_topology(**SHAPES[0])
    cut = compile_graph(with_tiers(without_uplinks(whole, "leaf-pod0-rail0", but="nothing")))
    spread = edge_paths(cut, [(nic(0, 0), nic(7, 0)), (nic(0, 0), nic(1, 0))])
    assert spread.start.tolist() == [0, 0, 2]
    assert edge_paths(cut, []).start.tolist() == [0]


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(**SHAPES[2])
    pairs = [(nic(host, 0), nic((host * 7 + 1) % 40, 0)) for host in range(40)]
    whole = edge_paths(graph, pairs)
    monkeypatch.setattr(spread_module, "CHUNK_CELLS", 1)
    parts = edge_paths(graph, pairs)
    assert whole.start.tolist() == parts.start.tolist()
    for number in range(40):
        part = slice(whole.start[number], whole.start[number + 1])
        assert sorted(zip(whole.link[part], whole.share[part], strict=True)) == sorted(
            zip(parts.link[part], parts.share[part], strict=True)
        )


def test_too_many_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(**SHAPES[2])
    monkeypatch.setattr(spread_module, "SPREAD_LINKS_MAX", 50)
    with pytest.raises(SpreadTooLarge, match="SPREAD_LINKS_MAX"):
        edge_paths(graph, [(nic(0, 0), nic(host, 0)) for host in range(1, 40)])


def test_parallel_links_below_the_top_share_what_comes_down() -> None:
    whole = simulated_topology(**SHAPES[2])
    twice = [
        cable(*(PortId(end.host, end.device, f"{end.port}b") for end in (link.a, link.b)))
        for link in whole.links
        if any(end.host.startswith("leaf") for end in (link.a, link.b))
        and all(end.host == end.device for end in (link.a, link.b))
    ]
    graph = compile_graph(with_tiers(changed(whole, plus=twice)))
    ways = find_ways(graph, nic(0, 0), nic(39, 0), EVERY)
    spread = edge_paths(graph, [(nic(0, 0), nic(39, 0))])
    counted = Counter(hop.link.id for path in ways.paths for hop in path)
    assert len(counted) == len(spread.link)
    for number, share in zip(spread.link, spread.share, strict=True):
        assert share == pytest.approx(counted[graph.links[number].id] / ways.count)


def test_a_link_between_leaves_is_no_way_past_the_spines() -> None:
    whole = simulated_topology(topology="fat_tree", hosts=4, nics_per_host=2, hosts_per_leaf=1)
    pair = cable(switch_port("leaf-0", 99), switch_port("leaf-1", 99))
    graph = compile_graph(with_tiers(changed(whole, plus=[pair])))
    ways = find_ways(graph, nic(0, 0), nic(1, 0), EVERY)
    assert ways.hops == 4
    assert all(hop.link.id != pair.id for path in ways.paths for hop in path)
