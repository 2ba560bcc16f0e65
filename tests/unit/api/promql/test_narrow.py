"""Which values a left side passes on, and to which selectors of its right side."""

import numpy as np
import pytest

from api.data.selectors import Matcher, Selector
from api.promql.aliases import strands_of
from api.promql.find import kept_apart
from api.promql.narrow import (
    NARROWING_ROWS_MAX,
    is_chosen_by_right,
    is_named_by_right,
    left_for,
    right_for,
)
from api.promql.parse import parse_query
from api.promql.plan import Binary, Select, nodes_of
from api.promql.values import Vector
from collector.contract.catalog import load_catalog

LEFT = (
    {"__name__": "a", "host": "h1", "port": "1"},
    {"__name__": "a", "host": "h2", "port": "1"},
)
HOST, PORT = ("host", ("h1", "h2")), ("port", ("1",))


def passed_on(text: str, rows: tuple[dict[str, str], ...] = LEFT) -> dict[str, tuple[object, ...]]:
    """What is passed to each metric of the right side of a query."""
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    shape = (len(rows), 1)
    right = right_for(plan, Vector(rows, np.ones(shape), np.ones(shape, np.bool_)))
    return {
        each.selector.metric or "": each.among
        for each in nodes_of(right)
        if isinstance(each, Select)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a and b", {"b": (HOST, PORT)}),
        ("a unless on (host) b", {"b": (HOST,)}),
        ("a and ignoring (port) b", {"b": (HOST,)}),
        ("a and on (host, rack) b", {"b": (HOST, ("rack", ("",)))}),
        ("a and on () b", {"b": ()}),
        (
            "a unless on (host) (increase(b_total[2h]) > 0 or -c)",
            {"b_total": (HOST,), "c": (HOST,)},
        ),
        ("a and on (host, port) sum by (host) (b)", {"b": (HOST,)}),
        ("a and on (host, port) sum without (host) (b)", {"b": (PORT,)}),
        ("a and on (host) sum(b)", {"b": ()}),
        ("a and max_over_time(b[1h:5m])", {"b": (HOST, PORT)}),
        # What the inner operator does not look at may tell two rows apart that meet each other.
        ("a and (b or on (port) c)", {"b": (PORT,), "c": (PORT,)}),
        ("a and (b and on (port) c)", {"b": (HOST, PORT), "c": (PORT,)}),
        ("a and (b unless ignoring (host) c)", {"b": (HOST, PORT), "c": (PORT,)}),
        ("a and b / c", {"b": (HOST, PORT), "c": (HOST, PORT)}),
        (
            "a and sum by (host, port) (b) / on (host) group_left () max by (host) (c)",
            {"b": (HOST, PORT), "c": (HOST,)},
        ),
        (
            "a and max by (host) (b) / on (host) group_right () sum by (host, port) (c)",
            {"b": (HOST,), "c": (HOST, PORT)},
        ),
        ("a * b", {"b": (HOST, PORT)}),
        ("a * on (host) group_left () max by (host) (b)", {"b": (HOST,)}),
        ("a * on (host) group_right () b", {"b": (HOST,)}),
        (
            "a and on (host, port) label_join(max by (host) (b), 'port', '', 'host')",
            {"b": (HOST,)},
        ),
    ],
)
def test_labels_that_must_agree_are_passed_on(text: str, expected: object) -> None:
    assert passed_on(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a or b",
        "a + fill(0) b",
        "a and rate(b[5m])",
        "a and label_replace(b, 'host', 'x', 'port', '.*')",
        "a and absent(b)",
        # Two series of b for one host are a mistake that Prometheus tells, whoever meets them.
        "a * on (host) b",
        "a * on (host) group_left () b",
    ],
)
def test_nothing_is_passed_on_where_all_may_matter(text: str) -> None:
    assert set(passed_on(text).values()) == {()}


