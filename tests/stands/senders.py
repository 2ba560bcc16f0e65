"""Senders of telemetry with a token: native batches, remote write 1 and 2, OTLP."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import httpx
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.worlds import remote_write as rw

NATIVE_HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
Labels = Mapping[str, str]
"""With `__name__`."""
Send = Callable[..., httpx.Response]


class Reached(Protocol):
    """A service, in this process or another."""

    client: httpx.Client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def native(
    service: Reached,
    series: Iterable[Labels],
    token: str = "",
    *,
    host: str = "",
    agent: str = "",
    events: Iterable[Event] = (),
    **more: Any,  # noqa: ANN401 - parts of a batch
) -> httpx.Response:
    """A batch with one sample of each series, now."""
    now_ns = time.time_ns()
    samples = [
        Sample(Series(each["__name__"], own), 1.0, now_ns)
        for each in series
        for own in ({name: value for name, value in each.items() if name != "__name__"},)
    ]
    batch = wire.pack_batch(
        samples,
        tuple(events),
        agent=agent or host or "agent",
        boot="b",
        sequence=now_ns,
        sent_ms=now_ns // 1_000_000,
        common={"host": host} if host else {},
        **more,
    )
    headers = NATIVE_HEADERS | bearer(token)
    return service.client.post("/v1/ingest", content=wire.encode_batch(batch), headers=headers)


def remote(
    service: Reached, series: Iterable[Labels], token: str = "", *, version: int = 1
) -> httpx.Response:
    """A request of remote write with one sample of each series, now."""
    now_ms = int(time.time() * 1000)
    made = [rw.TimeSeries(sorted(each.items()), [(1.0, now_ms)]) for each in series]
    body = rw.request_v1(made) if version == 1 else rw.request_v2(made)
    headers = (rw.V1_HEADERS if version == 1 else rw.V2_HEADERS) | bearer(token)
    return service.client.post("/api/v1/write", content=rw.snappy(body), headers=headers)


def otlp(service: Reached, series: Iterable[Labels], token: str = "") -> httpx.Response:
    """Gauges of one resource without a host of its own."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for each in series:
        metric = metrics.add()
        metric.name = each["__name__"]
        point = metric.gauge.data_points.add()
        point.time_unix_nano = time.time_ns()
        point.as_double = 1.0
        for name, value in each.items():
            if name != "__name__":
                pair = point.attributes.add()
                pair.key, pair.value.string_value = name, value
    headers = {"Content-Type": "application/x-protobuf"} | bearer(token)
    return service.client.post(
        "/otlp/v1/metrics", content=request.SerializeToString(), headers=headers
    )
