"""The `ib_fabric` source on real infiniband-diags and a fabric that ibsim plays.

What was set at ibsim's console must arrive under the catalog's names, for every port of every
switch; the source must report what is cut or silent, and only that.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources.ib_fabric import IbFabric, Settings
from simulator.interfaces.ibsim import Console, switch_id
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric as FabricKind
from simulator.topology.model import Topology
from tests.stands import ib_fabric
from tests.stands.ib_fabric import Fabric
from tests.tools import peers
from tests.worlds.simulated import make_snapshot

pytestmark = pytest.mark.peer(
    "ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "perfquery", "ibqueryerrors"
)

METRICS = {
    "PortCountersExtended.PortXmitData": ("fabric_port_transmit_bytes_total", 4),
    "PortCountersExtended.PortRcvData": ("fabric_port_receive_bytes_total", 4),
    "PortCountersExtended.PortXmitPkts": ("fabric_port_transmit_packets_total", 1),
    "PortCountersExtended.PortRcvPkts": ("fabric_port_receive_packets_total", 1),
    "PortCountersExtended.PortUnicastXmitPkts": ("fabric_port_transmit_unicast_packets_total", 1),
    "PortCountersExtended.PortUnicastRcvPkts": ("fabric_port_receive_unicast_packets_total", 1),
    "PortCounters.SymbolErrorCounter": ("fabric_port_symbol_errors_total", 1),
    "PortCounters.LinkErrorRecoveryCounter": ("fabric_port_link_error_recoveries_total", 1),
    "PortCounters.LinkDownedCounter": ("fabric_port_link_downed_total", 1),
    "PortCounters.PortRcvErrors": ("fabric_port_receive_errors_total", 1),
    "PortCounters.PortXmitDiscards": ("fabric_port_transmit_discards_total", 1),
    "PortCounters.PortXmitWait": ("fabric_port_transmit_wait_ticks_total", 1),
}
"""What ibsim's counters are called here, and by what they are multiplied."""
OWN_TRAFFIC_BYTES = 1_000_000
"""More than the questions themselves can add to a port's counters of bytes and packets."""

SHAPES = {
    "rail": ClusterSpec(
        hosts=4, gpus_per_host=2, nics_per_host=2, fabric=FabricKind.INFINIBAND, switch_ports=4
    ),
    "fat_tree": ClusterSpec(
        topology="fat_tree",
        hosts=6,
        gpus_per_host=2,
        nics_per_host=2,
        fabric=FabricKind.INFINIBAND,
        speed="HDR",
        switch_ports=8,
    ),
}


class Watched:
    """A fabric and the source that reads it."""

    def __init__(self, running: Fabric, topology: Topology, **settings: object) -> None:
        program = peers.find("perfquery")
        assert program is not None
        names = ("LD_PRELOAD", "SIM_HOST", "IBSIM_SOCKNAME")
        self.running, self.topology = running, topology
        self._host = Host(Path("/"))
        self._source = IbFabric(
            Settings(
                enabled=True,
                timeout_seconds=120,
                topology_seconds=0,
                # A machine that stands still for a moment must not look like a silent switch.
                answer_milliseconds=1_000,
                programs_dir=str(program.parent),
                environment={name: running.environment[name] for name in names},
                **settings,  # type: ignore[arg-type]
            )
        )

    def read(self) -> list[Reading]:
        return list(self._source.read(self._host))

    def samples(self) -> dict[tuple[str, str, str], float]:
        """Values by metric, host and port."""
        found = {}
        for each in self.read():
            if isinstance(each, Sample):
                labels = dict(each.series.labels)
                place = each.series.metric, labels.get("host", ""), labels.get("port", "")
                found[place] = each.value
        return found

    def name(self, guid: str) -> str:
        """The switch that ibsim calls by this GUID."""
        switches = enumerate(self.topology.switches)
        return {switch_id(self.topology, at): each.name for at, each in switches}[guid]


@pytest.fixture(scope="module")
def fabrics(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[Fabric, Topology]]]:
    """A fabric of each shape. Tests leave counters behind, and everything else as it was.

    Programs run in a folder of their own: ibsim's library makes its /sys where they start.
    """
    with ExitStack() as stack:
        stack.enter_context(chdir(tmp_path_factory.mktemp("programs")))
        made = {}
        for shape, spec in SHAPES.items():
            topology = build(spec)
            made[shape] = stack.enter_context(ib_fabric.fabric(topology)), topology
        yield made


