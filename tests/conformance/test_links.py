"""Cables in the inventory, on SQLite and on PostgreSQL: what was cabled when, and what is now."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from api.data.inventory import cabling_spans, link_rows
from api.data.inventory.cabling_spans import UNPLUGGED_SECONDS
from api.data.inventory.links import LOOK_BACK
from api.data.inventory.records import Cabling, DeviceKind, HostRole
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, PortValues, sight
from api.fabric.model import Conflict, Link, NodeKind, Topology, make_topology
from api.fabric.model import Port as TopologyPort
from api.fabric.read import read_topology
from collector.contract.catalog import load_catalog
from collector.contract.identity import Labels, LinkId, PortId
from simulator.topology.build import build
from simulator.topology.model import Fabric
from simulator.topology.spec import ClusterSpec
from tests.worlds import link_ends
from tests.worlds.link_ends import series

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CATALOG = load_catalog()
LEAF_PORT = PortId("leaf-0", "leaf-0", "1")
OTHER_PORT = PortId("leaf-0", "leaf-0", "2")
NIC_PORT = PortId("node-0", "mlx5_0", "1")


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def observations(labels: Iterable[Labels], second: float) -> list[Observation]:
    found = [sight(each, CATALOG) for each in labels]
    assert None not in found
    return [Observation.at(sighting, at(second)) for sighting in found if sighting is not None]


def observe(inventory: Inventory, second: float, *labels: Labels) -> int:
    return inventory.observe(observations(labels, second))


def end(port: PortId, peer: str, method: str = "lldp", peer_port: str = "1") -> Labels:
    return series(
        "fabric_link_info",
        host=port.host,
        device=port.device,
        port=port.port,
        method=method,
        peer_name=peer,
        peer_port=peer_port,
    )


def counter(port: PortId) -> Labels:
    return series(
        "fabric_port_receive_bytes_total", host=port.host, device=port.device, port=port.port
    )


def told(rows: Iterable[Cabling]) -> list[tuple[str, float, float, bool]]:
    """Neighbour, since, last seen, whether it has ended; the oldest first."""
    return [
        (
            row.peer_name,
            (row.since - START).total_seconds(),
            (row.last_seen - START).total_seconds(),
            row.until is not None,
        )
        for row in reversed(list(rows))
    ]


# --- switches ------------------------------------------------------------------------------------


def test_a_switch_is_a_host_with_a_role_and_not_among_the_machines(inventory: Inventory) -> None:
    observe(
        inventory,
        0,
        counter(LEAF_PORT),
        counter(NIC_PORT),
        end(PortId("spine-0", "spine-0", "7"), "leaf-0"),
        series("fabric_switch_up", host="leaf-1", method="snmp"),
        series(
            "fabric_switch_info",
            host="leaf-0",
            method="snmp",
            vendor="Acme",
            guid="0x1",
            model="M1",
        ),
    )
    assert [host.host for host in inventory.hosts.page()] == ["node-0"]
    switches = inventory.hosts.page(role=HostRole.SWITCH)
    assert [host.host for host in switches] == ["leaf-0", "leaf-1", "spine-0"]
    assert switches[0].attributes == {"vendor": "Acme", "guid": "0x1", "model": "M1"}
    assert switches[0].role is HostRole.SWITCH
    assert len(inventory.hosts.page(role=None)) == 4
    assert [device.kind for device in inventory.hosts.devices("leaf-0")] == [DeviceKind.SWITCH]
    assert [port.port for port in inventory.hosts.ports("spine-0")] == ["7"]


def test_a_switch_stays_one_whatever_else_is_said_of_it(inventory: Inventory) -> None:
    observe(inventory, 0, counter(LEAF_PORT))
    observe(inventory, 10, series("fabric_host_pressure_cpu_waiting_seconds_total", host="leaf-0"))
    values = PortValues(host="leaf-0", device="leaf-0", port="1", seen_at=at(20), state=4)
    inventory.set_port_values([values])
    assert [host.host for host in inventory.hosts.page(role=HostRole.SWITCH)] == ["leaf-0"]
    assert [device.kind for device in inventory.hosts.devices("leaf-0")] == [DeviceKind.SWITCH]


def test_the_end_of_a_cable_at_an_interface_makes_no_rdma_device(inventory: Inventory) -> None:
    observe(inventory, 0, end(PortId("node-0", "eno1", "1"), "mgmt-0"))
    assert [host.host for host in inventory.hosts.page()] == ["node-0"]
    assert inventory.hosts.devices("node-0") == []
    assert inventory.hosts.ports() == []
    assert told(inventory.links.cablings(PortId("node-0", "eno1", "1"))) == [
        ("mgmt-0", 0, 0, False)
    ]


# --- what was cabled when ------------------------------------------------------------------------


def test_recabling_there_and_back_gives_three_cablings(inventory: Inventory) -> None:
    for second in range(0, 1_800, 60):
        peer = "node-1" if 600 <= second < 1_200 else "node-0"
        observe(inventory, second, end(LEAF_PORT, peer))
    assert told(inventory.links.cablings(LEAF_PORT)) == [
        ("node-0", 0, 540, True),
        ("node-1", 600, 1_140, True),
        ("node-0", 1_200, 1_740, False),
    ]


def test_what_each_method_says_is_a_history_of_its_own(inventory: Inventory) -> None:
    for second in range(0, 600, 60):
        observe(inventory, second, end(LEAF_PORT, "node-0", "snmp"))
        observe(inventory, second + 15, end(LEAF_PORT, "node-0.example.com", "gnmi"))
    found = inventory.links.cablings(LEAF_PORT)
    assert [(row.method, row.peer_name, row.until) for row in found] == [
        ("gnmi", "node-0.example.com", None),
        ("snmp", "node-0", None),
    ]


def test_observations_that_come_late_or_twice_change_nothing(inventory: Inventory) -> None:
    ordered = [(second, "node-0" if second < 600 else "node-1") for second in range(0, 1_200, 60)]
    for second, peer in ordered:
        observe(inventory, second, end(LEAF_PORT, peer))
    before = inventory.links.cablings(LEAF_PORT)
    for second, peer in reversed(ordered):
        observe(inventory, second, end(LEAF_PORT, peer))
    assert inventory.links.cablings(LEAF_PORT) == before


def test_a_batch_of_the_past_falls_into_place(inventory: Inventory) -> None:
    inventory.observe(
        [
            *observations([end(LEAF_PORT, "node-0")], 600),
            *observations([end(LEAF_PORT, "node-1")], 0),
            *observations([end(LEAF_PORT, "node-2")], 300),
        ]
    )
    assert told(inventory.links.cablings(LEAF_PORT)) == [
        ("node-1", 0, 0, True),
        ("node-2", 300, 300, True),
        ("node-0", 600, 600, False),
    ]


def test_several_processes_write_one_history(url: str, inventory: Inventory) -> None:
    inventories = [Inventory(url) for _ in range(4)]
    ports = [PortId("leaf-0", "leaf-0", str(number)) for number in range(8)]

    def write(inventory: Inventory) -> None:
        for second in range(0, 600, 60):
            observe(inventory, second, *(end(port, "node-0") for port in ports))
            observe(inventory, second, *(end(port, "node-1") for port in reversed(ports)))

    with ThreadPoolExecutor(len(inventories)) as pool:
        for done in [pool.submit(write, each) for each in inventories]:
            done.result()
    for each in inventories:
        each.close()
    for port in ports:
        found = told(inventory.links.cablings(port))
        assert sorted(found) == [("node-0", 0, 540, False), ("node-1", 0, 540, False)]


def test_ends_over_their_bound_are_left_out_and_counted(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_rows, "ENDS_PER_HOST_MAX", 3)
    ports = [PortId("leaf-0", "leaf-0", str(number)) for number in range(5)]
    assert observe(inventory, 0, *(end(port, "node-0") for port in ports)) == 2
    assert observe(inventory, 30, *(end(port, "node-0") for port in ports)) == 2
    assert [told(inventory.links.cablings(port)) for port in ports] == [
        *([[("node-0", 0, 30, False)]] * 3),
        [],
        [],
    ]


def test_of_a_port_s_cablings_the_oldest_go(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cabling_spans, "SPANS_MAX", 2)
    for number in range(4):
        observe(inventory, 1_000 * number, end(LEAF_PORT, f"node-{number}"))
    assert told(inventory.links.cablings(LEAF_PORT)) == [
        ("node-2", 2_000, 2_000, True),
        ("node-3", 3_000, 3_000, False),
    ]


def test_names_that_cannot_be_asked_for_have_no_cablings(inventory: Inventory) -> None:
    assert inventory.links.cablings(PortId("x" * 300, "y", "1")) == []
    assert inventory.links.cablings(PortId("x", "y", "1")) == []


# --- unplugged -----------------------------------------------------------------------------------

GONE = UNPLUGGED_SECONDS + 100


def test_a_port_that_is_reported_without_its_neighbour_is_unplugged(inventory: Inventory) -> None:
    observe(inventory, 0, end(LEAF_PORT, "node-0"), end(OTHER_PORT, "node-1"))
    observe(inventory, GONE, counter(LEAF_PORT), end(OTHER_PORT, "node-1"))
    assert inventory.links.note_unplugged(at(UNPLUGGED_SECONDS - 1)) == 0
    assert inventory.links.note_unplugged(at(GONE)) == 1
    assert inventory.links.note_unplugged(at(GONE)) == 0
    assert told(inventory.links.cablings(LEAF_PORT)) == [
        ("node-0", 0, 0, True),
        ("", GONE, GONE, False),
    ]
    assert told(inventory.links.cablings(OTHER_PORT)) == [("node-1", 0, GONE, False)]
    observe(inventory, GONE + 300, end(LEAF_PORT, "node-0"))
    assert told(inventory.links.cablings(LEAF_PORT)) == [
        ("node-0", 0, 0, True),
        ("", GONE, GONE, True),
        ("node-0", GONE + 300, GONE + 300, False),
    ]


def test_a_poller_that_died_unplugs_nothing(inventory: Inventory) -> None:
    observe(inventory, 0, end(LEAF_PORT, "node-0"), end(NIC_PORT, "leaf-0"))
    observe(inventory, GONE, counter(NIC_PORT))  # the host's agent goes on, its lldpd does not
    assert inventory.links.note_unplugged(at(GONE)) == 0
    assert told(inventory.links.cablings(NIC_PORT)) == [("leaf-0", 0, 0, False)]


def test_a_port_that_says_it_is_down_needs_no_other_witness(inventory: Inventory) -> None:
    other = PortId("node-0", "mlx5_1", "1")
    observe(inventory, 0, end(NIC_PORT, "leaf-0"), end(other, "leaf-1"))
    observe(inventory, GONE, counter(other))
    down = PortValues(host="node-0", device="mlx5_0", port="1", seen_at=at(GONE), state=1)
    inventory.set_port_values([down])
    assert inventory.links.note_unplugged(at(GONE)) == 1
    # One port's own state is no sign that an agent still reads the other port's neighbour.
    assert inventory.links.note_unplugged(at(GONE)) == 0
    assert told(inventory.links.cablings(other)) == [("leaf-1", 0, 0, False)]


def test_an_interface_that_is_reported_without_its_neighbour_is_unplugged(
    inventory: Inventory,
) -> None:
    eno1, eno2 = (PortId("node-0", name, "1") for name in ("eno1", "eno2"))
    observe(inventory, 0, end(eno1, "mgmt-0"), end(eno2, "mgmt-0"))
    observe(
        inventory, GONE, end(eno2, "mgmt-0"), series("fabric_nic_up", host="node-0", device="eno1")
    )
    assert inventory.links.note_unplugged(at(GONE)) == 1
    assert told(inventory.links.cablings(eno1))[0] == ("mgmt-0", 0, 0, True)


# --- topologies ----------------------------------------------------------------------------------


def names(topology: Topology) -> set[str]:
    return {str(link) for link in topology.links}


def test_the_past_is_what_was_cabled_then(inventory: Inventory) -> None:
    observe(inventory, 0, counter(PortId("node-1", "mlx5_0", "1")), counter(NIC_PORT))
    for second in range(0, 1_200, 60):
        peer = "node-0" if second < 600 else "node-1"
        observe(inventory, second, end(LEAF_PORT, peer, peer_port="mlx5_0"))
    was = LinkId.between(LEAF_PORT, NIC_PORT)
    became = LinkId.between(LEAF_PORT, PortId("node-1", "mlx5_0", "1"))
    then = read_topology(inventory.links, at(300))
    assert set(then.links) == {was}
    assert then.links[was].since == at(0)
    assert set(read_topology(inventory.links, at(900)).links) == {became}
    [only] = inventory.links.fabric(at(900), is_now=False).ends
    assert only.peer_name == "node-1"
    assert set(read_topology(inventory.links, at(-10)).links) == set()
    long_after = at(1_200) + LOOK_BACK + timedelta(seconds=1)
    assert read_topology(inventory.links, long_after).nodes == {}


def test_of_the_present_states_and_rates_are_known_and_of_the_past_they_are_not(
    inventory: Inventory,
) -> None:
    now = datetime.now(UTC)
    things = (counter(NIC_PORT), end(LEAF_PORT, "node-0", peer_port="mlx5_0"))
    seen = [sight(each, CATALOG) for each in things]
    inventory.observe([Observation.at(each, now) for each in seen if each is not None])
    inventory.set_port_values(
        PortValues(
            host=port.host,
            device=port.device,
            port=port.port,
            seen_at=now,
            state=state,
            rate_bits_per_second=rate,
        )
        for port, state, rate in ((LEAF_PORT, 4, 4e11), (NIC_PORT, 1, 2e11))
    )
    [link] = read_topology(inventory.links).links.values()
    assert (link.is_up, link.rate_bits_per_second) == (False, 200_000_000_000)
    ports = read_topology(inventory.links).ports
    assert [ports[port].state for port in (LEAF_PORT, NIC_PORT)] == ["active", "down"]
    [link] = read_topology(inventory.links, now).links.values()
    assert (link.is_up, link.rate_bits_per_second) == (None, None)


def test_a_file_adds_what_nobody_sees_and_contradicts_nothing(inventory: Inventory) -> None:
    observe(inventory, 0, counter(NIC_PORT), end(LEAF_PORT, "node-0", peer_port="mlx5_0"))
    spare, spine = PortId("leaf-0", "leaf-0", "9"), PortId("spine-0", "spine-0", "1")
    said = [
        Link(id=LinkId.between(one, other), since=at(0), last_seen=at(0), seen_from=())
        for one, other in ((spare, spine), (LEAF_PORT, PortId("node-7", "mlx5_0", "1")))
    ]
    extra = make_topology(at(0), [], [TopologyPort(id=NIC_PORT, rail=3)], said)
    found = read_topology(inventory.links, at(10), extra)
    assert set(found.links) == {LinkId.between(LEAF_PORT, NIC_PORT), said[0].id}
    assert found.nodes["spine-0"].kind is NodeKind.SWITCH
    assert found.ports[NIC_PORT].rail == 0  # as it is found; the file only fills in
    assert found.conflicts == (
        Conflict(
            port=PortId("node-7", "mlx5_0", "1"),
            names=LEAF_PORT,
            named_back=NIC_PORT,
            methods=("file",),
            last_seen=at(0),
        ),
    )


RAIL = ClusterSpec(topology="rail", hosts=4, hosts_per_leaf=2, nics_per_host=2, switch_ports=8)
FAT_TREE = ClusterSpec(topology="fat_tree", hosts=8, nics_per_host=2, switch_ports=8)
DRAGONFLY = ClusterSpec(topology="dragonfly", hosts=12, nics_per_host=2, switch_ports=8)


def on_roce(spec: ClusterSpec) -> ClusterSpec:
    return replace(spec, fabric=Fabric.ROCE, speed="400GbE")


@pytest.mark.parametrize(
    ("spec", "of_hosts"),
    [
        (RAIL, False),
        (FAT_TREE, True),
        (DRAGONFLY, False),
        (on_roce(RAIL), False),
        (on_roce(replace(FAT_TREE, switch_ports=16, oversubscription=3.0)), True),
    ],
    ids=lambda each: f"{each.topology}-{each.fabric}" if isinstance(each, ClusterSpec) else None,
)
def test_the_topology_found_is_the_one_simulated(
    inventory: Inventory,
    spec: ClusterSpec,
    of_hosts: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    cluster = build(spec)
    observe(inventory, 0, *link_ends.things(cluster))
    observe(inventory, 30, *link_ends.ends(cluster, of_hosts=of_hosts))
    found = read_topology(inventory.links, at(60))
    assert names(found) == {str(cable) for cable in link_ends.cables(cluster)}
    assert found.conflicts == ()
    kinds = {node.name: node.kind for node in found.nodes.values()}
    assert kinds == {
        **{cluster.host_name(number): NodeKind.HOST for number in range(cluster.hosts)},
        **{switch.name: NodeKind.SWITCH for switch in cluster.switches},
    }
    rails = {
        (port.host, port.device): found.ports[port].rail
        for port in found.ports
        if port.host != port.device
    }
    assert rails == {
        (cluster.host_name(cluster.host_of_nic(nic)), cluster.device_name(nic)): (
            nic % cluster.nics_per_host
        )
        for nic in range(cluster.nics)
    }
    for link in found.links.values():
        is_between_switches = all(end.host == end.device for end in (link.id.a, link.id.b))
        assert len(link.seen_from) == (2 if of_hosts or is_between_switches else 1)
