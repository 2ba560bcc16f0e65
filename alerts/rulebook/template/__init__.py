"""The part of Go's templates that rule files use, with Prometheus' functions. Pure.

`lex` splits a template into words, `parse` makes a tree (`nodes`) of them, `run` goes through it
with the `functions`; `printing` is Go's `fmt`. Errors are Go's, word for word where a user may see
them, so that a search for one finds what others have written about it.

>>> data = TemplateData(labels={"host": "a"}, value=1e9)
>>> expand("{{ $labels.host }}: {{ $value | humanize }}", data)
'a: 1G'
"""

from __future__ import annotations

from functools import lru_cache

from alerts.rulebook.template.bounds import CACHED_MAX, CACHED_TEXT_MAX
from alerts.rulebook.template.errors import TemplateError
from alerts.rulebook.template.functions import NAMES
from alerts.rulebook.template.nodes import Template
from alerts.rulebook.template.parse import parse
from alerts.rulebook.template.run import run
from alerts.rulebook.template.values import TemplateData, as_bytes

__all__ = ["TemplateData", "TemplateError", "check", "expand", "expand_or_say"]


@lru_cache(CACHED_MAX)
def _kept(text: str) -> Template:
    """Cached: rules are expanded at every evaluation, and parsing costs most of the time."""
    return parse(text, NAMES)


def _parsed(text: str) -> Template:
    return _kept(text) if len(text) <= CACHED_TEXT_MAX else parse(text, NAMES)


def expand(text: str, data: TemplateData) -> str:
    """Raises TemplateError."""
    if "{{" not in text:
        return text
    expanded = run(_parsed(text), data)
    # Parts of characters, which `slice` can make, must not get into a label or a notice.
    return as_bytes(expanded).decode("utf-8", "replace")


def check(text: str) -> None:
    """Raise TemplateError for a template that Prometheus would refuse to load."""
    _parsed(text)


def expand_or_say(text: str, data: TemplateData) -> str:
    """The text expanded, or why that was not possible, as Prometheus writes it in its place."""
    try:
        return expand(text, data)
    except TemplateError as error:
        return f"<error expanding template: {error.as_prometheus(data.name)}>"
