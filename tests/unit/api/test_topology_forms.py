"""Topologies written out: GraphML that others can open, JSON that holds everything."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import msgspec
import pytest

from api.fabric import cache
from api.fabric.graphml import EDGE_KEYS, NODE_KEYS, write_graphml
from api.fabric.model import Node, NodeKind, Topology, make_topology
from api.fabric.shown import TopologyShown, part_of, tag_of, write_json
from api.fabric.tiers import with_tiers
from collector.contract.identity import PortId
from tests.worlds.topologies import AT, cable, changed, nic, simulated_topology

GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
TYPES: dict[str, Callable[[str], object]] = {
    "int": int,
    "long": int,
    "boolean": {"true": True, "false": False}.__getitem__,
}


def tree_of(topology: Topology) -> ET.Element:
    return ET.fromstring("".join(write_graphml(topology)))  # noqa: S314 - we wrote it


def test_graphml_keeps_the_rules_of_its_schema() -> None:
    topology = with_tiers(simulated_topology(topology="rail", hosts=40, nics_per_host=4))
    root = tree_of(topology)
    assert root.tag == GRAPHML + "graphml"
    assert [child.tag for child in root] == [GRAPHML + "key"] * (
        len(NODE_KEYS) + len(EDGE_KEYS)
    ) + [GRAPHML + "graph"]
    keys = {key.attrib["id"]: key.attrib for key in root.iter(GRAPHML + "key")}
    graph = root[-1]
    assert graph.attrib["edgedefault"] == "undirected"
    nodes, edges = graph.findall(GRAPHML + "node"), graph.findall(GRAPHML + "edge")
    names = [node.attrib["id"] for node in nodes]
    assert sorted(names) == sorted(topology.nodes)
    assert len({edge.attrib["id"] for edge in edges}) == len(edges) == len(topology.links)
    for what, elements in (("node", nodes), ("edge", edges)):
        for element in elements:
            said = [data.attrib["key"] for data in element]
            assert len(set(said)) == len(said)
            for data in element:
                key = keys[data.attrib["key"]]
                assert key["for"] == what
                assert data.text
                TYPES.get(key["attr.type"], str)(data.text)
    assert all({edge.attrib["source"], edge.attrib["target"]} <= set(names) for edge in edges)


def test_graphml_says_what_is_known_and_no_more() -> None:
    link = cable(nic(0, 0), nic(1, 0), is_up=None, rate_bits_per_second=None)
    root = tree_of(make_topology(AT, [], [], [link]))
    said = [data.attrib["key"] for data in next(root.iter(GRAPHML + "edge"))]
    assert said == ["edge_source_port", "edge_target_port", "edge_since", "edge_last_seen"]
    assert [data.attrib["key"] for data in next(root.iter(GRAPHML + "node"))] == [
        "node_label",
        "node_kind",
    ]


def test_hostile_names_do_not_break_out() -> None:
    evil = "</node>\"'<!--&]]>"
    link = cable(PortId(evil, "d", "1"), PortId("b", "b", evil))
    strange = Node(name="bell\x07\ud800\ufffe", kind=NodeKind.UNKNOWN)
    root = tree_of(make_topology(AT, [strange], [], [link]))
    names = [node.attrib["id"] for node in root.iter(GRAPHML + "node")]
    assert evil in names
    assert len(names) == 3
    assert "".join(write_graphml(make_topology(AT, [strange], [], []))).encode()


def test_json_holds_everything_in_any_number_of_pieces() -> None:
    topology = with_tiers(simulated_topology(topology="rail", hosts=160, nics_per_host=8))
    found = msgspec.json.decode(b"".join(write_json(topology)), type=TopologyShown)
    assert len(found.links) == len(topology.links) > 1000
    assert {link.id for link in found.links} == {str(link) for link in topology.links}
    assert {node.name: node.tier for node in found.nodes} == {
        name: node.tier for name, node in topology.nodes.items()
    }
    assert {port.id: port.rail for port in found.ports} == {
        str(port.id): port.rail for port in topology.ports.values()
    }
    empty = b"".join(write_json(make_topology(AT, [], [], [])))
    assert msgspec.json.decode(empty) == {
        "at": "2026-01-02T03:04:05Z", "nodes": [], "ports": [], "links": [], "conflicts": [],
    }  # fmt: skip


def test_json_that_is_kept_is_the_same_and_a_large_one_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = cache.BuiltTopology(simulated_topology())
    whole = b"".join(write_json(built.topology))
    assert b"".join(built.json()) == whole
    assert built.json() is built.json()
    monkeypatch.setattr(cache, "JSON_KEPT_BYTES_MAX", len(whole) // 2)
    large = cache.BuiltTopology(simulated_topology())
    assert b"".join(large.json()) == whole
    assert large.json() is not large.json()


def test_cables_change_with_links_and_rates_and_not_with_states() -> None:
    whole = simulated_topology()
    known = cache.BuiltTopology(whole).cables
    assert cache.BuiltTopology(changed(whole)).cables == known
    one, *others = whole.links.values()
    slower = msgspec.structs.replace(one, rate_bits_per_second=1)
    fewer = make_topology(AT, whole.nodes.values(), whole.ports.values(), others)
    other = make_topology(AT, whole.nodes.values(), whole.ports.values(), [slower, *others])
    assert len({known, cache.BuiltTopology(fewer).cables, cache.BuiltTopology(other).cables}) == 3


def test_a_part_has_the_links_of_its_nodes_with_both_ends() -> None:
    topology = simulated_topology(topology="rail", hosts=4, nics_per_host=2)
    part = part_of(topology, ["node0001"])
    assert {link.id for link in topology.neighbours["node0001"]} == set(part.links)
    assert {"node0001", "leaf-pod0-rail0", "leaf-pod0-rail1"} == set(part.nodes)
    assert all(end in part.ports for link in part.links for end in (link.a, link.b))


def test_the_tag_changes_with_the_cables_and_not_with_the_time() -> None:
    topology = simulated_topology(topology="rail", hosts=4, nics_per_host=2)
    later = AT.replace(year=2027)
    seen_again = changed(
        topology, alter=lambda link: msgspec.structs.replace(link, last_seen=later)
    )
    assert tag_of(seen_again) == tag_of(topology)
    down = changed(topology, alter=lambda link: msgspec.structs.replace(link, is_up=False))
    fewer = changed(topology, without=[topology.link_of[nic(0, 0)].id])
    placed = with_tiers(topology)
    assert len({tag_of(each) for each in (topology, down, fewer, placed)}) == 4
