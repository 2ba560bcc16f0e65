"""Reads Prometheus' rule files, as strictly as Prometheus 3 does. Pure: text in, groups out.

Expressions and templates are plain texts here; the engine that evaluates them checks them. All
problems of a file are reported at once, with their lines.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable

from alerts.rulebook.model import Group, Rule
from alerts.rulebook.plain_yaml import (
    Fields,
    Items,
    Node,
    Problems,
    Scalar,
    kind_of,
    quoted,
    read_yaml,
)
from collector.contract.errors import ParseError, RuleFileError
from collector.contract.identity import (
    LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    METRIC_LABEL,
    Labels,
    canonical_labels,
)

RULE_FILE_BYTES_MAX = 2 << 20
"""Of one file. The largest public collections of rules are below 1 MiB."""
GROUPS_MAX = 1_000
"""Groups of one file. Each is a task with a clock of its own."""
RULES_MAX = 10_000
"""Rules of one file, those that aliases repeat among them."""
EXPRESSION_CHARACTERS_MAX = 32_768
"""Of one expression. The longest that are written by hand have two thousand."""
TEMPLATE_CHARACTERS_MAX = 16_384
"""Of one label's or annotation's value: a description of some pages."""
ANNOTATIONS_MAX = 64

FILE_FIELDS = ("groups",)
GROUP_FIELDS = ("name", "interval", "limit", "query_offset", "labels", "rules")
RULE_FIELDS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")

UNITS_MS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
"""Prometheus' units, in the one order in which they may stand. A year has 365 days."""
UNITS_ONLY_WHOLE = frozenset({"y", "w"})
"""Written only where nothing remains: 90d is easier to read than 12w6d."""
DURATION = re.compile("".join(f"(?:([0-9]+){unit})?" for unit in UNITS_MS))
DURATION_NS_MAX = 2**63 - 1
"""What Go's durations hold, some 292 years."""
DURATION_CHARACTERS_MAX = 64
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def parse_rules(text: str, file: str) -> list[Group]:
    """The groups of a rule file's text, named `file`. Raises RuleFileError with all problems."""
    problems = Problems()
    root = read_yaml(text, problems, RULE_FILE_BYTES_MAX)
    groups = FileReader(file, problems).groups(root) if root is not None else []
    if problems:
        raise RuleFileError(file, sorted(problems.told), problems.left_out)
    return groups


def duplicate_rules(groups: Iterable[Group]) -> list[tuple[Rule, int]]:
    """Rules of the same name and labels, with their number: they overwrite each other.

    Prometheus loads them, and promtool warns; so the caller decides whether to warn.
    """

    def identity(rule: Rule) -> tuple[str, Labels]:
        return rule.name, canonical_labels(rule.labels)

    rules = [rule for group in groups for rule in group.rules]
    often = Counter(identity(rule) for rule in rules)
    first = {identity(rule): rule for rule in reversed(rules)}
    return [(first[each], count) for each, count in often.items() if count > 1]


def read_duration(text: str) -> float:
    """The seconds of a duration as Prometheus writes it. Raises ParseError for anything else.

    >>> read_duration("1h30m"), read_duration("0"), read_duration("250ms")
    (5400.0, 0.0, 0.25)
    """
    if text == "0":
        return 0.0
    found = DURATION.fullmatch(text) if 0 < len(text) <= DURATION_CHARACTERS_MAX else None
    if found is None:
        raise ParseError(
            "", f"{quoted(text)} is no duration; write 30s, 5m or 1h30m (y w d h m s ms)"
        )
    counts = zip(found.groups("0"), UNITS_MS.values(), strict=True)
    milliseconds = sum(int(count) * unit for count, unit in counts)
    if milliseconds * 1_000_000 > DURATION_NS_MAX:
        raise ParseError("", f"{quoted(text)} is longer than a duration can be (292 years)")
    return milliseconds / 1_000


def write_duration(seconds: float) -> str:
    """A duration as Prometheus writes it, to the millisecond.

    >>> write_duration(5400), write_duration(90 * 86_400), write_duration(0), write_duration(0.25)
    ('1h30m', '90d', '0s', '250ms')
    """
    rest = round(seconds * 1_000)
    if rest == 0:
        return "0s"
    text = "-" if rest < 0 else ""
    rest = abs(rest)
    for unit, size in UNITS_MS.items():
        if unit in UNITS_ONLY_WHOLE and rest % size:
            continue
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text


