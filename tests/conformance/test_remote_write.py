"""The remote write receiver, by the rules of the specification and of its compliance suite.

Ported from prometheus/compliance (remotewrite/receiver), with one question more in every case:
what is in the store afterwards?
"""

import time
from collections.abc import Iterator, Sequence
from itertools import count

import httpx
import pytest

from api.base.limits import BODY_BYTES_MAX, UNPACKED_BYTES_MAX
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

NOW_MS = int(time.time() * 1000)
WRITTEN = "X-Prometheus-Remote-Write-{}-Written"
_numbers = count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def metric() -> str:
    """A metric that no other test has."""
    return f"metric_{next(_numbers)}"


def post(
    service: InProcess, body: bytes, headers: dict[str, str], *, packed: bool = False
) -> httpx.Response:
    content = body if packed else rw.snappy(body)
    return service.client.post("/api/v1/write", content=content, headers=headers)


def send(service: InProcess, version: int, series: Sequence[rw.TimeSeries]) -> httpx.Response:
    if version == 1:
        return post(service, rw.request_v1(series), rw.V1_HEADERS)
    return post(service, rw.request_v2(series), rw.V2_HEADERS)


def written(answer: httpx.Response) -> tuple[str | None, ...]:
    kinds = ("Samples", "Histograms", "Exemplars")
    return tuple(answer.headers.get(WRITTEN.format(kind)) for kind in kinds)


def stored(service: InProcess, metric: str) -> dict[int, object]:
    """Time → value of the one series of this metric; empty if there is none."""
    found = service.samples(metric, **{"from": NOW_MS / 1000 - 86_400, "to": NOW_MS / 1000 + 700})
    assert len(found) <= 1
    return {
        at: value for one in found for at, value in zip(one["times_ms"], one["values"], strict=True)
    }


def one(metric: str, value: float = 1.5, time_ms: int = NOW_MS) -> rw.TimeSeries:
    return rw.TimeSeries([("__name__", metric), ("job", "j")], [(value, time_ms)])


def is_refused(answer: httpx.Response, status: int, reason: str) -> None:
    """The status, and one readable line: it ends up in the sender's log."""
    assert answer.status_code == status, answer.text
    assert reason in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.count("\n") == 1
    assert answer.text.endswith("\n")
    assert ("retry-after" in answer.headers) == (status == 503)


