"""`fabricscope rules check`: what is wrong with rule files, and what is only probably wrong."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from alerts.rulebook.file import duplicate_rules
from alerts.rulebook.model import Group
from api.oncall.rules.files import Problem, find_rule_files, read_rule_file
from api.oncall.rules.lint import Linter
from collector.contract.catalog import load_catalog
from collector.contract.errors import RuleFileError


class Lint(enum.StrEnum):
    """What to do about things that are allowed and probably wrong."""

    NONE = "none"
    WARN = "warn"
    FATAL = "fatal"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. With `--lint fatal` warnings are problems."""

    files: int
    rules: int
    problems: list[Problem]
    warnings: list[Problem]
    left_out: dict[str, int]
    """By file: how many problems past the bound are not listed."""

    @property
    def is_bad(self) -> bool:
        return bool(self.problems)


def check_files(paths: Iterable[str], lint: Lint) -> Checked:
    """Read every file and report all problems. A SettingsError if a path does not exist."""
    found = find_rule_files(paths)
    problems: list[Problem] = []
    left_out: dict[str, int] = {}
    groups: list[Group] = []
    for path in found:
        try:
            groups += read_rule_file(path)
        except RuleFileError as error:
            problems += [Problem(error.file, line, text) for line, text in error.problems]
            if error.left_out:
                left_out[error.file] = error.left_out
    warnings = [] if lint is Lint.NONE else warnings_of(groups)
    if lint is Lint.FATAL:
        problems, warnings = sorted([*problems, *warnings]), []
    return Checked(
        files=len(found),
        rules=sum(len(group.rules) for group in groups),
        problems=problems,
        warnings=warnings,
        left_out=left_out,
    )


def warnings_of(groups: Sequence[Group]) -> list[Problem]:
    linter = Linter([rule for group in groups for rule in group.rules], load_catalog())
    warnings = [
        Problem(group.file, rule.line, f"{rule.name}: {text}")
        for group in groups
        for rule in group.rules
        for text in linter.warnings(rule, group)
    ]
    places = {id(rule): group.file for group in groups for rule in group.rules}
    warnings += [
        Problem(
            places[id(rule)],
            rule.line,
            f"{rule.name}: {often} rules have this name and these labels; "
            "they overwrite each other's series",
        )
        for rule, often in duplicate_rules(groups)
    ]
    return warnings
