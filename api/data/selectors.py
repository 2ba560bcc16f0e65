"""Series selectors (`metric{label="value"}`): from text to a condition on the `series` table."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import promql_parser

from api.base.errors import Problem
from api.base.limits import SELECTOR_BYTES_MAX
from collector.contract.identity import METRIC_LABEL

STORE_MS_MAX = 5_662_310_400_000 - 1
"""The last moment of 2149-06-06, the last day that the store can name."""

_OPERATORS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class Matcher(msgspec.Struct, frozen=True):
    """One condition on one label, as in PromQL; an absent label is the empty string."""

    label: str
    operator: str
    value: str


class Selector(msgspec.Struct, frozen=True):
    """All series that meet every matcher."""

    matchers: tuple[Matcher, ...]

    @property
    def metric(self) -> str | None:
        for matcher in self.matchers:
            if matcher.label == METRIC_LABEL and matcher.operator == "=":
                return matcher.value
        return None

    @property
    def label(self) -> Matcher | None:
        """A label besides the metric's name that must have one value: few series have it."""
        named = (one for one in self.matchers if one.label != METRIC_LABEL)
        return next((one for one in named if one.operator == "="), None)


def parse_selector(text: str) -> Selector:
    """Raises a Problem that names the mistake in the text.

    The length is checked first: the parser overflows its stack on deep nesting, and no nesting
    that fits is deep enough for that.
    """

    def refuse(why: str, rule: str = "") -> Problem:
        shown = text if len(text) <= 100 else f"{text[:100]}…"  # noqa: PLR2004 - one line
        return Problem(400, "not a selector", f"match={shown!r}: {why}", rule=rule)

    if len(text.encode()) > SELECTOR_BYTES_MAX:
        raise refuse(f"SELECTOR_BYTES_MAX is {SELECTOR_BYTES_MAX}", "SELECTOR_BYTES_MAX")
    try:
        expression = promql_parser.parse(text)
    except ValueError as error:
        raise refuse(str(error)) from error
    if not isinstance(expression, promql_parser.VectorSelector):
        raise refuse('write a selector, as fabric_port_state{device="mlx5_0"}')
    if expression.offset is not None or expression.at is not None:
        raise refuse("offset and @ have no meaning here; use from and to")
    try:
        return read_selector(expression)
    except ValueError as error:
        raise refuse(str(error)) from error


def read_selector(expression: promql_parser.VectorSelector) -> Selector:
    """The parser's result as a Selector; raises ValueError for what the store cannot match."""
    if expression.matchers.or_matchers:
        raise ValueError("'or' between matchers is not PromQL")
    matchers = [
        Matcher(matcher.name, _OPERATORS[str(matcher.op).rpartition(".")[2]], matcher.value)
        for matcher in expression.matchers.matchers
    ]
    if expression.name is not None:
        matchers.append(Matcher(METRIC_LABEL, "=", expression.name))
    if any("~" in matcher.operator and "\0" in matcher.value for matcher in matchers):
        raise ValueError("a pattern with a NUL byte")
    return Selector(tuple(matchers))


class Condition:
    """SQL conditions with their parameters, gathered so that no text ever enters the SQL."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self._texts: dict[str, str] = {}

    def bind(self, value: object, kind: str) -> str:
        """The placeholder of a value. A text has one, so that equal conditions are equal in SQL."""
        if isinstance(value, str) and kind == "String" and value in self._texts:
            return self._texts[value]
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        placeholder = f"{{{name}:{kind}}}"
        if isinstance(value, str) and kind == "String":
            self._texts[value] = placeholder
        return placeholder

    def matches(self, selector: Selector) -> str:
        return " AND ".join(self.match(matcher) for matcher in selector.matchers) or "1"

    def match(self, matcher: Matcher) -> str:
        if matcher.label == METRIC_LABEL:
            subject = "metric_name"
        else:
            subject = f"labels[{self.bind(matcher.label, 'String')}]"
        return self.match_subject(subject, matcher)

    def match_subject(self, subject: str, matcher: Matcher) -> str:
        """The condition that an SQL expression meets a matcher, whatever the matcher's label."""
        if "~" in matcher.operator:
            # Prometheus anchors patterns at both ends; both use RE2. (?s): a dot meets a newline.
            pattern = self.bind(f"^(?s:{matcher.value})$", "String")
            found = f"match({subject}, {pattern})"
            return found if matcher.operator == "=~" else f"NOT {found}"
        return f"{subject} {matcher.operator} {self.bind(matcher.value, 'String')}"

    def days(self, from_ms: int, to_ms: int) -> str:
        first, last = (self.bind(utc_day(moment), "Date") for moment in (from_ms, to_ms))
        return f"day BETWEEN {first} AND {last}"


def utc_day(time_ms: int) -> dt.date:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).date()
