"""Random rule files and random lives of alerts: what must hold whatever comes."""

import json
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from alerts.rulebook.file import parse_rules, read_duration, write_duration
from alerts.rulebook.life import RESOLVED_RETENTION_S, advance, restored, to_send
from alerts.rulebook.model import Alert, AlertState, Found, Rule
from collector.contract.errors import RuleFileError
from collector.contract.identity import Labels
from collector.contract.units import NS

START = 1_800_000_000 * NS
RESEND_S = 60
INTERVAL_S = 30

Alerts = dict[Labels, Alert]


def expand(text: str, labels: Mapping[str, str], value: float) -> str:
    return f"{text}{labels.get('port')}{value}"


def rows(ports: Sequence[int]) -> list[Found]:
    return [Found({"__name__": "up", "port": str(port)}, float(port)) for port in ports]


waits = st.sampled_from([0.0, 1.0, 30.0, 45.0, 60.0, 300.0])
rules = st.builds(
    lambda wait, keep: Rule(
        name="Down",
        is_alert=True,
        expression="up == 0",
        for_s=wait,
        keep_firing_for_s=keep,
        labels={"severity": "page"},
        annotations={"summary": "{{ words }}"},
    ),
    waits,
    waits,
)
steps = st.tuples(
    # Seconds since the evaluation before: some are missed, some outlast the retention.
    st.sampled_from([1, INTERVAL_S, INTERVAL_S, INTERVAL_S, 60, 300, 1000]),
    st.lists(st.integers(0, 3), unique=True, max_size=4),
)
histories = st.lists(steps, min_size=1, max_size=40)


def lives(
    rule: Rule, history: Sequence[tuple[int, list[int]]]
) -> Iterator[tuple[int, list[int], Alerts, Alerts]]:
    """Each evaluation: its moment, what was found, the alerts before and after."""
    before: Alerts = {}
    now = START
    for seconds, ports in history:
        now += seconds * NS
        after = advance(rule, before, rows(ports), now, expand)
        yield now, ports, before, after
        before = after


def simple_life(
    rule: Rule, history: Sequence[tuple[int, list[int]]], port: int
) -> list[tuple[str, int] | None]:
    """The state of one port's alert and since when it holds, after each evaluation. Seconds."""
    told: list[tuple[str, int] | None] = []
    state, now, since, ceased, resolved = "none", START // NS, 0, 0, 0
    for seconds, ports in history:
        now += seconds
        if port in ports:
            if state in {"none", "inactive"}:
                state, since = "pending", now
            if state == "pending" and now - since >= rule.for_s:
                state = "firing"
            ceased = 0
        elif state == "pending":
            state = "none"
        elif state == "firing":
            ceased = ceased or now
            if now - ceased >= rule.keep_firing_for_s:
                state, resolved = "inactive", now
        elif state == "inactive" and now - resolved > RESOLVED_RETENTION_S:
            state = "none"
        told.append(None if state == "none" else (state, since))
    return told


