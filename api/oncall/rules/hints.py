"""The report of a failed expectation: both sides, and a hint."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence

from alerts.rulebook.model import ALERT_NAME, Alert, AlertState
from api.oncall.rules.cases import AlertCase, ExpectedAlert
from api.oncall.rules.expression import duration_text
from collector.contract.identity import METRIC_LABEL, printable

ROUNDING = 1e-9
"""Values that are closer to each other than this part of them differ by rounding only."""


Row = tuple[Mapping[str, str], float]


def show_labels(labels: Mapping[str, str]) -> str:
    r"""Labels as PromQL writes a series.

    >>> show_labels({"__name__": "up", "host": "a"}), show_labels({})
    ('up{host="a"}', '{}')
    """
    name = labels.get(METRIC_LABEL, "")
    pairs = [
        f'{label}="{printable(value)}"'
        for label, value in sorted(labels.items())
        if label != METRIC_LABEL
    ]
    return name + (f"{{{', '.join(pairs)}}}" if pairs or not name else "")


def show_row(labels: Mapping[str, str], value: float) -> str:
    return f"{show_labels(labels)} {value!r}"


def show_alert(alert: ExpectedAlert) -> str:
    named = {name: value for name, value in alert.labels.items() if name != ALERT_NAME}
    notes = [f"    {name}: {printable(text)}" for name, text in sorted(alert.annotations.items())]
    return "\n".join([show_labels(named), *notes])


def about_alerts(
    case: AlertCase, firing: Sequence[ExpectedAlert], seen: Sequence[Alert], names: Collection[str]
) -> str:
    if case.alert_name not in names:
        near = difflib.get_close_matches(case.alert_name, names, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"no rule is called {case.alert_name}{meant}"
    if not firing:
        pending = [one for one in seen if one.state is AlertState.PENDING]
        if pending:
            since = duration_text(min(one.active_ns for one in pending) // 1_000_000)
            return f"{len(pending)} pending since {since}: it has not held for long enough"
        return "nothing is even pending: ask for parts of its expression in promql_expr_test"
    if not case.expected:
        return ""
    return compare_closest(case.expected, firing)


def compare_closest(expected: Sequence[ExpectedAlert], firing: Sequence[ExpectedAlert]) -> str:
    missing = next((one for one in expected if one not in firing), None)
    extra = [one for one in firing if one not in expected]
    if missing is None or not extra:
        return f"{len(expected)} expected, {len(firing)} fire"
    nearest = min(extra, key=lambda one: len(differing(missing.labels, one.labels)))
    labels = differing(missing.labels, nearest.labels)
    if labels:
        return f"other labels: {', '.join(labels)}"
    names = ", ".join(differing(missing.annotations, nearest.annotations))
    return f"the labels are right; other annotations: {names}"


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def about_rows(expected: Sequence[Row], got: Sequence[Row]) -> str:
    if [dict(labels) for labels, _ in expected] != [dict(labels) for labels, _ in got]:
        without = [{k: v for k, v in labels.items() if k != METRIC_LABEL} for labels, _ in got]
        if [dict(labels) for labels, _ in expected] == without:
            return "only the metric's name is missing in the expected labels"
        return ""
    pairs = [(one[1], other[1]) for one, other in zip(expected, got, strict=True)]
    if all(math.isnan(one) == math.isnan(other) for one, other in pairs) and any(
        math.isnan(one) for one, _ in pairs
    ):
        return "NaN is not equal to NaN, here as in promtool: expect `EXPRESSION != EXPRESSION`"
    if all(math.isclose(one, other, rel_tol=ROUNDING) for one, other in pairs):
        return (
            "only the last digits differ, and values are compared exactly: expect the value that "
            "came, round() in the expression, or set fuzzy_compare: true"
        )
    return ""
