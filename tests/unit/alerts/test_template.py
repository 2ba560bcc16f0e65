"""Templates of rules expanded; that Prometheus expands them alike, promtool says elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alerts.rulebook.model import Found
from alerts.rulebook.template import TemplateData, TemplateError, check, expand, expand_or_say
from collector.contract.errors import StoreError

LABELS = {"host": "gpu-1", "device": "mlx5_0", "empty": ""}


def data(value: float = 1.0, **more: object) -> TemplateData:
    return TemplateData(**{"labels": LABELS, "value": value, "name": "__alert_Slow", **more})  # type: ignore[arg-type]


def test_text_without_actions_stays_as_it_is() -> None:
    assert expand("50 % of } all { ports", data()) == "50 % of } all { ports"


def test_an_annotation_as_people_write_them() -> None:
    text = (
        "{{ $labels.host }}/{{ .Labels.device }} moves "
        '{{ $value | humanize }}B/s{{ if lt $value 1e9 }}, {{ printf "%.1f" $value }} B/s{{ end }}'
    )
    assert expand(text, data(12_500_000.0)) == "gpu-1/mlx5_0 moves 12.5MB/s, 12500000.0 B/s"


def test_a_label_that_is_missing_is_empty() -> None:
    assert expand("[{{ $labels.nope }}]", data()) == "[]"


def test_a_query_is_asked_and_its_rows_are_gone_through() -> None:
    asked: list[str] = []

    def answer(expression: str) -> Sequence[Found]:
        asked.append(expression)
        return [Found({"port": "2"}, 4.0), Found({"port": "1"}, 3.0)]

    text = (
        "{{ range query `up == 0` | sortByLabel `port` }}{{ .Labels.port }}={{ .Value }};{{ end }}"
    )
    assert expand(text, data(query=answer)) == "1=3;2=4;"
    assert asked == ["up == 0"]


def test_a_query_that_fails_is_said_where_it_stands() -> None:
    def fail(_expression: str) -> Sequence[Found]:
        raise StoreError("the store is away")

    with pytest.raises(TemplateError, match="error calling query: the store is away") as caught:
        expand("a\n b {{ query `up` }}", data(query=fail))
    assert (caught.value.line, caught.value.column, caught.value.at) == (2, 6, "query `up`")


def test_the_external_address_and_its_path() -> None:
    outside = data(external_url="https://x.example/scope", external_labels={"cluster": "east"})
    text = "{{ externalURL }} {{ pathPrefix }} {{ $externalURL }} {{ $externalLabels.cluster }}"
    assert expand(text, outside) == "https://x.example/scope /scope https://x.example/scope east"


def test_now_is_the_evaluation_s_moment() -> None:
    assert (
        expand("{{ now | humanizeTimestamp }}", data(now_s=1e9)) == "2001-09-09 01:46:40 +0000 UTC"
    )


def test_text_for_addresses_is_escaped() -> None:
    assert expand("{{ urlQueryEscape `a b&c` }}", data()) == "a+b%26c"


def test_an_error_is_what_prometheus_puts_in_its_place() -> None:
    assert expand_or_say("{{ nope }}", data()) == (
        "<error expanding template: error parsing template __alert_Slow: template: __alert_Slow:1: "
        'function "nope" not defined>'
    )
    assert expand_or_say("{{ query `up` | first | value }}", data()) == (
        "<error expanding template: error executing template __alert_Slow: template: "
        '__alert_Slow:1:128: executing "__alert_Slow" at <first>: error calling first: '
        "first() called on vector with no elements>"
    )


def test_comparing_a_value_with_a_whole_number_fails_as_in_prometheus() -> None:
    with pytest.raises(TemplateError, match="incompatible types for comparison"):
        expand("{{ if gt $value 5 }}x{{ end }}", data())


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("{{ $nope }}", 'undefined variable "$nope"'),
        ("{{ humanise $value }}", 'function "humanise" not defined'),
        ("{{ if true }}", "unexpected EOF"),
        ("{{ $value", "unclosed action"),
        ("{{ tmpl `x` . }}", 'function "tmpl" not defined'),
    ],
)
def test_check_names_what_prometheus_would_not_load(text: str, detail: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check(f"one line\n{text}")
    assert caught.value.detail == detail
    assert str(caught.value) == f"line 2: {detail}"


def test_check_does_not_expand() -> None:
    check("{{ query `up` | first | value }}")


def test_halves_of_characters_do_not_get_out() -> None:
    assert expand("{{ slice `é` 1 }}", data()) == "\ufffd"
    assert expand("{{ slice `é` 0 1 }}{{ slice `é` 1 }}", data()) == "é"


def test_labels_that_are_no_utf8_do_not_fail() -> None:
    odd = data(labels={"host": "\ud800x"})
    assert expand("{{ $labels.host | toUpper }} {{ match `x` $labels.host }}", odd) == "?X true"


def test_huge_durations_saturate() -> None:
    assert expand("{{ humanizeDuration 1e30 }}", data()).startswith("106751991167300d ")


def test_complex_numbers_are_refused() -> None:
    for text in ("{{ 1i }}", "{{ 1+2i }}"):
        with pytest.raises(TemplateError, match="complex numbers are not known here"):
            check(text)
