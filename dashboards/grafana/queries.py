"""What a PromQL text asks for: its metrics, and the unit of its answer where that is plain.

The grammar is `promql-parser`'s, which only the server's install has: it is imported when asked.
It is written in Rust and overflows the stack of the whole process on deep nesting, so a text is
measured before the parser sees it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from collector.contract.catalog import Unit, load_catalog
from collector.contract.errors import FabricscopeError

if TYPE_CHECKING:
    import promql_parser

QUERY_BYTES_MAX = 64 << 10
"""A query's text, as the service bounds it: what it would refuse need not be looked at."""
NESTING_MAX = 64
"""Brackets within brackets; people write five, and the parser's stack ends at 5,000."""
OPERATORS_MAX = 2_000
"""Operators in one query; a chain of 8,000 ends the parser's stack."""

WRITTEN_BY_PROMETHEUS = {"ALERTS", "ALERTS_FOR_STATE", "up", "scrape_duration_seconds"}
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

SAME_UNIT = {
    "abs",
    "avg_over_time",
    "clamp_max",
    "clamp_min",
    "label_join",
    "label_replace",
    "last_over_time",
    "max_over_time",
    "min_over_time",
    "sort",
    "sort_desc",
    "increase",
    "delta",
}
"""Functions whose answer is in the unit of their series."""
PER_SECOND = {"rate", "irate", "deriv"}
SAME_UNIT_AGGREGATES = {"sum", "avg", "max", "min", "topk", "bottomk", "quantile", "stddev"}
COMPARISONS = {">", "<", ">=", "<=", "==", "!="}
SETS = {"and", "or", "unless"}

_TOKENS = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])"""
    r"""|(?P<operator>[-+*/%^=!<>@]|\b(?:and|or|unless|atan2)\b)""",
    re.DOTALL | re.IGNORECASE,
)
_RECORD = re.compile(r"^\s*-?\s*record:\s*(\S+)\s*$", re.MULTILINE)


class QueryTextError(FabricscopeError):
    """A text that is no PromQL, or too large to be looked at."""


def parse(text: str) -> promql_parser.Expr:
    import promql_parser  # noqa: PLC0415 - an agent's install has no parser and lints nothing

    measure(text)
    try:
        return promql_parser.parse(text)
    except (ValueError, OverflowError) as error:
        raise QueryTextError(str(error).strip()) from error


def measure(text: str) -> None:
    """Raise unless the text is short and flat enough for the parser's stack."""
    if len(text.encode()) > QUERY_BYTES_MAX:
        raise QueryTextError(f"longer than QUERY_BYTES_MAX, {QUERY_BYTES_MAX} bytes")
    depth = deepest = operators = 0
    for token in _TOKENS.finditer(text):
        depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
        deepest = max(deepest, depth)
        operators += token.lastgroup == "operator"
    if deepest > NESTING_MAX:
        raise QueryTextError(f"nested deeper than NESTING_MAX, {NESTING_MAX} brackets")
    if operators > OPERATORS_MAX:
        raise QueryTextError(f"more operators than OPERATORS_MAX, {OPERATORS_MAX}")


def parts_of(expression: promql_parser.Expr) -> list[promql_parser.Expr]:
    found = [
        getattr(expression, name, None)
        for name in ("lhs", "rhs", "expr", "param", "vector_selector")
    ]
    return [part for part in (*found, *getattr(expression, "args", ())) if part is not None]


def metrics_of(expression: promql_parser.Expr) -> set[str]:
    import promql_parser  # noqa: PLC0415 - as above

    names: set[str] = set()
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if isinstance(one, promql_parser.VectorSelector):
            named = [each.value for each in one.matchers.matchers if each.name == "__name__"]
            names |= {one.name} if one.name else set(named)
        waiting.extend(parts_of(one))
    return names


def is_known(metric: str) -> bool:
    """Whether this metric is written by us, an exporter that we know, a rule or Prometheus."""
    catalog = load_catalog()
    stems = [metric, *(metric.removesuffix(suffix) for suffix in HISTOGRAM_SUFFIXES)]
    return (
        metric in WRITTEN_BY_PROMETHEUS
        or metric in recorded()
        or any(catalog.metric(stem) or catalog.aliases_of(stem) for stem in stems)
    )


@cache
def recorded() -> frozenset[str]:
    """The series that our rules record, read from the rules' templates: no knob names a series."""
    folder = resources.files("alerts") / "rules" / "templates"
    files = [entry for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    return frozenset(name for file in files for name in _RECORD.findall(file.read_text("utf-8")))


def unit_of(expression: promql_parser.Expr) -> tuple[Unit, bool] | None:  # noqa: PLR0911 - a table
    """The catalog's unit of the answer, and whether it is per second; None: not plain to see.

    Only what keeps a unit is followed: a selector, functions and aggregations of it. A product or
    a quotient may be anything.
    """
    import promql_parser  # noqa: PLC0415 - as above

    match expression:
        case promql_parser.VectorSelector():
            metric = load_catalog().metric(expression.name or "")
            return (metric.unit, False) if metric else None
        case promql_parser.MatrixSelector():
            return unit_of(expression.vector_selector)
        case promql_parser.ParenExpr() | promql_parser.SubqueryExpr():
            return unit_of(expression.expr)
        case promql_parser.AggregateExpr():
            keeps = str(expression.op).lower() in SAME_UNIT_AGGREGATES
            return unit_of(expression.expr) if keeps else None
        case promql_parser.Call():
            found = unit_of(expression.args[0]) if expression.args else None
            if found and expression.func.name in PER_SECOND:
                return found[0], True
            return found if expression.func.name in SAME_UNIT else None
        case promql_parser.BinaryExpr():
            operator = str(expression.op).lower()
            is_bool = expression.modifier is not None and expression.modifier.return_bool
            is_filter = operator in SETS or (operator in COMPARISONS and not is_bool)
            return unit_of(expression.lhs) if is_filter else None
    return None
