"""RE2's regular expressions, from Arrow: linear in the text, so no template hangs an evaluation."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from alerts.rulebook.template.bounds import MATCHED_MAX, PATTERN_MAX
from alerts.rulebook.template.errors import CallError
from alerts.rulebook.template.lex import quoted
from alerts.rulebook.template.values import as_bytes

GROUPS_MAX = 9
"""RE2 itself refers to so many groups in what it puts in place."""
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
r"""`\C`, which Go's RE2 does not know, and which could take a character apart."""
_REFUSED = "Invalid regular expression: "
"""Arrow's prefix of RE2's errors."""
_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
_GROUP = re.compile(r"\((?!\?)|\(\?P?<(\w+)>")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))", re.ASCII)


def matches(pattern: str, text: str) -> bool:
    _check(pattern, text)
    try:
        found = pc.match_substring_regex(_array(text), pattern=_whole_characters(pattern))
    except pa.ArrowInvalid as error:
        raise CallError(_complaint(str(error), pattern)) from error
    return bool(found[0].as_py())


def replace_all(pattern: str, replacement: str, text: str) -> str:
    """A text with everything that a pattern finds replaced; `$1` and `${name}` are its groups."""
    _check(pattern, text)
    if len(replacement) > PATTERN_MAX:
        raise CallError(f"a replacement of {len(replacement)} characters; at most {PATTERN_MAX}")
    try:
        # Before the groups are counted: that assumes a pattern that RE2 accepts.
        matches(pattern, "")
    except CallError as error:
        shown = quoted(pattern) if "`" in pattern else f"`{pattern}`"
        raise CallError(f"regexp: Compile({shown}): {error}") from error
    replaced = pc.replace_substring_regex(
        _array(text),
        pattern=_whole_characters(pattern),
        replacement=_for_re2(_whole_characters(replacement), _groups(pattern)),
    )
    return str(replaced[0].as_py())


def _array(text: str) -> pa.Array:
    """What Arrow looks in. Bytes that are no UTF-8 become the sign for that."""
    return pa.array([_whole_characters(text)], pa.string())


def _whole_characters(text: str) -> str:
    return as_bytes(text).decode("utf-8", "replace")


def _check(pattern: str, text: str) -> None:
    if len(pattern) > PATTERN_MAX:
        raise CallError(f"a pattern of {len(pattern)} characters; at most {PATTERN_MAX}")
    if len(as_bytes(text)) > MATCHED_MAX:
        raise CallError(f"a text of {len(text)} characters to match; at most {MATCHED_MAX} bytes")
    if _ANY_BYTE.search(pattern):
        raise CallError("error parsing regexp: invalid escape sequence: `\\C`")


def _complaint(message: str, pattern: str) -> str:
    _, found, detail = message.partition(_REFUSED)
    reason, _, part = detail.partition(": ")
    if not found or not reason:
        return f"error parsing regexp: `{pattern}`"
    return f"error parsing regexp: {_GO_WORDS.get(reason, reason)}: `{part}`"


def _groups(pattern: str) -> list[str]:
    """The names of a pattern's groups, in order; empty where one has none."""
    names: list[str] = []
    at = 0
    while at < len(pattern):
        end = end_of_literal(pattern, at)
        group = _GROUP.match(pattern, at) if end == at else None
        if group is not None:
            names.append(group[1] or "")
        at = max(end, at + 1)
    return names


def end_of_literal(pattern: str, at: int) -> int:
    """Where the escape, the quotation or the class that begins here ends; ``at`` if none does."""
    if pattern.startswith("\\Q", at):
        end = pattern.find("\\E", at)
        return len(pattern) if end < 0 else end + 2
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] != "[":
        return at
    # The first character of a class is its member even if it is the closing bracket.
    inside = at + 2 if pattern.startswith("[^", at) else at + 1
    inside += pattern.startswith("]", inside)
    while inside < len(pattern) and pattern[inside] != "]":
        if pattern.startswith("[:", inside) and ":]" in pattern[inside:]:
            inside = pattern.index(":]", inside) + 2
        else:
            inside += 2 if pattern[inside] == "\\" else 1
    return inside + 1


def _for_re2(replacement: str, groups: list[str]) -> str:
    r"""What Go would put in place, in RE2's own notation: `\1` for `$1`.

    A name is as long as it can be: `$1x` is the group `1x`, which is none, and so empty.
    """
    numbers = {name: number for number, name in enumerate(groups, start=1) if name}

    def reference(found: re.Match[str]) -> str:
        if found[3]:
            return "$"
        name = found[1] or found[2]
        number = int(name[:4]) if name.isdecimal() else numbers.get(name, -1)
        if not 0 <= number <= len(groups):
            return ""
        if number > GROUPS_MAX:
            raise CallError(f"a reference to group {number}; at most {GROUPS_MAX}")
        return f"\\{number}"

    # A backslash is RE2's own sign.
    return _REFERENCE.sub(reference, replacement.replace("\\", "\\\\"))
