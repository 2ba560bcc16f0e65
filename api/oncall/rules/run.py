"""One evaluation of a group in progress: the results of its rules so far."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from alerts.rulebook.model import Group, GroupHealth
from api.oncall.evaluate.series import STALE
from api.oncall.rules.evaluate import Explain, Moment, RuleOutcome
from api.oncall.rules.state import GroupDocument, GroupState, StandingAlerts, ended, rule_ids
from collector.contract.errors import FabricscopeError
from collector.contract.model import Sample, Series

log = logging.getLogger(__name__)


class GroupRun:
    """Gathers the outcomes of a group's rules. The group's state is read, not changed."""

    def __init__(self, group: Group, state: GroupState, at: Moment) -> None:
        self.group = group
        self.state = state
        self.at = at
        self.ids = rule_ids(group)
        self.alerts: dict[str, StandingAlerts] = {}
        self.series: dict[str, set[Series]] = {}
        """What each rule has made, as in GroupState."""
        self.unwritten: list[Sample] = []
        """Samples that are not in the store yet."""
        self.unwritten_names: set[str] = set()
        """Their metrics."""
        self.added = 0
        """How many of them the rules that follow can read nevertheless (`Moment.ahead`)."""
        self.has_new = False
        """Whether any of these is of a series that the store does not know."""
        self.errors: dict[int, str] = {}
        self.seconds: list[float] = []
        self.left_out = 0

    def take(self, place: int, outcome: RuleOutcome) -> None:
        """Record the outcome of a rule. A failed rule leaves its alerts and series as they were."""
        name = self.ids[place]
        before = self.state.series.get(name, set())
        self.seconds.append(outcome.seconds)
        self.left_out += outcome.left_out
        if outcome.error:
            self.errors[place] = outcome.error
        if outcome.error and outcome.alerts is None:
            self.alerts[name] = self.state.alerts.get(name, {})
            self.series[name] = before
            return
        self.alerts[name] = outcome.alerts or {}
        self.series[name] = {sample.series for sample in outcome.samples}
        self._await(outcome.samples)
        self._mark_stale(before - self.series[name])

    def _await(self, samples: Sequence[Sample]) -> None:
        self.unwritten += samples
        self.unwritten_names |= {sample.series.metric for sample in samples}

    def written(self) -> None:
        """All samples so far are in the store."""
        self.unwritten.clear()
        self.unwritten_names.clear()
        self.added, self.has_new = 0, False

    def fail(self, place: int, error: str) -> None:
        """The rule could not be evaluated at all."""
        self.take(place, RuleOutcome(seconds=0.0, error=error))

    def end_what_is_gone(self) -> None:
        for name, alerts in self.state.alerts.items():
            if name not in self.alerts and (left := ended(alerts, self.at.now_ns)):
                self.alerts[name] = left
        # A changed rule may continue the series of the one before.
        made = set().union(*self.series.values())
        for name, series in self.state.series.items():
            if name not in self.series:
                self._mark_stale(series - made)

    def with_what_was(self) -> dict[str, set[Series]]:
        """The series of this evaluation and of the one before."""
        names = {**self.state.series, **self.series}
        return {
            name: self.state.series.get(name, set()) | self.series.get(name, set())
            for name in names
        }

    def document(self, seconds: float) -> GroupDocument:
        return GroupDocument(
            file=self.group.file,
            name=self.group.name,
            rules=tuple(self.ids),
            health=GroupHealth(
                evaluated_ns=self.at.now_ns,
                seconds=seconds,
                errors=self.errors,
                rule_seconds=tuple(self.seconds),
            ),
        )

    def _mark_stale(self, over: set[Series]) -> None:
        ordered = sorted(over, key=lambda one: (one.metric, one.labels))
        self._await([Sample(series, STALE, self.at.asked_ns) for series in ordered])


def explain_all(
    alerts: Mapping[str, StandingAlerts], explain: Explain
) -> dict[str, StandingAlerts]:
    """All alerts of a group, explained. One that cannot be explained still stands."""
    flat = [(rule, alert) for rule, some in alerts.items() for alert in some.values()]
    try:
        explained = explain([alert for _, alert in flat])
    except FabricscopeError as error:
        log.warning("alerts cannot be explained: %s", error)
        explained = [alert for _, alert in flat]
    except Exception:
        log.exception("alerts cannot be explained")
        explained = [alert for _, alert in flat]
    after: dict[str, StandingAlerts] = {rule: {} for rule in alerts}
    for (rule, alert), marked in zip(flat, explained, strict=True):
        assert marked.labels == alert.labels, "an explanation makes no other alert"
        after[rule][alert.labels] = marked
    return after