Fabrics = dict[str, tuple[Fabric, Topology]]


@pytest.fixture
def watched(fabrics: Fabrics) -> Watched:
    """A source that knows nothing yet, on the smaller fabric."""
    return Watched(*fabrics["rail"])


def absences(readings: list[Reading], metric: str = "") -> list[Missing]:
    """Without the subnet manager's: here it sweeps once, and is gone."""
    missing = [each for each in readings if isinstance(each, Missing)]
    missing = [one for one in missing if "_manager_" not in one.series.metric]
    return [each for each in missing if not metric or each.series.metric == metric]


def node_name(topology: Topology, node: int) -> tuple[str, int]:
    """What a node of the simulated topology calls itself, and its GUID."""
    switch = node - 2 * topology.nics
    if switch >= 0:
        return topology.switches[switch].name, topology.switch_guid(switch)
    nic = node % topology.nics
    host = topology.host_name(topology.host_of_nic(nic))
    return f"{host} {topology.device_name(nic)}", topology.nic_guid(nic)


def cables_of(topology: Topology) -> set[tuple[str, ...]]:
    """Every cable from each switch's side: switch, port, neighbour, its port, its GUID."""
    found: set[tuple[str, ...]] = set()
    for link in range(2 * topology.nics, topology.links):
        if topology.source_switch[link] < 0:
            continue
        near, _ = node_name(topology, int(topology.source[link]))
        far, guid = node_name(topology, int(topology.target[link]))
        there = topology.port[topology.reverse[link]]
        found.add((near, str(topology.port[link]), far, str(there), f"0x{guid:016x}"))
    return found


def cables_in(readings: list[Reading]) -> set[tuple[str, ...]]:
    names = ("host", "port", "peer_name", "peer_port", "peer_guid")
    return {
        tuple(labels[name] for name in names) for labels in infos_in(readings, "fabric_link_info")
    }


def infos_in(readings: list[Reading], metric: str) -> list[dict[str, str]]:
    samples = (each for each in readings if isinstance(each, Sample))
    return [dict(each.series.labels) for each in samples if each.series.metric == metric]


# --- what is there -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_topology_found_is_the_topology_simulated(fabrics: Fabrics, shape: str) -> None:
    watched = Watched(*fabrics[shape])
    readings = watched.read()
    assert cables_in(readings) == cables_of(watched.topology)
    found = {labels["host"]: labels for labels in infos_in(readings, "fabric_switch_info")}
    assert set(found) == {switch.name for switch in watched.topology.switches}
    for at, switch in enumerate(watched.topology.switches):
        assert found[switch.name]["guid"] == f"0x{watched.topology.switch_guid(at):016x}"
        assert found[switch.name]["model"] == "Quantum-2"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_counter_that_was_set_arrives_under_its_name(fabrics: Fabrics, shape: str) -> None:
    watched = Watched(*fabrics[shape])
    commands = Console(watched.topology).commands(make_snapshot(watched.topology))
    watched.running.type(commands)
    samples = watched.samples()
    pattern = re.compile(r'PerformanceSet "(S-\w+)"\[(\d+)\] ([\w.]+)=(\d+)')
    wanted = [match.groups() for match in map(pattern.match, commands) if match]
    assert {name for _, _, name, _ in wanted} == set(METRICS)
    for guid, port, name, value in wanted:
        metric, factor = METRICS[name]
        got = samples[metric, watched.name(guid), port] - int(value) * factor
        if "Extended" in name:
            assert 0 <= got < OWN_TRAFFIC_BYTES, (guid, port, name)
        else:
            assert got == 0, (guid, port, name)
    ports = {(guid, port) for guid, port, _, _ in wanted}
    assert len(ports) == len(cables_of(watched.topology))


def test_states_rates_and_lanes_are_those_of_the_fabric(watched: Watched) -> None:
    samples = watched.samples()
    for host, port, *_ in cables_of(watched.topology):
        assert samples["fabric_port_state", host, port] == 4
        assert samples["fabric_port_physical_state", host, port] == 5
        assert samples["fabric_port_lanes", host, port] == 4
        # ibsim knows no NDR, so that the simulator says HDR.
        assert samples["fabric_port_rate_bits_per_second", host, port] == 200e9


