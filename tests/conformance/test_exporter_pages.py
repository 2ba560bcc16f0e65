"""Pages of other exporters as they really look, written to us, and asked for by our names.

node_exporter and snmp_exporter are the real programs: the one reads a tree of a host with RDMA
devices, the other asks a simulated switch over SNMP. Of dcgm-exporter, which wants a GPU, the
fields are those that it comes with. What no metric has stands in `unmapped.toml`, with a reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from collector.contract.catalog import load_catalog
from collector.contract.model import Sample, Series
from collector.formats.openmetrics import parse_lines
from collector.tables.ethtool import BY_DRIVER, INTEL, Row, Table
from simulator.interfaces.switch_tables import Flavour
from simulator.topology.build import ClusterSpec, build
from tests.doubles import snmp_responder
from tests.fixtures import trees
from tests.stands import namespaces
from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, InProcess, eventually, in_process
from tests.tools import peers
from tests.tools.unmapped import unmapped
from tests.worlds.ethtool_names import exported
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy
from tests.worlds.simulated import make_snapshot

FIELDS = Path(__file__).parents[1] / "fixtures/exporters/dcgm_fields.txt"
OWN = re.compile(r"(go|process|promhttp|snmp|node_exporter|node_scrape)_")
"""What every exporter says of itself."""

IF, IF_X = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"
IF_NAME = f"{IF_X}.1"
COLUMNS = {
    "ifAdminStatus": (f"{IF}.7", "gauge"),
    "ifOperStatus": (f"{IF}.8", "gauge"),
    "ifInDiscards": (f"{IF}.13", "counter"),
    "ifInErrors": (f"{IF}.14", "counter"),
    "ifOutDiscards": (f"{IF}.19", "counter"),
    "ifOutErrors": (f"{IF}.20", "counter"),
    "ifHCInOctets": (f"{IF_X}.6", "counter"),
    "ifHCInUcastPkts": (f"{IF_X}.7", "counter"),
    "ifHCOutOctets": (f"{IF_X}.10", "counter"),
    "ifHCOutUcastPkts": (f"{IF_X}.11", "counter"),
    "ifHighSpeed": (f"{IF_X}.15", "gauge"),
}
"""Of the module if_mib, as the MIBs name and number them: those that the simulated switch has."""


ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
"""A program that prints a page, for a namespace that this process is not in."""


@contextmanager
def page_of(
    program: str, log: Path, path: str, *words: str, inside: Sequence[str] = ()
) -> Iterator[str]:
    """What a real exporter shows; ``inside`` are the words that run a program somewhere else."""
    found = peers.find(program)
    assert found is not None
    port = free_port()
    listen = f"--web.listen-address=127.0.0.1:{port}"
    with log.open("wb") as output:
        command = [*inside, str(found), listen, *words]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    answers: list[str] = []
    url = f"http://127.0.0.1:{port}{path}"

    def has_answered() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(httpx.TransportError):
            answer = httpx.get(url, timeout=READY_SECONDS)
            assert answer.status_code == 200, answer.text
            answers.append(answer.text)
        return bool(answers)

    def has_answered_inside() -> bool:
        assert process.poll() is None, log.read_text()
        ask = [*inside, sys.executable, "-c", ASK, url]
        asked = subprocess.run(ask, check=False, capture_output=True, text=True)
        if not asked.returncode:
            answers.append(asked.stdout)
        return bool(answers)

    try:
        eventually(has_answered_inside if inside else has_answered, f"{program} answers")
        yield answers[0]
    finally:
        process.kill()
        process.wait(READY_SECONDS)


def samples_of(page: str) -> list[Sample]:
    """Every number of a page, besides what the exporter says of itself."""
    lines = list(parse_lines(1, page.encode(), 0, {}))
    samples = [line for line in lines if isinstance(line, Sample)]
    assert len(samples) == len(lines), "our own reader takes every line of it"
    return [one for one in samples if not OWN.match(one.series.metric)]


def scraped(service: InProcess, samples: Sequence[Sample], job: str, instance: str) -> int:
    """Write a page as a Prometheus does that has scraped it; when, in unix seconds."""
    now_s = int(time.time())
    series = [
        TimeSeries(
            sorted(
                {
                    "__name__": one.series.metric,
                    "job": job,
                    "instance": instance,
                    **dict(one.series.labels),
                }.items()
            ),
            [(one.value, now_s * 1000)],
        )
        for one in samples
    ]
    body = snappy(request_v1(series))
    answer = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert answer.status_code == 204, answer.text
    return now_s


Found = dict[str, dict[tuple[str, ...], float]]


def found_as_ours(
    service: InProcess, samples: Sequence[Sample], host: str, by: Sequence[str], at_s: int
) -> Found:
    """Each of our metrics that the page has, by these labels; all of them are answered."""
    catalog = load_catalog()
    names = {metric.name for one in samples for _, metric in catalog.aliases_of(one.series.metric)}
    found: Found = {}
    for name in sorted(names):
        asked = {"query": f'{name}{{host="{host}"}}', "time": str(at_s)}
        answer = service.client.post("/api/v1/query", data=asked)
        assert answer.status_code == 200, answer.text
        rows = answer.json()["data"]["result"]
        found[name] = {
            tuple(row["metric"][label] for label in by): float(row["value"][1]) for row in rows
        }
        assert found[name], f"{name} of {host} has no series"
    return found


def unknown(exporter: str, names: Sequence[str]) -> set[str]:
    """Names that neither a metric has nor the list of what none has; every line there is used."""
    catalog = load_catalog()
    reasons: Mapping[str, str] = unmapped(exporter, "names")
    left = {name for name in names if not catalog.aliases_of(name)}
    for pattern in reasons:
        assert any(re.fullmatch(pattern, name) for name in left), f"{pattern} matches nothing"
    return {name for name in left if not any(re.fullmatch(one, name) for one in reasons)}


@pytest.mark.peer("prometheus-node-exporter")
def test_node_exporter_s_page_is_understood(tmp_path: Path) -> None:
    """Its collectors of RDMA devices and interfaces; its ethtool asks the kernel, not a tree."""
    tree = tmp_path / "tree"
    trees.write_rdma_tree(tree, devices=2, hw_counters=60, seed=7)
    counters = tree / "sys/class/infiniband/mlx5_1/ports/1/counters"
    words = [
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in ("infiniband", "netclass", "netdev")),
        f"--path.sysfs={tree / 'sys'}",
    ]
    with page_of("prometheus-node-exporter", tmp_path / "log", "/metrics", *words) as page:
        samples = samples_of(page)
    assert unknown("node_exporter", [one.series.metric for one in samples]) == set()
    with in_process(tmp_path) as service:
        at_s = scraped(service, samples, "node", "gpu-17:9100")
        infiniband = [one for one in samples if one.series.metric.startswith("node_infiniband_")]
        found = found_as_ours(service, infiniband, "gpu-17", ("device", "port"), at_s)
        # The files hold words of four bytes, and node_exporter says bytes.
        words_sent = int((counters / "port_xmit_data").read_text())
        assert found["fabric_port_transmit_bytes_total"]["mlx5_1", "1"] == words_sent * 4
        waited = int((counters / "port_xmit_wait").read_text())
        assert found["fabric_port_transmit_wait_ticks_total"]["mlx5_1", "1"] == waited
        assert len(found) > 20
        network = [one for one in samples if one.series.metric.startswith("node_network_")]
        interfaces = found_as_ours(service, network, "gpu-17", ("device",), at_s)
        devices = {(dict(one.series.labels)["device"],) for one in network}
        assert set(interfaces["fabric_nic_receive_bytes_total"]) == devices
        assert ports_of(service, "gpu-17", 2) == {("mlx5_0", "1"), ("mlx5_1", "1")}


@pytest.mark.peer("prometheus-node-exporter")
def test_node_exporter_s_ethtool_page_is_understood(tmp_path: Path) -> None:
    """It asks the kernel: a veth, whose driver counts by queues and nothing of a wire."""
    if why := namespaces.why_not():
        pytest.skip(why)
    words = ["--collector.disable-defaults", "--collector.ethtool", "--collector.netclass"]
    program, log = "prometheus-node-exporter", tmp_path / "log"
    with (
        namespaces.joined() as joined,
        page_of(program, log, "/metrics", *words, inside=joined.inside(0)) as page,
    ):
        samples = samples_of(page)
        device = joined.interfaces[0]
    ethtool = [one for one in samples if one.series.metric.startswith("node_ethtool_")]
    names = {one.series.metric for one in ethtool}
    # What Linux' veth calls its statistics, and what the collector makes of such names.
    of_veth = [
        "peer_ifindex",
        "rx_queue_0_xdp_packets",
        "rx_queue_0_xdp_tx_errors",
        "tx_queue_0_xdp_xmit",
    ]
    assert {exported(name) for name in of_veth} <= names
    assert unknown("node_exporter-ethtool", sorted(names)) == set()
    with in_process(tmp_path) as service:
        at_s = scraped(service, samples, "node", "gpu-17:9100")
        found = found_as_ours(service, samples, "gpu-17", ("device",), at_s)
        assert set(found["fabric_nic_driver_info"]) == {(device,)}
        assert found["fabric_nic_up"][device,] == 1


def statistics_of(driver: Table) -> Iterator[tuple[str, Row]]:
    """Every native name that a driver's table reads."""
    yield from driver.rows.items()
    for pattern in driver.patterns:
        names = [pattern.names.pattern]
        for wild, words in WILDCARDS.items():
            names = [
                one.replace(wild, word, 1)
                for one in names
                for word in (words if wild in one else [""])
            ]
        for name in dict.fromkeys(names):
            if (row := driver.find(name)) is not None:
                yield name, row


