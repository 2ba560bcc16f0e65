"""The life of alerts, one turn at a time; random lives are in tests/property/test_rules.py."""

from collections.abc import Mapping

import msgspec
import pytest

from alerts.rulebook import life
from alerts.rulebook.life import (
    FOR_GRACE_PERIOD_S,
    OUTAGE_TOLERANCE_S,
    RESOLVED_RETENTION_S,
    advance,
    alert_samples,
    restored,
    to_send,
)
from alerts.rulebook.model import Alert, AlertState, Found, Rule
from collector.contract.errors import RuleError, RuleLimitError
from collector.contract.identity import Labels
from collector.contract.units import NS

START = 1_800_000_000 * NS
MINUTE = 60 * NS
DOWN = Rule(name="Down", is_alert=True, expression="up == 0", for_s=120)
AT_ONCE = Rule(name="Down", is_alert=True, expression="up == 0")
KEEPS = Rule(name="Down", is_alert=True, expression="up == 0", keep_firing_for_s=120)

Alerts = dict[Labels, Alert]


def row(port: str = "1", value: float = 0.0, **labels: str) -> Found:
    return Found({"__name__": "up", "port": port, **labels}, value)


def expand(text: str, labels: Mapping[str, str], value: float) -> str:
    text = text.replace("{{ $value }}", f"{value:g}")
    return text.replace("{{ $labels.port }}", labels["port"])


def run(rule: Rule, rounds: str, standing: Alerts | None = None, start: int = START) -> Alerts:
    """One evaluation a minute: `x` finds the row, `.` does not."""
    alerts = standing or {}
    for number, each in enumerate(rounds):
        found = [row()] if each == "x" else []
        alerts = advance(rule, alerts, found, start + number * MINUTE, expand)
    return alerts


def only(alerts: Alerts) -> Alert:
    [alert] = alerts.values()
    assert list(alerts) == [alert.labels]
    return alert


def test_it_is_pending_until_it_has_held_for_long_enough() -> None:
    assert only(run(DOWN, "xx")).state is AlertState.PENDING
    alert = only(run(DOWN, "xxx"))
    assert alert.state is AlertState.FIRING
    assert (alert.active_ns, alert.fired_ns) == (START, START + 2 * MINUTE)
    assert (alert.resolved_ns, alert.keep_firing_since_ns) == (None, None)


def test_without_for_it_fires_at_once() -> None:
    alert = only(run(AT_ONCE, "x"))
    assert (alert.state, alert.active_ns, alert.fired_ns) == (AlertState.FIRING, START, START)


def test_what_was_pending_is_forgotten_and_waits_anew() -> None:
    assert run(DOWN, "xx.") == {}
    alert = only(run(DOWN, "xx.xx"))
    assert (alert.state, alert.active_ns) == (AlertState.PENDING, START + 3 * MINUTE)


def test_what_fired_is_resolved_and_remembered_for_a_quarter_of_an_hour() -> None:
    alert = only(run(AT_ONCE, "x."))
    assert (alert.state, alert.resolved_ns) == (AlertState.INACTIVE, START + MINUTE)
    assert alert.fired_ns == START
    # The service keeps the resolved alert until the last minute of the retention, and no longer.
    assert only(run(AT_ONCE, "x" + "." * 16)) == alert
    assert run(AT_ONCE, "x" + "." * 17) == {}
    assert RESOLVED_RETENTION_S == 15 * 60


def test_what_was_resolved_and_holds_again_begins_anew() -> None:
    resolved = run(DOWN, "xxx.")
    alert = only(run(DOWN, "x", resolved, START + 4 * MINUTE))
    assert (alert.state, alert.active_ns) == (AlertState.PENDING, START + 4 * MINUTE)
    assert (alert.fired_ns, alert.resolved_ns) == (None, None)


def test_it_keeps_firing_for_as_long_as_it_was_told() -> None:
    kept = only(run(KEEPS, "x.."))
    assert (kept.state, kept.keep_firing_since_ns) == (AlertState.FIRING, START + MINUTE)
    ended = only(run(KEEPS, "x..."))
    assert (ended.state, ended.resolved_ns) == (AlertState.INACTIVE, START + 3 * MINUTE)


