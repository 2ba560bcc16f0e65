"""What the specification of remote write 2.0 demands of a receiver, sentence by sentence.

Of `prometheus.io/docs/specs/prw/remote_write_spec_2_0` (2.0-rc.4): every MUST, and every SHOULD
that speaks to receivers, with the tests that hold us to it. What it demands of senders alone is
not here: nothing of ours sends remote write. The cases below are those that no other file has.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.conformance import test_budgets, test_remote_write, test_store_away
from tests.conformance.test_remote_write import (
    BAD_LABELS,
    NOW_MS,
    exemplars_of,
    is_refused,
    one,
    post,
    send,
    stored,
    written,
)
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

_numbers = count(1)

DEMANDS: dict[str, tuple[str, ...]] = {
    # Protocol
    "MUST support io.prometheus.write.v2.Request": (
        "test_every_sample_of_every_series_is_stored",
        "test_the_content_type_chooses_the_version",
    ),
    "MUST be snappy's block format, never the framed one": ("test_a_corrupt_body_is_400",),
    "MUST be an HTTP POST": ("test_only_post_is_allowed",),
    "MUST take the schema from the Content-Type": ("test_the_content_type_chooses_the_version",),
    # Response
    "MUST answer 2xx when all is written; SHOULD be 204 without a body": (
        "test_the_content_type_chooses_the_version",
        "test_an_empty_request_is_a_success",
    ),
    "MUST NOT answer 2xx if a sample, histogram or exemplar was not written": (
        "test_samples_out_of_time_are_refused_by_name_and_the_others_kept",
        "test_native_histograms_are_refused_and_samples_beside_them_kept",
        "test_a_bad_exemplar_is_refused_by_name_and_the_samples_kept",
        "test_what_is_lost_with_a_bad_series_is_counted",
    ),
    "MUST say why in words; SHOULD say how many were rejected for what": (
        "test_bad_labels_are_refused_and_the_others_kept",
        "test_what_is_lost_with_a_bad_series_is_counted",
    ),
    "MUST send the three -Written headers, on success and on failure": (
        "test_the_content_type_chooses_the_version",
        "test_a_corrupt_body_is_400",
        "test_known_series_are_stored_while_new_ones_wait",
        "test_a_sender_is_told_to_come_back_while_the_store_is_away",
    ),
    "MUST be precise numbers": (
        "test_every_sample_of_every_series_is_stored",
        "test_exemplars_are_stored",
        "test_known_series_are_stored_while_new_ones_wait",
    ),
    "MUST answer 415 for another content type or encoding": (
        "test_another_content_type_is_415",
        "test_another_encoding_is_415",
        "test_no_content_type_is_415",
    ),
    "MUST answer 400 for a request with an invalid sample": (
        "test_bad_labels_are_refused_and_the_others_kept",
        "test_samples_out_of_time_are_refused_by_name_and_the_others_kept",
    ),
    # Retries
    "MUST use 4xx (but 429) only for what can never succeed": (
        "test_known_series_are_stored_while_new_ones_wait",
        "test_a_sender_is_told_to_come_back_while_the_store_is_away",
    ),
    "MUST be idempotent where it asks for the whole request again": (
        "test_a_retry_changes_nothing",
        "test_known_series_are_stored_while_new_ones_wait",
    ),
    # Compatibility
    "MUST read any 2.x sender": (
        "test_fields_of_a_later_minor_version_are_passed_over",
        "test_the_old_place_of_the_start_time_is_ignored",
    ),
    # The message
    "labels_refs MUST be there": ("test_bad_labels_are_refused_and_the_others_kept",),
    "a series with neither samples nor histograms": (
        "test_exemplars_without_samples_have_a_name",
        "test_metadata_may_come_alone_and_be_of_no_known_type",
    ),
    "symbols MUST begin with the empty string, references MUST exist": (
        "test_symbols_have_rules",
        "test_a_reference_beyond_the_symbols_is_400_and_nothing_is_stored",
    ),
    "symbols MUST be deduplicated (a sender that does not is borne)": (
        "test_symbols_may_repeat_and_be_unused",
    ),
    "label names MUST NOT repeat nor be empty": (
        "test_bad_labels_are_refused_and_the_others_kept",
    ),
    "label names MUST be sorted, values not empty (a sender that does not is borne)": (
        "test_order_of_labels_and_empty_values_do_not_matter",
    ),
    "names and values MUST be any UTF-8": (
        "test_labels_of_any_text_come_back",
        "test_labels_that_are_not_utf8_are_400",
    ),
    "times MUST be int64 milliseconds, values float64": ("test_odd_values_are_stored",),
    "a start time of 0 MUST be read as none": (
        "test_a_start_time_may_be_there_and_zero_is_none",
    ),
    "the stale marker MUST be that NaN": ("test_odd_values_are_stored",),
    "an exemplar MUST have a time": (
        "test_a_bad_exemplar_is_refused_by_name_and_the_samples_kept",
    ),
}  # fmt: skip
"""The sentence, shortened → the tests."""

LATER = (
    rw.varint_field(100, 7)
    + rw.double_field(101, 1.0)
    + rw.length_field(102, b"later")
    + rw.tag(103, 5)
    + bytes(4)
)
"""Fields of a version 2.x that is not written yet: a number, a double, a text, four bytes."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def metric() -> str:
    """A metric that no other test has."""
    return f"spec_{next(_numbers)}"


@pytest.mark.parametrize("demand", DEMANDS)
def test_every_demand_has_its_tests(demand: str) -> None:
    places = [globals(), *map(vars, (test_remote_write, test_budgets, test_store_away))]
    for name in DEMANDS[demand]:
        assert any(callable(place.get(name)) for place in places), f"{demand}: no test {name}"


