"""A left side with few series asks its right side for the series that these can meet, and no more.

`A > 5 unless on (host) B` needs of B the hosts of A alone. So the values of the labels that must
agree are passed down to B's selectors (`Select.among`), through whatever keeps these labels as they
are: a group of an aggregation by `host` is there whole or not at all.

Of `A and topk(10, B)` it is the right side that has few series, so it is evaluated first: boards
show the worst of many so. The same of `A and on (host) B{job="x"}`, where the right side names
whose series it has and the left one has everyone's: the page shows a job's machines so.

Prometheus reads all of B and may refuse the query because of series that nothing meets. Therefore
only a side that can neither fail nor leave a note is narrowed (`api.promql.quiet`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Matching,
    Negate,
    Node,
    Number,
    Paren,
    RangeSelect,
    Select,
    Subquery,
)
from api.promql.quiet import (
    SETS,
    bare,
    identity_of,
    is_number,
    is_quiet,
    is_small,
    label_set_by,
)
from api.promql.values import Vector
from collector.contract.identity import METRIC_LABEL

NARROWING_ROWS_MAX = 1_000
"""Series of a left side whose labels are passed on; with more, most of the right side is met."""

CHOOSING = frozenset({"bottomk", "topk"})

Among = Mapping[str, tuple[str, ...]]
"""Labels, and the values in which rows are of use; others may be left out. "" is an absent one."""


def right_for(node: Binary, left: Vector) -> Node:
    """The right side of an operator, less what surely meets no series of this left side."""
    if node.operator == "or" or not 0 < len(left.labels) <= NARROWING_ROWS_MAX:
        return node.right
    matching = node.matching
    filled = matching.fill_left is not None or matching.fill_right is not None
    if filled or is_number(node.right) or not is_quiet(node.right):
        return node.right
    if node.operator not in SETS and matching.group != "right":
        # Two partners of one signature are a mistake even if nothing meets them.
        right = identity_of(node.right)
        if right is None or not right.suffices(matching):
            return node.right
    return narrowed(node.right, values_met(left, matching))


def is_chosen_by_right(node: Binary) -> bool:
    """Whether the right side has few series at each step, and others of the left do not matter."""
    return node.operator == "and" and is_few(node.right) and is_quiet(node.left)


def is_few(node: Node) -> bool:
    """Whether the text says that there are few series: `topk(10, …)`, `topk(10, …) > 0`."""
    node = bare(node)
    match node:
        case Aggregate(operator=operator, parameter=Number(value=value)):
            chosen = operator in CHOOSING and not node.labels and not node.without
            return chosen and value <= NARROWING_ROWS_MAX
        case Binary(left=left, right=right) if is_number(right):
            return is_few(left)
    return False


def is_named_by_right(node: Binary) -> bool:
    """Whether the right side names whose series it has, and the left one has everyone's.

    How many series these are, the text does not say.
    """
    if node.operator != "and" or not is_small(node.right) or not is_quiet(node.left):
        return False
    return is_named(node.right) and not is_named(node.left)


def is_named(node: Node) -> bool:  # noqa: PLR0911 - a table
    """Whether the text names one value of a label that all rows must have: `x{job="a"}`.

    For a node with few parts (`is_small`).
    """
    match bare(node):
        case Select(selector=selector) | RangeSelect(select=Select(selector=selector)):
            return any(
                one.operator == "=" and one.value and one.label != METRIC_LABEL
                for one in selector.matchers
            )
        case Negate(expression=inner) | Subquery(expression=inner) | Aggregate(expression=inner):
            return is_named(inner)
        case Call(arguments=arguments):
            return any(is_named(one) for one in arguments)
        case Binary(operator="or", left=left, right=right):
            return is_named(left) and is_named(right)
        case Binary(operator="unless", left=left):
            return is_named(left)
        case Binary(left=left, right=right):
            return is_named(left) or is_named(right)
    return False


def left_for(node: Binary, right: Vector) -> Node:
    """The left side of an `and`, less what surely meets no series of this right side."""
    if len(right.labels) > NARROWING_ROWS_MAX:
        return node.left
    return narrowed(node.left, values_met(right, node.matching))


def values_met(left: Vector, matching: Matching) -> Among:
    """The values of each label that a partner of one of these rows must have."""
    if matching.on:
        names = set(matching.labels)
    else:
        names = {name for labels in left.labels for name in labels} - set(matching.labels)
    return {
        name: tuple(sorted({labels.get(name, "") for labels in left.labels}))
        for name in sorted(names - {METRIC_LABEL})
    }


def narrowed(node: Node, among: Among) -> Node:  # noqa: PLR0911 - a table
    """The same rows as the node's where all labels have one of these values, perhaps more rows."""
    if not among:
        return node
    match node:
        case Paren() | Negate() | Subquery():
            return msgspec.structs.replace(node, expression=narrowed(node.expression, among))
        case Select():
            return msgspec.structs.replace(node, among=both(node.among, among))
        case RangeSelect():
            select = msgspec.structs.replace(node.select, among=both(node.select.among, among))
            return msgspec.structs.replace(node, select=select)
        case Call(arguments=(argument, *rest)):
            # Of those that are quiet, all keep the labels but one that they set.
            label = label_set_by(node)
            kept = among if label is None else less(among, {label})
            return msgspec.structs.replace(node, arguments=(narrowed(argument, kept), *rest))
        case Aggregate():
            kept = less(among, node.labels) if node.without else only(among, node.labels)
            return msgspec.structs.replace(node, expression=narrowed(node.expression, kept))
        case Binary():
            return _narrowed_binary(node, among)
    return node


def _narrowed_binary(node: Binary, among: Among) -> Node:
    matching = node.matching
    agreed = only(among, matching.labels) if matching.on else less(among, matching.labels)
    left = right = agreed
    if is_number(node.left) or is_number(node.right):
        left = right = among
    elif node.operator in {"and", "unless"} or matching.group == "left":
        left = among
    elif matching.group == "right":
        right = among
    if matching.include:
        # These are the one's, and the many's own are replaced; the one's may be absent.
        left, right = less(left, matching.include), less(right, matching.include)
    return msgspec.structs.replace(
        node, left=narrowed(node.left, left), right=narrowed(node.right, right)
    )


def both(
    before: tuple[tuple[str, tuple[str, ...]], ...], among: Among
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What is of use for two operators around a selector."""
    found = dict(before)
    for label, values in among.items():
        known = found.get(label)
        found[label] = values if known is None else tuple(v for v in known if v in set(values))
    return tuple(sorted(found.items()))


def only(among: Among, labels: AbstractSet[str] | tuple[str, ...]) -> Among:
    return {label: values for label, values in among.items() if label in labels}


def less(among: Among, labels: AbstractSet[str] | tuple[str, ...]) -> Among:
    return {label: values for label, values in among.items() if label not in labels}
