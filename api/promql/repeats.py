"""Parts that a query's text has more than once: they are evaluated once. Pure.

Boards and the built-in page write `quantile(0.5, X) or max(X)`, and name the hosts of a job in each
part of a query. An evaluation has no effects, and a value is never changed once it is made
(`api.promql.values`), so the second X may be the first one's value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

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
    nodes_of,
)

CHEAP = (Number, String, Select, RangeSelect)
"""Not worth a place: what a selector finds is remembered by the evaluation anyway, and its latest
samples are mostly few. Ranges are no values; what a function makes of one is."""


def repeats_of(plan: Node) -> dict[int, int]:
    """Parts that are there more than once: by the node's `id`, the number that same parts share.

    Of parts inside repeated ones only the outermost count. The plan must outlive the answer.
    """
    numbers = numbered(plan)
    times: Counter[int] = Counter()
    waiting, first = [plan], list[Node]()
    while waiting:
        node = waiting.pop()
        number = numbers[id(node)]
        times[number] += 1
        if times[number] == 1:
            first.append(node)
            waiting += children_of(node)
    several = {numbers[id(node)] for node in first if not isinstance(node, CHEAP)}
    several = {number for number in several if times[number] > 1}
    if not several:
        return {}
    return {id(node): numbers[id(node)] for node in nodes_of(plan) if numbers[id(node)] in several}


def numbered(plan: Node) -> Mapping[int, int]:
    """A number for each node, by its `id`; equal parts have the same one.

    From the leaves up and without recursion: a chain of operators may be thousands long, and to
    compare its parts as a whole would take the square of that.
    """
    by_shape: dict[Hashable, int] = {}
    numbers: dict[int, int] = {}
    for node in reversed(list(nodes_of(plan))):
        below = tuple(numbers[id(child)] for child in children_of(node))
        shape = (type(node), own_words(node), below)
        numbers[id(node)] = by_shape.setdefault(shape, len(by_shape))
    return numbers


def own_words(node: Node) -> Hashable:  # noqa: PLR0911 - a table
    """What a node says itself, without what is below it."""
    match node:
        case Number(value=value):
            # As text: 0 and -0 are equal, and differ as divisors; NaN equals nothing.
            return repr(value)
        case Paren() | Negate():
            return None
        case Call(function=function, kind=kind):
            return function, kind
        case Aggregate(operator=operator, labels=labels, without=without, parameter=parameter):
            return operator, labels, without, parameter is None
        case Binary(operator=operator, matching=matching, return_bool=return_bool):
            return operator, matching, return_bool
        case Subquery(range_ms=range_ms, step_ms=step_ms, offset_ms=offset_ms, at=at):
            return range_ms, step_ms, offset_ms, at
        case RangeSelect(range_ms=range_ms):
            return range_ms
    # Selectors and texts have nothing below them.
    return node
