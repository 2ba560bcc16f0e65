"""Simulated switches answer real tools: pysnmp through snmpsim, infiniband-diags through ibsim."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.interfaces.ibsim import Console, hca_lid, switch_lid
from simulator.interfaces.snmp import Switches
from simulator.interfaces.switch_tables import Flavour, interface_index, interface_name
from simulator.snapshot import LinkCounters, Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric as FabricKind
from simulator.topology.model import Topology
from tests.doubles import snmp_responder
from tests.doubles.snmp_responder import Agent, NoAnswerError
from tests.stands import ib_fabric
from tests.stands.ib_fabric import Fabric
from tests.worlds.simulated import make_snapshot

IF_OPERATIONAL_STATUS = "1.3.6.1.2.1.2.2.1.8"
IF_IN_ERRORS = "1.3.6.1.2.1.2.2.1.14"
IF_OUT_DISCARDS = "1.3.6.1.2.1.2.2.1.19"
IF_NAME = "1.3.6.1.2.1.31.1.1.1.1"
IF_IN_OCTETS = "1.3.6.1.2.1.31.1.1.1.6"
IF_IN_PACKETS = "1.3.6.1.2.1.31.1.1.1.7"
IF_OUT_OCTETS = "1.3.6.1.2.1.31.1.1.1.10"
IF_HIGH_SPEED = "1.3.6.1.2.1.31.1.1.1.15"
FRAME_CHECK_ERRORS = "1.3.6.1.2.1.10.7.2.1.3"
UPTIME = "1.3.6.1.2.1.1.3.0"
LLDP_PORT = "1.0.8802.1.1.2.1.4.1.1.7"
LLDP_PORT_DESCRIPTION = "1.0.8802.1.1.2.1.4.1.1.8"
LLDP_SYSTEM = "1.0.8802.1.1.2.1.4.1.1.9"

PAUSES_SENT = "1.3.6.1.4.1.9.9.813.1.2.1.2"
PAUSES_RECEIVED = "1.3.6.1.4.1.9.9.813.1.2.1.3"


def small(fabric: FabricKind) -> Topology:
    """Leaves and spines with a few ports each."""
    return build(
        ClusterSpec(
            hosts=4,
            gpus_per_host=2,
            nics_per_host=2,
            fabric=fabric,
            speed="NDR" if fabric is FabricKind.INFINIBAND else "400GbE",
            switch_ports=4,
        )
    )


def later(snapshot: Snapshot) -> Snapshot:
    """The same cluster 10 s on: counters have grown, each link's by another amount."""
    links = snapshot.links
    grown = {
        name: getattr(links, name) + np.arange(1, len(links.bytes) + 1) * 1000
        for name in ("bytes", "packets", "pause_frames", "dropped_packets")
    }
    fresh = replace(links, **grown)
    return replace(snapshot, time_s=snapshot.time_s + 10, links=fresh, host_links=fresh)


def with_links(snapshot: Snapshot, links: LinkCounters) -> Snapshot:
    return replace(snapshot, links=links, host_links=links)


def ports_of(topology: Topology, switch: int) -> dict[int, int]:
    """The link that leaves each port of a switch, by port."""
    links = np.flatnonzero(topology.source_switch == switch)
    return {int(topology.port[link]): int(link) for link in links}


# SNMP -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def start() -> Snapshot:
    return make_snapshot(small(FabricKind.ROCE))


@pytest.fixture(scope="module")
def sonic(start: Snapshot) -> Iterator[Agent]:
    with snmp_responder.agent(start, Flavour.SONIC) as running:
        yield running


@pytest.fixture
def agent(sonic: Agent, start: Snapshot) -> Agent:
    """At the first snapshot again, whatever the last test made of it."""
    sonic.switches._readings.values[:] = 0
    sonic.switches.update(start)
    return sonic


def expected(snapshot: Snapshot, switch: int, counter: str, *, received: bool) -> dict[str, int]:
    """A link counter by ifIndex: of the link that leaves a port, or that it receives from."""
    topology = snapshot.topology
    column = getattr(snapshot.links, counter)
    return {
        str(interface_index(Flavour.SONIC, port)): int(
            column[topology.reverse[link] if received else link]
        )
        for port, link in ports_of(topology, switch).items()
    }


