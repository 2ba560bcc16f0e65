"""Series that stand still are left out only where nothing shows it."""

import pytest

from api.promql.moved import with_moved
from api.promql.parse import parse_query
from api.promql.plan import Select, nodes_of
from api.promql.quiet import NODES_MAX


def marks(text: str) -> list[bool]:
    found = [each for each in nodes_of(with_moved(parse_query(text))) if isinstance(each, Select)]
    return sorted(each.moved for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "increase(a_total[5m]) > 0",
        "sum by (host) (increase(a_total[5m])) > 0",
        "max by (host) (rate(a_total[5m])) * 60 > 2",
        "max(sum by (host) (changes(a[5m]))) >= 1",
        "sum by (host) (increase(a_total[5m])) > 3 - 0.5",
        "abs(sum by (host) (increase(a_total[5m])) > 0)",
    ],
)
def test_only_what_moved_is_of_use(text: str) -> None:
    assert marks(text) == [True]


@pytest.mark.parametrize(
    "text",
    [
        # A zero passes.
        "increase(a_total[5m]) > -1",
        "increase(a_total[5m]) >= 0",
        "increase(a_total[5m]) < 3",
        "increase(a_total[5m]) == 0",
        "increase(a_total[5m]) > bool 0",
        "increase(a_total[5m])",
        "sum(increase(a_total[5m])) * -1 > 0",
        "1 - sum(increase(a_total[5m])) > 0",
        # It is counted, or the largest of some is.
        "avg by (host) (increase(a_total[5m])) > 0",
        "count by (host) (increase(a_total[5m])) > 0",
        "min by (host) (increase(a_total[5m])) > 0",
        "sum(max by (host) (increase(a_total[5m]))) > 0",
        # Without it the other side would show.
        "sum(increase(a_total[5m]) or increase(a_total[5m])) > 0",
        # Standing still is not zero, or leaves a note.
        "avg_over_time(a[5m]) > 0",
        "increase(a[5m]) > 0",
        "a > 0",
    ],
)
def test_what_stands_still_is_of_use_too(text: str) -> None:
    assert not any(marks(text))


def test_what_is_only_compared_is_read_whole() -> None:
    assert marks("increase(a_total[5m]) and b > 0") == [False, False]
    assert marks("(increase(a_total[5m]) and b_total offset 5m) > 0") == [False, True]


def test_a_long_chain_is_left_as_it_is() -> None:
    assert not any(marks(" or ".join(["increase(a_total[5m]) > 0"] * NODES_MAX)))
