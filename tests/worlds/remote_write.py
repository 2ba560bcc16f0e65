"""Remote write bodies, versions 1 and 2, put together from the specification.

Written from the published message definitions and from nothing of ours: a test of a decoder with
its own encoder shows that they agree, not that they are right.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import cramjam

V1_TYPE = "application/x-protobuf;proto=prometheus.WriteRequest"
V2_TYPE = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
V1_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
V2_HEADERS = {
    "Content-Type": V2_TYPE,
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}

STALE_BITS = 0x7FF0000000000002
STALE: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]
"""The NaN by which Prometheus says that a series has ended."""

Pairs = Sequence[tuple[str, str]]


# --- protobuf ----------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """An unsigned number, or a negative one as protobuf's int64 writes it: in ten bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def length_field(number: int, content: bytes) -> bytes:
    return tag(number, 2) + varint(len(content)) + content


def varint_field(number: int, value: int, *, keep_zero: bool = False) -> bytes:
    """A number; zero is left out, as proto3 does, unless it is to be kept."""
    return tag(number, 0) + varint(value) if value or keep_zero else b""


def double_field(number: int, value: float, *, keep_zero: bool = False) -> bytes:
    """A double; plus zero (and only that) is left out, unless it is to be kept."""
    packed = struct.pack("<d", value)
    return tag(number, 1) + packed if packed != bytes(8) or keep_zero else b""


# --- what a request holds ----------------------------------------------------------------------


@dataclass(frozen=True)
class Exemplar:
    """A sample with the labels of a trace."""

    value: float
    time_ms: int
    labels: Pairs = (("trace_id", "abc"),)


@dataclass(frozen=True)
class Metadata:
    """Version 2's metadata; the type is a number: 1 is a counter, 2 a gauge."""

    type: int = 0
    help: str = ""
    unit: str = ""


@dataclass(frozen=True)
class TimeSeries:
    """A series with samples of (value, time in milliseconds)."""

    labels: Pairs
    samples: Sequence[tuple[float, int]] = ()
    exemplars: Sequence[Exemplar] = ()
    histograms: Sequence[int] = ()
    """Times of native histograms: the tests do not read their content."""
    metadata: Metadata | None = None
    """Version 2 only."""


def sample(value: float, time_ms: int, *, keep_zero: bool = False) -> bytes:
    """A Sample; the same in both versions."""
    return double_field(1, value, keep_zero=keep_zero) + varint_field(
        2, time_ms, keep_zero=keep_zero
    )


def histogram(time_ms: int) -> bytes:
    """A native histogram with a count, a sum, a schema and one bucket; field 15 is the time."""
    span = varint_field(1, 2) + varint_field(2, 1)
    return (
        varint_field(1, 5)
        + double_field(3, 18.4)
        + varint_field(4, 2)
        + double_field(5, 0.001)
        + length_field(11, span)
        + length_field(12, varint(10))
        + varint_field(15, time_ms)
    )


# --- version 1 ---------------------------------------------------------------------------------


def label_v1(name: str, value: str) -> bytes:
    parts = ((1, name), (2, value))
    return b"".join(length_field(number, text.encode()) for number, text in parts if text)


def series_v1(series: TimeSeries) -> bytes:
    """A TimeSeries: labels, samples, exemplars, histograms, in the order of their numbers."""
    return b"".join(
        [
            *(length_field(1, label_v1(*pair)) for pair in series.labels),
            *(length_field(2, sample(*each)) for each in series.samples),
            *(length_field(3, exemplar_v1(each)) for each in series.exemplars),
            *(length_field(4, histogram(each)) for each in series.histograms),
        ]
    )


def exemplar_v1(exemplar: Exemplar) -> bytes:
    labels = b"".join(length_field(1, label_v1(*pair)) for pair in exemplar.labels)
    return labels + double_field(2, exemplar.value) + varint_field(3, exemplar.time_ms)


def metadata_v1(metric: str, kind: int, help_text: str, unit: str) -> bytes:
    """A MetricMetadata."""
    texts = ((2, metric), (4, help_text), (5, unit))
    return varint_field(1, kind) + b"".join(
        length_field(number, text.encode()) for number, text in texts if text
    )


def request_v1(
    series: Iterable[TimeSeries], metadata: Iterable[tuple[str, int, str, str]] = ()
) -> bytes:
    """A WriteRequest, not compressed."""
    return b"".join(
        [
            *(length_field(1, series_v1(each)) for each in series),
            *(length_field(3, metadata_v1(*each)) for each in metadata),
        ]
    )


# --- version 2 ---------------------------------------------------------------------------------


@dataclass
class Symbols:
    """Strings by number; the first is empty, as the specification demands."""

    texts: list[bytes] = field(default_factory=lambda: [b""])

    def refer(self, text: str | bytes) -> int:
        """The number of this string."""
        wanted = text if isinstance(text, bytes) else text.encode()
        if wanted not in self.texts:
            self.texts.append(wanted)
        return self.texts.index(wanted)

    def pack(self, pairs: Pairs) -> bytes:
        """Packed references to names and values in turn."""
        return b"".join(varint(self.refer(text)) for pair in pairs for text in pair)


def series_v2(series: TimeSeries, symbols: Symbols) -> bytes:
    """A TimeSeries: labels_refs, samples, histograms, exemplars, metadata."""
    parts = [
        length_field(1, symbols.pack(series.labels)) if series.labels else b"",
        *(length_field(2, sample(*each)) for each in series.samples),
        *(length_field(3, histogram(each)) for each in series.histograms),
        *(length_field(4, exemplar_v2(each, symbols)) for each in series.exemplars),
    ]
    if series.metadata is not None:
        content = (
            varint_field(1, series.metadata.type)
            + varint_field(3, symbols.refer(series.metadata.help))
            + varint_field(4, symbols.refer(series.metadata.unit))
        )
        parts.append(length_field(5, content))
    return b"".join(parts)


def exemplar_v2(exemplar: Exemplar, symbols: Symbols) -> bytes:
    labels = length_field(1, symbols.pack(exemplar.labels)) if exemplar.labels else b""
    return labels + double_field(2, exemplar.value) + varint_field(3, exemplar.time_ms)


def request_v2(series: Iterable[TimeSeries], symbols: Symbols | None = None) -> bytes:
    """A Request, not compressed; symbols come first, as in the order of their field's number."""
    table = symbols or Symbols()
    content = b"".join(length_field(5, series_v2(each, table)) for each in series)
    return b"".join(length_field(4, text) for text in table.texts) + content


def snappy(body: bytes) -> bytes:
    """The body as a snappy block (not framed)."""
    return bytes(cramjam.snappy.compress_raw(body))
