"""Small rule files, good and bad: the real promtool and our check must agree on each.

Debian's promtool is 2.42, and we follow Prometheus 3: what differs is in `DIFFERENT`, each with its
reason. Everything else has one verdict, and the table says which.
"""

import subprocess
from pathlib import Path

import pytest

from alerts.rulebook.file import parse_rules
from collector.contract.errors import RuleFileError
from tests.tools import peers

PROMTOOL_SECONDS = 60


def alert(*lines: str, expr: str = "up == 0") -> str:
    """A file with one alert that has these lines, too."""
    return rule("alert: Down", f"expr: {expr}", *lines)


def rule(*lines: str) -> str:
    """A file with one rule of these lines."""
    first, *others = lines
    body = "".join(f"\n        {line}" for line in others)
    return f"groups:\n  - name: g\n    rules:\n      - {first}{body}\n"


def group(*lines: str) -> str:
    """A file with one group that has these lines, and one rule."""
    body = "".join(f"\n    {line}" for line in lines)
    return f"groups:\n  - name: g{body}\n    rules: [{{record: 'a:b', expr: up}}]\n"


GOOD = {
    "nothing": "",
    "a comment": "# rules will come\n",
    "a document of nothing": "---\n",
    "null": "~\n",
    "no field": "{}\n",
    "no groups": "groups:\n",
    "an empty list of groups": "groups: []\n",
    "a group without rules": "groups: [{name: g}]\n",
    "a group whose rules are null": "groups: [{name: g, rules: }]\n",
    "an alert": alert(),
    "a record": rule("record: job:up:sum", "expr: sum by (job) (up)"),
    "everything of an alert": alert(
        "for: 1h30m",
        "keep_firing_for: 10m",
        "labels: {severity: page}",
        "annotations: {summary: 'it is down'}",
    ),
    "a group's interval and limit": group("interval: 30s", "limit: 5"),
    "an interval of 0": group("interval: 0"),
    "an interval of 0s": group("interval: 0s"),
    "a null interval": group("interval:"),
    "a null limit": group("limit: ~"),
    "for: 0": alert("for: 0"),
    "for: 0s": alert("for: 0s"),
    "for in quotes": alert("for: '5m'"),
    "for of all units": alert("for: 1y2w3d4h5m6s7ms"),
    "for of 250 years": alert("for: 250y"),
    "for of leading zeros": alert("for: 005m"),
    "a null for": alert("for:"),
    "a record with for of 0": rule("record: a", "expr: up", "for: 0s"),
    "a record with no annotations": rule("record: a", "expr: up", "annotations: {}"),
    "yes is text": alert("labels: {critical: yes}"),
    "a number is text": alert("labels: {tier: 1}"),
    "a float is text": alert("annotations: {threshold: 1e3}"),
    "a date is text": alert("annotations: {since: 2026-01-01}"),
    "a null label": alert("labels: {team: }"),
    "an empty label": alert("labels: {team: ''}"),
    "null labels": alert("labels:"),
    "an expression of a number": rule("record: one", "expr: 1"),
    "a folded expression": rule("record: a", "expr: >-", "  up", "  == 0"),
    "a kept expression": rule("record: a", "expr: |", "  up", "  == 0"),
    "the alertname as a label": alert("labels: {alertname: Other}"),
    "an alert's name of any text": rule("alert: 'it is down!'", "expr: up == 0"),
    "a name with colons": rule("record: ':a:b:'", "expr: up"),
    "JSON": '{"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0"}]}]}',
    "an anchor and an alias": (
        "groups:\n"
        "  - name: g\n"
        "    rules:\n"
        "      - {alert: A, expr: up == 0, labels: &page {severity: page}}\n"
        "      - {alert: B, expr: up == 1, labels: *page}\n"
    ),
    "a merge": (
        "groups:\n"
        "  - name: g\n"
        "    rules:\n"
        "      - {alert: A, expr: up == 0, labels: &page {severity: page}}\n"
        "      - {alert: B, expr: up == 1, labels: {<<: *page, team: net}}\n"
    ),
    "two merges": (
        "groups:\n"
        "  - name: g\n"
        "    rules:\n"
        "      - {alert: A, expr: up == 0, labels: &a {severity: page}}\n"
        "      - {alert: B, expr: up == 1, labels: &b {severity: low, x: y}}\n"
        "      - {alert: C, expr: up == 2, labels: {<<: [*a, *b]}}\n"
    ),
    "a merge into a rule": (
        "groups:\n"
        "  - name: g\n"
        "    rules:\n"
        "      - &a {alert: A, expr: up == 0}\n"
        "      - {<<: *a, alert: B}\n"
    ),
    "one rule twice": (
        "groups:\n  - name: g\n    rules: [{record: a, expr: up}, {record: a, expr: up}]\n"
    ),
    "one name in two groups": (
        "groups:\n"
        "  - {name: g, rules: [{alert: A, expr: up == 0}]}\n"
        "  - {name: h, rules: [{alert: A, expr: up == 0}]}\n"
    ),
    "one group in two cases": "groups: [{name: g}, {name: G}]\n",
    "a YAML directive": "%YAML 1.1\n---\ngroups: []\n",
    "an end mark": "groups: []\n...\n",
    "carriage returns": alert("for: 5m").replace("\n", "\r\n"),
    "a byte order mark": "\ufeffgroups: []\n",
    "an explicit tag of text": alert("labels: {tier: !!str 1}"),
}

