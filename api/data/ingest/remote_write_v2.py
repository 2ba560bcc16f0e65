"""Remote write, version 2: labels are numbers that refer to a table of symbols."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from api.base.limits import FIELDS_MAX, REMOTE_SERIES_MAX
from api.data.ingest import protobuf as pb
from api.data.ingest.columns import Acceptance, Int64s, UInt32s
from api.data.ingest.commit import Metadata
from api.data.ingest.door import OPEN, Door
from api.data.ingest.identities import odd_series
from api.data.ingest.labels import series_labels
from api.data.ingest.remote_write import (
    TAIL,
    ZERO_TAIL,
    Collected,
    RemoteRequest,
    check_count,
    metric_type,
    parse_exemplar,
    parse_sample,
    pieces,
    take_both,
)
from api.data.ingest.runs import Tails
from api.data.ingest.series import RemoteSeries
from collector.contract.errors import WireError
from collector.contract.identity import LABELS_MAX, canonical_labels, digest_id

REFUSED = -1
"""In place of a row: the series was refused, and counted."""
REFERENCE_TYPES = (pb.LENGTH, pb.VARINT)
"""References are packed, as every sender does, or one number a field, which is allowed too."""


class Symbols:
    """The strings that a version 2 request refers to by number; the first one is empty."""

    def __init__(self, texts: list[bytes]) -> None:
        if not texts or texts[0]:
            raise WireError("symbols must begin with the empty string")
        self._texts = texts

    def __getitem__(self, reference: int) -> bytes:
        if reference >= len(self._texts):
            msg = f"symbol {reference} is referred to; the request has {len(self._texts)}"
            raise WireError(msg)
        return self._texts[reference]

    def keys(self, references: list[bytes], known: RemoteSeries) -> list[bytes] | None:
        """A key for each series from its packed references, independent of this request's numbers.

        Each request numbers its symbols afresh, so the numbers are replaced by this process' own.
        None if a reference is malformed: parsing reports which.
        """
        packed = np.frombuffer(b"".join(references), dtype=np.uint8)
        sizes = np.array([len(each) for each in references], dtype=np.int64)
        if not len(packed) or not sizes.all():
            return None
        is_last = packed < 0x80
        ends = np.cumsum(sizes)
        if not is_last[ends - 1].all():
            return None
        firsts = np.flatnonzero(np.concatenate([[True], is_last[:-1]]))
        widths = np.diff(np.append(firsts, len(packed)))
        places = np.arange(len(packed)) - np.repeat(firsts, widths)
        if places.max() > 4:  # 32 bits
            return None
        shifted = (packed & 0x7F).astype(np.int64) << (7 * places)
        numbers = np.add.reduceat(shifted, firsts)
        counts = np.add.reduceat(is_last.astype(np.int64), ends - sizes)
        if numbers.max() >= len(self._texts) or (counts % 2).any():
            return None
        ours = known.number_symbols(self._texts)
        return self._cut(ours[numbers], counts)

    @staticmethod
    def _cut(numbers: UInt32s, counts: Int64s) -> list[bytes]:
        """The numbers of each series as bytes; no version 1 key begins as they do."""
        flat = numbers.astype(">u4").tobytes()
        stops = (np.cumsum(counts) * 4).tolist()
        return [flat[start:stop] for start, stop in pairwise([0, *stops])]

    def texts(self, body: bytes, spans: list[tuple[int, int]]) -> list[bytes]:
        references: list[int] = []
        for position, stop in spans:
            while position < stop:
                reference, position = pb.read_varint(body, position, stop)  # noqa: PLW2901
                references.append(reference)
        if len(references) % 2:
            raise WireError(f"{len(references)} label references: names and values come in pairs")
        return [self[reference] for reference in references]


def pair_labels(texts: list[bytes]) -> list[tuple[str, str]]:
    try:
        decoded = [text.decode() for text in texts]
    except UnicodeDecodeError as error:
        raise WireError("a symbol is not UTF-8") from error
    return list(zip(decoded[::2], decoded[1::2], strict=True))


def decode_v2(
    body: bytes, known: RemoteSeries, acceptance: Acceptance, door: Door = OPEN
) -> RemoteRequest:
    """The request in an unpacked body of version 2: symbols = 4, timeseries = 5."""
    known.make_room()
    collected = Collected(known, acceptance, door)
    nothing = np.empty(0, dtype=np.int64)
    try:
        texts, spans = split_request(body)
        if not spans:
            return collected.finish(nothing, nothing, np.empty(0, dtype=np.float64))
        symbols = Symbols(texts)
        usual, others = sort_by_shape(body, spans)
    except IndexError:
        raise WireError(f"body is cut off at byte {len(body)}") from None
    for start, stop in others:
        parse_series_v2(body, start, stop, symbols, collected)
    return read_usual(body, usual, symbols, collected)


def split_request(body: bytes) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The symbols, and where each series starts and stops."""
    texts: list[bytes] = []
    spans: list[tuple[int, int]] = []
    position, end, fields = 0, len(body), 0
    while position < end:
        tag = body[position]
        if tag in (0x22, 0x2A):
            start, stop = pb.length_span(body, position)
            number = tag >> 3
        else:
            number, wire_type, start, stop = next(pb.fields(body, position, end))
            if number in (4, 5):
                pb.expect(wire_type, pb.LENGTH, "a symbol or series")
        if number == 4:
            texts.append(body[start:stop])
        elif number == 5:
            spans.append((start, stop))
        position, fields = stop, fields + 1
        check_count(fields, "fields", "FIELDS_MAX", FIELDS_MAX)
    check_count(len(spans), "series", "REMOTE_SERIES_MAX", REMOTE_SERIES_MAX)
    return texts, spans


