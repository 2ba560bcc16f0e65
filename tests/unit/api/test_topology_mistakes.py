"""Mis-cabling: every kind is found as one finding, and a correct fabric has none."""

from typing import Any

import msgspec
import pytest

from api.fabric.file import Pattern, PatternKind
from api.fabric.mistake import Mistake, MistakeKind
from api.fabric.mistakes import find_mistakes
from api.fabric.model import Conflict, Link, Node, NodeKind, Port, Topology, make_topology
from api.fabric.plan import Basis, Plan
from api.fabric.tiers import with_tiers
from collector.contract.identity import LinkId, PortId
from tests.worlds.topologies import (
    AT,
    RATE,
    cable,
    changed,
    nic,
    recabled,
    simulated_topology,
    swapped,
    switch_port,
)

RAIL: dict[str, Any] = {"topology": "rail", "hosts": 32, "hosts_per_leaf": 16}
FAT_TREE: dict[str, Any] = {"topology": "fat_tree", "hosts": 16, "hosts_per_leaf": 4}
THREE_TIERS: dict[str, Any] = {
    "topology": "fat_tree", "hosts": 40, "hosts_per_leaf": 1, "switch_ports": 16,
}  # fmt: skip
SHAPES: list[dict[str, Any]] = [
    RAIL,
    {"topology": "rail", "hosts": 33, "hosts_per_leaf": 16, "oversubscription": 3.0},
    {"topology": "rail", "hosts": 2, "nics_per_host": 2},
    {"topology": "rail", "hosts": 9, "nics_per_host": 2, "hosts_per_leaf": 1, "switch_ports": 16},
    FAT_TREE,
    {"topology": "fat_tree", "hosts": 17, "hosts_per_leaf": 4, "oversubscription": 2.0},
    THREE_TIERS,
    {"topology": "dragonfly", "hosts": 33, "nics_per_host": 2},
    {"topology": "dragonfly", "hosts": 17, "nics_per_host": 1, "oversubscription": 3.0},
    {"topology": "dragonfly", "hosts": 3, "nics_per_host": 1, "hosts_per_leaf": 2},
    {"topology": "single", "hosts": 5},
]


def plan_from(topology: Topology) -> Plan:
    return Plan(links={link.id: link.rate_bits_per_second for link in topology.links.values()})


def mistakes(topology: Topology, plan: Plan | None = None) -> list[Mistake]:
    return find_mistakes(with_tiers(topology), plan)


def only(found: list[Mistake], kind: MistakeKind) -> Mistake:
    """The only finding; it must have every field that an operator needs."""
    assert [mistake.kind for mistake in found] == [kind], [mistake.what for mistake in found]
    mistake = found[0]
    assert mistake.what
    assert mistake.expected
    assert mistake.found
    assert mistake.fix
    assert 0 < mistake.confidence <= 1
    return mistake


@pytest.mark.parametrize("order", SHAPES, ids=str)
def test_a_correct_fabric_has_no_mistakes(order: dict[str, Any]) -> None:
    topology = simulated_topology(**order)
    assert mistakes(topology) == []
    assert mistakes(topology, plan_from(topology)) == []
    kinds = {"rail": PatternKind.RAIL_OPTIMISED, "fat_tree": PatternKind.FAT_TREE}
    if order["topology"] in kinds:
        pattern = Pattern(kind=kinds[order["topology"]], speed="NDR")
        assert mistakes(topology, Plan(pattern=pattern)) == []


def test_nothing_is_said_of_nothing() -> None:
    empty = make_topology(AT, [], [], [])
    assert mistakes(empty) == []
    assert mistakes(empty, Plan(links={})) == []


