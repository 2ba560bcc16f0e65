"""A poller's batch makes switches, their ports and cables; machines are listed apart from them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from api.data.inventory import migrate
from api.data.inventory.engine import open_engine
from api.data.inventory.records import HostRole
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, Sighting
from api.fabric.read import read_topology
from collector.contract import wire
from collector.contract.identity import LinkId, PortId
from collector.contract.model import Sample, Series
from tests.stands.service import InProcess, eventually, in_process

LEAF_PORT = PortId("leaf-0", "leaf-0", "Ethernet1/4")
NIC_PORT = PortId("node-0", "mlx5_0", "1")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


def readings() -> list[Sample]:
    """What the agent of node-0 reads: its own NIC, and the switch that it polls."""
    at_leaf = {"host": "leaf-0", "device": "leaf-0", "port": "Ethernet1/4"}
    about = {"vendor": "Acme", "model": "M1", "version": "4.2", "profile": "acme"}
    series = [
        Series("fabric_port_info", {"device": "mlx5_0", "port": "1", "netdev": "eth0"}),
        Series("fabric_nic_info", {"device": "eth0", "address": "02:00:00:00:00:01"}),
        Series("fabric_switch_info", {"host": "leaf-0", "method": "snmp", **about}),
        Series("fabric_port_receive_bytes_total", at_leaf),
        Series(
            "fabric_link_info",
            {
                **at_leaf,
                "method": "snmp",
                "peer_name": "node-0.dc1.example.com",
                "peer_port_id": "02:00:00:00:00:01",
            },
        ),
    ]
    return [Sample(each, 1, time.time_ns()) for each in series]


def test_switches_and_machines_are_listed_apart(service: InProcess) -> None:
    batch = wire.pack_batch(
        readings(),
        agent="node-0",
        boot="b",
        sequence=0,
        sent_ms=time.time_ns() // 1_000_000,
        common={"host": "node-0"},
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    body = wire.encode_batch(batch)
    answer = service.client.post("/v1/ingest", content=body, headers=headers)
    assert answer.is_success, answer.text
    eventually(lambda: bool(service.inventory.links.cablings(LEAF_PORT)), "what the batch says")
    [switch] = service.client.get("/v1/switches").json()["items"]
    assert (switch["switch"], switch["vendor"], switch["guid"]) == ("leaf-0", "Acme", None)
    assert switch["attributes"] == {"profile": "acme"}
    hosts = service.client.get("/v1/hosts").json()["items"]
    assert [(host["host"], host["role"]) for host in hosts] == [("node-0", "host")]
    hosts = service.client.get("/v1/hosts", params={"role": "switch"}).json()["items"]
    assert [(host["host"], host["role"]) for host in hosts] == [("leaf-0", "switch")]
    assert service.client.get("/v1/hosts", params={"role": "toaster"}).status_code == 422
    detail = service.client.get("/v1/hosts/leaf-0").json()
    assert [device["kind"] for device in detail["devices"]] == ["switch"]
    [port] = service.client.get("/v1/ports", params={"host": "leaf-0"}).json()["items"]
    assert port["id"] == "leaf-0/leaf-0/Ethernet1%2F4"
    [link] = read_topology(service.inventory.links).links
    assert link == LinkId.between(LEAF_PORT, NIC_PORT)


def test_pages_of_switches_end(service: InProcess) -> None:
    seen = Sighting(host="spine-0", host_attributes=(("role", "switch"),))
    service.inventory.observe([Observation.at(seen, datetime.now(UTC))])
    page = service.client.get("/v1/switches", params={"limit": 1, "after": "r"}).json()
    assert page["next"] == "spine-0"
    page = service.client.get("/v1/switches", params={"limit": 1, "after": "spine-0"}).json()
    assert (page["items"], page["next"]) == ([], None)


def test_hosts_of_an_older_schema_are_machines(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('older')}/inventory.db"
    engine = open_engine(url)
    migrate.upgrade(engine)
    migrate.downgrade(engine, "0002")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO hosts (host, first_seen, last_seen, attributes, attribute_times)"
                " VALUES ('old', :at, :at, '{}', '{}')"
            ),
            {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - as SQLite keeps it
        )
    engine.dispose()
    inventory = Inventory(url)
    inventory.migrate()
    [host] = inventory.hosts.page()
    assert (host.host, host.role) == ("old", HostRole.HOST)
    inventory.close()
