"""One rule at one moment: its expression's result as alerts or series. Blocks; own threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from alerts.rulebook.life import (
    ALERTS_METRIC,
    FOR_STATE_METRIC,
    Expand,
    advance,
    alert_samples,
)
from alerts.rulebook.model import Alert, AlertState, Found, Group, Rule
from alerts.rulebook.template import TemplateData, TemplateError, expand_or_say
from api.base.limits import (
    ALERT_LABELS_BYTES_MAX,
    ALERTS_PER_RULE_MAX,
    QUERY_SECONDS_DEFAULT,
    RECORDED_SERIES_MAX,
    RULES_MAX,
    RULES_TEMPLATE_QUERIES_MAX,
)
from api.promql.ahead import ReadAhead, read_elsewhere
from api.promql.engine import Engine, Question, Running
from api.promql.errors import QueryError
from api.promql.parse import parse_query
from api.promql.plan import Select, nodes_of
from api.promql.values import Grid, Scalar, Vector
from collector.contract.errors import FabricscopeError, RuleError, RuleLimitError
from collector.contract.identity import METRIC_LABEL, Labels, check_labels, metric_id
from collector.contract.model import Sample, Series
from collector.contract.units import NS, NS_PER_MS

QUERY_SECONDS_MIN = 10.0
"""What an expression may take at least, however short the interval."""
TEMPLATE_QUERY = "query"
"""A template with this word may ask for what an earlier rule has recorded."""

log = logging.getLogger(__name__)


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one rule's evaluation."""

    seconds: float
    error: str = ""
    """Why there is nothing; empty: all is well."""
    alerts: dict[Labels, Alert] | None = None
    """What stands now; None: what stood before."""
    samples: Sequence[Sample] = ()
    left_out: int = 0
    """Samples whose labels no series may have."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When a group is evaluated. Unix nanoseconds."""

    now_ns: int
    asked_ns: int
    """What expressions are asked for: earlier by the group's offset. Samples have this time."""
    timeout_s: float
    ahead: ReadAhead | None = None
    """What the group's expressions read, read at once."""

    @classmethod
    def of(cls, group: Group, now_ns: int, interval_s: float) -> Moment:
        return cls(
            now_ns=now_ns,
            asked_ns=now_ns - round((group.query_offset_s or 0.0) * NS),
            timeout_s=min(QUERY_SECONDS_DEFAULT, max(interval_s, QUERY_SECONDS_MIN)),
        )