# --- content types and encodings ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "version"),
    [
        ("application/x-protobuf", 1),
        (rw.V1_TYPE, 1),
        ("application/x-protobuf; proto=prometheus.WriteRequest", 1),
        ("Application/X-Protobuf;Proto=prometheus.WriteRequest", 1),
        (rw.V2_TYPE, 2),
        ('application/x-protobuf; proto="io.prometheus.write.v2.Request"', 2),
        ("application/x-protobuf;charset=x;proto=io.prometheus.write.v2.Request", 2),
    ],
)
def test_the_content_type_chooses_the_version(
    service: InProcess, metric: str, content_type: str, version: int
) -> None:
    body = (rw.request_v1 if version == 1 else rw.request_v2)([one(metric)])
    # The version header says the other one: it must not matter.
    headers = {
        "Content-Type": content_type,
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "2.0.0" if version == 1 else "0.1.0",
    }
    answer = post(service, body, headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert written(answer) == ((None, None, None) if version == 1 else ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.5}


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "image/png",
        "text/plain",
        "",
        "application/x-protobuf;proto=prometheus.WriteRequestV9",
        "application/x-protobuf;proto=io.prometheus.write.v3.Request",
        "application/x-protobuf;proto=",
        "application/x-protobufs",
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_another_content_type_is_415(
    service: InProcess, metric: str, content_type: str, version: int
) -> None:
    body = (rw.request_v1 if version == 1 else rw.request_v2)([one(metric)])
    headers = {**rw.V1_HEADERS, "Content-Type": content_type}
    is_refused(post(service, body, headers), 415, "application/x-protobuf")
    assert stored(service, metric) == {}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity", "br", "snappy,gzip"])
@pytest.mark.parametrize("headers", [rw.V1_HEADERS, rw.V2_HEADERS])
def test_another_encoding_is_415(
    service: InProcess, metric: str, encoding: str, headers: dict[str, str]
) -> None:
    body = rw.request_v1([one(metric)])
    answer = post(service, body, {**headers, "Content-Encoding": encoding})
    is_refused(answer, 415, "snappy")
    assert written(answer) == ((None,) * 3 if headers is rw.V1_HEADERS else ("0", "0", "0"))


def test_version_headers_and_user_agent_may_be_missing(service: InProcess, metric: str) -> None:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    assert post(service, rw.request_v1([one(metric)]), headers).status_code == 204
    assert stored(service, metric) == {NOW_MS: 1.5}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_only_post_is_allowed(service: InProcess, method: str) -> None:
    assert service.client.request(method, "/api/v1/write").status_code == 405


# --- bodies ------------------------------------------------------------------------------------

FRAMED = b"\xff\x06\x00\x00sNaPpY\x00\x05\x00\x00abcd1"
CORRUPT = {
    "empty": b"",
    "not snappy": b"this is no snappy block",
    "framed snappy": FRAMED,
    "cut off": rw.snappy(rw.request_v1([one("corrupt")] * 20))[:-5],
    "a length and nothing": b"\x80\x01",
    "no end of the length": b"\xff" * 12,
    "snappy of text": rw.snappy(b"this is no protobuf message at all"),
    "snappy of a cut message": rw.snappy(rw.request_v1([one("corrupt")])[:-3]),
    "field number zero": rw.snappy(b"\x02\x01a"),
    "a group": rw.snappy(b"\x0b\x0c"),
}


@pytest.mark.parametrize("case", CORRUPT)
@pytest.mark.parametrize("headers", [rw.V1_HEADERS, rw.V2_HEADERS])
def test_a_corrupt_body_is_400(service: InProcess, case: str, headers: dict[str, str]) -> None:
    answer = post(service, CORRUPT[case], headers, packed=True)
    is_refused(answer, 400, "not a valid request: ")
    assert written(answer) == ((None,) * 3 if headers is rw.V1_HEADERS else ("0", "0", "0"))
    assert stored(service, "corrupt") == {}


@pytest.mark.parametrize("headers", [rw.V1_HEADERS, rw.V2_HEADERS])
def test_an_empty_request_is_a_success(service: InProcess, headers: dict[str, str]) -> None:
    assert post(service, b"", headers).status_code == 204


def test_a_message_of_the_other_version_is_no_silent_loss(service: InProcess, metric: str) -> None:
    """Bytes of version 1 under version 2's type: the sender must not read that all was written."""
    answer = post(service, rw.request_v1([one(metric)]), rw.V2_HEADERS)
    assert answer.status_code == 204
    assert written(answer) == ("0", "0", "0")


@pytest.mark.parametrize("version", [1, 2])
def test_a_bad_series_behind_a_good_one_stores_neither(
    service: InProcess, metric: str, version: int
) -> None:
    """The bytes are broken, not a sample: nothing is stored by halves."""
    number = 1 if version == 1 else 5
    encode = rw.request_v1 if version == 1 else rw.request_v2
    body = encode([one(metric)]) + rw.length_field(number, b"\x12\xff")
    headers = rw.V1_HEADERS if version == 1 else rw.V2_HEADERS
    is_refused(post(service, body, headers), 400, "not a valid request")
    assert stored(service, metric) == {}


# --- samples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_every_sample_of_every_series_is_stored(
    service: InProcess, metric: str, version: int
) -> None:
    series = [
        rw.TimeSeries([("__name__", f"{metric}_{i}")], [(i + j / 4, NOW_MS + j) for j in range(4)])
        for i in range(30)
    ]
    answer = send(service, version, series)
    assert answer.status_code == 204
    assert written(answer) == ((None,) * 3 if version == 1 else ("120", "0", "0"))
    for i in range(30):
        assert stored(service, f"{metric}_{i}") == {NOW_MS + j: i + j / 4 for j in range(4)}


@pytest.mark.parametrize("version", [1, 2])
def test_odd_values_are_stored(service: InProcess, metric: str, version: int) -> None:
    values = [0.0, -1.5, 1e300, float("inf"), float("-inf"), float("nan"), rw.STALE]
    series = rw.TimeSeries([("__name__", metric)], [(v, NOW_MS + i) for i, v in enumerate(values)])
    assert send(service, version, [series]).status_code == 204
    shown = [0.0, -1.5, 1e300, "+Inf", "-Inf", "NaN", "NaN"]
    assert list(stored(service, metric).values()) == shown
    [marker] = service.rows(
        "SELECT reinterpretAsUInt64(value) AS bits FROM samples FINAL "  # noqa: S608
        f"WHERE series IN (SELECT series FROM series WHERE metric_name = '{metric}') "
        f"AND toUnixTimestamp64Milli(time) = {NOW_MS + 6}"
    )
    assert marker["bits"] == rw.STALE_BITS


