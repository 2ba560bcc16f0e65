"""Shapes of panels, columns of tables, and boards made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, ParamSpec, TypedDict, Unpack

from msgspec.structs import replace

from dashboards.grafana import jumps, limits
from dashboards.grafana.model import (
    Board,
    Column,
    Draw,
    Jump,
    Panel,
    Query,
    Row,
    Scale,
    Unit,
    Variable,
)

NOT_MEASURED = "not measured"
"""The text of a number without data: not the same as 0."""

LABELS = {
    label: Column(label=label, title=title, jump=jump, width=width)
    for label, title, jump, width in (
        ("alertname", "Alert", None, None),
        ("cause", "Cause", None, None),
        ("cluster", "Cluster", None, None),
        ("device", "Device", jumps.TO_PORT, None),
        ("gpu", "GPU", None, 60),
        ("host", "Host", jumps.TO_HOST, None),
        ("job", "Job", jumps.TO_JOB, None),
        ("operation", "Operation", None, None),
        ("owner", "Owner", None, 90),
        ("peer_port", "Its port", None, None),
        ("port", "Port", jumps.TO_PORT, None),
        ("rank", "Rank", None, 60),
        ("reason", "Reason", None, None),
        ("severity", "Severity", None, 90),
        ("size", "Size", None, 90),
        ("source", "Source", None, None),
        ("switch", "Switch", jumps.TO_SWITCH, None),
        ("switch_port", "Switch port", jumps.TO_SWITCH_PORT, None),
    )
}
"""Columns of labels that several tables show: title, link and width in pixels."""
THIS_SWITCH = Column(label="host", title="Switch", jump=jumps.TO_THIS_SWITCH)


class Look(TypedDict, total=False):
    """The meaning is `Panel`'s."""

    jump: Jump | None
    width: int
    height: int
    least: float | None
    most: float | None
    decimals: int | None
    is_stacked: bool
    values: dict[str, str]
    sort_by: str
    silence: str


class Frame(TypedDict, total=False):
    """The meaning is `Board`'s."""

    title: str
    question: str
    tags: Sequence[str]
    variables: Sequence[Variable]
    since: str
    refresh: str
    has_incidents: bool


Numbers = Mapping[str | tuple[str, Scale | Unit], str]
"""Columns of a table: title, with the scale of its numbers if it has one → expression."""


def scaled(scale: Scale | Unit) -> Scale:
    return Scale(scale) if isinstance(scale, Unit) else scale


# --- one panel -----------------------------------------------------------------------------------

P = ParamSpec("P")


class Shape(Generic[P]):
    """Makes panels that look alike: called with a text and queries.

    ``make`` takes those; ``fields`` are fields of `Panel` that the shape sets.
    """

    def __init__(self, make: Callable[P, Panel], **fields: object) -> None:
        self._make = make
        self._fields = fields

    def of(self, scale: Scale | Unit | None = None, **look: Unpack[Look]) -> Shape[P]:
        fields: dict[str, object] = {**self._fields, **look}
        if silence := fields.pop("silence", None):
            fields |= {"is_empty_fine": True, "empty_text": silence}
        if scale is not None:
            fields |= {"unit": scaled(scale).unit or Unit.NONE, "steps": scaled(scale).steps}
        return Shape(self._make, **fields)

    def __call__(self, *args: P.args, **names: P.kwargs) -> Panel:
        return replace(self._make(*args, **names), **self._fields)


def of_number(text: str, expr: str, empty_text: str = NOT_MEASURED) -> Panel:
    return Panel(text=text, draw=Draw.NUMBER, queries=asked(expr), empty_text=empty_text)


def of_series(
    text: str, queries: Mapping[str, str], *, silence: str = "", empty_text: str = ""
) -> Panel:
    """``queries``: legend → expression. ``silence``: why none is good news."""
    made = tuple(Query(expr=expr, legend=legend) for legend, expr in queries.items())
    empty_text = empty_text or silence
    return Panel(text=text, queries=made, is_empty_fine=bool(silence), empty_text=empty_text)


