"""Parses a query's text into its plan.

The grammar is `promql-parser`'s. It is written in Rust and overflows the stack of the whole process
on deep nesting, so the text is checked before the parser reads it.
"""

from __future__ import annotations

import datetime as dt
import re

import promql_parser as grammar

from api.base.limits import QUERY_BYTES_MAX, QUERY_NESTING_MAX, QUERY_OPERATORS_MAX
from api.data.selectors import read_selector
from api.promql import plan
from api.promql.errors import QueryError, bad_data

_TOKENS = re.compile(
    r"""(?P<skip>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])"""
    r"""|(?P<operator>[-+*/%^=!<>@]|\b(?:and|or|unless|atan2)\b)""",
    re.DOTALL | re.IGNORECASE,
)
LATEST_MS = 10**16
"""A moment far behind every sample: `@` does not go beyond it, where sums would not fit a word."""

_BEFORE_1970 = re.compile(r"@\s*-")


def parse_query(text: str) -> plan.Node:
    return convert(parse_text(text), text, QUERY_NESTING_MAX)


def parse_text(text: str) -> grammar.Expr:
    """The parser's own tree; the text must have passed `check_text`."""
    check_text(text)
    try:
        return grammar.parse(text)
    except (ValueError, OverflowError) as error:
        raise parse_error(str(error)) from error
    except BaseException as error:
        # A panic of the Rust code; it has no class that could be named here.
        if type(error).__name__ != "PanicException":
            raise
        raise parse_error("the parser cannot read this") from error


def check_text(text: str) -> None:
    """Raise unless the text is short and flat enough for the parser's stack."""
    size = len(text.encode())
    if size > QUERY_BYTES_MAX:
        raise too_much(f"the query has {size} bytes", "QUERY_BYTES_MAX", QUERY_BYTES_MAX)
    depth = operators = 0
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "open":
                depth += 1
                if depth > QUERY_NESTING_MAX:
                    raise too_deep()
            case "close":
                depth -= 1
            case "operator":
                operators += 1
    if operators > QUERY_OPERATORS_MAX:
        raise too_much(
            f"the query has {operators} operators", "QUERY_OPERATORS_MAX", QUERY_OPERATORS_MAX
        )


def parse_error(why: str) -> QueryError:
    return bad_data(f"parse error: {why}")


def too_much(what: str, rule: str, bound: int) -> QueryError:
    return bad_data(f"{what}; {rule} is {bound}", rule=rule)


def too_deep() -> QueryError:
    return too_much(
        "brackets, functions and signs are nested too deeply",
        "QUERY_NESTING_MAX",
        QUERY_NESTING_MAX,
    )


def convert(expression: grammar.Expr, text: str, depth: int) -> plan.Node:
    """``depth``: how many levels may follow; a chain of operators costs none."""
    chain: list[grammar.BinaryExpr] = []
    while isinstance(expression, grammar.BinaryExpr):
        chain.append(expression)
        expression = expression.lhs
    node = convert_one(expression, text, depth)
    for link in reversed(chain):
        node = convert_binary(link, node, convert(link.rhs, text, deeper(depth)))
    return node


def deeper(depth: int) -> int:
    if depth == 0:
        raise too_deep()
    return depth - 1


