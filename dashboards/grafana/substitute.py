"""What Grafana does with variables before it sends a query: the same here, without a Grafana.

Tests run the queries of boards with it, and `lint` parses them. It follows what Grafana's
Prometheus data source does: a single choice goes in as it is, several become one regular
expression, and the built-in ones stand for lengths of time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from collector.contract.errors import FabricscopeError

ALL = ".*"
"""What a variable stands for when everything is chosen. It also fits series that lack the label,
so that boards work with exporters that know no clusters."""

BUILT_IN = {
    "__interval": "15s",
    "__interval_ms": "15000",
    "__range": "1h",
    "__range_s": "3600",
    "__range_ms": "3600000",
    "__rate_interval": "1m",
}
"""Grafana's own for a panel of an hour and scrapes every 15 s, its default: the interval is the
time between two points, and a rate needs four scrapes."""

USE = re.compile(
    r"\$(?P<bare>(?!\d)\w+)"
    r"|\$\{(?P<braced>(?!\d)\w+)(?:\.[^:}]+)?(?::(?P<form>[^}]+))?\}"
    r"|\[\[(?P<old>(?!\d)\w+)(?::(?P<old_form>\w+))?\]\]"
)
"""The three ways to write a variable: `$name`, `${name:form}` and the old `[[name:form]]`. `$1` is
none: it is what `label_replace` calls the first group of its pattern."""

Value = str | Sequence[str]
"""One choice, or the several of a variable that takes several."""


class UnknownVariableError(FabricscopeError):
    """A query uses a variable without a value."""


def variables_in(text: str) -> set[str]:
    """The names of variables that the text uses, Grafana's own (`__…`) left out."""
    return {name for name in map(name_of, USE.finditer(text)) if not name.startswith("__")}


def name_of(found: re.Match[str]) -> str:
    return found["bare"] or found["braced"] or found["old"]


def substituted(
    expr: str, variables: Mapping[str, Value], lengths: Mapping[str, str] | None = None
) -> str:
    """The query as Grafana sends it.

    A value that is a list comes from a variable that takes several: its members are quoted as
    regular expressions. ``lengths`` stand in for those of `BUILT_IN`. Raises
    UnknownVariableError for a variable without a value, which Grafana would send as it is.

    >>> substituted('rate(a{host=~"$host"}[$__rate_interval])', {"host": ["n1", "n2"]})
    'rate(a{host=~"(n1|n2)"}[1m])'
    >>> substituted('a{host="${host:raw}"}', {"host": "n1"})
    'a{host="n1"}'
    """
    known: dict[str, Value] = {**BUILT_IN, **(lengths or {}), **variables}

    def put_in(found: re.Match[str]) -> str:
        name, form = name_of(found), found["form"] or found["old_form"] or ""
        if name not in known:
            raise UnknownVariableError(f"${name} has no value in: {expr}")
        return formatted(name, known[name], form)

    return USE.sub(put_in, expr)


def formatted(name: str, value: Value, form: str) -> str:
    """A variable's value in one of Grafana's forms; without one, as a Prometheus query wants it."""
    return FORMS.get(form, in_query)(name, value)


def in_query(_: str, value: Value) -> str:
    """Ready to stand between the quotes of a matcher."""
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("'", "\\\\'")
    return either([quoted_twice(each) for each in value])


def quoted_twice(value: str) -> str:
    """A regular expression for just this text, written into a string of PromQL."""
    value = value.replace("\\", "\\\\\\\\")
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value)


def either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"({'|'.join(choices)})"


def as_list(value: Value) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


FORMS: dict[str, Callable[[str, Value], str]] = {
    "csv": lambda _, value: ",".join(as_list(value)),
    "pipe": lambda _, value: "|".join(as_list(value)),
    "queryparam": lambda name, value: "&".join(f"var-{name}={each}" for each in as_list(value)),
    "raw": lambda _, value: ",".join(as_list(value)),
    "regex": lambda _, value: either(
        [re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", each) for each in as_list(value)]
    ),
    "text": lambda _, value: " + ".join(as_list(value)),
}
