"""Judges one host: every check, and what the site expects."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collector.audit.checks import discover
from collector.audit.expectations import (
    NOTHING_EXPECTED,
    Expectations,
    is_expected,
    judge_expectations,
)
from collector.audit.facts import Facts, Unread
from collector.audit.finding import Evidence, Finding, Severity, finding_order, severity_rank

OTHER_CHECKS = (
    "expectation",
    "outlier",
    "job_environment",
    "asymmetric_paths",
    "nvlink_domains",
    "path_mtu",
    "partitions",
)
"""Origins of findings besides the folder of checks."""


ECHOES = frozenset({"unlike_nics"})
"""Checks that compare: another check's finding about the same setting is more specific."""


def check_names() -> tuple[str, ...]:
    return (*discover(), *OTHER_CHECKS)


def without_echoes(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without those that only report a different NIC, where another explains it."""
    explained = {
        (each.device, each.setting)
        for finding in findings
        if finding.check not in ECHOES
        for each in finding.read[:1]
    }
    explained |= {
        (each.device, each.setting)
        for finding in findings
        if finding.check == "lossless"
        for each in finding.read
        if each.device == finding.device
    }
    return [
        finding
        for finding in findings
        if finding.check not in ECHOES
        or not all((each.device, each.setting) in explained for each in accused(finding))
    ]


def accused(finding: Finding) -> list[Evidence]:
    """The wrong part of a finding's evidence: the last entry is the correct neighbour."""
    return list(finding.read[:-1] if len(finding.read) > 1 else finding.read)


def judge_host(facts: Facts, expectations: Expectations = NOTHING_EXPECTED) -> list[Finding]:
    on_host = expectations.on_host(facts.host)
    found = [finding for finding, _ in judge_expectations(facts, on_host)]
    for check in discover().values():
        if check.name not in expectations.ignore:
            found += (each for each in check.judge(facts) if not is_expected(each, facts, on_host))
    found = without_echoes(found)
    named = (msgspec.structs.replace(finding, host=facts.host) for finding in found)
    return sorted(named, key=finding_order)


def blinded(unread: Unread) -> list[str]:
    names = [name for name, check in discover().items() if check.sees(unread.setting)]
    if unread.setting == "NCCL environment":
        names = [name for name, check in discover().items() if check.is_about_jobs]
    return names


def worst(findings: list[Finding]) -> Severity | None:
    return max((each.severity for each in findings), key=severity_rank, default=None)