def test_many_series_pass_nothing_on() -> None:
    rows = tuple({"host": f"h{number}"} for number in range(NARROWING_ROWS_MAX + 1))
    assert passed_on("a and b", rows[1:])["b"] != ()
    assert passed_on("a and b", rows)["b"] == ()


def test_rows_that_shade_each_other_are_not_parted() -> None:
    """Two exporters that measure one port agree in its identity, and may differ in `cluster`."""
    selector = Selector((Matcher("__name__", "=", "fabric_port_state"),))
    strands = strands_of(selector, load_catalog())
    assert len(strands) > 1
    among = (("cluster", ("",)), HOST)
    assert kept_apart(strands, among) == (HOST,)
    assert kept_apart(strands[:1], among) == among


def test_two_operators_pass_on_what_both_need() -> None:
    inner = passed_on("a and (b and c)")
    assert inner == {"b": (HOST, PORT), "c": (HOST, PORT)}


@pytest.mark.parametrize(
    "text",
    [
        "a and topk(10, b)",
        "rate(a_total[1m]) * 8 and on (host) (topk(10, b) > 0)",
        "clamp_max(a, 1) and bottomk(1000, b)",
    ],
)
def test_a_right_side_with_few_series_chooses(text: str) -> None:
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert is_chosen_by_right(plan)


@pytest.mark.parametrize(
    "text",
    [
        "a and b",
        "a unless topk(10, b)",
        "a and topk(1001, b)",
        "a and topk by (host) (10, b)",
        # The left side may fail or leave a note: it is evaluated whole.
        'label_replace(a, "x", "y", "", "") and topk(10, b)',
        "rate(a[1m]) and topk(10, b)",
        "clamp_max(a, scalar(c)) and topk(10, b)",
    ],
)
def test_other_sides_do_not_choose(text: str) -> None:
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert not is_chosen_by_right(plan)


@pytest.mark.parametrize(
    "text",
    [
        'a and on (host) b{job="x"}',
        'rate(a_total[1m]) * 8 and on (host) max by (host) (b{job="x"})',
        '(a or c) and on (host) (max by (host) (b{job="x"}) or max by (host) (d{job="x"}))',
        'a and on (peer) (d and on (host) label_join(max by (host) (b{job="x"}), "y", "", "host"))',
    ],
)
def test_a_right_side_that_names_its_series_may_choose(text: str) -> None:
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert is_named_by_right(plan)


@pytest.mark.parametrize(
    "text",
    [
        "a and on (host) b",
        'a and on (host) b{job=""}',
        'a and on (host) b{job=~"x"}',
        'a and on (host) (b{job="x"} or c)',
        'a and on (host) (c unless b{job="x"})',
        # The left side names its own.
        'a{host="h"} and on (host) b{job="x"}',
        'a unless on (host) b{job="x"}',
        'a * on (host) b{job="x"}',
        # The left side may fail or leave a note.
        'rate(a[1m]) and on (host) b{job="x"}',
        'label_replace(a, "x", "y", "", "") and on (host) b{job="x"}',
    ],
)
def test_other_right_sides_do_not(text: str) -> None:
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert not is_named_by_right(plan)


def test_the_left_side_is_asked_for_what_is_chosen() -> None:
    plan = parse_query(
        "clamp_max(rate(a_total[1m]) / on (host, port) max by (host, port) (c), 1)"
        " and on (host) topk(2, b)"
    )
    assert isinstance(plan, Binary)
    shape = (len(LEFT), 1)
    chosen = Vector(LEFT, np.ones(shape), np.ones(shape, np.bool_))
    found = [each for each in nodes_of(left_for(plan, chosen)) if isinstance(each, Select)]
    assert [each.among for each in found] == [(HOST,), (HOST,)]
    rows = [{"host": str(row)} for row in range(NARROWING_ROWS_MAX + 1)]
    many = Vector(rows, np.ones((1, 1)), np.ones((1, 1), np.bool_))
    assert left_for(plan, many) is plan.left
