"""The poller of fast mode against the production sources `snmp` and `ib_fabric`.

Both ask the same simulated switches: as snmpsim and ibsim play them, and as recordings in a tree,
which know more than those two (every speed, lanes that were lost, wide counters).
"""

import copy
import datetime as dt
from collections.abc import Iterable
from contextlib import chdir, closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from api.fabric.read import read_topology
from collector.agent.exposition import MISSING_METRIC, missing_series
from collector.agent.settings import load_settings
from collector.contract.model import Missing, Reading, Sample
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from collector.contract.wire import Batch, decode_batch, encode_batch
from collector.doors.commands import recorded_as as recorded_by_agent
from collector.doors.host import Host
from collector.sources import Source, discover
from collector.sources.ib_fabric import IbFabric
from collector.sources.ib_fabric import Settings as IbSettings
from collector.sources.snmp import Settings as SnmpSettings
from collector.sources.snmp import Snmp, Switch
from simulator.engine import Simulation
from simulator.faults import discover as discover_faults
from simulator.interfaces.ibsim import Console
from simulator.interfaces.infiniband_diags import recorded_as
from simulator.interfaces.poller_tree import OTHER_SOURCES, PollerTree
from simulator.interfaces.switch_tables import Flavour
from simulator.jobs.model import JobSpec
from simulator.readings.poller import Poller, PollerSpec
from simulator.scenario import Scenario, plan
from simulator.score.handicap import Handicap
from simulator.score.run import play
from simulator.score.simulated_service import SimulatedService
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric, Topology
from tests.doubles import snmp_responder
from tests.stands import ib_fabric
from tests.tools import peers
from tests.worlds.simulated import START_UNIX_NS, make_snapshot

ABOUT_THE_POLL = (
    "fabric_switch_poll_",
    "fabric_switch_table_rows",
    "fabric_subnet_",
)
"""Prefixes of metrics about polling itself; fast mode leaves them out."""
OWN_TRAFFIC_BYTES = 1_000_000
"""More than ibsim counts of the questions themselves."""
TRAFFIC = ("_bytes_total", "_packets_total")
SPEEDS = {Fabric.ROCE: "400GbE", Fabric.INFINIBAND: "NDR"}

each_flavour = pytest.mark.parametrize("flavour", list(Flavour))
each_fabric = pytest.mark.parametrize("fabric", list(Fabric))
needs_ibsim = pytest.mark.peer(
    "ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "perfquery", "ibqueryerrors"
)

SampleSet = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def small(fabric: Fabric, speed: str = "") -> Topology:
    """Four leaves and two spines with four ports each."""
    return build(
        ClusterSpec(
            hosts=4,
            gpus_per_host=2,
            nics_per_host=2,
            fabric=fabric,
            speed=speed or SPEEDS[fabric],
            switch_ports=4,
        )
    )


# Both outputs in one shape -----------------------------------------------------------------------


def samples_read(readings: Iterable[Reading], source: str) -> SampleSet:
    """Samples, and absences as samples, without those about the asking itself."""
    found: SampleSet = {}
    for each in readings:
        assert isinstance(each, Sample | Missing)
        is_told = isinstance(each, Missing) and each.series.metric == "fabric_switch_poll_values"
        if each.series.metric.startswith(ABOUT_THE_POLL) and not is_told:
            continue
        if isinstance(each, Sample):
            found[each.series.metric, each.series.labels] = float(each.value)
        else:
            series = missing_series(each, source)
            found[series.metric, series.labels] = 1.0
    return found


def samples_sent(batches: Iterable[Batch]) -> SampleSet:
    """What the poller's batches of one poll hold."""
    found: SampleSet = {}
    for batch in batches:
        rows = batch.series_rows()
        assert rows == sorted(rows, key=lambda row: (row[0], tuple(row[1].items())))
        assert np.frombuffer(batch.index, dtype="<u4").tolist() == list(range(len(rows)))
        values = np.frombuffer(batch.value, dtype="<f8").tolist()
        for (metric, labels), value in zip(rows, values, strict=True):
            assert (metric, tuple(labels.items())) not in found
            found[metric, tuple(labels.items())] = value
    return found


