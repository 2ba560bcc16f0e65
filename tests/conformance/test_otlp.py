"""OTLP/HTTP metrics: what is pushed is durable, has Prometheus' names, and answers PromQL."""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality as Temporality

from api.base.limits import UNPACKED_BYTES_MAX
from tests.stands.service import InProcess, in_process

NOW_NS = time.time_ns() // 1_000_000 * 1_000_000
SECOND_NS = 1_000_000_000
DELTA = Temporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = Temporality.AGGREGATION_TEMPORALITY_CUMULATIVE
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


class Push:
    """A request of one resource, put together by a test."""

    def __init__(self, **resource: str) -> None:
        self.message = ExportMetricsServiceRequest()
        of_resource = self.message.resource_metrics.add()
        set_attributes(of_resource.resource.attributes, resource)
        self._metrics = of_resource.scope_metrics.add().metrics

    def metric(self, name: str, kind: str, unit: str = "", **fields: Any) -> Any:  # noqa: ANN401
        """An empty metric of this kind; returns what its points are added to."""
        made = self._metrics.add()
        made.name, made.unit, made.description = name, unit, f"About {name}."
        held = getattr(made, kind)
        held.SetInParent()
        for field, value in fields.items():
            setattr(held, field, value)
        return held.data_points

    def send(
        self, service: InProcess, media_type: str = PROTOBUF, **headers: str
    ) -> httpx.Response:
        body = self.message.SerializeToString()
        if media_type == JSON:
            body = json_format.MessageToJson(self.message).encode()
        return post(service, body, media_type, **headers)


def set_attributes(attributes: Any, values: dict[str, str]) -> None:  # noqa: ANN401
    for key, value in values.items():
        pair = attributes.add()
        pair.key, pair.value.string_value = key.replace("__", "."), value


def point(points: Any, seconds_ago: float = 0, **more: Any) -> Any:  # noqa: ANN401
    made = points.add()
    made.time_unix_nano = NOW_NS - int(seconds_ago * SECOND_NS)
    set_attributes(made.attributes, more.pop("attributes", {}))
    for field, value in more.items():
        if isinstance(value, list):
            getattr(made, field).extend(value)
        else:
            setattr(made, field, value)
    return made


