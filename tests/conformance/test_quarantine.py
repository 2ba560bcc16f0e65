"""One odd thing harms itself alone, on a real service, from the door to the verdict."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.stands.round_by_round import RoundByRound, round_by_round
from tests.worlds import remote_write as rw

NATIVE = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
ODD = "gpu\u00a07"
NO_PORT = {
    "__name__": "node_infiniband_state_id",
    "device": "mlx5_0",
    "instance": "gpu7:9100",
}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundByRound]:
    with round_by_round(tmp_path_factory.mktemp("quarantine")) as one:
        yield one


def ingest(service: RoundByRound, host: str, *events: Event, **labels: str) -> dict[str, Any]:
    now_ns = time.time_ns()
    where = {"device": "mlx5_0", "port": "1", **labels}
    batch = wire.pack_batch(
        [
            Sample(Series("fabric_port_state", where), 4.0, now_ns),
            Sample(Series("plain_metric", {"a": "b"}), 1.0, now_ns),
        ],
        events,
        agent="agent",
        boot="boot",
        sequence=1,
        sent_ms=now_ns // 1_000_000,
        common={"host": host},
    )
    answer = service.client.post("/v1/ingest", content=wire.encode_batch(batch), headers=NATIVE)
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def write(service: RoundByRound, *series: dict[str, str], version: int = 1) -> httpx.Response:
    now_ms = time.time_ns() // 1_000_000
    sent = [rw.TimeSeries(sorted(each.items()), [(1.0, now_ms)]) for each in series]
    body = rw.request_v1(sent) if version == 1 else rw.request_v2(sent)
    headers = rw.V1_HEADERS if version == 1 else rw.V2_HEADERS
    return service.client.post("/api/v1/write", content=rw.snappy(body), headers=headers)


def hosts_in_window(service: RoundByRound) -> set[str]:
    answer = service.client.get("/v1/ports")
    assert answer.status_code == 200
    return {port["host"] for port in answer.json()["items"]}


def test_an_odd_name_in_a_native_batch_breaks_no_evaluation(service: RoundByRound) -> None:
    ingest(service, ODD)
    ingest(service, "gpu8")
    service.watch()
    assert service.evaluate() is not None
    assert service.troubles() == {}
    assert hosts_in_window(service) == {"gpu8"}


def test_a_series_without_a_port_breaks_no_evaluation(service: RoundByRound) -> None:
    assert write(service, NO_PORT).status_code == 204, "a foreign exporter's series stays stored"
    ingest(service, "gpu8")
    service.watch()
    assert service.evaluate() is not None
    assert service.troubles() == {}