class Fast:
    """The poller of fast mode, one poll after the other."""

    def __init__(self, topology: Topology, flavour: Flavour = Flavour.SONIC) -> None:
        spec = PollerSpec(interval_s=0.0, flavour=flavour)
        self._poller = Poller(topology, spec, "", "run", samples_max=50_000)

    def poll(self, snapshot: Snapshot) -> SampleSet:
        sent = (encode_batch(one) for one in self._poller.batches(snapshot))
        return samples_sent(map(decode_batch, sent))


def check_equal(read: SampleSet, sent: SampleSet, *, own_bytes: int = 0) -> None:
    """Equal, but for traffic that the asking itself may have added."""
    assert {name: read[name] for name in read.keys() - sent.keys()} == {}
    assert {name: sent[name] for name in sent.keys() - read.keys()} == {}
    for name, value in read.items():
        if own_bytes and name[0].endswith(TRAFFIC):
            assert 0 <= value - sent[name] < own_bytes, name
        else:
            assert value == sent[name], name


# Recordings --------------------------------------------------------------------------------------


class Recorded:
    """The source of a production agent on the tree of the polling machine."""

    def __init__(self, folder: Path, topology: Topology, flavour: Flavour = Flavour.SONIC) -> None:
        self._tree = PollerTree(folder, topology, flavour)
        self._folder = folder
        self._host = Host(folder)
        self._source: Source | None = None
        self.name = "ib_fabric" if topology.fabric is Fabric.INFINIBAND else "snmp"

    def poll(self, snapshot: Snapshot) -> SampleSet:
        """Write the tree, and let the source read it."""
        self._tree.write(snapshot)
        if self._source is None:
            self._source = self._make()
        return samples_read(self._source.read(self._host), self.name)

    def _make(self) -> Source:
        """With the settings of the demo's agent, but that it reads everything at every poll."""
        kinds = discover()
        self._tree.agent_flags("http://127.0.0.1:9700", "lab")
        settings = load_settings(
            {name: kind.Settings for name, kind in kinds.items()},
            file=self._folder / "agent.toml",
            environment={},
            flags={},
        )
        assert {name for name, each in settings.sources.items() if each.enabled} == {
            "snmp",
            self.name,
        }
        own = settings.sources[self.name]
        if self.name == "snmp":
            own = msgspec.structs.replace(own, neighbours_every=1, sensors_every=1)
        else:
            own = msgspec.structs.replace(own, topology_seconds=0.0)
        return kinds[self.name](own)


def grown(snapshot: Snapshot, **more: int) -> Snapshot:
    """The same cluster 10 s on: counters have grown, each link's by another amount."""
    amounts = {"bytes": 10**9, "packets": 10**6, "pause_frames": 70, "wait_ns": 10**7} | more
    links = snapshot.links
    steps = np.arange(1, len(links.bytes) + 1)
    fresh = replace(
        links, **{name: getattr(links, name) + steps * by for name, by in amounts.items()}
    )
    return replace(snapshot, time_s=snapshot.time_s + 10, links=fresh, host_links=fresh)


def healthy_snapshot(topology: Topology) -> Snapshot:
    """Random counters; on InfiniBand nothing is discarded, and what waits for pauses does not."""
    snapshot = make_snapshot(topology)
    if topology.fabric is Fabric.INFINIBAND:
        snapshot.links.dropped_packets[:] = 0
    else:
        snapshot.links.wait_ns[:] = 0
    return snapshot


