"""The topology that the service finds from fast mode's batches is the topology that was simulated.

Hosts' agents and the poller send; links, tiers, rails and ways are what is cabled and routed.
"""

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.fabric import cache
from api.http import works
from collector.contract.identity import LinkId, PortId
from collector.contract.wire import CONTENT_TYPE
from simulator.interfaces.switch_tables import Flavour, interface_name
from simulator.readings.batches import Reporter
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import NO_LINK, Fabric, Topology
from simulator.topology.routing import route
from simulator.topology.world import World
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.simulated import make_snapshot

POLLER = "poller-0"
FLOWS = 2000
"""Whose hashes together take every way that there is: twenty for each of a hundred."""
SHAPES = {
    "rail": {"hosts": 6, "gpus_per_host": 2, "nics_per_host": 2, "hosts_per_leaf": 3},
    "fat_tree": {"hosts": 8, "gpus_per_host": 2, "nics_per_host": 2},
    "dragonfly": {"hosts": 12, "gpus_per_host": 2, "nics_per_host": 2, "hosts_per_leaf": 2},
}
SWITCH_PORTS = {"rail": 8, "fat_tree": 8, "dragonfly": 16}


def make_topology(shape: str, fabric: Fabric) -> Topology:
    speed = "NDR" if fabric is Fabric.INFINIBAND else "400GbE"
    return build(
        ClusterSpec(
            topology=shape,
            fabric=fabric,
            speed=speed,
            switch_ports=SWITCH_PORTS[shape],
            **SHAPES[shape],
        )
    )


@dataclass
class Watched:
    """A service, and the cluster whose agents send to it."""

    service: InProcess
    topology: Topology
    reporter: Reporter

    def send(self, snapshot: Snapshot) -> None:
        """Let every agent send what it reads of the snapshot."""
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}
        for body in self.reporter.batches(snapshot):
            answer = self.service.client.post("/v1/ingest", content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json()["refused"] == {}

    def get(self, path: str, **parameters: Any) -> Any:  # noqa: ANN401 - JSON
        answer = self.service.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def await_links(self, down: set[str]) -> None:
        """Wait until all cables are known, and these to be down."""

        def is_there() -> bool:
            found = self.get("/v1/topology")["links"]
            is_up = {link["id"]: link["is_up"] for link in found}
            return is_up == {str(link): str(link) not in down for link in cables(self.topology)}

        eventually(is_there, "the cables, and how they are")


@contextmanager
def watch(folder: Path, topology: Topology, start_ns: int) -> Iterator[Watched]:
    with in_process(folder) as service:
        yield Watched(service, topology, Reporter(topology, "lab", start_ns, seed=5))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "PORTS_SECONDS", 0.1)
    monkeypatch.setattr(cache, "CACHE_SECONDS_MAX", 0.0)


# What was simulated ------------------------------------------------------------------------------


def port_of(topology: Topology, link: int) -> PortId:
    """The port that a simulated link leaves, as agents name it."""
    switch, number = int(topology.source_switch[link]), int(topology.port[link])
    if switch >= 0:
        name = topology.switches[switch].name
        is_numbered = topology.fabric is Fabric.INFINIBAND
        port = str(number) if is_numbered else interface_name(Flavour.SONIC, number)
        return PortId(name, name, port)
    nic = int(topology.source[link]) % topology.nics
    return PortId(topology.host_name(topology.host_of_nic(nic)), topology.device_name(nic), "1")


def cable_of(topology: Topology, link: int) -> LinkId:
    return LinkId.between(port_of(topology, link), port_of(topology, int(topology.reverse[link])))


def cables(topology: Topology) -> set[LinkId]:
    return {cable_of(topology, link) for link in range(2 * topology.nics, topology.links)}


