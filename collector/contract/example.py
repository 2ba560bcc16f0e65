"""A whole configuration as TOML, from the settings' own definitions: every setting with its note.

Settings are commented out with their defaults (`#name = value`, no space after the `#`; notes have
one), so that the file changes nothing until a line is uncommented, and shows what would change.
"""

from __future__ import annotations

import enum
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from collector.contract.field_notes import setting_fields

COLUMNS = 96


def example_of(
    kind: type[msgspec.Struct],
    *,
    title: str,
    tables: Mapping[str, type[msgspec.Struct]] | None = None,
    left_out: frozenset[str] = frozenset(),
) -> str:
    """The file's text; ``tables``: more tables by their name, after the settings of ``kind``."""
    lines = [*note_lines(title), *table_lines(kind, "", left_out)]
    for name, table in (tables or {}).items():
        lines += ["", f"[{name}]", *table_lines(table, f"{name}.", frozenset())]
    return "\n".join(lines) + "\n"


def table_lines(kind: type[msgspec.Struct], path: str, left_out: frozenset[str]) -> Iterator[str]:
    """The settings of a table; its own tables come last, as TOML wants it."""
    inner: list[str] = []
    for name, default, note in setting_fields(kind):
        if name in left_out:
            continue
        if isinstance(default, msgspec.Struct):
            inner += ["", *note_lines(note or (type(default).__doc__ or "").split("\n\n")[0])]
            inner += [f"[{path}{name}]", *table_lines(type(default), f"{path}{name}.", frozenset())]
            continue
        yield ""
        yield from note_lines(note)
        value = toml_value(default)
        yield f"#{name} = {value}" if value is not None else f"# {name} has no default."
    yield from inner


def note_lines(note: str) -> list[str]:
    text = re.sub(r"\s+", " ", note).strip()
    return [f"# {line}" for line in textwrap.wrap(text, COLUMNS - 2)]


def toml_value(value: Any) -> str | None:  # noqa: ANN401 - any setting's default
    """As TOML writes it; None: TOML has no word for it.

    >>> toml_value(["a", 1.5, True]), toml_value({"rack": "r1"}), toml_value(None)
    ('["a", 1.5, true]', '{ "rack" = "r1" }', None)
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool | str | int | float):
        # JSON's escapes are among TOML's, but for the characters beyond 16 bits.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple | set | frozenset):
        items = [toml_value(item) for item in value]
        return None if None in items else f"[{', '.join(filter(None, items))}]"
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key))} = {toml_value(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return None
