"""The topology over HTTP: from ports' neighbour reports to paths and wrong cables."""

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest

from api.data.inventory.sightings import Observation, sight
from api.fabric.cache import CACHE_SECONDS_MAX
from api.http.settings import ServiceSettings
from collector.contract.catalog import load_catalog
from collector.contract.identity import Labels, PortId
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Topology
from tests.stands.service import InProcess, in_process
from tests.worlds import link_ends
from tests.worlds.topologies import nic, swapped, topology_of

SPEC = ClusterSpec(topology="rail", hosts=8, hosts_per_leaf=4, nics_per_host=4, gpus_per_host=4)
SWAPPED = (nic(1, 2), nic(1, 3))


class Clock:
    """The machine's clock, which can be put forward so that caches expire."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Fabric:
    """A service, a simulated cluster, and its ports' neighbour reports."""

    def __init__(self, service: InProcess, cluster: Topology, clock: Clock, plan: Path) -> None:
        self.service = service
        self.cluster = cluster
        self.clock = clock
        self.plan = plan

    def get(self, path: str, **parameters: Any) -> httpx.Response:  # noqa: ANN401
        return self.service.client.get(path, params=parameters)

    def json(self, path: str, **parameters: Any) -> Any:  # noqa: ANN401
        answer = self.get(path, **parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def observe(self, *labels: Labels, at: dt.datetime | None = None) -> None:
        """Tell the inventory what was seen, and let the cache grow old."""
        found = [sight(each, load_catalog()) for each in labels]
        moment = at or dt.datetime.now(dt.UTC)
        self.service.inventory.observe(
            [Observation.at(sighting, moment) for sighting in found if sighting is not None]
        )
        self.clock.ahead_s += CACHE_SECONDS_MAX


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    folder = tmp_path_factory.mktemp("service")
    plan = folder / "plan.toml"
    plan.write_text('[pattern]\nkind = "rail-optimised"\n')
    clock, cluster = Clock(), build(SPEC)
    settings = ServiceSettings(data=str(folder), topology_plan=str(plan))
    with in_process(folder, clock=clock, settings=settings) as service:
        found = Fabric(service, cluster, clock, plan)
        found.observe(*link_ends.things(cluster), *link_ends.ends(cluster, of_hosts=True))
        yield found


def is_problem(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in answer.text


# --- the whole ----------------------------------------------------------------------------------


def test_the_topology_is_the_one_simulated(fabric: Fabric) -> None:
    found = fabric.json("/v1/topology")
    assert {link["id"] for link in found["links"]} == {
        str(cable) for cable in link_ends.cables(fabric.cluster)
    }
    placed = {node["name"]: (node["tier"], node["rail"], node["pod"]) for node in found["nodes"]}
    for switch in fabric.cluster.switches:
        assert placed[switch.name] == (switch.tier, switch.rail, switch.pod)
    rails = {port["id"]: port["rail"] for port in found["ports"] if port["rail"] is not None}
    assert rails == {str(nic(host, rail)): rail for host in range(8) for rail in range(4)}


def test_graphml_can_be_parsed_and_has_every_link(fabric: Fabric) -> None:
    answer = fabric.get("/v1/topology", format="graphml")
    assert answer.headers["content-type"].startswith("application/graphml+xml")
    root = ET.fromstring(answer.text)  # noqa: S314 - we wrote it
    edges = root.findall(".//{*}edge")
    assert len(edges) == len(link_ends.cables(fabric.cluster))


def test_a_part_can_be_asked_for(fabric: Fabric) -> None:
    one = fabric.json("/v1/topology", host="node0001")
    assert {node["name"] for node in one["nodes"]} == {
        "node0001",
        *(f"leaf-pod0-rail{rail}" for rail in range(4)),
    }
    spines = fabric.json("/v1/topology", tier=1)
    assert not any(node["kind"] == "host" for node in spines["nodes"])
    two = fabric.json("/v1/topology", host=["node0001", "node0005"])
    assert len(two["links"]) == 8
    is_problem(fabric.get("/v1/topology", host="node0099"), 404, "did you mean node000")


def test_who_has_the_answer_already_gets_none(fabric: Fabric) -> None:
    first = fabric.get("/v1/topology")
    tag = first.headers["etag"]
    for known in (tag, f'"x", {tag}', "*"):
        again = fabric.service.client.get("/v1/topology", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = fabric.service.client.get("/v1/topology", headers={"If-None-Match": 'W/"x"'})
    assert other.status_code == 200


def test_too_large_an_answer_is_refused_by_name(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.routes.topology.TOPOLOGY_LINKS_MAX", 10)
    is_problem(fabric.get("/v1/topology"), 422, "TOPOLOGY_LINKS_MAX", "topology_links_max")
    assert fabric.get("/v1/topology", host="node0001").status_code == 200
    monkeypatch.setattr("api.http.routes.shared.topologies.TOPOLOGY_HOSTS_ASKED_MAX", 1)
    is_problem(fabric.get("/v1/topology", host=["a", "b"]), 422, "topology_hosts_asked_max")


def test_the_past_is_what_was_cabled_then(fabric: Fabric) -> None:
    before = fabric.json("/v1/topology", at="2001-01-01T00:00:00Z")
    assert before["links"] == []
    is_problem(fabric.get("/v1/topology", at="yesterday"), 400, "not a time")


# --- links --------------------------------------------------------------------------------------


def test_links_come_in_pages(fabric: Fabric) -> None:
    seen: list[str] = []
    after = None
    while True:
        extra: dict[str, str] = {} if after is None else {"after": after}
        page = fabric.json("/v1/links", limit=30, **extra)
        seen += [link["id"] for link in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == len(link_ends.cables(fabric.cluster))
    assert len(fabric.json("/v1/links", host="node0001")["items"]) == 4
    assert fabric.json("/v1/links", is_up="false")["items"] == []
    is_problem(fabric.get("/v1/links", host="nobody"), 404)
    is_problem(fabric.get("/v1/links", after="x"), 400, "LinkId")
    is_problem(fabric.get("/v1/links", port="x"), 400, "PortId")


def test_a_port_has_a_history(fabric: Fabric) -> None:
    port = PortId("lab-switch", "lab-switch", "7")
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    for minutes, peer in ((0, "node0001"), (20, "node0002"), (40, "node0001")):
        label = link_ends.series(
            "fabric_link_info",
            host=port.host,
            device=port.device,
            port=port.port,
            method="lldp",
            peer_name=peer,
            peer_port="lab",
        )
        fabric.observe(label, at=start + dt.timedelta(minutes=minutes))
    for text in ("lab-switch/7", "lab-switch/lab-switch/7"):
        found = fabric.json("/v1/links", port=text)
        assert [row["peer_name"] for row in found["history"]] == [
            "node0001",
            "node0002",
            "node0001",
        ]
        assert [row["until"] is None for row in found["history"]] == [True, False, False]
    nowhere = fabric.json("/v1/links", port="nowhere/7")
    assert (nowhere["items"], nowhere["history"]) == ([], [])


# --- paths --------------------------------------------------------------------------------------


def test_paths_between_hosts_are_those_of_their_rails(fabric: Fabric) -> None:
    found = fabric.json("/v1/paths", **{"from": "node0000", "to": "node0007"})
    assert [(pair["source"], pair["target"]) for pair in found["pairs"]] == [
        (str(nic(0, rail)), str(nic(7, rail))) for rail in range(4)
    ]
    first = found["pairs"][0]
    assert (first["hops"], first["is_cut"]) == (4, len(first["paths"]) < first["count"])
    assert first["paths"][0][0]["source"] == str(nic(0, 0))
    assert first["paths"][0][-1]["target"] == str(nic(7, 0))
    near = fabric.json("/v1/paths", **{"from": "node0000/mlx5_1", "to": "node0001/mlx5_1/1"})
    assert (near["pairs"][0]["hops"], near["pairs"][0]["count"]) == (2, 1)


def test_the_number_of_listed_paths_is_the_askers(fabric: Fabric) -> None:
    ends = {"from": "node0000", "to": "node0007"}
    none = fabric.json("/v1/paths", **ends, limit=0)["pairs"]
    assert all(pair["paths"] == [] and pair["count"] > 0 and pair["is_cut"] for pair in none)
    some = fabric.json("/v1/paths", **ends, limit=3)["pairs"]
    assert sum(len(pair["paths"]) for pair in some) == 3
    is_problem(fabric.get("/v1/paths", **ends, limit=1_000_000), 422, "limit")


def test_paths_from_and_to_switches(fabric: Fabric) -> None:
    found = fabric.json("/v1/paths", **{"from": "spine-0", "to": "node0003/mlx5_2/1"})
    assert (found["pairs"][0]["source"], found["pairs"][0]["hops"]) == ("spine-0", 2)


def test_wrong_names_are_answered_with_near_ones(fabric: Fabric) -> None:
    wrong = {"from": "node0000/mlx5_9", "to": "node0001"}
    is_problem(fabric.get("/v1/paths", **wrong), 404, "from=", "did you mean node0000/mlx5_")
    wrong = {"from": "node0000", "to": "nodd0001"}
    is_problem(fabric.get("/v1/paths", **wrong), 404, "to=", "did you mean node0001")
    same = {"from": "node0000", "to": "node0000"}
    is_problem(fabric.get("/v1/paths", **same), 422, "the same")
    is_problem(fabric.get("/v1/paths", to="node0000"), 422, "from")
    is_problem(fabric.get("/v1/paths", **{"from": "", "to": "x"}), 422, "from")


# --- mistakes -----------------------------------------------------------------------------------


def recable(fabric: Fabric, *, is_right: bool) -> None:
    """Two NICs of a host report each other's neighbours, as do the leaves; or all is well again."""
    whole = topology_of(fabric.cluster)
    now = whole if is_right else swapped(whole, *SWAPPED)
    for port in SWAPPED:
        other = now.other_end(port)
        assert other is not None
        for one, two in ((port, other), (other, port)):
            fabric.observe(
                link_ends.series(
                    "fabric_link_info",
                    host=one.host,
                    device=one.device,
                    port=one.port,
                    method="ib",
                    peer_guid=guid_of(fabric.cluster, two),
                    peer_port=two.port,
                )
            )


def guid_of(cluster: Topology, port: PortId) -> str:
    for number, switch in enumerate(cluster.switches):
        if switch.name == port.host:
            return f"0x{cluster.switch_guid(number):016x}"
    host, rail = int(port.host.removeprefix("node")), int(port.device.removeprefix("mlx5_"))
    return f"0x{cluster.nic_guid(host * cluster.nics_per_host + rail):016x}"


def only_cabled_hosts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings that are not about the switch of another test."""
    return [each for each in found["items"] if not any("lab" in name for name in each["nodes"])]


def test_a_swap_is_one_mistake_and_its_repair_none(fabric: Fabric) -> None:
    assert only_cabled_hosts(fabric.json("/v1/topology/mistakes")) == []
    recable(fabric, is_right=False)
    found = fabric.json("/v1/topology/mistakes")
    assert found["basis"] == "pattern"
    [mistake] = only_cabled_hosts(found)
    assert mistake["kind"] == "swapped"
    assert mistake["what"] == "mlx5_2 and mlx5_3 of node0001 are swapped"
    assert found["kinds"]["swapped"] == 1
    assert fabric.json("/v1/topology/mistakes", kind="down")["items"] == []
    recable(fabric, is_right=True)
    assert only_cabled_hosts(fabric.json("/v1/topology/mistakes")) == []


def test_a_pattern_of_the_request_goes_before_the_plan(fabric: Fabric) -> None:
    found = fabric.json("/v1/topology/mistakes", pattern="fat-tree", limit=3)
    assert (found["basis"], found["kinds"]["wrong_leaf"]) == ("pattern", 8)
    assert (len(found["items"]), found["next"]) == (3, "3")
    rest = fabric.json("/v1/topology/mistakes", pattern="fat-tree", after=3)
    assert len(rest["items"]) == found["count"] - 3
    is_problem(fabric.get("/v1/topology/mistakes", pattern="torus"), 422, "pattern")
    is_problem(fabric.get("/v1/topology/mistakes", speed="400G"), 422, "need pattern=")
    wrong = {"pattern": "fat-tree", "speed": "warp"}
    is_problem(fabric.get("/v1/topology/mistakes", **wrong), 422, "warp")


def test_a_plan_is_read_anew_when_it_changes(fabric: Fabric) -> None:
    good = fabric.plan.read_text()
    try:
        fabric.plan.write_text("[[links]]\na = 'node0000/mlx5_0/1'\nb = 'leaf-pod0-rail0/64'\n")
        found = fabric.json("/v1/topology/mistakes", kind="wrong_port")
        assert (found["basis"], found["count"]) == ("plan", 1)
        fabric.plan.write_text("[[links]]\na = 3\n")
        is_problem(fabric.get("/v1/topology/mistakes"), 503, "plan cannot be read", "plan.toml")
        fabric.plan.unlink()
        is_problem(fabric.get("/v1/topology/mistakes"), 503, "No such file")
    finally:
        fabric.plan.write_text(good)
    assert fabric.json("/v1/topology/mistakes")["basis"] == "pattern"


# --- the cache ------------------------------------------------------------------------------------


def test_an_answer_is_kept_for_a_few_seconds(fabric: Fabric) -> None:
    first = fabric.json("/v1/topology", host="node0001")["at"]
    assert fabric.json("/v1/topology", host="node0002")["at"] == first
    fabric.clock.ahead_s += CACHE_SECONDS_MAX
    assert fabric.json("/v1/topology", host="node0001")["at"] != first
