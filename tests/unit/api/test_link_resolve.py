"""Two ends that tell of each other are one cable, however each calls the other."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from api.fabric.directory import EndFact, NicFact, PortFact, SwitchFact, as_mac, short_name
from api.fabric.model import NodeKind
from api.fabric.resolve import Resolved, resolve
from collector.contract.identity import LinkId, PortId

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEAF_PORT = PortId("leaf-0", "leaf-0", "Ethernet4")
NIC_PORT = PortId("node-0", "mlx5_0", "1")
CABLE = LinkId.between(LEAF_PORT, NIC_PORT)
MAC = "02:00:00:00:00:01"

PORTS = (
    PortFact(id=NIC_PORT, netdev="eth0", node_guid="0200:0003:0000:0001", is_local=True),
    PortFact(id=PortId("node-0", "mlx5_1", "1"), netdev="eth1", is_local=True),
    PortFact(id=PortId("node-1", "mlx5_0", "1"), netdev="eth0", is_local=True),
    PortFact(id=LEAF_PORT, description="to node-0"),
    PortFact(id=PortId("leaf-0", "leaf-0", "Ethernet40")),
    PortFact(id=PortId("spine-0", "spine-0", "1")),
)
NICS = (
    NicFact(host="node-0", device="eth0", address=MAC),
    NicFact(host="node-0", device="eno1", address="02:00:00:00:ff:01"),
)
SWITCHES = (
    SwitchFact(name="leaf-0", guid="0x0200000300000100"),
    SwitchFact(name="spine-0", guid="0x0200000300000200"),
)


def end(port: PortId, age_seconds: float = 0, method: str = "lldp", /, **peer: str) -> EndFact:
    last_seen = NOW - timedelta(seconds=age_seconds)
    since = last_seen - timedelta(days=1)
    return EndFact(port=port, method=method, since=since, last_seen=last_seen, **peer)


def join(*ends: EndFact, ports: tuple[PortFact, ...] = PORTS) -> Resolved:
    return resolve(ends, ports, NICS, SWITCHES)


# --- what a switch says of a host ----------------------------------------------------------------


@pytest.mark.parametrize(
    "peer",
    [
        {"peer_name": "node-0", "peer_port_id": MAC, "peer_port": "eth0"},
        {"peer_name": "node-0.dc1.example.com", "peer_port_id": "0200.0000.0001"},
        {"peer_name": "localhost", "peer_port_id": MAC.upper()},
        {"peer_name": "NODE-0", "peer_port_id": "eth0"},
        {"peer_name": "node-0", "peer_port": "mlx5_0"},
        {"peer_name": "node-0", "peer_port_id": "7", "peer_port": "eth0"},
        {"peer_chassis": MAC, "peer_port_id": "eth0"},
        {"peer_chassis": "02:00:00:00:ff:01", "peer_port_id": "eth0"},
        {"peer_chassis": MAC, "peer_port_id": "02:00:00:00:00:99"},
        {"peer_guid": "0x0200000300000001", "peer_port": "1", "peer_name": "node-0 HCA-1"},
        {"peer_guid": "0x200000300000001", "peer_port": "2"},
    ],
    ids=lambda peer: " ".join(peer.values()),
)
def test_a_switch_names_a_nic(peer: dict[str, str]) -> None:
    [link] = join(end(LEAF_PORT, **peer)).links
    assert (link.id, link.seen_from) == (CABLE, (LEAF_PORT,))


# --- what a host says of a switch ----------------------------------------------------------------


@pytest.mark.parametrize(
    "peer",
    [
        {"peer_name": "leaf-0", "peer_port_id": "Ethernet4"},
        {"peer_name": "Leaf-0.dc1.example.com", "peer_port_id": "ethernet4"},
        {"peer_name": "leaf-0", "peer_port_id": "Eth4"},
        {"peer_name": "leaf-0", "peer_port_id": "515", "peer_port": "Ethernet4"},
        {"peer_name": "leaf-0", "peer_port_id": "515", "peer_port": "to node-0"},
        {"peer_guid": "0200:0003:0000:0100", "peer_port": "Ethernet4"},
    ],
    ids=lambda peer: " ".join(peer.values()),
)
def test_a_host_names_a_switch_port(peer: dict[str, str]) -> None:
    [link] = join(end(NIC_PORT, **peer)).links
    assert (link.id, link.seen_from) == (CABLE, (NIC_PORT,))


def test_an_interface_without_rdma_is_a_port_of_its_own() -> None:
    [link] = join(end(LEAF_PORT, peer_name="x", peer_port_id="02:00:00:00:ff:01")).links
    assert link.id == LinkId.between(LEAF_PORT, PortId("node-0", "eno1", "1"))


def test_of_interfaces_with_one_mac_the_one_with_rdma_is_meant() -> None:
    bond = NicFact(host="node-0", device="bond0", address=MAC)
    [link] = resolve(
        [end(LEAF_PORT, peer_name="x", peer_port_id=MAC)], PORTS, (*NICS, bond), SWITCHES
    ).links
    assert link.id == CABLE


def test_a_chassis_is_known_by_those_who_also_told_its_name() -> None:
    chassis = "02:00:01:00:00:00"
    found = join(
        end(NIC_PORT, peer_name="leaf-0", peer_chassis=chassis, peer_port_id="Ethernet4"),
        end(PORTS[1].id, peer_chassis=chassis, peer_port_id="Ethernet40"),
    )
    assert [link.id for link in found.links] == [
        CABLE,
        LinkId.between(PORTS[4].id, PORTS[1].id),
    ]


def test_a_name_that_two_have_names_nobody() -> None:
    twins = (
        *PORTS,
        PortFact(id=PortId("leaf-9.a", "leaf-9.a", "1")),
        PortFact(id=PortId("leaf-9.b", "leaf-9.b", "1")),
    )
    found = join(end(NIC_PORT, peer_name="leaf-9", peer_port_id="1"), ports=twins)
    assert [node.name for node in found.unknown] == ["leaf-9"]


def test_a_hca_that_a_poller_knows_by_another_name_is_the_one_that_its_host_knows() -> None:
    polled = PortFact(id=PortId("node-0", "HCA-1", "1"), node_guid="0x0200000300000001")
    found = join(
        end(polled.id, 0, "ib", peer_guid="0x0200000300000100", peer_port="Ethernet4"),
        ports=(*PORTS, polled),
    )
    assert [link.id for link in found.links] == [CABLE]
    assert found.links[0].seen_from == (NIC_PORT,)
    assert found.aliases == {polled.id}


# --- both ends, and neither ----------------------------------------------------------------------


def test_two_ends_that_name_each_other_are_one_link_seen_from_both() -> None:
    up = msgspec.structs.replace(PORTS[0], state="active", rate_bits_per_second=400)
    slow = msgspec.structs.replace(PORTS[3], state="active", rate_bits_per_second=200)
    found = join(
        end(LEAF_PORT, 30, "snmp", peer_name="node-0", peer_port_id=MAC),
        end(LEAF_PORT, 90, "gnmi", peer_name="node-0", peer_port_id="eth0"),
        end(NIC_PORT, 60, peer_name="leaf-0", peer_port_id="Ethernet4"),
        ports=(up, slow),
    )
    [link] = found.links
    assert link.id == CABLE
    assert link.seen_from == (LEAF_PORT, NIC_PORT)
    assert link.methods == ("gnmi", "lldp", "snmp")
    assert link.last_seen == NOW - timedelta(seconds=30)
    assert link.since == NOW - timedelta(days=1, seconds=90)
    assert (link.is_up, link.rate_bits_per_second) == (True, 200)
    assert found.conflicts == ()


@pytest.mark.parametrize(
    ("states", "is_up"),
    [
        ((None, None), None),
        (("active", None), True),
        (("active", "down"), False),
        ((None, "init"), False),
    ],
)
def test_a_link_is_up_if_nobody_says_otherwise(
    states: tuple[str | None, str | None],
    is_up: bool | None,  # noqa: FBT001 - a case of the table
) -> None:
    ports = tuple(
        msgspec.structs.replace(fact, state=state)
        for fact, state in zip((PORTS[0], PORTS[3]), states, strict=True)
    )
    [link] = join(end(LEAF_PORT, peer_name="node-0", peer_port_id=MAC), ports=ports).links
    assert link.is_up is is_up


def test_a_neighbour_that_nobody_knows_is_a_node_of_its_own() -> None:
    found = join(
        end(NIC_PORT, peer_name="tor-7", peer_chassis="02:00:09:00:00:00", peer_port="swp1"),
        end(PORTS[1].id, peer_chassis="02:00:09:00:00:77"),
    )
    assert [(node.name, node.kind) for node in found.unknown] == [
        ("02:00:09:00:00:77", NodeKind.UNKNOWN),
        ("tor-7", NodeKind.UNKNOWN),
    ]
    assert LinkId.between(NIC_PORT, PortId("tor-7", "tor-7", "swp1")) in {
        link.id for link in found.links
    }


# --- contradictions ------------------------------------------------------------------------------


def test_what_both_ends_say_counts_more_than_what_one_says_later() -> None:
    liar = PORTS[2].id
    found = join(
        end(LEAF_PORT, 500, peer_name="node-0", peer_port_id=MAC),
        end(NIC_PORT, 500, peer_name="leaf-0", peer_port_id="Ethernet4"),
        end(liar, 0, peer_name="leaf-0", peer_port_id="Ethernet4"),
    )
    assert [link.id for link in found.links] == [CABLE]
    [conflict] = found.conflicts
    assert (conflict.port, conflict.names, conflict.named_back) == (liar, LEAF_PORT, NIC_PORT)
    assert (conflict.methods, conflict.last_seen) == (("lldp",), NOW)


def test_between_two_words_the_later_one_counts() -> None:
    found = join(
        end(NIC_PORT, 400, peer_name="leaf-0", peer_port_id="Ethernet4"),
        end(PORTS[2].id, 0, peer_name="leaf-0", peer_port_id="Ethernet4"),
    )
    assert [link.seen_from for link in found.links] == [(PORTS[2].id,)]
    assert [conflict.port for conflict in found.conflicts] == [NIC_PORT]


def test_firmware_that_speaks_beside_its_host_is_no_contradiction() -> None:
    found = join(
        end(LEAF_PORT, 10, peer_name="node-0", peer_port_id=MAC),
        end(LEAF_PORT, 0, peer_chassis="02:aa:00:00:00:01", peer_port_id="02:aa:00:00:00:02"),
    )
    assert [link.id for link in found.links] == [CABLE]
    assert (found.conflicts, found.superseded, found.unknown) == ((), (), ())


def test_a_port_that_names_two_has_the_later_and_the_other_is_named() -> None:
    found = join(
        end(LEAF_PORT, 0, peer_name="node-0", peer_port_id=MAC),
        end(LEAF_PORT, 100, peer_name="node-1", peer_port_id="eth0"),
    )
    assert [link.id for link in found.links] == [CABLE]
    assert found.superseded == (LinkId.between(LEAF_PORT, PORTS[2].id),)


def test_a_port_that_names_itself_has_no_link() -> None:
    found = join(end(LEAF_PORT, peer_name="leaf-0", peer_port_id="Ethernet4"))
    assert (found.links, found.loops) == ((), (LEAF_PORT,))


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "00:00:00:00:00:00", "123456789012", "Ethernet4", "ab:cd"])
def test_what_is_no_mac(text: str) -> None:
    assert as_mac(text) == ""


def test_addresses_have_no_short_name() -> None:
    assert short_name("10.1.2.3") == "10.1.2.3"
    assert short_name("fd00::1.2.3.4") == "fd00::1.2.3.4"


# --- where no host has an agent ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "port"),
    [
        # lldpd on a host: the address as identifier, the interface as description
        ({"peer_port_id": MAC, "peer_port": "eth2"}, PortId("node-9", "eth2", "1")),
        # a switch: its port's name is the identifier
        (
            {"peer_port_id": "Ethernet8", "peer_port": "to leaf"},
            PortId("node-9", "node-9", "to leaf"),
        ),
        # an address and no name: nothing tells which of the two it is
        ({"peer_port_id": MAC, "peer_port": MAC}, PortId("node-9", "node-9", MAC)),
    ],
)
def test_an_unknown_node_that_gives_an_address_is_a_machine(
    peer: dict[str, str], port: PortId
) -> None:
    found = resolve([end(LEAF_PORT, peer_name="node-9", **peer)], PORTS[3:], (), SWITCHES)
    assert [link.id for link in found.links] == [LinkId.between(LEAF_PORT, port)]
    assert [(node.name, node.kind) for node in found.unknown] == [("node-9", NodeKind.UNKNOWN)]


HCA = {"peer_guid": "0xb00", "peer_port": "1"}


@pytest.mark.parametrize(
    ("name", "port"),
    [
        # rdma-ndd's own words, and a switch's, a router's and an older driver's
        ("node-9 mlx5_2", PortId("node-9", "mlx5_2", "1")),
        ("MF0;leaf-9:MQM9700/U1", PortId("MF0;leaf-9:MQM9700/U1", "MF0;leaf-9:MQM9700/U1", "1")),
        ("Quantum Mellanox Technologies",) * 2,
        ("node-9 HCA-1",) * 2,
        ("node-9",) * 2,
    ],
)
def test_an_unknown_hca_is_known_by_how_rdma_ndd_describes_it(
    name: str, port: PortId | str
) -> None:
    far = PortId(port, port, "1") if isinstance(port, str) else port
    found = resolve([end(LEAF_PORT, peer_name=name, **HCA)], PORTS[3:], (), SWITCHES)
    assert [link.id for link in found.links] == [LinkId.between(LEAF_PORT, far)]


def test_an_hca_of_a_host_that_is_known_is_that_host_s() -> None:
    found = join(end(LEAF_PORT, peer_name="node-1 mlx5_7", **HCA))
    assert [link.id for link in found.links] == [
        LinkId.between(LEAF_PORT, PortId("node-1", "mlx5_7", "1"))
    ]
    assert found.unknown == ()


def test_lldp_s_words_make_no_hca() -> None:
    found = resolve([end(LEAF_PORT, peer_name="node-9 mlx5_2", peer_port="1")], PORTS[3:], (), ())
    (link,) = found.links
    assert {link.id.a.host, link.id.b.host} == {"leaf-0", "node-9 mlx5_2"}