def convert_one(expression: grammar.Expr, text: str, depth: int) -> plan.Node:  # noqa: PLR0911 - a table
    match expression:
        case grammar.NumberLiteral():
            return plan.Number(expression.val)
        case grammar.StringLiteral():
            return plan.String(expression.val)
        case grammar.VectorSelector():
            return convert_selector(expression, text)
        case grammar.MatrixSelector():
            select = convert_selector(expression.vector_selector, text)
            return plan.RangeSelect(select, milliseconds(expression.range))
        case grammar.ParenExpr():
            return plan.Paren(convert(expression.expr, text, deeper(depth)))
        case grammar.UnaryExpr():
            return plan.Negate(convert(expression.expr, text, deeper(depth)))
        case grammar.SubqueryExpr():
            return plan.Subquery(
                convert(expression.expr, text, deeper(depth)),
                milliseconds(expression.range),
                None if expression.step is None else milliseconds(expression.step),
                milliseconds(expression.offset),
                convert_at(expression.at, text),
            )
        case grammar.Call():
            arguments = tuple(convert(one, text, deeper(depth)) for one in expression.args)
            returns = str(expression.func.return_type).rpartition(".")[2].lower()
            return plan.Call(expression.func.name, arguments, plan.Kind(returns))
        case grammar.AggregateExpr():
            return convert_aggregate(expression, text, deeper(depth))
    raise parse_error(f"{type(expression).__name__} is not supported")


def convert_selector(expression: grammar.VectorSelector, text: str) -> plan.Select:
    try:
        selector = read_selector(expression)
    except ValueError as error:
        raise parse_error(str(error)) from error
    return plan.Select(selector, milliseconds(expression.offset), convert_at(expression.at, text))


def convert_at(at: grammar.AtModifier | None, text: str) -> plan.At | None:
    """The `@` modifier, read from how it is printed: the parser panics on some of its values."""
    if at is None:
        return None
    printed = str(at).removeprefix("@").strip()
    if printed in {"start()", "end()"}:
        return plan.At(printed.removesuffix("()"))
    time_ms = min(round(float(printed) * 1000), LATEST_MS)
    if time_ms == 0 and _BEFORE_1970.search(text):
        raise parse_error("@ with a moment before 1970: there are no samples")
    return plan.At("time", time_ms)


def convert_aggregate(expression: grammar.AggregateExpr, text: str, depth: int) -> plan.Aggregate:
    """An aggregation. Without `by` and `without` it is one by no label."""
    modifier = expression.modifier
    without = modifier is not None and str(modifier.type).endswith("Without")
    return plan.Aggregate(
        str(expression.op),
        convert(expression.expr, text, depth),
        None if expression.param is None else convert(expression.param, text, depth),
        () if modifier is None else tuple(modifier.labels),
        without,
    )


_GROUPS = {"ManyToOne": "left", "OneToMany": "right"}


def convert_binary(
    expression: grammar.BinaryExpr, left: plan.Node, right: plan.Node
) -> plan.Binary:
    modifier = expression.modifier
    if modifier is None:
        return plan.Binary(str(expression.op), left, right)
    matching, fill = modifier.matching, modifier.fill_values
    return plan.Binary(
        str(expression.op),
        left,
        right,
        plan.Matching(
            on=matching is not None and str(matching.type).endswith("Include"),
            labels=() if matching is None else tuple(matching.labels),
            group=_GROUPS.get(str(modifier.card).rpartition(".")[2], ""),
            include=tuple(modifier.group_labels or ()),
            fill_left=None if fill is None else fill.lhs,
            fill_right=None if fill is None else fill.rhs,
        ),
        return_bool=modifier.return_bool,
    )


def milliseconds(duration: dt.timedelta | None) -> int:
    return 0 if duration is None else duration // dt.timedelta(milliseconds=1)


def kind_of(node: plan.Node) -> plan.Kind:  # noqa: PLR0911 - a table
    while isinstance(node, plan.Paren | plan.Negate):
        node = node.expression
    match node:
        case plan.Number():
            return plan.Kind.SCALAR
        case plan.String():
            return plan.Kind.STRING
        case plan.RangeSelect() | plan.Subquery():
            return plan.Kind.MATRIX
        case plan.Call():
            return node.kind
        case plan.Binary():
            # Every link of a long chain is a vector if any of its operands is one.
            while isinstance(node, plan.Binary):
                if kind_of(node.right) is plan.Kind.VECTOR:
                    return plan.Kind.VECTOR
                node = node.left
            return kind_of(node)
    return plan.Kind.VECTOR
