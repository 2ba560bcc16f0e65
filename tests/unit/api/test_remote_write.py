"""Remote write's decoder: cases that once went wrong or easily could, each by itself.

That fast and slow path agree on everything else is a property (`tests/property`).
"""

from collections.abc import Callable

import pytest

from api.data.ingest.columns import Acceptance
from api.data.ingest.remote_write import RemoteRequest, unpack
from api.data.ingest.remote_write_v1 import decode_v1
from api.data.ingest.remote_write_v2 import decode_v2
from api.data.ingest.series import RemoteSeries
from api.http.routes.remote_write import version_of
from collector.contract.errors import WireError, WireTooLarge
from tests.worlds import remote_write as rw

NOW_MS = 1_800_000_000_000
ACCEPTANCE = Acceptance.at(NOW_MS, 30)
UP = [("__name__", "up")]
Decoder = Callable[[bytes, RemoteSeries, Acceptance], RemoteRequest]


def decode(body: bytes, known: RemoteSeries | None = None) -> RemoteRequest:
    return decode_v1(body, known or RemoteSeries(), ACCEPTANCE)


def rows(request: RemoteRequest) -> list[tuple[int, float]]:
    samples = request.write.samples
    return list(zip(samples.time_ms.tolist(), samples.value.tolist(), strict=True))


def one(value: float = 1.5, time_ms: int = NOW_MS) -> rw.TimeSeries:
    return rw.TimeSeries(UP, [(value, time_ms)])


@pytest.mark.parametrize("value", [1.5, 0.0])
def test_a_known_series_is_read_as_a_new_one(value: float) -> None:
    known = RemoteSeries()
    body = rw.request_v1([one(value)])
    assert rows(decode(body, known)) == rows(decode(body, known)) == [(NOW_MS, value)]
    assert len(known.labels) == 1


@pytest.mark.parametrize("filler", [b"\xff" * 8, b"\x80" * 8, bytes(8)])
def test_an_unknown_field_of_any_content_is_passed_over(filler: bytes) -> None:
    """Its bytes were once taken for a length."""
    body = rw.tag(13, 1) + filler + rw.request_v1([one()])
    assert rows(decode(body)) == [(NOW_MS, 1.5)]
    assert rows(decode(rw.request_v1([one()]) + rw.tag(13, 1) + filler)) == [(NOW_MS, 1.5)]


@pytest.mark.parametrize("odd", [None, 0, 1, 3, 4])
@pytest.mark.parametrize("value", [1.5, 0.0])
def test_many_samples_of_one_series_are_read_at_once_and_one_by_one(
    value: float, odd: int | None
) -> None:
    """A sender that catches up; an odd sample among them (another shape) changes no other."""
    samples = [(value, NOW_MS + number) for number in range(5)]
    if odd is not None:
        samples[odd] = (2.5 if value == 0.0 else 0.0, NOW_MS + odd)
    body = rw.request_v1([rw.TimeSeries(UP, samples)])
    known = RemoteSeries()
    for _ in range(2):
        found = decode(body, known)
        assert rows(found) == [(time_ms, each) for each, time_ms in samples]
        assert len(set(found.write.samples.series.tolist())) == 1


def test_a_tag_that_is_longer_than_it_need_be_is_still_a_series() -> None:
    """Such a series was once passed over, and acknowledged."""
    content = rw.series_v1(one())
    body = b"\x8a\x00" + rw.varint(len(content)) + content
    assert rows(decode(body)) == [(NOW_MS, 1.5)]


def test_all_samples_of_a_series_with_bad_labels_are_counted() -> None:
    """Two zeros are as long as one sample that is none."""
    bad = rw.TimeSeries([("job", "j")], [(0.0, NOW_MS), (0.0, NOW_MS + 1)])
    assert decode(rw.request_v1([bad])).refused == {"bad_labels": 2}


def test_a_bad_series_with_a_broken_sample_is_broken() -> None:
    labels = rw.length_field(1, rw.label_v1("job", "j"))
    with pytest.raises(WireError):
        decode(rw.length_field(1, labels + rw.length_field(2, b"\xff" * 16)))


