"""An expression as Prometheus writes it back: one line, its own spaces and numbers.

What the plan does not carry cannot be written: a plus sign in front of something, and whether a
metric's name stood before the braces or inside them (`{__name__="up"}` is written `up`).
"""

from __future__ import annotations

import json
from functools import lru_cache

from alerts.rulebook.file import write_duration
from api.base.limits import RULES_MAX
from api.promql import plan
from api.promql.parse import kind_of, parse_query
from api.promql.texts import general_text
from collector.contract.identity import METRIC_LABEL


@lru_cache(maxsize=RULES_MAX)
def written_back(expression: str) -> str:
    """The expression in Prometheus' layout. Raises QueryError.

    >>> written_back("sum(rate(x[5m]))by(host)>1e6")
    'sum by (host) (rate(x[5m])) > 1e+06'
    """
    return text_of(parse_query(expression))


def text_of(node: plan.Node) -> str:
    node, chain = plan.chain_of(node)
    text = text_of_one(node)
    for link in chain:
        text += f" {link.operator}{modifiers_of(link)} {text_of(link.right)}"
    return text


def text_of_one(node: plan.Node) -> str:  # noqa: PLR0911 - a table
    match node:
        case plan.Number():
            return general_text(node.value)
        case plan.String():
            return quoted(node.value)
        case plan.Paren():
            return f"({text_of(node.expression)})"
        case plan.Negate():
            return f"-{text_of(node.expression)}"
        case plan.Select():
            return selector_text(node) + shift_text(node.at, node.offset_ms)
        case plan.RangeSelect():
            selected = f"{selector_text(node.select)}[{duration_text(node.range_ms)}]"
            return selected + shift_text(node.select.at, node.select.offset_ms)
        case plan.Subquery():
            step = "" if node.step_ms is None else duration_text(node.step_ms)
            inner = f"{text_of(node.expression)}[{duration_text(node.range_ms)}:{step}]"
            return inner + shift_text(node.at, node.offset_ms)
        case plan.Call():
            return f"{node.function}({', '.join(map(text_of, node.arguments))})"
        case plan.Aggregate():
            return aggregate_text(node)
    raise AssertionError(f"{type(node).__name__} has no text")


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def duration_text(milliseconds: int) -> str:
    return write_duration(milliseconds / 1000)


def selector_text(select: plan.Select) -> str:
    metric = select.selector.metric or ""
    matchers = sorted(
        f"{each.label}{each.operator}{quoted(each.value)}"
        for each in select.selector.matchers
        if not (each.label == METRIC_LABEL and each.operator == "=" and metric)
    )
    return f"{metric}{{{','.join(matchers)}}}" if matchers or not metric else metric


def shift_text(at: plan.At | None, offset_ms: int) -> str:
    """The modifiers `@` and `offset`, in Prometheus' order."""
    text = ""
    if at is not None:
        text = f" @ {at.time_ms / 1000:.3f}" if at.anchor == "time" else f" @ {at.anchor}()"
    if offset_ms:
        text += f" offset {duration_text(offset_ms)}"
    return text


def aggregate_text(node: plan.Aggregate) -> str:
    arguments = [each for each in (node.parameter, node.expression) if each is not None]
    inner = f"({', '.join(map(text_of, arguments))})"
    labels = ", ".join(node.labels)
    if node.without:
        return f"{node.operator} without ({labels}) {inner}"
    return f"{node.operator} by ({labels}) {inner}" if labels else node.operator + inner


def modifiers_of(binary: plan.Binary) -> str:
    text = " bool" if binary.return_bool else ""
    matching = binary.matching
    is_vectors = kind_of(binary.left) is kind_of(binary.right) is plan.Kind.VECTOR
    if is_vectors and (matching.on or matching.labels or matching.group):
        text += matching_text(matching)
    return text


def matching_text(matching: plan.Matching) -> str:
    text = ""
    if matching.on or matching.labels:
        text = f" {'on' if matching.on else 'ignoring'} ({', '.join(matching.labels)})"
    if matching.group:
        text += f" group_{matching.group} ({', '.join(matching.include)})"
    return text
