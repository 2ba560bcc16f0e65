"""Functions on labels: `label_replace`, `label_join`, sorting by labels, dropping metric names.

Patterns are RE2's, as in Prometheus: Arrow includes that engine. It takes time linear in the text
whatever the pattern, so that no pattern can hang the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.rulebook.template.patterns import end_of_literal
from api.data.selectors import Matcher
from api.promql.errors import failed
from api.promql.values import (
    Bools,
    Dialect,
    Floats,
    Labels,
    Vector,
    label_order,
    merge_rows,
    metric_names,
    without_names,
)
from collector.contract.identity import METRIC_LABEL

_CLASSIC_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_CHUNKS = re.compile(r"[0-9]+|[^0-9]+")
_GROUP = re.compile(r"\((?:(?!\?)|\?P?<(\w+)>)")


def drop_names(labels: Sequence[Labels], values: Floats, present: Bools) -> Vector:
    """Rows can only have become the same where names differed: one metric needs no comparing."""
    names = metric_names(labels)
    if names <= {None}:
        return Vector(labels, values, present)
    if len(names) == 1:
        return Vector(without_names(labels), values, present)
    return merge_rows(without_names(labels), values, present)


def absent_labels(matchers: Iterable[Matcher]) -> Labels:
    """The labels that `absent(…)` and `absent_over_time(…)` give to what they miss.

    Those that the selector fixes to one value, save the metric's name. As in Prometheus, a label
    that is named again, by whatever operator, is not fixed.
    """
    labels: dict[str, str] = {}
    seen = set()
    for matcher in matchers:
        if matcher.label == METRIC_LABEL:
            continue
        if matcher.operator == "=" and matcher.label not in seen:
            labels[matcher.label] = matcher.value
            seen.add(matcher.label)
        else:
            labels.pop(matcher.label, None)
    return {name: value for name, value in labels.items() if value}


def with_label(labels: Labels, name: str, value: str) -> Labels:
    """The labels with one replaced; an empty value removes it."""
    if labels.get(name, "") == value:
        return labels
    changed = {key: known for key, known in labels.items() if key != name}
    if value:
        changed[name] = value
    return changed


def is_new_label_name(name: str) -> bool:
    """Whether an expression may create a label of this name: ASCII letters, digits, underscores.

    Prometheus 3 takes any text here if its names are UTF-8, and the compliance suite expects
    `~invalid` to be refused; a strange name in a query is more often a typo than intended.
    """
    return _CLASSIC_NAME.fullmatch(name) is not None


def label_join(
    vector: Vector, target: str, separator: str, sources: Sequence[str], dialect: Dialect
) -> Vector:
    """Set a label to the values of others, joined; labels that a series has not are empty."""
    for source in sources:
        if not source or (dialect is Dialect.PROMETHEUS_2 and not is_new_label_name(source)):
            raise failed(f"invalid source label name in label_join(): {source}")
    if not is_new_label_name(target):
        raise failed(f"invalid destination label name in label_join(): {target}")
    joined = [
        with_label(one, target, separator.join(one.get(source, "") for source in sources))
        for one in vector.labels
    ]
    return merge_rows(joined, vector.values, vector.present)


def label_replace(
    vector: Vector, target: str, replacement: str, source: str, pattern: str, dialect: Dialect
) -> Vector:
    """Set a label from the parts of another that a pattern finds; series that do not match stay.

    The pattern must match the whole value. ``$1``, ``${1}``, ``$name`` and ``${name}`` in the
    replacement stand for its groups, ``$$`` for a dollar.
    """
    expression = Pattern.compile(pattern, dialect)
    if not is_new_label_name(target):
        raise failed(f"invalid destination label name in label_replace(): {target}")
    template = list(template_parts(replacement))
    olds = list({one.get(source, ""): None for one in vector.labels})
    news = {
        old: expand(template, groups)
        for old, groups in zip(olds, expression.match(olds), strict=True)
        if groups is not None
    }
    replaced = [
        with_label(one, target, news[old]) if (old := one.get(source, "")) in news else one
        for one in vector.labels
    ]
    return merge_rows(replaced, vector.values, vector.present)


class Pattern(msgspec.Struct, frozen=True):
    """A pattern of RE2's that must match all of a text."""

    text: str
    """The pattern in which every group has a name: Arrow gives back named groups only."""
    references: dict[str, list[str]]
    """How a replacement may call the groups, by number or name: their names in ``text``.

    Several groups may have one name, as in ``(?P<id>a.)|(?P<id>b.)``.
    """

    @classmethod
    def compile(cls, pattern: str, dialect: Dialect) -> Pattern:
        """The pattern between two anchors; in Prometheus 3 its dot meets newlines too."""
        flags = "?" if dialect is Dialect.PROMETHEUS_2 else "?s"
        anchored = f"^({flags}:{pattern})$"
        try:
            # Before the groups are renamed: an invalid name in the query must still be refused.
            pc.match_substring_regex(pa.array([""]), pattern=anchored)
        except pa.ArrowInvalid as error:
            refusal = f"invalid regular expression in label_replace(): {pattern}"
            raise failed(refusal) from error
        text, names = name_groups(anchored)
        references: dict[str, list[str]] = {}
        for number, name in enumerate(names, start=1):
            references.setdefault(name, []).append(f"group{number}")
        numbers = {str(number): [f"group{number}"] for number in range(len(names) + 1)}
        return cls(f"(?P<group0>{text})", references | numbers)

    def match(self, texts: Sequence[str]) -> list[dict[str, str] | None]:
        """For each text its groups by what they may be called; None if it does not match."""
        found: list[dict[str, str] | None] = pc.extract_regex(
            pa.array(texts, pa.string()), pattern=self.text
        ).to_pylist()

        def contents(groups: dict[str, str]) -> dict[str, str]:
            return {
                call: next((groups[name] for name in names if groups[name]), "")
                for call, names in self.references.items()
            }

        return [None if one is None else contents(one) for one in found]


