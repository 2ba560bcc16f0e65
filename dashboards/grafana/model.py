"""What a dashboard is made of, before it is Grafana's JSON. Pure data.

Only what our boards need, with names of our own: `classic` turns it into Grafana's Classic JSON
and fills in everything that is the same everywhere. Units, thresholds' colours and the texts of
metrics come from the catalog and from one place here, so that the same thing looks the same on
every board.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec


class Draw(enum.StrEnum):
    """How a panel draws; the values are Grafana's names of its panels."""

    LINES = "timeseries"
    NUMBER = "stat"
    BARS = "bargauge"
    TABLE = "table"
    HEAT = "heatmap"
    """Lines' values as colours over time, one row for each series."""
    STATES = "state-timeline"
    SPREAD = "histogram"


class Unit(enum.StrEnum):
    """What a number means; the values are Grafana's ids of units."""

    NONE = "short"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    BITS_PER_SECOND = "bps"
    PACKETS_PER_SECOND = "pps"
    EVENTS_PER_SECOND = "cps"
    SECONDS = "s"
    RATIO = "percentunit"
    """0 to 1, shown as percent."""
    CELSIUS = "celsius"
    WATTS = "watt"
    HERTZ = "hertz"
    AMPERES = "amp"
    DECIBEL_MILLIWATTS = "dBm"
    HOURS = "h"
    SCIENTIFIC = "sci"
    MOMENT = "dateTimeAsIso"
    TEXT = "string"


class Colour(enum.StrEnum):
    """Meanings of colours, the same on every board."""

    FINE = "green"
    LOOK = "yellow"
    WARN = "orange"
    BAD = "red"
    PLAIN = "blue"
    GREY = "gray"


class Step(msgspec.Struct, frozen=True):
    """From this value on, this colour; None for the first: from the beginning."""

    value: float | None
    colour: Colour


class Scale(msgspec.Struct, frozen=True):
    """What numbers mean, and from which on they have which colour."""

    unit: Unit | None = None
    """None: the panel's own, with its words for values."""
    steps: Sequence[Step] = ()


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What a panel asks."""

    expr: str
    """PromQL with $variables; `$__rate_interval` where a rate is asked for."""
    legend: str = ""
    """With {{label}}s."""
    is_instant: bool = False
    """Only the value at the end of the range: tables and numbers."""


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """A link from a value to another board: time and variables go with it."""

    title: str
    to: str
    """The other board's file name: `host`, `port`, …"""
    variables: dict[str, str] = {}
    """The other board's variables from labels of the value or columns of the table: variable →
    label. Variables of the same name on both boards are carried over by themselves."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table."""

    label: str
    """The label, or `Value` (of the first query), `Value #B`, …"""
    title: str
    unit: Unit | None = None
    steps: Sequence[Step] = ()
    jump: Jump | None = None
    width: int | None = None


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """A table as a matrix: a row for each value of one label, a column for each of another.

    Of one instant query. Cells have the panel's unit and the colours of its steps. In Grafana:
    the transformations `convertFieldType` (numbers), `sortBy` and `groupingToMatrix`.
    """

    rows: str
    columns: str
    is_numeric: bool = False
    """The labels' values are numbers and sorted as such: ranks."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One picture and the question that it answers."""

    title: str = ""
    """Empty until the panel is put into a row."""
    text: str
    """What it shows, how to read it, what is usual: Grafana's description."""
    draw: Draw = Draw.LINES
    queries: Sequence[Query] = ()
    unit: Unit = Unit.NONE
    steps: Sequence[Step] = ()
    """Colours by value; on lines also a line across the panel."""
    columns: Sequence[Column] = ()
    """Of a table: these, in this order, and no others."""
    matrix: Matrix | None = None
    sort_by: str = ""
    """The title of the column that a table is sorted by, the largest first."""
    values: dict[str, str] = {}
    """Words for values: {"1": "down"}."""
    jump: Jump | None = None
    width: int = 12
    """Of 24."""
    height: int = 8
    least: float | None = 0.0
    most: float | None = None
    """The axis's ends; None: by what is drawn."""
    decimals: int | None = None
    is_stacked: bool = False
    is_empty_fine: bool = False
    """No data is good news (no incident, no error): then the panel shows ``empty_text``."""
    empty_text: str = ""
    """Shown instead of data; empty: a default."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Panels under one heading, flowing from left to right."""

    title: str
    panels: Sequence[Panel]
    is_folded: bool = False


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A choice at the top of the board."""

    name: str
    title: str
    query: str
    """`label_values(METRIC{…}, LABEL)`."""
    is_many: bool = False
    is_all_default: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A dashboard: one question a person asks."""

    title: str
    question: str
    """What it answers, in one sentence: Grafana's description."""
    tags: Sequence[str] = ()
    variables: Sequence[Variable] = ()
    """Besides the datasource, which every board has; in the order in which they depend on each
    other. Shared ones are in `dashboards.grafana.variables`."""
    rows: Sequence[Row]
    since: str = "now-1h"
    refresh: str = "30s"
    has_incidents: bool = True