@pytest.mark.parametrize("version", [1, 2])
def test_out_of_order_samples_are_accepted(service: InProcess, metric: str, version: int) -> None:
    for time_ms in (NOW_MS, NOW_MS - 60_000, NOW_MS - 30_000):
        assert send(service, version, [one(metric, 1.0, time_ms)]).status_code == 204
    assert list(stored(service, metric)) == [NOW_MS - 60_000, NOW_MS - 30_000, NOW_MS]


@pytest.mark.parametrize("version", [1, 2])
def test_a_retry_changes_nothing(service: InProcess, metric: str, version: int) -> None:
    for _ in range(3):
        answer = send(service, version, [one(metric)])
        assert answer.status_code == 204
        assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.5}


@pytest.mark.parametrize("version", [1, 2])
def test_the_same_series_may_come_several_times(
    service: InProcess, metric: str, version: int
) -> None:
    again = [one(metric, float(i), NOW_MS + i) for i in range(3)]
    assert send(service, version, again).status_code == 204
    assert stored(service, metric) == {NOW_MS + i: float(i) for i in range(3)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("time_ms", "rule"),
    [
        (NOW_MS + 3_600_000, "too_far_in_future"),
        (NOW_MS - 31 * 86_400_000, "too_old"),
        (0, "too_old"),
        (-1, "too_old"),
        (2**63 - 1, "too_far_in_future"),
        (-(2**63), "too_old"),
    ],
    # Two processes that run tests side by side must call them the same.
    ids=("in an hour", "a month ago", "1970", "before 1970", "the last", "the first"),
)
def test_samples_out_of_time_are_refused_by_name_and_the_others_kept(
    service: InProcess, metric: str, version: int, time_ms: int, rule: str
) -> None:
    answer = send(service, version, [one(metric), one(f"{metric}_bad", 1.0, time_ms)])
    is_refused(answer, 400, f"1 by {rule}")
    assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.5}
    assert stored(service, f"{metric}_bad") == {}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("days", [0, 1, 7, 29])
def test_samples_of_last_week_and_of_a_skewed_clock_are_accepted(
    service: InProcess, metric: str, version: int, days: int
) -> None:
    time_ms = NOW_MS - days * 86_400_000 if days else NOW_MS + 540_000
    assert send(service, version, [one(metric, 2.0, time_ms)]).status_code == 204
    [found] = service.samples(metric, **{"from": time_ms / 1000 - 1, "to": time_ms / 1000 + 1})
    assert found["times_ms"] == [time_ms]


# --- labels ------------------------------------------------------------------------------------

BAD_LABELS = {
    "no metric name": [("job", "j")],
    "no labels": [],
    "an empty metric name": [("__name__", ""), ("job", "j")],
    "a repeated label": [("__name__", "bad_labels"), ("job", "a"), ("job", "b")],
    "a label without a name": [("", "x"), ("__name__", "bad_labels")],
    "a name too long": [("__name__", "bad_labels"), ("n" * 129, "x")],
    "a value too long": [("__name__", "bad_labels"), ("job", "v" * 2049)],
    "too many labels": [("__name__", "bad_labels"), *((f"l{i:02}", "x") for i in range(64))],
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels_are_refused_and_the_others_kept(
    service: InProcess, metric: str, version: int, case: str
) -> None:
    bad = rw.TimeSeries(BAD_LABELS[case], [(1.0, NOW_MS), (2.0, NOW_MS + 1)])
    answer = send(service, version, [bad, one(metric)])
    is_refused(answer, 400, "2 by bad_labels")
    assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.5}
    assert stored(service, "bad_labels") == {}


