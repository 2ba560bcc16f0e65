"""The life of alerts: pending, firing, resolved, forgotten. Pure, and exactly as Prometheus has it.

An expression answers with rows. Each row is an alert: pending until it has been there for the
rule's `for`, then firing, and when it is gone again resolved. A resolved alert is kept for a
quarter of an hour, so that every receiver of the firing alert also gets its end.

Where an expression could not be evaluated, the caller skips `advance`: the alerts stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from alerts.rulebook.model import ALERT_NAME, Alert, AlertState, Found, Rule
from collector.contract.errors import RuleError, RuleLimitError
from collector.contract.identity import METRIC_LABEL, Labels, canonical_labels
from collector.contract.model import Sample, Series
from collector.contract.units import NS

Expand = Callable[[str, Mapping[str, str], float], str]
"""A template, the row's labels and its value; the text, or the error as text: it never raises."""

ALERTS_METRIC = "ALERTS"
"""The series that is 1 while an alert is pending or firing."""
FOR_STATE_METRIC = "ALERTS_FOR_STATE"
"""The series whose value is when (unix seconds) an alert's expression began to hold."""
STATE_LABEL = "alertstate"
"""The label of `ALERTS`: pending or firing."""

RESOLVED_RETENTION_S = 15 * 60
"""How long a resolved alert is kept and sent again, as by Prometheus: an Alertmanager that was away
meanwhile learns that it is over."""
OUTAGE_TOLERANCE_S = 60 * 60
"""Prometheus' `--rules.alert.for-outage-tolerance`: after a longer outage it is unknown whether an
expression held all the time, and the wait starts again."""
FOR_GRACE_PERIOD_S = 10 * 60
"""Prometheus' `--rules.alert.for-grace-period`: after a restart no restored alert fires sooner, so
that missing data can arrive first. Rules that wait less than this are not restored."""
SEND_FAILURES_BRIDGED = 4
"""A firing alert's end is set this many rounds ahead: Prometheus' factor, by which an Alertmanager
bridges failed evaluations or deliveries, and resolves by itself once the service is gone."""

FOUND_MAX = 50_000
"""Rows that one rule may find. A fabric of ten thousand hosts with eight ports has fewer ports in
trouble at once than this; more means that a rule has no threshold."""
RESOLVED_MAX = 50_000
"""Resolved alerts that one rule keeps from earlier evaluations: one whose labels change all the
time would make more. The oldest are dropped first; they have been sent before."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as it is sent to an Alertmanager. Times are unix nanoseconds."""

    labels: Labels
    annotations: dict[str, str]
    starts_ns: int
    ends_ns: int
    """When it was over; of one that fires, until when the receiver may assume so."""


def advance(
    rule: Rule,
    standing: Mapping[Labels, Alert],
    found: Sequence[Found],
    now_ns: int,
    expand: Expand,
    limit: int = 0,
) -> dict[Labels, Alert]:
    """The alerts of a rule after an evaluation that found these rows.

    Raises RuleError where two rows become one alert (what stands, stays), and RuleLimitError past
    the group's limit: then Prometheus forgets all alerts of the rule, the resolved ones too, and
    the caller has to do the same.
    """
    seen = rows_as_alerts(rule, found, now_ns, expand)
    after: dict[Labels, Alert] = {}
    for labels, fresh in seen.items():
        after[labels] = when_it_holds(rule, standing.get(labels), fresh, now_ns)
    active = len(after)
    resolved: list[Alert] = []
    for labels, alert in standing.items():
        if labels in seen:
            continue
        ceased = when_it_ceased(rule, alert, now_ns)
        if ceased is None:
            continue
        if ceased.state is AlertState.INACTIVE:
            resolved.append(ceased)
        else:
            after[labels] = ceased
            active += 1
    if 0 < limit < active:
        raise RuleLimitError(f"exceeded limit of {limit} with {active} alerts")
    after |= {alert.labels: alert for alert in remembered(resolved, now_ns)}
    return dict(sorted(after.items()))


