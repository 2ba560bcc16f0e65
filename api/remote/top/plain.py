"""One output as text or JSON: for pipes, logs, and simple terminals."""

from __future__ import annotations

import datetime as dt

import msgspec
from rich.text import Text

from api.remote.top.layout import wrap
from api.remote.top.model import Order, Picture, View
from api.remote.top.screen import LISTS, Screen
from api.remote.top.views import Stage, listing, now, numbers
from api.remote.top.words import moment

ALL_LINES = 1_000_000
"""Nothing is left out: there is no screen that it must fit on."""


def as_json(picture: Picture) -> str:
    """The picture for programs; texts are as clean as on the screen."""
    return msgspec.json.format(msgspec.json.encode(picture), indent=2).decode()


def as_lines(
    picture: Picture,
    views: frozenset[View],
    order: Order,
    *,
    url: str,
    width: int,
    zone: dt.tzinfo | None = None,
) -> list[Text]:
    stage = Stage(width=width, height=ALL_LINES, url=url, now_s=picture.time_s, zone=zone)
    clock = moment(picture.time_s, picture.time_s, zone)
    lines = [
        Text(f"Fabricscope at {url}, {clock}"),
        Text(numbers(picture.fleet, picture.incidents)),
    ]
    for view in LISTS:
        if view not in views:
            continue
        screen = Screen(view=view, order=order)
        shown = screen.listed(picture)
        lines += [Text(""), Text(view.title(), "bold")]
        if view is View.NOW:
            lines += now(picture, shown, -1, stage, ALL_LINES)
        else:
            lines += listing(screen, picture, shown, -1, stage, ALL_LINES)
    for part, why in picture.problems.items():
        lines += wrap(f"not answered: {part}: {why}", width, "yellow")
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.rstrip()
    return lines
