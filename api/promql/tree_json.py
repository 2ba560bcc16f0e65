"""A query's plan as the JSON tree of `/api/v1/parse_query`, in Prometheus' names.

What the plan does not carry is missing here too: the types that a function would take (shown are
those of the arguments that it was given), and `anchored` and `smoothed`, which are always false.
"""

from __future__ import annotations

from typing import Any

from api.promql import plan
from api.promql.errors import failed
from api.promql.parse import kind_of
from api.promql.texts import decimal_text

_CARDINALITIES = {"": "one-to-one", "left": "many-to-one", "right": "one-to-many"}
SET_OPERATORS = frozenset({"and", "or", "unless"})

Tree = dict[str, Any]

TREE_DEPTH_MAX = 100
"""Levels of a tree, a link of a chain of operators being one; JSON has about two for each, and
readers of JSON end at 250."""


def tree_of(node: plan.Node, room: int = TREE_DEPTH_MAX) -> Tree:
    """``room``: how many levels the tree may have; a QueryError if it has more."""
    node, chain = plan.chain_of(node)
    room -= len(chain) + 1
    if room < 0:
        raise failed(f"the tree is too deep; TREE_DEPTH_MAX is {TREE_DEPTH_MAX}")
    tree = tree_of_one(node, room)
    for link in chain:
        tree = {
            "type": "binaryExpr",
            "op": link.operator,
            "lhs": tree,
            "rhs": tree_of(link.right, room),
            "matching": matching_of(link),
            "bool": link.return_bool,
        }
    return tree


def tree_of_one(node: plan.Node, room: int) -> Tree:  # noqa: PLR0911 - a table
    match node:
        case plan.Number():
            return {"type": "numberLiteral", "val": decimal_text(node.value)}
        case plan.String():
            return {"type": "stringLiteral", "val": node.value}
        case plan.Paren():
            return {"type": "parenExpr", "expr": tree_of(node.expression, room)}
        case plan.Negate():
            return {"type": "unaryExpr", "op": "-", "expr": tree_of(node.expression, room)}
        case plan.Select():
            return {"type": "vectorSelector", **selector_of(node)}
        case plan.RangeSelect():
            return {"type": "matrixSelector", "range": node.range_ms, **selector_of(node.select)}
        case plan.Subquery():
            return {
                "type": "subquery",
                "expr": tree_of(node.expression, room),
                "range": node.range_ms,
                "step": node.step_ms or 0,
                "offset": node.offset_ms,
                **anchor_of(node.at),
            }
        case plan.Call():
            return call_of(node, room)
        case plan.Aggregate():
            return {
                "type": "aggregation",
                "op": node.operator,
                "expr": tree_of(node.expression, room),
                "param": None if node.parameter is None else tree_of(node.parameter, room),
                "grouping": list(node.labels),
                "without": node.without,
            }
    raise AssertionError(f"{type(node).__name__} has no place in the tree")


def selector_of(select: plan.Select) -> Tree:
    return {
        "name": select.selector.metric or "",
        "matchers": [
            {"name": matcher.label, "type": matcher.operator, "value": matcher.value}
            for matcher in select.selector.matchers
        ],
        "offset": select.offset_ms,
        **anchor_of(select.at),
        "anchored": False,
        "smoothed": False,
    }


def anchor_of(at: plan.At | None) -> Tree:
    fixed = at is not None and at.anchor == "time"
    return {
        "timestamp": at.time_ms if at is not None and fixed else None,
        "startOrEnd": at.anchor if at is not None and not fixed else None,
    }


def call_of(call: plan.Call, room: int) -> Tree:
    return {
        "type": "call",
        "func": {
            "name": call.function,
            "argTypes": [kind_of(argument).value for argument in call.arguments],
            "variadic": 0,
            "returnType": call.kind.value,
        },
        "args": [tree_of(argument, room) for argument in call.arguments],
    }


def matching_of(binary: plan.Binary) -> Tree | None:
    """How the series of two vectors meet; None unless both sides are vectors."""
    if not kind_of(binary.left) is kind_of(binary.right) is plan.Kind.VECTOR:
        return None
    matching = binary.matching
    is_set = binary.operator in SET_OPERATORS
    return {
        "card": "many-to-many" if is_set else _CARDINALITIES[matching.group],
        "labels": list(matching.labels),
        "on": matching.on,
        "include": list(matching.include),
        "fillValues": {"lhs": matching.fill_left, "rhs": matching.fill_right},
    }
