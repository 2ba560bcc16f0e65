"""The documented structure of a Classic dashboard, strict: what it does not name is refused.

Grafana publishes it in its SDK and in its documentation of the JSON model; this is the part that a
generated dashboard may use, in our words. Two things are stricter here: what Grafana fills in when
it is missing must be there, and what only Grafana writes (`id`, `version`, snapshots) must not.
Options of panels and of queries are free here; `test_grafana_types` looks into those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

Text = Annotated[str, msgspec.Meta(min_length=1)]
Free = dict[str, object]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object that has these keys and no others."""


class Source(Strict):
    """A reference to a data source."""

    type: Text
    uid: Text


class Place(Strict):
    """Where a panel stands in a grid of 24 columns."""

    h: Annotated[int, msgspec.Meta(ge=1)]
    w: Annotated[int, msgspec.Meta(ge=1, le=24)]
    x: Annotated[int, msgspec.Meta(ge=0, lt=24)]
    y: Annotated[int, msgspec.Meta(ge=0)]


class Threshold(Strict):
    """A colour from a value on; the first from the beginning."""

    color: Text
    value: float | None


class Thresholds(Strict):
    """Colours by value."""

    mode: Literal["absolute", "percentage"]
    steps: Annotated[list[Threshold], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        """They ascend, and only the first has no value."""
        first, *rest = [step.value for step in self.steps]
        values = [value for value in rest if value is not None]
        if first is not None or len(values) != len(rest) or values != sorted(set(values)):
            raise ValueError(f"steps {[first, *rest]} do not ascend from null")


class Colouring(Strict):
    """How a colour is chosen."""

    mode: Literal[
        "thresholds",
        "palette-classic",
        "palette-classic-by-name",
        "continuous-GrYlRd",
        "continuous-RdYlGr",
        "continuous-BlYlRd",
        "continuous-YlRd",
        "continuous-BlPu",
        "continuous-YlBl",
        "continuous-blues",
        "continuous-reds",
        "continuous-greens",
        "continuous-purples",
        "fixed",
        "shades",
    ]
    fixedColor: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - Grafana's
    seriesBy: Literal["min", "max", "last"] | msgspec.UnsetType = msgspec.UNSET  # noqa: N815


class MappedTo(Strict):
    """What is shown instead of a value."""

    index: int
    text: Text
    color: str | msgspec.UnsetType = msgspec.UNSET


class SpecialOptions(Strict):
    """A value that is none, and what is shown instead."""

    match: Literal["true", "false", "null", "nan", "null+nan", "empty"]
    result: MappedTo


class ValueMap(Strict, tag="value", tag_field="type"):
    """Words for values."""

    options: dict[str, MappedTo]


class SpecialMap(Strict, tag="special", tag_field="type"):
    """Words for no value."""

    options: SpecialOptions


class DataLink(Strict):
    """A link from a value."""

    title: Text
    url: Text
    targetBlank: bool  # noqa: N815 - Grafana's


class Field(Strict, rename="camel"):
    """How values are shown."""

    unit: Text
    thresholds: Thresholds
    color: Colouring
    mappings: list[ValueMap | SpecialMap]
    links: list[DataLink]
    no_value: Text | msgspec.UnsetType = msgspec.UNSET
    min: float | msgspec.UnsetType = msgspec.UNSET
    max: float | msgspec.UnsetType = msgspec.UNSET
    decimals: int | msgspec.UnsetType = msgspec.UNSET
    custom: Free | msgspec.UnsetType = msgspec.UNSET


class Matcher(Strict):
    """Which fields an override is for."""

    id: Literal["byName", "byType", "byRegexp", "byFrameRefID"]
    options: Text


class Property(Strict):
    """One thing that is different."""

    id: Text
    value: object


class Override(Strict):
    """What is different about some fields."""

    matcher: Matcher
    properties: Annotated[list[Property], msgspec.Meta(min_length=1)]


class FieldConfig(Strict):
    """How values are shown, and exceptions."""

    defaults: Field
    overrides: list[Override]


class Transformation(Strict):
    """A step between the answer and the picture."""

    id: Text
    options: Free


class Target(Strict, rename="camel"):
    """A question to a Prometheus."""

    datasource: Source
    expr: Text
    ref_id: Annotated[str, msgspec.Meta(pattern="^[A-Z]$")]
    format: Literal["time_series", "table", "heatmap"]
    instant: bool
    range: bool
    legend_format: Text
    exemplar: bool
    editor_mode: Literal["code", "builder"]


class Panel(Strict, rename="camel"):
    """A panel that asks."""

    type: Literal[
        "timeseries", "stat", "bargauge", "table", "heatmap", "state-timeline", "histogram"
    ]
    id: Annotated[int, msgspec.Meta(ge=1)]
    title: Text
    description: Text
    datasource: Source
    grid_pos: Place
    targets: Annotated[list[Target], msgspec.Meta(min_length=1)]
    options: Free
    field_config: FieldConfig
    transformations: list[Transformation]
    repeat: Text | msgspec.UnsetType = msgspec.UNSET
    repeat_direction: Literal["h", "v"] | msgspec.UnsetType = msgspec.UNSET
    max_per_row: int | msgspec.UnsetType = msgspec.UNSET


class TextOptions(Strict):
    """What a panel of text says."""

    mode: Literal["markdown", "html", "code"]
    content: Text


class TextPanel(Strict, rename="camel"):
    """A panel that asks nothing."""

    type: Literal["text"]
    id: Annotated[int, msgspec.Meta(ge=1)]
    title: str
    description: Text
    grid_pos: Place
    options: TextOptions
    field_config: Free


class RowPanel(Strict, rename="camel"):
    """The heading of a row, with its panels when it is folded."""

    type: Literal["row"]
    id: Annotated[int, msgspec.Meta(ge=1)]
    title: Text
    collapsed: bool
    grid_pos: Place
    panels: list[Free]


class Option(Strict):
    """What is chosen."""

    selected: bool
    text: str | list[str]
    value: str | list[str]


class Variable(Strict, rename="camel"):
    """A choice at the top."""

    type: Literal["query", "datasource"]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]\w*$")]
    label: Text
    query: Text
    hide: Literal[0, 1, 2]
    include_all: bool
    multi: bool
    options: list[Option]
    refresh: Literal[0, 1, 2]
    regex: str
    skip_url_sync: bool
    datasource: Source | msgspec.UnsetType = msgspec.UNSET
    definition: Text | msgspec.UnsetType = msgspec.UNSET
    all_value: Text | msgspec.UnsetType = msgspec.UNSET
    current: Option | msgspec.UnsetType = msgspec.UNSET
    sort: Literal[0, 1, 2, 3, 4, 5, 6, 7, 8] | msgspec.UnsetType = msgspec.UNSET