# --- hosts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_plan", [False, True])
def test_two_nics_of_a_host_that_are_swapped_are_one_finding(*, with_plan: bool) -> None:
    whole = simulated_topology(**RAIL)
    plan = plan_from(whole) if with_plan else None
    found = only(mistakes(swapped(whole, nic(7, 2), nic(7, 3)), plan), MistakeKind.SWAPPED)
    assert found.what == "mlx5_2 and mlx5_3 of node0007 are swapped"
    assert {nic(7, 2), nic(7, 3)} <= set(found.ports)
    assert found.basis is (Basis.PLAN if with_plan else Basis.MAJORITY)
    assert found.confidence == 1.0 if with_plan else 0.8 < found.confidence < 1


def test_three_nics_in_a_circle_are_one_finding() -> None:
    whole = simulated_topology(**RAIL)
    ports = [nic(7, device) for device in (1, 2, 3)]
    ends = [end for port in ports if (end := whole.other_end(port)) is not None]
    turned = recabled(whole, dict(zip(ports, [*ends[1:], ends[0]], strict=True)))
    found = only(mistakes(turned), MistakeKind.SWAPPED)
    assert found.what == "mlx5_1, mlx5_2 and mlx5_3 of node0007 are cabled in a circle"


@pytest.mark.parametrize("with_plan", [False, True])
def test_nics_of_two_hosts_that_are_swapped_are_one_finding(*, with_plan: bool) -> None:
    whole = simulated_topology(**RAIL)
    plan = plan_from(whole) if with_plan else None
    found = only(mistakes(swapped(whole, nic(3, 1), nic(9, 5)), plan), MistakeKind.SWAPPED)
    assert found.what == "node0003/mlx5_1/1 and node0009/mlx5_5/1 are swapped"


@pytest.mark.parametrize("with_plan", [False, True])
def test_a_nic_on_the_leaf_of_another_rail(*, with_plan: bool) -> None:
    whole = simulated_topology(**RAIL)
    plan = plan_from(whole) if with_plan else None
    moved = recabled(whole, {nic(4, 0): switch_port("leaf-pod0-rail6", 99)})
    found = only(mistakes(moved, plan), MistakeKind.RAIL_MISMATCH)
    assert "node0004/mlx5_0/1" in found.what
    assert "leaf-pod0-rail6" in found.found
    assert "leaf-pod0-rail0" in found.expected


@pytest.mark.parametrize("with_plan", [False, True])
def test_a_nic_on_a_leaf_of_other_hosts(*, with_plan: bool) -> None:
    for order, leaf in ((RAIL, "leaf-pod1-rail0"), (FAT_TREE, "leaf-1")):
        whole = simulated_topology(**order)
        plan = plan_from(whole) if with_plan else None
        moved = recabled(whole, {nic(2, 0): switch_port(leaf, 99)})
        assert leaf in only(mistakes(moved, plan), MistakeKind.WRONG_LEAF).nodes


@pytest.mark.parametrize("with_plan", [False, True])
def test_a_nic_on_a_spine(*, with_plan: bool) -> None:
    whole = simulated_topology(**RAIL)
    plan = plan_from(whole) if with_plan else None
    moved = recabled(whole, {nic(2, 0): switch_port("spine-0", 99)})
    found = only(mistakes(moved, plan), MistakeKind.WRONG_TIER)
    assert "spine-0" in found.nodes


def test_the_right_leaf_at_another_port_is_a_mistake_only_against_a_plan() -> None:
    whole = simulated_topology(**RAIL)
    moved = recabled(whole, {nic(2, 0): switch_port("leaf-pod0-rail0", 99)})
    assert mistakes(moved) == []
    found = only(mistakes(moved, plan_from(whole)), MistakeKind.WRONG_PORT)
    assert found.what.startswith("node0002/mlx5_0/1 is cabled to leaf-pod0-rail0/99 instead of")


