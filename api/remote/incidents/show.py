"""An incident on a terminal: the service's Markdown, drawn for a screen or as it is."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markdown import Markdown

from api.remote.client import Client, quoted
from collector.contract.identity import printable

TEXT_COLUMNS = 140
"""The width without a terminal."""


def path_of(incident: str, what: str = "") -> str:
    return f"/v1/incidents/{quoted(incident)}{what}"


def read_markdown(client: Client, incident: str) -> str:
    """The incident as Markdown, without signs that steer a terminal. Raises ServiceError."""
    text = client.read(path_of(incident, ".md")).decode("utf-8", "replace")
    return "".join(f"{printable(line)}\n" for line in text.splitlines())


def show(text: str, *, is_drawn: bool | None = None) -> None:
    """Print Markdown: drawn on a terminal, as it is elsewhere."""
    if not (sys.stdout.isatty() if is_drawn is None else is_drawn):
        sys.stdout.write(text)
        return
    Console(highlight=False, emoji=False).print(Markdown(text, hyperlinks=False))
