"""Whatever a stranger may send: any names, labels, values and times, by every door."""

import struct
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from collector.contract import wire
from collector.contract.catalog import load_catalog
from collector.contract.collective import Collective, Operation, State, StepSpan, Timing
from collector.contract.model import Event, Sample, Series
from tests.worlds import remote_write as rw

NATIVE_HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
INT64 = (-(1 << 63), (1 << 63) - 1)
NS = 1_000_000_000

OURS = sorted(metric.name for file in load_catalog().files for metric in file.metrics)
WINDOWED = sorted(
    metric.name
    for kind in ("port", "nic", "gpu", "host", "step")
    for metric in load_catalog().in_windows(kind)
)
ALIASES = sorted(
    {
        alias.name
        for file in load_catalog().files
        for metric in file.metrics
        for alias in metric.aliases
    }
)
LABEL_NAMES = (
    *("host", "device", "port", "gpu", "instance", "node", "Hostname", "cluster", "job", "rank"),
    *("communicator", "operation", "size", "uuid", "UUID", "peer_name", "peer_port", "peer_guid"),
    *("peer_chassis", "peer_port_id", "method", "switch", "switch_port", "xid", "mode", "reason"),
    *("node_guid", "pci_bus_id", "pci_path", "ranks", "state", "netdev", "priority", "le"),
)
ODD_WORDS = (
    *("", "gpu\u00a07", "\0", "\u202e", "\ud7ff", "\U0010ffff", " ", "a/b", "a|b", "%2F", "\n"),
    *("9" * 20, "9" * 1000, "-1", "NaN", "1e400", "²", "٣", "x" * 300, "é" * 200, "{{", "$value"),
    *("node-1", "node-1:9100", "[fd00::7]:9100", "mlx5_0", "eth0", "0", "1", "leaf-0", "swp1"),
    *("all_reduce", "0x0002c903", "00:11:22:33:44:55", "AA-BB-CC-DD-EE-FF"),
)

words = st.one_of(st.sampled_from(ODD_WORDS), st.text(max_size=12))
label_names = st.one_of(st.sampled_from(LABEL_NAMES), st.text(max_size=8))
labels = st.dictionaries(label_names, words, max_size=8)
metrics = st.one_of(
    st.sampled_from(WINDOWED), st.sampled_from(OURS), st.sampled_from(ALIASES), st.text(max_size=12)
)
values = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1.0, 4.0, 5e-324, 1.7976931348623157e308, 2.0**53, 2.0**63, -1.0]),
)
ages_ns = st.one_of(
    st.integers(0, 200 * NS),
    st.integers(-700 * NS, 700 * NS),
    st.integers(-(1 << 62), 1 << 62),
)
"""How long before now; negative: in the future."""
whole = st.one_of(st.integers(*INT64), st.integers(0, 9))
maybe = st.one_of(st.none(), whole)


@dataclass(frozen=True)
class Point:
    """A sample of one series, or of one point of a metric."""

    metric: str
    labels: dict[str, str]
    value: float = 1.0
    age_ns: int = NS


@dataclass(frozen=True)
class Sending:
    """One request; `door` is the protocol, and each takes of the rest what it knows."""

    door: str
    points: list[Point] = field(default_factory=list)
    common: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, dict[str, str], dict[str, str], int]] = field(default_factory=list)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)