def post(service: InProcess, body: bytes, media_type: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.client.post(
        "/otlp/v1/metrics", content=body, headers={"content-type": media_type, **named}
    )


def accepted(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == PROTOBUF
    response = ExportMetricsServiceResponse.FromString(answer.content)
    assert not response.partial_success.rejected_data_points, response


def values(service: InProcess, match: str) -> dict[str, list[float]]:
    """Values in order of time, by the series' labels without its name."""
    found = service.samples(match, **{"from": "0"})
    return {
        ",".join(
            f"{name}={value}" for name, value in sorted(each["labels"].items()) if name[:2] != "__"
        ): [float(value) for value in each["values"]]
        for each in found
    }


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_a_gauge_of_a_switch_is_found_by_its_host(service: InProcess, media_type: str) -> None:
    host = f"leaf-{media_type[-4:]}"
    push = Push(host__name=host, service__name="hft")
    points = push.metric("nvswitch_interface_tc_tx_frames", "gauge")
    point(points, 1, as_double=5.0, attributes={"interface": "swp1"})
    point(points, 0, as_int=7, attributes={"interface": "swp1"})
    answer = push.send(service, media_type)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(media_type)
    match = f'nvswitch_interface_tc_tx_frames{{host="{host}"}}'
    assert values(service, match) == {f"host={host},interface=swp1,job=hft": [5.0, 7.0]}


def test_sums_have_the_names_that_prometheus_gives_them(service: InProcess) -> None:
    push = Push(service__name="n")
    growing = push.metric(
        "net.io", "sum", "By", is_monotonic=True, aggregation_temporality=CUMULATIVE
    )
    point(growing, as_int=1 << 40, attributes={"net.dir": "rx"})
    level = push.metric("queue.used", "sum", "By", aggregation_temporality=CUMULATIVE)
    point(level, as_int=-3)
    accepted(push.send(service))
    assert values(service, "net_io_bytes_total") == {"job=n,net_dir=rx": [float(1 << 40)]}
    assert values(service, "queue_used_bytes") == {"job=n": [-3.0]}
    said = service.client.get("/api/v1/metadata", params={"metric": "net_io_bytes_total"}).json()
    assert said["data"]["net_io_bytes_total"] == [
        {"type": "counter", "help": "About net.io.", "unit": "By"}
    ]


def test_deltas_add_up_and_a_resend_adds_nothing(service: InProcess) -> None:
    def push(value: int, seconds_ago: float) -> Push:
        made = Push(service__name="d")
        points = made.metric("drops", "sum", is_monotonic=True, aggregation_temporality=DELTA)
        point(points, seconds_ago, as_int=value)
        return made

    for value, ago in ((3, 30), (4, 20), (4, 20), (5, 10)):
        accepted(push(value, ago).send(service))
    assert values(service, 'drops_total{job="d"}') == {"job=d": [3.0, 7.0, 12.0]}
    late = ExportMetricsServiceResponse.FromString(push(9, 25).send(service).content)
    assert late.partial_success.rejected_data_points == 1
    assert "delta_late" in late.partial_success.error_message


def test_deltas_are_refused_where_another_process_may_have_the_rest(service: InProcess) -> None:
    made = Push(service__name="shared")
    points = made.metric("drops", "sum", is_monotonic=True, aggregation_temporality=DELTA)
    point(points, as_int=3)
    level = made.metric("queue.used", "sum", "By", aggregation_temporality=CUMULATIVE)
    point(level, as_int=7)
    service.context.ingest.sums_deltas = False
    try:
        answer = ExportMetricsServiceResponse.FromString(made.send(service).content)
    finally:
        service.context.ingest.sums_deltas = True
    assert answer.partial_success.rejected_data_points == 1
    assert "delta_shared" in answer.partial_success.error_message
    assert values(service, 'drops_total{job="shared"}') == {}
    assert values(service, 'queue_used_bytes{job="shared"}') == {"job=shared": [7.0]}


def test_a_histogram_becomes_buckets_a_sum_and_a_count(service: InProcess) -> None:
    push = Push(service__name="h")
    points = push.metric("lat", "histogram", "s", aggregation_temporality=CUMULATIVE)
    point(points, count=9, sum=4.5, bucket_counts=[2, 3, 4], explicit_bounds=[0.25, 5.0])
    accepted(push.send(service))
    assert values(service, 'lat_seconds_bucket{job="h"}') == {
        "job=h,le=0.25": [2.0],
        "job=h,le=5": [5.0],
        "job=h,le=+Inf": [9.0],
    }
    assert values(service, 'lat_seconds_count{job="h"}') == {"job=h": [9.0]}
    assert values(service, 'lat_seconds_sum{job="h"}') == {"job=h": [4.5]}
    answer = service.client.get(
        "/api/v1/query",
        params={"query": "histogram_quantile(0.5, lat_seconds_bucket)", "time": NOW_NS / 1e9},
    ).json()
    assert float(answer["data"]["result"][0]["value"][1]) == pytest.approx(4.208333, rel=1e-5)


def test_delta_histograms_add_up_in_every_bucket(service: InProcess) -> None:
    for ago, count in ((20, 4), (10, 6)):
        push = Push(service__name="dh")
        points = push.metric("lat", "histogram", "s", aggregation_temporality=DELTA)
        point(points, ago, count=count, sum=1.0, bucket_counts=[1, count - 1], explicit_bounds=[1])
        accepted(push.send(service))
    assert values(service, 'lat_seconds_bucket{job="dh"}') == {
        "job=dh,le=1": [1.0, 2.0],
        "job=dh,le=+Inf": [4.0, 10.0],
    }
    assert values(service, 'lat_seconds_sum{job="dh"}') == {"job=dh": [1.0, 2.0]}


def test_an_exponential_histogram_becomes_powers_of_two(service: InProcess) -> None:
    """Scale 1: buckets of sqrt(2). Index 0 and 1 lie in (1, 2], 2 and 3 in (2, 4]."""
    push = Push(service__name="e")
    points = push.metric("exp", "exponential_histogram", aggregation_temporality=CUMULATIVE)
    made = point(points, count=15, sum=30.0, scale=1, zero_count=2)
    made.positive.offset = 0
    made.positive.bucket_counts.extend([1, 2, 3, 4])
    made.negative.offset = 0
    made.negative.bucket_counts.extend([3])
    accepted(push.send(service))
    assert values(service, "exp_bucket") == {
        "job=e,le=-1": [3.0],
        "job=e,le=0": [5.0],
        "job=e,le=2": [8.0],
        "job=e,le=4": [15.0],
        "job=e,le=+Inf": [15.0],
    }


def test_a_summary_becomes_quantiles(service: InProcess) -> None:
    push = Push(service__name="s")
    made = point(push.metric("old", "summary"), count=4, sum=8.0)
    pair = made.quantile_values.add()
    pair.quantile, pair.value = 0.99, 3.0
    accepted(push.send(service))
    assert values(service, "old") == {"job=s,quantile=0.99": [3.0]}
    assert values(service, "old_count") == {"job=s": [4.0]}


def test_the_resource_is_in_target_info(service: InProcess) -> None:
    push = Push(
        service__name="api", service__namespace="shop", service__instance__id="i-1", os="linux"
    )
    point(push.metric("up2", "gauge"), as_double=1.0)
    accepted(push.send(service))
    assert values(service, "target_info{os='linux'}") == {
        "instance=i-1,job=shop/api,os=linux": [1.0]
    }
    assert values(service, "up2") == {"instance=i-1,job=shop/api": [1.0]}


def test_a_value_that_is_recorded_no_more_ends_its_series(service: InProcess) -> None:
    push = Push(service__name="gone")
    points = push.metric("ending", "gauge")
    point(points, 10, as_double=1.0)
    point(points, 5, flags=1)
    accepted(push.send(service))

    def ask(seconds_ago: float) -> list[Any]:
        when = NOW_NS / 1e9 - seconds_ago
        answer = service.client.get("/api/v1/query", params={"query": "ending", "time": when})
        found: list[Any] = answer.json()["data"]["result"]
        return found

    assert len(ask(7)) == 1
    assert ask(1) == []


def test_of_points_in_one_millisecond_a_gauge_keeps_the_greatest_and_a_sum_the_last(
    service: InProcess,
) -> None:
    push = Push(service__name="us")
    depth = push.metric("depth", "gauge")
    octets = push.metric("octets", "sum", is_monotonic=True, aggregation_temporality=CUMULATIVE)
    for place, value in enumerate((4, 9, 2)):
        for points in (depth, octets):
            made = point(points, as_int=value)
            made.time_unix_nano = NOW_NS + place * 10_000
    accepted(push.send(service))
    assert values(service, "depth") == {"job=us": [9.0]}
    assert values(service, "octets_total") == {"job=us": [2.0]}
    shown = service.client.get("/metrics").text
    assert 'fabric_service_merged_samples_total{protocol="otlp"} 4.0' in shown


def test_what_is_wrong_is_named_and_the_rest_is_kept(service: InProcess) -> None:
    push = Push(service__name="partly")
    points = push.metric("partly", "gauge")
    point(points, as_double=1.0)
    point(points, 86_400 * 4000, as_double=2.0)
    point(points, as_double=3.0, attributes={"long": "x" * 5000})
    histogram = push.metric("odd", "histogram", aggregation_temporality=CUMULATIVE)
    point(histogram, count=1, bucket_counts=[1, 2, 3], explicit_bounds=[1.0])
    answer = ExportMetricsServiceResponse.FromString(push.send(service).content)
    assert answer.partial_success.rejected_data_points == 3
    for rule in ("too_old", "bad_labels", "bad_point"):
        assert rule in answer.partial_success.error_message
    assert values(service, "partly") == {"job=partly": [1.0]}


def test_gzip_is_unpacked_up_to_a_bound(service: InProcess) -> None:
    push = Push(service__name="zip")
    point(push.metric("zipped", "gauge"), as_double=1.0)
    body = gzip.compress(push.message.SerializeToString())
    accepted(post(service, body, PROTOBUF, content_encoding="gzip"))
    assert values(service, "zipped") == {"job=zip": [1.0]}
    bomb = gzip.compress(bytes(UNPACKED_BYTES_MAX + 1))
    assert post(service, bomb, PROTOBUF, content_encoding="gzip").status_code == 413
    assert post(service, body[:-9], PROTOBUF, content_encoding="gzip").status_code == 400
    assert post(service, b"no", PROTOBUF, content_encoding="gzip").status_code == 400


@pytest.mark.parametrize(
    ("body", "media_type", "encoding", "status"),
    [
        (b"\xff\xff", PROTOBUF, "identity", 400),
        (b"{", JSON, "identity", 400),
        (b"[]", JSON, "identity", 400),
        (b'{"resourceMetrics": 7}', JSON, "identity", 400),
        (b"[" * 3000, JSON, "identity", 400),
        (b"", "text/plain", "identity", 415),
        (b"", PROTOBUF, "br", 415),
    ],
)
def test_what_is_no_request_is_refused_with_a_status(
    service: InProcess, body: bytes, media_type: str, encoding: str, status: int
) -> None:
    answer = post(service, body, media_type, content_encoding=encoding)
    assert answer.status_code == status
    if media_type == JSON:
        assert set(answer.json()) == {"code", "message"}
    else:
        assert answer.content[:1] == b"\x08"


def test_an_empty_request_is_fine(service: InProcess) -> None:
    accepted(post(service, b"", PROTOBUF))
    assert post(service, b"{}", JSON).json() == {}


def test_json_as_otlp_writes_it_is_read(service: InProcess) -> None:
    """Large numbers are texts, kinds are numbers, ids are hex, unknown fields are passed over."""
    document = {
        "unknown": {"a": 1},
        "resourceMetrics": [
            {
                "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "j"}}]},
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "j",
                                "sum": {
                                    "aggregationTemporality": 2,
                                    "isMonotonic": True,
                                    "dataPoints": [
                                        {
                                            "timeUnixNano": str(NOW_NS),
                                            "asInt": str(1 << 50),
                                            "exemplars": [{"traceId": "zz"}],
                                        }
                                    ],
                                },
                            }
                        ]
                    }
                ],
            }
        ],
    }
    answer = post(service, json.dumps(document).encode(), JSON)
    assert answer.json() == {}
    assert values(service, "j_total") == {"host=j": [float(1 << 50)]}


