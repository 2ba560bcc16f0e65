"""OTLP bodies from strangers: a request or a WireError, never anything else; names are names."""

import contextlib
import re
import time

import numpy as np
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from api.data.ingest.columns import Acceptance
from api.data.ingest.otlp import OtlpSeries, decode_otlp, parse_json, parse_protobuf
from api.data.ingest.otlp_names import label_name, metric_name
from collector.contract.errors import WireError
from tests.tools.cut import CUT

NOW_MS = int(time.time() * 1000)
ACCEPTANCE = Acceptance.at(NOW_MS, 30)
TIME_NS = NOW_MS * 1_000_000
names = st.text(max_size=20)
numbers = st.floats(allow_nan=True, allow_infinity=True)


def build(draw_metrics: list[tuple[str, str, str, list[float]]]) -> ExportMetricsServiceRequest:
    message = ExportMetricsServiceRequest()
    metrics = message.resource_metrics.add().scope_metrics.add().metrics
    for name, unit, key, values in draw_metrics:
        metric = metrics.add()
        metric.name, metric.unit = name, unit
        for value in values:
            point = metric.gauge.data_points.add()
            point.time_unix_nano, point.as_double = TIME_NS, value
            attribute = point.attributes.add()
            attribute.key, attribute.value.double_value = key, value
    return message


requests = st.lists(st.tuples(names, names, names, st.lists(numbers, max_size=3)), max_size=4).map(
    build
)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    for parse in (parse_protobuf, parse_json):
        try:
            message = parse(body)
        except WireError:
            continue
        decode_otlp(message, OtlpSeries(), ACCEPTANCE)


@given(requests, st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=CUT.examples(200))
def test_a_damaged_request_is_a_request_or_refused(
    message: ExportMetricsServiceRequest, place: int, value: int
) -> None:
    body = bytearray(message.SerializeToString())
    if body:
        body[place % len(body)] = value
    with contextlib.suppress(WireError):
        decode_otlp(parse_protobuf(bytes(body)), OtlpSeries(), ACCEPTANCE)


@given(requests)
def test_json_and_protobuf_mean_the_same(message: ExportMetricsServiceRequest) -> None:
    text = json_format.MessageToJson(message).encode()
    decoded = [
        decode_otlp(each, OtlpSeries(), ACCEPTANCE)
        for each in (parse_protobuf(message.SerializeToString()), parse_json(text))
    ]
    first, second = (each.request for each in decoded)
    assert first.refused == second.refused
    assert first.write.samples.series.tolist() == second.write.samples.series.tolist()
    # JSON has one NaN.
    assert np.array_equal(first.write.samples.value, second.write.samples.value, equal_nan=True)


@given(requests)
def test_a_series_is_recognised_when_it_comes_again(message: ExportMetricsServiceRequest) -> None:
    known = OtlpSeries()
    first, second = (decode_otlp(message, known, ACCEPTANCE).request for _ in range(2))
    assert first.write.samples.series.tolist() == second.write.samples.series.tolist()


@given(names, names, st.sampled_from([(True, False), (False, True), (False, False)]))
def test_every_name_is_one_that_prometheus_takes(
    name: str, unit: str, kind: tuple[bool, bool]
) -> None:
    made = metric_name(name, unit, is_counter=kind[0], is_gauge=kind[1])
    assert not made or re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*", made)
    label = label_name(name)
    assert not label or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label)