def test_a_walk_reads_the_numbers_of_the_snapshot(agent: Agent, start: Snapshot) -> None:
    for number, switch in enumerate(start.topology.switches[:2]):
        sent = expected(start, number, "bytes", received=False)
        assert agent.walk(switch.name, IF_OUT_OCTETS) == sent
        errors = expected(start, number, "corrupted_packets", received=True)
        assert agent.walk(switch.name, IF_IN_ERRORS) == errors
        assert agent.walk(switch.name, FRAME_CHECK_ERRORS) == errors
        drops = expected(start, number, "dropped_packets", received=False)
        assert agent.walk(switch.name, IF_OUT_DISCARDS) == drops
        arrived = expected(start, number, "packets", received=True)
        lost = expected(start, number, "lost_packets", received=True)
        assert agent.walk(switch.name, IF_IN_PACKETS) == {
            index: arrived[index] - lost[index] for index in arrived
        }
        assert set(agent.walk(switch.name, IF_HIGH_SPEED).values()) == {400_000}


def test_after_an_update_the_same_process_says_the_new_numbers(
    agent: Agent, start: Snapshot
) -> None:
    name = start.topology.switches[0].name
    before = agent.walk(name, IF_OUT_OCTETS)
    fresh = later(start)
    agent.switches.update(fresh)
    after = agent.walk(name, IF_OUT_OCTETS)
    assert after == expected(fresh, 0, "bytes", received=False)
    assert all(after[index] > before[index] for index in before)
    assert agent.get(name, UPTIME) == [7000]


def test_neighbours_give_the_topology_back(agent: Agent, start: Snapshot) -> None:
    """Every cable of a switch, from both its ends where both are switches'."""
    topology, found = start.topology, set()
    for switch in topology.switches:
        names = {index: text.decode() for index, text in agent.walk(switch.name, IF_NAME).items()}
        systems = agent.walk(switch.name, LLDP_SYSTEM)
        ports = agent.walk(switch.name, LLDP_PORT_DESCRIPTION)
        for row, system in systems.items():
            _, index, _ = row.split(".")
            found.add((switch.name, names[index], system.decode(), ports[row].decode()))
    cables = set()
    for link in np.flatnonzero(topology.source_switch >= 0):
        other = int(topology.target_switch[link])
        nic = int(topology.target[link]) % topology.nics
        far = (
            (topology.switches[other].name, _name(topology, int(topology.reverse[link])))
            if other >= 0
            else (topology.host_name(topology.host_of_nic(nic)), topology.interface_name(nic))
        )
        here = topology.switches[topology.source_switch[link]].name
        cables.add((here, _name(topology, int(link)), *far))
    assert found == cables
    between = {cable for cable in found if cable[2] in {s.name for s in topology.switches}}
    assert between, "a topology without cables between switches shows nothing"
    assert {(far, far_port, here, port) for here, port, far, far_port in between} == between


def _name(topology: Topology, link: int) -> str:
    return interface_name(Flavour.SONIC, int(topology.port[link]))


def test_a_host_is_known_by_the_address_of_its_nic(agent: Agent, start: Snapshot) -> None:
    topology = start.topology
    leaf = int(topology.source_switch[topology.down(0)])
    index = interface_index(Flavour.SONIC, int(topology.port[topology.down(0)]))
    name = topology.switches[leaf].name
    (address,) = agent.get(name, f"{LLDP_PORT}.0.{index}.1")
    assert address.hex(":") == topology.nic_mac(0)


def test_counters_of_32_bits_begin_anew(agent: Agent, start: Snapshot) -> None:
    wide = replace(start.links, corrupted_packets=np.full_like(start.links.bytes, 2**32 + 7))
    agent.switches.update(with_links(start, wide))
    name = start.topology.switches[0].name
    assert set(agent.walk(name, IF_IN_ERRORS).values()) == {7}


def test_two_switches_are_asked_at_once(agent: Agent, start: Snapshot) -> None:
    names = [switch.name for switch in start.topology.switches[:2]]
    with ThreadPoolExecutor(2) as pool:
        walks = list(pool.map(lambda name: agent.walk(name, IF_OUT_OCTETS), names))
    for number, walk in enumerate(walks):
        assert walk == expected(start, number, "bytes", received=False)