class Annotation(Strict, rename="camel"):
    """Events from a Prometheus."""

    name: Text
    datasource: Source
    enable: bool
    hide: bool
    icon_color: Text
    expr: Text
    step: Text
    title_format: Text
    text_format: Text
    tag_keys: str
    use_value_for_time: bool


class Link(Strict, rename="camel"):
    """A link at the top."""

    type: Literal["link", "dashboards"]
    title: Text
    icon: Text
    tooltip: str
    url: str
    tags: list[str]
    as_dropdown: bool
    include_vars: bool
    keep_time: bool
    target_blank: bool


class Range(Strict):
    """The range of time."""

    # `from` is a word of Python's.
    to: Text
    start: Text = msgspec.field(name="from")


class Listed(Strict):
    """Grafana's way to hold a list."""

    entries: list[Free] = msgspec.field(name="list")


class Dashboard(Strict, rename="camel"):
    """All of it."""

    uid: Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_-]{1,40}$")]
    title: Text
    description: Text
    tags: list[Text]
    annotations: Listed
    editable: bool
    fiscal_year_start_month: Annotated[int, msgspec.Meta(ge=0, lt=12)]
    graph_tooltip: Literal[0, 1, 2]
    links: list[Link]
    panels: Annotated[list[Free], msgspec.Meta(min_length=1)]
    refresh: Annotated[str, msgspec.Meta(pattern="^([0-9]+[smhd])?$")]
    schema_version: Annotated[int, msgspec.Meta(ge=39)]
    templating: Listed
    time: Range
    timepicker: Free
    timezone: Text
    week_start: str


def violations(dashboard: Mapping[str, object]) -> list[str]:
    """Where the dashboard is not what it should be."""
    found: list[str] = []

    def look(what: object, kind: type[Strict], where: str) -> None:
        try:
            msgspec.convert(what, kind)
        except msgspec.ValidationError as error:
            found.append(f"{where}: {error}")

    def look_at_panel(panel: object, where: str) -> None:
        kind = panel.get("type") if isinstance(panel, dict) else None
        kinds: dict[object, type[Strict]] = {"row": RowPanel, "text": TextPanel}
        look(panel, kinds.get(kind, Panel), where)
        if isinstance(panel, dict) and kind == "row":
            for place, one in enumerate(panel.get("panels") or []):
                look_at_panel(one, f"{where}.panels[{place}]")

    look(dashboard, Dashboard, "dashboard")
    if found:
        return found
    whole = msgspec.convert(dashboard, Dashboard)
    for place, panel in enumerate(whole.panels):
        look_at_panel(panel, f"panels[{place}]")
    for place, variable in enumerate(whole.templating.entries):
        look(variable, Variable, f"templating.list[{place}]")
    for place, annotation in enumerate(whole.annotations.entries):
        look(annotation, Annotation, f"annotations.list[{place}]")
    return found