def test_a_port_that_is_down_and_has_no_link_is_missing_one() -> None:
    whole = simulated_topology(**RAIL)
    cut = changed(
        whole, without=[whole.link_of[nic(5, 4)].id], ports=[Port(id=nic(5, 4), state="down")]
    )
    found = only(mistakes(cut), MistakeKind.MISSING_LINK)
    assert found.what == "node0005/mlx5_4/1 has no link and is down"
    assert "leaf-pod0-rail4" in found.fix
    planned = only(mistakes(cut, plan_from(whole)), MistakeKind.MISSING_LINK)
    assert planned.evidence == ("node0005/mlx5_4/1 is down",)


def test_a_port_that_is_up_and_whose_neighbour_nobody_names_is_no_mistake() -> None:
    whole = simulated_topology(**RAIL)
    assert mistakes(changed(whole, without=[whole.link_of[nic(5, 4)].id])) == []


def without_nic(topology: Topology, host: int, device: int, *, renamed: bool) -> Topology:
    """A host that lost a NIC; its driver may then shift the names of the later NICs by one."""
    links: list[Link] = []
    for link in topology.links.values():
        ends = [link.id.a, link.id.b]
        mine = next((end for end in ends if end.host == f"node{host:04d}"), None)
        if mine is not None:
            number = int(mine.device.removeprefix("mlx5_"))
            if number == device:
                continue
            if renamed and number > device:
                ends[ends.index(mine)] = nic(host, number - 1)
        links.append(msgspec.structs.replace(link, id=LinkId.between(*ends)))
    kept = {port for link in links for port in (link.id.a, link.id.b)}
    ports = [port for port in topology.ports.values() if port.id in kept]
    return make_topology(AT, topology.nodes.values(), ports, links)


def by_interfaces(topology: Topology, host: str) -> Topology:
    """The same topology before the agent maps the host's interfaces to RDMA devices."""

    def renamed(port: PortId) -> PortId:
        if port.host != host:
            return port
        return PortId(port.host, port.device.replace("mlx5_", "eth"), port.port)

    links = [
        msgspec.structs.replace(link, id=LinkId.between(renamed(link.id.a), renamed(link.id.b)))
        for link in topology.links.values()
    ]
    ports = [
        msgspec.structs.replace(port, id=renamed(port.id), rail=None)
        if port.id.host == host
        else port
        for port in topology.ports.values()
    ]
    return make_topology(AT, topology.nodes.values(), ports, links)


@pytest.mark.parametrize("hosts", [1, 4, 7])
@pytest.mark.parametrize("shape", [RAIL, FAT_TREE], ids=["rail", "fat_tree"])
def test_hosts_that_have_just_come_up_are_not_accused(shape: dict[str, Any], hosts: int) -> None:
    topology = simulated_topology(**shape)
    for host in range(hosts):
        topology = by_interfaces(topology, f"node{host:04d}")
    assert mistakes(topology) == []


@pytest.mark.parametrize("renamed", [False, True])
def test_a_lost_nic_is_one_finding_also_when_the_others_moved_up(*, renamed: bool) -> None:
    lost = without_nic(simulated_topology(**RAIL), 3, 2, renamed=renamed)
    found = only(mistakes(lost), MistakeKind.MISSING_LINK)
    assert found.nodes == ("node0003", "leaf-pod0-rail2")


def test_a_tie_accuses_nobody() -> None:
    two = simulated_topology(topology="rail", hosts=4, nics_per_host=4, hosts_per_leaf=2)
    assert mistakes(swapped(two, nic(0, 0), nic(0, 1))) == []


def test_a_pattern_that_the_fabric_does_not_have_is_said() -> None:
    rail_optimised = Plan(pattern=Pattern(kind=PatternKind.RAIL_OPTIMISED))
    wrong = mistakes(simulated_topology(**FAT_TREE), rail_optimised)
    assert {mistake.kind for mistake in wrong} == {MistakeKind.RAIL_MISMATCH}
    assert len(wrong) == 4, "one for each leaf"
    fat_tree = Plan(pattern=Pattern(kind=PatternKind.FAT_TREE))
    wrong = mistakes(simulated_topology(**RAIL), fat_tree)
    assert {mistake.kind for mistake in wrong} == {MistakeKind.WRONG_LEAF}
    assert len(wrong) == 32, "one for each host"


