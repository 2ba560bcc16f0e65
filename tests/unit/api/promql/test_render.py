"""Answers as JSON: Go's notation of numbers, and every kind of result in Prometheus' shape."""

import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql.errors import QueryError
from api.promql.exposition import render_exposition
from api.promql.parse import parse_query
from api.promql.render import (
    NOTES_MAX,
    Result,
    envelope,
    format_time,
    format_value,
    format_values,
    render_answer,
    render_result,
)
from api.promql.series_index import Newest
from api.promql.tree_json import TREE_DEPTH_MAX, tree_of
from api.promql.values import Grid, Notes, Scalar, Text, Vector, Windows

GRID = Grid(1_700_000_000_500, 500, 3)


def shown(value: Result, grid: Grid = GRID, **options: Any) -> tuple[str, Any]:  # noqa: ANN401
    """The kind and the result, read back."""
    options.setdefault("is_range", True)
    text, _ = render_result(value, grid, **options)
    data = json.loads(b"{%b}" % text)
    assert set(data) == {"resultType", "result"}
    return data["resultType"], data["result"]


def vector(rows: list[tuple[dict[str, str], list[float | None]]]) -> Vector:
    """A vector from rows of numbers, None where absent."""
    return Vector(
        [labels for labels, _ in rows],
        np.array([[math.nan if v is None else v for v in row] for _, row in rows]),
        np.array([[v is not None for v in row] for _, row in rows]),
    )


# --- numbers -----------------------------------------------------------------------------------