def test_what_holds_again_while_it_keeps_firing_is_the_same_alert() -> None:
    alert = only(run(KEEPS, "x..x"))
    assert (alert.state, alert.active_ns, alert.fired_ns) == (AlertState.FIRING, START, START)
    assert alert.keep_firing_since_ns is None
    assert only(run(KEEPS, "x..x..")).state is AlertState.FIRING


def test_what_is_pending_does_not_keep_firing() -> None:
    assert run(msgspec.structs.replace(KEEPS, for_s=600), "xxx.") == {}


def test_the_rules_labels_cover_the_rows_and_the_name_covers_all() -> None:
    rule = msgspec.structs.replace(
        AT_ONCE,
        labels={
            "severity": "page",
            "host": "",
            "where": "port {{ $labels.port }}",
            "alertname": "x",
        },
    )
    found = [row("1", host="h", severity="low")]
    alert = only(advance(rule, {}, found, START, expand))
    assert dict(alert.labels) == {
        "alertname": "Down",
        "port": "1",
        "severity": "page",
        "where": "port 1",
    }
    assert alert.labels == tuple(sorted(alert.labels))
    assert alert.name == "Down"


def test_annotations_and_value_are_of_the_last_evaluation_that_found_it() -> None:
    rule = msgspec.structs.replace(
        KEEPS, annotations={"summary": "{{ $value }} on {{ $labels.port }}", "plain": "words"}
    )
    alerts = advance(rule, {}, [row(value=1.0)], START, expand)
    alerts = advance(rule, alerts, [row(value=2.0)], START + MINUTE, expand)
    alerts = advance(rule, alerts, [], START + 2 * MINUTE, expand)
    assert only(alerts).value == 2.0
    assert only(alerts).annotations == {"summary": "2 on 1", "plain": "words"}


def test_rows_that_become_one_alert_are_an_error_and_what_stands_stays() -> None:
    rule = msgspec.structs.replace(AT_ONCE, labels={"port": "all"})
    standing = run(rule, "x")
    before = dict(standing)
    with pytest.raises(RuleError, match="same labelset after applying alert labels") as error:
        advance(rule, standing, [row("1"), row("2")], START + MINUTE, expand)
    assert not isinstance(error.value, RuleLimitError)
    assert standing == before


def test_two_metrics_that_differ_by_name_alone_are_one_alert() -> None:
    found = [Found({"__name__": "a", "port": "1"}, 1.0), Found({"__name__": "b", "port": "1"}, 1.0)]
    with pytest.raises(RuleError):
        advance(AT_ONCE, {}, found, START, expand)


def test_past_its_limit_a_rule_is_an_error_that_says_to_forget() -> None:
    found = [row(str(port)) for port in range(3)]
    assert len(advance(DOWN, {}, found, START, expand, limit=3)) == 3
    with pytest.raises(RuleLimitError, match="exceeded limit of 2 with 3 alerts"):
        advance(DOWN, {}, found, START, expand, limit=2)


def test_the_limit_counts_what_keeps_firing_and_not_what_is_resolved() -> None:
    kept = advance(KEEPS, {}, [row("1"), row("2")], START, expand)
    with pytest.raises(RuleLimitError):
        advance(KEEPS, kept, [row("3")], START + MINUTE, expand, limit=2)
    resolved = advance(AT_ONCE, {}, [row("1"), row("2")], START, expand)
    assert len(advance(AT_ONCE, resolved, [row("3")], START + MINUTE, expand, limit=2)) == 3


def test_more_rows_than_anybody_could_read_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "FOUND_MAX", 2)
    with pytest.raises(RuleError, match="FOUND_MAX"):
        advance(AT_ONCE, {}, [row(str(port)) for port in range(3)], START, expand)


