"""What a rule's expression reads and what the rule writes: the order of evaluation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from alerts.rulebook.life import ALERTS_METRIC, FOR_STATE_METRIC
from alerts.rulebook.model import ALERT_NAME, Rule
from api.data.selectors import Selector
from api.oncall.rules.memory import agrees, plan_of_rule
from api.promql.plan import Select, Subquery, nodes_of
from collector.contract.identity import METRIC_LABEL

ASKS = re.compile(r"\{\{.*\bquery\b.*\}\}", re.DOTALL)
"""A template that asks questions of its own; which, is known when it is expanded."""


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation of a rule reads."""

    selectors: tuple[Selector, ...]
    anything: bool
    """Its templates query series that are only known when they are expanded."""
    ahead: bool
    """It may look at what comes after the moment of the evaluation, or at fixed moments."""


def reads_of(rule: Rule) -> Reads:
    """Raises QueryError if the expression cannot be parsed."""
    selectors: list[Selector] = []
    ahead = False
    for node in nodes_of(plan_of_rule(rule.expression)):
        if isinstance(node, Select):
            selectors.append(node.selector)
        if isinstance(node, Select | Subquery):
            ahead = ahead or node.at is not None or node.offset_ms < 0
    texts = (*rule.labels.values(), *rule.annotations.values()) if rule.is_alert else ()
    return Reads(
        selectors=tuple(dict.fromkeys(selectors)),
        anything=any(ASKS.search(text) for text in texts),
        ahead=ahead,
    )


def writes_of(rule: Rule) -> list[dict[str, str]]:
    """The labels that are known of each kind of series that a rule writes."""
    if rule.is_alert:
        # Its labels are templates; only the name is certain.
        return [
            {METRIC_LABEL: name, ALERT_NAME: rule.name}
            for name in (ALERTS_METRIC, FOR_STATE_METRIC)
        ]
    return [{**rule.labels, METRIC_LABEL: rule.name}]


def blocks_of(rules: Sequence[Rule]) -> list[tuple[int, int, bool]]:
    """Stretches of rules (first, last, step by step), in order, that cover all of them.

    Rules are evaluated one after the other at each moment. One that reads only what was there
    before, or what rules before it write, can as well be evaluated at all moments at once. One that
    reads what it writes itself, or what a later rule writes, sees that of the moment before: it
    and all up to that rule take their steps together. So does one that looks ahead, alone.
    """
    writers = Writers(rules)
    blocks: list[tuple[int, int, bool]] = []
    for place, rule in enumerate(rules):
        read = reads_of(rule)
        last = writers.last_seen_by(read)
        steps = last >= place or read.ahead
        reach = max(last, place)
        if blocks and blocks[-1][2] and blocks[-1][1] >= place:
            first, until, _ = blocks[-1]
            blocks[-1] = (first, max(until, reach), True)
        else:
            blocks.append((place, reach, steps))
    return blocks


class Writers:
    """Which rules write what, found by the name of the metric."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._count = len(rules)
        self._written = [(place, w) for place, rule in enumerate(rules) for w in writes_of(rule)]
        self._by_metric: dict[str, list[tuple[int, dict[str, str]]]] = {}
        for place, known in self._written:
            self._by_metric.setdefault(known[METRIC_LABEL], []).append((place, known))

    def last_seen_by(self, reads: Reads) -> int:
        """The place of the last rule whose series may be read; -1: none is."""
        if reads.anything:
            return self._count - 1
        last = -1
        for selector in reads.selectors:
            metric = selector.metric
            chosen = self._written if metric is None else self._by_metric.get(metric, [])
            last = max([last, *(place for place, known in chosen if may_meet(selector, known))])
        return last


def may_meet(selector: Selector, known: Mapping[str, str]) -> bool:
    """Whether a selector may match a series of which some labels are known."""
    return all(agrees(each, known[each.label]) for each in selector.matchers if each.label in known)
