"""Which parts of a query may be left out where the other side decides alone.

Prometheus evaluates both sides of an operator, whatever the first one gave, and refuses the query
if the second one is wrong. So a side may be left out only if it can neither fail nor leave a note,
whatever the series are: then no answer shows whether it was evaluated. Bounds
(QUERY_SAMPLES_MAX) do not count: not to reach them is the purpose.

What is not known here to be quiet is evaluated, so that a function is right before it is fast.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import msgspec

from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Kind,
    Matching,
    Negate,
    Node,
    Number,
    Paren,
    RangeSelect,
    Select,
    String,
    Subquery,
    nodes_of,
)
from collector.contract.identity import METRIC_LABEL

SETS = frozenset({"and", "or", "unless"})
COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")

QUIET_RANGES = frozenset(
    {
        *("avg_over_time", "count_over_time", "last_over_time", "max_over_time", "min_over_time"),
        *("present_over_time", "stddev_over_time", "stdvar_over_time", "sum_over_time"),
        *("changes", "delta", "deriv", "idelta", "increase", "irate", "rate", "resets"),
    }
)
"""Range functions without parameters. Some take the name away, so that two metrics could clash."""

NOTED = frozenset({"increase", "rate"})
"""Range functions that leave a note unless the metric is named like a counter."""

QUIET_FUNCTIONS = frozenset(
    {"abs", "ceil", "exp", "floor", "ln", "log10", "log2", "round", "sgn", "sqrt"}
)
"""Functions of one vector that change nothing but values, and take the name away."""

QUIET_CLAMPS = frozenset({"clamp_max", "clamp_min"})
"""The same with a number."""

QUIET_PATTERNS = frozenset({"", "(.*)", "(.+)"})
"""Patterns of `label_replace` that surely are ones, for every dialect."""

PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Names of labels that every dialect takes."""

KEEPS_ROWS = QUIET_RANGES | QUIET_FUNCTIONS | QUIET_CLAMPS

QUIET_AGGREGATIONS = frozenset({"avg", "count", "group", "max", "min", "stddev", "stdvar", "sum"})

NODES_MAX = 200
"""Parts of a side that is looked at. The pack's largest has some thirty, the page's 160 (errors of
a job's NICs); a chain of thousands would end the interpreter's stack."""


class Identity(msgspec.Struct, frozen=True):
    """Labels that tell the rows of a vector apart, at any step.

    ``labels`` None: only all of them together do.
    """

    labels: frozenset[str] | None

    def suffices(self, matching: Matching) -> bool:
        """Whether no two rows can have the same signature."""
        if self.labels is None:
            return not matching.on and not matching.labels
        if matching.on:
            return self.labels <= set(matching.labels)
        return self.labels.isdisjoint(matching.labels)


def bare(node: Node) -> Node:
    while isinstance(node, Paren):
        node = node.expression
    return node


