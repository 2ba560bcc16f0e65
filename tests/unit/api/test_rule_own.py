"""The service's own numbers as series: whose they are, how many, and a store that is away."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from api.base.metrics import ServiceMetrics
from api.data.ingest.commit import GroupCommit
from api.data.ingest.own import OwnSamples
from api.oncall.rules.own import OwnNumbers
from collector.contract.errors import StoreError
from collector.contract.model import Sample


class Writes(OwnSamples):
    """A store that remembers what is written, or is away."""

    def __init__(self) -> None:
        super().__init__(cast("GroupCommit", None))
        self.samples: list[Sample] = []
        self.is_away = False

    async def write(self, samples: Sequence[Sample], *, at_once: bool = False) -> None:
        del at_once
        if self.is_away:
            raise StoreError("away")
        self.samples += samples


def numbers(metrics: ServiceMetrics, writes: Writes, port: int = 9700) -> OwnNumbers:
    return OwnNumbers(metrics, writes, lambda: 1_794_700_000.5, port)


def test_numbers_carry_the_process_that_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    metrics, writes = ServiceMetrics(), Writes()
    metrics.requests.labels("GET", "/v1/hosts", "200").inc(3)
    written = asyncio.run(numbers(metrics, writes).write())
    assert written == len(writes.samples)
    (sample,) = [
        one for one in writes.samples if one.series.metric == "fabric_service_requests_total"
    ]
    assert (sample.value, sample.time_ns) == (3.0, 1_794_700_000_500_000_000)
    assert dict(sample.series.labels) == {
        "host": "node1",
        "instance": "node1:9700",
        "method": "GET",
        "path": "/v1/hosts",
        "status": "200",
    }
    other = numbers(ServiceMetrics(), writes, port=9800).samples(0)
    assert {one.series for one in other}.isdisjoint(one.series for one in writes.samples)


def test_more_numbers_than_there_may_be_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("api.oncall.rules.own.OWN_SERIES_MAX", 5)
    metrics, writes = ServiceMetrics(), Writes()
    own = numbers(metrics, writes)
    count = len(own.samples(0))
    assert asyncio.run(own.write()) == 5
    assert len(writes.samples) == 5
    left_out = "fabric_service_own_samples_left_out_total"
    assert metrics.registry.get_sample_value(left_out) == count - 5


def test_a_store_that_is_away_is_written_to_again(caplog: pytest.LogCaptureFixture) -> None:
    metrics, writes = ServiceMetrics(), Writes()
    own = numbers(metrics, writes)
    writes.is_away = True
    assert asyncio.run(own.write()) == 0
    assert asyncio.run(own.write()) == 0
    assert len(caplog.records) == 1
    writes.is_away = False
    assert asyncio.run(own.write()) > 0
