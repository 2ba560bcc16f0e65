"""Remote write, version 1: what everyone sends, read at two million samples a second a core."""

from __future__ import annotations

import numpy as np

from api.base.limits import REMOTE_SAMPLES_MAX, REMOTE_SERIES_MAX
from api.data.ingest import protobuf as pb
from api.data.ingest.columns import Acceptance
from api.data.ingest.commit import Metadata
from api.data.ingest.door import OPEN, Door
from api.data.ingest.identities import odd_series
from api.data.ingest.labels import series_labels
from api.data.ingest.remote_write import (
    TAIL,
    TIME_BYTES,
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
from api.data.ingest.runs import RUN_SERIES, Tails
from api.data.ingest.series import RemoteSeries
from collector.contract.errors import WireError
from collector.contract.identity import LABELS_MAX, canonical_labels, digest_id


def decode_v1(
    body: bytes, known: RemoteSeries, acceptance: Acceptance, door: Door = OPEN
) -> RemoteRequest:
    known.make_room()
    collected = Collected(known, acceptance, door)
    tails = Tails(TAIL), Tails(ZERO_TAIL)
    try:
        walk_v1(body, tails, collected)
    except IndexError:
        raise WireError(f"body is cut off at byte {len(body)}") from None
    rows, times, values, odd = take_both(body, *tails)
    if odd:
        for number, _, start, stop in pb.fields(body, 0, len(body)):
            if number == 1 and stop in odd:
                parse_series_v1(body, start, stop, collected)
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
            check_count(count, "series", "REMOTE_SERIES_MAX", REMOTE_SERIES_MAX)
            continue
        start, stop = pb.length_span(body, position)
        row, tail = find(body[start : stop - TAIL]), usual
        if row is None:
            row, tail = find(body[start : stop - ZERO_TAIL]), zero
        if row is None:
            # Checked here and not only at the end: to learn a million series takes seconds.
            check_count(count + 1, "series", "REMOTE_SERIES_MAX", REMOTE_SERIES_MAX)
            if collected.door.takes_new or may_be_known(body, start, stop, collected.known):
                learn_series_v1(body, start, stop, tails, collected)
            else:
                collected.refuse_unread(1)
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
    check_count(count, "series", "REMOTE_SERIES_MAX", REMOTE_SERIES_MAX)


def may_be_known(body: bytes, start: int, stop: int, known: RemoteSeries) -> bool:
    """Whether a series of another shape than the usual has labels that are known, or long ones.

    It costs a tenth of parsing them: a sender that may begin no series must not cost much.
    """
    position = start
    while position + 1 < stop and body[position] == 0x0A:
        if body[position + 1] >= 0x80:
            return True
        position += 2 + body[position + 1]
    return body[start:position] in known.rows


def learn_series_v1(
    body: bytes, start: int, stop: int, tails: tuple[Tails, Tails], collected: Collected
) -> None:
    """Remember a series that is new, if it has the usual shape; else parse it field by field.

    So is one whose labels break a rule: what is lost with them is known only by parsing it. Several
    samples are the usual shape too, if all are alike: a sender that catches up sends hundreds.
    """
    known = collected.known
    found, labels_end = known.label_bytes.leading(body, start, stop)
    tail = next((each for each in tails if are_samples(body, labels_end, stop, each.size)), None)
    labels = series_labels(found) if tail is not None and len(found) <= LABELS_MAX else None
    if tail is None or labels is None:
        parse_series_v1(body, start, stop, collected)
        return
    key = body[start:labels_end]
    ends = range(labels_end + tail.size, stop + 1, tail.size)
    row = known.rows.get(key)
    if row is None:
        if odd_series(labels):
            parse_series_v1(body, start, stop, collected)
            return
        identity = digest_id(b"".join([label.canonical for label in found]))
        row = collected.learn(key, labels, identity, len(ends))
    if row is None:
        return
    check_count(len(tail.rows) + len(ends), "samples", "REMOTE_SAMPLES_MAX", REMOTE_SAMPLES_MAX)
    tail.rows.extend([row] * len(ends))
    tail.ends.extend(ends)


def are_samples(body: bytes, start: int, stop: int, size: int) -> bool:
    """Whether nothing but samples of this size stands here, as `take_tails` wants them.

    `take_tails` checks a single sample; of several the whole shape is checked here, because only a
    series whose last sample is odd is parsed again.
    """
    count, rest = divmod(stop - start, size)
    if rest or count < 1:
        return False
    if count == 1:
        return True

    def column(place: int) -> bytes:
        """The byte at this place of every sample; slices beat numpy for the few that there are."""
        return body[start + place : stop : size]

    time = size - TIME_BYTES
    return (
        column(0) == b"\x12" * count
        and column(1) == bytes([size - 2]) * count
        and (size == ZERO_TAIL or column(2) == b"\x09" * count)
        and column(time - 1) == b"\x10" * count
        and all(min(column(place)) >= 0x80 for place in range(time, size - 1))
        and max(column(size - 1)) < 0x80
    )


def other_field_v1(body: bytes, position: int, collected: Collected) -> int:
    """Read a field whose tag is not that of a series; returns the position after it."""
    number, wire_type, start, stop = next(pb.fields(body, position, len(body)))
    if number == 1:  # of another type, or with a tag that is longer than it need be
        pb.expect(wire_type, pb.LENGTH, "a series")
        parse_series_v1(body, start, stop, collected)
    if number == 3:
        pb.expect(wire_type, pb.LENGTH, "metadata")
        collected.note(parse_metadata_v1(body, start, stop), start)
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
    lost = pieces(len(samples), len(exemplars), histograms)
    row = collected.identify(key, lambda: canonical_labels(pairs), lost)
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
