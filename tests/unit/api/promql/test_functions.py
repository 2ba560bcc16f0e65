"""Functions on instant vectors and scalars: tables done by hand, from the definitions."""

import datetime as dt
import math
from collections.abc import Callable

import numpy as np
import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql.errors import ErrorKind, QueryError
from api.promql.functions import FUNCTIONS, REFUSED, Scope, absent, timestamps
from api.promql.range_functions import RANGE_FUNCTIONS
from api.promql.values import Dialect, Grid, Notes, Scalar, empty_vector
from tests.unit.api.promql.vectors import (
    INF,
    NAN,
    assert_rows,
    call,
    call_vector,
    close,
    number,
    ordered_rows,
    vector,
)

TINY = 5e-324

NUMBERS = {
    "abs": [(-2, 2), (-0.0, 0), (-INF, INF), (NAN, NAN)],
    "ceil": [(1.2, 2), (-1.2, -1), (-0.5, -0.0), (INF, INF), (NAN, NAN)],
    "floor": [(1.8, 1), (-1.2, -2), (-0.0, -0.0), (-INF, -INF), (NAN, NAN)],
    "sqrt": [(9, 3), (0, 0), (-0.0, -0.0), (-1, NAN), (INF, INF), (NAN, NAN)],
    "exp": [(0, 1), (1, math.e), (-INF, 0), (INF, INF), (1000, INF), (NAN, NAN)],
    "ln": [(1, 0), (math.e, 1), (0, -INF), (-1, NAN), (INF, INF), (NAN, NAN)],
    "log2": [(8, 3), (0.125, -3), (0, -INF), (-1, NAN), (INF, INF), (10, 3.321928094887362)],
    "log10": [(1000, 3), (0, -INF), (-1, NAN), (INF, INF), (NAN, NAN), (2, 0.3010299956639812)],
    "sgn": [(5, 1), (-5, -1), (0, 0), (-0.0, -0.0), (TINY, 1), (-INF, -1), (NAN, NAN)],
    "sin": [(0, 0), (-0.0, -0.0), (math.pi / 6, 0.5), (INF, NAN), (NAN, NAN)],
    "cos": [(0, 1), (math.pi / 3, 0.5), (-INF, NAN)],
    "tan": [(0, 0), (math.pi / 4, 1), (INF, NAN)],
    "asin": [(1, math.pi / 2), (0.5, math.pi / 6), (1.1, NAN), (-INF, NAN)],
    "acos": [(1, 0), (0.5, math.pi / 3), (-1.1, NAN)],
    "atan": [(1, math.pi / 4), (-INF, -math.pi / 2), (NAN, NAN)],
    "sinh": [(0, 0), (1, 1.1752011936438014), (-INF, -INF), (1000, INF)],
    "cosh": [(0, 1), (1, 1.5430806348152437), (-INF, INF)],
    "tanh": [(0, 0), (1, 0.7615941559557649), (INF, 1), (-INF, -1)],
    "asinh": [(0, 0), (1, 0.881373587019543), (-INF, -INF)],
    "acosh": [(1, 0), (2, 1.3169578969248166), (0.9, NAN), (INF, INF)],
    "atanh": [(0, 0), (0.5, 0.5493061443340548), (1, INF), (-1, -INF), (1.1, NAN)],
    "deg": [(math.pi, 180), (-INF, -INF)],
    "rad": [(180, math.pi), (NAN, NAN)],
    "round": [(2.5, 3), (-2.5, -2), (-0.4, 0), (0.4, 0), (INF, INF), (NAN, NAN)],
}


@pytest.mark.parametrize(
    ("name", "given_", "expected"),
    [(name, *case) for name, cases in NUMBERS.items() for case in cases],
)
def test_numbers_as_in_go(name: str, given_: float, expected: float) -> None:
    assert_rows(call_vector(name, number(given_)), ({}, [expected]))