WILDCARDS = {
    r"(?:port\.)?": ["", "port."],
    r"(?:\.nic)?": ["", ".nic"],
    "([0-7])": list("01234567"),
    "([0-9]{1,2})": [str(lane) for lane in range(16)],
    "(unplug|bus_stuck|high_temp|bad_shorted)": ["unplug", "bus_stuck", "high_temp", "bad_shorted"],
}
"""What stands in the tables' patterns, and all that it can be."""


@pytest.mark.parametrize("driver", sorted(BY_DRIVER))
def test_what_our_own_ethtool_source_reads_is_found_by_node_exporter_s_name(driver: str) -> None:
    catalog = load_catalog()
    for name, row in statistics_of(BY_DRIVER[driver]):
        meant = {
            (metric.name, alias.factor, tuple(alias.means.items()))
            for alias, metric in catalog.aliases_of(exported(name))
        }
        # One table serves both of Intel's: i40e's begin with "port.", ice's end in ".nic".
        if BY_DRIVER[driver] is not INTEL or name.startswith("port.") != name.endswith(".nic"):
            assert (row.metric, row.factor, row.labels) in meant, name


def ports_of(service: InProcess, host: str, count: int) -> set[tuple[str, str]]:
    """Device and port of what the inventory has of a host, once there are so many."""

    def listed() -> list[dict[str, str]]:
        answer = service.client.get("/v1/ports", params={"host": host, "limit": 100})
        found: list[dict[str, str]] = answer.json()["items"]
        return found

    eventually(lambda: len(listed()) == count, f"{count} ports of {host}")
    return {(one["device"], one["port"]) for one in listed()}