def name_groups(pattern: str) -> tuple[str, list[str]]:
    r"""The pattern with its groups named group1, group2, …; and the old name of each, or "".

    Assumes that RE2 has accepted the pattern. A bracket is a group unless it is escaped, quoted
    (``\Q…\E``), in a class (``[(]``), or opens something else (``(?:``, ``(?i)``).
    """
    parts: list[str] = []
    names: list[str] = []
    at = 0
    while at < len(pattern):
        end = end_of_literal(pattern, at)
        group = _GROUP.match(pattern, at)
        if end > at or group is None:
            end = max(end, at + 1)
            parts.append(pattern[at:end])
            at = end
            continue
        names.append(group[1] or "")
        parts.append(f"(?P<group{len(names)}>")
        at = group.end()
    return "".join(parts), names


class Reference(msgspec.Struct, frozen=True):
    """A place in a replacement where a group goes."""

    group: str


def template_parts(template: str) -> Iterator[str | Reference]:
    """Go's ``Regexp.Expand``: ``$1x`` is the group ``1x``; a dollar without a name is a dollar."""
    text, *rest = template.split("$")
    yield text
    pieces = iter(rest)
    for piece in pieces:
        if not piece:
            # The second of two dollars, or the end.
            yield "$" + next(pieces, "")
            continue
        braced = piece.startswith("{")
        start = int(braced)
        end = start
        while end < len(piece) and (
            piece[end].isalpha() or piece[end].isdecimal() or piece[end] == "_"
        ):
            end += 1
        if end == start or (braced and not piece.startswith("}", end)):
            yield "$" + piece
            continue
        yield Reference(piece[start:end])
        yield piece[end + braced :]


def expand(template: Iterable[str | Reference], groups: Mapping[str, str]) -> str:
    return "".join(
        part if isinstance(part, str) else groups.get(part.group, "") for part in template
    )


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A key that puts `node-9` before `node-10`.

    The order of github.com/facette/natsort, on which Prometheus relies: runs of digits compare as
    numbers, all else as text. Where that library contradicts itself (an empty text; `01` and `1`),
    the empty text comes first and equal numbers are equal.
    """
    keys = []
    for chunk in _CHUNKS.findall(text):
        if "0" <= chunk[0] <= "9":
            digits = chunk.lstrip("0")
            keys.append((1, len(digits), digits))
        else:
            keys.append((0 if chunk[0] < "0" else 2, 0, chunk))
    return keys


def sort_by_labels(vector: Vector, names: Sequence[str], *, descending: bool) -> Vector:
    def key(row: int) -> tuple[list[list[tuple[int, int, str]]], list[tuple[str, str]]]:
        labels = vector.labels[row]
        return [natural_key(labels.get(name, "")) for name in names], label_order(labels)

    return vector.take(sorted(range(len(vector.labels)), key=key, reverse=descending))


def sort_by_values(vector: Vector, *, descending: bool) -> Vector:
    """The rows of a vector of one step in the order of their values; NaN last, and absent ones."""
    values = np.where(vector.present, vector.values, np.nan)[:, 0]
    return vector.take(np.argsort(-values if descending else values, kind="stable"))
