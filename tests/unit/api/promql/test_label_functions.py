"""Labels replaced, joined and sorted by."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.data.selectors import Matcher
from api.promql.errors import ErrorKind, QueryError
from api.promql.label_functions import absent_labels, name_groups, natural_key, template_parts
from api.promql.values import Dialect, empty_vector
from tests.unit.api.promql.vectors import assert_rows, call, call_vector, ordered_rows, vector

TEN = "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)"


@pytest.mark.parametrize(
    ("value", "pattern", "replacement", "expected"),
    [
        ("host-12", "host-(.*)", "$1", "12"),
        ("host-12", "host-(.*)", "<${1}>", "<12>"),
        ("host-12", "host-(?P<number>.*)", "$number", "12"),
        ("host-12", "(?<kind>host)-(?P<number>.*)", "${number}_$kind-$2", "12_host-12"),
        ("host-12", "host-(.*)", "$1x", ""),
        ("host-12", "host-(.*)", "${1}x", "12x"),
        ("host-12", "host-(.*)", "$0", "host-12"),
        ("host-12", "host-(.*)", "$7", ""),
        ("host-12", "host-(.*)", "$01", ""),
        ("host-12", "(?P<01>h)ost-(?P<1>.*)", "$01$1", "hh"),
        ("host-12", "host-(.*)", "$$1", "$1"),
        ("host-12", "host-(.*)", "$$$1", "$12"),
        ("host-12", "host-(.*)", "5$", "5$"),
        ("host-12", "host-(.*)", "$-$", "$-$"),
        ("host-12", "host-(.*)", "${1", "${1"),
        ("host-12", "host-(.*)", "${}", "${}"),
        ("host-12", "host-(.*)", "$99999999999999999999", ""),
        ("host-12", "host", "x", None),
        ("host-12", "ost-.*", "x", None),
        ("host-12", "(?i)HOST-(.*)", "$1", "12"),
        ("host-12", "HOST-(.*)", "$1", None),
        ("host-12", "host:(?P<n>.*)|host-(?P<n>.*)", "$n", "12"),
        ("host-12", "(x)?host-(.*)", "[$1][$2]", "[][12]"),
        ("host-12", "h(?:o)(st)-.*", "$1", "st"),
        ("a(b", r"a\((b)", "$1", "b"),
        ("a(b", r"a[(](b)", "$1", "b"),
        ("a]b", r"a[]](b)", "$1", "b"),
        ("a]b", r"a[^[:alpha:](](b)", "$1", "b"),
        ("a(b", r"\Qa(\E(b)", "$1", "b"),
        ("a\nb", "a(.)b", "<$1>", "<\n>"),
        ("abcdefghij", TEN, "$10$9", "ji"),
        ("", "(.*)", "none$1", "none"),
        ("é→", "(.)(.)", "$2$1", "→é"),
        ("12", r"(\d+)", "", ""),
        ("ab", "a|b", "x", None),
    ],
)
def test_label_replace(value: str, pattern: str, replacement: str, expected: str | None) -> None:
    source = {"source": value} if value else {}
    given_ = vector(({"__name__": "m", "target": "old", **source}, [1]))
    found = call_vector("label_replace", given_, "target", replacement, "source", pattern)
    target = "old" if expected is None else expected
    labels = {"__name__": "m", **source, **({"target": target} if target else {})}
    assert_rows(found, (labels, [1]))


def test_names_of_metrics_are_labels_too() -> None:
    given_ = vector(({"__name__": "m", "a": "b"}, [1]))
    renamed = call_vector("label_replace", given_, "__name__", "n_$1", "__name__", "(.*)")
    assert_rows(renamed, ({"__name__": "n_m", "a": "b"}, [1]))
    dropped = call_vector("label_replace", given_, "__name__", "", "", "")
    assert_rows(dropped, ({"a": "b"}, [1]))


def test_series_that_become_the_same_must_not_meet() -> None:
    first, second = {"a": "1", "b": "x"}, {"a": "2", "b": "x"}
    apart = vector((first, [1, None]), (second, [None, 2]))
    found = call_vector("label_replace", apart, "a", "", "a", ".*", steps=2)
    assert_rows(found, ({"b": "x"}, [1, 2]))
    with pytest.raises(QueryError, match="same labelset") as caught:
        call("label_join", vector((first, [1]), (second, [2])), "a", "-", "b")
    assert caught.value.kind is ErrorKind.EXECUTION


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{1001}", "(?=a)", r"(a)\1", "*", "(?P<>a)", r"\Q("]
)
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(QueryError) as caught:
        call("label_replace", empty_vector(1), "a", "$1", "b", pattern)
    assert str(caught.value) == f"invalid regular expression in label_replace(): {pattern}"
    assert caught.value.kind is ErrorKind.EXECUTION


def test_names_that_are_none() -> None:
    nothing = empty_vector(1)
    with pytest.raises(QueryError, match=r"invalid destination label name in label_replace\(\): "):
        call("label_replace", nothing, "", "$1", "b", ".*")
    with pytest.raises(QueryError, match=r"invalid destination label name in label_join\(\): $"):
        call("label_join", nothing, "", "-", "b")
    with pytest.raises(QueryError, match=r"invalid source label name in label_join\(\): $"):
        call("label_join", nothing, "a", "-", "b", "")


def test_a_dot_meets_a_line_break_since_prometheus_3() -> None:
    given_ = vector(({"source": "a\nb"}, [1]))
    words = ("ab", "$1", "source", "a(.)b")
    assert_rows(call_vector("label_replace", given_, *words), ({"source": "a\nb", "ab": "\n"}, [1]))
    older = call_vector("label_replace", given_, *words, dialect=Dialect.PROMETHEUS_2)
    assert_rows(older, ({"source": "a\nb"}, [1]))


@pytest.mark.parametrize("dialect", Dialect)
def test_made_up_names_are_classic(dialect: Dialect) -> None:
    given_ = vector(({"a.b": "x"}, [1]))
    with pytest.raises(QueryError, match=r"label_replace\(\): ~invalid"):
        call("label_replace", given_, "~invalid", "$1", "a", "(.*)", dialect=dialect)
    with pytest.raises(QueryError, match=r"label_join\(\): ~invalid"):
        call("label_join", given_, "~invalid", "-", "a", dialect=dialect)


def test_a_source_may_have_any_name_since_prometheus_3() -> None:
    given_ = vector(({"a.b": "x"}, [1]))
    joined = call_vector("label_join", given_, "c", "-", "a.b")
    assert_rows(joined, ({"a.b": "x", "c": "x"}, [1]))
    with pytest.raises(QueryError, match=r"source label name in label_join\(\): a\.b"):
        call("label_join", given_, "c", "-", "a.b", dialect=Dialect.PROMETHEUS_2)


def test_no_pattern_can_hang() -> None:
    given_ = vector(({"a": "x" * 5000}, [1]))
    begun = time.monotonic()
    found = call_vector("label_replace", given_, "b", "$1", "a", "((x*)*)*y")
    assert time.monotonic() - begun < 5
    assert "b" not in found.labels[0]


@given(st.text(alphabet="ab$1{}_x", max_size=12))
def test_replacements_are_cut_without_loss(template: str) -> None:
    """What is no reference stays, two dollars are one."""
    parts = list(template_parts(template))
    texts = "".join(part for part in parts if isinstance(part, str))
    assert len(texts) <= len(template)
    if "$" not in template:
        assert texts == template


def test_groups_are_named_where_there_are_groups() -> None:
    text, names = name_groups(r"(a)(?:b)\((?P<x>[(])(?i)(?<y>z)")
    assert text == r"(?P<group1>a)(?:b)\((?P<group2>[(])(?i)(?P<group3>z)"
    assert names == ["", "x", "y"]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["a"], "1"),
        (["a", "b"], "1-2"),
        (["b", "none", "a"], "2--1"),
        ([], None),
        (["none"], None),
        (["none", "none"], "-"),
        (["__name__"], "m"),
    ],
)
def test_label_join(sources: list[str], expected: str | None) -> None:
    given_ = vector(({"__name__": "m", "a": "1", "b": "2", "target": "old"}, [1]))
    found = call_vector("label_join", given_, "target", "-", *sources)
    target = {"target": expected} if expected else {}
    assert_rows(found, ({"__name__": "m", "a": "1", "b": "2", **target}, [1]))


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ([("__name__", "=", "m")], {}),
        ([("__name__", "=", "m"), ("a", "=", "1"), ("b", "=~", "x.*")], {"a": "1"}),
        ([("a", "=", "1"), ("a", "=", "2"), ("b", "=", "3")], {"b": "3"}),
        ([("a", "=", "1"), ("a", "=", "1")], {}),
        ([("a", "=", "1"), ("a", "!=", "2")], {}),
        ([("a", "=", "")], {}),
        ([], {}),
    ],
)
def test_labels_of_what_is_absent(
    matchers: list[tuple[str, str, str]], expected: dict[str, str]
) -> None:
    assert absent_labels(Matcher(*one) for one in matchers) == expected


def test_the_natural_order() -> None:
    ordered = ["", "-", "1", "2", "10", "10a", "a", "a1", "a2b", "a2c", "a10", "b"]
    huge = ["x" + "9" * 5000, "x1" + "0" * 5000]
    shuffled = list(reversed(ordered + huge))
    assert sorted(shuffled, key=natural_key) == ordered + huge


def test_sorting_by_labels() -> None:
    given_ = vector(
        ({"host": "h10", "port": "1"}, [1]),
        ({"host": "h9", "port": "2"}, [2]),
        ({"host": "h9", "port": "10"}, [3]),
        ({"port": "3"}, [4]),
    )

    def order(name: str, *labels: str) -> list[float | None]:
        return [values[0] for _, values in ordered_rows(call_vector(name, given_, *labels))]

    assert order("sort_by_label", "host", "port") == [4, 2, 3, 1]
    assert order("sort_by_label_desc", "host", "port") == [1, 3, 2, 4]
    assert order("sort_by_label", "host") == [4, 3, 2, 1]
    assert order("sort_by_label_desc", "host") == [1, 2, 3, 4]
    assert order("sort_by_label", "none") == [1, 3, 2, 4]
