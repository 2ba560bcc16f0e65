"""A finding of the audit: one thing that costs bandwidth, with its evidence and its remedy."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from collector.audit.facts import Fact


class Severity(enum.StrEnum):
    """How much it matters. Ordered by `severity_rank`."""

    INFO = "info"
    """Worth knowing; it may be meant so."""
    WARNING = "warning"
    """It costs bandwidth, or it will as soon as something else happens."""
    CRITICAL = "critical"
    """Training runs at a fraction of what the hardware can do."""


SEVERITIES = tuple(Severity)


def severity_rank(severity: Severity) -> int:
    """0 for the mildest.

    >>> severity_rank(Severity.CRITICAL) > severity_rank(Severity.INFO)
    True
    """
    return SEVERITIES.index(severity)


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """A setting that was read, and where."""

    device: str
    setting: str
    value: str
    origin: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that costs bandwidth before anything breaks."""

    check: str
    """The check's name; or one of `judge.OTHER_CHECKS`."""
    severity: Severity
    host: str = ""
    """Empty where no host is accused: hosts disagree and no majority shows which is right."""
    device: str = ""
    title: str
    read: tuple[Evidence, ...] = ()
    """What was read where; the first is what the finding is about."""
    expected: str
    why: str
    source: str
    """The authority: a document, or the majority."""
    fix: str
    """A command where there is one."""
    confidence: float
    """From 0 to 1: that the title is true, and the setting not intended."""
    cost: str


def evidence_of(facts: Sequence[Fact | None]) -> tuple[Evidence, ...]:
    """Facts as evidence, without those that were not read."""
    return tuple(
        Evidence(fact.device, fact.setting, fact.value, fact.origin)
        for fact in facts
        if fact is not None
    )


def finding_order(finding: Finding) -> tuple[int, str, str, str, str]:
    """The worst first, then by host, check and device."""
    rank = -severity_rank(finding.severity)
    return rank, finding.host, finding.check, finding.device, finding.title