def ways_of(world: World, topology: Topology, source: int, target: int) -> set[tuple[str, ...]]:
    """Every way that flows from one NIC to another take, as links in order.

    ``topology`` names the links; it is cabled as the world's.
    """
    one, other = (np.full(FLOWS, nic, dtype=np.int32) for nic in (source, target))
    rows = route(world, one, other, np.arange(FLOWS, dtype=np.int32))
    found = set()
    for row in np.unique(rows, axis=0):
        links = row[row != NO_LINK][1:-1].tolist()  # without the slots in the hosts
        found.add(tuple(str(cable_of(topology, link)) for link in links))
    return found


def spread_world(shape: str) -> World:
    """The same cables under RoCE, which spreads flows over all ways that there are."""
    return World(make_topology(shape, Fabric.ROCE), np.random.default_rng(1))


def check_ways(watched: Watched, world: World, source: int, target: int) -> None:
    """The service lists the ways that flows of this world can take, and no other."""
    topology = watched.topology
    ends = [str(port_of(topology, topology.up(nic))) for nic in (source, target)]
    answer = watched.get("/v1/paths", **{"from": ends[0], "to": ends[1], "limit": 1000})
    (pair,) = answer["pairs"]
    listed = [tuple(hop["link"] for hop in path) for path in pair["paths"]]
    assert pair["count"] == len(listed) == len(set(listed))
    assert set(listed) == ways_of(world, topology, source, target)


# The proof ---------------------------------------------------------------------------------------


@pytest.mark.rotating(3)
@pytest.mark.parametrize("fabric", list(Fabric))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_topology_found_is_the_topology_simulated(
    shape: str, fabric: Fabric, tmp_path: Path
) -> None:
    topology = make_topology(shape, fabric)
    start_ns = time.time_ns() - 70 * 10**9
    snapshot = make_snapshot(topology, start_unix_ns=start_ns)
    with watch(tmp_path, topology, start_ns) as watched:
        watched.send(snapshot)
        watched.await_links(down=set())
        found = watched.get("/v1/topology")
        kinds = {node["name"]: node["kind"] for node in found["nodes"]}
        hosts = {topology.host_name(host): "host" for host in range(topology.hosts)}
        switches = {switch.name: "switch" for switch in topology.switches}
        assert kinds == hosts | switches | {POLLER: "host"}
        placed = {node["name"]: (node["tier"], node["rail"]) for node in found["nodes"]}
        for switch in topology.switches:
            assert placed[switch.name] == (switch.tier, switch.rail)
        rails = {port["id"]: port["rail"] for port in found["ports"] if port["rail"] is not None}
        assert rails == {
            str(port_of(topology, topology.up(nic))): nic % topology.nics_per_host
            for nic in range(topology.nics)
        }
        rates = {link["rate_bits_per_second"] for link in found["links"]}
        assert rates == {topology.speed.bits_per_second}
        assert watched.get("/v1/topology/mistakes")["items"] == []
        last = topology.nics - topology.nics_per_host
        for source, target in ((0, last), (1, last), (0, topology.nics_per_host), (last + 1, 2)):
            check_ways(watched, spread_world(shape), source, target)
            if fabric is Fabric.INFINIBAND:
                # A switch has one fixed way to each target: one of those.
                (way,) = ways_of(snapshot.world, topology, source, target)
                assert way in ways_of(spread_world(shape), topology, source, target)


def test_ways_avoid_a_cable_that_is_cut(tmp_path: Path) -> None:
    topology = make_topology("rail", Fabric.ROCE)
    start_ns = time.time_ns() - 70 * 10**9
    healthy = make_snapshot(topology, start_unix_ns=start_ns)
    cut = replace(healthy, time_s=healthy.time_s + 10, world=copy.deepcopy(healthy.world))
    link = topology.first_fabric_link
    cut.world.link_up[[link, topology.reverse[link]]] = False
    with watch(tmp_path, topology, start_ns) as watched:
        watched.send(healthy)
        watched.await_links(down=set())
        last = topology.nics - topology.nics_per_host
        before = ways_of(healthy.world, topology, 0, last)
        check_ways(watched, healthy.world, 0, last)
        watched.send(cut)
        watched.await_links(down={str(cable_of(topology, link))})
        assert ways_of(cut.world, topology, 0, last) < before
        check_ways(watched, cut.world, 0, last)
