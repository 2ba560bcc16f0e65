"""Reads a dashboard's JSON, of which nothing is trusted: what is missing or odd is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Dashboard = Mapping[str, Any]


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; nothing of what is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def inside(value: object, *keys: str) -> object:
    """What stands below these keys; None where there is no such way."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def panels_of(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """All panels and rows, and below each row those that are folded into it."""
    for panel in objects(dashboard.get("panels")):
        yield panel
        yield from objects(panel.get("panels"))


def listed(dashboard: Dashboard, group: str) -> list[dict[str, Any]]:
    """The variables (`templating`) or the `annotations`."""
    return objects(inside(dashboard.get(group), "list"))
