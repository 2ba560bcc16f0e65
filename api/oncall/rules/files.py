"""Rule files from disk, read whole and checked, for `fabricscope rules`."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from alerts.rulebook.file import RULE_FILE_BYTES_MAX, parse_rules
from alerts.rulebook.model import Group, Rule
from alerts.rulebook.template import TemplateError, check
from api.oncall.rules.memory import plan_of_rule
from api.promql.errors import QueryError
from collector.contract.errors import RuleFileError, SettingsError

SUFFIXES = frozenset({".yaml", ".yml", ".rules"})
"""How rule files are named in a folder; one that is named itself may be called anything."""

FILES_MAX = 10_000
"""Files of one call: a wrong folder is noticed before it is read."""


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something that is wrong, and where. ``line`` 0: the whole file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


def find_rule_files(paths: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for name in paths:
        path = Path(name)
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES)
            if not inside:
                raise SettingsError(f"{name}: no rule files in it ({', '.join(sorted(SUFFIXES))})")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise SettingsError(f"{name}: there is no such file")
    if len(found) > FILES_MAX:
        raise SettingsError(f"{len(found)} files; at most {FILES_MAX} at once")
    return list(dict.fromkeys(found))


def read_text(path: Path, bytes_max: int) -> str:
    """A file's text; a RuleFileError if it is too large, no text, or cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise RuleFileError(str(path), [(0, f"it has over {bytes_max} bytes")])
        return content.decode("utf-8")
    except OSError as error:
        raise RuleFileError(str(path), [(0, error.strerror or str(error))]) from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RuleFileError(str(path), [(line, "it is no UTF-8 text")]) from error


def read_rule_file(path: Path) -> list[Group]:
    """The groups of a file whose expressions and templates can be read; else a RuleFileError."""
    groups = parse_rules(read_text(path, RULE_FILE_BYTES_MAX), str(path))
    problems = [
        (rule.line, f"{rule.name}: {why}")
        for group in groups
        for rule in group.rules
        for why in problems_of(rule)
    ]
    if problems:
        raise RuleFileError(str(path), problems)
    return groups


def problems_of(rule: Rule) -> list[str]:
    """Why a rule that has its shape could never be evaluated."""
    problems: list[str] = []
    try:
        plan_of_rule(rule.expression)
    except QueryError as error:
        problems.append(f"expr: {error}")
    if not rule.is_alert:
        return problems
    for kind, texts in (("label", rule.labels), ("annotation", rule.annotations)):
        for name, text in texts.items():
            try:
                check(text)
            except TemplateError as error:
                problems.append(f"{kind} {name}: {error}")
    return problems


def match_rule_files(patterns: Sequence[str], beside: Path) -> tuple[list[Path], list[str]]:
    """The files that match patterns of a test file, relative to it; and unmatched patterns."""
    found: list[Path] = []
    empty: list[str] = []
    for pattern in patterns:
        matches = sorted(glob.glob(str(beside.parent / pattern)))  # noqa: PTH207 - may be absolute
        if not matches:
            empty.append(pattern)
        found += map(Path, matches)
    if len(found) > FILES_MAX:
        raise SettingsError(f"{beside}: {len(found)} rule files; at most {FILES_MAX}")
    return found, empty