@each_flavour
def test_a_poller_says_what_snmp_reads(flavour: Flavour, tmp_path: Path) -> None:
    topology = small(Fabric.ROCE)
    recorded, fast = Recorded(tmp_path, topology, flavour), Fast(topology, flavour)
    first = healthy_snapshot(topology)
    sent = fast.poll(first)
    check_equal(recorded.poll(first), sent)
    assert len(sent) > 24 * 50
    later = grown(first)
    check_equal(recorded.poll(later), fast.poll(later))


def test_narrow_counters_of_switches_are_extended_alike(tmp_path: Path) -> None:
    topology = small(Fabric.ROCE)
    recorded, fast = Recorded(tmp_path, topology), Fast(topology)
    first = healthy_snapshot(topology)
    first.links.corrupted_packets[:] = (1 << 32) - 7
    first.links.queue_bytes[:] = 1 << 40
    later = grown(first, corrupted_packets=9, symbol_errors=1 << 31, dropped_packets=3)
    for snapshot in (first, later):
        sent = fast.poll(snapshot)
        check_equal(recorded.poll(snapshot), sent)
    errors = [value for (metric, _), value in sent.items() if metric.endswith("crc_errors_total")]
    assert min(errors) >= 1 << 32


@each_fabric
def test_trouble_with_links_is_told_alike(fabric: Fabric, tmp_path: Path) -> None:
    """A host's cable and one between switches are cut, a third has lost lanes; then all mend."""
    topology = small(fabric)
    recorded, fast = Recorded(tmp_path, topology), Fast(topology)
    first = healthy_snapshot(topology)
    check_equal(recorded.poll(first), fast.poll(first))
    broken = grown(copy.deepcopy(first), downs=1)
    broken.world.link_up[[topology.up(3), topology.first_fabric_link]] = False
    slow = topology.first_fabric_link + 5
    broken.world.link_speed_share[[slow, topology.reverse[slow]]] = 0.5
    sent = fast.poll(broken)
    check_equal(recorded.poll(broken), sent)
    states = [value for (metric, _), value in sent.items() if metric == "fabric_port_state"]
    assert (states.count(1), states.count(4)) == (3, 21)
    rates = {
        value for (metric, _), value in sent.items() if metric.endswith("rate_bits_per_second")
    }
    assert rates == {200e9, 400e9}
    mended = grown(replace(broken, world=first.world))
    check_equal(recorded.poll(mended), fast.poll(mended))


def test_waiting_is_told_in_true_seconds_whatever_the_rate(tmp_path: Path) -> None:
    topology = small(Fabric.INFINIBAND)
    recorded, fast = Recorded(tmp_path, topology), Fast(topology)
    first = healthy_snapshot(topology)
    first.links.wait_ns[:] = 10**12
    slow = topology.first_fabric_link
    halved = grown(copy.deepcopy(first), wait_ns=10**9)
    halved.world.link_speed_share[:] = 0.5
    again = grown(replace(halved, world=first.world), wait_ns=10**9)
    for snapshot in (first, halved, again):
        sent = fast.poll(snapshot)
        check_equal(recorded.poll(snapshot), sent)
    name = topology.switches[topology.source_switch[slow]].name
    place = (("device", name), ("host", name), ("port", str(topology.port[slow])))
    waited = sent["fabric_port_transmit_wait_seconds_total", place]
    assert waited == pytest.approx(again.links.wait_ns[slow] / NS, rel=1e-9)


@each_fabric
def test_a_simulated_run_is_told_alike_at_every_poll(fabric: Fabric, tmp_path: Path) -> None:
    """With a link that flaps, congestion, and chance at work."""
    cluster = ClusterSpec(hosts=4, gpus_per_host=2, nics_per_host=2, fabric=fabric, switch_ports=4)
    job = JobSpec(name="12", hosts=(0, 1, 2, 3), tensor=1, startup_seconds=1.0)
    scenario = Scenario(
        cluster=replace(cluster, speed=SPEEDS[fabric]),
        jobs=(job,),
        seconds=8.0,
        start_unix_ns=START_UNIX_NS,
    )
    places = Simulation(scenario).cluster
    flap = plan(discover_faults()["link_flap"], places, np.random.default_rng(3), 2.0)
    simulation = Simulation(replace(scenario, injections=(flap,)))
    recorded = Recorded(tmp_path, simulation.topology)
    fast = Fast(simulation.topology)
    states: set[float] = set()
    for snapshot in simulation.run():
        sent = fast.poll(snapshot)
        check_equal(recorded.poll(snapshot), sent)
        states |= {value for (metric, _), value in sent.items() if metric == "fabric_port_state"}
    assert states == {1.0, 4.0}
    sums = [value for (metric, _), value in sent.items() if metric.endswith("transmit_bytes_total")]
    assert sum(sums) > 10**9


