"""A simulated fabric seen through UFM alone, against the same fabric asked by its own programs.

What both show must be equal, series by series; what UFM lacks is listed here, and nothing else is
missing.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collector.agent.settings import load_settings
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources import Source, discover
from simulator.interfaces.poller_tree import PollerTree
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric, Topology
from tests.doubles.fakes import HandClock, HandHost
from tests.worlds.simulated import make_snapshot

SPEC = ClusterSpec(
    hosts=4, gpus_per_host=2, nics_per_host=2, fabric=Fabric.INFINIBAND, switch_ports=4, speed="NDR"
)
NOT_IN_UFM = {
    "fabric_port_transmit_wait_seconds_total",
    "fabric_port_could_be_faster",
    "fabric_switch_up",
    "fabric_switch_poll_values",
}
"""UFM knows no tick's length, compares no abilities, and does not say which switch answers."""
ALIKE = ("fabric_port_", "fabric_link_")


def source_of(tree: PollerTree, root: Path) -> Source:
    kinds = discover()
    tree.agent_flags("http://127.0.0.1:9700", "lab")
    settings = load_settings(
        {name: kind.Settings for name, kind in kinds.items()},
        file=root / "agent.toml",
        environment={},
        flags={},
    )
    own = msgspec.structs.replace(settings.sources["ib_fabric"], topology_seconds=0.0)
    return kinds["ib_fabric"](own)


def by_series(readings: Iterable[Reading]) -> dict[str, float]:
    """Samples of ports and links; how a link was seen is no part of what was seen."""
    return {
        repr(each.series).replace('method="ufm"', 'method="ib"'): each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric.startswith(ALIKE)
    }


class Two:
    """The same cluster through UFM and through infiniband-diags."""

    def __init__(self, root: Path, topology: Topology) -> None:
        self.roots = root / "ufm", root / "diags"
        for folder in self.roots:
            folder.mkdir()
        self._trees = (
            PollerTree(self.roots[0], topology, through_ufm=True),
            PollerTree(self.roots[1], topology),
        )
        self.clock = HandClock()
        self.hosts = HandHost(self.roots[0], self.clock), Host(self.roots[1])
        self._sources: list[Source] = []

    def read(self, snapshot: Snapshot) -> tuple[list[Reading], list[Reading]]:
        for tree in self._trees:
            tree.write(snapshot)
        if not self._sources:
            self._sources = [source_of(*each) for each in zip(self._trees, self.roots, strict=True)]
        found = [
            list(source.read(host)) for source, host in zip(self._sources, self.hosts, strict=True)
        ]
        return found[0], found[1]


@pytest.fixture
def topology() -> Topology:
    return build(SPEC)


def cut(snapshot: Snapshot, link: int) -> None:
    snapshot.world.link_up[[link, int(snapshot.topology.reverse[link])]] = False


def test_ufm_shows_the_same_ports_links_and_counters(tmp_path: Path, topology: Topology) -> None:
    two = Two(tmp_path, topology)
    snapshot = make_snapshot(topology)
    snapshot.links.dropped_packets[:] = 0
    through_ufm, asked = two.read(snapshot)
    seen, wanted = by_series(through_ufm), by_series(asked)
    assert {name: seen[name] for name in seen.keys() - wanted.keys()} == {}
    lost = {name.partition("{")[0] for name in wanted.keys() - seen.keys()}
    assert lost == {name for name in NOT_IN_UFM if name.startswith(ALIKE)}
    assert {name: value for name, value in seen.items() if value != wanted[name]} == {}
    assert len(seen) > 20 * len(topology.switches)
    assert [each for each in through_ufm if isinstance(each, Missing)] == []


def test_a_link_that_goes_down_is_a_state_an_alarm_and_an_event(
    tmp_path: Path, topology: Topology
) -> None:
    two = Two(tmp_path, topology)
    snapshot = make_snapshot(topology)
    two.read(snapshot)
    link = topology.first_fabric_link
    cut(snapshot, link)
    two.clock.advance(120)
    readings, _ = two.read(snapshot)
    switch, port = int(topology.source_switch[link]), str(int(topology.port[link]))
    down = {
        (dict(each.series.labels)["host"], dict(each.series.labels)["port"])
        for each in readings
        if isinstance(each, Sample)
        and each.series.metric == "fabric_port_state"
        and each.value == 1
    }
    assert (topology.switches[switch].name, port) in down
    assert len(down) == 2
    events = [each for each in readings if isinstance(each, Event)]
    assert sorted(each.kind for each in events) == ["ufm_alarm"] * 2 + ["ufm_event"] * 2
    guid = f"0x{topology.switch_guid(switch):016x}"
    assert (guid, port) in {(one.attributes["guid"], one.attributes["port"]) for one in events}
    alarms = {
        dict(each.series.labels)["severity"]: each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_subnet_ufm_alarms"
    }
    assert alarms["warning"] == 2
    assert np.sum(list(alarms.values())) == 2
