"""SVG: a few shapes, and text that cannot become markup whatever a label says."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import NamedTuple

BACKGROUND = "#111217"
PANEL = "#181b1f"
BORDER = "#2c3235"
GRID = "#2a2d33"
TEXT = "#d8d9da"
FAINT = "#9a9ca3"
LINK = "#6e9fff"

NAMED = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "gray": "#8e8e95",
    "dark-orange": "#fa6400",
}
"""Grafana's names of colours, in its dark theme."""
PALETTE = (
    "#73bf69",
    "#f2cc0c",
    "#8ab8ff",
    "#ff780a",
    "#f2495c",
    "#5794f2",
    "#b877d9",
    "#705da0",
    "#37872d",
    "#fade2a",
    "#447ebc",
    "#c15c17",
    "#890f02",
    "#0a437c",
    "#6d1f62",
    "#96d98d",
)
"""Of series, one after the other."""
LETTER_SHARE = 0.55
"""A letter's width by its height, in the mean of plain text."""
MARGIN = 8.0

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Box(NamedTuple):
    """A place on the page, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.top + self.height

    def inner(self, left: float, top: float, right: float, bottom: float) -> Box:
        """What is left inside of margins; never less than nothing."""
        return Box(
            self.left + left,
            self.top + top,
            max(0.0, self.width - left - right),
            max(0.0, self.height - top - bottom),
        )


def escaped(said: str) -> str:
    """A text that is only text: no markup, and nothing that XML does not allow.

    >>> escaped('<script>"x"&')
    '&lt;script&gt;&quot;x&quot;&amp;'
    """
    return html.escape(NOT_IN_XML.sub("\ufffd", said), quote=True)


def colour(name: str) -> str:
    """A colour by Grafana's name or as it is written; anything that is neither is grey."""
    if name in NAMED:
        return NAMED[name]
    return name if re.fullmatch(r"#[0-9a-fA-F]{3,8}", name) else NAMED["gray"]


def fitting(said: str, width: float, size: float) -> str:
    """As much of a text as fits, with an ellipsis where some does not."""
    room = max(1, int(width / (size * LETTER_SHARE)))
    return said if len(said) <= room else said[: max(0, room - 1)] + "…"


def text(
    x: float,
    y: float,
    said: str,
    *,
    size: float = 12,
    fill: str = TEXT,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """A line of text whose baseline is at ``y``."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}"'
        f' text-anchor="{anchor}" font-weight="{weight}">{escaped(said)}</text>'
    )


def rect(
    box: Box, fill: str, *, stroke: str = "none", radius: float = 0, opacity: float = 1
) -> str:
    """A filled rectangle."""
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" fill="{fill}" stroke="{stroke}" rx="{radius:g}"'
        f' fill-opacity="{opacity:g}"/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, dash: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{dashed}/>'
    )


def path(points: Iterable[tuple[float, float]], stroke: str, *, width: float = 1.3) -> str:
    """Points joined by lines."""
    said = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{said}" fill="none" stroke="{stroke}" stroke-width="{width:g}"/>'


def area(points: Iterable[tuple[float, float]], fill: str, opacity: float) -> str:
    """A filled shape."""
    said = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{said}" fill="{fill}" fill-opacity="{opacity:g}"/>'


def dot(x: float, y: float, fill: str) -> str:
    """A point that no line leads to."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{fill}"/>'
