"""Panels that look alike on several boards, and the ways from one board to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.grafana.model import Colour, Draw, Jump, Panel, Query, Step, Unit

NOT_MEASURED = "not measured"
"""What a number says where there is nothing to count: not the same as none."""
ANY_IS_BAD = (Step(None, Colour.FINE), Step(1, Colour.BAD))
ANY_IS_ODD = (Step(None, Colour.FINE), Step(1, Colour.WARN))

TO_JOB = Jump(title="The job", to="job", variables={"job": "job"})
TO_HOST = Jump(title="The host", to="host", variables={"host": "host"})
TO_SWITCH = Jump(title="The switch", to="switch", variables={"switch": "switch"})
TO_PORT = Jump(
    title="The port", to="port", variables={"host": "host", "device": "device", "port": "port"}
)
TO_SWITCH_PORT = Jump(
    title="The switch's port",
    to="port",
    variables={"host": "switch", "device": "switch", "port": "switch_port"},
)
"""On a switch host and device are the same."""


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
) -> Panel:
    """Lines over time; ``queries``: legend → expression. ``silence``: why none is good news."""
    return Panel(
        title=title,
        text=text,
        queries=tuple(Query(expr=expr, legend=legend) for legend, expr in queries.items()),
        unit=unit,
        steps=steps,
        width=width,
        is_empty_fine=bool(silence),
        empty_text=silence,
    )
