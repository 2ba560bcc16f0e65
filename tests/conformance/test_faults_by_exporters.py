"""Faults of which only other people's exporters have counters, without any agent of ours.

A quarter of an hour of a small fleet comes over remote write, under the names of snmp_exporter,
dcgm-exporter and node_exporter. Each fault has a neighbour that is well, which nothing may name.
What is not found so stands in docs/how-to/send-remote-write.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from alerts.detectors import detect_all
from alerts.finding import Finding
from alerts.rulebook.file import parse_rules
from alerts.rulebook.knobs import fill_pack
from api.fabric.cache import TopologyCache
from api.jobs.correlate.windows import WindowReader
from collector.contract.units import NS
from collector.contract.verdict import Cause, Reason
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

NOW_S = int(time.time())
STEP_S = 15
SPAN_S = 15 * 60
WINDOW_S = 120
RECORDED = re.compile(r"\b((?:port|nic|gpu):fabric_\w+:\w+)(?:\[(\w+)\])?")

Labels = Mapping[str, str]


def line(name: str, labels: Labels, level: float, rate: float = 0.0) -> TimeSeries:
    """A gauge, or a counter that began at ``level``."""
    samples = [
        (level + rate * passed, (NOW_S - SPAN_S + passed) * 1000)
        for passed in range(0, SPAN_S + 1, STEP_S)
    ]
    return TimeSeries(sorted({"__name__": name, **labels}.items()), samples)


def switch_port(name: str, damaged: float) -> Iterator[TimeSeries]:
    """What snmp_exporter reads of a 400 Gb/s port; so many frames a second are damaged."""
    labels = {"instance": "leaf-1", "job": "snmp", "ifName": name, "ifIndex": name[-1]}
    yield line("ifHighSpeed", labels, 400_000)
    for counter, rate in (
        ("ifHCInOctets", 2e10),
        ("ifHCOutOctets", 2e10),
        ("ifHCInUcastPkts", 5e6),
        ("ifHCOutUcastPkts", 5e6),
        ("ifInErrors", damaged),
        ("dot3StatsFCSErrors", damaged),
        ("dot3StatsSymbolErrors", damaged),
    ):
        yield line(counter, labels, 1e6, rate)


def gpu(index: int, *, is_hot: bool) -> Iterator[TimeSeries]:
    """What dcgm-exporter reads of a GPU at work; a hot one runs a third slower."""
    labels = {
        "Hostname": "gpu-1", "UUID": f"GPU-{index}", "gpu": str(index), "modelName": "NVIDIA H100",
        "instance": "10.0.0.1:9400", "job": "dcgm",
    }  # fmt: skip
    yield line("DCGM_FI_DEV_GPU_UTIL", labels, 98)
    yield line("DCGM_FI_DEV_SM_CLOCK", labels, 1300 if is_hot else 1980)
    yield line("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", labels, 0x40 if is_hot else 0)
    yield line("DCGM_FI_DEV_THERMAL_VIOLATION", labels, 1e9, 5e8 if is_hot else 0.0)
    # An instance of a GPU that is well, and a field without a value.
    instance = labels | {"GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb"}
    yield line("DCGM_FI_DEV_SM_CLOCK", instance, 300)
    yield line("DCGM_FI_DEV_MEMORY_TEMP", labels, 2147483634)


def nic(host: str, *, sent: float, received: float) -> Iterator[TimeSeries]:
    """What node_exporter reads of an mlx5 interface: shares of time in pause, by direction."""
    labels = {"instance": f"{host}:9100", "job": "node", "device": "eth0"}
    yield line("node_network_speed_bytes", labels, 50e9)
    yield line("node_network_receive_bytes_total", labels, 1e9, 2e10)
    yield line("node_network_transmit_bytes_total", labels, 1e9, 2e10)
    for way, share in (("transmitted", sent), ("received", received)):
        for priority in range(8):
            part = share if priority == 3 else 0.0
            name = f"node_ethtool_{way}_prio{priority}_pause"
            yield line(name, labels, 0, part * 20_000)
            yield line(f"{name}_duration", labels, 0, part * 1e6)


def broadcom_nic(host: str) -> Iterator[TimeSeries]:
    """A bnxt interface that is stopped; this firmware counts frames, and no time."""
    labels = {"instance": f"{host}:9100", "job": "node", "device": "eth0"}
    yield line("node_network_speed_bytes", labels, 50e9)
    yield line("node_ethtool_received_pfc_ena_frames_pri3", labels, 0, 8_000)


FLEET = [
    *switch_port("Ethernet1", damaged=300.0),
    *switch_port("Ethernet2", damaged=0.0),
    *(each for index in range(4) for each in gpu(index, is_hot=index == 2)),
    *nic("gpu-1", sent=0.4, received=0.0),
    *nic("gpu-2", sent=0.0, received=0.4),
    *nic("gpu-3", sent=0.0, received=0.0),
    *broadcom_nic("gpu-4"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("exporters")) as running:
        body = snappy(request_v1(FLEET))
        answer = running.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
        assert answer.status_code == 204, answer.text
        yield running


@pytest.fixture(scope="module")
def findings(service: InProcess) -> list[Finding]:
    """Of all detectors, in the last two minutes."""
    cables = TopologyCache(service.inventory, lambda: float(NOW_S))
    reader = WindowReader(service.store, service.inventory, cables.at)
    return detect_all(reader.read((NOW_S - WINDOW_S) * NS, NOW_S * NS))


@cache
def expressions() -> dict[str, str]:
    """Of our own pack, by the name of the alert or of what is recorded."""
    return {
        rule.name: rule.expression
        for file, text in fill_pack().items()
        for group in parse_rules(text, file)
        for rule in group.rules
    }


def whole(name: str) -> str:
    """A rule's expression, with what other rules record written out."""

    def written_out(found: re.Match[str]) -> str:
        reach = f"[{found[2]}:{STEP_S}s]" if found[2] else ""
        return f"({whole(found[1])}){reach}"

    return RECORDED.sub(written_out, expressions()[name])