USUAL_SIZES = frozenset({TAIL, ZERO_TAIL})


class Usual(msgspec.Struct):
    """Series of the usual shape: packed references, one sample, and perhaps metadata."""

    spans: list[tuple[int, int]] = msgspec.field(default_factory=list)
    references: list[bytes] = msgspec.field(default_factory=list)
    sizes: list[int] = msgspec.field(default_factory=list)
    sample_ends: list[int] = msgspec.field(default_factory=list)


def sort_by_shape(body: bytes, spans: list[tuple[int, int]]) -> tuple[Usual, list[tuple[int, int]]]:
    usual, others = Usual(), []
    add_span, add_reference = usual.spans.append, usual.references.append
    add_size, add_end = usual.sizes.append, usual.sample_ends.append
    for span in spans:
        start, stop = span
        labels_end = start + 2 + body[start + 1] if stop - start > 2 else stop
        size, sample_end = stop - labels_end, stop
        if size > TAIL:  # metadata = 5 may follow the sample
            size = body[labels_end + 1] + 2
            sample_end = labels_end + size
            if (
                sample_end + 1 >= stop
                or body[sample_end] != 0x2A
                or body[sample_end + 1] >= 0x80
                or sample_end + 2 + body[sample_end + 1] != stop
            ):
                size = 0
        if size not in USUAL_SIZES or body[start] != 0x0A or body[start + 1] >= 0x80:
            others.append(span)
            continue
        add_span(span)
        add_reference(body[start + 2 : labels_end])
        add_size(size)
        add_end(sample_end)
    return usual, others


def read_usual(body: bytes, usual: Usual, symbols: Symbols, collected: Collected) -> RemoteRequest:
    known = collected.known
    keys = symbols.keys(usual.references, known)
    tails = {TAIL: Tails(TAIL), ZERO_TAIL: Tails(ZERO_TAIL)}
    described: dict[tuple[str, bytes], Metadata] = {}
    find = known.rows.get
    for place, (start, stop) in enumerate(usual.spans):
        row = find(keys[place]) if keys is not None else None
        if row is None and keys is not None:
            if not collected.door.takes_new:
                collected.refuse_unread(1)
                continue
            row = learn_series_v2(body, start, symbols, collected, keys[place])
        if row == REFUSED:
            continue
        if row is None:
            parse_series_v2(body, start, stop, symbols, collected)
            continue
        end = usual.sample_ends[place]
        tail = tails[usual.sizes[place]]
        tail.rows.append(row)
        tail.ends.append(end)
        if end != stop:
            key = known.metric_name(row), body[end + 2 : stop]
            if key not in described:
                described[key] = parse_metadata_v2(body, end + 2, stop, key[0], symbols)
            collected.note(described[key], end)
    rows, times, values, odd = take_both(body, tails[TAIL], tails[ZERO_TAIL])
    if odd:
        for end, (start, stop) in zip(usual.sample_ends, usual.spans, strict=True):
            if end in odd:
                parse_series_v2(body, start, stop, symbols, collected)
    return collected.finish(rows, times, values)


def learn_series_v2(
    body: bytes, start: int, symbols: Symbols, collected: Collected, key: bytes
) -> int | None:
    """The row of a new series, remembered by its key; None if its labels are unusual."""
    known = collected.known
    texts = symbols.texts(body, [(start + 2, start + 2 + body[start + 1])])
    pairs = zip(texts[::2], texts[1::2], strict=True)
    found = [label for pair in pairs if (label := known.label_bytes.of(*pair)) is not None]
    if len(found) != len(texts) // 2 or len(found) > LABELS_MAX:
        return None
    labels = series_labels(found)
    if labels is None or odd_series(labels):
        return None
    identity = digest_id(b"".join([label.canonical for label in found]))
    row = collected.learn(key, labels, identity, 1)
    return REFUSED if row is None else row


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
    lost = pieces(len(samples), len(exemplars), histograms)
    row = collected.identify(None, lambda: canonical_labels(pair_labels(texts)), lost)
    if row is None:
        return
    collected.add(row, samples)
    for begin, end in exemplars:
        time_ms, value, spans = parse_exemplar(body, begin, end, REFERENCE_TYPES)
        collected.add_exemplar(row, time_ms, value, pair_labels(symbols.texts(body, spans)))
    if metadata is not None:
        metric = collected.known.metric_name(row)
        collected.note(parse_metadata_v2(body, *metadata, metric, symbols), metadata[0])
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
        raise WireError("a symbol is not UTF-8") from error
    return Metadata(metric, metric_type(found[1]), help_text, unit)
