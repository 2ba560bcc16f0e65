"""All functions that a template may call: Go's own and those that Prometheus adds.

`tmpl` is not among them: Prometheus has it in consoles only, and refuses rules that call it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from alerts.rulebook.template import built_in, humanize, patterns, printing
from alerts.rulebook.template.bounds import PATTERN_STEPS, QUERIES_MAX, ROWS_MAX
from alerts.rulebook.template.errors import BoundError, CallError
from alerts.rulebook.template.values import (
    ANY,
    REFLECTED,
    ROW,
    ROWS,
    STRING,
    Arguments,
    Html,
    Row,
    Rows,
    TemplateData,
    Value,
    as_bytes,
    type_name,
)
from collector.contract.errors import FabricscopeError

NIL_USED = "runtime error: invalid memory address or nil pointer dereference"
"""Go's error where a row is used that is none."""


class Function(msgspec.Struct, frozen=True):
    """A function and the types of its arguments."""

    call: Callable[..., Any]
    wants: tuple[str, ...]
    """Names of types in Go, the piped value's last."""
    wants_more: str | None = None
    """The type of further arguments; None: there are none."""
    steps: int = 0
    """Cost of a call, besides that of its arguments."""


def all_functions(data: TemplateData) -> dict[str, Function]:
    asked = _Asked(data)
    return {
        **_PURE,
        "query": Function(asked.query, (STRING,)),
        "now": Function(lambda: float(data.now_s), ()),
        "externalURL": Function(lambda: data.external_url, ()),
        "pathPrefix": Function(lambda: _path(data.external_url), ()),
    }


def _path(address: str) -> str:
    try:
        return urlsplit(address).path
    except ValueError as error:
        raise CallError(f"the external URL cannot be read: {error}") from error


class _Asked:
    """The queries of one expansion."""

    def __init__(self, data: TemplateData) -> None:
        self.ask = data.query
        self.count = 0

    def query(self, expression: str) -> Rows:
        """Raises CallError for what the engine refuses, and past the bounds."""
        self.count += 1
        if self.count > QUERIES_MAX:
            raise BoundError(f"more than {QUERIES_MAX} queries in one template")
        try:
            found = self.ask(expression)
        except CallError:
            raise
        except FabricscopeError as error:
            raise CallError(str(error)) from error
        if len(found) > ROWS_MAX:
            raise BoundError(f"{len(found)} rows of {expression!r}; at most {ROWS_MAX}")
        return Rows(tuple(Row(dict(one.labels), float(one.value)) for one in found))


# --- rows --------------------------------------------------------------------------------------


def first(rows: Rows | None) -> Row:
    if rows is None or not rows.rows:
        raise CallError("first() called on vector with no elements")
    return rows.rows[0]


def _row(row: Row | None) -> Row:
    if row is None:
        raise CallError(NIL_USED)
    return row


def value(row: Row | None) -> float:
    return _row(row).value


def label(name: str, row: Row | None) -> str:
    return _row(row).labels.get(name, "")


def strvalue(row: Row | None) -> str:
    return _row(row).labels.get("__value__", "")


def sort_by_label(name: str, rows: Rows | None) -> Rows:
    if rows is None:
        return Rows(())
    return Rows(tuple(sorted(rows.rows, key=lambda row: as_bytes(row.labels.get(name, "")))))


def arguments(*values: Value) -> Arguments:
    return Arguments({f"arg{number}": one for number, one in enumerate(values)})


# --- texts -------------------------------------------------------------------------------------


def _simple(character: str, changed: str) -> str:
    """Go changes character by character: what would become two stays."""
    return changed if len(changed) == 1 else character


def to_upper(text: str) -> str:
    return "".join(_simple(one, one.upper()) for one in text)


def to_lower(text: str) -> str:
    """In small letters; the one capital of which Unicode makes two characters becomes its first."""
    return "".join(one.lower()[0] for one in text)


def title(text: str) -> str:
    parts = []
    before = " "
    for one in text:
        parts.append(_simple(one, one.title()) if _separates(before) else one)
        before = one
    return "".join(parts)


def _separates(character: str) -> bool:
    if character.isascii():
        return not (character.isalnum() or character == "_")
    return not (character.isalpha() or character.isdecimal()) and character.isspace()


