"""Finds selectors of which only series that moved are of use.

`sum by (port) (increase(drops_total[5m])) > 0` is about counters that grew: one whose samples are
all the same adds nothing to a sum, and nothing that passes. With ten thousand hosts there are
millions of such counters, whose labels would not fit into memory, and a handful that moved: the
store can tell which (`Reader.moved`).

Exactly the same answers: `tests/conformance/test_promql_left_out.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Paren,
    RangeSelect,
    Subquery,
    nodes_of,
)
from api.promql.quiet import NODES_MAX, bare, is_quiet

STILL_IS_ZERO = frozenset({"changes", "increase", "irate", "rate", "resets"})
"""Range functions that give 0 for samples that are all the same finite number."""


def with_moved(plan: Node) -> Node:
    """The plan, in which such selectors are marked."""
    if any(number >= NODES_MAX for number, _ in enumerate(nodes_of(plan))):
        return plan
    return _searched(plan)


def _searched(node: Node) -> Node:
    match node:
        case Binary(left=left) if _passes_no_zero(node) and is_quiet(left):
            return msgspec.structs.replace(node, left=_marked(left, is_outer=True))
        case Binary(left=left, right=right):
            return msgspec.structs.replace(node, left=_searched(left), right=_searched(right))
    return _with_children(node, _searched)


def _with_children(node: Node, change: Callable[[Node], Node]) -> Node:
    match node:
        case Paren() | Negate() | Subquery():
            return msgspec.structs.replace(node, expression=change(node.expression))
        case Aggregate(expression=inner):
            return msgspec.structs.replace(node, expression=change(inner))
        case Call(arguments=arguments):
            return msgspec.structs.replace(node, arguments=tuple(map(change, arguments)))
    return node


def _passes_no_zero(node: Binary) -> bool:
    """Whether it is a threshold that neither 0 nor anything below it passes."""
    least = number_in(node.right)
    if least is None or node.return_bool:
        return False
    return (node.operator == ">" and least >= 0) or (node.operator == ">=" and least > 0)


def _marked(node: Node, *, is_outer: bool) -> Node:  # noqa: PLR0911 - a table
    """With marks, if zeros below change nothing but which zeros come out above.

    ``is_outer``: the largest of a group with a zero may come out below zero without it; that
    changes nothing at the threshold, and might in a sum.
    """
    match node:
        case Paren(expression=inner):
            return msgspec.structs.replace(node, expression=_marked(inner, is_outer=is_outer))
        case Binary(operator="and" | "unless", left=left):
            return msgspec.structs.replace(node, left=_marked(left, is_outer=is_outer))
        case Binary(operator="*" | "/", left=left, right=right) if (number_in(right) or 0) > 0:
            return msgspec.structs.replace(node, left=_marked(left, is_outer=is_outer))
        case Aggregate(operator="sum", expression=inner):
            return msgspec.structs.replace(node, expression=_marked(inner, is_outer=False))
        case Aggregate(operator="max", expression=inner) if is_outer:
            return msgspec.structs.replace(node, expression=_marked(inner, is_outer=False))
        case Call(function=function, arguments=(RangeSelect() as read,)):
            if function in STILL_IS_ZERO:
                select = msgspec.structs.replace(read.select, moved=True)
                read = msgspec.structs.replace(read, select=select)
                return msgspec.structs.replace(node, arguments=(read,))
    return node


def number_in(node: Node) -> float | None:
    """The number that stands in the text, perhaps as a difference of two."""
    match bare(node):
        case Number(value=value):
            return value
        case Negate(expression=inner):
            positive = number_in(inner)
            return None if positive is None else -positive
        case Binary(operator="-", left=left, right=right):
            one, two = number_in(left), number_in(right)
            return None if one is None or two is None else one - two
    return None
