"""Prometheus remote write, versions 1 and 2: from a body to rows.

Version 1 is what everyone sends, and its usual request is read at a million samples a second:
one dictionary look-up finds a series by the bytes of its labels, and the numbers at the ends of
all series are taken out of the body together (`decode_v1`). Whatever does not have the usual
shape is parsed field by field, with the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam
import msgspec
import numpy as np

from api.ingest import protobuf as pb
from api.ingest.columns import (
    MS_PER_DAY,
    Acceptance,
    Float64s,
    Int64s,
    SampleColumns,
    merge_counts,
)
from api.ingest.commit import Exemplar, Metadata, Write
from api.ingest.labels import series_labels
from api.ingest.runs import RUN_SERIES, Tails
from api.ingest.series import RemoteSeries
from api.limits import REMOTE_SAMPLES_MAX, REMOTE_SERIES_MAX, UNPACKED_BYTES_MAX
from collector.contract.errors import IdentityError, WireError, WireTooLarge
from collector.contract.identity import (
    LABELS_MAX,
    Labels,
    canonical_labels,
    check_labels,
    digest_id,
    series_id,
)

V1_PROTO = "prometheus.WriteRequest"
V2_PROTO = "io.prometheus.write.v2.Request"

TAIL = 18
"""A series' last 18 bytes when it has one sample: field 2, 16 bytes long; a double; a time.

``12 10 | 09 <8 bytes> | 10 <6 bytes>``. Six bytes hold every millisecond from 1971 to 2109.
"""
ZERO_TAIL = 9
"""The same for a value of 0, which protobuf leaves out: ``12 07 | 10 <6 bytes>``."""
TIME_BYTES = 6

_DOUBLE = struct.Struct("<d")

METRIC_TYPES = (
    "unknown",
    "counter",
    "gauge",
    "histogram",
    "gaugehistogram",
    "summary",
    "info",
    "stateset",
)
"""Both versions number the metric types alike."""


class RemoteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded request: what to write, and what was refused by which rule.

    ``complaint`` describes the first refusal for the sender's log.
    """

    write: Write
    refused: dict[str, int]
    complaint: str = ""


def unpack(body: bytes) -> bytes:
    """What the snappy block holds; its declared size is checked before it is unpacked."""
    declared, _ = pb.read_varint(body, 0, len(body)) if body else (0, 0)
    if declared > UNPACKED_BYTES_MAX:
        msg = f"body unpacks to {declared} bytes; UNPACKED_BYTES_MAX is {UNPACKED_BYTES_MAX}"
        raise WireTooLarge(msg)
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        msg = f"not a snappy block: {error}"
        raise WireError(msg) from error


def check_count(count: int, what: str, bound: int) -> None:
    """Raise WireTooLarge if a request holds more of something than it may."""
    if count > bound:
        rule = "REMOTE_SERIES_MAX" if bound == REMOTE_SERIES_MAX else "REMOTE_SAMPLES_MAX"
        msg = f"{count} {what} or more in one request; {rule} is {bound}"
        raise WireTooLarge(msg)


