"""OTLP/HTTP metrics: how SONiC, Cumulus and OpenTelemetry collectors push.

Names and labels are those of Prometheus' own receiver (`otlp_names`), with one addition: the
resource's `host.name` becomes the label `host`, because queries here select by host. Other
attributes of the resource are in `target_info`, joined by `job` and `instance`. Scopes are left
out, as Prometheus does by default.

A switch's high-frequency telemetry has many points of one series within a millisecond, which is
how fine the store's clock is: of a sum the last one is kept, of a gauge the greatest, since a queue
that was full for ten microseconds was full.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from api.base.limits import (
    CACHED_BYTES_MAX,
    OTLP_SERIES_CACHED_MAX,
    REMOTE_SAMPLES_MAX,
    UNPACKED_BYTES_MAX,
)
from api.data.ingest.columns import Acceptance, Float64s, Int64s
from api.data.ingest.commit import Metadata
from api.data.ingest.door import NAMES, OPEN, Door, Names
from api.data.ingest.otlp_names import labels_of, metric_name
from api.data.ingest.otlp_points import (
    NO_LABELS,
    NO_RECORDED_VALUE,
    STALE,
    Deltas,
    Part,
    exponential_parts,
    histogram_parts,
    number_parts,
    summary_parts,
)
from api.data.ingest.otlp_switches import CUMULUS, SAI_PREFIX, converted, sai_series, translation
from api.data.ingest.remote_write import Collected, RemoteRequest, check_count
from api.data.ingest.series import RemoteSeries
from collector.contract.errors import WireError, WireTooLarge
from collector.contract.identity import METRIC_LABEL, Labels, canonical_labels
from collector.contract.units import NS_PER_MS

HOST_ATTRIBUTES: Final = ("host.name", "net.host.name")
"""Attributes that name a resource's machine, best first."""
JOB_ATTRIBUTES: Final = ("service.name", "service.namespace", "service.instance.id")
"""Attributes that form `job` and `instance`; the others describe the resource."""
DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
DELTA_SHARED: Final = "delta_shared"
DELTA_SHARED_WORDS: Final = (
    "a delta: several processes take telemetry here, and none has the sum of all; send cumulative"
    " values (a Collector's processor deltatocumulative makes them)"
)

TRANSLATED: Final = "translated"
NO_ROW: Final = -1
"""In the cache of rows: the point is no series of the catalog."""

Point = Any


class Shape(NamedTuple):
    """The kind of metric in a message, and how its points become parts."""

    points: Any
    parts: Callable[[Point], list[Part]]
    type: str
    is_delta: bool
    is_gauge: bool
    is_counter: bool


class Origin(NamedTuple):
    """Labels that a resource gives all its points."""

    number: int
    labels: dict[str, str]
    info: Labels
    """The labels of its `target_info`; empty if no attribute is left for it."""


class OtlpSeries:
    """Which series are known, by the bytes of their resource and attributes. For one thread."""

    def __init__(self, names: Names = NAMES, *, is_placed: bool = False) -> None:
        """``is_placed``: rows are placed on shards."""
        self._names = names
        self._is_placed = is_placed
        self.deltas = Deltas()
        self.takes_deltas = True
        """Whether all deltas of a series come to this process: their sums are in its memory."""
        self._start_anew()

    def _start_anew(self) -> None:
        self.known = RemoteSeries(self._names, is_placed=self._is_placed)
        self.rows: dict[tuple[object, ...], int] = {}
        self._origins: dict[bytes, Origin] = {}
        self.bytes = 0
        """Of the keys of both."""

    def make_room(self) -> None:
        """Clear the cache when full; called between requests. Totals of deltas are kept."""
        is_full = max(len(self.rows), len(self._origins)) >= OTLP_SERIES_CACHED_MAX
        if is_full or self.bytes >= CACHED_BYTES_MAX:
            self._start_anew()

    def origin(self, resource: Any) -> Origin:  # noqa: ANN401 - a Resource message
        key = resource.SerializeToString()
        found = self._origins.get(key)
        if found is None:
            found = self._origins[key] = read_origin(resource, len(self._origins))
            self.bytes += 2 * len(key)
        return found