class FileReader:
    """Makes groups of a document; reading goes on after a problem."""

    def __init__(self, file: str, problems: Problems) -> None:
        self.file = file
        self.problems = problems
        self.rules = 0
        self.where = ""
        """The group and the rule that is being read, for messages."""

    def wrong(self, line: int, detail: str) -> None:
        self.problems.add(line, f"{self.where}: {detail}" if self.where else detail)

    def groups(self, root: Node) -> list[Group]:
        document = self.fields(root, "a rule file")
        self.check_known(document, FILE_FIELDS, "a rule file")
        nodes = self.items(document.fields.get("groups"), "groups")
        if len(nodes) > GROUPS_MAX:
            self.wrong(root.line, f"{len(nodes)} groups; at most {GROUPS_MAX} (GROUPS_MAX)")
            return []
        groups: list[Group] = []
        lines: dict[str, int] = {}
        for number, node in enumerate(nodes, start=1):
            group = self.group(node, number)
            self.where = ""
            if group.name in lines:
                first = lines[group.name]
                self.wrong(
                    node.line, f"group {quoted(group.name)} is there twice, first in line {first}"
                )
            elif group.name:
                lines[group.name] = node.line
            groups.append(group)
        return groups

    def group(self, node: Node, number: int) -> Group:
        self.where = f"group {number}"
        given = self.fields(node, "a group")
        name = self.text(given, "name")
        if not name:
            self.wrong(node.line, "it has no name")
        self.where = f"group {quoted(name)}" if name else self.where
        self.check_known(given, GROUP_FIELDS, "a group")
        labels = self.labels(given)
        return Group(
            file=self.file,
            name=name,
            # An interval of nothing is none, as for Prometheus.
            interval_s=self.duration(given, "interval") or None,
            limit=self.limit(given),
            query_offset_s=self.duration(given, "query_offset"),
            rules=self.group_rules(given, labels),
        )

    def group_rules(self, given: Fields, labels: dict[str, str]) -> tuple[Rule, ...]:
        nodes = self.items(given.fields.get("rules"), "rules")
        before = self.rules
        self.rules += len(nodes)
        if self.rules > RULES_MAX:
            if before <= RULES_MAX:
                self.wrong(given.line, f"here the file passes {RULES_MAX} rules (RULES_MAX)")
            return ()
        group = self.where
        rules = []
        for number, node in enumerate(nodes, start=1):
            self.where = f"{group}, rule {number}"
            rules.append(self.rule(node, labels))
        self.where = group
        return tuple(rules)

    def rule(self, node: Node, group_labels: dict[str, str]) -> Rule:
        given = self.fields(node, "a rule")
        record, alert = self.text(given, "record"), self.text(given, "alert")
        if record and alert:
            self.wrong(given.lines["alert"], "it has both record and alert; a rule is one of them")
        elif record or alert:
            self.where += f" {quoted(record or alert)}"
        else:
            self.wrong(node.line, "it has neither record nor alert")
        self.check_known(given, RULE_FIELDS, "a rule")
        if record:
            self.check_record(given, record)
        expression = self.text(given, "expr", EXPRESSION_CHARACTERS_MAX)
        if not expression:
            self.wrong(node.line, "it has no expr")
        rule = Rule(
            name=alert or record,
            is_alert=bool(alert),
            expression=expression,
            for_s=self.duration(given, "for") or 0.0,
            keep_firing_for_s=self.duration(given, "keep_firing_for") or 0.0,
            labels={**group_labels, **self.labels(given)},
            annotations=self.annotations(given),
            line=node.line,
        )
        if len(rule.labels) > LABELS_MAX:
            self.wrong(
                node.line, f"{len(rule.labels)} labels with its group's; at most {LABELS_MAX}"
            )
        if record and not alert:
            self.check_recording(given, rule)
        return rule

    def check_record(self, given: Fields, name: str) -> None:
        """What Prometheus demands of the name of a series that a rule writes."""
        if "{" in name or "}" in name:
            self.wrong(
                given.lines["record"],
                "record is a name; what is in braces belongs to expr or labels",
            )
        elif not name.isprintable() or len(name.encode()) > LABEL_VALUE_BYTES_MAX:
            self.wrong(given.lines["record"], f"{quoted(name)} cannot be the name of a metric")

    def check_recording(self, given: Fields, rule: Rule) -> None:
        """Only alerts have `for`, `keep_firing_for` and annotations."""
        values = {
            "for": rule.for_s,
            "keep_firing_for": rule.keep_firing_for_s,
            "annotations": rule.annotations,
        }
        for name, value in values.items():
            if value:
                self.wrong(given.lines[name], f"{name} is for alerts; this rule records a series")

    # --- values ---------------------------------------------------------------------------------

    def fields(self, node: Node, what: str) -> Fields:
        """A map. Nothing at all is a map without fields."""
        if isinstance(node, Fields):
            return node
        if not (isinstance(node, Scalar) and node.is_null):
            self.wrong(node.line, f"{kind_of(node)} where {what} should be; its fields are a map")
        return Fields(node.line)

    def check_known(self, given: Fields, known: tuple[str, ...], what: str) -> None:
        """Prometheus refuses an unknown field: it is a mistake, and would do nothing."""
        for name in given.fields:
            if name not in known:
                detail = f"{what} has no field {quoted(name)}; {near(name, known)}"
                self.wrong(given.lines[name], detail)

    def items(self, node: Node | None, name: str) -> list[Node]:
        """The items of a list. Nothing at all is a list without any."""
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return []
        if not isinstance(node, Items):
            self.wrong(node.line, f"{name} is {kind_of(node)}; it must be a list")
            return []
        return node.items

    def text(self, given: Fields, name: str, most: int = LABEL_VALUE_BYTES_MAX) -> str:
        """A field's text; empty where it is not there."""
        node = given.fields.get(name)
        return "" if node is None else self.word(node, name, most)

    def word(self, node: Node, name: str, most: int) -> str:
        if not isinstance(node, Scalar):
            self.wrong(node.line, f"{name} is {kind_of(node)}; it must be text")
            return ""
        if len(node.text) > most:
            self.wrong(node.line, f"{name} has {len(node.text)} characters; at most {most}")
            return ""
        return "" if node.is_null else node.text

    def duration(self, given: Fields, name: str) -> float | None:
        node = given.fields.get(name)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return None
        if not isinstance(node, Scalar):
            self.wrong(node.line, f"{name} is {kind_of(node)}; it must be a duration")
            return None
        try:
            return read_duration(node.text)
        except ParseError as error:
            self.wrong(node.line, f"{name}: {error.detail}")
            return None

    def limit(self, given: Fields) -> int:
        node = given.fields.get("limit")
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return 0
        if not (isinstance(node, Scalar) and node.is_plain and WHOLE_NUMBER.fullmatch(node.text)):
            self.wrong(node.line, f"limit is {kind_of(node)}; it must be a whole number")
            return 0
        if int(node.text) < 0:
            self.wrong(node.line, f"limit is {node.text}; write 0 for none")
            return 0
        return int(node.text)

    def labels(self, given: Fields) -> dict[str, str]:
        found = self.texts(given, "labels", LABELS_MAX)
        if METRIC_LABEL in found:
            self.wrong(given.lines["labels"], f"{METRIC_LABEL} is not for rules to set")
        return found

    def annotations(self, given: Fields) -> dict[str, str]:
        return self.texts(given, "annotations", ANNOTATIONS_MAX)

    def texts(self, given: Fields, name: str, most: int) -> dict[str, str]:
        node = given.fields.get(name)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return {}
        if not isinstance(node, Fields):
            self.wrong(node.line, f"{name} is {kind_of(node)}; it must be a map")
            return {}
        if len(node.fields) > most:
            self.wrong(node.line, f"{len(node.fields)} {name}; at most {most}")
            return {}
        for each in node.fields:
            if not each or not each.isprintable() or len(each.encode()) > LABEL_NAME_BYTES_MAX:
                self.wrong(node.lines[each], f"{quoted(each)} cannot be a name in {name}")
        return {
            each: self.word(value, f"{name}.{each[:LABEL_NAME_BYTES_MAX]}", TEMPLATE_CHARACTERS_MAX)
            for each, value in node.fields.items()
        }


def near(name: str, known: tuple[str, ...]) -> str:
    """The end of a message: the known name that is close to `name`, or all of them."""
    meant = difflib.get_close_matches(name[:LABEL_NAME_BYTES_MAX], known, n=1)
    return f"did you mean {meant[0]}?" if meant else f"known: {', '.join(known)}"
