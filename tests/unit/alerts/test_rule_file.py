"""Rule files: the rules of a good one, the errors of a bad one, the cost of a hostile one."""

import math

import pytest
import yaml

from alerts.rulebook import plain_yaml
from alerts.rulebook.file import (
    RULE_FILE_BYTES_MAX,
    duplicate_rules,
    parse_rules,
    read_duration,
    write_duration,
)
from alerts.rulebook.model import Rule
from collector.contract.errors import ParseError, RuleFileError

WHOLE = """\
# The rules of one team.
groups:
  - name: links
    interval: 1m30s
    limit: 20
    query_offset: 30s
    labels: {team: network, severity: low}
    rules:
      - record: host:port_bytes:rate1m
        expr: sum by (host) (rate(port_bytes_total[1m]))

      - alert: LinkDown
        expr: |
          port_up
            == 0
        for: 5m
        keep_firing_for: 10m
        labels:
          severity: page
          since: yes
        annotations:
          summary: "{{ $labels.port }} is down"
          number: 0x10
  - name: empty
"""


DURATION_HINT = "write 30s, 5m or 1h30m (y w d h m s ms)"


def problems_of(text: str) -> list[tuple[int, str]]:
    with pytest.raises(RuleFileError) as refused:
        parse_rules(text, "links.yaml")
    return list(refused.value.problems)


def test_a_whole_file_is_read() -> None:
    links, empty = parse_rules(WHOLE, "links.yaml")
    assert (links.file, links.name, links.key) == ("links.yaml", "links", "links.yaml;links")
    assert (links.interval_s, links.limit, links.query_offset_s) == (90, 20, 30)
    assert links.rules == (
        Rule(
            name="host:port_bytes:rate1m",
            is_alert=False,
            expression="sum by (host) (rate(port_bytes_total[1m]))",
            labels={"team": "network", "severity": "low"},
            line=9,
        ),
        Rule(
            name="LinkDown",
            is_alert=True,
            expression="port_up\n  == 0\n",
            for_s=300,
            keep_firing_for_s=600,
            labels={"team": "network", "severity": "page", "since": "yes"},
            annotations={"summary": "{{ $labels.port }} is down", "number": "0x10"},
            line=12,
        ),
    )
    assert (empty.rules, empty.interval_s, empty.limit, empty.query_offset_s) == ((), None, 0, None)


def test_an_interval_of_0_is_none_and_an_offset_of_0_is_0() -> None:
    [group] = parse_rules("groups: [{name: g, interval: 0s, query_offset: 0s}]", "a.yaml")
    assert group.interval_s is None
    assert group.query_offset_s == 0


def test_null_is_no_text_but_null_in_quotes_is() -> None:
    text = "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: ~, b: '~', c: null}}]}]"
    [group] = parse_rules(text, "a.yaml")
    assert group.rules[0].labels == {"a": "", "b": "~", "c": ""}


def test_a_merge_gives_way_to_what_is_said_and_the_first_merge_to_none_after_it() -> None:
    text = """\
groups:
  - name: g
    rules:
      - {alert: A, expr: up, labels: &a {severity: page, team: x}}
      - {alert: B, expr: up, labels: &b {severity: low, team: y, tier: "1"}}
      - {alert: C, expr: up, labels: {<<: [*a, *b], team: z}}
      - {alert: D, expr: up, labels: {"<<": literal}}
"""
    [group] = parse_rules(text, "a.yaml")
    assert group.rules[2].labels == {"severity": "page", "team": "z", "tier": "1"}
    assert group.rules[3].labels == {"<<": "literal"}


def test_all_that_is_wrong_is_told_at_once_in_order_with_lines() -> None:
    text = """\
groups:
  - name: g
    intervall: 30s
    rules:
      - alert: A
        exp: up
        for: 5 minutes
      - record: a
        alert: B
        expr: up
      - record: b
        expr: up
        annotations: {summary: words}
  - name: g
    limit: few
"""
    assert problems_of(text) == [
        (3, "group 'g': a group has no field 'intervall'; did you mean interval?"),
        (5, "group 'g', rule 1 'A': it has no expr"),
        (6, "group 'g', rule 1 'A': a rule has no field 'exp'; did you mean expr?"),
        (7, f"group 'g', rule 1 'A': for: '5 minutes' is no duration; {DURATION_HINT}"),
        (9, "group 'g', rule 2: it has both record and alert; a rule is one of them"),
        (13, "group 'g', rule 3 'b': annotations is for alerts; this rule records a series"),
        (14, "group 'g' is there twice, first in line 2"),
        (15, "group 'g': limit is 'few'; it must be a whole number"),
    ]


def test_the_error_names_the_first_and_how_many_more() -> None:
    with pytest.raises(RuleFileError) as refused:
        parse_rules("groups:\n- {name: g, a: b}\n- {name: h, c: d}\n", "links.yaml")
    error = refused.value
    assert (error.file, error.line, error.left_out) == ("links.yaml", 2, 0)
    assert str(error) == f"links.yaml:2: {error.detail} (and 1 more)"


def test_problems_past_the_bound_are_counted() -> None:
    groups = "".join(f"- {{name: g{number}, bad: 1}}\n" for number in range(60))
    with pytest.raises(RuleFileError) as refused:
        parse_rules(f"groups:\n{groups}", "links.yaml")
    assert len(refused.value.problems) == plain_yaml.PROBLEMS_MAX
    assert refused.value.left_out == 60 - plain_yaml.PROBLEMS_MAX
    assert str(refused.value).endswith("(and 59 more)")


def test_a_field_that_is_there_twice_names_both_lines() -> None:
    text = "groups:\n- name: g\n  limit: 1\n  limit: 2\n"
    assert problems_of(text) == [(4, "'limit' is there twice, first in line 3")]


