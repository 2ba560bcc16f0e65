"""Which parts of a query are there more than once."""

import time

import pytest

from api.promql.parse import parse_query
from api.promql.plan import nodes_of
from api.promql.repeats import numbered, repeats_of


def times(text: str) -> list[int]:
    """Of each repeated part, how often it is there, the most often first."""
    plan = parse_query(text)
    repeats = repeats_of(plan)
    found = [repeats[id(node)] for node in nodes_of(plan) if id(node) in repeats]
    return sorted((found.count(number) for number in set(found)), reverse=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quantile(0.5, sum by (host) (rate(a[1m]))) or max(sum by (host) (rate(a[1m])))", [2]),
        ("(a and on (host) max by (host) (b)) or (c and on (host) max by (host) (b))", [2]),
        ("max(a) + max(a) + max(a)", [3]),
        # Outside of a repeated part, the inner one is there once more.
        ("max(rate(a[1m])) + max(rate(a[1m])) + min(rate(a[1m]))", [2, 3]),
    ],
)
def test_the_same_words_are_found(text: str, expected: list[int]) -> None:
    assert times(text) == sorted(expected, reverse=True)


@pytest.mark.parametrize(
    "text",
    [
        "a + a",
        "1 + 1",
        "rate(a[1m]) + rate(a[2m])",
        "rate(a[1m]) + rate(a[1m] offset 1m)",
        "rate(a[1m]) + rate(a[1m] @ 60)",
        "rate(a[1m]) + increase(a[1m])",
        "sum by (x) (a) + sum by (y) (a) + sum without (x) (a) + sum(a)",
        "topk(1, a) + topk(2, a)",
        "abs(a) + abs(b)",
        "abs(a + on (x) b) + abs(a + on (y) b) + abs(a - b)",
        "abs(a > 1) + abs(a > bool 1)",
        "max_over_time(abs(b)[1m:5s]) + max_over_time(b[1m])",
        "abs(-a) + abs(a)",
    ],
)
def test_what_differs_in_anything_does_not_repeat(text: str) -> None:
    assert times(text) == []


def test_zeros_of_both_signs_differ() -> None:
    plan = parse_query("clamp_min(a, 0) + clamp_min(a, -0)")
    assert len(set(numbered(plan).values())) == len(set(numbered(parse_query("b")).values())) + 5


def test_a_long_chain_takes_time_in_proportion() -> None:
    """Comparing parts whole would take the square of it, and overflow the stack."""
    plan = parse_query(" or ".join(f"abs(a{number % 7})" for number in range(2_000)))
    began = time.process_time()
    assert len(set(repeats_of(plan).values())) == 7
    assert time.process_time() - began < 5