@pytest.mark.parametrize("version", [1, 2])
def test_order_of_labels_and_empty_values_do_not_matter(
    service: InProcess, metric: str, version: int
) -> None:
    """A sender must sort; one that does not still means the same series."""
    sets = [
        [("__name__", metric), ("a", "1"), ("b", "2")],
        [("b", "2"), ("a", "1"), ("__name__", metric)],
        [("__name__", metric), ("a", "1"), ("b", "2"), ("c", "")],
    ]
    series = [rw.TimeSeries(labels, [(1.0, NOW_MS + i)]) for i, labels in enumerate(sets)]
    assert send(service, version, series).status_code == 204
    [found] = service.samples(metric, to=NOW_MS / 1000 + 60)
    assert found["labels"] == {"__name__": metric, "a": "1", "b": "2"}
    assert found["times_ms"] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


@pytest.mark.parametrize("version", [1, 2])
def test_labels_of_any_text_come_back(service: InProcess, metric: str, version: int) -> None:
    labels = [("__name__", metric), ("a.b/c", "x"), ("é", "機 \n\t\\\"'{}"), ("z", "v" * 2048)]
    assert send(service, version, [rw.TimeSeries(labels, [(1.0, NOW_MS)])]).status_code == 204
    [found] = service.samples(metric, to=NOW_MS / 1000 + 60)
    assert found["labels"] == dict(labels)


@pytest.mark.parametrize("version", [1, 2])
def test_labels_that_are_not_utf8_are_400(service: InProcess, metric: str, version: int) -> None:
    if version == 1:
        label = rw.length_field(1, b"job") + rw.length_field(2, b"\xff\xfe")
        name = rw.length_field(1, rw.label_v1("__name__", metric))
        series = name + rw.length_field(1, label) + rw.length_field(2, rw.sample(1.0, NOW_MS))
        answer = post(service, rw.length_field(1, series), rw.V1_HEADERS)
    else:
        symbols = [b"", b"__name__", metric.encode(), b"job", b"\xff\xfe"]
        content = rw.length_field(1, bytes([1, 2, 3, 4])) + rw.length_field(
            2, rw.sample(1.0, NOW_MS)
        )
        table = b"".join(rw.length_field(4, symbol) for symbol in symbols)
        answer = post(service, table + rw.length_field(5, content), rw.V2_HEADERS)
    is_refused(answer, 400, "not UTF-8")
    assert stored(service, metric) == {}


# --- version 2's symbols -----------------------------------------------------------------------


def request_with(symbols: list[bytes], references: bytes) -> bytes:
    content = rw.length_field(1, references) + rw.length_field(2, rw.sample(1.0, NOW_MS))
    table = b"".join(rw.length_field(4, symbol) for symbol in symbols)
    return table + rw.length_field(5, content)


@pytest.mark.parametrize(
    ("symbols", "references", "reason"),
    [
        ([b"__name__", b"symbols"], bytes([0, 1]), "must begin with the empty string"),
        ([], bytes([0, 1]), "must begin with the empty string"),
        ([b"", b"__name__", b"symbols"], bytes([1, 3]), "symbol 3 is referred to"),
        ([b"", b"__name__", b"symbols"], rw.varint(1) + rw.varint(2**40), "is referred to"),
        ([b"", b"__name__", b"symbols"], bytes([1, 2, 1]), "3 label references"),
        ([b"", b"__name__", b"symbols"], bytes([1]), "1 label references"),
        ([b"", b"__name__", b"symbols"], b"\x01\x82", "does not end"),
    ],
)
def test_symbols_have_rules(
    service: InProcess, symbols: list[bytes], references: bytes, reason: str
) -> None:
    answer = post(service, request_with(symbols, references), rw.V2_HEADERS)
    is_refused(answer, 400, reason)
    assert written(answer) == ("0", "0", "0")
    assert stored(service, "symbols") == {}


def test_symbols_may_repeat_and_be_unused(service: InProcess, metric: str) -> None:
    symbols = [b"", b"unused", b"__name__", metric.encode(), metric.encode(), b"__name__"]
    assert post(service, request_with(symbols, bytes([5, 4])), rw.V2_HEADERS).status_code == 204
    assert stored(service, metric) == {NOW_MS: 1.0}


def test_two_symbols_are_not_one_with_a_separator_in_it(service: InProcess, metric: str) -> None:
    """The service remembers series by their strings; a forged one must not pass for them."""
    good = [b"", b"__name__", metric.encode(), b"a", b"b"]
    assert post(service, request_with(good, bytes([1, 2, 3, 4])), rw.V2_HEADERS).status_code == 204
    forged = [b"", b"__name__\xff" + metric.encode(), b"a\xffb"]
    is_refused(post(service, request_with(forged, bytes([1, 2])), rw.V2_HEADERS), 400, "UTF-8")