def if_mib(community: str) -> str:
    """snmp.yml with the module if_mib, as snmp_exporter's generator writes it (0.21)."""
    lookup = f"[{{labels: [ifIndex], labelname: ifName, oid: {IF_NAME}, type: DisplayString}}]"
    indexes = "[{labelname: ifIndex, type: gauge}]"
    metrics = [
        f"  - {{name: {name}, oid: {oid}, type: {kind}, help: x, indexes: {indexes},"
        f" lookups: {lookup}}}"
        for name, (oid, kind) in COLUMNS.items()
    ]
    head = ["if_mib:", "  version: 2", f"  auth: {{community: {community}}}"]
    return "\n".join([*head, f"  walk: [{IF}, {IF_X}]", "  metrics:", *metrics, ""])


@pytest.mark.peer("prometheus-snmp-exporter")
def test_snmp_exporter_s_page_of_a_switch_is_understood(tmp_path: Path) -> None:
    snapshot = make_snapshot(build(ClusterSpec(hosts=4)))
    switch = snapshot.topology.switches[0].name
    config = tmp_path / "snmp.yml"
    config.write_text(if_mib(switch))
    with snmp_responder.agent(snapshot, Flavour.ARISTA) as agent:
        path = f"/snmp?module=if_mib&target=127.0.0.1:{agent.port}"
        words = f"--config.file={config}"
        with page_of("prometheus-snmp-exporter", tmp_path / "log", path, words) as page:
            samples = samples_of(page)
        names = agent.walk(switch, IF_NAME)
        octets = agent.walk(switch, COLUMNS["ifHCInOctets"][0])
        speeds = agent.walk(switch, COLUMNS["ifHighSpeed"][0])
    assert unknown("snmp_exporter", [one.series.metric for one in samples]) == set()
    with in_process(tmp_path) as service:
        # Its own example puts the target's name into `instance`.
        at_s = scraped(service, samples, "snmp", switch)
        found = found_as_ours(service, samples, switch, ("device", "port"), at_s)
        port = {index: (switch, bytes(name).decode()) for index, name in names.items()}
        received = found["fabric_port_receive_bytes_total"]
        assert received == {port[index]: count for index, count in octets.items()}
        rates = found["fabric_port_rate_bits_per_second"]
        assert rates == {port[index]: megabits * 1e6 for index, megabits in speeds.items()}
        # It is a switch with ports, as one that our own poller asks.
        assert ports_of(service, switch, len(received)) == set(received)
        detail = service.client.get(f"/v1/hosts/{switch}").json()
        assert detail["role"] == "switch"


def test_dcgm_exporter_s_fields_are_understood(tmp_path: Path) -> None:
    kinds = dict(line.split() for line in FIELDS.read_text().splitlines())
    assert unknown("dcgm-exporter", list(kinds)) == set()
    labels = {
        "gpu": "0", "UUID": "GPU-604ac76c", "pci_bus_id": "00000000:31:00.0", "device": "nvidia0",
        "modelName": "NVIDIA H100", "Hostname": "gpu-17", "DCGM_FI_DRIVER_VERSION": "580.105.08",
    }  # fmt: skip
    samples = [Sample(Series(name, labels), 50.0, 0) for name in kinds]
    with in_process(tmp_path) as service:
        at_s = scraped(service, samples, "dcgm", "10.0.0.17:9400")
        found = found_as_ours(service, samples, "gpu-17", ("gpu",), at_s)
    assert found["fabric_gpu_utilization_ratio"] == {("0",): pytest.approx(0.5)}
    assert found["fabric_gpu_memory_used_bytes"] == {("0",): 50.0 * 2**20}
    assert found["fabric_gpu_power_watts"] == {("0",): 50.0}
    assert len(found) > 25
