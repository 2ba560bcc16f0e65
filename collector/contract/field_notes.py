"""The notes below the fields of settings, from their own source: one text for all who show them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec


class SettingField(NamedTuple):
    """One setting; ``default`` is a Struct for a table of its own."""

    name: str
    default: Any
    """`msgspec.NODEFAULT`: it must be given."""
    note: str


def setting_fields(kind: type[msgspec.Struct]) -> Iterator[SettingField]:
    """Every setting of a kind, in its order, with what stands below it in the source."""
    notes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if isinstance(base, type) and issubclass(base, msgspec.Struct) and base.__annotations__:
            notes |= field_notes(base)
    for field in msgspec.structs.fields(kind):
        default: Any = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield SettingField(field.name, default, notes.get(field.name, ""))


def field_notes(kind: type) -> dict[str, str]:
    """The docstring below each field of a class, by field."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    notes: dict[str, str] = {}
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            notes[statement.target.id] = note_in(following)
    return notes


def note_in(statement: ast.stmt | None) -> str:
    """The text of a statement that is a docstring, else nothing."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value).replace("``", "`")
    return ""