class Collected:
    """What a request holds, gathered while it is read."""

    def __init__(self, known: RemoteSeries, acceptance: Acceptance) -> None:
        self.known = known
        self.acceptance = acceptance
        self._metadata: dict[str, Metadata] = {}
        self._rows: list[int] = []
        self._times: list[int] = []
        self._values: list[float] = []
        self._exemplars: list[Exemplar] = []
        self._exemplar_rows: list[int] = []
        self._refused: dict[str, int] = {}
        self._complaint = ""

    def refuse(self, rule: str, count: int, complaint: str) -> None:
        """Count what a rule refuses; the first complaint is kept."""
        self._refused = merge_counts(self._refused, {rule: count})
        self._complaint = self._complaint or complaint

    def identify(
        self, key: bytes | None, read_labels: Callable[[], Labels], lost: int
    ) -> int | None:
        """The row of a series, by its key or else by its labels.

        None if the labels break a rule: then ``lost`` samples are refused with them.
        """
        row = self.known.rows.get(key) if key is not None else None
        if row is not None:
            return row
        try:
            labels = read_labels()
            check_labels(labels)
        except IdentityError as error:
            self.refuse("bad_labels", lost, str(error))
            return None
        return self.known.add(key, labels, series_id(labels))

    def add(self, row: int, samples: list[tuple[float, int]]) -> None:
        """Gather the samples (value, time) of one series."""
        check_count(len(self._rows) + len(samples), "samples", REMOTE_SAMPLES_MAX)
        for value, time_ms in samples:
            self._rows.append(row)
            self._times.append(time_ms)
            self._values.append(value)

    def add_exemplar(
        self, row: int, time_ms: int, value: float, pairs: list[tuple[str, str]]
    ) -> None:
        """Gather one exemplar; one that breaks a rule costs nobody else their samples."""
        if not self.acceptance.earliest_ms <= time_ms <= self.acceptance.latest_ms:
            self.refuse("exemplar_out_of_time", 1, f"an exemplar is of {time_ms} ms")
            return
        try:
            labels = canonical_labels(pairs)
        except IdentityError as error:
            self.refuse("bad_exemplar", 1, f"an exemplar: {error}")
            return
        check_count(len(self._exemplars) + 1, "exemplars", REMOTE_SAMPLES_MAX)
        self._exemplars.append(Exemplar(self.known.id_of(row), time_ms, value, labels))
        self._exemplar_rows.append(row)

    def note(self, entry: Metadata) -> None:
        """Gather what is said of a metric: once a metric, and not when nothing is said.

        Version 2 says it with every series of every request.
        """
        if entry.help or entry.unit or entry.type != METRIC_TYPES[0]:
            self._metadata[entry.metric] = entry

    def refuse_histograms(self, count: int) -> None:
        """Native histograms are not stored; saying so is better than losing them silently."""
        self.refuse("native_histograms", count, "native histograms are not supported; send classic")

    def finish(self, rows: Int64s, times: Int64s, values: Float64s) -> RemoteRequest:
        """The request: these samples and those that were gathered one by one."""
        if self._rows:
            rows = np.concatenate([rows, np.array(self._rows, dtype=np.int64)])
            times = np.concatenate([times, np.array(self._times, dtype=np.int64)])
            values = np.concatenate([values, np.array(self._values, dtype=np.float64)])
        known = self.known
        samples = SampleColumns(known.metric(rows), known.series(rows), times, values)
        samples, out_of_time = self.acceptance.apply(samples)
        if out_of_time:
            for rule, count in out_of_time.items():
                self.refuse(rule, count, f"{count} samples are {rule.replace('_', ' ')}")
            kept = (times >= self.acceptance.earliest_ms) & (times <= self.acceptance.latest_ms)
            rows, times = rows[kept], times[kept]
        if self._exemplars:  # a series may come with exemplars and no sample
            rows = np.concatenate([rows, np.array(self._exemplar_rows, dtype=np.int64)])
            times = np.concatenate([times, np.array([e.time_ms for e in self._exemplars])])
        return RemoteRequest(
            write=Write(
                samples=samples,
                series=known.unwritten(rows, times // MS_PER_DAY),
                exemplars=self._exemplars,
                metadata=list(self._metadata.values()),
            ),
            refused=self._refused,
            complaint=self._complaint,
        )


# ---------------------------------------------------------------------------------- version 1


def decode_v1(body: bytes, known: RemoteSeries, acceptance: Acceptance) -> RemoteRequest:
    """The request in an unpacked body of version 1."""
    known.make_room()
    collected = Collected(known, acceptance)
    tails = Tails(TAIL), Tails(ZERO_TAIL)
    try:
        walk_v1(body, tails, collected)
    except IndexError:
        msg = f"body is cut off at byte {len(body)}"
        raise WireError(msg) from None
    taken = [take_tails(body, each, collected) for each in tails]
    rows, times, values = (np.concatenate(columns) for columns in zip(*taken, strict=True))
    return collected.finish(rows, times, values)


def walk_v1(body: bytes, tails: tuple[Tails, Tails], collected: Collected) -> None:
    """Go from series to series; parse those that are new or not of the usual shape.

    The hot path of remote write: a stretch that was seen before is recognised whole (`Runs`), and
    otherwise a series costs one length and one look-up. A hit on the bytes before a tail proves
    that they are whole labels, because only such bytes were ever remembered; `take_tails` then
    proves that the tail is a sample.
    """
    raw = np.frombuffer(body, dtype=np.uint8)
    runs, find = collected.known.runs, collected.known.rows.get
    usual, zero = tails
    position, end, count = 0, len(body), 0
    alone, alone_from, since = 0, 0, (0, 0)
    while position < end:
        if body[position] != 0x0A:
            position = other_field_v1(body, position, collected)
            count, alone = count + 1, 0
            check_count(count, "series", REMOTE_SERIES_MAX)
            continue
        start, stop = series_span(body, position)
        row, tail = find(body[start : stop - TAIL]), usual
        if row is None:
            row, tail = find(body[start : stop - ZERO_TAIL]), zero
        if row is None:
            # Looked at here and not only at the end: to learn a million series takes seconds.
            check_count(count + 1, "series", REMOTE_SERIES_MAX)
            learn_series_v1(body, start, stop, tails, collected)
            count, alone, position = count + 1, 0, stop
            continue
        if length := runs.match(row, raw, position, tails):
            count, alone, position = count + RUN_SERIES, 0, position + length
            continue
        if not alone:
            alone_from, since = position, (len(usual.rows), len(zero.rows))
        tail.rows.append(row)
        tail.ends.append(stop)
        count, alone, position = count + 1, alone + 1, stop
        if alone == RUN_SERIES:
            runs.learn(raw, alone_from, stop, tails, since)
            alone = 0
    check_count(count, "series", REMOTE_SERIES_MAX)


def series_span(body: bytes, position: int) -> tuple[int, int]:
    """Where the series whose field begins here starts and stops."""
    length = body[position + 1]
    if length < 0x80:
        start = position + 2
    elif body[position + 2] < 0x80:
        length = length & 0x7F | body[position + 2] << 7
        start = position + 3
    else:
        length, start = pb.read_varint(body, position + 1, len(body))
    if start + length > len(body):
        msg = f"the series at byte {position} reaches over the end of the body"
        raise WireError(msg)
    return start, start + length


def learn_series_v1(
    body: bytes, start: int, stop: int, tails: tuple[Tails, Tails], collected: Collected
) -> None:
    """Remember a series that is new, if it has the usual shape; else parse it field by field.

    So is one whose labels break a rule: what is lost with them is known only by parsing it.
    """
    known = collected.known
    found, labels_end = known.label_bytes.leading(body, start, stop)
    tail = next((each for each in tails if labels_end == stop - each.size), None)
    labels = series_labels(found) if tail is not None and len(found) <= LABELS_MAX else None
    if tail is None or labels is None:
        parse_series_v1(body, start, stop, collected)
        return
    identity = digest_id(b"".join([label.canonical for label in found]))
    tail.rows.append(known.add(body[start:labels_end], labels, identity))
    tail.ends.append(stop)


def take_tails(body: bytes, tails: Tails, collected: Collected) -> tuple[Int64s, Int64s, Float64s]:
    """Rows, times and values of all tails at once; a tail that is no sample is parsed instead."""
    rows, ends = tails.all_rows(), tails.all_ends()
    raw = np.frombuffer(body, dtype=np.uint8)
    tail = raw[ends[:, np.newaxis] + np.arange(-tails.size, 0)]
    stamp = tail[:, -TIME_BYTES:]
    usual = (
        # A body shorter than a tail would be read from its other end.
        (ends >= tails.size)
        & (tail[:, 0] == 0x12)
        & (tail[:, 1] == tails.size - 2)
        & (tail[:, -TIME_BYTES - 1] == 0x10)
        & (stamp[:, :-1] >= 0x80).all(axis=1)
        & (stamp[:, -1] < 0x80)
    )
    if tails.size == TAIL:
        usual &= tail[:, 2] == 0x09
        values = np.ascontiguousarray(tail[:, 3:11]).view("<f8").ravel()
    else:
        values = np.zeros(len(rows), dtype=np.float64)
    times = np.zeros(len(rows), dtype=np.int64)
    for byte in range(TIME_BYTES):
        times |= (stamp[:, byte].astype(np.int64) & 0x7F) << (7 * byte)
    if not usual.all():
        odd = set(ends[~usual].tolist())
        for number, _, start, stop in pb.fields(body, 0, len(body)):
            if number == 1 and stop in odd:
                parse_series_v1(body, start, stop, collected)
        rows, times, values = rows[usual], times[usual], values[usual]
    return rows, times, values


def other_field_v1(body: bytes, position: int, collected: Collected) -> int:
    """Read a field whose tag is not that of a series; returns the position after it."""
    number, wire_type, start, stop = next(pb.fields(body, position, len(body)))
    if number == 1:  # of another type, or with a tag that is longer than it need be
        pb.expect(wire_type, pb.LENGTH, "a series")
        parse_series_v1(body, start, stop, collected)
    if number == 3:
        pb.expect(wire_type, pb.LENGTH, "metadata")
        collected.note(parse_metadata_v1(body, start, stop))
    return stop


def parse_metadata_v1(body: bytes, start: int, stop: int) -> Metadata:
    """MetricMetadata: type = 1, metric_family_name = 2, help = 4, unit = 5."""
    kind, texts = 0, {2: "", 4: "", 5: ""}
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number == 1:
            pb.expect(wire_type, pb.VARINT, "a metadata type")
            kind, _ = pb.read_varint(body, begin, end)
        elif number in texts:
            pb.expect(wire_type, pb.LENGTH, "metadata text")
            texts[number] = pb.read_text(body, begin, end)
    return Metadata(texts[2], metric_type(kind), texts[4], texts[5])


def metric_type(number: int) -> str:
    """The name of a metric type; both versions number them alike."""
    return METRIC_TYPES[number] if number < len(METRIC_TYPES) else METRIC_TYPES[0]


def parse_series_v1(body: bytes, start: int, stop: int, collected: Collected) -> None:
    """TimeSeries, field by field: labels = 1, samples = 2, exemplars = 3, histograms = 4."""
    pairs: list[tuple[str, str]] = []
    samples: list[tuple[float, int]] = []
    exemplars: list[tuple[int, int]] = []
    histograms, others, labels_end, labels_lead = 0, 0, start, True
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number == 1:
            pb.expect(wire_type, pb.LENGTH, "a label")
            pairs.append(parse_label(body, begin, end))
            labels_end, labels_lead = end, labels_lead and not others
            continue
        others += 1
        if number == 2:
            pb.expect(wire_type, pb.LENGTH, "a sample")
            samples.append(parse_sample(body, begin, end))
        elif number == 3:
            pb.expect(wire_type, pb.LENGTH, "an exemplar")
            exemplars.append((begin, end))
        elif number == 4:
            pb.expect(wire_type, pb.LENGTH, "a histogram")
            histograms += 1
    # Only labels that stand together in front may be recognised by their bytes later.
    key = body[start:labels_end] if labels_lead else None
    row = collected.identify(key, lambda: canonical_labels(pairs), len(samples))
    if row is None:
        return
    collected.add(row, samples)
    for begin, end in exemplars:
        time_ms, value, spans = parse_exemplar(body, begin, end)
        own = [parse_label(body, *span) for span in spans]
        collected.add_exemplar(row, time_ms, value, own)
    if histograms:
        collected.refuse_histograms(histograms)


def parse_label(body: bytes, start: int, stop: int) -> tuple[str, str]:
    """Label: name = 1, value = 2."""
    texts = {1: "", 2: ""}
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number in texts:
            pb.expect(wire_type, pb.LENGTH, "a label's text")
            texts[number] = pb.read_text(body, begin, end)
    return texts[1], texts[2]


def parse_sample(body: bytes, start: int, stop: int) -> tuple[float, int]:
    """Sample: value = 1 (double), timestamp = 2 (milliseconds); the same in both versions."""
    value, time_ms = 0.0, 0
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number == 1:
            pb.expect(wire_type, pb.FIXED64, "a value")
            (value,) = _DOUBLE.unpack_from(body, begin)
        elif number == 2:
            pb.expect(wire_type, pb.VARINT, "a timestamp")
            time_ms = pb.read_int64(body, begin, end)
    return value, time_ms


def parse_exemplar(
    body: bytes, start: int, stop: int, label_types: tuple[int, ...] = (pb.LENGTH,)
) -> tuple[int, float, list[tuple[int, int]]]:
    """Exemplar: labels = 1, value = 2, timestamp = 3; the labels' spans are left to the caller."""
    value, time_ms, spans = 0.0, 0, []
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number == 1:
            pb.expect(wire_type, label_types, "an exemplar's labels")
            spans.append((begin, end))
        elif number == 2:
            pb.expect(wire_type, pb.FIXED64, "an exemplar's value")
            (value,) = _DOUBLE.unpack_from(body, begin)
        elif number == 3:
            pb.expect(wire_type, pb.VARINT, "an exemplar's timestamp")
            time_ms = pb.read_int64(body, begin, end)
    return time_ms, value, spans


# ---------------------------------------------------------------------------------- version 2


REFERENCE_TYPES = (pb.LENGTH, pb.VARINT)
"""References are packed, as every sender does, or one number a field, which is allowed too."""


class Symbols:
    """The strings that a version 2 request refers to by number; the first one is empty."""

    def __init__(self, texts: list[bytes]) -> None:
        if not texts or texts[0]:
            msg = "symbols must begin with the empty string"
            raise WireError(msg)
        self._texts = texts

    def __getitem__(self, reference: int) -> bytes:
        if reference >= len(self._texts):
            msg = f"symbol {reference} is referred to; the request has {len(self._texts)}"
            raise WireError(msg)
        return self._texts[reference]

    def texts(self, body: bytes, spans: list[tuple[int, int]]) -> list[bytes]:
        """The strings behind packed references: names and values in turn."""
        references: list[int] = []
        for position, stop in spans:
            while position < stop:
                reference, position = pb.read_varint(body, position, stop)  # noqa: PLW2901
                references.append(reference)
        if len(references) % 2:
            msg = f"{len(references)} label references: names and values come in pairs"
            raise WireError(msg)
        return [self[reference] for reference in references]


def pair_labels(texts: list[bytes]) -> list[tuple[str, str]]:
    """Labels from names and values in turn."""
    try:
        decoded = [text.decode() for text in texts]
    except UnicodeDecodeError as error:
        msg = "a symbol is not UTF-8"
        raise WireError(msg) from error
    return list(zip(decoded[::2], decoded[1::2], strict=True))


def decode_v2(body: bytes, known: RemoteSeries, acceptance: Acceptance) -> RemoteRequest:
    """The request in an unpacked body of version 2: symbols = 4, timeseries = 5."""
    known.make_room()
    collected = Collected(known, acceptance)
    texts: list[bytes] = []
    spans: list[tuple[int, int]] = []
    for number, wire_type, begin, end in pb.fields(body, 0, len(body)):
        if number == 4:
            pb.expect(wire_type, pb.LENGTH, "a symbol")
            texts.append(body[begin:end])
        elif number == 5:
            pb.expect(wire_type, pb.LENGTH, "a series")
            spans.append((begin, end))
    check_count(len(spans), "series", REMOTE_SERIES_MAX)
    if spans:
        symbols = Symbols(texts)
        for begin, end in spans:
            parse_series_v2(body, begin, end, symbols, collected)
    nothing = np.empty(0, dtype=np.int64)
    return collected.finish(nothing, nothing, np.empty(0, dtype=np.float64))


def parse_series_v2(
    body: bytes, start: int, stop: int, symbols: Symbols, collected: Collected
) -> None:
    """TimeSeries: labels_refs = 1, samples = 2, histograms = 3, exemplars = 4, metadata = 5."""
    references: list[tuple[int, int]] = []
    samples: list[tuple[float, int]] = []
    exemplars: list[tuple[int, int]] = []
    metadata: tuple[int, int] | None = None
    histograms = 0
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number == 1:
            pb.expect(wire_type, REFERENCE_TYPES, "label references")
            references.append((begin, end))
        elif number == 2:
            pb.expect(wire_type, pb.LENGTH, "a sample")
            samples.append(parse_sample(body, begin, end))
        elif number == 3:
            pb.expect(wire_type, pb.LENGTH, "a histogram")
            histograms += 1
        elif number == 4:
            pb.expect(wire_type, pb.LENGTH, "an exemplar")
            exemplars.append((begin, end))
        elif number == 5:
            pb.expect(wire_type, pb.LENGTH, "metadata")
            metadata = (begin, end)
    texts = symbols.texts(body, references)
    # 0xFF is in no UTF-8 text, and no version 1 key begins with it. The count tells texts from
    # one text with a 0xFF inside, which is not UTF-8 and must not be taken for two that are.
    key = b"\xff%d\xff%b" % (len(texts), b"\xff".join(texts))
    row = collected.identify(key, lambda: canonical_labels(pair_labels(texts)), len(samples))
    if row is None:
        return
    collected.add(row, samples)
    for begin, end in exemplars:
        time_ms, value, spans = parse_exemplar(body, begin, end, REFERENCE_TYPES)
        collected.add_exemplar(row, time_ms, value, pair_labels(symbols.texts(body, spans)))
    if metadata is not None:
        metric = collected.known.metric_name(row)
        collected.note(parse_metadata_v2(body, *metadata, metric, symbols))
    if histograms:
        collected.refuse_histograms(histograms)


def parse_metadata_v2(
    body: bytes, start: int, stop: int, metric: str, symbols: Symbols
) -> Metadata:
    """Metadata: type = 1, help_ref = 3, unit_ref = 4."""
    found = {1: 0, 3: 0, 4: 0}
    for number, wire_type, begin, end in pb.fields(body, start, stop):
        if number in found:
            pb.expect(wire_type, pb.VARINT, "a part of metadata")
            found[number], _ = pb.read_varint(body, begin, end)
    try:
        help_text, unit = symbols[found[3]].decode(), symbols[found[4]].decode()
    except UnicodeDecodeError as error:
        msg = "a symbol is not UTF-8"
        raise WireError(msg) from error
    return Metadata(metric, metric_type(found[1]), help_text, unit)
