"""Warnings about valid rules; unknown metrics get none unless they have our prefix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from alerts.rulebook.file import write_duration
from alerts.rulebook.model import Group, Rule
from api.oncall.rules.memory import plan_of_rule
from api.promql.plan import (
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Paren,
    RangeSelect,
    Select,
    Subquery,
    nodes_of,
)
from collector.contract.catalog import Catalog, Kind, Metric
from collector.contract.identity import METRIC_LABEL

OURS = "fabric_"
"""How the names of our metrics begin."""

SCRAPE_LABELS = frozenset({"cluster", "instance"})
"""Labels that a Prometheus adds to everything it scrapes, or is configured to add."""

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
RATES = frozenset({"rate", "irate", "increase"})
SET_OPERATORS = frozenset({"and", "unless"})
NEAR = 0.75
"""How much alike two names are before one is offered for the other."""
DEPTH_MAX = 64
"""Depth of recording rules reading recording rules to which labels are followed."""

LabelSet = frozenset[str]


class Linter:
    """Checks rules with all others in sight: what one reads, another may record."""

    def __init__(self, rules: Sequence[Rule], catalog: Catalog) -> None:
        self._catalog = catalog
        self._names = [metric.name for metric in catalog.metrics]
        self._records = {rule.name: rule for rule in rules if not rule.is_alert}
        self._labels: dict[str, LabelSet | None] = {}
        """Labels of recorded series; None: not known, or being looked for."""

    def warnings(self, rule: Rule, group: Group) -> list[str]:
        """Each warning once. The rule's expression must be readable."""
        plan = plan_of_rule(rule.expression)
        found = [*self._about_alert(rule, group), *self._about_names(plan)]
        found += [*self._about_rates(plan), *self._about_labels(plan)]
        return list(dict.fromkeys(found))

    def _about_alert(self, rule: Rule, group: Group) -> Iterator[str]:
        """What the on-call person would lack."""
        if not rule.is_alert:
            return
        if "severity" not in rule.labels:
            yield "no label severity: the on-call person cannot see how urgent it is"
        if "summary" not in rule.annotations:
            yield "no annotation summary: describe in one line what is wrong, and where"
        if not any(name.startswith("runbook") for name in rule.annotations):
            yield "no annotation runbook_url: link to what to do"
        if group.interval_s is not None and 0 < rule.for_s < group.interval_s:
            yield (
                f"for is {write_duration(rule.for_s)}, shorter than the group's interval of "
                f"{write_duration(group.interval_s)}: it means two evaluations"
            )

    def _about_names(self, plan: Node) -> Iterator[str]:
        for node in nodes_of(plan):
            name = node.selector.metric if isinstance(node, Select) else None
            if name is None or name in self._records:
                continue
            if ":" in name:
                yield f"{name} is recorded by no rule here{near(name, self._records)}"
            elif name.startswith(OURS) and self._metric(name) is None:
                yield f"the catalog has no {name}{near(name, self._names)}"

    def _metric(self, name: str) -> Metric | None:
        """The catalog's metric of a series, also of the parts of a histogram."""
        metric = self._catalog.metric(name)
        if metric is not None:
            return metric
        for part in HISTOGRAM_PARTS:
            whole = self._catalog.metric(name.removesuffix(part))
            if name.endswith(part) and whole is not None and whole.kind is Kind.HISTOGRAM:
                return whole
        return None

    def _about_rates(self, plan: Node) -> Iterator[str]:
        """Rates of metrics that are no counters: each fall is taken for a reset."""
        for node in nodes_of(plan):
            if not isinstance(node, Call) or node.function not in RATES:
                continue
            argument = bare(node.arguments[0])
            if not isinstance(argument, RangeSelect):
                continue
            name = argument.select.selector.metric or ""
            metric = self._metric(name)
            if metric is not None and metric.kind in {Kind.GAUGE, Kind.INFO}:
                yield f"{node.function}() of {name}, a {metric.kind}: deriv() or delta() is meant"

    def _about_labels(self, plan: Node) -> Iterator[str]:
        for node in nodes_of(plan):
            if isinstance(node, Aggregate) and not node.without:
                yield from self._lacking("by", node.labels, node.expression)
            elif isinstance(node, Binary) and node.matching.on:
                yield from self._lacking("on", node.matching.labels, node.left)
                yield from self._lacking("on", node.matching.labels, node.right)

    def _lacking(self, word: str, labels: Sequence[str], node: Node) -> Iterator[str]:
        known = self.labels_of(node, DEPTH_MAX)
        if known is None:
            return
        for label in labels:
            if label not in known and label not in SCRAPE_LABELS:
                read = ", ".join(metrics_in(node)) or "it"
                yield f"{word} ({label}): {read} has no such label{near(label, known)}"

    # --- labels --------------------------------------------------------------------------------

    def labels_of(self, node: Node, depth: int) -> LabelSet | None:  # noqa: PLR0911 - a table
        """The labels that a vector may have, without the metric's name; None: not known."""
        node = bare(node)
        if depth <= 0:
            return None
        match node:
            case RangeSelect(select=inner):
                return self.labels_of(inner, depth - 1)
            case Subquery(expression=inner):
                return self.labels_of(inner, depth - 1)
            case Select():
                return self._labels_of_series(node.selector.metric, depth)
            case Aggregate():
                return self._labels_of_aggregate(node, depth)
            case Binary():
                return self._labels_of_binary(node, depth)
            case Call():
                return self._labels_of_call(node, depth)
        return None

    def _labels_of_series(self, name: str | None, depth: int) -> LabelSet | None:
        if name is None:
            return None
        rule = self._records.get(name)
        if rule is None:
            metric = self._metric(name)
            if metric is None:
                return None
            own = self._catalog.labels_of(metric.name)
            return frozenset({*own, "le"} if name.endswith("_bucket") else own)
        if name not in self._labels:
            self._labels[name] = None  # a rule may read itself
            found = self.labels_of(plan_of_rule(rule.expression), depth - 1)
            self._labels[name] = None if found is None else found | set(rule.labels)
        return self._labels[name]

    def _labels_of_aggregate(self, node: Aggregate, depth: int) -> LabelSet | None:
        inner = self.labels_of(node.expression, depth - 1)
        if node.operator in {"topk", "bottomk", "limitk", "limit_ratio"}:
            return inner
        if not node.without:
            own = set(node.labels)
            if node.operator == "count_values":
                return None
            return frozenset(own if inner is None else own & inner)
        return None if inner is None else inner - set(node.labels)

    def _labels_of_binary(self, node: Binary, depth: int) -> LabelSet | None:
        left = self.labels_of(node.left, depth - 1)
        right = self.labels_of(node.right, depth - 1)
        matching = node.matching
        if node.operator in SET_OPERATORS:
            return left
        if left is None or right is None:
            # A number has no labels, and neither has an unknown vector.
            return None if matching.on or matching.group else one_known(node, left, right)
        if node.operator == "or":
            return left | right
        if matching.group:
            many = left if matching.group == "left" else right
            return many | set(matching.include)
        if matching.on:
            return left & frozenset(matching.labels)
        return (left | right) - set(matching.labels)

    def _labels_of_call(self, node: Call, depth: int) -> LabelSet | None:
        if node.function in {"label_replace", "label_join", "absent", "absent_over_time", "info"}:
            return None
        if node.function in {"vector", "scalar", "time"}:
            return frozenset() if node.function == "vector" else None
        vectors = [self.labels_of(each, depth - 1) for each in node.arguments]
        found = next((each for each in vectors if each is not None), None)
        if found is not None and node.function == "histogram_quantile":
            return found - {"le"}
        return found


def one_known(node: Binary, left: LabelSet | None, right: LabelSet | None) -> LabelSet | None:
    """The labels of a vector and a number: the vector's."""
    if metrics_in(node.left) and metrics_in(node.right):
        return None
    return right if left is None else left


def bare(node: Node) -> Node:
    while isinstance(node, Paren | Negate):
        node = node.expression
    return node


def metrics_in(node: Node) -> list[str]:
    names = [
        one.selector.metric or METRIC_LABEL for one in nodes_of(node) if isinstance(one, Select)
    ]
    return sorted(set(names))


def near(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name.

    >>> near("fabric_port_stat", ["fabric_port_state"])
    '; did you mean fabric_port_state?'
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)
    return f"; did you mean {found[0]}?" if found else ""