def test_a_cut_cable_is_down_at_both_ends_and_dark(agent: Agent, start: Snapshot) -> None:
    topology = start.topology
    world = start.world
    link = topology.first_fabric_link
    ends = [
        (
            topology.switches[topology.source_switch[end]].name,
            interface_index(Flavour.SONIC, int(topology.port[end])),
        )
        for end in (link, int(topology.reverse[link]))
    ]
    world.link_up[link] = False
    try:
        agent.switches.update(start)
        for name, index in ends:
            assert agent.get(name, f"{IF_OPERATIONAL_STATUS}.{index}") == [2]
            light = f"1.3.6.1.2.1.99.1.1.1.4.{1_000_000 + 10 * index + 1}"
            assert agent.get(name, light) == [0]
    finally:
        world.reset()
    agent.switches.update(start)
    for name, index in ends:
        assert agent.get(name, f"{IF_OPERATIONAL_STATUS}.{index}") == [1]


def test_a_pause_that_a_leaf_sends_stops_the_link_that_comes_in(
    agent: Agent, start: Snapshot
) -> None:
    topology, frames = start.topology, start.links.pause_frames
    name = topology.switches[topology.source_switch[topology.down(0)]].name
    index = interface_index(Flavour.SONIC, int(topology.port[topology.down(0)]))
    sent, received = agent.get(name, f"{PAUSES_SENT}.{index}.3", f"{PAUSES_RECEIVED}.{index}.3")
    assert sent == frames[topology.up(0)]
    assert received == frames[topology.down(0)]


def test_a_switch_that_is_not_there_does_not_answer(agent: Agent) -> None:
    with pytest.raises(NoAnswerError):
        agent.get("leaf-of-nobody", UPTIME, timeout_s=0.1)


def test_an_update_before_the_start_is_refused(start: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="start"):
        Switches(tmp_path, start.topology, Flavour.SONIC).update(start)


# InfiniBand -------------------------------------------------------------------------------------

NEEDS_IBSIM = pytest.mark.peer(
    "ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "perfquery", "ibqueryerrors"
)


@pytest.fixture
def infiniband() -> Iterator[tuple[Fabric, Snapshot]]:
    snapshot = make_snapshot(small(FabricKind.INFINIBAND))
    with ib_fabric.fabric(snapshot.topology) as running:
        yield running, snapshot


def counters(running: Fabric, lid: int, port: int, *, extended: bool = False) -> dict[str, int]:
    """What perfquery reads of a port."""
    text = running.run("perfquery", *(["-x"] if extended else []), str(lid), str(port))
    return {
        name: int(value, 0) for name, value in re.findall(r"^(\w+):\.+(\w+)$", text, re.MULTILINE)
    }


@NEEDS_IBSIM
def test_ibnetdiscover_finds_every_switch_and_hca(infiniband: tuple[Fabric, Snapshot]) -> None:
    running, snapshot = infiniband
    topology = snapshot.topology
    text = running.run("ibnetdiscover", "-p")
    cables = set(
        re.findall(
            r"^(?:SW|CA) +\d+ +(\d+) .*- .. +\d+ +(\d+) .*\( '(.*)' - '(.*)' \)$",
            text,
            re.MULTILINE,
        )
    )
    names = [switch.name for switch in topology.switches]
    names += [
        f"{topology.host_name(topology.host_of_nic(nic))} {topology.device_name(nic)}"
        for nic in range(topology.nics)
    ]
    wanted = set()
    for link in range(2 * topology.nics, topology.links):
        near, far = (_node(topology, int(end[link])) for end in (topology.source, topology.target))
        back = topology.reverse[link]
        wanted.add((str(topology.port[link]), str(topology.port[back]), names[near], names[far]))
    assert cables == wanted


def _node(topology: Topology, node: int) -> int:
    """Its place in a list of switches and then NICs."""
    switch = node - 2 * topology.nics
    return switch if switch >= 0 else len(topology.switches) + node % topology.nics