@given(rules, histories)
def test_every_life_is_that_of_a_simple_model(
    rule: Rule, history: list[tuple[int, list[int]]]
) -> None:
    rounds = [after for _, _, _, after in lives(rule, history)]
    for port in range(4):
        ours = [
            next(
                (
                    (alert.state.value, alert.active_ns // NS)
                    for alert in alerts.values()
                    if ("port", str(port)) in alert.labels
                ),
                None,
            )
            for alerts in rounds
        ]
        assert ours == simple_life(rule, history, port)


@given(rules, histories)
def test_the_order_of_rows_and_of_alerts_does_not_matter(
    rule: Rule, history: list[tuple[int, list[int]]]
) -> None:
    standing: Alerts = {}
    for now, ports, before, after in lives(rule, history):
        assert before == standing
        turned = dict(reversed(standing.items()))
        again = advance(rule, turned, rows(ports[::-1]), now, expand)
        assert list(again.items()) == list(after.items())
        standing = again


@given(rules, histories)
def test_every_turn_is_one_that_may_be(rule: Rule, history: list[tuple[int, list[int]]]) -> None:
    may_follow: dict[AlertState | None, set[AlertState | None]] = {
        None: {AlertState.PENDING, AlertState.FIRING, None},
        AlertState.PENDING: {AlertState.PENDING, AlertState.FIRING, None},
        AlertState.FIRING: {AlertState.FIRING, AlertState.INACTIVE},
        AlertState.INACTIVE: {AlertState.INACTIVE, AlertState.PENDING, AlertState.FIRING, None},
    }
    for now, ports, before, after in lives(rule, history):
        for labels in before.keys() | after.keys():
            old, new = before.get(labels), after.get(labels)
            assert (new.state if new else None) in may_follow[old.state if old else None]
        for labels, alert in after.items():
            assert alert.labels == labels
            assert alert.active_ns <= (alert.fired_ns or now) <= (alert.resolved_ns or now) <= now
            assert (alert.resolved_ns is not None) == (alert.state is AlertState.INACTIVE)
            assert (alert.fired_ns is not None) == (alert.state is not AlertState.PENDING)
        holding = {labels for labels, alert in after.items() if alert.value in ports}
        assert len(holding) == len(ports)


@given(rules, histories)
def test_every_beginning_and_every_end_is_told_once_and_in_order(
    rule: Rule, history: list[tuple[int, list[int]]]
) -> None:
    """And again only after `RESEND_S`, to a receiver that gets every sending."""
    last_sent: dict[Labels, int] = {}
    told: dict[Labels, tuple[int, bool]] = {}
    for now, _, _, after in lives(rule, [*history, (INTERVAL_S, [])]):
        for each in to_send(after.values(), last_sent, now, RESEND_S, INTERVAL_S):
            is_over = each.ends_ns <= now
            news = (each.starts_ns, is_over)
            # The same thing twice only after the delay.
            assert told.get(each.labels) != news or now - last_sent[each.labels] >= RESEND_S * NS
            # An end is sent only after its beginning.
            assert not is_over or told[each.labels][0] == each.starts_ns
            assert each.starts_ns <= each.ends_ns
            told[each.labels], last_sent[each.labels] = news, now
        for labels, alert in after.items():
            if alert.state is AlertState.PENDING:
                assert told.get(labels, (0, True))[1]
            else:
                assert told[labels] == (alert.fired_ns, alert.state is AlertState.INACTIVE)
        # An alert is forgotten only after its end was sent.
        assert all(is_over for labels, (_, is_over) in told.items() if labels not in after)


@given(rules, histories, st.integers(0, 2 * 3600), st.integers(0, 3600))
def test_after_a_restart_nothing_fires_sooner_than_without_and_nothing_that_fired_is_lost(
    rule: Rule, history: list[tuple[int, list[int]]], down_s: int, wait_s: int
) -> None:
    patient = Rule(name="Down", is_alert=True, expression="up == 0", for_s=float(wait_s))
    for each in (rule, patient):
        *_, (last_ns, _, _, kept) = lives(each, history)
        now = last_ns + down_s * NS
        after = restored(each, kept.values(), last_ns, now)
        for labels, alert in after.items():
            assert alert.active_ns >= kept[labels].active_ns
            assert alert.state is kept[labels].state
        firing = {label for label, alert in kept.items() if alert.state is AlertState.FIRING}
        assert firing <= after.keys()
        assert restored(each, list(kept.values())[::-1], last_ns, now) == after


# --- files -------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1)
durations = st.integers(0, 10**12).map(lambda milliseconds: milliseconds / 1000)
names = words.map(lambda name: name[:20]).filter(str.isprintable)
labels = st.dictionaries(names, words, max_size=3)
rule_texts = st.fixed_dictionaries(
    {"alert": words, "expr": words},
    optional={
        "for": durations.map(write_duration),
        "keep_firing_for": durations.map(write_duration),
        "labels": labels,
        "annotations": labels,
    },
)


@given(st.lists(rule_texts, max_size=4))
def test_what_was_written_is_read(texts: list[dict[str, object]]) -> None:
    text = json.dumps({"groups": [{"name": "g", "rules": texts}]}, ensure_ascii=False)
    [group] = parse_rules(text, "a.yaml")
    for rule, wanted in zip(group.rules, texts, strict=True):
        assert (rule.name, rule.expression) == (wanted["alert"], wanted["expr"])
        assert rule.for_s == read_duration(str(wanted.get("for", "0")))
        assert rule.keep_firing_for_s == read_duration(str(wanted.get("keep_firing_for", "0")))
        assert rule.labels == wanted.get("labels", {})
        assert rule.annotations == wanted.get("annotations", {})


@given(durations)
def test_a_duration_is_read_as_it_was_written(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


scraps = st.sampled_from(
    [
        *(
            "groups:",
            "- ",
            "name: g",
            "rules:",
            "alert: A",
            "expr: up",
            "for: 5m",
            "labels:",
            "a: b",
        ),
        *(
            "\n",
            "  ",
            "    ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "&a ",
            "*a",
            "<<: ",
            "'",
            '"',
            "|",
            ">",
            "?",
        ),
        *(
            ": ",
            "~",
            "!!int ",
            "!x ",
            "%YAML",
            "---",
            "...",
            "#",
            "\t",
            "\r",
            "\0",
            "\ud800",
            "\ufeff",
        ),
    ]
)


@given(st.lists(scraps, max_size=40).map("".join) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        groups, problems = parse_rules(text, "a.yaml"), None
    except RuleFileError as error:
        groups, problems = [], error.problems
    assert all(group.name and rule.expression for group in groups for rule in group.rules)
    assert problems is None or problems
    assert all(0 <= line <= max(1, len(text.splitlines())) for line, _ in problems or ())