def _host_and_port(address: str) -> tuple[str, str] | None:
    """Both parts of `host:port` or `[host]:port`; None if it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return None
    if host.startswith("["):
        if not host.endswith("]"):
            return None
        host = host[1:-1]
    elif ":" in host:
        return None
    return None if any(one in "[]" for one in host + port) else (host, port)


def strip_port(address: str) -> str:
    parts = _host_and_port(address)
    return address if parts is None else parts[0]


def strip_domain(address: str) -> str:
    """A host's name without its domain; IP addresses stay whole, and ports stay."""
    host, port = _host_and_port(address) or (address, "")
    if _is_ip_address(host):
        return address
    name = host.split(".", 1)[0]
    if not port:
        return name
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def graph_link(expression: str) -> str:
    return f"/graph?g0.expr={built_in.escape_query(expression)}&g0.tab=0"


def table_link(expression: str) -> str:
    return f"/graph?g0.expr={built_in.escape_query(expression)}&g0.tab=1"


def _refuse_call(given: Value, *_values: Value) -> None:
    """No value here is a function."""
    raise CallError("call of nil" if given is None else f"non-function of type {type_name(given)}")


def _by_runner(*_values: Value) -> None:
    raise CallError("and, or are the runner's: they look at no more than they need")


_TWO = (REFLECTED, REFLECTED)
_PURE: Mapping[str, Function] = {
    "and": Function(_by_runner, (REFLECTED,), REFLECTED),
    "or": Function(_by_runner, (REFLECTED,), REFLECTED),
    "not": Function(built_in.negation, (REFLECTED,)),
    "call": Function(_refuse_call, (REFLECTED,), REFLECTED),
    "eq": Function(built_in.equal, (REFLECTED,), REFLECTED),
    "ne": Function(built_in.unequal, _TWO),
    "lt": Function(built_in.less, _TWO),
    "le": Function(built_in.less_or_equal, _TWO),
    "gt": Function(built_in.greater, _TWO),
    "ge": Function(built_in.greater_or_equal, _TWO),
    "html": Function(built_in.html, (), ANY),
    "js": Function(built_in.javascript, (), ANY),
    "urlquery": Function(built_in.url_query, (), ANY),
    "index": Function(built_in.index_of, (REFLECTED,), REFLECTED),
    "slice": Function(built_in.slice_of, (REFLECTED,), REFLECTED),
    "len": Function(built_in.length, (REFLECTED,)),
    "print": Function(lambda *values: printing.print_all(values), (), ANY),
    "println": Function(lambda *values: printing.print_line(values), (), ANY),
    "printf": Function(lambda form, *values: printing.printf(form, values), (STRING,), ANY),
    "first": Function(first, (ROWS,)),
    "label": Function(label, (STRING, ROW)),
    "value": Function(value, (ROW,)),
    "strvalue": Function(strvalue, (ROW,)),
    "sortByLabel": Function(sort_by_label, (STRING, ROWS)),
    "args": Function(arguments, (), ANY),
    "reReplaceAll": Function(patterns.replace_all, (STRING,) * 3, steps=PATTERN_STEPS),
    "match": Function(patterns.matches, (STRING, STRING), steps=PATTERN_STEPS),
    "safeHtml": Function(Html, (STRING,)),
    "title": Function(title, (STRING,)),
    "toUpper": Function(to_upper, (STRING,)),
    "toLower": Function(to_lower, (STRING,)),
    "graphLink": Function(graph_link, (STRING,)),
    "tableLink": Function(table_link, (STRING,)),
    "urlQueryEscape": Function(built_in.escape_query, (STRING,)),
    "stripPort": Function(strip_port, (STRING,)),
    "stripDomain": Function(strip_domain, (STRING,)),
    "humanize": Function(humanize.humanize, (ANY,)),
    "humanize1024": Function(humanize.humanize_1024, (ANY,)),
    "humanizeDuration": Function(humanize.humanize_duration, (ANY,)),
    "humanizePercentage": Function(humanize.humanize_percentage, (ANY,)),
    "humanizeTimestamp": Function(humanize.humanize_timestamp, (ANY,)),
    "toTime": Function(humanize.to_time, (ANY,)),
    "parseDuration": Function(humanize.parse_duration, (STRING,)),
}

NAMES = frozenset((*_PURE, "query", "now", "externalURL", "pathPrefix"))
