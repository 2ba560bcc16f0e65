"""JSON schemas as HTML: fields in a table, named schemas as links to their own place. Pure."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from api.http.schema_names import shown_name

DEPTH_MAX = 8
"""Schemas nest to three; deeper is a circle, or nothing that a table shows."""
REFERENCE = "#/components/schemas/"
_NOTHING = {"type": "null"}


def prose(text: str) -> str:
    """Text as HTML: backquotes become code, lines flow, paragraphs stay."""
    flowing = re.sub(r"(?<!\n)\n(?!\n)", " ", escape(text, quote=False))
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", flowing)


def schema_place(name: str) -> str:
    """Where a named schema stands on the page."""
    return "schema-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def render_schema(schema: dict[str, Any], depth: int = 0) -> str:
    """What a value looks like; the fields of an object in a table."""
    fields = schema.get("properties")
    if not fields or depth >= DEPTH_MAX:
        inner = inner_object(schema)
        if inner is not None and depth < DEPTH_MAX:
            return f"<p>{kind_of(schema)}, each:</p>{render_schema(inner, depth + 1)}"
        return f"<p>{kind_of(schema)}</p>"
    needed = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{'' if name in needed else ' <i>optional</i>'}</td>"
        f"<td>{kind_of(field)}</td><td>{prose(field.get('description', ''))} "
        f"{escape(limits(field))}{below(field, depth)}</td></tr>"
        for name, field in fields.items()
    )
    return f"<table><tr><th>field<th>kind<th>meaning</tr>{rows}</table>"


def below(field: dict[str, Any], depth: int) -> str:
    """The fields of an object that has no name of its own."""
    inner = field if field.get("properties") else inner_object(field)
    if inner is None or depth + 1 >= DEPTH_MAX:
        return ""
    return f"<details><summary>fields</summary>{render_schema(inner, depth + 1)}</details>"


def inner_object(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The object inside a list, or inside what may be null; None: there is none without a name."""
    others = [each for each in schema.get("anyOf", ()) if each != _NOTHING]
    found = schema.get("items") or (others[0] if len(others) == 1 else None)
    if not isinstance(found, dict) or "$ref" in found:
        return None
    return found if found.get("properties") else inner_object(found)


def kind_of(schema: dict[str, Any]) -> str:
    """A few words: `number or null`, `list of LinkOut` with a link."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(REFERENCE)
        return f"<a href='#{schema_place(name)}'>{escape(shown_name(name))}</a>"
    for way in ("anyOf", "oneOf", "allOf"):
        if way in schema:
            return " or ".join(dict.fromkeys(kind_of(each) for each in schema[way]))
    if "enum" in schema or "const" in schema:
        return " or ".join(
            f"<code>{escape(str(value))}</code>"
            for value in schema.get("enum", [schema.get("const")])
        )
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {kind_of(schema.get('items') or {})}"
    return escape(" or ".join(kind) if isinstance(kind, list) else str(kind))


def limits(schema: dict[str, Any]) -> str:
    words = []
    if schema.get("default") is not None:
        words.append(f"default {schema['default']}")
    if "minimum" in schema:
        words.append(f"{schema['minimum']} to {schema.get('maximum', '…')}")
    if "enum" in schema:
        words.append(" or ".join(map(str, schema["enum"])))
    return f"({'; '.join(words)})" if words else ""
