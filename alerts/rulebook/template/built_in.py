"""The functions that Go gives to every template."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from urllib.parse import quote_plus

from alerts.rulebook.template import printing
from alerts.rulebook.template.errors import CallError
from alerts.rulebook.template.values import (
    Arguments,
    Byte,
    Moment,
    Root,
    Row,
    Rows,
    Value,
    as_bytes,
    as_text,
    is_true,
    type_name,
)

_HTML = str.maketrans(
    {'"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"}
)
_JAVASCRIPT = {
    "\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026",
    "=": "\\u003D",
}  # fmt: skip
_SLICE_INDEXES_MAX = 3


def negation(value: Value) -> bool:
    return not is_true(value)


def length(value: Value) -> int:
    match value:
        case None:
            raise CallError("reflect: call of reflect.Value.Type on zero Value")
        case str():
            return len(as_bytes(value))
        case dict():
            return len(value)
        case Arguments():
            return len(value.by_name)
        case Rows():
            return len(value.rows)
        case _:
            raise CallError(f"len of type {_pointed_at(value)}")


def _pointed_at(value: Value) -> str:
    return type_name(value).removeprefix("*")


def _place(index: Value, size: int) -> int:
    """An index within a text or an answer; the size itself is one, for slices."""
    if index is None:
        raise CallError("cannot index slice/array with nil")
    if isinstance(index, bool) or not isinstance(index, int):
        raise CallError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= size:
        raise CallError(f"index out of range: {index}")
    return index


def index_of(value: Value, *indexes: Value) -> Value:
    if value is None:
        raise CallError("index of untyped nil")
    for index in indexes:
        value = _at(value, index)
    return value


def _at(value: Value, index: Value) -> Value:
    match value:
        case dict() | Arguments():
            if index is None:
                raise CallError("value is nil; should be of type string")
            if type_name(index) != "string":
                raise CallError(f"value has type {type_name(index)}; should be string")
            name = str(index)
            return value.get(name, "") if isinstance(value, dict) else value.by_name.get(name)
        case Rows():
            place = _place(index, len(value.rows))
            if place == len(value.rows):
                raise CallError("reflect: slice index out of range")
            return value.rows[place]
        case str():
            content = as_bytes(value)
            place = _place(index, len(content))
            if place == len(content):
                raise CallError("reflect: string index out of range")
            return Byte(content[place])
        case None:
            raise CallError("index of nil pointer")
        case _:
            raise CallError(f"can't index item of type {_pointed_at(value)}")


def slice_of(value: Value, *indexes: Value) -> Value:
    if value is None:
        raise CallError("slice of untyped nil")
    if len(indexes) > _SLICE_INDEXES_MAX:
        raise CallError(f"too many slice indexes: {len(indexes)}")
    if isinstance(value, str):
        if len(indexes) == _SLICE_INDEXES_MAX:
            raise CallError("cannot 3-index slice a string")
        content = as_bytes(value)
        begin, end = _bounds(indexes, len(content))
        return as_text(content[begin:end])
    if isinstance(value, Rows):
        begin, end = _bounds(indexes, len(value.rows))
        return Rows(value.rows[begin:end])
    raise CallError(f"can't slice item of type {type_name(value)}")


def _bounds(indexes: Sequence[Value], size: int) -> tuple[int, int]:
    places = [_place(index, size) for index in indexes]
    for low, high in itertools.pairwise(places):
        if low > high:
            raise CallError(f"invalid slice index: {low} > {high}")
    begin = places[0] if places else 0
    end = places[1] if len(places) > 1 else size
    return begin, end


def _kind(value: Value) -> str:
    """Which values can be compared: those of one kind."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "string"
        case _:
            return ""


def _check_comparable(value: Value) -> None:
    if isinstance(value, dict | Arguments | Rows | Root):
        raise CallError(f"non-comparable type {printing.show(value)}: {type_name(value)}")


def equal(first: Value, *others: Value) -> bool:
    if not others:
        raise CallError("missing argument for comparison")
    for other in others:
        if _kind(first) != _kind(other):
            if first is not None and other is not None:
                raise CallError("incompatible types for comparison")
            continue
        _check_comparable(other)
        is_same = first is other if isinstance(first, Row | Moment) else first == other
        if is_same:
            return True
    return False


def unequal(first: Value, second: Value) -> bool:
    return not equal(first, second)


def less(first: Value, second: Value) -> bool:
    if not _kind(first) or not _kind(second):
        raise CallError("invalid type for comparison")
    if isinstance(first, str) and isinstance(second, str):
        return as_bytes(first) < as_bytes(second)
    if _kind(first) != _kind(second):
        raise CallError("incompatible types for comparison")
    if isinstance(first, bool):
        raise CallError("invalid type for comparison")
    assert isinstance(first, int | float), "texts and bools are done with"
    assert isinstance(second, int | float), "it is of the same kind"
    return first < second


def less_or_equal(first: Value, second: Value) -> bool:
    return less(first, second) or equal(first, second)


def greater(first: Value, second: Value) -> bool:
    """The opposite of `le`, for what is no number too: that is what Go does."""
    return not less_or_equal(first, second)


def greater_or_equal(first: Value, second: Value) -> bool:
    return not less(first, second)


def html(*values: Value) -> str:
    """Texts that may stand in HTML."""
    return _together(values).translate(_HTML)


def javascript(*values: Value) -> str:
    """Texts that may stand between quotes of JavaScript."""
    return "".join(map(_javascript_character, _together(values)))


def _javascript_character(character: str) -> str:
    if character in _JAVASCRIPT:
        return _JAVASCRIPT[character]
    if character.isprintable():
        return character
    return f"\\u{ord(character):04X}"


def url_query(*values: Value) -> str:
    """Texts that may stand in an address behind the question mark."""
    return escape_query(_together(values))


def escape_query(text: str) -> str:
    return quote_plus(as_bytes(text))


def _together(values: Sequence[Value]) -> str:
    if len(values) == 1 and isinstance(values[0], str):
        return str(values[0])
    shown: list[Value] = ["<no value>" if one is None else one for one in values]
    return printing.print_all(shown, follows=True)