def rows_as_alerts(
    rule: Rule, found: Sequence[Found], now_ns: int, expand: Expand
) -> dict[Labels, Alert]:
    """The rows as new alerts. Raises RuleError past FOUND_MAX or for rows with equal labels."""
    if len(found) > FOUND_MAX:
        raise RuleError(
            f"the expression gives {len(found)} rows; a rule has at most {FOUND_MAX} (FOUND_MAX):"
            " give it a threshold, or sum"
        )
    seen: dict[Labels, Alert] = {}
    for row in found:
        labels = alert_labels(rule, row, expand)
        if labels in seen:
            raise RuleError(
                "vector contains metrics with the same labelset after applying alert labels"
            )
        seen[labels] = Alert(
            labels=labels,
            annotations={
                name: filled(text, row, expand) for name, text in rule.annotations.items()
            },
            value=row.value,
            state=AlertState.PENDING,
            active_ns=now_ns,
        )
    return seen


def alert_labels(rule: Rule, row: Found, expand: Expand) -> Labels:
    """The row's labels, the rule's over them, and its name. The rule's empty label removes one."""
    labels = {name: value for name, value in row.labels.items() if name != METRIC_LABEL}
    for name, text in rule.labels.items():
        labels[name] = filled(text, row, expand)
    labels[ALERT_NAME] = rule.name
    return canonical_labels(labels)


def filled(text: str, row: Found, expand: Expand) -> str:
    """A label's or an annotation's text for this row. Most have no template in them."""
    return expand(text, row.labels, row.value) if "{{" in text else text


def when_it_holds(rule: Rule, before: Alert | None, fresh: Alert, now_ns: int) -> Alert:
    """An alert whose row was found. A resolved one starts again."""
    if before is None or before.state is AlertState.INACTIVE:
        alert = fresh
    else:
        alert = msgspec.structs.replace(
            before, annotations=fresh.annotations, value=fresh.value, keep_firing_since_ns=None
        )
    if alert.state is AlertState.PENDING and now_ns - alert.active_ns >= rule.for_s * NS:
        return msgspec.structs.replace(alert, state=AlertState.FIRING, fired_ns=now_ns)
    return alert


def when_it_ceased(rule: Rule, alert: Alert, now_ns: int) -> Alert | None:
    """An alert whose row was not found; None: it is dropped."""
    if alert.state is AlertState.PENDING:
        return None
    if alert.state is AlertState.INACTIVE:
        return alert if is_remembered(alert, now_ns) else None
    if rule.keep_firing_for_s > 0:
        since_ns = alert.keep_firing_since_ns
        since_ns = now_ns if since_ns is None else since_ns
        alert = msgspec.structs.replace(alert, keep_firing_since_ns=since_ns)
        if now_ns - since_ns < rule.keep_firing_for_s * NS:
            return alert
    return msgspec.structs.replace(alert, state=AlertState.INACTIVE, resolved_ns=now_ns)


def is_remembered(alert: Alert, now_ns: int) -> bool:
    return alert.resolved_ns is not None and now_ns - alert.resolved_ns <= RESOLVED_RETENTION_S * NS


def remembered(resolved: list[Alert], now_ns: int) -> list[Alert]:
    """The resolved alerts within RESOLVED_MAX: all of this evaluation, then the latest."""
    if len(resolved) <= RESOLVED_MAX:
        return resolved
    just_now = [alert for alert in resolved if alert.resolved_ns == now_ns]
    earlier = [alert for alert in resolved if alert.resolved_ns != now_ns]
    earlier.sort(key=lambda alert: (-(alert.resolved_ns or 0), alert.labels))
    return just_now + earlier[:RESOLVED_MAX]


def restored(
    rule: Rule, kept: Iterable[Alert], last_evaluated_ns: int, now_ns: int
) -> dict[Labels, Alert]:
    """The alerts with which a rule goes on after a restart, before its first evaluation.

    `kept` are the alerts after the last evaluation before the outage. Firing ones stay: the first
    evaluation resolves and sends those that are over; dropping them would leave a paged person
    without an end. Resolved ones are kept for as long as without the outage. Pending ones wait on;
    see `restored_pending`.
    """
    after: dict[Labels, Alert] = {}
    for alert in kept:
        if alert.state is AlertState.PENDING:
            waiting = restored_pending(rule, alert, last_evaluated_ns, now_ns)
            if waiting is not None:
                after[alert.labels] = waiting
        elif alert.state is AlertState.FIRING or is_remembered(alert, now_ns):
            after[alert.labels] = alert
    return dict(sorted(after.items()))