def of_last_values(text: str, queries: Mapping[str, str], *, silence: str = "") -> Panel:
    panel = of_series(text, queries, silence=silence)
    return replace(panel, queries=[replace(query, is_instant=True) for query in panel.queries])


def of_table(
    text: str,
    labels: str | Sequence[Column],
    numbers: Numbers,
    *more: str,
    silence: str = "",
    empty_text: str = "",
) -> Panel:
    """The last values, the largest of the first column of numbers on top.

    ``labels``: columns, or words for `named`.
    ``more``: expressions that bring labels alone, or the numbers of columns among ``labels``.
    ``silence``: why none is good news.
    """
    heads = [(head, Scale()) if isinstance(head, str) else head for head in numbers]
    columns = [
        Column(
            label=f"Value #{chr(ord('A') + place)}" if place else "Value",
            title=title,
            unit=scaled(scale).unit,
            steps=scaled(scale).steps,
        )
        for place, (title, scale) in enumerate(heads)
    ]
    return Panel(
        text=text,
        draw=Draw.TABLE,
        queries=asked(*numbers.values(), *more),
        columns=(*(named(labels) if isinstance(labels, str) else labels), *columns),
        sort_by=heads[0][0] if heads else "",
        is_empty_fine=bool(silence),
        empty_text=empty_text or silence,
    )


number = Shape(of_number, decimals=0, width=4, height=4).of(limits.ANY_IS_BAD)
"""A number of a first row, six of which stand beside each other."""
lines = Shape(of_series)
states = Shape(of_series, draw=Draw.STATES)
heat = Shape(of_series, draw=Draw.HEAT)
bars = Shape(of_last_values, draw=Draw.BARS)
spread = Shape(of_last_values, draw=Draw.SPREAD)
table = Shape(of_table)


def asked(*exprs: str) -> tuple[Query, ...]:
    return tuple(Query(expr=expr, is_instant=True) for expr in exprs)


def named(labels: str) -> tuple[Column, ...]:
    """The usual columns of these labels, which are words of one text.

    >>> [column.title for column in named("host gpu")]
    ['Host', 'GPU']
    """
    return tuple(LABELS[label] for label in labels.split())


def titled(**titles: str) -> tuple[Column, ...]:
    """Columns of these labels without links: label → title."""
    return tuple(Column(label=label, title=title) for label, title in titles.items())


# --- the whole board -----------------------------------------------------------------------------


def thirds(panels: Mapping[str, Panel]) -> dict[str, Panel]:
    """Three beside each other: all that are as wide as a panel is by default."""
    usual = Panel(text="").width
    return {
        title: replace(panel, width=8) if panel.width == usual else panel
        for title, panel in panels.items()
    }


def leading_to_port(panel: Panel) -> Panel:
    """The panel with a link to the port's board, if all of its lines are named by their port."""
    is_of_ports = panel.draw in {Draw.LINES, Draw.STATES} and all(
        "{{port}}" in query.legend for query in panel.queries
    )
    return replace(panel, jump=panel.jump or jumps.TO_PORT) if is_of_ports else panel


def board(
    *,
    rows: Mapping[str, Mapping[str, Panel]],
    folded: Collection[str] = (),
    has_port_links: bool = False,
    **frame: Unpack[Frame],
) -> Board:
    """A board of rows and panels by their titles; ``folded``: titles of rows.

    ``has_port_links``: lines that each are a port's lead to the board of that port.
    """
    made = []
    for heading, panels in rows.items():
        titled = [replace(panel, title=title) for title, panel in panels.items()]
        if has_port_links:
            titled = [leading_to_port(panel) for panel in titled]
        made.append(Row(title=heading, panels=titled, is_folded=heading in folded))
    return Board(rows=made, **frame)
