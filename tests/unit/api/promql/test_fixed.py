"""Which parts of a query are evaluated once, however many steps it has."""

import pytest

from api.promql.fixed import is_fixed
from api.promql.parse import parse_query
from api.promql.quiet import NODES_MAX


@pytest.mark.parametrize(
    "text",
    [
        "a @ end()",
        "max_over_time(a[1h] @ end())",
        "topk(10, max_over_time(a[1h] @ end()) > 0)",
        "0 * max(a @ 60) - 3",
        'label_replace(sum(a @ start()), "host", "none", "host", ".*")',
        # What is inside has moments of its own.
        "max_over_time((rate(a_total[1m]) + time())[1h:15s] @ end())",
    ],
)
def test_what_at_fixes_is_the_same_at_every_step(text: str) -> None:
    assert is_fixed(parse_query(text))


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a @ end() + b",
        "max_over_time(a[1h])",
        "topk(10, a)",
        "3",
        "time() - a @ end()",
        "timestamp(a @ end())",
        "predict_linear(a[1h] @ end(), 60)",
        "max_over_time((a @ end())[1h:1m])",
        " + ".join(["a @ end()"] * NODES_MAX),
    ],
)
def test_what_may_differ_is_evaluated_at_every_step(text: str) -> None:
    assert not is_fixed(parse_query(text))