def test_the_old_place_of_the_start_time_is_ignored(service: InProcess, metric: str) -> None:
    """Field 6 of a series was created_timestamp; today field 3 of a sample is start_timestamp."""
    symbols = rw.Symbols()
    series = rw.series_v2(rw.TimeSeries([("__name__", metric)]), symbols)
    series += rw.length_field(2, rw.sample(1.0, NOW_MS) + rw.varint_field(3, NOW_MS - 1000))
    series += rw.varint_field(6, NOW_MS - 1000)
    table = b"".join(rw.length_field(4, text) for text in symbols.texts)
    answer = post(service, table + rw.length_field(5, series), rw.V2_HEADERS)
    assert answer.status_code == 204
    assert written(answer) == ("1", "0", "0")


# --- what comes beside samples -----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_native_histograms_are_refused_and_samples_beside_them_kept(
    service: InProcess, metric: str, version: int
) -> None:
    both = rw.TimeSeries([("__name__", metric)], [(1.0, NOW_MS)], histograms=[NOW_MS, NOW_MS + 1])
    answer = send(service, version, [both, one(f"{metric}_other")])
    is_refused(answer, 400, "2 by native_histograms")
    assert written(answer) == ((None,) * 3 if version == 1 else ("2", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.0}
    assert stored(service, f"{metric}_other") == {NOW_MS: 1.5}


@pytest.mark.parametrize("version", [1, 2])
def test_exemplars_are_stored(service: InProcess, metric: str, version: int) -> None:
    exemplars = [rw.Exemplar(0.5, NOW_MS, (("trace_id", "t1"),)), rw.Exemplar(0.7, NOW_MS + 1, ())]
    series = rw.TimeSeries([("__name__", metric)], [(1.0, NOW_MS)], exemplars)
    answer = send(service, version, [series])
    assert answer.status_code == 204
    assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "2"))
    assert exemplars_of(service, metric) == [(0.5, {"trace_id": "t1"}), (0.7, {})]


@pytest.mark.parametrize("version", [1, 2])
def test_exemplars_without_samples_have_a_name(
    service: InProcess, metric: str, version: int
) -> None:
    """Prometheus sends exemplars in entries of their own."""
    alone = rw.TimeSeries([("__name__", metric)], [], [rw.Exemplar(0.5, NOW_MS)])
    assert send(service, version, [alone]).status_code == 204
    assert exemplars_of(service, metric) == [(0.5, {"trace_id": "abc"})]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("exemplar", "rule"),
    [
        (rw.Exemplar(1.0, 0), "exemplar_out_of_time"),
        (rw.Exemplar(1.0, NOW_MS, (("a", "1"), ("a", "2"))), "bad_exemplar"),
    ],
)
def test_a_bad_exemplar_is_refused_by_name_and_the_samples_kept(
    service: InProcess, metric: str, version: int, exemplar: rw.Exemplar, rule: str
) -> None:
    good = rw.Exemplar(0.5, NOW_MS)
    series = rw.TimeSeries([("__name__", metric)], [(1.0, NOW_MS)], [exemplar, good])
    answer = send(service, version, [series])
    is_refused(answer, 400, f"1 by {rule}")
    assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "1"))
    assert stored(service, metric) == {NOW_MS: 1.0}
    assert exemplars_of(service, metric) == [(0.5, {"trace_id": "abc"})]


def exemplars_of(service: InProcess, metric: str) -> list[tuple[float, dict[str, str]]]:
    found = service.rows(
        "SELECT value, labels FROM exemplars FINAL WHERE series IN "  # noqa: S608
        f"(SELECT series FROM series WHERE metric_name = '{metric}') ORDER BY time"
    )
    return [(row["value"], dict(row["labels"])) for row in found]


