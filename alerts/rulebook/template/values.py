"""The values of templates by Go's types: Python's own, maps as dicts; no value is None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from alerts.rulebook.model import Found
from alerts.rulebook.template.errors import CallError


def no_answer(_expression: str) -> Sequence[Found]:
    """`query` where there is no store."""
    return ()


class TemplateData(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a template can use."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str] = {}
    external_url: str = ""
    query: Callable[[str], Sequence[Found]] = no_answer
    """Answers PromQL as of the evaluation's time. It may raise a FabricscopeError."""
    now_s: float = 0.0
    """The evaluation's time, unix seconds: what `now` gives."""
    name: str = "__alert_"
    """What errors call the template. Prometheus takes `__alert_` and the rule's name."""


class Html(str):
    """A text that its author calls safe; Go keeps it apart from others."""

    __slots__ = ()


class Byte(int):
    """One byte of a text."""

    __slots__ = ()


class Row(msgspec.Struct, frozen=True):
    """One row of a query's answer."""

    labels: dict[str, str]
    value: float


class Rows(msgspec.Struct, frozen=True):
    """A query's answer."""

    rows: tuple[Row, ...]


class Arguments(msgspec.Struct, frozen=True):
    """What `args` gives: its first argument is `arg0`."""

    by_name: dict[str, Value]


class Moment(msgspec.Struct, frozen=True):
    """A point in time, unix milliseconds: what `toTime` gives."""

    milliseconds: int


class Root(msgspec.Struct, frozen=True):
    """The dot at a template's begin."""

    labels: dict[str, str]
    external_labels: dict[str, str]
    external_url: str
    value: float


Value = None | bool | int | float | str | dict[str, str] | Row | Rows | Arguments | Moment | Root

STRING = "string"
ANY = "interface {}"
REFLECTED = "reflect.Value"
"""Any type, for functions that inspect it."""
ROWS = "template.queryResult"
ROW = "*template.sample"

_ROOT = (
    "struct { Labels map[string]string; ExternalLabels map[string]string; "
    "ExternalURL string; Value float64 }"
)
_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Byte, "uint8"),
    (int, "int"),
    (float, "float64"),
    (Html, "template.HTML"),
    (str, STRING),
    (dict, "map[string]string"),
    (Arguments, "map[string]interface {}"),
    (Rows, ROWS),
    (Row, ROW),
    (Moment, "*time.Time"),
    (Root, _ROOT),
)


def type_name(value: Value) -> str:
    if value is None:
        return "<nil>"
    return next(name for kind, name in _TYPES if isinstance(value, kind))


def fits(value: Value, wanted: str) -> bool:
    if wanted in (ANY, REFLECTED):
        return True
    return type_name(value) == wanted or (value is None and wanted in (ROWS, ROW))


def is_true(value: Value) -> bool:
    """Truth in `if`: whatever is not zero or empty."""
    match value:
        case Rows():
            return bool(value.rows)
        case Arguments():
            return bool(value.by_name)
        case Row() | Moment() | Root():
            return True
        case _:
            return bool(value)


def field_of(value: Value, name: str) -> Value:
    """A field of a struct, or an entry of a map; empty where a map has none. Raises CallError."""
    match value:
        case None:
            return None
        case dict():
            return value.get(name, "")
        case Arguments():
            return value.by_name.get(name)
        case _:
            fields = fields_of(value)
            if name not in fields:
                raise CallError(f"can't evaluate field {name} in type {type_name(value)}")
            return fields[name]


def fields_of(value: Value) -> Mapping[str, Value]:
    match value:
        case Row():
            return {"Labels": value.labels, "Value": value.value}
        case Root():
            return {
                "Labels": value.labels,
                "ExternalLabels": value.external_labels,
                "ExternalURL": value.external_url,
                "Value": value.value,
            }
        case _:
            return {}


def as_bytes(text: str) -> bytes:
    r"""A text as Go has it. Half a surrogate pair, which is no character, becomes a question mark.

    >>> as_bytes("é")
    b'\xc3\xa9'
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def as_text(content: bytes) -> str:
    """Bytes as a text; those that are no UTF-8 are kept, for `as_bytes`."""
    return content.decode("utf-8", "surrogateescape")