def test_deltas_that_could_not_be_stored_are_not_counted_twice(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Push(service__name="away")
    points = push.metric("lost", "sum", is_monotonic=True, aggregation_temporality=DELTA)
    point(points, 5, as_int=3)
    with monkeypatch.context() as patched:
        patched.setattr("api.data.ingest.commit.PENDING_ROWS_MAX", 0)
        answer = push.send(service)
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    accepted(push.send(service))
    assert values(service, "lost_total") == {"job=away": [3.0]}


def test_a_switch_that_pushes_is_in_the_answers_about_ports(service: InProcess) -> None:
    """Through the catalog's aliases: the name of ours, the switch as host and device."""
    push = Push(host__name="leaf-9")
    points = push.metric("nvswitch_interface_dot3_stats_fcs_errors", "gauge")
    point(points, as_double=4.0, attributes={"interface": "swp7"})
    accepted(push.send(service))
    answer = service.client.get(
        "/api/v1/query",
        params={
            "query": 'fabric_port_receive_crc_errors_total{host="leaf-9"}',
            "time": NOW_NS / 1e9,
        },
    ).json()
    (found,) = answer["data"]["result"]
    assert found["value"][1] == "4"
    assert found["metric"] == {
        "__name__": "fabric_port_receive_crc_errors_total",
        "device": "leaf-9",
        "host": "leaf-9",
        "port": "swp7",
    }