def by_the_book(value: float) -> str:
    """The number as the rules say, from its shortest digits: slow, and easy to check."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0"
    exponent += len(text) - len(text.rstrip("0"))
    text = text.rstrip("0")
    power = exponent + len(text) - 1  # value = t.ext * 10^power
    if abs(value) < 1e-6 or abs(value) >= 1e21:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02}"
    if exponent >= 0:
        return f"{minus}{text}{'0' * exponent}"
    if power >= 0:
        return f"{minus}{text[: power + 1]}.{text[power + 1 :]}"
    return f"{minus}0.{'0' * (-power - 1)}{text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1.05, "1.05"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (123456789012345680.0, "123456789012345680"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (-1.5e22, "-1.5e+22"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.00001, "0.00001"),
        (0.000001, "0.000001"),
        (0.0000012345, "0.0000012345"),
        (9.99e-7, "9.99e-07"),
        (1e-7, "1e-07"),
        (5e-324, "5e-324"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str) -> None:
    assert format_value(value) == by_the_book(value) == text
    # Alone, first, in the middle and last: they are cut out of a row.
    for row in ([value], [value, 1.0], [1.0, value, 1.0], [2.5, value]):
        assert format_values(np.array(row)) == [by_the_book(one).encode() for one in row]


@given(st.lists(st.floats(), max_size=20))
def test_a_row_of_numbers_is_written_by_the_book(row: list[float]) -> None:
    texts = format_values(np.array(row, dtype=np.float64))
    assert texts == [by_the_book(value).encode() for value in row]


@given(
    st.integers(-330, 310),
    st.integers(-(10**17), 10**17),
    st.sampled_from([1.0, 10.0, 0.1, 1e-6, 1e21, 1e16]),
)
def test_every_power_of_ten_is_written_by_the_book(power: int, digits: int, near: float) -> None:
    with np.errstate(all="ignore"):
        row = np.array([float(f"{digits}e{power}"), near * (1 + digits * 1e-33), float(digits)])
    assert format_values(row) == [by_the_book(value).encode() for value in row.tolist()]


def test_a_strided_row_is_written_too() -> None:
    assert format_values(np.array([[1.0, 2.0], [3.0, 4.0]])[:, 1]) == [b"2", b"4"]
    assert format_values(np.array([])) == []


@given(st.integers(-(10**15), 10**15))
def test_moments_are_seconds(time_ms: int) -> None:
    assert Decimal(format_time(time_ms)) * 1000 == time_ms


# --- results -----------------------------------------------------------------------------------


def test_a_matrix_is_sorted_and_has_no_empty_rows() -> None:
    value = vector(
        [
            ({"__name__": "up", "host": "b"}, [1.0, None, 2.5]),
            ({"__name__": "up", "host": "a"}, [math.nan, math.inf, -0.0]),
            ({"host": "never"}, [None, None, None]),
            ({"A": "1", "__name__": "up"}, [None, 3.0, None]),
        ]
    )
    expected = [
        {"metric": {"A": "1", "__name__": "up"}, "values": [[1700000001, "3"]]},
        {
            "metric": {"__name__": "up", "host": "a"},
            "values": [[1700000000.5, "NaN"], [1700000001, "+Inf"], [1700000001.5, "-0"]],
        },
        {
            "metric": {"__name__": "up", "host": "b"},
            "values": [[1700000000.5, "1"], [1700000001.5, "2.5"]],
        },
    ]
    assert shown(value) == ("matrix", expected)
    kept = shown(value, ordered=True)[1]
    assert kept == [expected[2], expected[1], expected[0]]


def test_a_scalar_over_a_range_is_a_series_without_labels() -> None:
    values = [[1700000000.5, "1"], [1700000001, "2"], [1700000001.5, "NaN"]]
    expected = ("matrix", [{"metric": {}, "values": values}])
    assert shown(Scalar(np.array([1.0, 2.0, math.nan]))) == expected


def test_instants_have_their_own_shapes() -> None:
    grid = Grid(4_000, 1, 1)
    assert shown(Scalar(np.array([2.0])), grid, is_range=False) == ("scalar", [4, "2"])
    assert shown(Text('a"b\n'), grid, is_range=False) == ("string", [4, 'a"b\n'])
    value = vector([({"z": "é\\", "a": '"'}, [1.5]), ({"x": "1"}, [None]), ({}, [math.nan])])
    assert shown(value, grid, is_range=False) == (
        "vector",
        [
            {"metric": {"a": '"', "z": "é\\"}, "value": [4, "1.5"]},
            {"metric": {}, "value": [4, "NaN"]},
        ],
    )
    nothing = Vector([], np.zeros((0, 1)), np.zeros((0, 1), dtype=np.bool_))
    assert shown(nothing, grid, is_range=False) == ("vector", [])
    assert shown(nothing, grid) == ("matrix", [])


def test_names_of_labels_are_in_order_and_numbers_are_strings() -> None:
    text, cut = render_result(vector([({"b": "1", "a": "2"}, [1.0])]), Grid(0, 1, 1), is_range=True)
    assert text == (
        b'"resultType":"matrix","result":[{"metric":{"a":"2","b":"1"},"values":[[0,"1"]]}]'
    )
    assert not cut


def test_a_range_selector_shows_raw_samples_at_their_own_times() -> None:
    windows = Windows(
        labels=[{"host": "b"}, {"host": "none"}, {"host": "a"}],
        times_ms=np.array([1000, 2000, 3500, 1500]),
        values=np.array([1.0, 2.0, 3.0, 1e21]),
        first=np.array([[1], [3], [3]]),
        last=np.array([[3], [3], [4]]),
        end_ms=np.array([4000]),
        range_ms=3000,
    )
    assert shown(windows, Grid(4000, 1, 1), is_range=False) == (
        "matrix",
        [
            {"metric": {"host": "a"}, "values": [[1.5, "1e+21"]]},
            {"metric": {"host": "b"}, "values": [[2, "2"], [3.5, "3"]]},
        ],
    )


@pytest.mark.parametrize(("limit", "rows"), [(0, 3), (2, 2), (3, 3), (4, 3)])
def test_a_limit_cuts_series(limit: int, rows: int) -> None:
    value = vector([({"n": str(n)}, [1.0, 1.0, 1.0]) for n in range(3)])
    text, cut = render_result(value, GRID, is_range=True, limit=limit)
    assert len(json.loads(b"{%b}" % text)["result"]) == rows
    assert cut is (rows < 3)
    assert (b"truncated" in render_answer(text, Notes(), cut=cut)) is cut


points = st.none() | st.floats(allow_nan=True) | st.integers(-5, 5).map(float)


@given(st.lists(st.lists(points, min_size=4, max_size=4), max_size=5), st.integers(1, 5000))
def test_any_matrix_reads_back_as_it_was(rows: list[list[float | None]], step_ms: int) -> None:
    grid = Grid(-3000, step_ms, 4)
    value = vector([({"n": str(n)}, row) for n, row in enumerate(rows)])
    if not rows:
        value = Vector([], np.zeros((0, 4)), np.zeros((0, 4), dtype=np.bool_))
    expected = [
        {
            "metric": {"n": str(n)},
            "values": [
                [(-3000 + k * step_ms) / 1000, by_the_book(point)]
                for k, point in enumerate(row)
                if point is not None
            ],
        }
        for n, row in enumerate(rows)
        if any(point is not None for point in row)
    ]
    assert shown(value, grid) == ("matrix", expected)


# --- the envelope ------------------------------------------------------------------------------


def test_the_envelope_shows_notes_only_if_there_are_any() -> None:
    assert envelope(b"[]") == b'{"status":"success","data":[]}'
    notes = Notes()
    notes.warn("w")
    notes.inform("i")
    assert json.loads(render_answer(b'"result":[]', notes, cut=True, stats=b'{"a":1}')) == {
        "status": "success",
        "data": {"result": [], "stats": {"a": 1}},
        "warnings": ["PromQL warning: w", "results truncated due to limit"],
        "infos": ["PromQL info: i"],
    }


def test_many_notes_are_counted_not_shown() -> None:
    texts = [str(n) for n in range(NOTES_MAX + 2)]
    shown_all = json.loads(envelope(b"1", texts, texts[:NOTES_MAX]))
    assert shown_all["warnings"] == [*texts[:NOTES_MAX], "2 more warning annotations omitted"]
    assert shown_all["infos"] == texts[:NOTES_MAX]
    assert json.loads(envelope(b"1", (), texts))["infos"][-1] == "2 more info annotations omitted"


# --- other forms -------------------------------------------------------------------------------


def test_the_exposition_groups_by_metric_and_escapes() -> None:
    newest = Newest(
        [
            {"A": "1", "__name__": "b"},
            {"__name__": "a.b", "x:y": '"\\\n'},
            {"__name__": "b", "instance": "i"},
        ],
        np.array([1, 2, 3]),
        np.array([math.nan, 1e-7, 3.0]),
    )
    assert render_exposition(newest, quote_names=True) == (
        '# TYPE "a.b" untyped\n{"a.b","x:y"="\\"\\\\\\n",instance=""} 1e-07 2\n'
        '# TYPE b untyped\nb{A="1",instance=""} NaN 1\nb{instance="i"} 3 3\n'
    )
    assert render_exposition(newest, quote_names=False).startswith(
        '# TYPE a_b untyped\na_b{x_y="\\"\\\\\\n",instance=""} 1e-07 2\n'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e3", {"type": "numberLiteral", "val": "1000"}),
        ('"a"', {"type": "stringLiteral", "val": "a"}),
        ("(1)", {"type": "parenExpr", "expr": {"type": "numberLiteral", "val": "1"}}),
    ],
)
def test_small_trees(text: str, expected: dict[str, Any]) -> None:
    assert tree_of(parse_query(text)) == expected


def test_a_tree_shows_every_part() -> None:
    tree = tree_of(
        parse_query(
            "topk by (a) (3, rate(x{b!~'c'}[5m] offset 1m)) "
            "/ on (a) group_left (d) -y @ end() or max_over_time(z[1h:1m] @ 7)"
        )
    )
    assert tree["op"] == "or"
    assert tree["matching"]["card"] == "many-to-many"
    left = tree["lhs"]
    assert left["matching"] == {
        "card": "many-to-one",
        "labels": ["a"],
        "on": True,
        "include": ["d"],
        "fillValues": {"lhs": None, "rhs": None},
    }
    assert left["lhs"]["op"] == "topk"
    assert left["lhs"]["param"] == {"type": "numberLiteral", "val": "3"}
    rate = left["lhs"]["expr"]
    assert rate["func"] == {
        "name": "rate",
        "argTypes": ["matrix"],
        "variadic": 0,
        "returnType": "vector",
    }
    assert (rate["args"][0]["range"], rate["args"][0]["offset"]) == (300_000, 60_000)
    assert {"name": "b", "type": "!~", "value": "c"} in rate["args"][0]["matchers"]
    assert left["rhs"]["type"] == "unaryExpr"
    assert left["rhs"]["expr"]["startOrEnd"] == "end"
    subquery = tree["rhs"]["args"][0]
    assert (subquery["type"], subquery["step"], subquery["timestamp"]) == ("subquery", 60_000, 7000)
    assert tree_of(parse_query("1 + x"))["matching"] is None


def test_a_tree_that_no_reader_could_read_is_refused() -> None:
    names = [f"x{n}" for n in range(TREE_DEPTH_MAX + 1)]
    nested = f"{'(' * 60}{' or '.join(names[:30])}{')' * 60}"
    for text in (" or ".join(names[:-2]), nested):
        assert orjson.loads(orjson.dumps(tree_of(parse_query(text))))
    for text in (" or ".join(names), f"{nested}{' or y' * 50}"):
        with pytest.raises(QueryError, match="TREE_DEPTH_MAX"):
            tree_of(parse_query(text))