@pytest.mark.parametrize("length", range(1, 60))
def test_a_body_cut_off_anywhere_is_a_wire_error_or_shorter(length: int) -> None:
    known = RemoteSeries()
    body = rw.request_v1([one(), one(2.0), one(0.0)])
    decode(body, known)
    boundaries = {len(rw.request_v1([one()] * n)) for n in range(3)}
    if length in boundaries:
        decode(body[:length], known)
        return
    for memory in (known, RemoteSeries()):
        with pytest.raises(WireError):
            decode(body[:length], memory)


def test_symbols_with_a_separator_inside_are_not_two_symbols() -> None:
    known = RemoteSeries()
    symbols = rw.Symbols()
    decode_v2(rw.request_v2([rw.TimeSeries([*UP, ("a", "b")], [(1.0, NOW_MS)])]), known, ACCEPTANCE)
    references = bytes([symbols.refer(b"__name__\xffup"), symbols.refer(b"a\xffb")])
    series = rw.length_field(1, references) + rw.length_field(2, rw.sample(1.0, NOW_MS))
    table = b"".join(rw.length_field(4, text) for text in symbols.texts)
    with pytest.raises(WireError, match="UTF-8"):
        decode_v2(table + rw.length_field(5, series), known, ACCEPTANCE)


def test_exemplars_without_samples_write_the_series_name() -> None:
    alone = rw.TimeSeries(UP, [], [rw.Exemplar(0.5, NOW_MS)])
    assert [new.labels for new in decode(rw.request_v1([alone])).write.series] == [tuple(UP)]


def test_the_declared_size_is_checked_before_anything_is_unpacked() -> None:
    assert unpack(rw.snappy(b"")) == b""
    assert unpack(rw.snappy(b"abc" * 1000)) == b"abc" * 1000
    with pytest.raises(WireTooLarge, match="UNPACKED_BYTES_MAX"):
        unpack(rw.varint((128 << 20) + 1) + b"\x00a")
    for body in (b"", b"\xff" * 20, b"\x05abc", rw.varint(128 << 20) + b"\x00a"):
        with pytest.raises(WireError):
            unpack(body)


@pytest.mark.parametrize(
    ("content_type", "version"),
    [
        ("application/x-protobuf", 1),
        (rw.V1_TYPE, 1),
        (rw.V2_TYPE, 2),
        ("application/x-protobuf ; PROTO = io.prometheus.write.v2.Request", 2),
        ("application/x-protobuf;proto=other", None),
        ("application/json", None),
        ("", None),
        (";;;=", None),
    ],
)
def test_versions(content_type: str, version: int | None) -> None:
    assert version_of(content_type) == version


# --- fields of DCGM that have no value -----------------------------------------------------------


@pytest.mark.parametrize("value", [2147483634.0, 9223372036854775794.0, 140737488355328.0, 1.8e308])
@pytest.mark.parametrize("decoder", [decode_v1, decode_v2])
def test_what_dcgm_writes_for_no_value_is_left_out(decoder: Decoder, value: float) -> None:
    """Old exporters print it. It is no refusal: the sender has nothing to mend."""
    known = RemoteSeries()
    make = rw.request_v1 if decoder is decode_v1 else rw.request_v2
    body = make(
        [
            rw.TimeSeries([("__name__", name), ("gpu", "0")], [(number, NOW_MS)])
            for name, number in (
                ("DCGM_FI_DEV_MEMORY_TEMP", value),
                ("DCGM_FI_DEV_GPU_TEMP", 51.0),
                ("an_application_s_total", value),
            )
        ]
    )
    for _ in range(2):  # of new series and of known ones
        request = decoder(body, known, ACCEPTANCE)
        assert sorted(request.write.samples.value.tolist()) == sorted([51.0, value])
        assert (request.blank, request.refused) == (1, {})


def test_the_end_of_a_field_s_series_is_kept() -> None:
    series = rw.TimeSeries([("__name__", "DCGM_FI_DEV_GPU_TEMP")], [(rw.STALE, NOW_MS)])
    request = decode(rw.request_v1([series]))
    assert (len(request.write.samples), request.blank) == (1, 0)
