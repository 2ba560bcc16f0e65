"""Clusters are cabled as their shapes promise, and orders that cannot be filled are refused."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from collector.contract.errors import SettingsError
from simulator.topology.build import ClusterSpec, build, pcie_slot
from simulator.topology.model import SPEEDS, Fabric, LinkKind, Topology

SPECS = [
    ClusterSpec(topology="rail", hosts=2),
    ClusterSpec(topology="rail", hosts=33),
    ClusterSpec(topology="rail", hosts=10, nics_per_host=3, hosts_per_leaf=4, oversubscription=2.0),
    # Small switches: twelve leaves do not fit eight ports, so there are cores.
    ClusterSpec(topology="rail", hosts=22, nics_per_host=2, hosts_per_leaf=4, switch_ports=8),
    ClusterSpec(topology="fat_tree", hosts=2),
    ClusterSpec(topology="fat_tree", hosts=30, oversubscription=3.0),
    ClusterSpec(topology="fat_tree", hosts=41, nics_per_host=1, hosts_per_leaf=3, switch_ports=6),
    ClusterSpec(topology="dragonfly", hosts=2),
    ClusterSpec(topology="dragonfly", hosts=37, nics_per_host=4, oversubscription=1.5),
    ClusterSpec(topology="dragonfly", hosts=90, nics_per_host=1, hosts_per_leaf=2, switch_ports=8),
    ClusterSpec(topology="single", hosts=8, nics_per_host=1, speed="10GbE", fabric=Fabric.ROCE),
]


def each_spec(spec: ClusterSpec) -> str:
    return f"{spec.topology}-{spec.hosts}x{spec.nics_per_host}"


with_every_spec = pytest.mark.parametrize("spec", SPECS, ids=each_spec)


def leaves_of_nics(topology: Topology) -> list[int]:
    nics = range(topology.nics)
    return [int(topology.target_switch[topology.up(nic)]) for nic in nics]


@with_every_spec
def test_every_link_has_another_direction_with_the_same_ends(spec: ClusterSpec) -> None:
    topology = build(spec)
    number = np.arange(topology.links)
    assert (topology.reverse[topology.reverse] == number).all()
    assert (topology.reverse != number).all()
    assert (topology.source[topology.reverse] == topology.target).all()
    assert (topology.bits_per_second[topology.reverse] == topology.bits_per_second).all()


@with_every_spec
def test_the_ranges_of_nics_join_memory_nic_and_leaf(spec: ClusterSpec) -> None:
    topology = build(spec)
    for nic in range(topology.nics):
        memory, node = nic, topology.nics + nic
        leaf = int(topology.target[topology.up(nic)])
        assert leaf >= 2 * topology.nics
        for link, kind, ends in (
            (topology.pcie_out(nic), LinkKind.PCIE_OUT, (memory, node)),
            (topology.pcie_in(nic), LinkKind.PCIE_IN, (node, memory)),
            (topology.up(nic), LinkKind.UP, (node, leaf)),
            (topology.down(nic), LinkKind.DOWN, (leaf, node)),
        ):
            assert topology.kind[link] == kind
            assert (topology.source[link], topology.target[link]) == ends


@with_every_spec
def test_ports_of_a_switch_are_numbered_from_one_and_fit_it(spec: ClusterSpec) -> None:
    topology = build(spec)
    for switch in range(len(topology.switches)):
        ports = sorted(topology.port[topology.source_switch == switch])
        assert ports == list(range(1, len(ports) + 1))
        assert len(ports) <= spec.switch_ports


@with_every_spec
def test_links_between_switches_go_up_one_tier_or_down_one_or_across(spec: ClusterSpec) -> None:
    topology = build(spec)
    tier = np.array([switch.tier for switch in topology.switches])
    fabric = slice(topology.first_fabric_link, None)
    rise = tier[topology.target_switch[fabric]] - tier[topology.source_switch[fabric]]
    kind = topology.kind[fabric]
    expected = {LinkKind.FABRIC_UP: 1, LinkKind.FABRIC_DOWN: -1}
    assert all(rise == [expected.get(LinkKind(one), 0) for one in kind])
    assert (kind >= LinkKind.FABRIC_UP).all()


@with_every_spec
def test_names_of_switches_and_of_ports_are_unique(spec: ClusterSpec) -> None:
    topology = build(spec)
    names = [switch.name for switch in topology.switches]
    assert len(set(names)) == len(names)
    ports = [topology.port_name(link) for link in range(2 * topology.nics, topology.links)]
    assert len(set(ports)) == len(ports)


def test_a_rail_s_nics_share_the_leaf_of_their_pod() -> None:
    topology = build(ClusterSpec(topology="rail", hosts=80))
    for nic, leaf in enumerate(leaves_of_nics(topology)):
        switch = topology.switches[leaf]
        assert (switch.rail, switch.pod) == (nic % 8, nic // 8 // 32)


@pytest.mark.parametrize("shape", ["fat_tree", "dragonfly"])
def test_all_nics_of_a_host_share_a_switch(shape: str) -> None:
    topology = build(ClusterSpec(topology=shape, hosts=40))
    leaves = np.array(leaves_of_nics(topology)).reshape(40, 8)
    assert (leaves == leaves[:, :1]).all()
    assert len(np.unique(leaves)) > 1


@pytest.mark.parametrize("shape", ["rail", "fat_tree"])
@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("hosts", [64, 512])
def test_a_leaf_has_less_upwards_by_its_oversubscription(
    shape: str, oversubscription: float, hosts: int
) -> None:
    spec = ClusterSpec(topology=shape, hosts=hosts, oversubscription=oversubscription)
    topology = build(spec)
    tier = np.array([switch.tier for switch in topology.switches])
    for leaf in np.flatnonzero(tier == 0):
        mine = topology.source_switch == leaf
        down = topology.bits_per_second[mine & (topology.kind == LinkKind.DOWN)].sum()
        up = topology.bits_per_second[mine & (topology.kind == LinkKind.FABRIC_UP)].sum()
        assert down / up == pytest.approx(oversubscription)
    for spine in np.flatnonzero(tier == 1) if tier.max() > 1 else ():
        kinds = Counter(topology.kind[topology.source_switch == spine].tolist())
        assert kinds[LinkKind.FABRIC_UP] == kinds[LinkKind.FABRIC_DOWN]


@pytest.mark.parametrize(
    ("hosts", "leaves", "spines", "cables"),
    [(32, 8, 4, 256), (64, 16, 8, 512), (96, 24, 16, 768), (128, 32, 16, 1024)],
)
def test_one_to_four_scalable_units_are_cabled_as_nvidia_s_table_says(
    hosts: int, leaves: int, spines: int, cables: int
) -> None:
    """The table of the DGX SuperPOD reference architecture (H100, compute fabric)."""
    topology = build(ClusterSpec(topology="rail", hosts=hosts))
    tiers = Counter(switch.tier for switch in topology.switches)
    assert tiers == {0: leaves, 1: spines}
    assert topology.links - topology.first_fabric_link == 2 * cables


@pytest.mark.parametrize("hosts", [8, 32, 100, 500])
def test_a_dragonfly_joins_all_routers_of_a_group_and_all_groups(hosts: int) -> None:
    topology = build(ClusterSpec(topology="dragonfly", hosts=hosts))
    groups = [switch.pod for switch in topology.switches]
    local, between = Counter[tuple[int, int]](), Counter[tuple[int | None, int | None]]()
    for link in range(topology.first_fabric_link, topology.links):
        ends = int(topology.source_switch[link]), int(topology.target_switch[link])
        pods = groups[ends[0]], groups[ends[1]]
        if topology.kind[link] == LinkKind.LOCAL:
            assert pods[0] == pods[1]
            local[ends] += 1
        else:
            assert topology.kind[link] == LinkKind.GLOBAL
            between[pods] += 1
    size, count = Counter(groups)[0], len(set(groups))
    assert count > 1
    assert len(local) == count * size * (size - 1)
    assert len(set(local.values())) == 1
    assert len(between) == count * (count - 1)
    assert len(set(between.values())) == 1


@pytest.mark.parametrize(
    ("speed", "generation", "gigabits"),
    [("10GbE", 3, 126), ("EDR", 3, 126), ("HDR", 4, 252), ("400GbE", 5, 504), ("XDR", 6, 968)],
)
def test_a_nic_sits_in_a_slot_of_the_generation_that_its_speed_needs(
    speed: str, generation: int, gigabits: int
) -> None:
    slot = pcie_slot(SPEEDS[speed])
    assert (slot.generation, slot.width) == (generation, 16)
    assert round(slot.bits_per_second / 1e9) == gigabits
    fabric = Fabric.ROCE if speed.endswith("GbE") else Fabric.INFINIBAND
    topology = build(ClusterSpec(hosts=2, speed=speed, fabric=fabric))
    assert topology.bits_per_second[topology.pcie_in(3)] == slot.bits_per_second
    assert topology.bits_per_second[topology.down(3)] == SPEEDS[speed].bits_per_second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topology": "fat-tree"}, "unknown topology 'fat-tree'; did you mean 'fat_tree'"),
        ({"speed": "NDRR"}, "unknown speed 'NDRR'; did you mean 'NDR'"),
        ({"fabric": "rocee"}, "unknown fabric 'rocee'; did you mean 'roce'"),
        ({"fabric": Fabric.ROCE}, "speed = 'NDR' does not fit fabric = 'roce'.*400GbE"),
        ({"speed": "100GbE"}, "speed = '100GbE' does not fit fabric = 'infiniband'.*EDR"),
        ({"hosts": 1}, "hosts = 1: must be from 2 to 4096"),
        ({"hosts": 4097}, "hosts = 4097: must be from 2 to 4096"),
        ({"nics_per_host": 0}, "nics_per_host = 0: must be from 1"),
        ({"gpus_per_host": 99}, "gpus_per_host = 99: must be from 1"),
        ({"oversubscription": 0.5}, r"oversubscription = 0\.5: must be from 1\.0"),
        ({"oversubscription": float("nan")}, "oversubscription = nan: must be"),
        ({"hosts_per_leaf": 0}, "hosts_per_leaf = 0: must be from 1"),
        ({"switch_ports": 256}, "switch_ports = 256: must be from 4 to 255"),
        ({"hosts": 64, "hosts_per_leaf": 40}, "hosts_per_leaf = 40: .*40 ports down and 40 up"),
        ({"hosts": 4096, "hosts_per_leaf": 1}, "hosts = 4096: 32768 leaves need more than three"),
        ({"topology": "single"}, "hosts = 32: 256 NICs do not fit one switch of 64 ports"),
        (
            {"topology": "dragonfly", "hosts_per_leaf": 3},
            "hosts_per_leaf = 3: a router would need 24 ports to NICs, 48 inside",
        ),
        (
            {"topology": "dragonfly", "hosts": 4096, "nics_per_host": 1, "switch_ports": 4},
            "hosts = 4096: a group's .* global cables do not reach",
        ),
    ],
)
def test_an_order_that_cannot_be_filled_says_what_to_change(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        build(replace(ClusterSpec(), **change))  # type: ignore[arg-type]


def test_a_fabric_given_as_text_becomes_the_fabric_that_models_compare_with() -> None:
    spec = ClusterSpec(hosts=2, speed="400GbE", fabric="roce")  # type: ignore[arg-type]
    assert build(spec).fabric is Fabric.ROCE


@pytest.mark.parametrize("shape", ["rail", "fat_tree", "dragonfly"])
def test_four_thousand_hosts_are_built_in_little_memory(shape: str) -> None:
    topology = build(ClusterSpec(topology=shape, hosts=4096))
    columns = ("source", "target", "reverse", "kind", "bits_per_second", "port")
    assert sum(getattr(topology, column).nbytes for column in columns) < 16 << 20
    assert topology.nics == 32768
    assert topology.links > 6 * 32768