def told(service: InProcess, alert: str) -> set[tuple[str, ...]]:
    """What an alert's expression is true of: host, and device with port, or GPU."""
    asked = {"query": whole(alert), "time": str(NOW_S)}
    answer = service.client.post("/api/v1/query", data=asked)
    assert answer.status_code == 200, answer.text
    rows = [row["metric"] for row in answer.json()["data"]["result"]]
    parts = ("host", "device", "port", "gpu")
    return {tuple(row[part] for part in parts if part in row) for row in rows}


DAMAGED = ("leaf-1", "leaf-1", "Ethernet1")


@pytest.mark.parametrize(
    ("alert", "who"),
    [
        ("FabricReceiveErrors", DAMAGED),
        ("FabricCrcErrors", DAMAGED),
        ("FabricSymbolErrors", DAMAGED),
        ("FabricGpuThermalThrottle", ("gpu-1", "2")),
        ("FabricNicPauseRoot", ("gpu-1", "eth0")),
        ("FabricNicPauseRootHeavy", ("gpu-1", "eth0")),
        ("FabricNicPaused", ("gpu-2", "eth0")),
        ("FabricNicPauseFrames", ("gpu-4", "eth0")),
    ],
)
def test_a_rule_sees_the_fault_and_nobody_else(
    service: InProcess, alert: str, who: tuple[str, ...]
) -> None:
    assert told(service, alert) == {who}


def test_a_port_that_damages_frames_is_a_lossy_link(findings: list[Finding]) -> None:
    lossy = [one for one in findings if one.cause is Cause.LOSSY_LINK]
    cables = {(one.culprit.switch, one.culprit.switch_port) for one in lossy}
    assert cables == {("leaf-1", "Ethernet1")}


def test_a_gpu_that_is_hot_is_found_beside_its_host_s_others(findings: list[Finding]) -> None:
    slow = [one for one in findings if one.reason is Reason.GPU_THROTTLED]
    assert {(one.culprit.host, one.culprit.gpu) for one in slow} == {("gpu-1", 2)}


def test_no_detector_names_who_is_well(findings: list[Finding]) -> None:
    assert {one.cause for one in findings} <= {Cause.LOSSY_LINK, Cause.STRAGGLER}
    assert len(findings) == 2
