"""JSON for review: what fits on a line stands on a line, so a changed field is one changed line."""

import json

LINE_MAX = 120
"""Characters of a line, its indent included."""


def compact(value: object, indent: int = 0, before: int = 0) -> str:
    """The value as JSON with sorted keys; `before` is how much its own line has in front."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(line) + max(indent, before) <= LINE_MAX or not isinstance(value, dict | list):
        return line
    inner, outer = " " * (indent + 1), " " * indent
    if isinstance(value, list):
        parts = [compact(one, indent + 1) for one in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}]"
    parts = []
    for key in sorted(value):
        name = f"{json.dumps(key)}: "
        parts.append(inner + name + compact(value[key], indent + 1, indent + 1 + len(name)))
    return "{\n" + ",\n".join(parts) + f"\n{outer}}}"
