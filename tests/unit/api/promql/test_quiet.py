"""A side is left out only if it cannot fail or leave a note."""

import pytest

from api.promql.parse import parse_query
from api.promql.plan import Binary
from api.promql.quiet import NODES_MAX, is_decided_by_empty_left, is_quiet

QUIET = (
    "x",
    "x offset 1d > 0",
    "{job='a'}",
    "max_over_time(x[1h]) >= 4",
    "rate(x_total[5m]) * 8",
    "-rate(x_total[5m])",
    "sum by (host) (increase(x_total[5m])) > 0",
    "sum without (port) (x)",
    "quantile by (host) (0.5, x)",
    "max_over_time(x[1h]) >= 4 or ALERTS{alertname='A'}",
    "a / b",
    "a / (b > 0)",
    "sum by (host) (a) / on (host) max by (host) (b)",
    "sum by (host) (a) / on (host, port) max by (host) (b)",
    "sum by (host, port) (a) / on (host) group_left () max by (host) (b)",
    "sum by (host, port) (a) * on (host) group_left (rack) max by (host) (b) unless c",
    "max_over_time((a - b)[1h:5m])",
    "label_replace(sum by (host) (a), 'what', 'x', '', '')",
    "label_join(max by (host, device) (rate(a_total[1m])), 'netdev', '', 'device')",
    (
        "sum by (host) (label_replace(sum by (host) (a), 'what', 'a', '', '')"
        " or label_replace(sum by (host) (b), 'what', 'b', '', ''))"
    ),
)
LOUD = (
    "rate(x[5m])",
    "rate({job='a'}[5m])",
    "-{job='a'}",
    "abs(a or b)",
    "{job='a'} + 1",
    "quantile(2, x)",
    "quantile_over_time(0.5, x[5m])",
    "topk(scalar(y), x)",
    "count_values('host', x)",
    "label_replace(x, 'host', 'b', 'port', '.*')",
    # Two series may differ in the label that is set: then the query is refused.
    "label_replace(x, 'what', 'b', '', '')",
    "label_replace(sum by (host) (x), 'host', 'b', '', '')",
    "label_join(sum by (host) (x), 'host', '', 'host')",
    "label_join(sum by (host) (x), '__name__', '', 'host')",
    "label_replace(sum by (host) (x), 'what', '$1', 'host', '([')",
    "label_replace(sum by (host) (x), 'a-b', 'b', '', '')",
    # Rows with the same host are left of both sides of the `or`: they differ in what was set.
    (
        "(label_replace(sum by (host) (a), 'what', 'a', '', '')"
        " or label_replace(sum by (host) (b), 'what', 'b', '', '')) / on (host) sum by (host) (c)"
    ),
    "histogram_quantile(0.9, x_bucket)",
    "a / on (host) b",
    "sum by (host, port) (a) / on (host) max by (host) (b)",
    "sum by (host) (a) / on (host) max by (host, port) (b)",
    "sum by (host) (a) / ignoring (host) max by (host) (b)",
    "sum by (host) (a) / on (host) group_left () b",
    "sum by (host, rack) (a) / on (host) group_left (rack) max by (host) (b)",
    "sum by (__name__, host) (a) / sum by (__name__, host) (b)",
    "a > scalar(b)",
    "absent(x)",
)


@pytest.mark.parametrize("text", QUIET)
def test_what_cannot_fail_is_quiet(text: str) -> None:
    assert is_quiet(parse_query(text))


@pytest.mark.parametrize("text", LOUD)
def test_what_may_fail_or_leave_a_note_is_not(text: str) -> None:
    assert not is_quiet(parse_query(text))


def test_a_long_chain_is_evaluated_as_ever() -> None:
    assert is_quiet(parse_query(" or ".join(["x"] * 10)))
    assert not is_quiet(parse_query(" or ".join(["x"] * NODES_MAX)))


@pytest.mark.parametrize(
    "text", ["a and b", "a unless b", "a * on (host) b", "a > bool on (host) b"]
)
def test_an_empty_left_side_decides(text: str) -> None:
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert is_decided_by_empty_left(plan)


@pytest.mark.parametrize("text", ["a or b", "a and rate(b[5m])", "a + fill(0) b"])
def test_the_right_side_is_needed_all_the_same(text: str) -> None:
    """It adds series, may fail, or has series that meet a value which stands in."""
    plan = parse_query(text)
    assert isinstance(plan, Binary)
    assert not is_decided_by_empty_left(plan)
