"""What a site expects: a TOML file that fixes values, so that the audit need not guess by majority.

ignore = ["processor_settings"]          # checks that are not wanted

[[expect]]
setting = "interface_mtu"                # as `fabricscope audit --json` names it
values = ["9000", "9216"]                # any of these
devices = "mlx5_*"                       # shell patterns; without: every device that has it
hosts = "node-*"
severity = "critical"                    # info, warning (the default) or critical
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property

import msgspec

from collector.audit.facts import Fact, Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.contract.errors import SettingsError

EXPECTATIONS_MAX = 1_000
"""Of one file: each is held against each fact of its setting."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that one setting may have."""

    setting: str
    values: tuple[str, ...]
    devices: str = "*"
    hosts: str = "*"
    severity: Severity = Severity.WARNING
    why: str = "This site expects it."
    fix: str = "set it as expected"

    def allows(self, fact: Fact) -> bool:
        return fact.value in self.values

    def is_about(self, fact: Fact) -> bool:
        return fact.setting == self.setting and fnmatchcase(fact.device, self.devices)


class Expectations(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Everything that a site expects."""

    ignore: tuple[str, ...] = ()
    expect: tuple[Expectation, ...] = ()

    @cached_property
    def settings(self) -> frozenset[str]:
        return frozenset(each.setting for each in self.expect)

    def on_host(self, host: str) -> tuple[Expectation, ...]:
        return tuple(each for each in self.expect if fnmatchcase(host, each.hosts))


NOTHING_EXPECTED = Expectations()


def parse_expectations(text: str, name: str, checks: Iterable[str]) -> Expectations:
    try:
        found = msgspec.convert(tomllib.loads(text), Expectations)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{name}: {error}") from error
    if len(found.expect) > EXPECTATIONS_MAX:
        raise SettingsError(f"{name}: over EXPECTATIONS_MAX = {EXPECTATIONS_MAX} expectations")
    known = sorted(checks)
    for ignored in found.ignore:
        if ignored not in known:
            raise SettingsError(f"{name}: no check {ignored!r}; there are {', '.join(known)}")
    for each in found.expect:
        if not each.values:
            raise SettingsError(f"{name}: expect {each.setting!r} has no values")
    return found


def judge_expectations(
    facts: Facts, expectations: tuple[Expectation, ...]
) -> Iterator[tuple[Finding, Expectation]]:
    for each in expectations:
        meant = [fact for fact in facts.all() if each.is_about(fact)]
        wrong = [fact for fact in meant if not each.allows(fact)]
        if not wrong:
            continue
        values = listed(sorted({fact.value for fact in wrong}))
        where = listed([fact.device for fact in wrong if fact.device]) or "the host"
        wanted = " or ".join(each.values[:4])
        finding = Finding(
            check="expectation",
            severity=each.severity,
            device=wrong[0].device if len(wrong) == 1 else "",
            title=f"{each.setting} of {where} is {values}, and should be {wanted}",
            read=evidence_of(wrong[:8]),
            expected=wanted,
            why=each.why,
            source="the site's expectations",
            fix=each.fix,
            confidence=1.0,
            cost="As the site knows.",
        )
        yield finding, each


def is_expected(finding: Finding, facts: Facts, expectations: tuple[Expectation, ...]) -> bool:
    """Whether the site's expectations allow what the finding is about."""
    if not finding.read:
        return False
    about = finding.read[0]
    fact = facts.get(about.device, about.setting)
    return fact is not None and any(
        each.is_about(fact) and each.allows(fact) for each in expectations
    )