# --- what else a request may be ----------------------------------------------------------------


def request_of(symbols: rw.Symbols, series: bytes) -> bytes:
    """A request with one series."""
    table = b"".join(rw.length_field(4, text) for text in symbols.texts)
    return table + rw.length_field(5, series)


def test_no_content_type_is_415(service: InProcess, metric: str) -> None:
    headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "2.0.0"}
    is_refused(post(service, rw.request_v2([one(metric)]), headers), 415, "application/x-protobuf")


def test_fields_of_a_later_minor_version_are_passed_over(service: InProcess, metric: str) -> None:
    symbols = rw.Symbols()
    exemplar = rw.exemplar_v2(rw.Exemplar(0.5, NOW_MS), symbols) + LATER
    metadata = rw.varint_field(1, 1) + rw.varint_field(3, symbols.refer("Help.")) + LATER
    series = (
        rw.length_field(1, symbols.pack([("__name__", metric)]))
        + rw.length_field(2, rw.sample(1.0, NOW_MS) + LATER)
        + rw.length_field(4, exemplar)
        + rw.length_field(5, metadata)
        + LATER
    )
    answer = post(service, LATER + request_of(symbols, series) + LATER, rw.V2_HEADERS)
    assert (answer.status_code, written(answer)) == (204, ("1", "0", "1"))
    assert stored(service, metric) == {NOW_MS: 1.0}
    assert exemplars_of(service, metric) == [(0.5, {"trace_id": "abc"})]


@pytest.mark.parametrize(
    "start_ms", [None, 0, 1, NOW_MS - 60_000], ids=("none", "zero", "one", "a minute ago")
)
def test_a_start_time_may_be_there_and_zero_is_none(
    service: InProcess, metric: str, start_ms: int | None
) -> None:
    symbols = rw.Symbols()
    start = b"" if start_ms is None else rw.varint_field(3, start_ms, keep_zero=True)
    series = rw.length_field(1, symbols.pack([("__name__", metric)]))
    series += rw.length_field(2, rw.sample(1.0, NOW_MS) + start)
    answer = post(service, request_of(symbols, series), rw.V2_HEADERS)
    assert (answer.status_code, written(answer)) == (204, ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.0}


def test_references_may_be_a_field_each(service: InProcess, metric: str) -> None:
    """Repeated numbers are packed or not: a reader of proto3 takes both."""
    symbols = rw.Symbols()
    numbers = [symbols.refer(text) for text in ("__name__", metric)]
    series = b"".join(rw.varint_field(1, number) for number in numbers)
    series += rw.length_field(2, rw.sample(1.0, NOW_MS))
    assert post(service, request_of(symbols, series), rw.V2_HEADERS).status_code == 204
    assert stored(service, metric) == {NOW_MS: 1.0}


@pytest.mark.parametrize("part", ["help", "unit", "exemplar"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_reference_beyond_the_symbols_is_400_and_nothing_is_stored(
    service: InProcess, metric: str, part: str, *, is_known: bool
) -> None:
    if is_known:
        assert send(service, 2, [one(metric, 1.0, NOW_MS - 1)]).status_code == 204
    symbols = rw.Symbols()
    series = rw.series_v2(one(metric), symbols)
    beyond = rw.varint(len(symbols.texts))
    series += {
        "help": rw.length_field(5, rw.tag(3, 0) + beyond),
        "unit": rw.length_field(5, rw.tag(4, 0) + beyond),
        "exemplar": rw.length_field(4, rw.length_field(1, b"\1" + beyond)),
    }[part]
    answer = post(service, request_of(symbols, series), rw.V2_HEADERS)
    is_refused(answer, 400, "is referred to")
    assert written(answer) == ("0", "0", "0")
    assert NOW_MS not in stored(service, metric)


@pytest.mark.parametrize("kind", [0, 99])
def test_metadata_may_come_alone_and_be_of_no_known_type(
    service: InProcess, metric: str, kind: int
) -> None:
    alone = rw.TimeSeries([("__name__", metric)], metadata=rw.Metadata(kind, "Help."))
    answer = send(service, 2, [alone])
    assert (answer.status_code, written(answer)) == (204, ("0", "0", "0"))
    [found] = service.rows(
        f"SELECT type, help FROM metadata FINAL WHERE metric_name = '{metric}'"  # noqa: S608
    )
    assert tuple(found.values()) == ("unknown", "Help.")


# --- what is not written -----------------------------------------------------------------------

PIECES = {
    "a sample and an exemplar": (([(1.0, NOW_MS)], [rw.Exemplar(1.0, NOW_MS)], []), 2),
    "exemplars": (([], [rw.Exemplar(1.0, NOW_MS)] * 3, []), 3),
    "histograms": (([], [], [NOW_MS, NOW_MS + 1]), 2),
    "metadata": (([], [], []), 1),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", PIECES)
def test_what_is_lost_with_a_bad_series_is_counted(
    service: InProcess, metric: str, version: int, case: str
) -> None:
    (samples, exemplars, histograms), lost = PIECES[case]
    bad = rw.TimeSeries(
        BAD_LABELS["no metric name"], samples, exemplars, histograms, rw.Metadata(1, "Help.")
    )
    answer = send(service, version, [bad, one(metric)])
    is_refused(answer, 400, f"refused: {lost} by bad_labels")
    assert written(answer) == ((None,) * 3 if version == 1 else ("1", "0", "0"))
    assert stored(service, metric) == {NOW_MS: 1.5}
