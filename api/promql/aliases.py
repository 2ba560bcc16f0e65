"""Aliases: a query for a metric of the catalog also finds other exporters' series of it.

The catalog lists the names that node_exporter, dcgm-exporter and others use. A selector with a name
of the catalog becomes several strands: the selector itself, and for each alias a selector on the
exporter's name, whose labels are matched and shown under the catalog's names and whose values are
converted to its unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from api.data.inventory.sightings import HOST_LABELS, host_of
from api.data.selectors import Condition, Matcher, Selector
from api.promql.values import Labels
from collector.contract.catalog import Alias, Catalog
from collector.contract.identity import METRIC_LABEL

_INSTANCE_HOST = (
    "if(startsWith(labels['instance'], '['), extract(labels['instance'], '^.([^]]*)'), "
    r"if(match(labels['instance'], '^[^:]*:[0-9]+$'), extract(labels['instance'], '^[^:]*'), "
    "labels['instance']))"
)
"""`api.base.host_names.without_port` in SQL."""


class Strand(msgspec.Struct, frozen=True):
    """Series of one exporter that match a selector. ``alias``: None for the selector's own name."""

    selector: Selector
    alias: Alias | None = None
    identity: tuple[str, ...] = ()
    """The labels that identify the measured thing; without `cluster`, which other exporters rarely
    set."""

    @property
    def metric(self) -> str | None:
        return self.selector.metric if self.alias is None else self.alias.name

    @property
    def factor(self) -> float:
        return 1.0 if self.alias is None else self.alias.factor

    def condition(self, condition: Condition) -> str:
        if self.alias is None:
            return condition.matches(self.selector)
        name = condition.match(Matcher(METRIC_LABEL, "=", self.alias.name))
        return " AND ".join([name, *self.conditions(condition)])

    def conditions(self, condition: Condition) -> list[str]:
        """What a series must meet besides the metric's name."""
        matched = self.alias.match if self.alias is not None else {}
        theirs = [condition.match(Matcher(name, "=", value)) for name, value in matched.items()]
        ours = [one for one in self.selector.matchers if one.label != METRIC_LABEL]
        return theirs + [self.meets(condition, matcher) for matcher in ours]

    def meets(self, condition: Condition, matcher: Matcher) -> str:
        """The condition that a label, as it is shown, meets a matcher; not the metric's name."""
        alias = self.alias
        if alias is None:
            return condition.match(matcher)
        if matcher.label == "host":
            return condition.match_subject(host_subject(condition, alias), matcher)
        if matcher.label in alias.means:
            told = condition.bind(alias.means[matcher.label], "String")
            return condition.match_subject(told, matcher)
        renamed = alias.labels.get(matcher.label, matcher.label)
        return condition.match(Matcher(renamed, matcher.operator, matcher.value))

    def is_among(self, condition: Condition, label: str, values: Sequence[str]) -> str:
        """The condition that a label, as it is shown, has one of some values."""
        if self.alias is not None and label == "host":
            subject = host_subject(condition, self.alias)
        elif self.alias is not None and label in self.alias.means:
            subject = condition.bind(self.alias.means[label], "String")
        else:
            stored = label if self.alias is None else self.alias.labels.get(label, label)
            subject = f"labels[{condition.bind(stored, 'String')}]"
        return f"{subject} IN {condition.bind(list(values), 'Array(String)')}"

    def rows(self, condition: Condition, where: str) -> str:
        """The strand's rows of `series`, named and labelled as the client sees them (`show`)."""
        name, labels = "CAST(metric_name, 'String')", "CAST(labels, 'Map(String, String)')"
        if self.alias is not None:
            name = condition.bind(self.selector.metric or "", "String")
            theirs = condition.bind(list(self.alias.labels.values()), "Array(String)")
            moved = [
                f"{condition.bind(own, 'String')}, labels[{condition.bind(their, 'String')}]"
                for own, their in self.alias.labels.items()
            ]
            moved += [
                f"{condition.bind(own, 'String')}, {condition.bind(value, 'String')}"
                for own, value in self.alias.means.items()
            ]
            moved.append(f"'host', {host_subject(condition, self.alias)}")
            labels = (
                f"mapFilter((k, v) -> v != '', mapUpdate("
                f"mapFilter((k, v) -> NOT has({theirs}, k), {labels}), map({', '.join(moved)})))"
            )
        # Two levels, because a condition would mean the new names, not the table's.
        return (
            f"SELECT series, name AS metric_name, shown AS labels FROM "  # noqa: S608 - placeholders only
            f"(SELECT series, {name} AS name, {labels} AS shown FROM series "
            f"WHERE {where} AND ({self.condition(condition)}))"
        )

    def show(self, labels: Labels) -> Labels:
        alias = self.alias
        if alias is None:
            return labels
        ours = {theirs: own for own, theirs in alias.labels.items()}
        shown = {ours.get(label, label): value for label, value in labels.items()} | alias.means
        if host := host_of(labels, alias.labels):
            shown["host"] = host
        shown[METRIC_LABEL] = self.selector.metric or ""
        return dict(sorted(shown.items()))


def host_subject(condition: Condition, alias: Alias) -> str:
    """SQL that gives a series' host: `api.data.inventory.sightings.host_of`."""
    candidates = dict.fromkeys((alias.labels.get("host", "host"), *HOST_LABELS))
    branches = [f"labels[{condition.bind(label, 'String')}]" for label in candidates]
    chosen = ", ".join(f"{branch} != '', {branch}" for branch in branches)
    return f"multiIf({chosen}, {_INSTANCE_HOST})"


def strands_of(selector: Selector, catalog: Catalog | None) -> list[Strand]:
    """Itself, and a strand for each alias of its metric. ``catalog`` None: aliases are off."""
    own = Strand(selector)
    if catalog is None or selector.metric is None:
        return [own]
    metric = catalog.metric(selector.metric)
    if metric is None or not metric.aliases:
        return [own]
    identity = tuple(sorted(catalog.labels_of(metric.name) - {"cluster"}))
    aliases = [Strand(selector, alias, identity) for alias in metric.aliases]
    return [Strand(selector, None, identity), *aliases]