def read_origin(resource: Any, number: int) -> Origin:  # noqa: ANN401 - a Resource message
    texts = {
        pair.key: pair.value.string_value for pair in resource.attributes if pair.value.string_value
    }
    name, namespace, instance = (texts.get(key, "") for key in JOB_ATTRIBUTES)
    host = next((texts[key] for key in HOST_ATTRIBUTES if key in texts), "")
    job = f"{namespace}/{name}" if namespace and name else name
    labels = {"job": job, "instance": instance, "host": host}
    labels = {label: value for label, value in labels.items() if value}
    described = labels_of(pair for pair in resource.attributes if pair.key not in JOB_ATTRIBUTES)
    info = canonical_labels({**described, **labels, METRIC_LABEL: "target_info"})
    is_worth_it = described and (job or instance)
    return Origin(number, labels, info if is_worth_it else ())


# --- bodies ---------------------------------------------------------------------------------------


def unpack_gzip(body: bytes) -> bytes:
    """Stops at UNPACKED_BYTES_MAX."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(body, UNPACKED_BYTES_MAX + 1)
    except zlib.error as error:
        raise WireError(f"not a gzip stream: {error}") from error
    if len(data) > UNPACKED_BYTES_MAX:
        msg = f"body unpacks to more than UNPACKED_BYTES_MAX ({UNPACKED_BYTES_MAX} bytes)"
        raise WireTooLarge(msg)
    if not unpacker.eof:
        raise WireError("the gzip stream is cut off")
    return data


def parse_protobuf(body: bytes) -> Any:  # noqa: ANN401 - an ExportMetricsServiceRequest
    try:
        return ExportMetricsServiceRequest.FromString(body)
    except DecodeError as error:
        raise WireError(f"not an ExportMetricsServiceRequest: {error}") from error


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - an ExportMetricsServiceRequest
    """Exemplars are left out: OTLP writes their ids in hex, protobuf's own JSON in base64."""
    try:
        document = msgspec.json.decode(body)
        if not isinstance(document, dict):
            raise WireError("not an ExportMetricsServiceRequest: a JSON object is expected")
        without_exemplars(document)
        return json_format.ParseDict(
            document, ExportMetricsServiceRequest(), ignore_unknown_fields=True
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    except (json_format.ParseError, ValueError, TypeError, AttributeError) as error:
        raise WireError(f"not an ExportMetricsServiceRequest: {error}") from error


def without_exemplars(document: dict[str, Any]) -> None:
    """Remove the exemplars of every data point; the parser refuses any other shape."""
    waiting: list[object] = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            each.pop("exemplars", None)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


# --- requests -------------------------------------------------------------------------------------


class OtlpRequest(NamedTuple):
    """A decoded request, and what has to be undone if it cannot be stored."""

    request: RemoteRequest
    points: int
    merged: int
    """Samples that fell into one millisecond with another of their series."""
    added: list[int]
    """Series to whose totals deltas were added."""


def decode_otlp(
    message: Any,  # noqa: ANN401 - an ExportMetricsServiceRequest
    series: OtlpSeries,
    acceptance: Acceptance,
    door: Door = OPEN,
) -> OtlpRequest:
    series.make_room()
    reader = Reader(series, acceptance, door)
    for of_resource in message.resource_metrics:
        origin = series.origin(of_resource.resource)
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                reader.read(metric, origin)
        reader.inform(origin)
    return reader.finish()


class Reader:
    """Gathers the samples of one request."""

    def __init__(self, series: OtlpSeries, acceptance: Acceptance, door: Door) -> None:
        self._series = series
        self._acceptance = acceptance
        self._collected = Collected(series.known, acceptance, door)
        self._rows: list[int] = []
        self._times_ms: list[int] = []
        self._values: list[float] = []
        self._are_gauges: list[bool] = []
        self._added: list[int] = []
        self._points = 0
        self._latest_ms = 0

    def read(self, metric: Any, origin: Origin) -> None:  # noqa: ANN401 - a Metric message
        shape = shape_of(metric)
        if shape is None:
            return
        name = metric_name(
            metric.name, metric.unit, is_counter=shape.is_counter, is_gauge=shape.is_gauge
        )
        if not (name and metric.name):
            self._collected.refuse("bad_labels", len(shape.points), "a metric without a name")
            return
        described = Metadata(name, shape.type, metric.description, metric.unit)
        self._collected.note(described, self._points)
        self._points += len(shape.points)
        if shape.parts is number_parts and not shape.is_delta:
            self._read_numbers(name, shape, origin)
            if metric.name in CUMULUS:
                self._translate(metric.name, shape, origin)
            return
        for point in shape.points:
            self._read_point(point, name, shape, origin)

    def _read_numbers(self, name: str, shape: Shape, origin: Origin) -> None:
        """`_read_point` for what nearly all points are, at three times the speed."""
        known, number = self._series.rows.get, origin.number
        rows, times_ms, values = self._rows, self._times_ms, self._values
        before = len(rows)
        earliest_ms, latest_ms = self._acceptance.earliest_ms, self._acceptance.latest_ms
        for point in shape.points:
            own = [pair.SerializeToString() for pair in point.attributes]
            row = known((number, name, *own, "", NO_LABELS))
            time_ms = point.time_unix_nano // NS_PER_MS
            if row is None or point.flags or not earliest_ms <= time_ms <= latest_ms:
                self._are_gauges += [shape.is_gauge] * (len(rows) - before)
                self._read_point(point, name, shape, origin)
                before = len(rows)
                continue
            is_whole = point.WhichOneof("value") == "as_int"
            rows.append(row)
            times_ms.append(time_ms)
            values.append(point.as_int if is_whole else point.as_double)
        self._are_gauges += [shape.is_gauge] * (len(rows) - before)
        self._latest_ms = max([self._latest_ms, *times_ms[before:]])
        check_count(len(rows), "samples", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX)

    def _read_point(self, point: Point, name: str, shape: Shape, origin: Origin) -> None:
        time_ms = point.time_unix_nano // NS_PER_MS
        if not self._acceptance.earliest_ms <= time_ms <= self._acceptance.latest_ms:
            rule = "too_old" if time_ms < self._acceptance.earliest_ms else "too_far_in_future"
            self._collected.refuse(rule, 1, f"{name}: a point is of {time_ms} ms")
            return
        try:
            parts = shape.parts(point)
        except ValueError as error:
            self._collected.refuse("bad_point", 1, f"{name}: {error}")
            return
        check_count(
            len(self._rows) + len(parts), "samples", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX
        )
        key = (origin.number, name, *(pair.SerializeToString() for pair in point.attributes))
        own: dict[str, str] | None = None
        rows = []
        for part in parts:
            row = self._series.rows.get((*key, part.suffix, part.labels))
            if row is None:
                own = labels_of(point.attributes) if own is None else own
                row = self._learn(
                    (*key, part.suffix, part.labels), name, part, {**origin.labels, **own}
                )
            if row is None:
                return  # refused with its labels
            rows.append(row)
        self._take(point, parts, rows, shape)

    def _learn(
        self, key: tuple[object, ...], name: str, part: Part, labels: dict[str, str]
    ) -> int | None:
        if not self._collected.door.takes_new:
            self._collected.refuse_unread(1)
            return None
        whole = {**labels, **dict(part.labels), METRIC_LABEL: name + part.suffix}
        if name.startswith(SAI_PREFIX) and (ours := sai_series(name, whole)) is not None:
            whole = {**ours[1], METRIC_LABEL: ours[0]}
        row = self._collected.identify(None, lambda: canonical_labels(whole), 1)
        if row is not None:
            self._series.rows[key] = row
            self._series.bytes += sum(len(each) for each in key if isinstance(each, bytes | str))
        return row

    def _translate(self, name: str, shape: Shape, origin: Origin) -> None:
        """Samples of the catalog's series beside the switch's own (`otlp_switches`)."""
        for point in shape.points:
            time_ms = point.time_unix_nano // NS_PER_MS
            if point.flags or not (
                self._acceptance.earliest_ms <= time_ms <= self._acceptance.latest_ms
            ):
                continue  # counted with the switch's own
            value = converted(name, number_parts(point)[0].value)
            row = self._translated_row(name, point, origin) if value is not None else None
            if row is None or value is None:
                continue
            self._rows.append(row)
            self._values.append(value)
            self._times_ms.append(time_ms)
            self._are_gauges.append(True)
        check_count(len(self._rows), "samples", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX)

    def _translated_row(self, name: str, point: Point, origin: Origin) -> int | None:
        """The row of the catalog's series that a point also is; None: of none, or refused."""
        attributes = [pair.SerializeToString() for pair in point.attributes]
        key = (origin.number, name, *attributes, TRANSLATED)
        row = self._series.rows.get(key)
        if row is None and self._collected.door.takes_new:
            ours = translation(name, {**origin.labels, **labels_of(point.attributes)})
            if ours is None:
                row = NO_ROW
            else:
                named = canonical_labels({**ours[1], METRIC_LABEL: ours[0]})
                row = self._collected.identify(None, lambda: named, 0)
            if row is not None:
                self._series.rows[key] = row
                self._series.bytes += sum(map(len, attributes)) + len(name)
        return None if row == NO_ROW else row

    def _take(self, point: Point, parts: list[Part], rows: list[int], shape: Shape) -> None:
        values = [part.value for part in parts]
        if point.flags & NO_RECORDED_VALUE:
            values = [STALE] * len(parts)
        elif shape.is_delta and not self._series.takes_deltas:
            self._collected.refuse(DELTA_SHARED, 1, DELTA_SHARED_WORDS)
            return
        elif shape.is_delta and rows:
            # The last part decides for all: a point is added whole or not at all.
            ids = [self._series.known.id_of(row) for row in rows]
            last_ns = self._series.deltas.last_ns(ids[-1])
            if point.time_unix_nano <= last_ns:
                if point.time_unix_nano < last_ns:
                    complaint = (
                        f"a delta is {last_ns - point.time_unix_nano} ns behind the last one"
                    )
                    self._collected.refuse("delta_late", 1, complaint)
                return  # of the same time: sent again, and in the total already
            values = [
                self._series.deltas.add(each, point.time_unix_nano, value)
                for each, value in zip(ids, values, strict=True)
            ]
            self._added += ids
        time_ms = point.time_unix_nano // NS_PER_MS
        self._latest_ms = max(self._latest_ms, time_ms)
        self._rows += rows
        self._values += values
        self._times_ms += [time_ms] * len(rows)
        self._are_gauges += [shape.is_gauge] * len(rows)

    def inform(self, origin: Origin) -> None:
        """`target_info` of a resource, at the time of its latest point."""
        if not origin.info or not self._latest_ms:
            return
        row = self._collected.identify(None, lambda: origin.info, 0)
        if row is not None:
            self._rows.append(row)
            self._values.append(1.0)
            self._times_ms.append(self._latest_ms)
            self._are_gauges.append(True)

    def finish(self) -> OtlpRequest:
        """The request, with at most one sample of a series in a millisecond."""
        rows = np.array(self._rows, dtype=np.int64)
        times = np.array(self._times_ms, dtype=np.int64)
        values = np.array(self._values, dtype=np.float64)
        keep = one_a_millisecond(rows, times, values, np.array(self._are_gauges, dtype=np.bool_))
        request = self._collected.finish(rows[keep], times[keep], values[keep])
        return OtlpRequest(request, self._points, len(rows) - len(keep), self._added)


def one_a_millisecond(rows: Int64s, times: Int64s, values: Float64s, are_gauges: Any) -> Int64s:  # noqa: ANN401 - numpy's bools
    """Which samples to keep, in order of series and time: the last of a sum, a gauge's greatest."""
    rank = np.where(are_gauges & ~np.isnan(values), values, 0.0)
    order = np.lexsort((np.arange(len(rows)), rank, times, rows))
    is_last = np.ones(len(order), dtype=np.bool_)
    same = (np.diff(rows[order]) == 0) & (np.diff(times[order]) == 0)
    is_last[:-1] = ~same
    kept: Int64s = order[is_last]
    return kept


def shape_of(metric: Any) -> Shape | None:  # noqa: ANN401 - a Metric message
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        return Shape(metric.gauge.data_points, number_parts, "gauge", False, True, False)
    if kind == "sum":
        held, is_growing = metric.sum, metric.sum.is_monotonic
        is_delta = held.aggregation_temporality == DELTA
        type_name = "counter" if is_growing else "gauge"
        is_level = not is_growing and not is_delta
        return Shape(held.data_points, number_parts, type_name, is_delta, is_level, is_growing)
    if kind in {"histogram", "exponential_histogram"}:
        held = getattr(metric, kind)
        parts = histogram_parts if kind == "histogram" else exponential_parts
        is_delta = held.aggregation_temporality == DELTA
        return Shape(held.data_points, parts, "histogram", is_delta, False, False)
    if kind == "summary":
        return Shape(metric.summary.data_points, summary_parts, "summary", False, False, False)
    return None