def test_of_too_many_resolved_alerts_the_oldest_are_forgotten_and_none_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(life, "RESOLVED_MAX", 2)
    alerts: Alerts = {}
    for number in range(4):
        alerts = advance(AT_ONCE, alerts, [row(str(number))], START + number * MINUTE, expand)
    assert [dict(labels)["port"] for labels in alerts] == ["0", "1", "2", "3"]
    alerts = advance(AT_ONCE, alerts, [], START + 4 * MINUTE, expand)
    assert [dict(labels)["port"] for labels in alerts] == ["1", "2", "3"]


# --- after a restart ---------------------------------------------------------------------------

HOUR_LONG = msgspec.structs.replace(DOWN, for_s=3600)


def pending(held_s: int) -> tuple[Alert, int]:
    """A pending alert that had held for ``held_s`` at the last evaluation, and that time."""
    alert = only(advance(HOUR_LONG, {}, [row()], START, expand))
    return alert, START + held_s * NS


def fires_after(rule: Rule, held_s: int, down_s: int) -> int | None:
    """Seconds from the restart until the alert fires if it still holds; None: it is dropped."""
    alert, last_ns = pending(held_s)
    now_ns = last_ns + down_s * NS
    alerts = restored(rule, [alert], last_ns, now_ns)
    if not alerts:
        return None
    return (only(alerts).active_ns - now_ns) // NS + round(rule.for_s)


def test_an_outage_does_not_count_as_waiting() -> None:
    assert fires_after(HOUR_LONG, held_s=1200, down_s=600) == 2400
    assert fires_after(HOUR_LONG, held_s=1200, down_s=3000) == 2400


def test_at_least_the_grace_period_remains() -> None:
    assert fires_after(HOUR_LONG, held_s=3500, down_s=600) == FOR_GRACE_PERIOD_S
    assert fires_after(HOUR_LONG, held_s=3600 - FOR_GRACE_PERIOD_S, down_s=60) == FOR_GRACE_PERIOD_S
    assert fires_after(HOUR_LONG, held_s=3001, down_s=60) == FOR_GRACE_PERIOD_S


def test_a_rule_that_waits_for_less_than_the_grace_period_waits_from_the_start() -> None:
    short = msgspec.structs.replace(DOWN, for_s=FOR_GRACE_PERIOD_S - 1)
    assert fires_after(short, held_s=500, down_s=60) is None
    exact = msgspec.structs.replace(DOWN, for_s=FOR_GRACE_PERIOD_S)
    assert fires_after(exact, held_s=500, down_s=60) == FOR_GRACE_PERIOD_S


def test_past_the_outage_tolerance_the_wait_begins_anew() -> None:
    assert fires_after(HOUR_LONG, held_s=1200, down_s=OUTAGE_TOLERANCE_S) == 2400
    assert fires_after(HOUR_LONG, held_s=1200, down_s=OUTAGE_TOLERANCE_S + 1) is None


def test_what_had_waited_long_enough_fires_if_it_still_holds() -> None:
    alert, last_ns = pending(held_s=3000)
    less_patient = msgspec.structs.replace(HOUR_LONG, for_s=60)
    alerts = restored(less_patient, [alert], last_ns, last_ns + MINUTE)
    alerts = advance(less_patient, alerts, [row()], last_ns + MINUTE, expand)
    assert only(alerts).state is AlertState.FIRING


def test_a_clock_that_was_set_back_is_no_outage() -> None:
    alert, last_ns = pending(held_s=1200)
    assert only(restored(HOUR_LONG, [alert], last_ns, last_ns - MINUTE)) == alert


def test_what_fired_fires_on_however_long_the_outage() -> None:
    firing, kept = only(run(AT_ONCE, "x")), only(run(KEEPS, "x."))
    later = START + 2 * OUTAGE_TOLERANCE_S * NS
    assert only(restored(AT_ONCE, [firing], START, later)) == firing
    assert only(restored(KEEPS, [kept], START, later)) == kept
    # The first evaluation then sends the resolved alert to the receivers of the firing one.
    ended = advance(AT_ONCE, restored(AT_ONCE, [firing], START, later), [], later, expand)
    [told] = to_send(ended.values(), {firing.labels: START}, later, 60, 60)
    assert told.ends_ns == later