BAD = {
    "a list": "- name: g\n",
    "a word": "groups\n",
    "groups of text": "groups: all\n",
    "groups of a map": "groups: {name: g}\n",
    "a group of text": "groups: [g]\n",
    "a group without a name": "groups: [{rules: [{record: a, expr: up}]}]\n",
    "a group with an empty name": "groups: [{name: '', rules: []}]\n",
    "a group with a null name": "groups: [{name: ~, rules: []}]\n",
    "a group's name of a list": "groups: [{name: [g], rules: []}]\n",
    "two groups of one name": "groups: [{name: g}, {name: g}]\n",
    "rules of a map": "groups: [{name: g, rules: {alert: A}}]\n",
    "rules of text": "groups: [{name: g, rules: none}]\n",
    "a rule of text": "groups: [{name: g, rules: [up]}]\n",
    "an unknown field of the file": "rules: []\n",
    "an unknown field of a group": group("intervall: 30s"),
    "an unknown field of a rule": alert("severity: page"),
    "a field in capitals": rule("Alert: A", "expr: up"),
    "no expr": rule("alert: A", "for: 5m"),
    "an empty expr": rule("alert: A", "expr: ''"),
    "a null expr": rule("alert: A", "expr:"),
    "an expr of a list": rule("alert: A", "expr: [up]"),
    "an expr of a map": rule("alert: A", "expr: {up: 1}"),
    "neither alert nor record": rule("expr: up", "for: 5m"),
    "empty names": rule("expr: up", "alert: ''", "record: ''"),
    "both alert and record": rule("alert: A", "record: a", "expr: up"),
    "a record with for": rule("record: a", "expr: up", "for: 5m"),
    "a record with keep_firing_for": rule("record: a", "expr: up", "keep_firing_for: 5m"),
    "a record with annotations": rule("record: a", "expr: up", "annotations: {a: b}"),
    "a record with one brace": rule("record: 'a}'", "expr: up"),
    "a record with braces": rule("record: 'a{b=\"c\"}'", "expr: up"),
    "the metric's name as a label": alert("labels: {__name__: a}"),
    "the metric's name as a record's label": rule("record: a", "expr: up", "labels: {__name__: b}"),
    "an empty label name": alert("labels: {'': a}"),
    "an empty annotation name": alert("annotations: {'': a}"),
    "labels of a list": alert("labels: [severity]"),
    "labels of text": alert("labels: severity"),
    "a label of a list": alert("labels: {severity: [page]}"),
    "a label of a map": alert("labels: {severity: {is: page}}"),
    "an annotation of a list": alert("annotations: {summary: [a]}"),
    "a field twice": alert("for: 1m", "for: 2m"),
    "a label twice": alert("labels: {a: b, a: c}"),
    "groups twice": "groups: []\ngroups: []\n",
    "for of a bare number": alert("for: 5"),
    "for of a fraction": alert("for: 1.5h"),
    "a negative for": alert("for: -5m"),
    "for with a space": alert("for: 5 m"),
    "for in the wrong order": alert("for: 5m1h"),
    "for with a unit twice": alert("for: 1h2h"),
    "for of an unknown unit": alert("for: 5 minutes"),
    "for of microseconds": alert("for: 5us"),
    "for in capitals": alert("for: 5M"),
    "an empty for": alert("for: ''"),
    "for of a list": alert("for: [5m]"),
    "for of 300 years": alert("for: 300y"),
    "an interval of a bare number": group("interval: 30"),
    "a limit of text": group("limit: many"),
    "a limit in quotes": group("limit: '5'"),
    "a limit of a list": group("limit: [5]"),
    "a tab": "groups:\n\t- name: g\n",
    "an open bracket": "groups: [\n",
    "a wrong indent": "groups:\n  - name: g\n   rules: []\n",
    "an unknown alias": "groups: *nobody\n",
    "a control character": "groups: []\n# \x01\n",
    "a value that contains itself": "groups: &g [*g]\n",
    "an unknown directive's version": "%YAML 3.0\n---\ngroups: []\n",
    "a merge of text": alert("labels: {<<: page}"),
}

