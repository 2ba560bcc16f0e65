"""Panels that look alike on several boards, and the ways from one board to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from dashboards.grafana.limits import fine_until
from dashboards.grafana.model import Column, Draw, Jump, Panel, Query, Step, Unit

NOT_MEASURED = "not measured"
"""The text of a number without data: not the same as 0."""
ANY_IS_BAD = fine_until(bad=1)
ANY_IS_ODD = fine_until(warn=1)

TO_JOB = Jump(title="The job", to="job", variables={"job": "job"})
TO_HOST = Jump(title="The host", to="host", variables={"host": "host"})
TO_RANKS = Jump(title="Who waits for whom", to="ranks", variables={"job": "job"})
TO_SWITCH = Jump(title="The switch", to="switch", variables={"switch": "switch"})
TO_THIS_SWITCH = Jump(title="The switch", to="switch", variables={"switch": "host"})
"""From a row or a line whose host is the switch itself."""
TO_PORT = Jump(
    title="The port", to="port", variables={"host": "host", "device": "device", "port": "port"}
)
TO_SWITCH_PORT = Jump(
    title="The switch's port",
    to="port",
    variables={"host": "switch", "device": "switch", "port": "switch_port"},
)
"""On a switch host and device are the same."""


LABELS = {
    label: Column(label=label, title=title, jump=jump, width=width)
    for label, title, jump, width in (
        ("alertname", "Alert", None, None),
        ("cause", "Cause", None, None),
        ("cluster", "Cluster", None, None),
        ("device", "Device", TO_PORT, None),
        ("gpu", "GPU", None, 60),
        ("host", "Host", TO_HOST, None),
        ("job", "Job", TO_JOB, None),
        ("operation", "Operation", None, None),
        ("owner", "Owner", None, 90),
        ("peer_port", "Its port", None, None),
        ("port", "Port", TO_PORT, None),
        ("rank", "Rank", None, 60),
        ("reason", "Reason", None, None),
        ("severity", "Severity", None, 90),
        ("size", "Size", None, 90),
        ("source", "Source", None, None),
        ("switch", "Switch", TO_SWITCH, None),
        ("switch_port", "Switch port", TO_SWITCH_PORT, None),
    )
}
"""Columns of labels that several tables show: title, link and width in pixels."""


class Look(TypedDict, total=False):
    """Fields that few panels set; the meaning is `Panel`'s."""

    jump: Jump | None
    height: int
    least: float | None
    most: float | None
    decimals: int | None
    is_stacked: bool
    values: dict[str, str]
    sort_by: str
    empty_text: str


def named(labels: str) -> tuple[Column, ...]:
    """The usual columns of these labels, which are words of one text.

    >>> [column.title for column in named("host gpu")]
    ['Host', 'GPU']
    """
    return tuple(LABELS[label] for label in labels.split())


def value(title: str, unit: Unit | None = None, steps: Sequence[Step] = (), of: str = "") -> Column:
    """A column of numbers: those of the first query, or of the query with the letter ``of``."""
    label = f"Value #{of}" if of else "Value"
    return Column(label=label, title=title, unit=unit, steps=steps)


def asked(*exprs: str) -> tuple[Query, ...]:
    """The queries of a table or a number: only the last values."""
    return tuple(Query(expr=expr, is_instant=True) for expr in exprs)


def number(
    title: str,
    text: str,
    expr: str,
    steps: Sequence[Step] = ANY_IS_BAD,
    unit: Unit = Unit.NONE,
    decimals: int | None = 0,
) -> Panel:
    """A number of a first row, six of which stand beside each other."""
    return Panel(
        title=title,
        text=text,
        draw=Draw.NUMBER,
        queries=asked(expr),
        steps=steps,
        unit=unit,
        decimals=decimals,
        width=4,
        height=4,
        empty_text=NOT_MEASURED,
    )


def lines(
    title: str,
    text: str,
    queries: Mapping[str, str],
    unit: Unit = Unit.NONE,
    steps: Sequence[Step] = (),
    width: int = 12,
    silence: str = "",
    **look: Unpack[Look],
) -> Panel:
    """Lines over time; ``queries``: legend → expression. ``silence``: why none is good news."""
    return over_time(Draw.LINES, title, text, queries, unit, steps, width, silence, **look)


def over_time(
    draw: Draw,
    title: str,
    text: str,
    queries: Mapping[str, str],
    unit: Unit = Unit.NONE,
    steps: Sequence[Step] = (),
    width: int = 12,
    silence: str = "",
    **look: Unpack[Look],
) -> Panel:
    """The same as lines, states or a heat map."""
    look.setdefault("empty_text", silence)
    return Panel(
        title=title,
        text=text,
        draw=draw,
        queries=tuple(Query(expr=expr, legend=legend) for legend, expr in queries.items()),
        unit=unit,
        steps=steps,
        width=width,
        is_empty_fine=bool(silence),
        **look,
    )


def table(
    title: str,
    text: str,
    queries: Sequence[Query],
    columns: Sequence[Column],
    width: int = 12,
    silence: str = "",
    **look: Unpack[Look],
) -> Panel:
    """A table of the last values. ``silence``: why none is good news."""
    look.setdefault("empty_text", silence)
    return Panel(
        title=title,
        text=text,
        draw=Draw.TABLE,
        queries=queries,
        columns=columns,
        width=width,
        is_empty_fine=bool(silence),
        **look,
    )
