"""While the service's clock has just jumped, senders wait: what it refuses is lost for good."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.base.clocks import JUMP_HOLD_SECONDS, TrustedClock
from api.data.ingest.commit import Overloaded
from collector.contract import wire
from collector.contract.model import Sample, Series
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

HOUR = 3_600.0


class Clocks:
    """The machine's clock, which can be set, and one that cannot."""

    def __init__(self) -> None:
        self.set_by_s = 0.0
        self.passed_s = 0.0

    def wall(self) -> float:
        return time.time() + self.passed_s + self.set_by_s

    def steady(self) -> float:
        return time.monotonic() + self.passed_s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def service(tmp_path: Path, clocks: Clocks) -> Iterator[InProcess]:
    with in_process(tmp_path, clock=clocks.wall) as running:
        running.context.ingest.trusted = TrustedClock(clocks.wall, clocks.steady)
        yield running


def native(service: InProcess) -> int:
    now_ns = time.time_ns()
    batch = wire.pack_batch(
        [Sample(Series("up", {}), 1.0, now_ns)],
        agent="node-a",
        boot="b",
        sequence=0,
        sent_ms=now_ns // 1_000_000,
        common={"host": "node-a"},
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    body = wire.encode_batch(batch)
    answer = service.client.post("/v1/ingest", content=body, headers=headers)
    assert answer.status_code == 503 or answer.json()["refused"] == {}, answer.text
    assert answer.status_code == 200 or answer.headers["Retry-After"]
    return answer.status_code


def remote(service: InProcess) -> int:
    series = rw.TimeSeries([("__name__", "up"), ("host", "b")], [(1.0, int(time.time() * 1000))])
    body = rw.snappy(rw.request_v1([series]))
    return service.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS).status_code


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_senders_wait_until_the_clock_is_back(
    service: InProcess, clocks: Clocks, step: float
) -> None:
    assert (native(service), remote(service)) == (200, 204)
    clocks.set_by_s = step
    assert (native(service), remote(service)) == (503, 503)
    clocks.set_by_s = 0.0
    assert (native(service), remote(service)) == (200, 204)


def test_a_clock_that_stays_is_believed_after_a_while(service: InProcess, clocks: Clocks) -> None:
    clocks.set_by_s = 20.0
    assert native(service) == 503
    clocks.passed_s = JUMP_HOLD_SECONDS + 1
    assert native(service) == 200


def test_a_request_that_waits_leaves_nothing_behind(service: InProcess, clocks: Clocks) -> None:
    clocks.set_by_s = HOUR
    with pytest.raises(Overloaded, match="clock"):
        asyncio.run(service.context.ingest.native(b""))
    assert service.rows("SELECT count() AS n FROM samples") == [{"n": 0}]