def is_number(node: Node) -> bool:
    """Whether it is a number that stands in the text."""
    match bare(node):
        case Number():
            return True
        case Negate(expression=inner):
            return is_number(inner)
        case Binary(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def is_small(node: Node) -> bool:
    """Whether it has few enough parts to be looked at by recursion."""
    return all(number < NODES_MAX for number, _ in enumerate(nodes_of(node)))


def is_quiet(node: Node) -> bool:
    """Whether this can neither fail nor leave a note, whatever the data."""
    return is_small(node) and _is_quiet(node)


def _is_quiet(node: Node) -> bool:  # noqa: PLR0911 - a table
    node = bare(node)
    match node:
        case Number() | Select() | RangeSelect():
            return True
        case Subquery(expression=inner):
            return _is_quiet(inner)
        case Negate(expression=inner):
            return _is_quiet(inner) and (is_number(inner) or has_one_name(inner))
        case Call():
            return _is_quiet_call(node)
        case Aggregate(operator=operator, expression=inner, parameter=parameter):
            known = operator in QUIET_AGGREGATIONS and parameter is None
            return _is_quiet(inner) and (known or _is_quiet_quantile(operator, parameter))
        case Binary():
            return _is_quiet_binary(node)
    return False


def _is_quiet_quantile(operator: str, parameter: Node | None) -> bool:
    return operator == "quantile" and isinstance(parameter, Number) and 0 <= parameter.value <= 1


def label_set_by(node: Call) -> str | None:
    """The label that `label_join` or `label_replace` sets, if it cannot fail; else None.

    Both refuse the query where two rows become the same. Rows that other labels tell apart do not.
    """
    if node.function not in {"label_join", "label_replace"}:
        return None
    argument, *rest = (bare(one) for one in node.arguments)
    words = [one.value for one in rest if isinstance(one, String)]
    if len(words) != len(rest):
        return None
    names = [words[0], *(words[2:] if node.function == "label_join" else ())]
    if node.function == "label_replace" and words[3] not in QUIET_PATTERNS:
        return None
    if METRIC_LABEL in names or not all(PLAIN_NAME.fullmatch(name) for name in names):
        return None
    identity = identity_of(argument)
    if identity is None or identity.labels is None or words[0] in identity.labels:
        return None
    return words[0]


def _is_quiet_call(node: Call) -> bool:
    if label_set_by(node) is not None:
        return _is_quiet(node.arguments[0])
    clamped = node.function in QUIET_CLAMPS and isinstance(bare(node.arguments[1]), Number)
    if node.kind is not Kind.VECTOR or (len(node.arguments) != 1 and not clamped):
        return False
    argument = bare(node.arguments[0])
    if node.function in QUIET_FUNCTIONS or clamped:
        return _is_quiet(argument) and has_one_name(argument)
    if node.function not in QUIET_RANGES or not _is_quiet(argument) or not has_one_name(argument):
        return False
    if node.function not in NOTED:
        return True
    metric = argument.select.selector.metric if isinstance(argument, RangeSelect) else None
    return metric is not None and metric.endswith(COUNTER_SUFFIXES)


def _is_quiet_binary(node: Binary) -> bool:
    if not _is_quiet(node.left) or not _is_quiet(node.right):
        return False
    vectors = [side for side in (node.left, node.right) if not is_number(side)]
    if node.operator in SETS:
        return len(vectors) == 2  # noqa: PLR2004 - both
    if len(vectors) < 2:  # noqa: PLR2004 - both
        keeps_name = node.operator in COMPARISONS and not node.return_bool
        return keeps_name or all(has_one_name(side) for side in vectors)
    return is_quiet_match(node)


def is_quiet_match(node: Binary) -> bool:
    """Whether a match of two vectors cannot find that one has several partners or results clash."""
    matching = node.matching
    if matching.fill_left is not None or matching.fill_right is not None:
        return False
    left, right = identity_of(node.left), identity_of(node.right)
    if left is None or right is None or METRIC_LABEL in (*matching.labels, *matching.include):
        return False
    if not matching.group:
        return left.suffices(matching) and right.suffices(matching)
    one, many = (right, left) if matching.group == "left" else (left, right)
    # An included label takes the place of the many's own.
    kept = not matching.include or (
        many.labels is not None and many.labels.isdisjoint(matching.include)
    )
    return one.suffices(matching) and kept


def has_one_name(node: Node) -> bool:  # noqa: PLR0911 - a table
    """Whether all rows surely have the same metric name, or none has one."""
    node = bare(node)
    match node:
        case Select(selector=selector) | RangeSelect(select=Select(selector=selector)):
            return selector.metric is not None
        case Subquery(expression=inner) | Negate(expression=inner):
            return has_one_name(inner)
        case Call(function=function, arguments=(argument, *_)):
            keeps = function in KEEPS_ROWS or label_set_by(node) is not None
            return keeps and has_one_name(argument)
        case Aggregate():
            return METRIC_LABEL not in node.labels
        case Binary(operator="or"):
            return False
        case Binary(operator="and" | "unless", left=left):
            return has_one_name(left)
        case Binary(left=left, right=right):
            return METRIC_LABEL not in (*node.matching.labels, *node.matching.include) and all(
                is_number(side) or has_one_name(side) for side in (left, right)
            )
    return False


def identity_of(node: Node) -> Identity | None:  # noqa: PLR0911 - a table
    """What tells the rows of a vector apart if their names do not; None: it is not known."""
    node = bare(node)
    match node:
        case Select() | RangeSelect():
            return Identity(None) if has_one_name(node) else None
        case Subquery(expression=inner) | Negate(expression=inner):
            return identity_of(inner)
        case Call(function=function, arguments=(argument, *_)):
            return identity_of(argument) if function in KEEPS_ROWS else _identity_labelled(node)
        case Aggregate(operator=operator, labels=labels, without=without):
            if METRIC_LABEL in labels or operator not in {*QUIET_AGGREGATIONS, "quantile"}:
                return None
            return Identity(None if without else frozenset(labels))
        case Binary():
            return _identity_of_binary(node)
    return None


def _identity_labelled(node: Call) -> Identity | None:
    """With the label that is set: an `or` of two such sides compares it, too."""
    label, argument = label_set_by(node), identity_of(node.arguments[0])
    if label is None or argument is None or argument.labels is None:
        return None
    return Identity(argument.labels | {label})


def _identity_of_binary(node: Binary) -> Identity | None:
    if is_number(node.right) or node.operator in {"and", "unless"}:
        return identity_of(node.left)
    if is_number(node.left):
        return identity_of(node.right)
    if node.operator == "or":
        return _identity_of_either(node)
    if node.matching.group:
        many = identity_of(node.left if node.matching.group == "left" else node.right)
        replaced: AbstractSet[str] = set(node.matching.include)
        is_kept = many is not None and many.labels is not None and many.labels.isdisjoint(replaced)
        return many if is_kept or not replaced else None
    # One-to-one results have the labels that were matched on, or the left side's.
    if node.matching.on:
        named = METRIC_LABEL in node.matching.labels
        return None if named else Identity(frozenset(node.matching.labels))
    return identity_of(node.left)


def _identity_of_either(node: Binary) -> Identity | None:
    """Of two sides told apart by the same labels that `or` looks at, one row is left of each."""
    left, right = identity_of(node.left), identity_of(node.right)
    if left is None or left != right or left.labels is None:
        return None
    matched = node.matching.labels
    if node.matching.on:
        return left if left.labels == frozenset(matched) else None
    return left if not matched else None


def is_decided_by_empty_left(node: Binary) -> bool:
    """Whether an empty left side makes the result empty, and the right side can be left out."""
    filled = node.matching.fill_left is not None or node.matching.fill_right is not None
    return node.operator != "or" and not filled and is_quiet(node.right)
