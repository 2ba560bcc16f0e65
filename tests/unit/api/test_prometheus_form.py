"""The parameters of Prometheus' paths: moments, durations, selectors, grids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.data.selectors import Matcher
from api.http.routes.prometheus_meta import unescape_name
from api.http.routes.shared.prometheus_form import (
    FAR_TIMES_MS,
    Form,
    parse_duration_ns,
    parse_fields,
    parse_match,
    parse_moment_ms,
)
from api.promql.errors import ErrorKind, QueryError

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5", 5 * SECOND),
        ("0.25", SECOND // 4),
        ("-1", -SECOND),
        ("1e3", 1000 * SECOND),
        ("5ms", 5_000_000),
        ("30s", 30 * SECOND),
        ("5m", 300 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1d", 86_400 * SECOND),
        ("1w", 7 * 86_400 * SECOND),
        ("1y", 365 * 86_400 * SECOND),
        ("1d2h3m4s5ms", (86_400 + 7200 + 184) * SECOND + 5_000_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "5q",
        "m",
        "-5m",
        "5m1h",
        "5 m",
        "1.5h",
        "nan",
        "inf",
        "1e30",
        "9" * 30,
        "999999999y",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="valid duration") as caught:
        parse_duration_ns(text)
    assert caught.value.kind is ErrorKind.BAD_DATA


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("-1.5", -1500),
        ("1700000000.123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.5Z", 1_700_000_000_500),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123999999Z", 1_700_000_000_123),
    ],
)
def test_moments(text: str, time_ms: int) -> None:
    assert parse_moment_ms(text) == time_ms


def test_the_ends_of_time_enclose_all_moments() -> None:
    first, last = FAR_TIMES_MS.values()
    assert first < parse_moment_ms("-62135596800") < parse_moment_ms("253402300799") <= last


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e30", "2023-11-14", "12:00Z", "9" * 400])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="valid timestamp") as caught:
        parse_moment_ms(text)
    assert len(str(caught.value)) < 200


@given(
    st.integers(0, 10**10), st.integers(0, 10**7), st.integers(1, 10**6).map(lambda ms: ms / 1000)
)
def test_a_grid_ends_within_its_range(start: int, length: int, step: float) -> None:
    form = Form({"start": [str(start)], "end": [str(start + length)], "step": [f"{step:.3f}"]})
    if length / step >= 11_001:
        with pytest.raises(QueryError, match="exceeded maximum resolution"):
            form.grid()
        return
    grid = form.grid()
    assert grid.start_ms == start * 1000
    assert grid.end_ms <= (start + length) * 1000 < grid.end_ms + grid.step_ms


def test_a_grid_may_be_one_moment_and_a_step_less_than_a_millisecond() -> None:
    form = Form({"start": ["5"], "end": ["5"], "step": ["1e-9"]})
    grid = form.grid()
    assert (grid.start_ms, grid.step_ms, grid.steps) == (5000, 1, 1)


def test_fields_keep_repeats_and_blanks() -> None:
    fields = parse_fields("match[]=a&match%5B%5D=b+c&x=&é=%C3%A9&bad=%ff".encode())
    assert fields == {
        "match[]": ["a", "b c"],
        "x": [""],
        "é": ["é"],
        "bad": ["\ufffd"],
    }
    assert Form(fields).text("match[]") == "a"
    assert Form(fields).text("none") == ""


def test_selectors_are_read() -> None:
    assert set(parse_match('up{a!="1"}').matchers) == {
        Matcher("__name__", "=", "up"),
        Matcher("a", "!=", "1"),
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "sum(up)", "up[5m]", "up offset 1m", "up @ 1", "1", "("]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_match(text)
    assert caught.value.kind is ErrorKind.BAD_DATA


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_can_be_escaped(name: str) -> None:
    plain = "abcdefghijklmnopqrstuvwxyz"
    parts = [one if one in plain else "__" if one == "_" else f"_{ord(one):x}_" for one in name]
    assert unescape_name("U__" + "".join(parts)) == name


@pytest.mark.parametrize(
    "name",
    ["job", "", "U__a_", "U__a_zz_", "U__a_0x1_", "U__a_d800_", "U__a_110000_", "U__a_1234567_"],
)
def test_what_is_not_escaped_means_itself(name: str) -> None:
    assert unescape_name(name) == name
