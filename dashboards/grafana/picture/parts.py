"""The parts of Grafana's Classic JSON that a picture is drawn from; everything else is left out."""

from __future__ import annotations

from typing import Any

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where a panel stands, in cells of Grafana's grid."""

    h: int
    w: int
    x: int
    y: int


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """A question of a panel."""

    expr: str
    ref_id: str = "A"
    legend_format: str = ""
    instant: bool = False


class Limit(msgspec.Struct, frozen=True):
    """From this value on, this colour."""

    color: str
    value: float | None = None


class Limits(msgspec.Struct, frozen=True):
    """Colours by value, from the lowest."""

    steps: list[Limit] = []


class Defaults(msgspec.Struct, frozen=True, rename="camel"):
    """How values are shown."""

    unit: str = "short"
    thresholds: Limits = Limits()
    min: float | None = None
    max: float | None = None
    decimals: int | None = None
    mappings: list[dict[str, Any]] = []
    no_value: str = ""
    custom: dict[str, Any] = {}
    color: dict[str, Any] = {}


class Property(msgspec.Struct, frozen=True):
    """One thing that is different about a field."""

    id: str
    value: Any = None


class Matcher(msgspec.Struct, frozen=True):
    """Which field it is about."""

    id: str
    options: Any = None


class Override(msgspec.Struct, frozen=True):
    """What is different about some fields."""

    matcher: Matcher
    properties: list[Property] = []


class FieldConfig(msgspec.Struct, frozen=True):
    """How values are shown, and exceptions."""

    defaults: Defaults = Defaults()
    overrides: list[Override] = []


class Transformation(msgspec.Struct, frozen=True):
    """What Grafana does to an answer before it is drawn."""

    id: str
    options: dict[str, Any] = {}


class Panel(msgspec.Struct, frozen=True, rename="camel"):
    """A panel, or the heading of a row."""

    type: str
    grid_pos: Place
    title: str = ""
    targets: list[Target] = []
    field_config: FieldConfig = FieldConfig()
    options: dict[str, Any] = {}
    transformations: list[Transformation] = []
    collapsed: bool = False
    panels: list[Panel] = []
    repeat: str = ""


class Current(msgspec.Struct, frozen=True):
    """What is chosen when a board is opened."""

    value: str | list[str] = ""


class Variable(msgspec.Struct, frozen=True, rename="camel"):
    """A choice at the top."""

    type: str
    name: str
    label: str = ""
    query: str = ""
    multi: bool = False
    include_all: bool = False
    all_value: str = ".*"
    current: Current = Current()


class Templating(msgspec.Struct, frozen=True, rename={"variables": "list"}):
    """All choices."""

    variables: list[Variable] = []


class Annotation(msgspec.Struct, frozen=True, rename="camel"):
    """What is drawn over all panels."""

    expr: str = ""
    name: str = ""
    icon_color: str = "red"


class Annotations(msgspec.Struct, frozen=True, rename={"layers": "list"}):
    """All of them."""

    layers: list[Annotation] = []


class Dashboard(msgspec.Struct, frozen=True):
    """A board."""

    title: str
    panels: list[Panel]
    uid: str = ""
    description: str = ""
    templating: Templating = Templating()
    annotations: Annotations = Annotations()


def read(dashboard: dict[str, Any]) -> Dashboard:
    """The board from its JSON; raises msgspec.ValidationError where it is none."""
    return msgspec.convert(dashboard, Dashboard)


def shown_panels(board: Dashboard) -> list[Panel]:
    """Every panel of a board, in order, folded ones too; headings are left out."""
    found: list[Panel] = []
    for panel in board.panels:
        found += [panel] if panel.type != "row" else panel.panels
    return found