@pytest.mark.parametrize(
    ("value", "nearest", "expected"),
    [
        *((14, 5, 15), (12.4, 5, 10), (-12.5, 5, -10), (0.35, 0.1, 0.4), (7, -2, 6), (7, INF, NAN)),
        *((7, 0, NAN), (0, 0, NAN), (7, NAN, NAN)),
    ],
)
def test_round_to_a_multiple(value: float, nearest: float, expected: float) -> None:
    assert_rows(call_vector("round", number(value), nearest), ({}, [expected]))


@pytest.mark.parametrize(
    ("value", "lowest", "highest", "expected"),
    [
        (5, 0, 10, 5),
        (-5, 0, 10, 0),
        (15, 0, 10, 10),
        (5, 3, 3, 3),
        (5, 10, 0, None),
        (5, NAN, 10, NAN),
        (5, 0, NAN, NAN),
        (NAN, 0, 10, NAN),
        (NAN, INF, INF, INF),
        (NAN, -INF, -INF, -INF),
        (-0.0, 0.0, 1, 0.0),
        (0.0, -1, -0.0, -0.0),
        (INF, -INF, INF, INF),
    ],
)
def test_clamp(value: float, lowest: float, highest: float, expected: float | None) -> None:
    found = call_vector("clamp", number(value), lowest, highest)
    assert_rows(found, *([({}, [expected])] if expected is not None else []))


def test_clamp_at_one_side_and_at_every_step() -> None:
    given_ = vector(({"__name__": "m", "a": "b"}, [1, 5, None, 9]))
    low = call_vector("clamp_min", given_, [3, 3, 3, NAN], steps=4)
    assert_rows(low, ({"a": "b"}, [3, 5, None, NAN]))
    high = call_vector("clamp_max", given_, [3, 3, 3, -INF], steps=4)
    assert_rows(high, ({"a": "b"}, [1, 3, None, -INF]))
    both = call_vector("clamp", given_, [0, 9, 0, 0], [3, 3, 3, 30], steps=4)
    assert_rows(both, ({"a": "b"}, [1, None, None, 9]))


DROPPING = sorted(
    {*NUMBERS, "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute"}
    | {"month", "year", "timestamp"}
)


@pytest.mark.parametrize("name", DROPPING)
def test_names_go_and_series_must_stay_distinct(name: str) -> None:
    one, other = {"__name__": "one", "a": "b"}, {"__name__": "other", "a": "b"}
    apart = call_vector(name, vector((one, [1, None]), (other, [None, 1])), steps=2)
    assert [labels for labels, _ in ordered_rows(apart)] == [{"a": "b"}]
    assert apart.present.tolist() == [[True, True]]
    with pytest.raises(QueryError, match="same labelset"):
        call(name, vector((one, [1, 1]), (other, [None, 1])), steps=2)


@pytest.mark.parametrize("name", ["sort", "sort_desc", "sort_by_label", "sort_by_label_desc"])
def test_sorting_keeps_names(name: str) -> None:
    given_ = vector(({"__name__": "m"}, [1]))
    assert_rows(call_vector(name, given_), ({"__name__": "m"}, [1]))


@pytest.mark.parametrize("name", [*DROPPING, "sort", "sort_desc", "absent", "scalar"])
def test_nothing_is_a_normal_argument(name: str) -> None:
    found = call(name, empty_vector(3), steps=3)
    expected = {"absent": [[1.0, 1.0, 1.0]], "scalar": [NAN, NAN, NAN]}.get(name, [])
    assert str(found.values.tolist()) == str(expected)


@pytest.mark.parametrize(("name", "expected"), [("sort", "acbde"), ("sort_desc", "bcade")])
def test_values_in_order_with_nan_last(name: str, expected: str) -> None:
    values = {"d": NAN, "c": 1, "e": NAN, "b": INF, "a": -1}
    given_ = vector(*(({"x": x}, [value]) for x, value in values.items()), ({"x": "f"}, [None]))
    found = call_vector(name, given_)
    assert "".join(labels["x"] for labels, _ in ordered_rows(found)) == expected


