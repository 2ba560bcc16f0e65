"""Remote write's fast path against a slow, obvious reading of the same bytes.

The decoder recognises series by their bytes and takes samples out of the body without parsing;
the reference here parses everything into plain objects. Whatever the bytes are, both must say the
same, when a series is new and when it is remembered.
"""

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.data.ingest import series as series_module
from api.data.ingest.columns import MS_PER_DAY, Acceptance
from api.data.ingest.remote_write import METRIC_TYPES, RemoteRequest
from api.data.ingest.remote_write_v1 import decode_v1
from api.data.ingest.remote_write_v2 import decode_v2
from api.data.ingest.series import RemoteSeries
from collector.contract.errors import WireError
from collector.contract.identity import (
    LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    metric_id,
    series_id,
)
from tests.worlds import remote_write as rw

NOW_MS = 1_800_000_000_000
ACCEPTANCE = Acceptance(NOW_MS - 30 * MS_PER_DAY, NOW_MS + 600_000)
Decode = Callable[[bytes, RemoteSeries, Acceptance], RemoteRequest]

# --- the reference: any protobuf message as a list of fields -----------------------------------

Field = tuple[int, int, Any]


class BadBytesError(Exception):
    """The reference cannot read these bytes."""


def number_at(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if position + i >= len(body):
            raise BadBytesError
        value |= (body[position + i] & 0x7F) << (7 * i)
        if body[position + i] < 0x80:
            return value & (1 << 64) - 1, position + i + 1
    raise BadBytesError


def message(body: bytes) -> Iterator[Field]:
    """Number, wire type and content (an int, or bytes) of every field."""
    position = 0
    while position < len(body):
        key, position = number_at(body, position)
        number, kind = key >> 3, key & 7
        content: int | bytes
        if kind == 0:
            content, position = number_at(body, position)
        elif kind in {1, 2, 5}:
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, position = number_at(body, position)
            content = body[position : position + size]
            if len(content) < size:
                raise BadBytesError
            position += size
        else:
            raise BadBytesError
        if not number:
            raise BadBytesError
        yield number, kind, content


def typed(body: bytes, kinds: dict[int, set[int]]) -> list[Field]:
    """The known fields of a message; one of a type that it cannot have is an error."""
    fields = list(message(body))
    for number, kind, _ in fields:
        if number in kinds and kind not in kinds[number]:
            raise BadBytesError
    return [field for field in fields if field[0] in kinds]


def text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadBytesError from None


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def read_sample(body: bytes) -> tuple[int, int]:
    """Time and the bits of the value."""
    bits, time_ms = 0, 0
    for number, _, content in typed(body, {1: {1}, 2: {0}}):
        if number == 1:
            bits = int.from_bytes(content, "little")
        else:
            time_ms = signed(content)
    return time_ms, bits


def read_label(body: bytes) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for number, _, content in typed(body, {1: {2}, 2: {2}}):
        texts[number] = text(content)
    return texts[1], texts[2]


def good_labels(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...] | None:
    """The canonical labels, or None if they break a rule."""
    kept = sorted(pair for pair in pairs if pair[1])
    names = [name for name, _ in kept]
    breaks = (
        len(set(names)) < len(names)
        or len(names) > LABELS_MAX
        or "" in names
        or "__name__" not in names
        or any(len(name.encode()) > LABEL_NAME_BYTES_MAX for name in names)
        or any(len(value.encode()) > LABEL_VALUE_BYTES_MAX for _, value in kept)
    )
    return None if breaks else tuple(kept)


class Expected:
    """What a request holds, in a form that can be compared."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int, int, int]] = []
        self.series: set[tuple[int, int, tuple[tuple[str, str], ...]]] = set()
        self.exemplars: list[tuple[int, int, int, tuple[tuple[str, str], ...]]] = []
        self.metadata: dict[str, tuple[str, str, str, str]] = {}
        self.refused: dict[str, int] = {}

    def refuse(self, rule: str, count: int) -> None:
        self.refused[rule] = self.refused.get(rule, 0) + count

    def note(self, metric: str, kind: str, help_text: str, unit: str) -> None:
        """A metric's metadata: the latest wins, and empty metadata is ignored."""
        if (kind, help_text, unit) != ("unknown", "", ""):
            self.metadata[metric] = (metric, kind, help_text, unit)

    def add(
        self,
        pairs: list[tuple[str, str]],
        samples: list[tuple[int, int]],
        exemplars: list[bytes],
        read: Callable[[bytes], tuple[int, int, list[tuple[str, str]]]],
        histograms: int,
    ) -> str | None:
        """Take a series; its metric, if its labels are good.

        Exemplars are read only then. A series that brings nothing else loses its metadata.
        """
        labels = good_labels(pairs)
        if labels is None:
            self.refuse("bad_labels", len(samples) + len(exemplars) + histograms or 1)
            return None
        metric, series = dict(labels)["__name__"], series_id(labels)
        for time_ms, bits in samples:
            if time_ms < ACCEPTANCE.earliest_ms:
                self.refuse("too_old", 1)
            elif time_ms > ACCEPTANCE.latest_ms:
                self.refuse("too_far_in_future", 1)
            else:
                self.samples.append((metric_id(metric), series, time_ms, bits))
                self.series.add((time_ms // MS_PER_DAY, series, labels))
        for time_ms, bits, own in map(read, exemplars):
            names = [name for name, value in own if value]
            if not ACCEPTANCE.earliest_ms <= time_ms <= ACCEPTANCE.latest_ms:
                self.refuse("exemplar_out_of_time", 1)
            elif len(set(names)) < len(names):
                self.refuse("bad_exemplar", 1)
            else:
                kept = tuple(sorted(pair for pair in own if pair[1]))
                self.exemplars.append((series, time_ms, bits, kept))
                self.series.add((time_ms // MS_PER_DAY, series, labels))
        if histograms:
            self.refuse("native_histograms", histograms)
        return metric

    def comparable(self) -> Any:  # noqa: ANN401 - a tree of plain things
        return (
            sorted(self.samples),
            sorted(self.series),
            sorted(self.exemplars),
            sorted(self.metadata.values()),
            self.refused,
        )


def read_exemplar(
    body: bytes, pairs: Callable[[list[Field]], list[tuple[str, str]]], kinds: set[int]
) -> tuple[int, int, list[tuple[str, str]]]:
    bits, time_ms, labels = 0, 0, []
    for number, kind, content in typed(body, {1: kinds, 2: {1}, 3: {0}}):
        if number == 1:
            labels.append((number, kind, content))
        elif number == 2:
            bits = int.from_bytes(content, "little")
        else:
            time_ms = signed(content)
    return time_ms, bits, pairs(labels)


def labels_in(fields: list[Field]) -> list[tuple[str, str]]:
    return [read_label(content) for _, _, content in fields]


def metric_type(number: int) -> str:
    return METRIC_TYPES[number] if number < len(METRIC_TYPES) else "unknown"


def reference_v1(body: bytes) -> Expected:
    expected = Expected()
    for number, _, content in typed(body, {1: {2}, 3: {2}}):
        if number == 3:
            texts, kind = {2: "", 4: "", 5: ""}, 0
            for part, _, value in typed(content, {1: {0}, 2: {2}, 4: {2}, 5: {2}}):
                if part == 1:
                    kind = value
                else:
                    texts[part] = text(value)
            expected.note(texts[2], metric_type(kind), texts[4], texts[5])
            continue
        fields = typed(content, {1: {2}, 2: {2}, 3: {2}, 4: {2}})
        expected.add(
            [read_label(value) for part, _, value in fields if part == 1],
            [read_sample(value) for part, _, value in fields if part == 2],
            [value for part, _, value in fields if part == 3],
            lambda body: read_exemplar(body, labels_in, {2}),
            sum(part == 4 for part, _, _ in fields),
        )
    return expected


def references_in(fields: list[Field]) -> Iterator[int]:
    """References, packed or one a field."""
    for _, kind, content in fields:
        if kind == 0:
            yield content
            continue
        position = 0
        while position < len(content):
            reference, position = number_at(content, position)
            yield reference


def reference_v2(body: bytes) -> Expected:
    expected = Expected()
    top = typed(body, {4: {2}, 5: {2}})
    symbols: list[bytes] = [content for number, _, content in top if number == 4]

    def symbol(reference: int) -> bytes:
        if reference >= len(symbols):
            raise BadBytesError
        return symbols[reference]

    def pairs(fields: list[Field]) -> list[tuple[str, str]]:
        references = list(references_in(fields))
        if len(references) % 2:
            raise BadBytesError
        texts = [text(symbol(reference)) for reference in references]
        return list(zip(texts[::2], texts[1::2], strict=True))

    series = [content for number, _, content in top if number == 5]
    if series and (not symbols or symbols[0]):
        raise BadBytesError
    for content in series:
        fields = typed(content, {1: {0, 2}, 2: {2}, 3: {2}, 4: {2}, 5: {2}})
        metric = expected.add(
            pairs([each for each in fields if each[0] == 1]),
            [read_sample(value) for part, _, value in fields if part == 2],
            [value for part, _, value in fields if part == 4],
            lambda body: read_exemplar(body, pairs, {0, 2}),
            sum(part == 3 for part, _, _ in fields),
        )
        described = [value for part, _, value in fields if part == 5]
        if metric is not None and described:
            numbers_found = typed(described[-1], {1: {0}, 3: {0}, 4: {0}})
            found = {1: 0, 3: 0, 4: 0} | {part: value for part, _, value in numbers_found}
            help_text, unit = text(symbol(found[3])), text(symbol(found[4]))
            expected.note(metric, metric_type(found[1]), help_text, unit)
    return expected


# --- the decoder's answer in the same form -----------------------------------------------------


def bits_of(value: float) -> int:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)


def comparable(request: RemoteRequest) -> Any:  # noqa: ANN401 - a tree of plain things
    write = request.write
    samples = write.samples
    columns = (samples.metric, samples.series, samples.time_ms, samples.value.view("u8"))
    return (
        sorted(zip(*(column.tolist() for column in columns), strict=True)),
        sorted((new.day, new.series, new.labels) for new in write.series),
        sorted((e.series, e.time_ms, bits_of(e.value), e.labels) for e in write.exemplars),
        sorted((m.metric, m.type, m.help, m.unit) for m in write.metadata),
        request.refused,
    )


def agree(
    decode: Decode, reference: Callable[[bytes], Expected], body: bytes, known: RemoteSeries
) -> None:
    """Both read the same, or neither can read it."""
    try:
        expected = reference(body).comparable()
    except BadBytesError:
        with pytest.raises(WireError):
            decode(body, known, ACCEPTANCE)
        return
    assert comparable(decode(body, known, ACCEPTANCE)) == expected


# --- requests, usual and odd -------------------------------------------------------------------

names = st.sampled_from(["__name__", "job", "instance", "le", "é", "", "n" * 60, "n" * 129])
values = st.sampled_from(["up", "a", "b", "", "1.5", "機", "v" * 50, "v" * 130, "v" * 2049])
tame_pairs = st.dictionaries(
    st.sampled_from(["job", "instance", "le"]), st.sampled_from(["a", "b", "é"]), max_size=3
).map(lambda labels: [("__name__", "up"), *sorted(labels.items())])
wild_pairs = st.lists(st.tuples(names, values), max_size=5)
label_pairs = tame_pairs | tame_pairs | wild_pairs
times = (
    st.integers(NOW_MS - 10, NOW_MS + 10)
    | st.sampled_from([0, -1, -(2**63), 2**63 - 1, 127, 2**42, NOW_MS - 40 * MS_PER_DAY])
    | st.integers(ACCEPTANCE.earliest_ms - 2, ACCEPTANCE.earliest_ms + 2)
    | st.integers(ACCEPTANCE.latest_ms - 2, ACCEPTANCE.latest_ms + 2)
)
numbers = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0**60, rw.STALE, float("inf")]) | st.floats()
unknown = st.sampled_from(
    [
        rw.varint_field(15, 300),
        rw.varint_field(16, 1),
        rw.length_field(9, b"\x0a\x03abc"),
        rw.tag(13, 1) + b"\xff" * 8,
        rw.tag(14, 5) + b"\xff" * 4,
        rw.length_field(200, b""),
    ]
)


@st.composite
def samples(draw: st.DrawFn) -> bytes:
    value, time_ms = draw(numbers), draw(times)
    parts = [rw.double_field(1, value), rw.varint_field(2, time_ms)]
    odd = draw(st.integers(0, 9))
    if odd == 0:
        parts = [rw.sample(value, time_ms, keep_zero=True)]
    elif odd == 1:
        parts.reverse()
    elif odd == 2:
        parts.append(draw(unknown))
    return rw.length_field(2, b"".join(parts))


def odd_label(draw: st.DrawFn, pair: tuple[str, str]) -> bytes:
    """A label as nearly everyone writes it, or in one of the ways that are allowed as well."""
    name, value = (part.encode() for part in pair)
    usual = rw.label_v1(*pair)
    ways = [usual] * 6 + [
        rw.length_field(2, value) + rw.length_field(1, name),
        rw.length_field(1, name) + rw.length_field(2, value),
        usual + draw(unknown),
    ]
    return rw.length_field(1, draw(st.sampled_from(ways)))


@st.composite
def exemplars_v1(draw: st.DrawFn) -> bytes:
    return rw.exemplar_v1(rw.Exemplar(draw(numbers), draw(times), draw(wild_pairs)))


@st.composite
def series_v1(draw: st.DrawFn) -> bytes:
    parts = [odd_label(draw, pair) for pair in draw(label_pairs)]
    parts += draw(st.lists(samples(), min_size=1, max_size=1) | st.lists(samples(), max_size=3))
    if draw(st.integers(0, 4)) == 0:
        parts += [rw.length_field(3, each) for each in draw(st.lists(exemplars_v1(), max_size=2))]
        parts += [rw.length_field(4, rw.histogram(NOW_MS))] * draw(st.integers(0, 2))
        parts += draw(st.lists(unknown, max_size=2))
        if draw(st.booleans()):
            parts = draw(st.permutations(parts))
    return b"".join(parts)


metadata_v1 = st.builds(rw.metadata_v1, values, st.integers(0, 9), values, values)


@st.composite
def requests_v1(draw: st.DrawFn) -> bytes:
    parts = [
        draw(
            series_v1().map(lambda content: rw.length_field(1, content))
            | series_v1().map(lambda content: rw.length_field(1, content))
            | metadata_v1.map(lambda content: rw.length_field(3, content))
            | unknown
        )
        for _ in range(draw(st.integers(0, 6)))
    ]
    return b"".join(parts)


@st.composite
def series_v2(draw: st.DrawFn, symbols: rw.Symbols) -> bytes:
    packed = symbols.pack(draw(label_pairs))
    if draw(st.integers(0, 9)) == 0:  # not packed: one field a reference
        references, position = [], 0
        while position < len(packed):
            reference, position = number_at(packed, position)
            references.append(rw.varint_field(1, reference, keep_zero=True))
    else:
        references = [rw.length_field(1, packed)]
    parts = [*references, *draw(st.lists(samples(), max_size=3))]
    if draw(st.integers(0, 2)) == 0:
        for value, time_ms, own in draw(
            st.lists(st.tuples(numbers, times, wild_pairs), max_size=2)
        ):
            content = rw.exemplar_v2(rw.Exemplar(value, time_ms, own), symbols)
            parts.append(rw.length_field(4, content))
        parts += [rw.length_field(3, rw.histogram(NOW_MS))] * draw(st.integers(0, 2))
        parts += draw(st.lists(unknown, max_size=2))
        described = rw.varint_field(1, draw(st.integers(0, 9)))
        described += rw.varint_field(3, symbols.refer(draw(values)))
        parts.append(rw.length_field(5, described))
    return b"".join(parts)


@st.composite
def requests_v2(draw: st.DrawFn) -> bytes:
    symbols = rw.Symbols()
    count = draw(st.integers(0, 5))
    series = [rw.length_field(5, draw(series_v2(symbols))) for _ in range(count)]
    table = [rw.length_field(4, each) for each in symbols.texts]
    parts = [*series, *table] if draw(st.integers(0, 9)) == 0 else [*table, *series]
    return b"".join([*parts, *draw(st.lists(unknown, max_size=1))])


VERSIONS = {1: (decode_v1, reference_v1), 2: (decode_v2, reference_v2)}


def check(version: int, bodies: list[bytes]) -> None:
    """Every body on first sight, and once more when all of them are known."""
    decode, reference = VERSIONS[version]
    for body in bodies:
        agree(decode, reference, body, RemoteSeries())
    known = RemoteSeries()
    for body in [*bodies, *bodies]:
        agree(decode, reference, body, known)


@given(st.lists(requests_v1(), min_size=1, max_size=3))
def test_version_1_is_read_as_the_reference_reads_it(bodies: list[bytes]) -> None:
    check(1, bodies)


TWICE_DESCRIBED = (
    b"*\x1a\n\x02\x01\x02\x12\x10\t\x00\x00\x00\x00\x00\x00\x00\x00\x10\xf6\x9f\xf1\xc2\xb14*\x02\x18\x02"
    b'*\x08\x08\x01\x08\x02*\x02\x18\x03"\x00"\x08__name__"\x02up"\x01a'
)
"""One series twice, the second time of another shape and described otherwise."""


@given(st.lists(requests_v2(), min_size=1, max_size=3))
@example([TWICE_DESCRIBED])
def test_version_2_is_read_as_the_reference_reads_it(bodies: list[bytes]) -> None:
    check(2, bodies)


@st.composite
def damage(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> tuple[bytes, bytes]:
    """A body, and the same with a few bytes changed, added, removed, or its end cut off."""
    body = draw(bodies.filter(bool))
    broken = bytearray(body)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(broken) - 1)))
        match draw(st.sampled_from(["change", "flip", "add", "remove", "cut", "repeat"])):
            case "change" if broken:
                broken[at] = draw(st.sampled_from([0x00, 0x07, 0x09, 0x0A, 0x10, 0x12, 0x80, 0xFF]))
            case "flip" if broken:
                broken[at] ^= 1 << draw(st.integers(0, 7))
            case "add":
                broken[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "remove":
                del broken[at : at + draw(st.integers(1, 3))]
            case "repeat":
                broken[at:at] = broken[at : at + draw(st.integers(1, 20))]
            case _:
                del broken[at:]
    return body, bytes(broken)


@given(damage(requests_v1()))
def test_damaged_version_1_is_refused_or_read_as_the_reference_reads_it(
    bodies: tuple[bytes, bytes],
) -> None:
    check(1, list(bodies))


@given(damage(requests_v2()))
def test_damaged_version_2_is_refused_or_read_as_the_reference_reads_it(
    bodies: tuple[bytes, bytes],
) -> None:
    check(2, list(bodies))


@pytest.mark.parametrize("version", [1, 2])
@given(body=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read_as_the_reference_reads_them(
    version: int, body: bytes
) -> None:
    check(version, [body])


@st.composite
def scrapes(draw: st.DrawFn) -> list[bytes]:
    """What one sender sends time after time: many series in an order, and little that changes."""
    series = [f"s{number}" for number in range(draw(st.integers(70, 200)))]
    bodies = []
    for at in range(draw(st.integers(2, 5))):
        for _ in range(draw(st.integers(0, 3))):  # one goes, or comes, or another moves up
            place = draw(st.integers(0, len(series) - 1))
            change = draw(st.sampled_from(["go", "come", "rotate"]))
            if change == "go" and len(series) > 1:
                del series[place]
            elif change == "come":
                series.insert(place, f"new{at}_{place}")
            else:
                series = series[place:] + series[:place]
        odd = draw(st.dictionaries(st.integers(0, len(series) - 1), numbers, max_size=5))
        parts = [
            rw.series_v1(
                rw.TimeSeries(
                    [("__name__", name), ("job", "a")],
                    [(odd.get(place, at + 1.0), NOW_MS + at)],
                )
            )
            for place, name in enumerate(series)
        ]
        bodies.append(b"".join(rw.length_field(1, part) for part in parts))
    return bodies


@given(scrapes(), st.integers(0, 2**31))
def test_runs_of_known_series_are_read_as_the_reference_reads_them(
    bodies: list[bytes], seed: int
) -> None:
    """Also when a byte is wrong somewhere in a run that is known."""
    known = RemoteSeries()
    for body in [*bodies, *bodies]:
        agree(decode_v1, reference_v1, body, known)
    random = Random(seed)
    for body in bodies:
        damaged = bytearray(body)
        damaged[random.randrange(len(body))] = random.randrange(256)
        agree(decode_v1, reference_v1, bytes(damaged), known)
        agree(decode_v1, reference_v1, body, known)


@given(st.integers(0, 200), st.randoms(use_true_random=False))
def test_runs_of_series_that_were_not_kept_are_not_kept(kept: int, random: Random) -> None:
    """Their rows are other series' later: the first is the same, and those after it are not.

    Each request has its series twice: the second time they are known, and make runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_module, "REMOTE_SERIES_CACHED_MAX", kept)
        known = RemoteSeries()
        names = [f"s{number}" for number in range(150)]
        others = names[1:]
        for _ in range(3):
            random.shuffle(others)
            both = [*names[:1], *others, *names]
            parts = [rw.TimeSeries([("__name__", name)], [(1.0, NOW_MS)]) for name in both]
            agree(decode_v1, reference_v1, rw.request_v1(parts), known)


def test_a_sender_that_repeats_itself_is_read_in_runs() -> None:
    """Otherwise the test above would prove nothing."""
    known = RemoteSeries()
    for at in range(3):
        series = [
            rw.TimeSeries([("__name__", f"s{number}")], [(at * number * 1.0, NOW_MS + at)])
            for number in range(300)
        ]
        agree(decode_v1, reference_v1, rw.request_v1(series), known)
    assert len(known.runs) == 300 // 64