def isolated(snapshot: Snapshot, switch: int) -> Snapshot:
    """The same with all cables of a switch cut."""
    topology = snapshot.topology
    cut = grown(copy.deepcopy(snapshot))
    touches = (topology.source_switch == switch) | (topology.target_switch == switch)
    cut.world.link_up[touches] = False
    return cut


def test_a_switch_that_nothing_reaches_is_told_alike(tmp_path: Path) -> None:
    topology = small(Fabric.INFINIBAND)
    recorded, fast = Recorded(tmp_path, topology), Fast(topology)
    first = healthy_snapshot(topology)
    check_equal(recorded.poll(first), fast.poll(first))
    alone = len(topology.switches) - 1
    sent = fast.poll(isolated(first, alone))
    check_equal(recorded.poll(isolated(first, alone)), sent)
    check_silence(sent, topology.switches[alone].name)


def check_silence(sent: SampleSet, name: str) -> None:
    """A known switch that does not answer: the poller reports only that."""
    metrics = {metric for metric, labels in sent if ("host", name) in labels}
    assert metrics == {"fabric_switch_info", "fabric_switch_up", MISSING_METRIC}
    assert sent["fabric_switch_up", (("host", name), ("method", "ib"))] == 0


def test_a_switch_that_was_never_found_is_not_told_of(tmp_path: Path) -> None:
    topology = small(Fabric.INFINIBAND)
    alone = isolated(healthy_snapshot(topology), 0)
    sent = Fast(topology).poll(alone)
    check_equal(Recorded(tmp_path, topology).poll(alone), sent)
    assert not any(("host", topology.switches[0].name) in labels for _, labels in sent)


def test_the_polling_agent_has_all_other_sources_off() -> None:
    assert set(discover()) - {"snmp", "ib_fabric"} == set(OTHER_SOURCES)


@pytest.mark.parametrize("ports", [3, 64, 200])
def test_commands_are_recorded_where_an_agent_looks_for_them(ports: int) -> None:
    numbers = ",".join(map(str, range(1, ports + 1)))
    words = ["perfquery", "-t", "200", "-x", "-l", "2", numbers]
    assert f"commands/{recorded_as(*words)}" == recorded_by_agent(words)


# The real responders -----------------------------------------------------------------------------


def test_a_poller_says_what_snmp_reads_from_snmpsim() -> None:
    topology = small(Fabric.ROCE)
    first = healthy_snapshot(topology)
    broken = grown(copy.deepcopy(first), downs=1, dropped_packets=4)
    broken.world.link_up[topology.first_fabric_link] = False
    fast = Fast(topology)
    with (
        snmp_responder.agent(first, Flavour.SONIC) as responder,
        closing(ask_snmpsim(responder.port, topology)) as source,
    ):
        for snapshot in (first, broken):
            responder.switches.update(snapshot)
            read = samples_read(source.read(Host(Path("/"))), "snmp")
            sent = {at_loopback(name): each for name, each in fast.poll(snapshot).items()}
            check_equal(read, sent)