def test_sorting_a_range_query_does_nothing_and_says_so() -> None:
    notes = Notes()
    given_ = vector(({"x": "b"}, [2, 1]), ({"x": "a"}, [1, 2]))
    found = call_vector("sort", given_, steps=2, notes=notes)
    assert ordered_rows(found) == ordered_rows(given_)
    (warning,) = notes.warnings
    assert warning.startswith("PromQL warning: sort is ineffective for range queries since")
    silent = Notes()
    call("sort", given_, steps=2, notes=silent, dialect=Dialect.PROMETHEUS_2)
    assert silent.warnings == []


def test_scalar_needs_exactly_one() -> None:
    given_ = vector(({"x": "a"}, [1, 1, None, NAN]), ({"x": "b"}, [None, 2, None, None]))
    found = call("scalar", given_, steps=4)
    assert isinstance(found, Scalar)
    assert str(found.values.tolist()) == "[1.0, nan, nan, nan]"
    last = call("scalar", vector(({}, [None, 3]), ({"x": "b"}, [4, None])), steps=2)
    assert last.values.tolist() == [4, 3]


def test_vector_of_a_scalar() -> None:
    assert_rows(call_vector("vector", [1, NAN], steps=2), ({}, [1, NAN]))


@pytest.mark.parametrize(
    ("left", "right", "larger", "smaller"),
    [
        (1, 2, 2, 1),
        (-0.0, 0.0, 0.0, -0.0),
        (NAN, 1, NAN, NAN),
        (NAN, INF, INF, NAN),
        (-INF, NAN, NAN, -INF),
    ],
)
def test_the_larger_and_the_smaller(
    left: float, right: float, larger: float, smaller: float
) -> None:
    for one, other in ((left, right), (right, left)):
        assert close(call("max_of", one, other).values.tolist()[0], larger)
        assert close(call("min_of", one, other).values.tolist()[0], smaller)


def test_absent_has_the_labels_it_is_given() -> None:
    scope = Scope(Grid(0, 1000, 3), Notes(), Dialect.PROMETHEUS_3)
    given_ = vector(({"a": "b"}, [1, None, None]), ({"a": "c"}, [None, NAN, None]))
    assert_rows(absent(given_, {"a": "b"}, scope), ({"a": "b"}, [None, None, 1]))
    assert_rows(call_vector("absent", given_, steps=3), ({}, [None, None, 1]))


def test_times() -> None:
    assert call("time", steps=2, start_ms=1500).values.tolist() == [1.5, 61.5]
    assert call("pi", steps=2).values.tolist() == [math.pi, math.pi]
    given_ = vector(({"__name__": "m", "a": "b"}, [7, None]))
    later = timestamps(given_, np.array([[1234, 5678]]))
    assert_rows(later, ({"a": "b"}, [1.234, None]))
    assert_rows(call_vector("timestamp", given_, steps=2), ({"a": "b"}, [0, None]))


@pytest.mark.parametrize(
    ("name", "alone", "inside"),
    [("start", 60, 1000), ("end", 180, 1020), ("range", 120, 20), ("step", 60, 10)],
)
def test_the_whole_question(name: str, alone: float, inside: float) -> None:
    assert set(call(name, steps=3, start_ms=60_000).values.tolist()) == {alone}
    question = Grid(1_000_000, 10_000, 3)
    subquery = call(name, steps=2, question=question).values.tolist()
    assert subquery == [inside, inside]


def test_an_instant_query_has_no_step() -> None:
    assert call("step").values.tolist() == [0]
    assert call("range").values.tolist() == [0]


DATES: dict[str, Callable[[dt.datetime], int]] = {
    "minute": lambda moment: moment.minute,
    "hour": lambda moment: moment.hour,
    "day_of_month": lambda moment: moment.day,
    "day_of_week": lambda moment: moment.isoweekday() % 7,
    "day_of_year": lambda moment: moment.timetuple().tm_yday,
    "month": lambda moment: moment.month,
    "year": lambda moment: moment.year,
    "days_in_month": lambda moment: (
        ((moment.replace(day=28) + dt.timedelta(days=4)).replace(day=1) - dt.timedelta(days=1)).day
    ),
}