def test_a_nic_astray_in_a_fat_tree_is_named() -> None:
    moved = recabled(simulated_topology(**FAT_TREE), {nic(2, 5): switch_port("leaf-1", 99)})
    plan = Plan(pattern=Pattern(kind=PatternKind.FAT_TREE))
    found = only(mistakes(moved, plan), MistakeKind.WRONG_LEAF)
    assert found.expected == "all NICs of node0002 on leaf-0"
    assert found.found == "node0002/mlx5_5/1 on leaf-1"


# --- switches -----------------------------------------------------------------------------------


def between(topology: Topology, one: str, other: str) -> list[LinkId]:
    return [
        link.id for link in topology.neighbours[one] if other in {link.id.a.host, link.id.b.host}
    ]


def test_a_leaf_with_fewer_links_to_a_spine_than_its_likes() -> None:
    whole = simulated_topology(**RAIL)
    lost = between(whole, "leaf-pod0-rail3", "spine-1")
    port = next(end for end in (lost[0].a, lost[0].b) if end.host == "leaf-pod0-rail3")
    fewer = changed(whole, without=lost[:1], ports=[Port(id=port, state="down")])
    found = only(mistakes(fewer), MistakeKind.ASYMMETRIC)
    assert found.what == (
        f"leaf-pod0-rail3 has {len(lost) - 1} links to spine-1 instead of {len(lost)}"
    )
    assert found.ports == (port,)
    assert found.confidence > 0.8
    none = only(mistakes(changed(whole, without=lost)), MistakeKind.MISSING_LINK)
    assert none.nodes == ("leaf-pod0-rail3", "spine-1")
    assert only(mistakes(fewer, plan_from(whole)), MistakeKind.MISSING_LINK).links == (lost[0],)


def test_two_leaves_are_judged_by_all_their_links() -> None:
    whole = simulated_topology(topology="fat_tree", hosts=8, hosts_per_leaf=4)
    lost = between(whole, "leaf-0", "spine-1")
    assert len(lost) > 1
    found = only(mistakes(changed(whole, without=lost[:1])), MistakeKind.ASYMMETRIC)
    assert found.nodes == ("leaf-0", "spine-1")


def test_a_cable_to_the_wrong_spine_is_one_finding() -> None:
    whole = simulated_topology(**RAIL)
    link = between(whole, "leaf-pod0-rail3", "spine-1")[0]
    port = next(end for end in (link.a, link.b) if end.host == "leaf-pod0-rail3")
    moved = recabled(whole, {port: switch_port("spine-0", 99)})
    found = only(mistakes(moved), MistakeKind.ASYMMETRIC)
    assert found.what == "leaf-pod0-rail3 has too many links to spine-0 and too few to spine-1"


def test_a_link_that_no_like_switch_has_is_too_many() -> None:
    whole = simulated_topology(**THREE_TIERS)
    stray = cable(switch_port("leaf-0", 99), switch_port("spine-block1-0", 99))
    found = only(mistakes(changed(whole, plus=[stray])), MistakeKind.EXTRA_LINK)
    assert found.links == (stray.id,)
    planned = only(mistakes(changed(whole, plus=[stray]), plan_from(whole)), MistakeKind.EXTRA_LINK)
    assert planned.links == (stray.id,)


def test_links_that_skip_a_tier_or_stay_within_one() -> None:
    whole = simulated_topology(**THREE_TIERS)
    for end in ("core-plane0-0", "leaf-1"):
        stray = cable(switch_port("leaf-0", 99), switch_port(end, 98))
        found = only(mistakes(changed(whole, plus=[stray])), MistakeKind.WRONG_TIER)
        assert found.links == (stray.id,)