def test_what_was_resolved_is_remembered_as_long_as_it_would_have_been() -> None:
    resolved = only(run(AT_ONCE, "x."))
    end_ns = START + MINUTE + RESOLVED_RETENTION_S * NS
    assert only(restored(AT_ONCE, [resolved], START + MINUTE, end_ns)) == resolved
    assert restored(AT_ONCE, [resolved], START + MINUTE, end_ns + 1) == {}


# --- series ------------------------------------------------------------------------------------


def test_what_is_pending_or_fires_has_two_series() -> None:
    alerts = advance(DOWN, {}, [row("1")], START + 999, expand)
    alerts = advance(DOWN, alerts, [row("1"), row("2")], START + 2 * MINUTE + 999, expand)
    shown = {str(each.series): each.value for each in alert_samples(alerts.values(), 7)}
    first, second = START // NS, START // NS + 120
    assert shown == {
        'ALERTS{alertname="Down",alertstate="firing",port="1"}': 1.0,
        'ALERTS_FOR_STATE{alertname="Down",port="1"}': float(first),
        'ALERTS{alertname="Down",alertstate="pending",port="2"}': 1.0,
        'ALERTS_FOR_STATE{alertname="Down",port="2"}': float(second),
    }
    assert {each.time_ns for each in alert_samples(alerts.values(), 7)} == {7}


def test_what_is_resolved_has_none_and_what_keeps_firing_has() -> None:
    assert alert_samples(run(AT_ONCE, "x.").values(), START) == []
    [state, _] = alert_samples(run(KEEPS, "x.").values(), START)
    assert dict(state.series.labels)["alertstate"] == "firing"


# --- sending -----------------------------------------------------------------------------------


def told(alerts: Alerts, last_sent_s: int | None, now_s: int) -> list[tuple[int, int]]:
    """Start and end of each alert that the service sends, in seconds; the interval is 30 s."""
    last_sent = {} if last_sent_s is None else dict.fromkeys(alerts, START + last_sent_s * NS)
    sent = to_send(alerts.values(), last_sent, START + now_s * NS, resend_s=60, interval_s=30)
    return [((each.starts_ns - START) // NS, (each.ends_ns - START) // NS) for each in sent]


def test_what_is_pending_is_nobodys_business() -> None:
    assert told(run(DOWN, "xx"), None, 60) == []


def test_what_fires_is_told_at_once_and_then_again_after_the_delay() -> None:
    alerts = run(DOWN, "xxx")
    assert told(alerts, None, 120) == [(120, 120 + 240)]
    assert told(alerts, 120, 179) == []
    assert told(alerts, 120, 180) == [(120, 180 + 240)]


def test_of_a_slow_group_it_is_valid_for_four_of_its_intervals() -> None:
    [sent] = to_send(run(AT_ONCE, "x").values(), {}, START, resend_s=60, interval_s=300)
    assert sent.ends_ns == START + 1200 * NS


def test_what_is_over_is_told_at_once_and_again_until_it_is_forgotten() -> None:
    alerts = run(AT_ONCE, "x.")
    assert told(alerts, 59, 60) == [(0, 60)]
    assert told(alerts, 60, 119) == []
    assert told(alerts, 60, 120) == [(0, 60)]
    assert told(alerts, None, 900) == [(0, 60)]


def test_what_fires_again_is_told_at_once_though_its_end_was_just_told() -> None:
    alerts = run(AT_ONCE, "x.x")
    assert told(alerts, 60, 120) == [(120, 120 + 240)]
    again = run(AT_ONCE, "x", run(AT_ONCE, "x."), START + 70 * NS)
    assert told(again, 60, 70) == [(70, 70 + 240)]


def test_what_is_told_has_the_words_of_the_alert() -> None:
    rule = msgspec.structs.replace(AT_ONCE, annotations={"summary": "port {{ $labels.port }}"})
    [sent] = to_send(run(rule, "x").values(), {}, START, 60, 60)
    assert sent.annotations == {"summary": "port 1"}
    assert sent.labels == (("alertname", "Down"), ("port", "1"))
