"""Flows take real paths: they join up, avoid what is dead, spread by the hash, and never vary."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from simulator.topology import routing
from simulator.topology.build import ClusterSpec, _assemble, build
from simulator.topology.model import (
    HOPS_MAX,
    NO_LINK,
    Bools,
    Fabric,
    Ints,
    LinkKind,
    Switch,
    Topology,
)
from simulator.topology.routing import leaf_of_nic, route
from simulator.topology.spec import Wiring
from simulator.topology.world import World

THREE_TIERS = ClusterSpec(
    topology="rail", hosts=22, nics_per_host=2, hosts_per_leaf=4, switch_ports=8
)
"""Twelve leaves of switches with eight ports: three blocks, with cores above them."""
SPECS = [
    ClusterSpec(topology="rail", hosts=2, nics_per_host=4),
    ClusterSpec(topology="rail", hosts=10, nics_per_host=3, hosts_per_leaf=4, oversubscription=2.0),
    THREE_TIERS,
    ClusterSpec(topology="fat_tree", hosts=12, nics_per_host=4, hosts_per_leaf=2),
    ClusterSpec(topology="fat_tree", hosts=41, nics_per_host=1, hosts_per_leaf=3, switch_ports=6),
    ClusterSpec(topology="dragonfly", hosts=12, nics_per_host=2),
    ClusterSpec(topology="dragonfly", hosts=50, nics_per_host=1, hosts_per_leaf=2, switch_ports=8),
    ClusterSpec(topology="single", hosts=8, nics_per_host=1),
]
TREES = [spec for spec in SPECS if spec.topology in {"rail", "fat_tree"}]


def ports_of_switch(topology: Topology, switch: int) -> Ints:
    """The links that leave a switch, in the order of its port numbers."""
    return np.flatnonzero(topology.source_switch == switch).astype(np.int32)


def links_between(topology: Topology, source: int, target: int) -> Ints:
    """The links from one switch to another: none, one, or several in parallel."""
    is_between = (topology.source_switch == source) & (topology.target_switch == target)
    return np.flatnonzero(is_between).astype(np.int32)


def each_spec(spec: ClusterSpec) -> str:
    return f"{spec.topology}-{spec.hosts}x{spec.nics_per_host}"


def on(spec: ClusterSpec, fabric: Fabric) -> ClusterSpec:
    return replace(spec, fabric=fabric, speed="NDR" if fabric is Fabric.INFINIBAND else "400GbE")


def world_of(spec: ClusterSpec, fabric: Fabric = Fabric.ROCE, seed: int = 1) -> World:
    return World(build(on(spec, fabric)), np.random.default_rng(seed))


def all_pairs(topology: Topology) -> tuple[Ints, Ints]:
    """Every NIC to every NIC of another host."""
    nic = np.arange(topology.nics, dtype=np.int32)
    source, target = np.repeat(nic, len(nic)), np.tile(nic, len(nic))
    is_remote = source // topology.nics_per_host != target // topology.nics_per_host
    return source[is_remote], target[is_remote]


def nics(*numbers: int) -> Ints:
    return np.array(numbers, dtype=np.int32)


def random_keys(flows: int, seed: int = 3) -> Ints:
    return np.random.default_rng(seed).integers(0, 1 << 31, flows).astype(np.int32)


def kill(world: World, links: Ints) -> None:
    """Both directions, as a cable that is pulled."""
    world.link_up[links] = False
    world.link_up[world.topology.reverse[links]] = False


def kill_some(world: World, share: float, seed: int) -> None:
    topology = world.topology
    fabric = np.arange(topology.first_fabric_link, topology.links, dtype=np.int32)
    is_chosen = np.random.default_rng(seed).random(len(fabric)) < share / 2
    kill(world, fabric[is_chosen])


def assert_is_path(topology: Topology, row: Ints, source: int, target: int) -> None:
    """It begins and ends in host memory, its links join up, and no node is met twice.

    Between switches it goes up and then down; in a dragonfly the order is free.
    """
    links = row[row != NO_LINK]
    assert list(row[: len(links)]) == list(links), "padding stands at the end only"
    assert links[0] == topology.pcie_out(source)
    assert links[-1] == topology.pcie_in(target)
    nodes = [int(topology.source[links[0]]), *topology.target[links].tolist()]
    assert (topology.source[links[1:]] == topology.target[links[:-1]]).all()
    assert len(set(nodes)) == len(nodes)
    climbs = [kind for kind in topology.kind[links].tolist() if kind >= LinkKind.FABRIC_UP]
    assert climbs == sorted(climbs) or topology.name == "dragonfly"


def is_all_live(world: World, rows: Ints) -> Bools:
    """For each row; padding counts as alive."""
    live: Bools = np.append(world.link_is_live(), True)[rows]
    return np.asarray(live.all(axis=1))


def shortest_up_and_down(world: World, source: int, target: int) -> float:
    """Live links between two leaves, found the slow way: all that can be climbed from either."""

    def climb(leaf: int) -> dict[int, int]:
        height, waiting = {leaf: 0}, [leaf]
        for switch in waiting:
            for link in ports_of_switch(topology, switch):
                upper = int(topology.target_switch[link])
                if topology.kind[link] == LinkKind.FABRIC_UP and live[link] and upper not in height:
                    height[upper] = height[switch] + 1
                    waiting.append(upper)
        return height

    topology, live = world.topology, world.link_is_live()
    one, other = climb(source), climb(target)
    return min((one[top] + other[top] for top in one if top in other), default=np.inf)


# --- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS, ids=each_spec)
@pytest.mark.parametrize("fabric", list(Fabric))
@pytest.mark.parametrize("seed", [1, 2])
def test_every_nic_reaches_every_other(spec: ClusterSpec, fabric: Fabric, seed: int) -> None:
    world = world_of(spec, fabric, seed)
    source, target = all_pairs(world.topology)
    rows = route(world, source, target, random_keys(len(source), seed))
    assert rows.shape == (len(source), HOPS_MAX)
    assert rows.dtype == np.int32
    for row, one, other in zip(rows, source, target, strict=True):
        assert_is_path(world.topology, row, int(one), int(other))


@pytest.mark.parametrize("spec", TREES, ids=each_spec)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6])
def test_in_a_tree_paths_are_the_shortest_that_live_and_stall_only_if_none_does(
    spec: ClusterSpec, share: float
) -> None:
    world = world_of(spec)
    topology = world.topology
    kill_some(world, share, seed=5)
    leaf = leaf_of_nic(topology)
    # One NIC of each leaf: others have the same way.
    nic = np.unique(leaf, return_index=True)[1].astype(np.int32)
    source, target = np.repeat(nic, len(nic)), np.tile(nic, len(nic))
    is_remote = source // topology.nics_per_host != target // topology.nics_per_host
    source, target = source[is_remote], target[is_remote]
    rows = route(world, source, target, random_keys(len(source)))
    for row, one, other, is_live in zip(
        rows, source, target, is_all_live(world, rows), strict=True
    ):
        assert_is_path(topology, row, int(one), int(other))
        expected = shortest_up_and_down(world, int(leaf[one]), int(leaf[other]))
        assert is_live == np.isfinite(expected)
        if is_live:
            assert (row != NO_LINK).sum() == 4 + expected


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_in_a_dragonfly_dead_links_are_avoided_or_stall(share: float) -> None:
    world = world_of(SPECS[-2])
    source, target = all_pairs(world.topology)
    keys = random_keys(len(source))
    healthy = route(world, source, target, keys)
    is_global = np.append(world.topology.kind, -1)[healthy] == LinkKind.GLOBAL
    assert set(is_global.sum(axis=1)) == {0, 1}
    kill_some(world, share, seed=5)
    rows = route(world, source, target, keys)
    is_live = is_all_live(world, rows)
    for row, one, other in zip(rows, source, target, strict=True):
        assert_is_path(world.topology, row, int(one), int(other))
    assert is_live[is_all_live(world, healthy)].all()
    assert is_live.sum() > is_all_live(world, healthy).sum()


def test_a_core_is_preferred_to_a_valley_through_a_leaf() -> None:
    """Hosts 0 and 2 share no spine; host 1's leaf, on both spines, must not carry their flows."""
    leaves_and_spines = [Switch(f"switch-{number}", tier=number // 3) for number in range(5)]
    spec = on(ClusterSpec(hosts=3, nics_per_host=1), Fabric.ROCE)
    wiring = Wiring(
        switches=(*leaves_and_spines, Switch("core", tier=2)),
        nic_switch=nics(0, 1, 2),
        near=nics(0, 1, 1, 2, 3, 4),
        far=nics(3, 3, 4, 4, 5, 5),
        kind=np.full(6, LinkKind.FABRIC_UP, dtype=np.int8),
    )
    topology = _assemble(spec, wiring)
    keys = random_keys(50)
    world = World(topology, np.random.default_rng(1))
    rows = route(world, np.zeros_like(keys), np.full_like(keys, 2), keys)
    assert (topology.target_switch[rows[:, 3]] == 5).all()
    kill(world, links_between(topology, 3, 5))
    stalled = route(world, np.zeros_like(keys), np.full_like(keys, 2), keys)
    assert (stalled == rows).all()


def test_flows_inside_a_host_do_not_use_the_network() -> None:
    world = world_of(THREE_TIERS)
    rows = route(world, nics(0, 0, 5), nics(1, 2, 5), nics(1, 2, 3))
    assert (rows[[0, 2]] == NO_LINK).all()
    assert rows[1, 0] == 0
    nothing = np.zeros(0, dtype=np.int32)
    assert route(world, nothing, nothing, nothing).shape == (0, HOPS_MAX)


def test_a_rail_of_a_pod_has_one_switch_to_cross_and_other_rails_three() -> None:
    world = world_of(ClusterSpec(topology="rail", hosts=8))
    rows = route(world, nics(0, 0), nics(8, 9), nics(7, 7))
    assert (rows != NO_LINK).sum(axis=1).tolist() == [4, 6]


# --- choosing ----------------------------------------------------------------------------------


def uplink_loads(world: World, tier: int, rows: Ints) -> dict[int, int]:
    """Flows on each link that leaves the tier upwards."""
    topology = world.topology
    used = np.bincount(rows[rows != NO_LINK], minlength=topology.links)
    return {
        link: int(used[link])
        for link in range(topology.first_fabric_link, topology.links)
        if topology.kind[link] == LinkKind.FABRIC_UP
        and topology.switches[topology.source_switch[link]].tier == tier
    }


def test_different_seeds_spread_flows_evenly_and_equal_ones_polarise() -> None:
    world = world_of(THREE_TIERS)
    # From the first block to the last, many connections between each pair of NICs.
    source, target = np.repeat(nics(0, 2, 4, 6), 4000), np.repeat(nics(40, 42, 38, 36), 4000)
    keys = random_keys(len(source))
    spread = uplink_loads(world, 1, route(world, source, target, keys))
    used = [load for load in spread.values() if load]
    assert len(used) == 16, "each of four spines uses each of its four uplinks"
    assert max(abs(load - 1000) for load in used) < 6 * np.sqrt(1000)
    world.switch_hash_seed[:] = 77
    polarised = uplink_loads(world, 1, route(world, source, target, keys))
    used = [load for load in polarised.values() if load]
    assert len(used) == 4, "a spine only gets flows with the same hash result"


def test_a_hash_that_sees_nothing_puts_all_flows_of_a_leaf_on_one_uplink() -> None:
    world = world_of(ClusterSpec(topology="rail", hosts=16))
    target = np.arange(8, 128, dtype=np.int32)[np.arange(120) % 8 != 0]
    source = np.zeros(len(target), dtype=np.int32)
    keys = random_keys(len(source))
    assert sum(map(bool, uplink_loads(world, 0, route(world, source, target, keys)).values())) > 8
    world.switch_hash_bits[:] = 0
    blind = uplink_loads(world, 0, route(world, source, target, keys))
    assert sorted(blind.values())[-2:] == [0, len(source)]
    world.switch_hash_bits[:] = 1
    squinting = uplink_loads(world, 0, route(world, source, target, keys))
    assert sum(map(bool, squinting.values())) == 2


def test_neighbouring_keys_do_not_take_neighbouring_links() -> None:
    """Connections get their ports one after the other; a weak hash would show it."""
    world = world_of(ClusterSpec(topology="rail", hosts=32))
    keys = np.arange(32000, dtype=np.int32)
    rows = route(world, np.zeros_like(keys), np.full_like(keys, 9), keys)
    loads = [load for load in uplink_loads(world, 0, rows).values() if load]
    assert len(loads) == 32
    assert 20 < np.std(loads) < 45, "as chance would have it: the root of 1000"


@pytest.mark.parametrize("spec", TREES, ids=each_spec)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_infiniband_forwards_by_target_alone(spec: ClusterSpec, share: float) -> None:
    world = world_of(spec, Fabric.INFINIBAND)
    topology = world.topology
    kill_some(world, share, seed=8)
    source, target = all_pairs(topology)
    rows = route(world, source, target, random_keys(len(source), 1))
    assert (rows == route(world, source, target, random_keys(len(source), 2))).all()
    table: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows[is_all_live(world, rows)]:
        links = row[row != NO_LINK]
        for link in links:
            table[int(topology.source[link]), int(links[-1])].add(int(link))
    assert table
    assert all(len(links) == 1 for links in table.values())


@pytest.mark.parametrize(
    "spec",
    [
        ClusterSpec(topology="rail", hosts=64),
        ClusterSpec(topology="fat_tree", hosts=64),
        ClusterSpec(topology="rail", hosts=32, nics_per_host=2, hosts_per_leaf=4, switch_ports=8),
    ],
    ids=each_spec,
)
def test_infiniband_never_lets_two_targets_share_a_link_downwards(spec: ClusterSpec) -> None:
    """The promise of D-mod-k in a tree without oversubscription."""
    world = world_of(spec, Fabric.INFINIBAND)
    topology = world.topology
    source = np.arange(topology.nics, dtype=np.int32)
    target = np.random.default_rng(4).permutation(source)
    rows = route(world, source, target, random_keys(len(source)))
    used = np.bincount(rows[rows != NO_LINK], minlength=topology.links)
    assert used[topology.kind == LinkKind.FABRIC_DOWN].max() == 1


# --- what is dead ------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_a_dead_link_is_left_out_and_its_flows_move_over(direction: str) -> None:
    world = world_of(ClusterSpec(topology="rail", hosts=16))
    topology = world.topology
    source = np.zeros(500, dtype=np.int32)
    target = np.full(500, 9, dtype=np.int32)
    keys = random_keys(500)
    before = route(world, source, target, keys)
    dead = int(before[0, 2])
    if direction != "back":
        world.link_up[dead] = False
    if direction != "there":
        world.link_up[topology.reverse[dead]] = False
    after = route(world, source, target, keys)
    assert (before == dead).any()
    assert not (after == dead).any()
    assert (before[:, 2] != NO_LINK).all()
    world.link_up[:] = True
    assert (route(world, source, target, keys) == before).all()


def test_a_spine_that_lost_its_last_cable_to_the_target_is_left_out_at_the_source() -> None:
    world = world_of(ClusterSpec(topology="fat_tree", hosts=8, hosts_per_leaf=2))
    topology = world.topology
    spine = next(i for i, switch in enumerate(topology.switches) if switch.tier == 1)
    source, target = np.zeros(200, dtype=np.int32), np.full(200, 60, dtype=np.int32)
    keys = random_keys(200)
    kill(world, links_between(topology, spine, int(leaf_of_nic(topology)[60])))
    rows = route(world, source, target, keys)
    assert is_all_live(world, rows).all()
    assert not (topology.target_switch[rows[:, 2]] == spine).any()


@pytest.mark.parametrize("fabric", list(Fabric))
def test_a_nic_whose_own_link_is_dead_keeps_its_row_and_stalls(fabric: Fabric) -> None:
    world = world_of(ClusterSpec(topology="rail", hosts=8), fabric)
    topology = world.topology
    source, target = nics(0, 8, 16), nics(9, 1, 0)
    before = route(world, source, target, source)
    world.link_up[topology.up(0)] = False
    after = route(world, source, target, source)
    assert (before == after).all()
    slowest = np.append(world.capacity(), np.inf)[after].min(axis=1)
    assert slowest.tolist() == [0.0, topology.speed.bits_per_second, 0.0]


@pytest.mark.parametrize("spec", SPECS[:-1], ids=each_spec)
def test_without_any_live_cable_everyone_keeps_a_path_and_stalls(spec: ClusterSpec) -> None:
    world = world_of(spec)
    topology = world.topology
    source, target = all_pairs(topology)
    keys = random_keys(len(source))
    before = route(world, source, target, keys)
    world.link_up[topology.first_fabric_link :] = False
    after = route(world, source, target, keys)
    assert (before == after).all()
    capacity = np.append(world.capacity(), np.inf)
    leaf = leaf_of_nic(topology)
    assert ((capacity[after].min(axis=1) == 0) == (leaf[source] != leaf[target])).all()


@pytest.mark.parametrize("spec", SPECS[:-1], ids=each_spec)
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_distances_mended_after_a_death_are_those_computed_anew(
    spec: ClusterSpec, share: float
) -> None:
    world = world_of(spec)
    topology = world.topology
    kill_some(world, share, seed=11)
    is_dead = ~world.link_is_live()[topology.first_fabric_link :]
    mended = routing._reach(topology, np.flatnonzero(is_dead).astype(np.int32).tobytes())
    ports = routing._ports(topology)
    anew = routing._distances(ports, mended.neighbour, ports.goals, mended.farthest)
    assert (mended.distance == anew).all()


# --- the same again ----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS, ids=each_spec)
@pytest.mark.parametrize("fabric", list(Fabric))
def test_a_flow_s_row_depends_on_nothing_but_its_own(spec: ClusterSpec, fabric: Fabric) -> None:
    world = world_of(spec, fabric)
    source, target = all_pairs(world.topology)
    keys = random_keys(len(source))
    rows = route(world, source, target, keys)
    some = np.random.default_rng(6).permutation(len(source))[: len(source) // 2]
    twin = world_of(spec, fabric)
    assert (route(twin, source[some], target[some], keys[some]) == rows[some]).all()


@pytest.mark.parametrize("shape", ["rail", "fat_tree", "dragonfly"])
def test_the_largest_cluster_routes_all_its_nics_at_once(shape: str) -> None:
    world = world_of(ClusterSpec(topology=shape, hosts=4096))
    source = np.arange(world.topology.nics, dtype=np.int32)
    target = np.random.default_rng(4).permutation(source)
    keys = random_keys(len(source))
    rows = route(world, source, target, keys)
    apart = world.nic_host[source] != world.nic_host[target]
    assert (rows[apart, 0] == world.topology.pcie_out(source)[apart]).all()
    assert (route(world, source, target, keys) == rows).all()


# --- looking around ----------------------------------------------------------------------------


def test_links_and_ports_can_be_found_and_named() -> None:
    topology = build(ClusterSpec(topology="rail", hosts=32))
    names = [switch.name for switch in topology.switches]
    leaf, spine = names.index("leaf-pod0-rail3"), names.index("spine-1")
    ports = ports_of_switch(topology, leaf)
    assert topology.port[ports].tolist() == list(range(1, 65))
    assert (topology.source_switch[ports] == leaf).all()
    cables = links_between(topology, leaf, spine)
    assert [topology.port_name(int(link)) for link in cables[:2]] == [
        "leaf-pod0-rail3/41",
        "leaf-pod0-rail3/42",
    ]
    assert [topology.port_name(int(topology.reverse[link])) for link in cables[:2]] == [
        "spine-1/25",
        "spine-1/26",
    ]
    assert len(cables) == 8
    assert topology.port_name(topology.up(3)) == "node0000/mlx5_3"
    assert topology.port_name(topology.down(3)) == "leaf-pod0-rail3/1"