@given(
    st.floats(
        min_value=dt.datetime(1, 1, 2, tzinfo=dt.UTC).timestamp(),
        max_value=dt.datetime(9999, 11, 30, tzinfo=dt.UTC).timestamp(),
    )
)
def test_dates_are_those_of_the_calendar(second: float) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=math.trunc(second))
    for name, part in DATES.items():
        assert_rows(call_vector(name, number(second)), ({}, [part(moment)]))


@pytest.mark.parametrize(
    ("name", "second", "expected"),
    [
        ("year", NAN, 1970),
        ("year", INF, 292277026596),
        ("year", -INF, 292277026596),
        ("year", 1e300, 292277026596),
        ("year", -1e15, -31686769),
        ("day_of_month", 951782400, 29),
        ("days_in_month", 951782400, 29),
        ("days_in_month", -2206310400, 28),
        ("day_of_week", -0.5, 4),
        ("hour", -1, 23),
    ],
)
def test_dates_at_the_edges(name: str, second: float, expected: float) -> None:
    assert_rows(call_vector(name, number(second)), ({}, [expected]))


def test_without_an_argument_dates_are_those_of_the_evaluation() -> None:
    for name in DATES:
        expected = {"year": 1970, "month": 1, "day_of_month": 1, "day_of_week": 4, "hour": 0}
        found = call(name, steps=2, start_ms=59_999)
        values = {**expected, "minute": 0, "day_of_year": 1, "days_in_month": 31}
        later = {**values, "minute": 1}
        assert found.values.tolist() == [[values[name], later[name]]]


@pytest.mark.parametrize("name", ["avg", "count", "stddev", "stdvar", "sum"])
def test_numbers_are_no_native_histograms(name: str) -> None:
    notes = Notes()
    assert_rows(call_vector("start_timestamp", number(1), notes=notes))
    assert notes.warnings == notes.infos == []
    assert_rows(call_vector(f"histogram_{name}", number(1), notes=notes))
    assert "native histograms are not stored" in notes.warnings[0]


PROMETHEUS = [
    *("abs", "absent", "absent_over_time", "acos", "acosh", "asin", "asinh", "atan", "atanh"),
    *("avg_over_time", "ceil", "changes", "clamp", "clamp_max", "clamp_min", "cos", "cosh"),
    *("count_over_time", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "deg"),
    *("delta", "deriv", "double_exponential_smoothing", "end", "exp", "first_over_time", "floor"),
    *("histogram_avg", "histogram_count", "histogram_fraction", "histogram_quantile"),
    *("histogram_quantiles", "histogram_stddev", "histogram_stdvar", "histogram_sum"),
    *("holt_winters", "hour", "idelta", "increase", "info", "irate", "label_join"),
    *("label_replace", "last_over_time", "ln", "log10", "log2", "mad_over_time", "max_of"),
    *("max_over_time", "min_of", "min_over_time", "minute", "month", "pi", "predict_linear"),
    *("present_over_time", "quantile_over_time", "rad", "range", "rate", "resets", "round"),
    *("scalar", "sgn", "sin", "sinh", "sort", "sort_by_label", "sort_by_label_desc", "sort_desc"),
    *("sqrt", "start", "start_timestamp", "stddev_over_time", "stdvar_over_time", "step"),
    *("sum_over_time", "tan", "tanh", "time", "timestamp", "ts_of_first_over_time"),
    *("ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time", "vector", "year"),
]
"""Every function of Prometheus, past and present."""


def is_known(name: str) -> bool:
    try:
        promql_parser.parse(f"{name}()")
    except ValueError as error:
        return "unknown function" not in str(error)
    return True


def test_every_function_that_parses_has_a_place() -> None:
    known = {name for name in PROMETHEUS if is_known(name)}
    assert known == {name for name in PROMETHEUS if name != "holt_winters"}
    # absent_over_time is the engine's: it needs the selector.
    assert known - {"absent_over_time"} == {*FUNCTIONS, *RANGE_FUNCTIONS} - {"absent_over_time"}
    assert not {*FUNCTIONS} & {*RANGE_FUNCTIONS}
    assert set(REFUSED) <= set(FUNCTIONS)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(QueryError, match="not supported") as caught:
        call(name, number(1))
    assert caught.value.kind is ErrorKind.BAD_DATA
