"""Bytes and congestion by tenant: in verdicts, and by the queries that the how-to gives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from api.jobs.tenants import Telling, Tenant, attributed, tenants_on, with_tenants
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Layer, Verdict
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

HOW_TO = Path(__file__).parents[2] / "docs/how-to/run-the-agent.md"
NOW_S = int(time.time())
SPAN_S = 600
BEFORE_S = NOW_S - SPAN_S
"""When everything begins: job a has the device alone for the first half, job b for the second."""
RATE = 1e9
PORT = {"host": "gpu-1", "cluster": "c", "device": "mlx5_0", "port": "1"}
DEVICE = {name: PORT[name] for name in ("host", "cluster", "device")}


def series(
    name: str,
    labels: Mapping[str, str],
    rate: float,
    *,
    level: float = 0.0,
    every_s: int = 10,
    within: tuple[int, int] = (0, SPAN_S),
) -> TimeSeries:
    samples = [
        (level + rate * at, (BEFORE_S + at) * 1000) for at in range(within[0], within[1], every_s)
    ]
    return TimeSeries(sorted({"__name__": name, **labels}.items()), samples)


def told(host: str, within: tuple[int, int], **who: str) -> TimeSeries:
    labels = {**DEVICE, "host": host, **who}
    return series("fabric_rdma_sole_tenant_info", labels, 0.0, level=1.0, every_s=60, within=within)


PROCESS = {**DEVICE, "pid": "7", "command": "python", "job": "b"}
FUNCTION = {**DEVICE, "vf": "2"}
CGROUP = {**DEVICE, "cgroup": "/slurm/job_b", "kind": "hca_object"}
SENT = [
    series("fabric_port_transmit_bytes_total", PORT, RATE),
    series("fabric_port_receive_bytes_total", PORT, 2 * RATE),
    series("fabric_port_cnp_handled_total", PORT, 50.0),
    # Beside it a device that two jobs share: nobody is told to have it alone.
    series("fabric_port_transmit_bytes_total", {**PORT, "host": "gpu-2"}, RATE),
    told("gpu-1", (0, SPAN_S // 2), job="a", user="ann"),
    told("gpu-1", (SPAN_S // 2, SPAN_S), job="b", user="bob"),
    series("fabric_rdma_user_queue_pairs", {**PROCESS, "state": "ready"}, 0.0, level=12.0),
    series("fabric_rdma_user_queue_pairs", {**PROCESS, "state": "error"}, 0.0, level=1.0),
    series("fabric_function_transmitted_bytes_total", FUNCTION, 3 * RATE),
    series("fabric_function_info", {**FUNCTION, "rdma_device": "mlx5_9"}, 0.0, level=1.0),
    series(
        "fabric_rdma_bound_counter_total",
        {**PROCESS, "port": "1", "id": "3", "counter": "rp_cnp_handled"},
        40.0,
    ),
    series("fabric_rdma_cgroup_used", CGROUP, 0.0, level=50.0),
    series("fabric_rdma_cgroup_limit", CGROUP, 0.0, level=200.0),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("tenants")) as running:
        body = snappy(request_v1(SENT))
        answer = running.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
        assert answer.status_code == 204, answer.text
        yield running


# The how-to --------------------------------------------------------------------------------------


def queries() -> list[str]:
    """Those under "Who uses a NIC", in their order."""
    section = HOW_TO.read_text("utf-8").partition("## Who uses a NIC")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def answers(service: InProcess, query: str) -> list[tuple[dict[str, str], float]]:
    asked = {"query": query, "time": str(NOW_S - 10)}
    answer = service.client.post("/api/v1/query", data=asked)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["data"]["result"]
    return [(row["metric"], float(row["value"][1])) for row in rows]


WANTED: list[list[tuple[dict[str, str], float]]] = [
    [
        ({"host": "gpu-1", "device": "mlx5_0", "job": "b", "command": "python", "state": s}, n)
        for s, n in (("error", 1.0), ("ready", 12.0))
    ],
    [({"cluster": "c", "job": "b", "user": "bob"}, RATE)],
    [({"cluster": "c", "host": "gpu-1", "rdma_device": "mlx5_9"}, 3 * RATE)],
    [({"host": "gpu-1", "device": "mlx5_0", "pid": "7", "job": "b"}, 40.0)],
    [({**DEVICE, "cgroup": "/slurm/job_b", "kind": "hca_object"}, 0.25)],
]


def test_every_query_of_the_how_to_is_checked() -> None:
    assert len(queries()) == len(WANTED)


@pytest.mark.parametrize("place", range(len(WANTED)))
def test_a_query_of_the_how_to_answers_what_it_says(service: InProcess, place: int) -> None:
    found = sorted(answers(service, queries()[place]), key=repr)
    assert [labels for labels, _ in found] == [labels for labels, _ in WANTED[place]]
    assert [value for _, value in found] == pytest.approx([value for _, value in WANTED[place]])


# By tenant ---------------------------------------------------------------------------------------

A, B = Tenant(job="a", user="ann"), Tenant(job="b", user="bob")
WHOLE = BEFORE_S * NS, NOW_S * NS


def test_bytes_and_congestion_are_each_tenant_s_while_it_was_alone(service: InProcess) -> None:
    found = tenants_on(service.store, [("gpu-1", "mlx5_0", "1")], WHOLE)
    assert {one.tenant for one in found.shares} == {A, B}
    for one in found.shares:
        # Four minutes between its first and last telling; after the last one it still has it.
        assert 230 * RATE < one.sent_bytes <= 300 * RATE
        assert one.received_bytes == pytest.approx(2 * one.sent_bytes)
        assert one.slowed_down == pytest.approx(50 * one.sent_bytes / RATE)
    # The minute in which it changed hands is nobody's.
    known = sum(one.sent_bytes + one.received_bytes for one in found.shares)
    assert found.unknown_bytes == pytest.approx((SPAN_S - 10) * 3 * RATE - known)
    assert found.unknown_bytes >= 50 * 3 * RATE


def test_a_device_that_several_have_is_nobody_s(service: InProcess) -> None:
    assert tenants_on(service.store, [("gpu-2", "mlx5_0", "1")], WHOLE).shares == []


def test_an_old_telling_and_a_counter_that_began_anew_give_nothing() -> None:
    told = [Telling(0, A)]
    assert attributed(told, [1_000, 11_000], [5.0, 6.0]) == {A: 1.0}
    assert attributed(told, [1_000, 11_000], [5.0, 4.0]) == {}
    assert attributed(told, [160_000, 170_000], [5.0, 6.0]) == {None: 1.0}
    assert attributed([], [1_000, 11_000], [5.0, 6.0]) == {None: 1.0}


def verdict(culprit: Culprit, layer: Layer = Layer.NETWORK) -> Verdict:
    return Verdict(
        cause=Cause.CONGESTION,
        layer=layer,
        culprit=culprit,
        since_ns=(NOW_S - 200) * NS,
        until_ns=None,
        jobs=("b",),
        summary="",
        confidence=0.9,
    )


def test_a_verdict_tells_whose_bytes_its_port_s_are_and_accuses_as_before(
    service: InProcess,
) -> None:
    before = verdict(Culprit(host="gpu-1", device="mlx5_0", port="1"))
    after = with_tenants(service.store, before, NOW_S * NS)
    (told,) = after.evidence
    assert told.text.startswith("While job b had gpu-1 mlx5_0 alone it sent ")
    assert "told to slow down" in told.text
    assert after.culprit == before.culprit
    assert after.confidence == before.confidence


@pytest.mark.parametrize(
    "one",
    [
        verdict(Culprit(host="gpu-2", device="mlx5_0", port="1")),
        verdict(Culprit(switch="leaf-1", switch_port="1")),
        verdict(Culprit(host="gpu-1", device="mlx5_0", port="1"), Layer.COMPUTE),
    ],
)
def test_other_verdicts_stay_as_they_are(service: InProcess, one: Verdict) -> None:
    assert with_tenants(service.store, one, NOW_S * NS) == one