points = st.builds(Point, metrics, labels, values, ages_ns)
events = st.tuples(
    st.one_of(
        st.sampled_from(
            ("gpu_xid", "link_state", "communicator", "process_group", "burst", "capture")
        ),
        words,
    ),
    labels,
    labels,
    ages_ns,
)
small = st.integers(0, 9)
collectives = st.fixed_dictionaries(
    {
        "communicator": words,
        "operation": st.sampled_from(list(Operation)),
        "sequence": st.one_of(small, whole),
        "rank": st.one_of(small, whole),
        "ranks": st.one_of(small, whole),
        "source": st.one_of(st.sampled_from(["nccl_inspector", "flight_recorder"]), words),
        "time_ns": ages_ns,
        "entry_ns": st.one_of(st.none(), ages_ns),
        "exit_ns": st.one_of(st.none(), ages_ns),
        "enqueue_ns": st.one_of(st.none(), ages_ns),
        "duration_ns": maybe,
        "size_bytes": maybe,
        "timing": st.sampled_from(list(Timing)),
        "state": st.sampled_from(list(State)),
        "algorithm": words,
        "protocol": words,
        "peer": maybe,
        "host": words,
        "pid": st.one_of(small, whole),
        "job": words,
    }
)
steps = st.fixed_dictionaries(
    {
        "step": st.one_of(small, whole),
        "start_ns": ages_ns,
        "end_ns": ages_ns,
        "source": words,
        "phase": words,
        "rank": maybe,
        "host": words,
        "pid": whole,
        "job": words,
    }
)
sendings = st.one_of(
    st.builds(
        Sending,
        st.just("native"),
        st.lists(points, max_size=6),
        st.dictionaries(label_names, words, max_size=4),
        st.lists(events, max_size=4),
        st.lists(collectives, max_size=6),
        st.lists(steps, max_size=4),
    ),
    st.builds(
        Sending, st.sampled_from(["write 1", "write 2", "otlp"]), st.lists(points, max_size=8)
    ),
)


def clamp(number: int) -> int:
    return max(INT64[0], min(INT64[1], number))


def native(sending: Sending, now_ns: int) -> bytes:
    def moments(record: dict[str, Any]) -> dict[str, Any]:
        """Ages as times, for the fields that are times."""
        times = {"time_ns", "entry_ns", "exit_ns", "enqueue_ns", "start_ns", "end_ns"}
        return {
            name: clamp(now_ns - value) if name in times and value is not None else value
            for name, value in record.items()
        }

    batch = wire.pack_batch(
        [
            Sample(Series(one.metric, one.labels), one.value, clamp(now_ns - one.age_ns))
            for one in sending.points
        ],
        [
            Event(kind=kind, time_ns=clamp(now_ns - age), labels=named, attributes=seen)
            for kind, named, seen, age in sending.events
        ],
        [Collective(**moments(each)) for each in sending.collectives],
        [StepSpan(**moments(each)) for each in sending.steps],
        agent="stranger",
        boot="boot",
        sequence=now_ns,
        sent_ms=now_ns // 1_000_000,
        common=sending.common,
    )
    return wire.encode_batch(batch)


def time_series(sending: Sending, now_ns: int) -> list[rw.TimeSeries]:
    return [
        rw.TimeSeries(
            sorted({**one.labels, "__name__": one.metric}.items()),
            [(one.value, clamp(now_ns - one.age_ns) // 1_000_000)],
        )
        for one in sending.points
    ]


def otlp(sending: Sending, now_ns: int) -> bytes:
    message = ExportMetricsServiceRequest()
    for one in sending.points:
        resource = message.resource_metrics.add()
        if "host" in one.labels:
            name = resource.resource.attributes.add()
            name.key, name.value.string_value = "host.name", one.labels["host"]
        metric = resource.scope_metrics.add().metrics.add()
        metric.name = one.metric
        point = metric.gauge.data_points.add()
        point.time_unix_nano = max(0, clamp(now_ns - one.age_ns))
        point.as_double = one.value
        for key, value in one.labels.items():
            attribute = point.attributes.add()
            attribute.key, attribute.value.string_value = key, value
    body: bytes = message.SerializeToString()
    return body


def send(client: httpx.Client, sending: Sending) -> httpx.Response | None:
    """The service's answer; None if the bytes of such a request cannot even be written."""
    now_ns = time.time_ns()
    try:
        if sending.door == "native":
            path, body, headers = "/v1/ingest", native(sending, now_ns), NATIVE_HEADERS
        elif sending.door == "otlp":
            path, body = "/otlp/v1/metrics", otlp(sending, now_ns)
            headers = {"Content-Type": "application/x-protobuf"}
        else:
            series = time_series(sending, now_ns)
            is_first = sending.door == "write 1"
            path = "/api/v1/write"
            body = rw.snappy(rw.request_v1(series) if is_first else rw.request_v2(series))
            headers = rw.V1_HEADERS if is_first else rw.V2_HEADERS
    except (OverflowError, struct.error):
        return None  # a number that the protocol has no room for
    return client.post(path, content=body, headers=headers)
