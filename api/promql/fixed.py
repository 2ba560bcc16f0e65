"""Which parts of a query have the same value at every step: what `@` fixes to one moment.

Boards choose whom to show by the whole range (`topk(10, max_over_time(x[1h] @ end()))`). Evaluated
at each of 240 steps this would be 240 times as many numbers; once is enough, as Prometheus does it.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Paren,
    RangeSelect,
    Select,
    String,
    Subquery,
    children_of,
)
from api.promql.quiet import KEEPS_ROWS, NODES_MAX

FIXED_FUNCTIONS = KEEPS_ROWS | {"clamp", "label_join", "label_replace", "quantile_over_time"}
"""Functions whose result depends on nothing but their arguments; others may look at the clock."""


def is_fixed(node: Node) -> bool:
    """Whether the value is surely the same at every step, and reads any series at all."""
    reads = False
    for number, part in enumerate(_looked_at(node)):
        if number >= NODES_MAX:
            return False
        match part:
            case Select(at=at) | Subquery(at=at) | RangeSelect(select=Select(at=at)):
                if at is None:
                    return False
                reads = True
            case Call(function=function):
                if function not in FIXED_FUNCTIONS:
                    return False
            case Aggregate() | Binary() | Negate() | Number() | Paren() | String():
                pass
            case _:
                return False
    return reads


def _looked_at(node: Node) -> Iterator[Node]:
    """All parts; of a subquery, which has moments of its own, only itself."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, RangeSelect | Subquery):
            waiting += children_of(part)