def test_metadata_of_both_versions_is_stored(service: InProcess, metric: str) -> None:
    body = rw.request_v1([], [(f"{metric}_1", 1, "Help 1.", "bytes"), (f"{metric}_9", 99, "", "")])
    assert post(service, body, rw.V1_HEADERS).status_code == 204
    series = rw.TimeSeries(
        [("__name__", f"{metric}_2")], [(1.0, NOW_MS)], metadata=rw.Metadata(2, "Help 2.", "s")
    )
    assert send(service, 2, [series]).status_code == 204
    found = service.rows(
        f"SELECT * FROM metadata FINAL WHERE startsWith(metric_name, '{metric}_') "  # noqa: S608
        "ORDER BY metric_name"
    )
    assert [tuple(row.values()) for row in found] == [
        (f"{metric}_1", "counter", "Help 1.", "bytes"),
        (f"{metric}_2", "gauge", "Help 2.", "s"),
    ], "empty metadata is not kept"


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [rw.V1_HEADERS, rw.V2_HEADERS])
def test_a_bomb_is_refused_unopened(service: InProcess, headers: dict[str, str]) -> None:
    bomb = rw.varint(UNPACKED_BYTES_MAX + 1) + b"\x00a"
    answer = post(service, bomb, headers, packed=True)
    is_refused(answer, 413, "UNPACKED_BYTES_MAX")


def test_a_body_over_its_limit_is_refused(service: InProcess) -> None:
    answer = post(service, bytes(BODY_BYTES_MAX + 1), rw.V1_HEADERS, packed=True)
    is_refused(answer, 413, "BODY_BYTES_MAX")


def test_a_body_in_chunks_has_the_same_limit(service: InProcess) -> None:
    answer = service.client.post(
        "/api/v1/write",
        content=(bytes(1 << 20) for _ in range((BODY_BYTES_MAX >> 20) + 2)),
        headers=rw.V1_HEADERS,
    )
    is_refused(answer, 413, "BODY_BYTES_MAX")


@pytest.mark.parametrize("version", [1, 2])
def test_too_many_series_are_refused(service: InProcess, version: int) -> None:
    number = 1 if version == 1 else 5
    body = rw.length_field(4, b"") * (version - 1) + rw.length_field(number, b"") * 200_001
    headers = rw.V1_HEADERS if version == 1 else rw.V2_HEADERS
    is_refused(post(service, body, headers), 413, "REMOTE_SERIES_MAX")


EMPTY_FIELDS = {
    "series": (rw.V1_HEADERS, rw.tag(1, 2) + b"\0"),
    "metadata": (rw.V1_HEADERS, rw.tag(3, 2) + b"\0"),
    "unknown": (rw.V1_HEADERS, rw.tag(9, 2) + b"\0"),
    "series of version 2": (rw.V2_HEADERS, rw.tag(5, 2) + b"\0"),
    "symbols": (rw.V2_HEADERS, rw.tag(4, 2) + b"\0"),
}


@pytest.mark.parametrize("case", EMPTY_FIELDS)
def test_a_bomb_of_empty_fields_is_refused_soon(service: InProcess, case: str) -> None:
    """A small body that would become tens of millions of objects."""
    headers, field = EMPTY_FIELDS[case]
    body = rw.snappy(field * (UNPACKED_BYTES_MAX // 2 - 64))
    assert len(body) < 10 << 20
    is_refused(post(service, body, headers, packed=True), 413, "_MAX is")


@pytest.mark.rotating(3)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("version", [1, 2])
def test_a_bomb_inside_one_series_is_refused_soon(
    service: InProcess, version: int, number: int
) -> None:
    content = (rw.tag(number, 2) + b"\0") * (UNPACKED_BYTES_MAX // 2 - 64)
    inside = rw.length_field(1 if version == 1 else 5, content)
    body = inside if version == 1 else rw.length_field(4, b"") + inside
    headers = rw.V1_HEADERS if version == 1 else rw.V2_HEADERS
    is_refused(post(service, body, headers), 413, "FIELDS_MAX")


def test_too_many_samples_are_refused(service: InProcess, metric: str) -> None:
    few = rw.length_field(1, rw.label_v1("__name__", metric)) + (rw.tag(2, 2) + b"\0") * 300_000
    is_refused(post(service, rw.length_field(1, few) * 4, rw.V1_HEADERS), 413, "REMOTE_SAMPLES_MAX")
    assert stored(service, metric) == {}


def test_the_service_counts_what_it_refused(service: InProcess) -> None:
    send(service, 1, [one("counted", 1.0, 0)])
    metrics = service.client.get("/metrics").text
    assert 'fabric_service_refused_total{protocol="remote_write",rule="too_old"}' in metrics
    assert 'status="500"' not in metrics
    assert 'path="/api/v1/write"' in metrics or 'route="/api/v1/write"' in metrics