DIFFERENT: dict[str, tuple[str, bool, str]] = {
    "a group's query_offset": (
        group("query_offset: 1m"),
        True,
        "Prometheus 2.53 brought it; 2.42 does not know it",
    ),
    "a group's labels": (group("labels: {team: net}"), True, "Prometheus 3.0 brought them"),
    "a record's name with a dash": (
        rule("record: a-b", "expr: up"),
        True,
        "Prometheus 3 has names of any UTF-8",
    ),
    "a label's name with a dash": (
        alert("labels: {a-b: c}"),
        True,
        "Prometheus 3 has names of any UTF-8",
    ),
    "an annotation's name with a space": (
        alert("annotations: {'a b': c}"),
        True,
        "Prometheus 3 has names of any UTF-8",
    ),
    "a null group": ("groups: [~]\n", False, "Go leaves it out; a dash without a group is a slip"),
    "a null rule": (
        "groups: [{name: g, rules: [~]}]\n",
        False,
        "Go leaves it out; so the rule would never page",
    ),
    "a second document": (
        "groups: []\n---\ngroups: [{name: g}]\n",
        False,
        "Prometheus leaves it out without a word; the rules in it would never page",
    ),
    "a negative limit": (
        group("limit: -1"),
        False,
        "Prometheus takes it for none, which its writer did not mean",
    ),
    "a limit of a fraction": (
        group("limit: 2.9"),
        False,
        "Go cuts it to 2, which its writer did not mean",
    ),
    "a limit in hexadecimal": (group("limit: 0x10"), False, "whole numbers have digits"),
    "a key of nothing": (alert("labels: {~: a}"), False, "Go leaves the label out without a word"),
    "binary": (alert("labels: {tier: !!binary MQ==}"), False, "text says what it is"),
    "an own tag": (alert("labels: {tier: !mine 1}"), False, "its meaning is not defined"),
    "a bad expression": (
        alert(expr="'up =='"),
        True,
        "expressions are judged where they can be evaluated",
    ),
    "a bad template": (
        alert("annotations: {a: '{{ nobody }}'}"),
        True,
        "templates are judged where they expand",
    ),
}


def is_good(text: str) -> bool:
    """What we say."""
    try:
        parse_rules(text, "rules.yaml")
    except RuleFileError:
        return False
    return True


def promtool_says(texts: dict[str, str], folder: Path) -> dict[str, bool]:
    """What promtool says of each, in one run; its answer is a paragraph for each file."""
    paths = {}
    for number, (name, text) in enumerate(texts.items()):
        paths[name] = folder / f"{number:03d}.yaml"
        paths[name].write_bytes(text.encode())
    done = subprocess.run(
        [str(peers.find("promtool")), "check", "rules", "--lint=none", *map(str, paths.values())],
        check=False,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_SECONDS,
    )
    # The path and the verdict of each that is good are on stdout; why not, on stderr.
    paragraphs = done.stdout.split("Checking ")[1:]
    assert len(paragraphs) == len(texts), done.stderr
    good = {each.splitlines()[0] for each in paragraphs if "SUCCESS" in each}
    return {name: str(path) in good for name, path in paths.items()}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_is_read(name: str) -> None:
    parse_rules(GOOD[name], "rules.yaml")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_a_line(name: str) -> None:
    with pytest.raises(RuleFileError) as refused:
        parse_rules(BAD[name], "rules.yaml")
    assert all(1 <= line <= BAD[name].count("\n") + 1 for line, _ in refused.value.problems)
    assert str(refused.value).startswith(f"rules.yaml:{refused.value.line}: ")


@pytest.mark.peer("promtool")
def test_promtool_says_the_same_of_every_file(tmp_path: Path) -> None:
    wanted = dict.fromkeys(GOOD, True) | dict.fromkeys(BAD, False)
    assert len(wanted) == len(GOOD) + len(BAD)
    assert promtool_says({**GOOD, **BAD}, tmp_path) == wanted


@pytest.mark.peer("promtool")
def test_where_we_differ_from_promtool_is_known(tmp_path: Path) -> None:
    """One that no longer differs is to be moved to the others."""
    said = promtool_says({name: text for name, (text, _, _) in DIFFERENT.items()}, tmp_path)
    for name, (text, wanted, reason) in DIFFERENT.items():
        assert is_good(text) is wanted, name
        assert said[name] is not wanted, name
        assert reason