def test_pairs_of_leaves_that_are_all_cabled_so_are_no_mistake() -> None:
    whole = simulated_topology(**FAT_TREE)
    pairs = [
        cable(switch_port(f"leaf-{one}", 99), switch_port(f"leaf-{one + 1}", 99)) for one in (0, 2)
    ]
    assert mistakes(changed(whole, plus=pairs)) == []


def test_what_a_pattern_says_of_leaves_is_held_against_them() -> None:
    whole = simulated_topology(**FAT_TREE)
    pattern = Pattern(kind=PatternKind.FAT_TREE, hosts_per_leaf=3, oversubscription=0.5)
    kinds = [mistake.kind for mistake in mistakes(whole, Plan(pattern=pattern))]
    assert sorted(set(kinds)) == [MistakeKind.EXTRA_LINK, MistakeKind.OVERSUBSCRIBED]
    assert len(kinds) == 8
    links = len(between(whole, "leaf-0", "spine-0"))
    more = Pattern(kind=PatternKind.FAT_TREE, links_per_spine=links + 1)
    found = mistakes(whole, Plan(pattern=more))
    assert {mistake.kind for mistake in found} == {MistakeKind.ASYMMETRIC}


# --- findings without a cabling plan ------------------------------------------------------------


def slower(topology: Topology, link: LinkId) -> Topology:
    def alter(each: Link) -> Link:
        if each.id != link:
            return each
        return msgspec.structs.replace(each, rate_bits_per_second=RATE // 2)

    return changed(topology, alter=alter)


@pytest.mark.parametrize("with_plan", [False, True])
def test_a_link_that_is_slower_than_its_likes(*, with_plan: bool) -> None:
    whole = simulated_topology(**RAIL)
    for link in (whole.link_of[nic(3, 3)].id, between(whole, "leaf-pod0-rail0", "spine-0")[0]):
        slow = slower(whole, link)
        plan = plan_from(whole) if with_plan else None
        found = only(mistakes(slow, plan), MistakeKind.WRONG_SPEED)
        assert (found.links, found.found) == ((link,), "200 Gb/s")
        assert found.expected.startswith("400 Gb/s")


def test_two_generations_on_one_leaf_are_no_mistake() -> None:
    whole = simulated_topology(**FAT_TREE)

    def alter(link: Link) -> Link:
        hosts = {link.id.a.host, link.id.b.host}
        is_old = not hosts.isdisjoint({"node0000", "node0001"})
        return msgspec.structs.replace(link, rate_bits_per_second=RATE // 2) if is_old else link

    assert mistakes(changed(whole, alter=alter)) == []


def test_a_link_that_is_down() -> None:
    whole = simulated_topology(**RAIL)
    link = whole.link_of[nic(3, 3)].id
    down = changed(
        whole,
        alter=lambda each: (
            msgspec.structs.replace(each, is_up=False, rate_bits_per_second=1)
            if each.id == link
            else each
        ),
        ports=[Port(id=nic(3, 3), state="down", rail=3)],
    )
    for plan in (None, plan_from(whole)):
        found = only(mistakes(down, plan), MistakeKind.DOWN)
        assert found.evidence == ("node0003/mlx5_3/1 is down",)


def test_a_neighbour_of_which_only_an_address_is_known() -> None:
    whole = simulated_topology(**RAIL)
    stranger = Node(
        name="02:00:00:00:00:99", kind=NodeKind.UNKNOWN, attributes={"chassis": "02:…:99"}
    )
    link = cable(PortId(stranger.name, "x", "1"), switch_port("leaf-pod0-rail0", 99))
    seen = make_topology(
        AT,
        [*whole.nodes.values(), stranger],
        whole.ports.values(),
        [*whole.links.values(), link],
    )
    found = only(mistakes(seen), MistakeKind.UNKNOWN_NEIGHBOUR)
    assert found.what.startswith("leaf-pod0-rail0/99 is cabled to 02:00:00:00:00:99")


def conflict(port: PortId, says: PortId, instead: PortId) -> Conflict:
    return Conflict(port=port, names=says, named_back=instead, methods=("lldp",), last_seen=AT)


def test_ends_that_contradict_each_other() -> None:
    whole = simulated_topology(**RAIL)
    other = whole.other_end(nic(3, 3))
    assert other is not None
    one = conflict(switch_port("leaf-pod0-rail5", 99), nic(3, 3), other)
    found = only(mistakes(msgspec.structs.replace(whole, conflicts=(one,))), MistakeKind.ASYMMETRIC)
    assert found.what.startswith(
        "leaf-pod0-rail5/99 reports a cable to node0003/mlx5_3/1, which is cabled to"
    )


def test_a_cable_that_was_moved_a_moment_ago_is_no_contradiction() -> None:
    """The old report is still stored, but its port has reported another neighbour since."""
    whole = simulated_topology(**RAIL)
    moved = swapped(whole, nic(3, 3), nic(3, 4))
    stale = tuple(
        msgspec.structs.replace(
            conflict(old, port, moved.other_end(port) or old),
            last_seen=AT.replace(year=2025),
        )
        for port in (nic(3, 3), nic(3, 4))
        if (old := whole.other_end(port)) is not None
    )
    seen = msgspec.structs.replace(moved, conflicts=stale)
    assert only(mistakes(seen), MistakeKind.SWAPPED)


def test_ports_of_one_machine_with_each_others_neighbours_are_no_twins() -> None:
    whole = simulated_topology(**RAIL)
    one, other = whole.other_end(nic(3, 3)), whole.other_end(nic(3, 4))
    assert one is not None
    assert other is not None
    crossed = (conflict(other, nic(3, 3), one), conflict(one, nic(3, 4), other))
    found = mistakes(msgspec.structs.replace(whole, conflicts=crossed))
    assert [mistake.kind for mistake in found] == [MistakeKind.ASYMMETRIC] * 2


@pytest.mark.parametrize("as_conflicts", [False, True])
def test_two_machines_of_one_name_are_one_finding(*, as_conflicts: bool) -> None:
    whole = simulated_topology(**RAIL)
    twins = {nic(3, rail): switch_port(f"leaf-pod0-rail{rail}", 99) for rail in range(8)}
    if as_conflicts:
        said = tuple(
            conflict(twin, port, whole.other_end(port) or twin) for port, twin in twins.items()
        )
        seen = msgspec.structs.replace(whole, conflicts=said)
    else:
        seen = changed(whole, plus=[cable(port, twin) for port, twin in twins.items()])
    found = only(mistakes(seen), MistakeKind.DUPLICATE_NAME)
    assert found.what == "two machines call themselves node0003"
    assert len(found.ports) == 8


def test_nodes_of_a_plan_that_nobody_sees_are_one_finding_each() -> None:
    whole = simulated_topology(**RAIL)
    unseen = changed(whole, without=[link.id for link in whole.neighbours["node0003"]])
    found = only(mistakes(unseen, plan_from(whole)), MistakeKind.MISSING_LINK)
    assert found.what == "no link of node0003 is seen, and the plan has 8 links"
    assert found.confidence < 1


def test_what_a_plan_does_not_speak_of_is_no_mistake() -> None:
    whole = simulated_topology(**RAIL)
    planned: dict[LinkId, int | None] = {
        link.id: None
        for link in whole.links.values()
        if "node0000" not in {link.id.a.host, link.id.b.host}
    }
    assert mistakes(whole, Plan(links=planned)) == []


def test_many_mistakes_are_all_found() -> None:
    topology = simulated_topology(**RAIL)
    for host in range(5):
        topology = swapped(topology, nic(host, 2 * host % 7), nic(host, 2 * host % 7 + 1))
    found = mistakes(topology)
    assert [mistake.kind for mistake in found] == [MistakeKind.SWAPPED] * 5