def restored_pending(rule: Rule, alert: Alert, last_evaluated_ns: int, now_ns: int) -> Alert | None:
    """A pending alert after an outage; None: its wait starts again.

    As Prometheus restores `for`:

    - After an outage longer than the tolerance nothing is known any more.
    - The outage does not count: the expression was not evaluated. The time that it had held before
      does.
    - At least the grace period remains, so that a service that has just come back, with the data
      of its agents still on the way, does not page for its own absence.
    - A rule that waits for less than the grace period would thereby wait for longer than ever: it
      waits from the start instead.
    """
    down_ns = max(0, now_ns - last_evaluated_ns)
    for_ns = round(rule.for_s * NS)
    grace_ns = FOR_GRACE_PERIOD_S * NS
    if down_ns > OUTAGE_TOLERANCE_S * NS:
        return None
    remaining_ns = for_ns - max(0, last_evaluated_ns - alert.active_ns)
    if remaining_ns <= 0:
        # The rule's `for` has become shorter meanwhile: the next evaluation decides.
        return alert
    if for_ns < grace_ns:
        return None
    if remaining_ns < grace_ns:
        return msgspec.structs.replace(alert, active_ns=now_ns + grace_ns - for_ns)
    return msgspec.structs.replace(alert, active_ns=alert.active_ns + down_ns)


def alert_samples(alerts: Iterable[Alert], now_ns: int) -> list[Sample]:
    """`ALERTS` and `ALERTS_FOR_STATE` of what pends or fires; the caller writes stale markers."""
    samples: list[Sample] = []
    for alert in alerts:
        if alert.state is AlertState.INACTIVE:
            continue
        labels = dict(alert.labels)
        since = Series(FOR_STATE_METRIC, labels)
        state = Series(ALERTS_METRIC, {**labels, STATE_LABEL: alert.state.value})
        samples.append(Sample(state, 1.0, now_ns))
        samples.append(Sample(since, float(alert.active_ns // NS), now_ns))
    return samples


def to_send(
    alerts: Iterable[Alert],
    last_sent: Mapping[Labels, int],
    now_ns: int,
    resend_s: float,
    interval_s: float,
) -> list[Outgoing]:
    """The alerts to send now to a receiver that last got each of them at `last_sent`.

    Pending alerts are not sent. News (it fires, it is over) goes out at once, all else again after
    `resend_s`. Prometheus waits for *longer* than that, which for a group that is evaluated every
    minute makes its default of one minute two; here it is one.
    """
    valid_ns = round(SEND_FAILURES_BRIDGED * max(interval_s, resend_s) * NS)
    resend_ns = round(resend_s * NS)
    outgoing: list[Outgoing] = []
    for alert in alerts:
        news_ns = last_news(alert)
        if news_ns is None:
            continue
        sent_ns = last_sent.get(alert.labels)
        if sent_ns is not None and sent_ns >= news_ns and sent_ns + resend_ns > now_ns:
            continue
        is_over = alert.state is AlertState.INACTIVE
        outgoing.append(
            Outgoing(
                labels=alert.labels,
                annotations=alert.annotations,
                starts_ns=news_ns if alert.fired_ns is None else alert.fired_ns,
                ends_ns=news_ns if is_over else now_ns + valid_ns,
            )
        )
    return outgoing


def last_news(alert: Alert) -> int | None:
    """When an alert last fired or ended; None: it is pending."""
    if alert.state is AlertState.FIRING:
        return alert.active_ns if alert.fired_ns is None else alert.fired_ns
    if alert.state is AlertState.INACTIVE and alert.fired_ns is not None:
        return alert.resolved_ns
    return None