class Asker:
    """Queries PromQL's engine; a running query can be stopped. For any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running: set[Running] = set()
        self._guard = threading.Lock()
        self._is_stopped = False

    def prepare(self, group: Group, at: Moment) -> Moment:
        """The moment, with what the group's rules read. An expression that is none counts later."""
        texts = [rule.expression for rule in group.rules if is_query(rule.expression)]
        ahead = self._engine.read_ahead(
            texts, at.asked_ns // NS_PER_MS, {ALERTS_METRIC, FOR_STATE_METRIC}
        )
        return msgspec.structs.replace(at, ahead=ahead)

    def ask(self, text: str, at: Moment) -> list[Found]:
        grid = Grid(at.asked_ns // NS_PER_MS, 1, 1)
        question = Question(text=text, grid=grid, is_range=False, timeout_s=at.timeout_s)
        running = self._engine.start(question, at.ahead)
        with self._guard:
            if self._is_stopped:
                raise RuleError("the service stops")
            self._running.add(running)
        try:
            value = running.answer().value
        finally:
            with self._guard:
                self._running.discard(running)
        if isinstance(value, Scalar):
            return [Found({}, float(value.values[0]))]
        if isinstance(value, Vector):
            rows = zip(value.labels, value.values[:, 0].tolist(), value.present[:, 0], strict=True)
            return [Found(labels, number) for labels, number, is_there in rows if is_there]
        raise RuleError("rule result is not a vector or scalar")

    def stop(self) -> bool:
        """Call it until it returns True: a query may have been between two parts."""
        with self._guard:
            self._is_stopped = True
            running = list(self._running)
        for each in running:
            each.stop()
        return not running


class RuleEvaluator:
    """Evaluates rules. For any thread."""

    def __init__(self, asker: Asker, external_labels: Mapping[str, str], external_url: str) -> None:
        self._asker = asker
        self._external_labels = external_labels
        self._external_url = external_url

    def evaluate(
        self, group: Group, rule: Rule, standing: Mapping[Labels, Alert], at: Moment
    ) -> RuleOutcome:
        """Never raises: why there is no result is part of the outcome."""
        started = time.perf_counter()
        alerts: dict[Labels, Alert] | None = None
        made: Sequence[Sample] = ()
        error = ""
        try:
            found = self._asker.ask(rule.expression, at)
            if rule.is_alert:
                alerts = self._advance(group, rule, standing, found, at)
                made = alert_samples(alerts.values(), at.asked_ns)
            else:
                made = recorded(rule, found, at.asked_ns, group.limit)
        except RuleLimitError as over:
            # As Prometheus: the standing alerts are forgotten.
            alerts, error = {}, str(over)
        except FabricscopeError as failure:
            error = str(failure) or type(failure).__name__
        except Exception as bug:
            log.exception("rule %s of %s cannot be evaluated", rule.name, group.key)
            error = f"{type(bug).__name__}: {bug}"
        sound = [sample for sample in made if is_sound(sample.series)]
        return RuleOutcome(
            seconds=time.perf_counter() - started,
            error=error,
            alerts=alerts,
            samples=sound,
            left_out=len(made) - len(sound),
        )

    def _advance(
        self,
        group: Group,
        rule: Rule,
        standing: Mapping[Labels, Alert],
        found: Sequence[Found],
        at: Moment,
    ) -> dict[Labels, Alert]:
        alerts = advance(rule, standing, found, at.now_ns, self._expand_at(rule, at), group.limit)
        active = sum(alert.state is not AlertState.INACTIVE for alert in alerts.values())
        if active > ALERTS_PER_RULE_MAX:
            raise RuleError(f"{active} alerts; ALERTS_PER_RULE_MAX is {ALERTS_PER_RULE_MAX}")
        longest = max((len(msgspec.json.encode(labels)) for labels in alerts), default=0)
        if longest > ALERT_LABELS_BYTES_MAX:
            raise RuleError(
                f"the labels of one alert have {longest} bytes; "
                f"ALERT_LABELS_BYTES_MAX is {ALERT_LABELS_BYTES_MAX}"
            )
        return alerts

    def _expand_at(self, rule: Rule, at: Moment) -> Expand:
        """How templates are expanded at a moment; they query the same moment."""
        answers: dict[str, list[Found]] = {}

        def query(text: str) -> Sequence[Found]:
            if text not in answers:
                if len(answers) >= RULES_TEMPLATE_QUERIES_MAX:
                    raise TemplateError(
                        "the templates of this rule ask too much; "
                        f"RULES_TEMPLATE_QUERIES_MAX is {RULES_TEMPLATE_QUERIES_MAX}"
                    )
                try:
                    answers[text] = self._asker.ask(text, at)
                except FabricscopeError as error:
                    raise TemplateError(f"query {text!r}: {error}") from error
            return answers[text]

        def expand(text: str, labels: Mapping[str, str], value: float) -> str:
            data = TemplateData(
                labels=labels,
                value=value,
                external_labels=self._external_labels,
                external_url=self._external_url,
                query=query,
                now_s=at.asked_ns / NS,
                name=rule.name,
            )
            return expand_or_say(text, data)

        return expand


def recorded(rule: Rule, found: Sequence[Found], time_ns: int, limit: int) -> list[Sample]:
    made: dict[Series, Sample] = {}
    for row in found:
        labels = {name: value for name, value in row.labels.items() if name != METRIC_LABEL}
        series = Series(rule.name, {**labels, **rule.labels})
        made[series] = Sample(series, row.value, time_ns)
    if len(made) != len(found):
        raise RuleError("vector contains metrics with the same labelset after applying rule labels")
    if 0 < limit < len(made):
        raise RuleError(f"exceeded limit of {limit} with {len(made)} series")
    if len(made) > RECORDED_SERIES_MAX:
        raise RuleError(f"{len(made)} series; RECORDED_SERIES_MAX is {RECORDED_SERIES_MAX}")
    return list(made.values())


def is_sound(series: Series) -> bool:
    """Whether the store may take a series: a template can make labels of any length."""
    try:
        check_labels(series.full_labels({}))
    except FabricscopeError:
        return False
    return True


# --- which rules need what others have recorded -------------------------------------------------


@lru_cache(maxsize=RULES_MAX)
def is_query(expression: str) -> bool:
    try:
        parse_query(expression)
    except QueryError:
        return False
    return True


@lru_cache(maxsize=RULES_MAX)
def metrics_read(expression: str) -> frozenset[str | None]:
    """The metrics that an expression reads; None among them: any."""
    return frozenset(
        node.selector.metric
        for node in nodes_of(parse_query(expression))
        if isinstance(node, Select)
    )


def needs(rule: Rule, names: set[str]) -> bool:
    """Whether it may read one of these metrics of its group that the store does not have yet.

    A name without a colon may be an alias of ours.
    """
    if not names:
        return False
    return asks_for_any(rule, names) or not names.isdisjoint(metrics_read(rule.expression))


def asks_for_any(rule: Rule, names: Iterable[str]) -> bool:
    """Whether the rule may read metrics that its expression does not name."""
    texts = [*rule.labels.values(), *rule.annotations.values()]
    return (
        None in metrics_read(rule.expression)
        or any(":" not in name and not name.startswith("ALERTS") for name in names)
        or any(TEMPLATE_QUERY in text for text in texts)
    )


def is_held(rule: Rule, names: set[str], ahead: ReadAhead) -> bool:
    """Whether all that the rule reads of these metrics is what was read ahead, and added to it."""
    read = names & metrics_read(rule.expression)
    return (
        not asks_for_any(rule, names)
        and read.isdisjoint(read_elsewhere(rule.expression))
        and ahead.holds(metric_id(name) for name in read if name is not None)
    )


Explain = Callable[[Sequence[Alert]], Sequence[Alert]]
"""Adds explanations: one alert for each, with the same labels, in the same order."""
