"""What differs between two dashboards, in words and as a diff. Pure.

Grafana stores a dashboard as it was sent, adds its own `id` and `version`, and newer ones bring the
JSON up to their own schema when they are asked for it. So what was pushed is known again by its
fingerprint, which stands in the version history, and compared only where that is missing.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from dashboards.grafana.classic import text_of_json
from dashboards.grafana.structure import Dashboard, listed, panels_of

GRAFANA_S_OWN = frozenset({"id", "version", "iteration"})
"""What Grafana writes into a dashboard: where it stands in its database, how often it was saved."""
MESSAGE_START = "fabricscope push "
FINGERPRINT_BYTES = 12
"""Enough that two boards never meet, short enough to be read."""
DIFF_LINES_MAX = 2_000
"""Of a diff that is shown. A board of ours has as many lines; more is a different board."""
PARTS_MAX = 40
"""Panels and variables that are named one by one; of more the number is given."""

_FINGERPRINT = re.compile(rf"{MESSAGE_START}([0-9a-f]{{{2 * FINGERPRINT_BYTES}}})")


def normalised(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard without what Grafana adds.

    >>> normalised({"id": 7, "title": "Fleet", "version": 3})
    {'title': 'Fleet'}
    """
    return {key: value for key, value in dashboard.items() if key not in GRAFANA_S_OWN}


def text_of(dashboard: Dashboard) -> str:
    return text_of_json(normalised(dashboard))


def fingerprint(dashboard: Dashboard) -> str:
    return blake2b(text_of(dashboard).encode(), digest_size=FINGERPRINT_BYTES).hexdigest()


def push_message(dashboard: Dashboard) -> str:
    return f"{MESSAGE_START}{fingerprint(dashboard)}"


def pushed_fingerprint(message: str) -> str:
    """The fingerprint in a message of the version history; empty: not a message of ours.

    >>> pushed_fingerprint("Restored from version 2")
    ''
    """
    found = _FINGERPRINT.fullmatch(message)
    return found[1] if found else ""


def parts(dashboard: Dashboard) -> dict[str, Any]:
    named: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for kind, title, content in _named_parts(dashboard):
        name = f"{kind} {title!r}"
        seen[name] += 1
        number = f" ({seen[name]})" if seen[name] > 1 else ""
        named[f"{name}{number}"] = content
    return named


def _named_parts(dashboard: Dashboard) -> Iterator[tuple[str, str, Any]]:
    for panel in panels_of(dashboard):
        kind = "row" if panel.get("type") == "row" else "panel"
        # Where a row is folded its panels stand in it; they are parts of their own.
        rest = {key: value for key, value in panel.items() if key != "panels"}
        yield kind, str(panel.get("title", "")), rest
    for group, kind in (("templating", "variable"), ("annotations", "annotation")):
        for one in listed(dashboard, group):
            yield kind, str(one.get("name", "")), one
    for key, value in normalised(dashboard).items():
        if key not in {"panels", "templating", "annotations"}:
            yield "setting", key, value


def describe(old: Dashboard, new: Dashboard) -> tuple[str, ...]:
    """What changes from one to the other, a line for each part.

    >>> describe({"title": "A", "panels": []}, {"title": "B", "panels": [{"title": "Load"}]})
    ("+ panel 'Load'", "~ setting 'title'")
    """
    before, after = parts(old), parts(new)
    lines = [f"+ {name}" for name in after if name not in before]
    lines += [f"- {name}" for name in before if name not in after]
    lines += [
        f"~ {name}{_keys(before[name], after[name])}"
        for name in after
        if name in before and before[name] != after[name]
    ]
    more = len(lines) - PARTS_MAX
    return (*lines[:PARTS_MAX], *([f"and {more} more"] if more > 0 else []))


def _keys(old: object, new: object) -> str:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return ""
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return f" ({', '.join(keys)})"


def unified(old: Dashboard, new: Dashboard) -> str:
    """The same as a unified diff of the texts, cut at DIFF_LINES_MAX."""
    lines = list(
        difflib.unified_diff(
            text_of(old).splitlines(), text_of(new).splitlines(), "in Grafana", "ours", lineterm=""
        )
    )
    more = len(lines) - DIFF_LINES_MAX
    if more > 0:
        lines = [*lines[:DIFF_LINES_MAX], f"… and {more} lines more"]
    return "\n".join(lines)
