"""Questions of a board, asked as Grafana's Prometheus data source asks them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from collector.contract.errors import FabricscopeError
from dashboards.grafana.picture.parts import Dashboard, Panel, Target, Variable
from dashboards.grafana.substitute import Value, substituted

if TYPE_CHECKING:
    import httpx

SCRAPE_S = 15.0
"""How often Grafana believes that values come, unless its data source says otherwise."""
POINTS = 240
"""Of one line: more are not seen in a picture."""
VARIABLE = re.compile(
    r"\s*label_values\(\s*(?:(?P<selector>.+),)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL
)
"""The only kind of variable query that our boards use."""


class AskError(FabricscopeError):
    """A question that was refused, or an answer that is none."""


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


class Answer(NamedTuple):
    """What came back to one question."""

    target: Target
    series: list[Series]


class Source(Protocol):
    """Whoever answers PromQL."""

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
        import httpx  # noqa: PLC0415 - only whoever asks needs it

        said = parameters.get("query") or parameters.get("match[]") or path
        try:
            answer = self._client.get(path, params=parameters)
            body = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise AskError(f"{said}: {error}") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            why = body.get("error") if isinstance(body, dict) else answer.text[:200]
            raise AskError(f"{said}: {answer.status_code} {why}")
        return body.get("data")


def read_series(data: Any) -> list[Series]:  # noqa: ANN401 - JSON
    """The series of an answer to a query."""
    try:
        kind, result = data["resultType"], data["result"]
        if kind == "scalar":
            return [Series({}, [read_point(result)])]
        return [
            Series(dict(each["metric"]), [read_point(one) for one in values_of(each)])
            for each in result
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise AskError(f"an answer that is none: {error}") from error


def values_of(series: Mapping[str, Any]) -> Sequence[Any]:
    """Of a range many, of an instant one."""
    return series["values"] if "values" in series else [series["value"]]


def read_point(point: Any) -> tuple[float, float]:  # noqa: ANN401 - JSON
    """A moment and its value."""
    at, value = point
    return float(at), float(value)


# --- variables and panels ------------------------------------------------------------------------


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


def choose(
    board: Dashboard, source: Source, span: Span, wanted: Mapping[str, str]
) -> dict[str, Value]:
    """A value for each variable: as wanted, all where that is the default, or the first."""
    chosen: dict[str, Value] = {}
    for variable in board.templating.variables:
        if variable.type != "query":
            continue
        if variable.name in wanted:
            value: Value = wanted[variable.name]
        elif "$__all" in variable.current.value:
            value = variable.all_value
        else:
            value = next(iter(values_of_variable(variable, source, span, chosen)), "")
        chosen[variable.name] = value
    return chosen


def ask(panel: Panel, source: Source, span: Span, chosen: Mapping[str, Value]) -> list[Answer]:
    """All answers of a panel."""
    answers = []
    for target in panel.targets:
        expr = substituted(target.expr, chosen, span.lengths())
        is_instant = target.instant
        found = source.instant(expr, span.end_s) if is_instant else source.range(expr, span)
        answers.append(Answer(target, found))
    return answers


def legend(target: Target, labels: Mapping[str, str]) -> str:
    """What a series is called.

    >>> legend(Target(expr="a", legend_format="{{host}} {{gone}}"), {"host": "n1"})
    'n1 '
    """
    if target.legend_format in {"", "__auto"}:
        names = {name: value for name, value in labels.items() if name != "__name__"}
        if len(names) == 1:
            return next(iter(names.values()))
        inside = ", ".join(f'{name}="{value}"' for name, value in sorted(names.items()))
        return f"{labels.get('__name__', '')}{{{inside}}}" if inside else target.expr
    return re.sub(
        r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), target.legend_format
    )
