"""Questions of a board, asked as Grafana's Prometheus data source asks them, for tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import httpx
import msgspec

from dashboards.grafana.substitute import Value, substituted

SCRAPE_S = 15.0
"""The scrape interval that Grafana assumes, unless its data source sets another."""
POINTS = 240
"""Of one line, as Grafana asks for a panel of middle width."""
VARIABLE = re.compile(
    r"\s*label_values\(\s*(?:(?P<selector>.+),)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL
)
"""The only kind of variable query that our boards use."""


class AskError(Exception):
    """A query that was refused, or an answer that is not valid."""


class Span(NamedTuple):
    """The range of time that a board shows, unix seconds."""

    start_s: float
    end_s: float

    @property
    def step_s(self) -> float:
        """Between two points: a round number of scrapes."""
        rough = (self.end_s - self.start_s) / POINTS
        return max(SCRAPE_S, math.ceil(rough / SCRAPE_S) * SCRAPE_S)

    def lengths(self) -> dict[str, str]:
        """Grafana's own variables for this range."""
        length_s, step_s = round(self.end_s - self.start_s), round(self.step_s)
        return {
            "__interval": f"{step_s}s",
            "__interval_ms": str(step_s * 1_000),
            "__range": f"{length_s}s",
            "__range_s": str(length_s),
            "__range_ms": str(length_s * 1_000),
            "__rate_interval": f"{round(max(step_s + SCRAPE_S, 4 * SCRAPE_S))}s",
        }


class Series(NamedTuple):
    """Labels, and (unix seconds, value) in order."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Source(Protocol):
    """A server that answers PromQL."""

    def range(self, expr: str, span: Span) -> list[Series]:
        """Values over the range."""

    def instant(self, expr: str, at_s: float) -> list[Series]:
        """Values at one moment."""

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        """The values of a label of series that fit."""


class HttpSource:
    """A server with Prometheus' API: ours, or a Prometheus."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def range(self, expr: str, span: Span) -> list[Series]:
        """Values over the range. The moments are multiples of the step, as Grafana's are."""
        step = span.step_s
        data = self._get(
            "/api/v1/query_range",
            query=expr,
            start=math.floor(span.start_s / step) * step,
            end=math.floor(span.end_s / step) * step,
            step=step,
        )
        return read_series(data)

    def instant(self, expr: str, at_s: float) -> list[Series]:
        """Values at one moment."""
        return read_series(self._get("/api/v1/query", query=expr, time=at_s))

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        """The values of a label of series that fit."""
        times: dict[str, Any] = {"start": span.start_s, "end": span.end_s}
        if selector:
            times["match[]"] = selector
        found = self._get(f"/api/v1/label/{label}/values", **times)
        if not isinstance(found, list):
            raise AskError(f"values of {label}: the answer is no list")
        return [str(each) for each in found]

    def _get(self, path: str, **parameters: Any) -> Any:  # noqa: ANN401 - JSON
        """The data of an answer; an AskError says what was asked."""
        said = parameters.get("query") or parameters.get("match[]") or path
        answer = self._client.get(path, params=parameters)
        body = answer.json()
        if body.get("status") != "success":
            raise AskError(f"{said}: {answer.status_code} {body.get('error')}")
        return body.get("data")


def read_series(data: Any) -> list[Series]:  # noqa: ANN401 - JSON
    """The series of an answer to a query: of a range many values each, of an instant one."""
    if data["resultType"] == "scalar":
        return [Series({}, [read_point(data["result"])])]
    return [
        Series(each["metric"], [read_point(one) for one in each.get("values") or [each["value"]]])
        for each in data["result"]
    ]


def read_point(point: Any) -> tuple[float, float]:  # noqa: ANN401 - JSON
    """A moment and its value."""
    at, value = point
    return float(at), float(value)


# --- parts of Grafana's Classic JSON --------------------------------------------------------------


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """A question of a panel."""

    expr: str
    ref_id: str = "A"
    instant: bool = False


class Panel(msgspec.Struct, frozen=True):
    """A panel, or the heading of a row."""

    type: str
    title: str = ""
    targets: list[Target] = []
    panels: list[Panel] = []


class Current(msgspec.Struct, frozen=True):
    """What is chosen when a board is opened."""

    value: str | list[str] = ""


class Variable(msgspec.Struct, frozen=True, rename="camel"):
    """A choice at the top."""

    type: str
    name: str
    query: str = ""
    all_value: str = ".*"
    current: Current = Current()


class Templating(msgspec.Struct, frozen=True, rename={"variables": "list"}):
    """All choices."""

    variables: list[Variable] = []


class Annotation(msgspec.Struct, frozen=True):
    """What is drawn over all panels."""

    expr: str = ""
    name: str = ""


class Annotations(msgspec.Struct, frozen=True, rename={"layers": "list"}):
    """All of them."""

    layers: list[Annotation] = []


class Dashboard(msgspec.Struct, frozen=True):
    """A board."""

    panels: list[Panel]
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


def natural(word: str) -> list[tuple[int, str]]:
    """The order in which people count: node-9 before node-10."""
    return [(int(digits or 0), rest) for digits, rest in re.findall(r"(\d*)(\D*)", word)]


def values_of_variable(
    variable: Variable, source: Source, span: Span, chosen: Mapping[str, Value]
) -> list[str]:
    """What can be chosen, in order. Raises AskError for a query that is not understood."""
    found = VARIABLE.fullmatch(variable.query)
    if found is None:
        raise AskError(f"${variable.name}: {variable.query} is no label_values(…)")
    selector = substituted(found["selector"] or "", chosen, span.lengths()).strip()
    return sorted(source.label_values(found["label"], selector, span), key=natural)