def test_ticks_become_seconds_by_the_chip_and_the_rate(watched: Watched) -> None:
    place, name = switch_id(watched.topology, 0), watched.topology.switches[0].name
    watched.running.type([f'PerformanceSet "{place}"[1] PortCounters.PortXmitWait=3125000'])
    # Quantum-2: 8 bytes a tick; 4 lanes of 50 Gb/s are 25 GB/s.
    waited = watched.samples()["fabric_port_transmit_wait_seconds_total", name, "1"]
    assert waited == pytest.approx(3_125_000 * 8 / 25e9)


def test_virtual_lanes_are_asked_of_ports_that_wait(fabrics: Fabrics) -> None:
    watched = Watched(*fabrics["rail"], virtual_lanes=True)
    place, name = switch_id(watched.topology, 2), watched.topology.switches[2].name
    watched.read()
    watched.running.type([f'PerformanceSet "{place}"[1] PortCounters.PortXmitWait=3125001'])
    lanes = {
        (dict(each.series.labels)["host"], dict(each.series.labels)["lane"]): each.value
        for each in watched.read()
        if isinstance(each, Sample) and each.series.metric == "fabric_port_lane_wait_ticks_total"
    }
    # ibsim answers, and counts none of them.
    assert {(name, str(lane)) for lane in range(16)} <= set(lanes)
    assert set(lanes.values()) == {0}


def test_ports_of_hcas_are_read_when_they_are_wanted(fabrics: Fabrics) -> None:
    watched = Watched(*fabrics["rail"], hcas=True)
    guid = watched.topology.nic_guid(3)
    watched.running.type(
        [
            f'PerformanceSet "H-{guid:016x}"[1] PortCounters.SymbolErrorCounter=42',
            f'PerformanceSet "H-{guid:016x}"[1] PortCounters.LinkDownedCounter=0',
            f'PerformanceSet "H-{guid:016x}"[1] PortCountersExtended.PortRcvData=123456789012',
        ]
    )
    readings = watched.read()
    samples = watched.samples()
    host = watched.topology.host_name(watched.topology.host_of_nic(3))
    of_this = {
        each.series.metric: each.value
        for each in readings
        if isinstance(each, Sample)
        and ("host", host) in each.series.labels
        and ("device", watched.topology.device_name(3)) in each.series.labels
    }
    assert of_this["fabric_port_symbol_errors_total"] == 42
    assert of_this["fabric_port_link_downed_total"] == 0
    assert 0 <= of_this["fabric_port_receive_bytes_total"] - 4 * 123456789012 < OWN_TRAFFIC_BYTES
    assert of_this["fabric_port_state"] == 4
    names = {watched.topology.host_name(each) for each in range(watched.topology.hosts)}
    assert names <= {host for _, host, _ in samples}


# --- what goes wrong -----------------------------------------------------------------------------


def test_links_that_are_cut_are_down_and_come_back(watched: Watched) -> None:
    topology = watched.topology
    everything = cables_of(topology)
    assert cables_in(watched.read()) == everything
    for link in (topology.first_fabric_link, topology.down(3)):
        switch, port = int(topology.source_switch[link]), int(topology.port[link])
        name, place = topology.switches[switch].name, f'"{switch_id(topology, switch)}"[{port}]'
        watched.running.type([f"Unlink {place}"])
        readings = watched.read()
        lost = everything - cables_in(readings)
        assert (name, str(port)) in {(host, number) for host, number, *_ in lost}
        assert len(lost) == (2 if topology.target_switch[link] >= 0 else 1)
        samples = watched.samples()
        assert samples["fabric_port_state", name, str(port)] == 1
        assert samples["fabric_port_physical_state", name, str(port)] == 2
        assert ("fabric_port_rate_bits_per_second", name, str(port)) not in samples
        watched.running.type([f"ReLink {place}"])
        assert watched.samples()["fabric_port_state", name, str(port)] == 2
        watched.running.sweep()
        assert watched.samples()["fabric_port_state", name, str(port)] == 4
        assert cables_in(watched.read()) == everything


