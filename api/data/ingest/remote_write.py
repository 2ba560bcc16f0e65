"""Prometheus remote write: what both versions share.

`remote_write_v1` and `remote_write_v2` turn an unpacked body into a `RemoteRequest`. Both read the
usual request fast (a series whose labels are known and which ends in one sample needs no parsing,
and the numbers of all series are taken out of the body together) and whatever does not have the
usual shape field by field, with the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam
import msgspec
import numpy as np

from api.base.host_names import hosts_named
from api.base.limits import REMOTE_SAMPLES_MAX, UNPACKED_BYTES_MAX
from api.data.ingest import protobuf as pb
from api.data.ingest.columns import (
    MS_PER_DAY,
    Acceptance,
    Bools,
    Float64s,
    Int64s,
    SampleColumns,
)
from api.data.ingest.commit import Exemplar, Metadata, Write
from api.data.ingest.door import BAD_LABELS, OPEN, Door
from api.data.ingest.identities import BAD_IDENTITY, odd_series
from api.data.ingest.runs import Tails
from api.data.ingest.series import Ahead, RemoteSeries, ids_of, metric_of
from collector.contract.errors import IdentityError, WireError, WireTooLarge
from collector.contract.identity import (
    METRIC_LABEL,
    Labels,
    canonical_labels,
    check_labels,
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
    """A decoded request; ``complaint`` describes the first refusal for the sender's log.

    ``blank`` samples are left out and not refused: the sender's exporter had no value for them, and
    an answer of 400 would have the sender's operator mend what is not broken.
    """

    write: Write
    refused: dict[str, int]
    complaint: str = ""
    blank: int = 0


def unpack(body: bytes) -> bytes:
    """Checks the declared size of the snappy block before unpacking it."""
    declared, _ = pb.read_varint(body, 0, len(body)) if body else (0, 0)
    if declared > UNPACKED_BYTES_MAX:
        msg = f"body unpacks to {declared} bytes; UNPACKED_BYTES_MAX is {UNPACKED_BYTES_MAX}"
        raise WireTooLarge(msg)
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise WireError(f"not a snappy block: {error}") from error


def check_count(count: int, what: str, rule: str, bound: int) -> None:
    if count > bound:
        raise WireTooLarge(f"{count} {what} or more in one request; {rule} is {bound}")


def pieces(samples: int, exemplars: int, histograms: int) -> int:
    """How much is lost with a series that is refused whole: one at least, its metadata."""
    return max(1, samples + exemplars + histograms)


class Collected:
    """The content of a request, gathered while it is read."""

    def __init__(self, known: RemoteSeries, acceptance: Acceptance, door: Door = OPEN) -> None:
        self.known = known
        self.door = door
        self.acceptance = acceptance
        self._metadata: dict[str, tuple[int, Metadata]] = {}
        self._rows: list[int] = []
        self._times: list[int] = []
        self._values: list[float] = []
        self._exemplars: list[Exemplar] = []
        self._exemplar_rows: list[int] = []
        self._refused: dict[str, int] = {}
        self._complaint = ""

    def refuse(self, rule: str, count: int, complaint: str) -> None:
        self._refused[rule] = self._refused.get(rule, 0) + count
        self._complaint = self._complaint or complaint

    def identify(
        self, key: bytes | None, read_labels: Callable[[], Labels], lost: int
    ) -> int | None:
        """The row of a series; None if its labels break a rule, and ``lost`` samples with it."""
        row = self.known.rows.get(key) if key is not None else None
        if row is not None:
            return row
        try:
            labels = read_labels()
            check_labels(labels)
        except IdentityError as error:
            self.refuse(BAD_LABELS, lost, str(error))
            return None
        if odd := odd_series(labels):
            self.refuse(BAD_IDENTITY, lost, odd)
            return None
        return self.learn(key, labels, series_id(labels), lost)

    def learn(self, key: bytes | None, labels: Labels, identity: int, lost: int) -> int | None:
        """The row of a checked label set; None if the sender may not begin a series now."""
        known = self.known
        if not known.knows(identity) and (rule := self._refuse_new(labels)) is not None:
            self.refuse(rule, lost, f"a new series: {metric_of(labels)}")
            return None
        return known.add(key, labels, identity)

    def _refuse_new(self, labels: Labels) -> str | None:
        """The budget that a new series would break; counts it if there is none."""
        name, names = metric_of(labels), self.known.names
        if names.show_hosts(name) and not names.is_reserved(name):
            named = hosts_named(dict(labels))
            if self.door.hosts.allow(named) and (rule := self.door.take_hosts(named)) is not None:
                return rule
        return self.door.take_series()

    def refuse_unread(self, lost: int) -> None:
        """Refuse a series that is not known by its bytes, while no new ones are taken."""
        rule = self.door.take_series()
        assert rule is not None, "only for a door that takes no new series"
        self.refuse(rule, lost, "a new series")

    def add(self, row: int, samples: list[tuple[float, int]]) -> None:
        check_count(
            len(self._rows) + len(samples), "samples", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX
        )
        for value, time_ms in samples:
            self._rows.append(row)
            self._times.append(time_ms)
            self._values.append(value)

    def add_exemplar(
        self, row: int, time_ms: int, value: float, pairs: list[tuple[str, str]]
    ) -> None:
        """Gather one exemplar; refusing it does not refuse the samples beside it."""
        if not self.acceptance.earliest_ms <= time_ms <= self.acceptance.latest_ms:
            self.refuse("exemplar_out_of_time", 1, f"an exemplar is of {time_ms} ms")
            return
        try:
            labels = canonical_labels(pairs)
        except IdentityError as error:
            self.refuse("bad_exemplar", 1, f"an exemplar: {error}")
            return
        check_count(len(self._exemplars) + 1, "exemplars", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX)
        placed = self.known.places(np.array([row]))
        place = 0 if placed is None else int(placed[0])
        self._exemplars.append(Exemplar(self.known.id_of(row), time_ms, value, labels, place))
        self._exemplar_rows.append(row)

    def note(self, entry: Metadata, place: int) -> None:
        """Gather a metric's metadata: once a metric, and not when it is empty.

        Version 2 sends it with every series of every request. ``place`` is its position in the
        body: of two that differ the later one counts, in whichever order they are read.
        """
        is_described = entry.help or entry.unit or entry.type != METRIC_TYPES[0]
        if is_described and not self.known.names.is_reserved(entry.metric):
            known = self._metadata.get(entry.metric)
            if known is None or place >= known[0]:
                self._metadata[entry.metric] = place, entry

    def refuse_histograms(self, count: int) -> None:
        """Native histograms are not stored; the refusal makes the loss visible to the sender."""
        self.refuse("native_histograms", count, "native histograms are not supported; send classic")

    def finish(self, rows: Int64s, times: Int64s, values: Float64s) -> RemoteRequest:
        if self._rows:
            rows = np.concatenate([rows, np.array(self._rows, dtype=np.int64)])
            times = np.concatenate([times, np.array(self._times, dtype=np.int64)])
            values = np.concatenate([values, np.array(self._values, dtype=np.float64)])
        known = self.known
        if broken := known.refused(rows, self.door.hosts):
            kept = self._refuse_all(rows, broken)
            rows, times, values = rows[kept], times[kept], values[kept]
        if self._exemplars:
            self._refuse_exemplars()
        is_blank = known.blank(rows, values)
        blank = int(is_blank.sum())
        if blank:
            rows, times, values = rows[~is_blank], times[~is_blank], values[~is_blank]
        placed = known.places(rows)
        samples = SampleColumns(known.metric(rows), known.series(rows), times, values, placed)
        samples, out_of_time = self.acceptance.apply(samples)
        if out_of_time:
            for rule, count in out_of_time.items():
                self.refuse(rule, count, f"{count} samples are {rule.replace('_', ' ')}")
            kept = (times >= self.acceptance.earliest_ms) & (times <= self.acceptance.latest_ms)
            rows, times = rows[kept], times[kept]
        if self._exemplars:  # a series may come with exemplars and no sample
            rows = np.concatenate([rows, np.array(self._exemplar_rows, dtype=np.int64)])
            times = np.concatenate([times, np.array([e.time_ms for e in self._exemplars])])
        days = times // MS_PER_DAY
        news = known.unwritten(rows, days)
        ahead = known.unwritten_ahead(rows, days, Ahead.at(self.acceptance.now_ms))
        self.door.settle(len(samples), ids_of(news), ids_of(ahead))
        return RemoteRequest(
            write=Write(
                samples=samples,
                series=news + ahead,
                exemplars=self._exemplars,
                metadata=[entry for _, entry in self._metadata.values()],
            ),
            refused=self._refused,
            complaint=self._complaint,
            blank=blank,
        )

    def _refuse_all(self, rows: Int64s, broken: dict[str, Bools]) -> Bools:
        """Refuse what stands at these rows, by the rules; which of them are kept."""
        kept = np.ones(len(rows), dtype=np.bool_)
        for rule, where in broken.items():
            first = dict(self.known.labels[int(rows[where.argmax()])])
            host = ", ".join(hosts_named(first))
            why = f"{first[METRIC_LABEL]} of {host}" if host else first[METRIC_LABEL]
            self.refuse(rule, int(where.sum()), f"{rule}: {why}")
            kept &= ~where
        return kept

    def _refuse_exemplars(self) -> None:
        rows = np.array(self._exemplar_rows, dtype=np.int64)
        if broken := self.known.refused(rows, self.door.hosts):
            kept = np.flatnonzero(self._refuse_all(rows, broken)).tolist()
            self._exemplars = [self._exemplars[place] for place in kept]
            self._exemplar_rows = [self._exemplar_rows[place] for place in kept]


# --- samples -----------------------------------------------------------------------------------


def take_tails(body: bytes, tails: Tails) -> tuple[Int64s, Int64s, Float64s, set[int]]:
    """Rows, times and values of all tails at once, and the ends of tails that are no sample."""
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
    if usual.all():
        return rows, times, values, set()
    return rows[usual], times[usual], values[usual], set(ends[~usual].tolist())


def take_both(body: bytes, usual: Tails, zero: Tails) -> tuple[Int64s, Int64s, Float64s, set[int]]:
    """The same of both sizes of tails."""
    rows, times, values, odd = take_tails(body, usual)
    zero_rows, zero_times, zeros, zero_odd = take_tails(body, zero)
    return (
        np.concatenate([rows, zero_rows]),
        np.concatenate([times, zero_times]),
        np.concatenate([values, zeros]),
        odd | zero_odd,
    )


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


def metric_type(number: int) -> str:
    return METRIC_TYPES[number] if number < len(METRIC_TYPES) else METRIC_TYPES[0]