def ask_snmpsim(port: int, topology: Topology) -> Snmp:
    """The source on all switches behind one port; a busy machine is slow to answer."""
    names = [switch.name for switch in topology.switches]
    switches = (Switch(name=name, address="127.0.0.1", port=port, community=name) for name in names)
    return Snmp(
        SnmpSettings(
            switches=tuple(switches),
            timeout_seconds=120,
            switch_seconds=60,
            answer_seconds=20,
            neighbours_every=1,
            sensors_every=1,
        )
    )


def at_loopback(
    name: tuple[str, tuple[tuple[str, str], ...]],
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The series with the address at which snmpsim plays all switches."""
    metric, labels = name
    return metric, tuple(
        (label, "127.0.0.1" if label == "address" else text) for label, text in labels
    )


@needs_ibsim
def test_a_poller_says_what_ib_fabric_reads_from_ibsim(tmp_path: Path) -> None:
    """On HDR, the fastest that ibsim knows; it reports every link as capable of 12X."""
    topology = small(Fabric.INFINIBAND, "HDR")
    console, fast = Console(topology), Fast(topology)
    first = healthy_snapshot(topology)
    cut = grown(copy.deepcopy(first), downs=1)
    cut.world.link_up[[topology.first_fabric_link + 2, topology.up(5)]] = False
    alone = len(topology.switches) - 1
    with chdir(tmp_path), ib_fabric.fabric(topology) as running:
        source = ask_ibsim(running)
        for snapshot in (first, cut, isolated(first, alone)):
            running.type(console.commands(snapshot))
            running.sweep()
            read = samples_read(source.read(Host(Path("/"))), "ib_fabric")
            sent = fast.poll(snapshot)
            read, sent_by_fast = without_ibsims_own(read), without_ibsims_own(sent)
            check_equal(read, sent_by_fast, own_bytes=OWN_TRAFFIC_BYTES)
    assert any(metric == "fabric_port_transmit_wait_seconds_total" for metric, _ in sent)
    check_silence(sent, topology.switches[alone].name)


def ask_ibsim(running: ib_fabric.Fabric) -> IbFabric:
    """The source on the first HCA of a fabric."""
    program = peers.find("perfquery")
    assert program is not None
    names = ("LD_PRELOAD", "SIM_HOST", "IBSIM_SOCKNAME")
    return IbFabric(
        IbSettings(
            enabled=True,
            timeout_seconds=60,
            topology_seconds=0,
            programs_dir=str(program.parent),
            environment={name: running.environment[name] for name in names},
        )
    )


def without_ibsims_own(samples: SampleSet) -> SampleSet:
    """Without widths that ibsim makes up, and what it counts of questions sent into a cut."""
    own = ("fabric_port_could_be_faster", "_discards_total", "_switch_relay_errors_total")
    return {name: value for name, value in samples.items() if not name[0].endswith(own)}


# The scoreboard ----------------------------------------------------------------------------------


class Onlooker:
    """An evaluator without output that reads the service's cables."""

    def __init__(self, service: SimulatedService) -> None:
        self._service = service
        self.links: list[int] = []

    def evaluate(self, now_ns: int) -> list[Verdict]:
        now = dt.datetime.fromtimestamp(now_ns / NS, tz=dt.UTC)
        self.links.append(len(read_topology(self._service.inventory.links, now).links))
        return []


@each_fabric
def test_the_scoreboards_service_is_told_of_switches(fabric: Fabric, tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=2, gpus_per_host=2, nics_per_host=2, fabric=fabric)
    cluster = replace(spec, speed=SPEEDS[fabric])
    scenario = Scenario(cluster=cluster, jobs=(), seconds=2.0, start_unix_ns=START_UNIX_NS)
    simulation = Simulation(scenario)
    onlookers: list[Onlooker] = []

    def make_evaluator(service: SimulatedService, _: Handicap) -> Onlooker:
        onlookers.append(Onlooker(service))
        return onlookers[0]

    play(simulation, tmp_path, make_evaluator)
    topology = simulation.topology
    assert onlookers[0].links == [(topology.links - 2 * topology.nics) // 2] * 2