def test_text_from_the_file_is_harmless_in_messages() -> None:
    [(_, detail)] = problems_of(f'groups: [{{name: g, "\\e[2J{"x" * 500}": 1}}]')
    assert detail.isprintable()
    assert len(detail) < 300


# --- durations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("1ms", 0.001),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5_400),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1y", 31_536_000),
        ("1y1w1d1h1m1s1ms", 31_536_000 + 604_800 + 86_400 + 3_600 + 60 + 1.001),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert math.isclose(read_duration(text), seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "-1s", "+1s", "1 s", " 1s", "1s ", "1s\n", "1.5h", "s", "1s1m", "1h1h", "5us"),
        *("1H", "300y", "9" * 60 + "s", "9" * 5_000 + "s", "\N{ARABIC-INDIC DIGIT ONE}s"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.25, "250ms"),
        (61, "1m1s"),
        (3_600, "1h"),
        (90 * 86_400, "90d"),
        (14 * 86_400, "2w"),
        (365 * 86_400, "1y"),
        (366 * 86_400, "366d"),
        (-90, "-1m30s"),
    ],
)
def test_a_duration_is_written_as_prometheus_writes_it(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


# --- duplicates --------------------------------------------------------------------------------


def test_rules_of_one_name_and_the_same_labels_are_duplicates_whatever_their_expression() -> None:
    text = """\
groups:
  - name: g
    rules:
      - {record: a, expr: up}
      - {record: a, expr: up, labels: {x: y}}
      - {alert: A, expr: up}
  - name: h
    rules:
      - {record: a, expr: up == 1}
"""
    [(rule, count)] = duplicate_rules(parse_rules(text, "a.yaml"))
    assert (rule.name, rule.line, count) == ("a", 4, 2)


# --- hostile -----------------------------------------------------------------------------------


def laughs(uses: int) -> str:
    """A YAML alias bomb (billion laughs): ten uses would expand to 10 ** 20 words."""
    lines = ["groups:", "- &a0 {name: g, rules: [x]}"]
    lines += [f"- &a{each} [{', '.join([f'*a{each - 1}'] * uses)}]" for each in range(1, 21)]
    return "\n".join(lines)


MERGES = "\n".join(
    ["a0: &a0 {" + ", ".join(f"k{each}: v" for each in range(500)) + "}"]
    + [f"a{each}: &a{each} {{<<: [{', '.join([f'*a{each - 1}'] * 19)}]}}" for each in range(1, 99)]
)
MANY_RULES = (
    "groups:\n- name: g\n  rules: &r ["
    + ", ".join(["{record: a, expr: up}"] * 3_000)
    + "]\n"
    + "".join(f"- {{name: g{each}, rules: *r}}\n" for each in range(900))
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (laughs(10), "where a group should be"),
        (laughs(101), "ALIASES_MAX"),
        (MERGES, "NODES_MAX"),
        (MANY_RULES, "RULES_MAX"),
        ("groups: [" + "{name: g}, " * 1_001 + "]", "GROUPS_MAX"),
        ("[" * 500_000, "DEPTH_MAX"),
        ("{a: " * 200_000, "DEPTH_MAX"),
        ("- " * 500_000, "DEPTH_MAX"),
        ("? " * 500_000, "DEPTH_MAX"),
        ("".join(f"{' ' * each}- \n" for each in range(1_400)), "DEPTH_MAX"),
        ("[" + "a," * 300_000, "NODES_MAX"),
        ("x" * (RULE_FILE_BYTES_MAX + 1), f"at most {RULE_FILE_BYTES_MAX}"),
        ("é" * (RULE_FILE_BYTES_MAX // 2 + 1), f"at most {RULE_FILE_BYTES_MAX}"),
        ("groups: []\n# \ud800", "no UTF-8"),
        ("groups: []\n\0", "no YAML"),
        ("groups: &a {b: *a}", "contains itself"),
        ("groups: [{name: g, limit: " + "9" * 5_000 + "}]", "whole number"),
        ("groups: [{name: " + "g" * 5_000 + "}]", "characters"),
        (f"groups: [{{name: g, rules: [{{record: a, expr: {'x' * 40_000}}}]}}]", "characters"),
        (f"groups: [{{name: g, labels: {{{'x' * 900}: a}}}}]", "cannot be a name"),
        ('groups: [{name: g, labels: {"a\\nb": a}}]', "cannot be a name"),
        ('groups: [{name: g, rules: [{record: "a\\x07", expr: up}]}]', "cannot be the name"),
        (f"groups: [{{name: g, labels: {{{', '.join(f'k{i}: v' for i in range(65))}}}}}]", "65"),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, str) else "",
)
def test_a_hostile_file_is_refused_by_a_bound(text: str, words: str) -> None:
    with pytest.raises(RuleFileError) as refused:
        parse_rules(text, "links.yaml")
    assert any(words in detail for _, detail in refused.value.problems), refused.value.problems


def test_labels_of_group_and_rule_together_stay_below_those_of_a_series() -> None:
    group = ", ".join(f"a{each}: v" for each in range(40))
    rule = ", ".join(f"b{each}: v" for each in range(40))
    rules = f"[{{record: a, expr: up, labels: {{{rule}}}}}]"
    [(_, detail)] = problems_of(f"groups: [{{name: g, labels: {{{group}}}, rules: {rules}}}]")
    assert "80 labels with its group's" in detail


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = parse_rules(WHOLE, "links.yaml")
    monkeypatch.setattr(plain_yaml, "LOADER", yaml.BaseLoader)
    assert parse_rules(WHOLE, "links.yaml") == usual
    assert "no YAML" in problems_of("groups: []\n\0")[0][1]
    assert problems_of("groups:\n  - [\n")[0][0] >= 2