@NEEDS_IBSIM
def test_perfquery_reads_what_was_set(infiniband: tuple[Fabric, Snapshot]) -> None:
    running, snapshot = infiniband
    topology, links = snapshot.topology, snapshot.links
    running.type(Console(topology).commands(snapshot))
    link = topology.first_fabric_link
    back = topology.reverse[link]
    lid, port = switch_lid(int(topology.source_switch[link])), int(topology.port[link])
    narrow = counters(running, lid, port)
    assert narrow["SymbolErrorCounter"] == links.symbol_errors[back]
    assert narrow["PortRcvErrors"] == links.corrupted_packets[back]
    assert narrow["PortXmitDiscards"] == links.dropped_packets[link]
    assert narrow["LinkDownedCounter"] == max(links.downs[link], links.downs[back])
    # Quantum-2 ticks every 8 bytes of the port, which claims HDR: 25 bytes a nanosecond.
    assert narrow["PortXmitWait"] == int(links.wait_ns[link] * 25 / 8)
    wide = counters(running, lid, port, extended=True)
    # Management datagrams are counted too; there are a few hundred at most.
    assert 0 <= wide["PortXmitPkts"] - links.packets[link] < 10_000
    assert 0 <= wide["PortXmitData"] - links.bytes[link] // 4 < 1_000_000
    hca = counters(running, hca_lid(topology, 3), 1)
    assert hca["SymbolErrorCounter"] == links.symbol_errors[topology.down(3)]
    # A NIC's tick stays what it is in its host's sysfs: 32 bytes of a lane of 100 Gb/s.
    assert hca["PortXmitWait"] == int(links.wait_ns[topology.up(3)] * 12.5 / 32)


@NEEDS_IBSIM
def test_ibqueryerrors_names_the_port_with_errors(infiniband: tuple[Fabric, Snapshot]) -> None:
    running, snapshot = infiniband
    topology = snapshot.topology
    nothing = {name: np.zeros_like(snapshot.links.bytes) for name in vars(snapshot.links)}
    link = topology.first_fabric_link
    nothing["symbol_errors"][topology.reverse[link]] = 4321
    running.type(Console(topology).commands(with_links(snapshot, LinkCounters(**nothing))))
    text = running.run("ibqueryerrors", "--skip-sl")
    guid = topology.switch_guid(int(topology.source_switch[link]))
    wanted = f"GUID {guid:#x} port {topology.port[link]}: [SymbolErrorCounter == 4321]"
    found = [line.strip() for line in text.splitlines() if line.startswith("   GUID")]
    assert [line for line in found if "port ALL" not in line] == [wanted]


@NEEDS_IBSIM
def test_a_cut_link_is_down_and_comes_back(infiniband: tuple[Fabric, Snapshot]) -> None:
    running, snapshot = infiniband
    topology, console = snapshot.topology, Console(snapshot.topology)
    running.type(console.commands(snapshot))
    for link in (topology.first_fabric_link, topology.down(3)):
        name = topology.switches[topology.source_switch[link]].name
        row = re.compile(rf'"\s*{name}"\s+\d+\s+{topology.port[link]}\[  \] ==\((.*?)\)==>')
        snapshot.world.link_up[link] = False
        running.type(console.commands(snapshot))
        assert "Down" in _only(row.findall(running.run("iblinkinfo", "-l")))
        snapshot.world.reset()
        running.type(console.commands(snapshot))
        running.sweep()
        assert "Active" in _only(row.findall(running.run("iblinkinfo", "-l")))


def _only(values: list[str]) -> str:
    (value,) = values
    return value


@NEEDS_IBSIM
def test_the_next_tick_says_only_what_has_changed(infiniband: tuple[Fabric, Snapshot]) -> None:
    running, snapshot = infiniband
    topology, console = snapshot.topology, Console(snapshot.topology)
    running.type(console.commands(snapshot))
    assert console.commands(snapshot) == []
    links = replace(snapshot.links, symbol_errors=snapshot.links.symbol_errors.copy())
    links.symbol_errors[topology.down(2)] += 5
    commands = console.commands(with_links(snapshot, links))
    assert len(commands) == 1
    running.type(commands)
    hca = counters(running, hca_lid(topology, 2), 1)
    assert hca["SymbolErrorCounter"] == links.symbol_errors[topology.down(2)]