def test_a_switch_that_answers_nothing_is_named_and_the_others_are_read(watched: Watched) -> None:
    topology = watched.topology
    before = watched.samples()
    # A leaf that the polling host does not hang on: what is asked of others does not pass it.
    away = next(at for at, switch in enumerate(topology.switches) if switch.tier == 0 and at > 1)
    name = topology.switches[away].name
    watched.running.type([f'Error "{switch_id(topology, away)}" 100'])
    readings = watched.read()
    up = {
        dict(each.series.labels)["host"]: each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_switch_up"
    }
    assert up == {switch.name: float(switch.name != name) for switch in topology.switches}
    silence = absences(readings, "fabric_switch_poll_values")
    assert [(dict(each.series.labels)["host"], each.reason) for each in silence] == [
        (name, UnreadReason.TIMEOUT)
    ]
    now = {each.series.metric for each in readings if isinstance(each, Sample)}
    assert "fabric_subnet_silent_switches" in now
    places = {
        (metric, host, port)
        for metric, host, port in before
        if host != name and metric.endswith("_total")
    }
    assert places <= set(watched.samples())
    watched.running.type([f'Error "{switch_id(topology, away)}" 0'])
    assert set(watched.samples()) == set(before)


def test_a_switch_that_drops_half_of_what_it_is_asked_hides_nobody(watched: Watched) -> None:
    topology = watched.topology
    watched.read()
    away = next(at for at, switch in enumerate(topology.switches) if switch.tier == 0 and at > 1)
    watched.running.type([f'Error "{switch_id(topology, away)}" 50'])
    others = [switch.name for at, switch in enumerate(topology.switches) if at != away]
    for _ in range(5):
        readings = watched.read()
        for each in absences(readings):
            place = dict(each.series.labels)
            assert place["host"] == topology.switches[away].name, each
            assert each.reason is UnreadReason.TIMEOUT
        hosts = [
            dict(each.series.labels)["host"]
            for each in readings
            if isinstance(each, Sample) and each.series.metric == "fabric_port_symbol_errors_total"
        ]
        assert all(hosts.count(name) == 4 for name in others)
    watched.running.type([f'Error "{switch_id(topology, away)}" 0'])


def test_counters_at_their_end_are_saturated(watched: Watched) -> None:
    place, name = switch_id(watched.topology, 1), watched.topology.switches[1].name
    ends = {
        "PortCounters.SymbolErrorCounter": 65_535,
        "PortCounters.LinkDownedCounter": 255,
        "PortCounters.LocalLinkIntegrityErrors": 15,
        "PortCounters.PortXmitWait": 4_294_967_295,
    }
    watched.running.type([f'PerformanceSet "{place}"[2] {at}={end}' for at, end in ends.items()])
    watched.running.type([f'PerformanceSet "{place}"[3] PortCounters.SymbolErrorCounter=65534'])
    readings, samples = watched.read(), watched.samples()
    watched.running.type([f'PerformanceSet "{place}"[2] {at}=0' for at in ends])
    found = {(each.series.metric, dict(each.series.labels)["port"]) for each in absences(readings)}
    assert found == {
        ("fabric_port_symbol_errors_total", "2"),
        ("fabric_port_link_downed_total", "2"),
        ("fabric_port_local_link_integrity_errors_total", "2"),
        ("fabric_port_transmit_wait_ticks_total", "2"),
        ("fabric_port_transmit_wait_seconds_total", "2"),
    }
    assert {each.reason for each in absences(readings)} == {UnreadReason.SATURATED}
    assert samples["fabric_port_symbol_errors_total", name, "3"] == 65_534
    assert not absences(watched.read())


def test_discards_are_looked_into_where_there_are_any(watched: Watched) -> None:
    place, name = switch_id(watched.topology, 1), watched.topology.switches[1].name
    watched.running.type(
        [
            f'PerformanceSet "{place}"[2] PortCounters.PortXmitDiscards=77',
            f'PerformanceSet "{place}"[2] PortXmitDiscardDetails.PortSwHOQLifetimeLimitDiscards=55',
            f'PerformanceSet "{place}"[2] PortXmitDiscardDetails.PortInactiveDiscards=22',
        ]
    )
    samples = watched.samples()
    assert samples["fabric_port_transmit_discards_total", name, "2"] == 77
    assert samples["fabric_port_transmit_lifetime_discards_total", name, "2"] == 55
    assert samples["fabric_port_transmit_inactive_discards_total", name, "2"] == 22
    looked_into = {place[1:] for place in samples if place[0].endswith("lifetime_discards_total")}
    discarding = {
        place[1:]
        for place, value in samples.items()
        if place[0] == "fabric_port_transmit_discards_total" and value
    }
    assert looked_into == discarding
